"""Deletes the parts of a round in Spark's Python workers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeplan.errors import LakeplanError
from lakeplan.simulation.requests import DeleteRequest
from lakeplan.sweep.deleting import sweep_parts
from lakeplan.sweep.rounds import SweepStopped
from lakeplan.values.sweep import Part, PartResult

ENDS = "kind string, text string"


class SparkWorkers:
    """Implements ``Workers`` of a session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def parallelism(self) -> int:
        return self._session.sparkContext.defaultParallelism

    def run(self, shares: Sequence[Sequence[Part]], work: DeleteRequest) -> list[PartResult | LakeplanError]:
        """Implements ``Workers``. ``work`` has credentials, so it is sent with the function over a socket."""

        def sweep(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    for end in sweep_parts(shares[number], work):
                        yield to_batch(end)

        numbers = self._session.range(0, len(shares), 1, len(shares))
        try:
            table = numbers.mapInArrow(sweep, ENDS).toArrow()
        except (PySparkException, Py4JError, ConnectionError) as error:
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise SweepStopped(f"the Spark job failed: {first[:300]}") from error
        return [
            from_row(kind, text)
            for kind, text in zip(
                table.column("kind").to_pylist(), table.column("text").to_pylist(), strict=True
            )
        ]

    def cancel(self) -> None:
        """Implements ``Workers``. Spark ends the processes."""
        self._session.sparkContext.cancelAllJobs()


def to_batch(end: PartResult | LakeplanError) -> pa.RecordBatch:
    """A result as one row for the driver."""
    if isinstance(end, LakeplanError):
        fields = {"message": end.message, "where": end.where, "hint": end.hint}
        return pa.RecordBatch.from_pydict({"kind": ["error"], "text": [json.dumps(fields)]})
    return pa.RecordBatch.from_pydict({"kind": ["end"], "text": [json.dumps(end.to_row())]})


def from_row(kind: str, text: str) -> PartResult | LakeplanError:
    fields = json.loads(text)
    return PartResult.from_row(fields) if kind == "end" else LakeplanError(**fields)
