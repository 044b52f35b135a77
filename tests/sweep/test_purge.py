"""The results of a purge, by figures alone. Whole sweeps are in test_quarantine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from lakeplan.errors import FormatError, GateRefused, LakeplanError, LeaseHeld, StorageError
from lakeplan.review.run import Run
from lakeplan.simulation.requests import DeleteSettings
from lakeplan.state.clocks import Clocks
from lakeplan.state.sweeps import RecordedSweep, read_sweeps, record_purge, record_sweep
from lakeplan.stores.folder import FolderState
from lakeplan.sweep import purge as module
from lakeplan.sweep.inspection import Needed, TooManyNeeded
from lakeplan.sweep.ports import STOPPED
from lakeplan.sweep.purge import (
    NAMED,
    NEEDED,
    NONE_DELETED,
    NOT_NAMED,
    NOT_TRIED,
    SET_BACK,
    SLOW,
    STILL_THERE,
    USED,
    YOUNG,
    Quarantine,
    list_quarantines,
    purge,
    unrecorded_purges,
)
from lakeplan.sweep.service import purge_all
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount, Marked, Part
from lakeplan.values.sweep import Deletion, StoreFacts, SweepSettings, Versions
from tests.sweeping.plain import PlainSweeper
from tests.sweeping.stores import (
    QUARANTINE_PREFIX,
    SWEEP_PREFIX,
    FaultyStore,
    folder_store,
    put_object,
    put_part,
    raising,
)

NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
BEFORE = 1_000.0
"""Epoch seconds: copies that were written at this moment or later are too young."""
CLOCKS = Clocks(NOW - 2 * MINUTE, NOW + MINUTE)


@dataclass
class Case:
    """Copies of a mark ``m1`` in a folder. ``needs``: addresses that an inspection calls needed, one set for
    each inspection, the last one repeated; ``inspecting`` is how long one takes. ``renewed``: when the lease
    was renewed, ``renewing`` how long that takes."""

    folder: Path
    needs: list[set[str]] = field(default_factory=lambda: [set()])
    inspecting: timedelta = timedelta()
    renewing: timedelta = timedelta()
    at: datetime = NOW
    parts: list[Part] = field(default_factory=list)
    inspections: list[dict[str, Any]] = field(default_factory=list)
    renewed: list[datetime] = field(default_factory=list)
    asked: list[tuple[list[str], DeleteSettings]] = field(default_factory=list)
    stopped: Callable[[], bool] = lambda: False
    begun: list[Amount] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = FaultyStore(folder_store(self.folder))
        desired = SimpleNamespace(
            name="lake", sweep=SweepSettings(versions=Versions.ALL, rate=7, quarantine_age_seconds=3600)
        )
        self.site: Any = SimpleNamespace(key="prod/lake", desired=desired, store=self.store)
        self.ports: Any = SimpleNamespace(
            now=lambda: self.at,
            sweeper=self,
            state=FolderState(str(self.folder / "../state")),
            stop=lambda: self.stopped(),
        )

    @property
    def mark(self) -> Any:
        marked = Marked(tuple(self.parts), (), {})
        return SimpleNamespace(mark_id="m1", key="prod/lake", where="prod/lake: mark m1", marked=marked)

    def copies(self, *addresses: str, data: bytes = b"x", modified: float = 500.0) -> None:
        """Copies of objects that the mark names."""
        self.parts.append(put_part(self.store, len(self.parts), addresses))  # type: ignore[arg-type]
        for address in addresses:
            put_object(self.folder, QUARANTINE_PREFIX + address, data, modified=modified)

    def left(self) -> set[str]:
        return {
            found.key.removeprefix(QUARANTINE_PREFIX) for found in self.store.list_objects(QUARANTINE_PREFIX)
        }

    # ---- what the purge calls
    def needed_now(self, site: Any, mark: Any, ports: Any, **more: Any) -> Needed:
        assert (site, ports) == (self.site, self.ports)
        assert mark.mark_id == "m1"
        self.inspections.append(more)
        began = self.at
        self.at += self.inspecting
        needs = self.needs.pop(0) if len(self.needs) > 1 else self.needs[0]
        if needs == {"too", "many"}:
            raise TooManyNeeded("more than 1,000,000 marked objects are needed again")
        return Needed(frozenset(needs), began)

    def delete_objects(self, store: Any, objects: Any, settings: Any, *, before_each: Any) -> list[Deletion]:
        self.asked.append(([one.key.removeprefix(QUARANTINE_PREFIX) for one in objects], settings))
        without_rate = replace(settings, rate=None)
        return PlainSweeper().delete_objects(store, objects, without_rate, before_each=before_each)

    def renew(self) -> None:
        self.renewed.append(self.at)
        self.at += self.renewing

    def purge(self) -> Any:
        keep, before_us = self.renew, int(BEFORE * 1_000_000)
        run = Run("run", {}, lambda: self.at, lambda _: False)
        purge = module._Purge(self.site, self.mark, self.ports, CLOCKS, keep, before_us, run)
        with mock.patch.object(module, "record_purge", lambda *given, begun: self.begun.append(given[3])):
            end = purge.purge()
        return replace(end, kept=self.short(end.kept), failed=self.short(end.failed))

    @staticmethod
    def short(reasons: dict[str, str]) -> dict[str, str]:
        assert all(key.startswith(QUARANTINE_PREFIX) for key in reasons)
        return {key.removeprefix(QUARANTINE_PREFIX): why for key, why in reasons.items()}


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    made = Case(tmp_path / "ns")
    monkeypatch.setattr(module, "needed_now", made.needed_now)
    return made


def it_deletes_the_copies_that_the_mark_names_and_nothing_needs(case: Case) -> None:
    case.copies("data/b", "data/a", data=b"xxx")
    case.copies("data/c")
    put_object(case.folder, QUARANTINE_PREFIX + "data/other")
    put_object(case.folder, QUARANTINE_PREFIX.replace("m1", "m2") + "data/a")
    put_object(case.folder, "data/a")
    end = case.purge()
    assert (end.deleted, end.kept, end.failed, end.problem) == (
        Amount(3, 7),
        {"data/other": NOT_NAMED},
        {},
        "",
    )
    assert case.left() == {"data/other"}
    assert case.store.read("data/a") == case.store.read("_lakeplan/quarantine/m2/data/a") == b"x"
    assert [keys for keys, _ in case.asked] == [["data/a", "data/b", "data/c"]]
    assert case.asked[0][1] == DeleteSettings("delete", Versions.ALL, False, 0, 7)
    (inspection,) = case.inspections
    assert inspection.pop("parts") == (*case.parts,)
    assert inspection == {"now": CLOCKS.earliest, "keep": case.renew, "copies": QUARANTINE_PREFIX}


def it_inspects_only_so_many_objects_of_the_mark_at_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """If more than a million of them are needed, an inspection fails, and so did every purge."""
    monkeypatch.setattr(module, "ROWS", 4)
    case.copies("data/z", "data/b")
    case.copies("data/young", modified=BEFORE)
    case.copies("data/a", "data/c")
    case.copies("data/p", "data/q", "data/r")
    case.copies("data/y", "data/d", "data/e", "data/f", "data/g")
    case.needs = [{"too", "many"}, {"data/b"}, set(), {"data/y"}]
    assert case.purge().kept == {"data/b": NEEDED, "data/y": NEEDED, "data/young": YOUNG}
    first, _, second, third, last = case.parts
    all_parts = (first, second, third, last)
    assert [one["parts"] for one in case.inspections] == [all_parts, (first, second), (third,), (last,)]
    assert [keys for keys, _ in case.asked] == [
        ["data/a", "data/c", "data/z"],
        ["data/p", "data/q", "data/r"],
        ["data/d", "data/e", "data/f", "data/g"],
    ]


def it_fails_if_too_many_objects_of_so_few_are_needed(case: Case) -> None:
    case.copies("data/a")
    case.needs = [{"too", "many"}]
    with pytest.raises(TooManyNeeded):
        case.purge()
    assert len(case.inspections) == 2


def it_inspects_nothing_where_no_copy_may_be_deleted(case: Case) -> None:
    put_object(case.folder, QUARANTINE_PREFIX + "data/other")
    assert case.purge().kept == {"data/other": NOT_NAMED}
    assert case.inspections == case.asked == []


def it_keeps_copies_that_were_written_at_the_limit_or_later(case: Case) -> None:
    case.copies("data/old", modified=BEFORE - 0.001)
    case.copies("data/at", modified=BEFORE)
    case.copies("data/young", modified=BEFORE + 1)
    end = case.purge()
    assert end.kept == {"data/at": YOUNG, "data/young": YOUNG}
    assert case.left() == {"data/at", "data/young"}


def it_deletes_nothing_by_a_part_that_is_not_the_marked_one(case: Case) -> None:
    case.copies("data/a")
    case.parts[0] = replace(case.parts[0], sha256="0" * 64)
    with pytest.raises(FormatError, match="checksum does not match") as caught:
        case.purge()
    assert caught.value.where == f"{case.store.url}/_lakeplan/marks/m1/{case.parts[0].name}"
    assert case.left() == {"data/a"}


def it_keeps_what_is_needed_unless_an_object_of_its_size_is_at_its_address(case: Case) -> None:
    case.copies("data/away", "data/back", "data/other", "data/unneeded", data=b"xx")
    put_object(case.folder, "data/back", b"xx")
    put_object(case.folder, "data/other", b"xxx")
    case.needs = [{"data/away", "data/back", "data/other", "data/not-here"}]
    end = case.purge()
    assert end.kept == {"data/away": NEEDED, "data/other": NEEDED}
    assert end.deleted == Amount(2, 4)
    assert case.left() == {"data/away", "data/other"}
    assert (["data/away", "data/back", "data/other"],) in case.store.called("find")


def it_keeps_what_is_needed_if_a_listing_still_shows_a_deleted_object_at_its_address(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.copies("data/away", data=b"xx")
    case.needs = [{"data/away"}]
    late = StoredObject("data/away", 2, 500_000_000, "deleted")
    monkeypatch.setattr(case.store, "find", lambda keys: {"data/away": late}, raising=False)
    assert case.purge().kept == {"data/away": NEEDED}
    assert case.left() == {"data/away"}


@pytest.mark.parametrize(("takes", "deleted"), [(10 * MINUTE - SECOND, 2), (10 * MINUTE, 0)])
def it_deletes_nothing_by_an_inspection_that_took_too_long(
    case: Case, takes: timedelta, deleted: int
) -> None:
    case.copies("data/a", "data/b")
    case.inspecting = takes
    end = case.purge()
    assert (end.deleted.objects, end.problem) == (deleted, "" if deleted else SLOW)
    assert end.kept == ({} if deleted else {"data/a": NOT_TRIED, "data/b": NOT_TRIED})
    assert (len(case.left()), len(case.inspections)) == (2 - deleted, 1)


def it_deletes_batch_after_batch_by_one_inspection_while_that_is_fresh(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPIES_AT_ONCE", 2)
    case.copies(*(f"data/{n}" for n in range(5)))
    assert case.purge().deleted == Amount(5, 5)
    assert [keys for keys, _ in case.asked] == [["data/0", "data/1"], ["data/2", "data/3"], ["data/4"]]
    assert (len(case.inspections), len(case.renewed)) == (1, 3)


def it_inspects_again_when_ten_minutes_have_passed_between_two_batches(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPIES_AT_ONCE", 1)
    case.copies("data/a", "data/b")
    case.needs = [set(), {"data/b"}]

    def later(name: str, args: tuple[Any, ...]) -> None:
        if name == "delete":
            case.at += 10 * MINUTE

    case.store.after = later
    end = case.purge()
    assert (end.deleted, end.kept, end.failed) == (Amount(1, 1), {"data/b": NEEDED}, {})
    assert len(case.inspections) == 2


class OneByOne(FaultyStore):
    batch_size = 1


def use(case: Case, store: FaultyStore) -> None:
    case.store = case.site.store = store


@pytest.mark.parametrize(("needed", "why"), [("data/c", NEEDED), (QUARANTINE_PREFIX + "data/c", USED)])
def it_inspects_again_when_ten_minutes_have_passed_within_a_batch(case: Case, needed: str, why: str) -> None:
    case.copies("data/a", "data/b", "data/c", data=b"xx")
    case.needs = [set(), {needed}]
    use(case, OneByOne(case.store.store))

    def later(name: str, args: tuple[Any, ...]) -> None:
        if name == "delete":
            case.at += 10 * MINUTE

    case.store.after = later
    end = case.purge()
    assert (end.deleted, end.kept, end.failed, end.problem) == (
        Amount(2, 4),
        {"data/c": why},
        {},
        "",
    )
    assert [keys for keys, _ in case.asked] == [["data/a", "data/b", "data/c"], ["data/b"]]


def it_stops_where_ten_minutes_pass_and_no_copy_was_deleted(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPIES_AT_ONCE", 2)
    case.copies("data/a", "data/b", "data/c")
    case.renewing = 10 * MINUTE
    end = case.purge()
    assert (end.deleted, end.problem, len(case.inspections)) == (Amount(), NONE_DELETED, 1)
    assert end.failed == {"data/a": NONE_DELETED, "data/b": NONE_DELETED}
    assert end.kept == {"data/c": NOT_TRIED}


def it_inspects_again_when_the_clock_is_set_back(case: Case) -> None:
    """By such a clock ten minutes would never be over."""
    case.copies("data/a", "data/b", "data/c")
    case.needs = [set(), {"data/c"}]
    use(case, OneByOne(case.store.store))
    jumps = iter([MINUTE, -60 * MINUTE, MINUTE])

    def later(name: str, args: tuple[Any, ...]) -> None:
        if name == "delete":
            case.at += next(jumps)

    case.store.after = later
    end = case.purge()
    assert (end.deleted, end.kept, end.problem) == (Amount(2, 2), {"data/c": NEEDED}, "")
    assert len(case.inspections) == 2


@pytest.mark.parametrize("when", ["inspecting", "renewing"])
def it_stops_when_the_clock_is_set_back_before_a_copy_was_deleted(case: Case, when: str) -> None:
    case.copies("data/a")
    setattr(case, when, -SECOND)
    end = case.purge()
    assert (end.deleted, end.problem, len(case.inspections)) == (Amount(), SET_BACK, 1)
    assert case.left() == {"data/a"}


def it_renews_the_lease_once_a_minute_while_it_deletes(case: Case) -> None:
    case.copies(*(f"data/{n}" for n in range(6)))
    use(case, OneByOne(case.store.store))
    steps: Iterator[timedelta] = iter([59 * SECOND, SECOND, 30 * SECOND, 30 * SECOND, 59 * SECOND, SECOND])

    def later(name: str, args: tuple[Any, ...]) -> None:
        if name == "delete":
            case.at += next(steps)

    case.store.after = later
    assert case.purge().deleted == Amount(6, 6)
    assert case.renewed == [NOW, NOW + MINUTE, NOW + 2 * MINUTE]


def it_reports_what_the_store_shows_after_an_error(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COPIES_AT_ONCE", 2)
    case.copies("data/a", "data/b", "data/c", "data/kept")
    case.needs = [{"data/kept"}]
    use(case, OneByOne(case.store.store))
    case.store.before = raising(StorageError("no network"), on="delete", key="data/b")
    end = case.purge()
    assert (end.deleted, end.problem) == (Amount(1, 1), "no network")
    assert end.failed == {"data/b": "no network"}
    assert end.kept == {"data/c": NOT_TRIED, "data/kept": NOT_TRIED}
    assert len(case.inspections) == len(case.asked) == 1


@pytest.mark.parametrize(
    ("versions", "versioned", "may_remain"),
    [
        (Versions.ALL, True, True),
        (Versions.ALL, None, True),
        (Versions.ALL, False, False),
        (Versions.MARKER, True, False),
    ],
)
def it_counts_a_copy_as_failed_if_older_versions_of_it_may_remain(
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
    versions: Versions,
    versioned: bool | None,
    may_remain: bool,
) -> None:
    case.copies("data/a", "data/b", "data/c")
    case.site.desired.sweep = replace(case.site.desired.sweep, versions=versions)

    def refuse(key: str) -> Deletion | None:
        if key.endswith("data/c"):
            return Deletion(key)  # it is still there
        if not key.endswith("data/b"):
            return None
        (case.folder / key).unlink()
        return Deletion(key, "older versions were not deleted: AccessDenied")

    case.store.refuses = refuse
    facts = StoreFacts(versioned=versioned, soft_delete=False)
    monkeypatch.setattr(case.store, "facts", lambda: facts, raising=False)
    end = case.purge()
    failed = {"data/b": "older versions were not deleted: AccessDenied"} if may_remain else {}
    assert end.failed == failed | {"data/c": STILL_THERE}
    assert end.deleted.objects == 2 - len(failed)


def it_reports_what_the_store_confirmed_if_it_cannot_list_the_copies_afterwards(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPIES_AT_ONCE", 1)
    case.copies("data/a", "data/b")
    lost = False

    def lose(name: str, args: tuple[Any, ...]) -> None:
        nonlocal lost
        lost = lost or (name == "delete" and "data/b" in str(args[0]))
        if lost:
            raise StorageError("no answer" if name == "delete" else "no network")

    case.store.before = lose
    end = case.purge()
    assert (end.deleted, end.failed, end.problem) == (Amount(1, 1), {"data/b": "no answer"}, "no answer")


def it_reports_a_problem_if_it_cannot_list_the_copies_afterwards(case: Case) -> None:
    case.copies("data/a", "data/b")

    def lose(name: str, args: tuple[Any, ...]) -> None:
        if name == "list_objects" and case.store.called("delete"):
            raise StorageError("no network")

    case.store.before = lose
    end = case.purge()
    assert (end.deleted, end.left, end.failed, end.problem) == (Amount(2, 2), None, {}, "no network")


def it_reports_what_it_deleted_before_an_inspection_failed(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.copies("data/a", "data/b", "data/c", data=b"xx")
    use(case, OneByOne(case.store.store))

    def later(name: str, args: tuple[Any, ...]) -> None:
        if name == "delete":
            case.at += 10 * MINUTE
            monkeypatch.setattr(module, "needed_now", fail)

    def fail(*_: Any, **__: Any) -> Needed:
        raise GateRefused("repository other cannot be read")

    case.store.after = later
    end = case.purge()
    assert (end.deleted, end.problem) == (Amount(1, 2), "repository other cannot be read")
    assert (end.kept, end.failed) == ({}, dict.fromkeys(("data/b", "data/c"), end.problem))


def it_reports_what_it_deleted_before_the_lease_was_lost(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COPIES_AT_ONCE", 2)
    case.copies("data/a", "data/b", "data/c", "data/kept")
    case.needs = [{"data/kept"}]

    def renew() -> None:
        if case.left() != {"data/a", "data/b", "data/c", "data/kept"}:
            raise LeaseHeld("another run took it over")

    monkeypatch.setattr(case, "renew", renew)
    end = case.purge()
    assert (end.deleted, end.failed, end.problem) == (Amount(2, 2), {}, "another run took it over")
    assert end.kept == {"data/c": NOT_TRIED, "data/kept": NEEDED}


def it_reports_what_it_deleted_before_a_signal_stopped_it(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPIES_AT_ONCE", 1)
    case.copies("data/a", "data/b", "data/c")
    case.stopped = lambda: "data/a" not in case.left()
    end = case.purge()
    assert (end.deleted, end.problem) == (Amount(1, 1), STOPPED)
    assert end.failed | end.kept == {"data/b": STOPPED, "data/c": NOT_TRIED}
    assert case.left() == {"data/b", "data/c"}
    assert len(case.inspections) == 1


def it_raises_why_nothing_could_be_deleted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.copies("data/a")

    def renew() -> None:
        raise LeaseHeld("another run took it over")

    monkeypatch.setattr(case, "renew", renew)
    with pytest.raises(LeaseHeld):
        case.purge()
    assert case.left() == {"data/a"}


def it_does_not_take_the_store_s_word_for_it(case: Case) -> None:
    case.copies("data/a", "data/denied", "data/gone", "data/there")

    def answer(key: str) -> Deletion | None:
        name = key.rpartition("/")[2]
        if name == "gone":
            (case.folder / key).unlink()
        reasons = {"denied": "AccessDenied", "gone": "InternalError", "there": ""}
        return Deletion(key, reasons[name]) if name in reasons else None

    case.store.refuses = answer
    end = case.purge()
    assert end.deleted == Amount(2, 2)
    assert end.failed == {"data/denied": "AccessDenied", "data/there": STILL_THERE}
    assert end.problem == ""


def it_says_of_every_batch_why_the_store_kept_its_copies(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COPIES_AT_ONCE", 1)
    case.copies("data/a", "data/b")
    reasons = {QUARANTINE_PREFIX + "data/a": "AccessDenied", QUARANTINE_PREFIX + "data/b": "InternalError"}
    case.store.refuses = lambda key: Deletion(key, reasons[key])
    assert case.purge().failed == {"data/a": "AccessDenied", "data/b": "InternalError"}


class DescribeOneQuarantine:
    """What is checked before, and the document."""

    @pytest.fixture
    def calls(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """What is checked while the lease is held, in order."""
        calls: list[Any] = []

        class Lease:
            renew = case.renew

            def __enter__(self) -> None:
                calls.append("lease")

            def __exit__(self, *_: object) -> None:
                calls.append("released")

        def lease(site: Any, state: Any, run: Run) -> Lease:
            assert (site, state, run) == (case.site, case.ports.state, case.runs[-1])
            return Lease()

        def clocks(site: Any, key: str, now: Any, *, by: str) -> Clocks:
            calls.append((site.key, key, now(), by))
            return CLOCKS

        def load(site: Any, state: Any, mark_id: str) -> Any:
            assert state is case.ports.state
            calls.append(("load", site.key, mark_id))
            return SimpleNamespace(mark=case.mark)

        monkeypatch.setattr(module, "site_clocks", clocks)
        monkeypatch.setattr(module, "site_lease", lease)
        monkeypatch.setattr(module, "check_site", lambda site, today: calls.append((site.key, today)))
        monkeypatch.setattr(module, "load_mark", load)
        monkeypatch.setattr(
            module, "check_same_repository", lambda site, mark: calls.append((site.key, mark.mark_id))
        )
        self.summary(case)
        return calls

    @staticmethod
    def summary(case: Case, **changes: Any) -> None:
        none = {"objects": 0, "size_bytes": 0}
        summary = {
            **dict.fromkeys(("deleted", "failed", "saved", "pending"), none),
            "mark_id": "m1",
            "repository": "prod/lake",
            "at": "2026-01-01T00:00:00Z",
            "finished": True,
            "came_back": 0,
            "verified": 0,
            "reasons": {},
            "problem": "",
            "settings": {"mode": "quarantine"},
            "settings_from": {"mode": "approval"},
            "closed": False,
            "not_yet_reclaimed": "",
            **changes,
        }
        put_object(case.folder, f"{SWEEP_PREFIX}summary.json", json.dumps(summary).encode())

    @staticmethod
    def of(case: Case, older_than: datetime = NOW) -> dict[str, Any]:
        one = Quarantine(case.site, "m1", Amount(9, 9), NOW - 3 * MINUTE)
        return purge(one, case.ports, run(case), older_than=older_than)

    def it_checks_everything_under_the_lease(self, case: Case, calls: list[Any]) -> None:
        case.copies("data/a", data=b"xx")
        put_object(case.folder, QUARANTINE_PREFIX + "data/other")
        assert self.of(case) == {
            "repository": "prod/lake",
            "mark_id": "m1",
            "deleted": 1,
            "size_bytes": 2,
            "kept": 1,
            "kept_reasons": {NOT_NAMED: 1},
            "needed": 0,
            "failed": 0,
            "failures": {},
            "problem": "",
            "newest": "2026-03-31T11:57:00Z",
        }
        assert calls == [
            ("prod/lake", "_lakeplan/sweeps/m1/clock.json", NOW, "ann@here"),
            "lease",
            ("prod/lake", date(2026, 3, 31)),
            ("load", "prod/lake", "m1"),
            ("prod/lake", "m1"),
            "released",
        ]

    def it_counts_why_copies_are_kept_and_names_some_that_failed(self, case: Case, calls: list[Any]) -> None:
        many = [f"data/f{n:03}" for n in range(NAMED + 1)]
        case.copies("data/need", *many)
        case.copies("data/y1", "data/y2", modified=CLOCKS.earliest.timestamp())
        case.needs = [{"data/need"}]
        case.store.refuses = lambda key: Deletion(key, "AccessDenied")
        document = self.of(case)
        assert (document["kept"], document["needed"], document["failed"]) == (3, 1, NAMED + 1)
        assert [*document["kept_reasons"].items()] == [(NEEDED, 1), (YOUNG, 2)]
        assert document["failures"] == {QUARANTINE_PREFIX + key: "AccessDenied" for key in many[:NAMED]}

    @pytest.mark.parametrize(
        ("older_than", "limit"),
        [
            (NOW, CLOCKS.earliest - timedelta(hours=1)),
            (NOW - timedelta(days=1), NOW - timedelta(days=1)),
        ],
    )
    def it_takes_the_stricter_of_both_ages(
        self, case: Case, calls: list[Any], older_than: datetime, limit: datetime
    ) -> None:
        case.copies("data/old", modified=limit.timestamp() - 1)
        case.copies("data/young", modified=limit.timestamp())
        assert self.of(case, older_than)["deleted"] == 1
        assert case.left() == {"data/young"}

    @staticmethod
    def recorded(case: Case) -> RecordedSweep:
        return read_sweeps(case.ports.state, "prod/lake")["m1"]

    @pytest.fixture
    def swept(self, case: Case, calls: list[Any]) -> Case:
        """Three copies, whose sweep is recorded."""
        none = {"objects": 0, "size_bytes": 0}
        document = {
            "mark_id": "m1",
            "repository": "prod/lake",
            "at": "2026-03-01T12:00:00Z",
            "finished": True,
            "settings": {"mode": "quarantine"},
            **dict.fromkeys(("saved", "failed", "pending"), none),
            "deleted": {"objects": 3, "size_bytes": 9},
        }
        record_sweep(case.ports.state, document, versions_kept=False)
        case.copies("data/a", data=b"xx")
        case.copies("data/b", data=b"xxx")
        case.copies("data/c", data=b"xxxx")
        return case

    def it_remembers_what_was_purged(self, swept: Case) -> None:
        swept.needs = [{"data/b"}]
        self.of(swept)
        found = self.recorded(swept)
        assert (found.purged, found.quarantined, found.purging) == (Amount(2, 6), Amount(1, 3), None)

    @pytest.mark.parametrize("killed_at", [0, 1, 2, 3])
    def it_counts_what_a_killed_purge_deleted(
        self, swept: Case, monkeypatch: pytest.MonkeyPatch, killed_at: int
    ) -> None:
        delete = swept.store.delete

        def kill(keys: Any, **more: Any) -> Any:
            delete(keys[:killed_at], **more)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(swept.store, "delete", kill)
            with pytest.raises(KeyboardInterrupt):
                self.of(swept)
        gone = (Amount(), Amount(1, 2), Amount(2, 5), Amount(3, 9))[killed_at]
        found = self.recorded(swept)
        left = Amount(3, 9) - gone
        assert (found.purged, found.purging, found.purged_by(left)) == (Amount(), Amount(3, 9), gone)
        record_sweep(  # another run of the sweep does not forget it
            swept.ports.state,
            {
                "mark_id": "m1",
                "repository": "prod/lake",
                "at": "2026-03-02T12:00:00Z",
                "finished": True,
                "settings": {"mode": "quarantine"},
                **{status: amount.to_row() for status, amount in found.amounts.items()},
            },
            versions_kept=False,
        )
        (one,) = [
            *list_quarantines(swept.site, older_than=NOW),
            *unrecorded_purges(swept.site, swept.ports.state),
        ]
        assert one.amount == left
        swept.needs = [{"data/c"}]
        document, code = purge_all([one], swept.ports, run(swept), older_than=NOW, option=None)
        assert code == (3 if left.objects else 0)
        assert len(document["quarantines"]) == (1 if left.objects else 0)
        found = self.recorded(swept)
        kept = Amount(1, 4) if left.objects else Amount()
        assert (found.purged, found.quarantined, found.purging) == (Amount(3, 9) - kept, kept, None)
        assert unrecorded_purges(swept.site, swept.ports.state) == []

    def it_counts_copies_once_when_another_run_took_over(self, swept: Case) -> None:
        taken: list[Any] = []
        delete = swept.store.delete

        def stall(keys: Any, **more: Any) -> Any:
            if taken:
                return delete(keys, **more)
            delete(keys[:1], **more)
            taken.append(
                purge_all(
                    list_quarantines(swept.site, older_than=NOW),
                    swept.ports,
                    run(swept),
                    older_than=NOW,
                    option=None,
                )
            )
            return delete(keys[1:], **more)

        swept.store.delete = stall  # type: ignore[method-assign]
        self.of(swept)
        assert taken
        found = self.recorded(swept)
        assert (found.purged, found.purging) == (Amount(3, 9), None)

    def it_purges_nothing_that_it_cannot_record(self, swept: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **more: object) -> None:
            raise StorageError("the state is full")

        monkeypatch.setattr(module, "record_purge", fail)
        with pytest.raises(StorageError, match="the state is full"):
            self.of(swept)
        assert swept.left() == {"data/a", "data/b", "data/c"}

    def it_reports_a_purge_whose_end_the_state_cannot_remember(
        self, swept: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*args: Any, ended: str = "", **more: Any) -> None:
            if ended:
                raise StorageError("the state is full")
            record_purge(*args, **more)

        monkeypatch.setattr(module, "record_purge", fail)
        assert self.of(swept)["deleted"] == 3
        assert "the state has no record that this purge finished: the state is full" in caplog.text
        assert self.recorded(swept).purging == Amount(3, 9)

    @pytest.mark.parametrize(
        ("changes", "kind", "message"),
        [
            (None, LakeplanError, "is not finished, so its copies in quarantine may be the only ones"),
            (
                {"finished": False},
                LakeplanError,
                "is not finished, so its copies in quarantine may be the only ones",
            ),
            (
                {"came_back": None},
                LakeplanError,
                "is not finished, so its copies in quarantine may be the only ones",
            ),
            (
                {"came_back": None, "closed": True},
                LakeplanError,
                "ended before it checked which objects are needed again",
            ),
            (
                {"came_back": 1_234},
                GateRefused,
                "1,234 objects that the sweep of mark m1 moved are needed again",
            ),
        ],
    )
    def it_refuses_a_sweep_whose_copies_may_be_all_there_is(
        self,
        case: Case,
        calls: list[Any],
        changes: dict[str, Any] | None,
        kind: type[LakeplanError],
        message: str,
    ) -> None:
        case.copies("data/a")
        if changes is None:
            case.store.delete([f"{SWEEP_PREFIX}summary.json"], versions=Versions.MARKER)
        else:
            self.summary(case, **changes)
        with pytest.raises(LakeplanError, match=message) as caught:
            self.of(case)
        assert type(caught.value) is kind
        assert caught.value.where == "prod/lake"
        assert (case.left(), calls[-1]) == ({"data/a"}, "released")


def run(case: Case) -> Run:
    run_id, holder = f"run-{len(case.runs) + 1}", {"user": "ann", "host": "here", "pid": 1}
    case.runs.append(Run(run_id, holder, lambda: NOW, lambda holder: True))
    return case.runs[-1]


class Listed:
    """A store that lists these objects by prefix."""

    def __init__(self, objects: dict[str, list[StoredObject]]) -> None:
        self.objects = objects

    def list_prefixes(self, prefix: str) -> list[str]:
        assert prefix == "_lakeplan/quarantine/"
        return [*self.objects]

    def list_objects(self, prefix: str) -> list[StoredObject]:
        return self.objects[prefix]


def it_lists_quarantines_whose_last_copy_is_old_enough_oldest_first() -> None:
    def us(at: datetime) -> int:
        return int(at.timestamp() * 1_000_000)

    prefix = "_lakeplan/quarantine/"
    site: Any = SimpleNamespace(
        store=Listed(
            {
                f"{prefix}none/": [],
                f"{prefix}epoch/": [StoredObject("a", 1, 0)],
                f"{prefix}later/": [
                    StoredObject("b", 3, us(NOW - 2 * SECOND)),
                    StoredObject("a", 4, us(NOW) - 1),
                    StoredObject("c", 5, us(NOW - 3 * SECOND)),
                ],
                f"{prefix}young/": [StoredObject("a", 1, us(NOW - MINUTE)), StoredObject("b", 1, us(NOW))],
                f"{prefix}older/": [StoredObject("a", 1, us(NOW - SECOND))],
            }
        )
    )
    assert list_quarantines(site, older_than=NOW) == [
        Quarantine(site, "epoch", Amount(1, 1), datetime.fromtimestamp(0, tz=timezone.utc)),
        Quarantine(site, "older", Amount(1, 1), NOW - SECOND),
        Quarantine(site, "later", Amount(3, 12), NOW - timedelta(microseconds=1)),
    ]
