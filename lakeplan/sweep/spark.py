"""A round of deletions as a Spark job: parts spread over the executors, their ends brought back."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from lakeplan.core.sweep.pacing import Throttle
from lakeplan.errors import LakeplanError, StorageError
from lakeplan.formats.sweep_keys import result_key
from lakeplan.model.objects import StoredObject
from lakeplan.model.stored import Deletion
from lakeplan.model.sweep import Part, PartEnd
from lakeplan.ports.progress import Progress, Silent, Step
from lakeplan.ports.sweep import DeleteRequest, DeleteSettings, RoundEnd
from lakeplan.ports.sweep_storage import SweepStore
from lakeplan.sweep.batches import Waiting, delete_all
from lakeplan.sweep.deleting import Work, rows_of, sweep_parts

OpenSession = Callable[[], AbstractContextManager[SparkSession]]
_log = logging.getLogger(__name__)
STOP_SECONDS = 0.5
LOOK_SECONDS = 5.0
"""How often records are looked at, for people to see how far a round is."""
KEEP_SECONDS = 60.0
"""How often a lease is renewed during a round."""
ENDS = StructType([StructField("kind", StringType(), False), StructField("text", StringType(), False)])


class SparkSweeper:
    """``lakeplan.ports.sweep.Sweeper`` on Spark. ``parallelism``: how many workers delete (None: all).
    ``stop`` is asked about twice a second during a round; once it says yes, the round's job is cancelled."""

    def __init__(
        self,
        open_session: OpenSession,
        progress: Progress | None = None,
        *,
        parallelism: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._stop = stop
        self._open = open_session
        self._progress = progress or Silent()
        self._parallelism = parallelism

    def delete_objects(
        self,
        store: SweepStore,
        objects: Sequence[StoredObject],
        settings: DeleteSettings,
        *,
        before_each: Callable[[], None],
    ) -> list[Deletion]:
        """See the port. No Spark: quarantines are listed here anyway."""
        waiting = Waiting(time.monotonic, time.sleep, random.random)
        throttle = Throttle(settings.rate)
        expected = {one.key: one for one in objects}
        with self._progress.task("deleting", len(objects)) as step:
            answers = []
            for answer in delete_all(
                store,
                [*expected],
                settings,
                throttle,
                waiting,
                expected=expected,
                before_each=before_each,
            ):
                answers.append(answer)
                step()
        return answers

    def delete(self, request: DeleteRequest) -> RoundEnd:
        """See the port. What Spark itself fails with becomes the round's problem: finished parts have
        their records, and the next run reads them."""
        total = sum(part.rows for part in request.parts)
        with (
            self._progress.task("deleting", total) as step,
            self._open() as session,
            _told_of(request, step if self._progress.seen else None),
        ):
            workers = self._parallelism or session.sparkContext.defaultParallelism
            shares = [request.parts[n::workers] for n in range(min(workers, len(request.parts)))]
            work = _work_of(request, workers)
            lost: list[LakeplanError] = []
            try:
                with _watched(self._stop, request.keep, session) as lost:
                    rows = _run(session, shares, work)
            except (PySparkException, Py4JError, ConnectionError) as error:
                if lost:
                    return RoundEnd((), f"{lost[0]}")
                if self._stop():
                    return RoundEnd((), "stopped by a signal")
                first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
                return RoundEnd((), f"the Spark job stopped: {first[:300]}")
        ends = [PartEnd.from_row(json.loads(text)) for kind, text in rows if kind == "end"]
        problem = next((text for kind, text in rows if kind == "error"), "")
        return RoundEnd(ends, problem)


@contextmanager
def _watched(
    stop: Callable[[], bool], keep: Callable[[], None], session: SparkSession
) -> Iterator[list[LakeplanError]]:
    """While the block runs, a thread keeps the lease, and cancels all jobs as soon as ``stop`` says so or the
    lease is lost (why stands in the list then). Parts that were begun are gone over by the next run."""
    over, lost = threading.Event(), list[LakeplanError]()

    def watch() -> None:
        waited = 0.0
        while not over.wait(STOP_SECONDS):
            waited += STOP_SECONDS
            if waited >= KEEP_SECONDS:
                waited = 0.0
                try:
                    keep()
                except LakeplanError as error:
                    lost.append(error)
            if lost or stop():
                session.sparkContext.cancelAllJobs()
                return

    watcher = threading.Thread(target=watch, name="lakeplan-sweep-watch", daemon=True)
    watcher.start()
    try:
        yield lost
    finally:
        over.set()
        watcher.join()


@contextmanager
def _told_of(request: DeleteRequest, step: Step | None) -> Iterator[None]:
    """While the block runs, a thread looks every few seconds which parts have their record, and steps by
    their objects. It is for people only: when the records cannot be listed, nothing is shown."""
    if step is None:
        yield
        return
    waiting = {
        result_key(request.prefix, part.name, request.attempts.get(part.name, 0)): part.rows
        for part in request.parts
    }
    over = threading.Event()

    def watch(told: Step) -> None:
        while not over.wait(LOOK_SECONDS):
            try:
                done = [o.key for o in request.store.list_objects(f"{request.prefix}results/")]
            except StorageError as error:
                _log.debug("progress is not known: %s", error)
                continue
            told(sum(waiting.pop(key, 0) for key in done))

    watcher = threading.Thread(target=watch, args=(step,), name="lakeplan-sweep-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(LOOK_SECONDS)  # not for long: what it asks for is only shown


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
        request.attempts,
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
