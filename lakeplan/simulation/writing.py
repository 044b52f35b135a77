"""DataFrames as Parquet folders on this machine."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from lakeplan.simulation.output import writing
from lakeplan.simulation.session import is_local


def write_frame(frame: DataFrame, folder: Path, *, sort: str) -> None:
    """Writes a folder of Parquet files, rows ordered within each. With a cluster the rows come here first,
    because its machines do not see this one's folders."""
    if is_local(frame.sparkSession):
        frame.sortWithinPartitions(sort).write.parquet(f"file://{folder}")
        for checksum in folder.glob(".*.crc"):
            checksum.unlink()
        return
    with writing(folder):
        folder.mkdir()
        pq.write_table(frame.sort(sort).toArrow(), folder / "part-00000.parquet", compression="snappy")
