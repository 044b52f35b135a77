"""A round of deletions as a Spark job: parts spread over the executors, their ends brought back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from lakeplan.errors import LakeplanError
from lakeplan.model.sweep import Part, PartEnd
from lakeplan.ports.progress import Progress, Silent
from lakeplan.ports.sweep import DeleteRequest, RoundEnd
from lakeplan.sweep.deleting import Work, rows_of, sweep_parts

OpenSession = Callable[[], AbstractContextManager[SparkSession]]
ENDS = StructType([StructField("kind", StringType(), False), StructField("text", StringType(), False)])


class SparkSweeper:
    """``lakeplan.ports.sweep.Sweeper`` on Spark. ``parallelism``: how many workers delete (None: all)."""

    def __init__(
        self, open_session: OpenSession, progress: Progress | None = None, *, parallelism: int | None = None
    ) -> None:
        self._open = open_session
        self._progress = progress or Silent()
        self._parallelism = parallelism

    def delete(self, request: DeleteRequest) -> RoundEnd:
        """See the port. What Spark itself fails with becomes the round's problem: finished parts have
        their records, and the next run reads them."""
        with self._progress.task(f"deleting from {len(request.parts)} parts", None), self._open() as session:
            workers = self._parallelism or session.sparkContext.defaultParallelism
            shares = [request.parts[n::workers] for n in range(min(workers, len(request.parts)))]
            work = _work_of(request, workers)
            try:
                rows = _run(session, shares, work)
            except (PySparkException, Py4JError, ConnectionError) as error:
                first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
                return RoundEnd((), f"the Spark job stopped: {first[:300]}")
        ends = [PartEnd.from_row(json.loads(text)) for kind, text in rows if kind == "end"]
        problem = next((text for kind, text in rows if kind == "error"), "")
        return RoundEnd(ends, problem)


def _work_of(request: DeleteRequest, workers: int) -> Work:
    rate = request.settings.rate
    return Work(
        request.store,
        request.mark_prefix,
        request.prefix,
        request.quarantine_prefix,
        request.settings,
        request.saved,
        request.keep_never_committed,
        request.begun,
        None if rate is None else rate / workers,
        None if request.until is None else request.until.timestamp(),
    )


def _run(session: SparkSession, shares: Sequence[Sequence[Part]], work: Work) -> list[tuple[str, str]]:
    def sweep(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for end in sweep_parts(shares[number], work):
                    yield rows_of([end], _told)

    numbers = session.range(0, len(shares), 1, len(shares))
    table = numbers.mapInArrow(sweep, ENDS).toArrow()
    return list(zip(table.column("kind").to_pylist(), table.column("text").to_pylist(), strict=True))


def _told(error: LakeplanError) -> str:
    return f"{error}" + (f" ({error.hint})" if error.hint else "")
