"""Rounds of a sweep, in threads of this process or in Spark."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from lakeplan.errors import LakeplanError, StorageError
from lakeplan.formats.namespace import result_key
from lakeplan.simulation.requests import DeleteRequest, DeleteSettings, RoundEnd
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.deleting import Halt, Waiting, delete_all, sweep_parts
from lakeplan.sweep.ports import STOPPED
from lakeplan.sweep.rules import Throttle, with_hint
from lakeplan.values.documents import decode, encode
from lakeplan.values.progress import Progress, Silent, Step
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Part, PartResult, RunnerChoice
from lakeplan.values.sweep import Deletion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class Workers(Protocol):
    """Deletes shares of parts in parallel. ``parallelism``: the default number of shares."""

    @property
    def parallelism(self) -> int: ...

    def run(
        self, shares: Sequence[Sequence[Part]], work: DeleteRequest
    ) -> Iterable[PartResult | LakeplanError]:
        """Runs ``sweep_parts`` for every share. When it returns or raises, no worker deletes any more.
        Raises SweepStopped when the workers themselves fail, which may happen after ``cancel``."""

    def cancel(self) -> None:
        """Stops the workers, from another thread. The next run continues the parts that they began."""


class OpenWorkers(Protocol):
    def __call__(self, parallelism: int | None) -> AbstractContextManager[tuple[Workers, RunnerChoice]]: ...


class SweepStopped(Exception):
    """The workers failed, not a part. Finished parts have their records."""


class ThreadWorkers:
    """Implements ``Workers`` in this process. ``cancel`` stops them before their next request that deletes
    anything. A copy in progress is finished."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._halt = Halt()

    @property
    def parallelism(self) -> int:
        return self._parallelism

    def run(self, shares: Sequence[Sequence[Part]], work: DeleteRequest) -> list[PartResult | LakeplanError]:
        """Implements ``Workers``. Ctrl-C stops the threads first."""

        def sweep(parts: Sequence[Part]) -> list[PartResult | LakeplanError]:
            return list(sweep_parts(parts, work, self._halt))

        with ThreadPoolExecutor(self._parallelism, thread_name_prefix="lakeplan-sweep") as pool:
            try:
                futures = [pool.submit(sweep, parts) for parts in shares]
                return list(chain.from_iterable(map(_result, futures)))
            except BaseException:
                self.cancel()
                raise

    def cancel(self) -> None:
        self._halt.set()


