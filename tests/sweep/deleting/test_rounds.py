"""Parts spread over workers, threads or Spark's: what stops them, and that nothing is deleted afterwards."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lakeplan.errors import LakeplanError, LeaseHeld, StorageDenied, StoreBusy
from lakeplan.simulation.requests import DeleteRequest, RoundEnd
from lakeplan.stores.open import SweepStore
from lakeplan.sweep import rounds
from lakeplan.sweep.ports import STOPPED
from lakeplan.sweep.rounds import PartSweeper, SparkWorkers, ThreadWorkers, Workers, from_row, to_batch
from lakeplan.values.simulation import Amount, RunnerChoice, Status
from tests.sweep.deleting.conftest import SETTINGS, Sweep
from tests.sweeping.stores import MARK_PREFIX, QUARANTINE_PREFIX, SWEEP_PREFIX, FaultyStore, raising

CHOICE = RunnerChoice("local", "a test")
WAIT = 30.0


@pytest.fixture
def marked(tmp_path: Path) -> Sweep:
    """Six parts of two objects each; time is real."""
    found = Sweep(tmp_path / "ns")
    found.mark(*([f"data/{part}{n}" for n in range(2)] for part in "abcdef"))
    return found


def request(of: Sweep, store: object = None, **changes: Any) -> DeleteRequest:
    made = DeleteRequest(
        store or of.store,  # type: ignore[arg-type]
        tuple(of.parts),
        MARK_PREFIX,
        SWEEP_PREFIX,
        QUARANTINE_PREFIX,
        of.settings,
        {},
    )
    return replace(made, **changes)


@contextmanager
def threads(parallelism: int | None) -> Iterator[tuple[Workers, RunnerChoice]]:
    yield ThreadWorkers(parallelism or 2), CHOICE


def sweeper(**more: Any) -> PartSweeper:
    return PartSweeper(threads, **more)


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.extended])])
def either(request: pytest.FixtureRequest) -> Callable[[], PartSweeper]:
    if request.param == "local":
        return sweeper
    request.getfixturevalue("spark")
    from pyspark.sql import SparkSession

    @contextmanager
    def workers(parallelism: int | None) -> Iterator[tuple[Workers, RunnerChoice]]:
        session = SparkSession.getActiveSession()
        assert session is not None
        yield SparkWorkers(session), CHOICE

    return lambda: PartSweeper(workers)


def it_deletes_the_same_on_either(marked: Sweep, either: Callable[[], PartSweeper]) -> None:
    end = either().delete(request(marked))
    assert (end.problem, end.runner) == ("", CHOICE)
    assert sorted(one.name for one in end.results) == [part.name for part in marked.parts]
    assert all(one.amounts == {Status.DELETED: Amount(2, 2)} for one in end.results)
    assert marked.there() == set()


def it_reports_what_a_part_failed_with_and_finishes_the_others(
    marked: Sweep, either: Callable[[], PartSweeper]
) -> None:
    marked.store.put(MARK_PREFIX + marked.parts[-1].name, b"cut")
    end = either().delete(request(marked))
    assert len(end.results) == len(marked.parts) - 1
    assert marked.parts[-1].name in end.problem
    assert marked.there() == {"data/f0", "data/f1"}


def it_deletes_with_as_many_threads_as_were_asked_for(marked: Sweep) -> None:
    together = threading.Barrier(6)
    store = FaultyStore(marked.store)

    def delete(keys: Sequence[str], **more: Any) -> Any:
        together.wait(WAIT)
        return marked.store.delete(keys, **more)

    store.delete = delete  # type: ignore[method-assign]
    assert sweeper(parallelism=6).delete(request(marked, store)).problem == ""


def it_shares_the_rate_among_the_threads(marked: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float | None] = []

    def run(workers: ThreadWorkers, shares: Any, work: Any) -> list[Any]:
        rates.append(work.settings.rate)
        assert [len(share) for share in shares] == [2, 2, 2]
        return []

    monkeypatch.setattr(ThreadWorkers, "run", run)
    marked.settings = replace(SETTINGS, rate=12)
    sweeper(parallelism=3).delete(request(marked))
    assert rates == [4.0]


class Slow(FaultyStore):
    """Calls ``then`` once a first batch is deleted, and waits there until ``go`` is set."""

    def __init__(self, store: SweepStore) -> None:
        super().__init__(store)
        self.deleted, self.go = threading.Event(), threading.Event()

    def delete(self, keys: Sequence[str], **more: Any) -> Any:
        answer = super().delete(keys, **more)
        self.deleted.set()
        assert self.go.wait(WAIT)
        return answer


class DescribeStopping:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rounds, "STOP_SECONDS", 0.01)
        monkeypatch.setattr(rounds, "KEEP_SECONDS", 0.02)

    def ended(self, marked: Sweep, store: Slow, cancelled: threading.Event, **more: Any) -> RoundEnd:
        """A round that is stopped while its first batch is being deleted."""

        class Told(ThreadWorkers):
            def cancel(self) -> None:
                super().cancel()
                cancelled.set()

        @contextmanager
        def told(parallelism: int | None) -> Iterator[tuple[Workers, RunnerChoice]]:
            yield Told(1), CHOICE

        def release() -> None:
            assert cancelled.wait(WAIT)
            store.go.set()

        helper = threading.Thread(target=release)
        helper.start()
        keep = more.pop("keep", lambda: None)
        end = PartSweeper(told, **more).delete(request(marked, store, keep=keep))
        helper.join()
        return end

    def it_finishes_the_request_at_hand_and_begins_no_other(self, marked: Sweep) -> None:
        store = Slow(marked.store)
        end = self.ended(marked, store, threading.Event(), stop=store.deleted.is_set)
        assert end.problem == STOPPED
        assert len(store.called("delete")) == 1
        assert marked.there() == {f"data/{part}{n}" for part in "bcdef" for n in range(2)}
        assert sweeper().delete(request(marked)).problem == ""
        assert marked.there() == set()
        assert marked.records["data/a0"][0] == "deleted"

    def it_deletes_nothing_more_once_the_lease_is_lost(self, marked: Sweep) -> None:
        store = Slow(marked.store)

        def keep() -> None:
            if store.deleted.is_set():
                raise LeaseHeld("somebody else holds it")

        end = self.ended(marked, store, threading.Event(), keep=keep)
        assert end.problem == "somebody else holds it"
        assert len(store.called("delete")) == 1

    def it_wakes_who_waits_for_a_busy_store(self, marked: Sweep) -> None:
        store = FaultyStore(marked.store)
        store.before = raising(StoreBusy("SlowDown"), on="delete", times=100)
        marked.settings = replace(SETTINGS, least_wait=600.0, most_wait=600.0)
        began = time.monotonic()
        end = sweeper(stop=lambda: bool(store.called("delete"))).delete(request(marked, store))
        assert end.problem == STOPPED
        assert time.monotonic() - began < WAIT

    @pytest.mark.parametrize("mode", ["delete", "quarantine"])
    def it_ends_its_threads_before_ctrl_c_ends_it(self, marked: Sweep, ctrl_c: None, mode: Any) -> None:
        store = Slow(marked.store)
        marked.settings = replace(SETTINGS, mode=mode)

        def interrupt() -> None:
            assert store.deleted.wait(WAIT)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.3)
            store.go.set()

        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            sweeper(parallelism=1).delete(request(marked, store))
        helper.join()
        assert not [t for t in threading.enumerate() if t.name.startswith("lakeplan-sweep")]
        assert len(store.called("delete")) == 1

    def it_notices_a_signal_that_comes_just_before_it_waits(self, marked: Sweep, ctrl_c: None) -> None:
        """Like one that another thread receives, it does not end the wait of the main thread."""
        store, workers = FaultyStore(marked.store), ThreadWorkers(1)

        def before(name: str, args: tuple[Any, ...]) -> None:
            if name == "delete":
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
                assert workers._halt._event.wait(WAIT)

        store.before = before
        with pytest.raises(KeyboardInterrupt):
            workers.run([marked.parts], request(marked, store))
        assert len(marked.there()) == 10

    def it_notices_a_signal_while_it_waits_for_spark(self, marked: Sweep, ctrl_c: None) -> None:
        cancelled, noticed = threading.Event(), list[bool]()

        def signal_to_another_thread() -> None:
            time.sleep(0.2)  # the main thread waits by now
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

        def job() -> None:
            threading.Thread(target=signal_to_another_thread).start()
            noticed.append(cancelled.wait(WAIT))
            raise ConnectionError("Spark ended")

        session = Mock()
        session.sparkContext.cancelAllJobs = cancelled.set
        session.range.return_value.mapInArrow.return_value.toArrow = job
        with pytest.raises(KeyboardInterrupt):
            SparkWorkers(session).run([marked.parts], request(marked))
        assert noticed == [True]


def it_says_what_stopped_the_workers(marked: Sweep) -> None:
    @contextmanager
    def denied(parallelism: int | None) -> Iterator[tuple[Workers, RunnerChoice]]:
        raise LakeplanError("Java is missing")
        yield

    with pytest.raises(LakeplanError, match="Java is missing"):
        PartSweeper(denied).delete(request(marked))
    assert len(marked.there()) == 12


def it_carries_an_error_through_spark_with_its_hint() -> None:
    error = StorageDenied("no", where="s3://b", hint="Allow it.")
    (row,) = to_batch(error).to_pylist()
    found = from_row(row["kind"], row["text"])
    assert isinstance(found, LakeplanError)
    assert (f"{found}", found.hint) == (f"{error}", error.hint)


def it_stops_when_the_lease_cannot_be_kept_for_an_unknown_reason(
    marked: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that keeps it dies of it: then nobody would see that the lease is lost."""
    monkeypatch.setattr(rounds, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(rounds, "STOP_SECONDS", 0.01)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    asked = threading.Event()

    def keep() -> None:
        asked.set()
        raise OSError("a network that nobody knows")

    store = FaultyStore(marked.store)
    waited: list[float] = []

    def find(keys: Sequence[str]) -> Any:
        if asked.wait(WAIT):
            time.sleep(0.3)
        waited.append(0)
        return marked.store.find(keys)

    store.find = find  # type: ignore[method-assign]
    end = sweeper(parallelism=1).delete(request(marked, store, keep=keep))
    assert end.results == []
    assert len(marked.there()) == 12
