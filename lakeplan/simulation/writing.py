"""Rows of an output table: few of them on the driver, many of them in Spark. Either can be written as a
Parquet folder of this machine, and gives its largest rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeplan.simulation.output import writing
from lakeplan.simulation.session import is_local

FEW = 1_000_000
"""Objects up to which rows are brought to the driver (some 300 MB): planning and compiling a query in Spark
takes longer."""
PART = "part-00000.parquet"


class Rows(Protocol):
    def write(self, folder: Path, columns: Sequence[str], *, sort: str) -> None:
        """A folder of Parquet files, rows ordered within each."""

    def largest(self, rule_set: str, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
        """The rows of a rule set with most bytes, then most objects, then by the first column."""


def is_few(objects: int) -> bool:
    return objects <= FEW


def rows_of(frame: DataFrame) -> Rows:
    """With a cluster rows are always brought here, because its machines do not see this one's folders."""
    if not is_local(frame.sparkSession):
        return FewRows(frame.toArrow())
    return ManyRows(frame)


class FewRows:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def write(self, folder: Path, columns: Sequence[str], *, sort: str) -> None:
        with writing(folder):
            folder.mkdir()
            table = self._table.select(list(columns)).sort_by(sort)
            pq.write_table(table, folder / PART, compression="snappy")

    def largest(self, rule_set: str, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
        of_one = self._table.filter(pc.field("rule_set") == rule_set).select(list(columns))
        order = [("size_bytes", "descending"), ("objects", "descending"), (columns[0], "ascending")]
        rows: list[dict[str, Any]] = of_one.sort_by(order).slice(0, limit).to_pylist()
        return rows


class ManyRows:
    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def write(self, folder: Path, columns: Sequence[str], *, sort: str) -> None:
        self._frame.select(*columns).sortWithinPartitions(sort).write.parquet(f"file://{folder}")
        for checksum in folder.glob(".*.crc"):
            checksum.unlink()

    def largest(self, rule_set: str, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
        of_one = self._frame.where(F.col("rule_set") == rule_set).select(*columns)
        ordered = of_one.orderBy(F.desc("size_bytes"), F.desc("objects"), columns[0])
        rows: list[dict[str, Any]] = ordered.limit(limit).toArrow().to_pylist()
        return rows