def _result(future: Future[T]) -> T:
    """Waits in short steps: a signal that comes just before a wait is handled only when the wait ends."""
    while not future.done():
        wait([future], timeout=STOP_SECONDS)
    return future.result()


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
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        def sweep(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    for end in sweep_parts(shares[number], work):
                        yield to_batch(end)

        job = self._session.range(0, len(shares), 1, len(shares)).mapInArrow(sweep, ENDS)
        try:
            with ThreadPoolExecutor(1, thread_name_prefix="lakeplan-sweep") as pool:
                future = pool.submit(job.toArrow)
                try:
                    table = _result(future)
                finally:
                    if not future.done():  # Ctrl-C
                        self.cancel()
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
    return pa.RecordBatch.from_pydict({"kind": ["end"], "text": [json.dumps(encode(end))]})


def from_row(kind: str, text: str) -> PartResult | LakeplanError:
    fields = json.loads(text)
    end: PartResult | LakeplanError = decode(fields, PartResult) if kind == "end" else LakeplanError(**fields)
    return end


_log = logging.getLogger(__name__)
STOP_SECONDS = 0.5
PROGRESS_SECONDS = 5.0
"""How often records are listed to show progress."""
KEEP_SECONDS = 60.0
"""How often a lease is renewed during a round."""


@dataclass(frozen=True)
class PartSweeper:
    """Implements ``Sweeper`` on the workers of ``open_workers``. ``parallelism``: the number of shares, or
    None for the workers' own. ``stop`` is called about twice a second during a round; once it returns True,
    the workers are stopped."""

    open_workers: OpenWorkers
    progress: Progress = field(default_factory=Silent)
    parallelism: int | None = None
    stop: Callable[[], bool] = lambda: False

    def delete_objects(
        self,
        store: SweepStore,
        objects: Sequence[StoredObject],
        settings: DeleteSettings,
        *,
        before_each: Callable[[], None],
    ) -> list[Deletion]:
        """Implements the port. Runs in one thread."""
        waiting = Waiting(time.monotonic, time.sleep, random.random)
        throttle = Throttle(settings.rate)
        expected = {one.key: one for one in objects}
        with self.progress.task("deleting", len(objects)) as step:
            answers = []
            for answer in delete_all(
                store, [*expected], settings, throttle, waiting, expected=expected, before_each=before_each
            ):
                answers.append(answer)
                step()
        return answers

    def delete(self, request: DeleteRequest) -> RoundEnd:
        """Implements the port. A failure of the workers themselves becomes the round's problem; the next run
        reads the records of finished parts."""
        total = sum(part.rows for part in request.parts)
        with (
            self.progress.task("deleting", total) as step,
            self.open_workers(self.parallelism) as (workers, choice),
            _shown_as_done(request, step if self.progress.is_shown else None),
        ):
            count = self.parallelism or workers.parallelism
            shares = [request.parts[n::count] for n in range(min(count, len(request.parts)))]
            work = _for_workers(request, count)
            results: list[PartResult | LakeplanError] = []
            problem = ""
            with _watched(self.stop, request.keep, workers) as lost:
                try:
                    results.extend(workers.run(shares, work))
                except SweepStopped as error:
                    problem = f"{error}"
        parts = [end for end in results if isinstance(end, PartResult)]
        if len(parts) < len(request.parts):
            problem = f"{lost[0]}" if lost else STOPPED if self.stop() else problem
        problem = problem or next((with_hint(one) for one in results if isinstance(one, LakeplanError)), "")
        return RoundEnd(parts, problem, runner=choice)


@contextmanager
def _watched(
    stop: Callable[[], bool], keep: Callable[[], None], workers: Workers
) -> Iterator[list[LakeplanError]]:
    """While the block runs, a thread renews the lease, and stops the workers when ``stop`` returns True or
    the lease is lost (the list then has the error). The next run repeats the parts that were begun."""
    lost: list[LakeplanError] = []

    def watch(over: threading.Event) -> None:
        waited = 0.0
        try:
            while not over.wait(STOP_SECONDS):
                waited += STOP_SECONDS
                if waited >= KEEP_SECONDS:
                    waited = 0.0
                    keep()
                if stop():
                    break
        except LakeplanError as error:
            lost.append(error)
        finally:  # no worker may delete without this watch, whatever ended it
            if not over.is_set():
                workers.cancel()

    with _in_background(watch, "watch"):
        yield lost


@contextmanager
def _shown_as_done(request: DeleteRequest, step: Step | None) -> Iterator[None]:
    """While the block runs, lists in a thread every few seconds which parts have records, and advances the
    progress by their objects. If the records cannot be listed, no progress is shown."""
    if step is None:
        yield
        return
    waiting = {
        result_key(request.prefix, part.name, request.attempts.get(part.name, 0)): part.rows
        for part in request.parts
    }

    def watch(over: threading.Event) -> None:
        while not over.wait(PROGRESS_SECONDS):
            try:
                done = [o.key for o in request.store.list_objects(f"{request.prefix}results/")]
            except StorageError as error:
                _log.debug("the progress is unknown: %s", error)
                continue
            step(sum(waiting.pop(key, 0) for key in done))

    with _in_background(
        watch, "progress", at_most=PROGRESS_SECONDS
    ):  # a slow listing must not delay the round
        yield


@contextmanager
def _in_background(
    watch: Callable[[threading.Event], None], name: str, *, at_most: float | None = None
) -> Iterator[None]:
    """Runs ``watch`` in a thread while the block runs, then sets its event and waits for the thread, at most
    ``at_most`` seconds."""
    over = threading.Event()
    thread = threading.Thread(target=watch, args=(over,), name=f"lakeplan-sweep-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(at_most)


def _for_workers(request: DeleteRequest, workers: int) -> DeleteRequest:
    """The request as ``sweep_parts`` needs it. Another process cannot renew the lease."""
    rate = request.settings.rate
    settings = replace(request.settings, rate=None if rate is None else rate / workers)
    return replace(request, parts=(), settings=settings, keep=lambda: None)
