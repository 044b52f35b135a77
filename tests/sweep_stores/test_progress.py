"""The progress that is shown while a round deletes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakeplan.errors import StorageDenied
from lakeplan.formats.namespace import result_key
from lakeplan.simulation.requests import DeleteRequest, DeleteSettings
from lakeplan.stores.folder import FolderStore
from lakeplan.stores.open import SweepStore, open_sweep_store
from lakeplan.sweep import rounds
from lakeplan.sweep.rounds import PartSweeper, ThreadWorkers
from lakeplan.values.progress import Step
from lakeplan.values.simulation import Part, RunnerChoice
from lakeplan.values.sweep import Versions

SWEEP = "_lakeplan/sweeps/m/"
WAIT = 30.0


class Seen:
    """A terminal that keeps what it was told."""

    is_shown = True

    def __init__(self) -> None:
        self.total: int | None = None
        self.steps: list[int] = []
        self.told = threading.Event()

    @contextmanager
    def task(self, text: str, total: int | None) -> Iterator[Step]:
        self.total = total
        yield self._step

    def _step(self, count: int = 1) -> None:
        self.steps.append(count)
        if count:
            self.told.set()


class Unseen(Seen):
    is_shown = False


def request(store: SweepStore) -> DeleteRequest:
    parts = tuple(Part(f"going/part-{n}.parquet", 10 ** (n + 1), 1, "00") for n in range(2))
    settings = DeleteSettings("delete", Versions.MARKER, verify_all=False, cutoff_us=0)
    return DeleteRequest(store, parts, "_lakeplan/marks/m/", SWEEP, "_lakeplan/quarantine/m/", settings, {})


@contextmanager
def threads(parallelism: int | None) -> Iterator[tuple[ThreadWorkers, RunnerChoice]]:
    yield ThreadWorkers(parallelism or 1), RunnerChoice("local", "")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PROGRESS_SECONDS", 0.02)


def round_of(store: SweepStore, seen: Seen, during: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round whose workers do ``during``."""
    monkeypatch.setattr(ThreadWorkers, "run", lambda workers, shares, work: during() or [])  # type: ignore[operator]
    PartSweeper(threads, seen, parallelism=2).delete(request(store))


def it_steps_by_the_objects_of_every_part_that_has_its_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, seen = open_sweep_store(f"file://{tmp_path}"), Seen()

    def job() -> None:
        for number in range(2):
            seen.told.clear()
            store.create(result_key(SWEEP, f"going/part-{number}.parquet"), b"x")
            assert seen.told.wait(WAIT)
        time.sleep(0.1)

    round_of(store, seen, job, monkeypatch)
    assert seen.total == 110
    assert [count for count in seen.steps if count] == [10, 100]


def it_goes_on_when_the_records_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    class Denied(FolderStore):
        def list_objects(self, prefix: str = "", *, recursive: bool = True):  # type: ignore[no-untyped-def]
            asked.set()
            raise StorageDenied("no permission")

    seen = Seen()
    round_of(Denied(str(tmp_path)), seen, lambda: asked.wait(WAIT) and None, monkeypatch)
    assert asked.is_set()
    assert seen.steps == []


def it_asks_for_nothing_where_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(FolderStore):
        asked = 0

        def list_objects(self, prefix: str = "", *, recursive: bool = True):  # type: ignore[no-untyped-def]
            Counting.asked += 1
            return iter(())

    round_of(Counting(str(tmp_path)), Unseen(), lambda: time.sleep(0.2), monkeypatch)
    assert Counting.asked == 0
