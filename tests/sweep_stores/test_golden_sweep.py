"""Recorded namespaces in real stores (S3, Azure and Google Cloud Storage over HTTP): marked and swept by
Spark's workers, which get their credentials through the environment, as users give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeplan.formats.marks import read_part
from lakeplan.formats.namespace import begun_key, copied_key, result_key
from lakeplan.simulation.marking import StepMarker
from lakeplan.simulation.requests import DeleteRequest, DeleteSettings, RoundEnd
from lakeplan.simulation.runners import SPARK, Runners
from lakeplan.stores.open import SweepStore, open_sweep_store
from lakeplan.sweep.rounds import PartSweeper, SparkWorkers
from lakeplan.values.simulation import MarkClass, Marked, RunnerChoice, Status
from lakeplan.values.sweep import Versions
from tests.golden_marks import PREFIX, active, addresses, mark_request
from tests.storage_servers import bucket_url, give_workers_the_environment

if TYPE_CHECKING:
    from lakeplan.simulation.runners import Runners

pytestmark = [pytest.mark.golden, pytest.mark.spark, pytest.mark.extended]
SWEEP = "_lakeplan/sweeps/golden/"
QUARANTINE = "_lakeplan/quarantine/golden/"
THREADS = 16
LATER = timedelta(hours=1)


@dataclass
class Place:
    """A recorded namespace in a store. ``files`` are its bytes as they were recorded."""

    store: SweepStore
    files: Mapping[str, bytes]
    case: dict[str, Any]

    @property
    def keys(self) -> set[str]:
        return {found.key for found in self.store.list_objects()}

    @property
    def deletable(self) -> set[str]:
        """What the official collector deletes, minus what the documented rule keeps."""
        collector = self.case["official_collector"]
        return set(collector["deleted"]) - set(collector.get("at_risk", ()))

    def mark(self) -> Marked:
        # Uploads are new: nothing would be old enough before them.
        marker = StepMarker(Runners(SPARK).open)
        later = datetime.now(timezone.utc) + LATER
        listing = marker.list_candidates(self.store, PREFIX, older_than=later)
        return marker.mark(mark_request(self.store, self.case, listing))

    def sweep(self, marked: Marked, mode: Any) -> RoundEnd:
        later = datetime.now(timezone.utc) + LATER
        settings = DeleteSettings(
            mode, Versions.MARKER, verify_all=True, cutoff_us=int(later.timestamp() * 1_000_000)
        )
        request = DeleteRequest(self.store, marked.going, PREFIX, SWEEP, QUARANTINE, settings, saved={})

        @contextmanager
        def workers(parallelism: int | None) -> Iterator[tuple[SparkWorkers, RunnerChoice]]:
            with active() as session:
                yield SparkWorkers(session), RunnerChoice(SPARK, "a test")

        return PartSweeper(workers).delete(request)

    def results(self, marked: Marked) -> dict[str, str]:
        """What the records say became of every address."""
        found: dict[str, str] = {}
        for part in marked.going:
            rows = read_part(
                self.store.read(result_key(SWEEP, part.name)), name=part.name, sha256=None
            ).to_pylist()
            found |= {row["address"]: row["status"] for row in rows}
        return found


@pytest.fixture(params=["s3", "azure", "gcs"])
def store(request: pytest.FixtureRequest) -> SweepStore:
    return open_sweep_store(f"{bucket_url(request, request.param)}/repo")


@pytest.fixture
def workers(store: SweepStore, spark: Runners, monkeypatch: pytest.MonkeyPatch) -> None:
    with active() as session:
        give_workers_the_environment(session, monkeypatch)


@pytest.fixture
def place(golden_case: Any, store: SweepStore, workers: None) -> Any:
    def upload(name: str) -> Place:
        case = golden_case(name)
        files = {
            str(path.relative_to(case.namespace)): path.read_bytes()
            for path in Path(case.namespace).rglob("*")
            if path.is_file()
        }
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda item: store.put(*item), files.items()))
        return Place(store, files, case.case)

    return upload


def it_marks_in_a_store_what_the_official_collector_deletes_but_what_is_at_risk(place: Any) -> None:
    there = place("risk-1")
    marked = there.mark()
    kept = addresses(there.store, marked.kept, PREFIX)
    going = addresses(there.store, marked.going, PREFIX)
    assert {a for of_kind in going.values() for a in of_kind} == there.deletable
    assert set(kept.pop(MarkClass.AT_RISK.value, [])) == set(
        there.case["official_collector"].get("at_risk", ())
    )
    assert not kept
    assert there.files.keys() <= there.keys


def it_deletes_exactly_what_was_marked_and_nothing_when_it_goes_over_it_again(place: Any) -> None:
    there = place("history-1")
    marked = there.mark()
    assert not addresses(there.store, marked.kept, PREFIX)
    end = there.sweep(marked, "delete")
    assert end.problem == ""
    gone = there.deletable
    assert gone
    assert there.keys & there.files.keys() == there.files.keys() - gone
    assert {key for key in there.files if there.store.is_gone(key)} == gone
    assert there.results(marked) == dict.fromkeys(gone, Status.DELETED.value)
    assert {end.name for end in end.results} == {part.name for part in marked.going}
    assert sum(end.verified for end in end.results) == len(gone)
    assert {begun_key(SWEEP, part.name) for part in marked.going} <= there.keys
    # The same sweep again, beside somebody's new object at the address of a deleted one.
    returned = sorted(gone)[0]
    there.store.put(returned, there.files[returned])
    again = there.sweep(marked, "delete")
    assert sorted(e.name for e in again.results) == sorted(e.name for e in end.results)
    assert [e.amounts for e in again.results] == [e.amounts for e in end.results]
    assert there.store.read(returned) == there.files[returned]


def it_quarantines_byte_for_byte_and_brings_back(place: Any) -> None:
    there = place("history-1")
    marked = there.mark()
    end = there.sweep(marked, "quarantine")
    assert end.problem == ""
    gone = there.deletable
    assert {key for key in there.files if there.store.is_gone(key)} == gone
    copies = {key.removeprefix(QUARANTINE) for key in there.keys if key.startswith(QUARANTINE)}
    assert copies == gone
    assert {copied_key(SWEEP, part.name) for part in marked.going} <= there.keys
    for key in gone:
        there.store.copy(QUARANTINE + key, key)
    assert {key: there.store.read(key) for key in there.files} == there.files
