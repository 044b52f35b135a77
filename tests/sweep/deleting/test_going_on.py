"""Parts that an earlier run began or ended, and runs that are killed at any moment."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from lakeplan.errors import FormatError
from lakeplan.formats.marks import write_results
from lakeplan.formats.namespace import begun_key, result_key
from lakeplan.sweep import deleting
from lakeplan.sweep.deleting import BROUGHT_BACK
from lakeplan.values.simulation import Amount, Status
from lakeplan.values.sweep import CHANGED, GONE, Deletion
from tests.sweep.deleting.conftest import CUTOFF, SETTINGS, Sweep, ends
from tests.sweeping.stores import (
    QUARANTINE_PREFIX,
    SWEEP_PREFIX,
    FakeTime,
    Fault,
    FaultyStore,
    Killed,
    begun_parts,
    killing_at,
    put_object,
    raising,
    records,
)


class DescribeGoingOn:
    def it_does_nothing_again_for_a_part_that_has_its_record(self, sweep: Sweep) -> None:
        sweep.mark(["data/a"])
        before = sweep.run()
        put_object(sweep.folder, "data/a", b"written again", modified=CUTOFF + 5)
        store = FaultyStore(sweep.store)
        assert sweep.run(store) == before
        assert store.called("delete") == []
        assert sweep.there() == {"data/a"}

    def it_leaves_what_changed_since_the_mark(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b", "data/c"])
        sweep.store.put(begun_key(SWEEP_PREFIX, sweep.parts[0].name), b"{}")
        os.unlink(sweep.folder / "data/a")
        put_object(sweep.folder, "data/b", b"another", modified=CUTOFF)
        assert sweep.records == {}
        sweep.run()
        assert sweep.records == {
            "data/a": ("deleted", GONE),
            "data/b": ("saved", CHANGED),
            "data/c": ("deleted", ""),
        }
        assert sweep.there() == {"data/b"}

    def it_lets_the_record_stand_that_was_there_first(self, sweep: Sweep) -> None:
        sweep.mark(["data/a"])
        sweep.saved = {"data/a": "held"}
        first = ends(sweep.run())
        sweep.saved = {"data/a": "held by something else"}
        hidden = FaultyStore(sweep.store)
        # a second attempt that looked before the first one's record was written
        hidden.before = raising(deleting.StorageNotFound("not yet"), on="read", key="results/", times=1)
        assert ends(sweep.run(hidden)) == first
        assert len(list(sweep.store.list_objects(f"{SWEEP_PREFIX}results/"))) == 1

    def it_lets_a_record_stand_that_lacks_an_object(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])
        sweep.saved = {"data/a": "held", "data/b": "held"}
        theirs = write_results({"data/a": (Status.SAVED, "theirs")}, {"data/a": 1}, verified=0)
        sweep.store.put(result_key(SWEEP_PREFIX, sweep.parts[0].name), theirs)
        hidden = FaultyStore(sweep.store)
        hidden.before = raising(deleting.StorageNotFound("not yet"), on="read", key="results/", times=1)
        assert ends(sweep.run(hidden))[0].amounts == {Status.SAVED: Amount(1, 1)}
        assert len(list(sweep.store.list_objects(f"{SWEEP_PREFIX}results/"))) == 1

    @pytest.mark.parametrize("attempt", [0, 1])
    def it_names_the_record_that_was_there_first_if_it_is_damaged(self, sweep: Sweep, attempt: int) -> None:
        sweep.mark(["data/a"])
        key = result_key(SWEEP_PREFIX, sweep.parts[0].name, attempt)
        sweep.store.put(key, b"PAR1")
        hidden = FaultyStore(sweep.store)
        hidden.before = raising(deleting.StorageNotFound("not yet"), on="read", key="results/", times=1)
        (error,) = sweep.run(hidden, attempts={sweep.parts[0].name: attempt})
        assert isinstance(error, FormatError)
        assert error.where == f"{sweep.store.url}/{key}"

    def it_adds_what_it_deleted_to_the_record_that_was_there_first(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])
        sweep.saved = {"data/a": "held", "data/b": "held"}
        sweep.run()
        first = sweep.records
        sweep.saved = {"data/b": "held by something else"}
        hidden = FaultyStore(sweep.store)
        # it took the lease over while the first run stood still
        hidden.before = raising(deleting.StorageNotFound("not yet"), on="read", key="results/", times=1)
        (end,) = ends(sweep.run(hidden))
        assert sweep.there() == {"data/b"}
        assert end.amounts == {Status.DELETED: Amount(1, 1), Status.SAVED: Amount(1, 1)}
        assert sweep.records == first
        assert records(sweep.store, sweep.parts, {sweep.parts[0].name: 1}) == {
            "data/a": ("deleted", ""),
            "data/b": ("saved", "held"),
        }

    @pytest.mark.parametrize("mode", ["delete", "quarantine", "close"])
    def it_reports_what_is_gone_as_deleted_whatever_holds_it_by_now(self, sweep: Sweep, mode: str) -> None:
        """An attempt deleted it and was killed; then something began to hold it again."""
        sweep.settings = replace(SETTINGS, mode=mode)  # type: ignore[arg-type]
        sweep.mark(["data/a", "data/b"])
        sweep.store.put(begun_key(SWEEP_PREFIX, sweep.parts[0].name), b"{}")
        os.unlink(sweep.folder / "data/a")
        sweep.saved = {"data/a": "held", "data/b": "held"}
        (end,) = ends(sweep.run())
        assert sweep.records == {"data/a": ("deleted", GONE), "data/b": ("saved", "held")}
        assert end.amounts[Status.DELETED] == Amount(1, 1)

    def it_tries_again_what_failed_and_nothing_else(self, sweep: Sweep) -> None:
        sweep.saved = {"data/saved": "held"}
        sweep.mark(["data/a", "data/failed", "data/gone", "data/saved"])
        store = FaultyStore(sweep.store)
        refused = {"data/failed", "data/gone"}
        store.refuses = lambda key: Deletion(key, "AccessDenied") if key in refused else None
        sweep.run(store)
        sweep.saved = {}
        os.unlink(sweep.folder / "data/gone")
        put_object(sweep.folder, "data/a", b"another", modified=CUTOFF + 5)
        again = {sweep.parts[0].name: 1}
        first = sweep.records
        sweep.run(attempts=again)
        assert sweep.records == first, "the record of the first attempt stays"
        assert records(sweep.store, sweep.parts, again) == {
            "data/a": ("saved", CHANGED),
            "data/failed": ("deleted", ""),
            "data/gone": ("deleted", GONE),
            "data/saved": ("saved", "held"),
        }
        assert sweep.there() == {"data/a", "data/saved"}

    def it_keeps_a_failure_if_the_sweep_is_aborted(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/failed"])
        store = FaultyStore(sweep.store)
        store.refuses = lambda key: Deletion(key, "AccessDenied") if key == "data/failed" else None
        sweep.run(store)
        sweep.settings, again = replace(SETTINGS, mode="close"), {sweep.parts[0].name: 1}
        sweep.run(attempts=again)
        assert records(sweep.store, sweep.parts, again) == {
            "data/a": ("deleted", ""),
            "data/failed": ("failed", "AccessDenied"),
        }
        assert sweep.there() == {"data/failed"}

    def it_keeps_the_reason_of_what_an_earlier_attempt_deleted(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/failed", "data/gone"])
        os.unlink(sweep.folder / "data/gone")
        store = FaultyStore(sweep.store)
        store.refuses = lambda key: Deletion(key, "AccessDenied") if key == "data/failed" else None
        sweep.run(store)
        again = {sweep.parts[0].name: 1}
        sweep.run(attempts=again)
        assert records(sweep.store, sweep.parts, again) == {
            "data/a": ("deleted", ""),
            "data/failed": ("deleted", ""),
            "data/gone": ("deleted", GONE),
        }

    def it_goes_by_the_record_of_the_attempt_just_before(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])
        for attempt, refused in enumerate([{"data/a", "data/b"}, {"data/b"}, set()]):
            store = FaultyStore(sweep.store)
            store.refuses = lambda key, refused=refused: (  # type: ignore[misc]
                Deletion(key, "AccessDenied") if key in refused else None
            )
            sweep.run(store, attempts={sweep.parts[0].name: attempt})
        ended = records(sweep.store, sweep.parts, {sweep.parts[0].name: 2})
        assert ended == {"data/a": ("deleted", ""), "data/b": ("deleted", "")}

    def it_tries_everything_where_the_earlier_record_is_missing(self, sweep: Sweep) -> None:
        sweep.mark(["data/a"])
        again = {sweep.parts[0].name: 1}
        assert ends(sweep.run(attempts=again))[0].amounts == {Status.DELETED: Amount(1, 1)}
        assert records(sweep.store, sweep.parts, again) == {"data/a": ("deleted", "")}

    @pytest.mark.parametrize(("attempt", "damaged"), [(0, 0), (1, 0), (1, 1), (2, 1)])
    def it_names_the_record_that_is_damaged(self, sweep: Sweep, attempt: int, damaged: int) -> None:
        sweep.mark(["data/a"])
        key = result_key(SWEEP_PREFIX, sweep.parts[0].name, damaged)
        sweep.store.put(key, b"PAR1")
        (error,) = sweep.run(attempts={sweep.parts[0].name: attempt})
        assert isinstance(error, FormatError)
        assert error.where == f"{sweep.store.url}/{key}"
        assert sweep.there() == {"data/a"}

    def it_keeps_what_somebody_brought_back_when_others_are_tried_again(self, sweep: Sweep) -> None:
        class Versioned(FaultyStore):
            """Its delete marker of data/a is removed later: the object is what it was when it was marked."""

            def is_gone(self, key: str) -> bool:
                return key == "data/a" or bool(self.store.is_gone(key))

        sweep.mark(["data/a", "data/b"])
        store = Versioned(sweep.store)
        answers = {"data/a": Deletion("data/a"), "data/b": Deletion("data/b", "AccessDenied")}
        store.refuses = answers.get
        sweep.run(store)
        assert sweep.records["data/a"] == ("deleted", "")
        again = {sweep.parts[0].name: 1}
        sweep.run(attempts=again)
        assert sweep.there() == {"data/a"}
        assert records(sweep.store, sweep.parts, again) == {
            "data/a": ("saved", BROUGHT_BACK),
            "data/b": ("deleted", ""),
        }


def _calls_of_a_whole_run(folder: Path, mode: str) -> int:
    sweep = _killable(folder, mode)
    store = FaultyStore(sweep.store)
    sweep.run(store)
    return len(store.calls)


def _killable(folder: Path, mode: str) -> Sweep:
    settings = replace(SETTINGS, mode=mode)  # type: ignore[arg-type]
    sweep = Sweep(folder, settings, saved={"data/saved": "held"})
    sweep.mark(["data/a", "data/b", "data/saved"], ["data/c", "data/d"])
    return sweep


@pytest.mark.parametrize("mode", ["delete", "quarantine"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_may_be_killed_at_every_single_call(
    tmp_path: Path, time: FakeTime, mode: str, when: str
) -> None:
    calls = _calls_of_a_whole_run(tmp_path / "whole", mode)
    assert calls >= 14
    for number in range(1, calls + 1):
        sweep = _killable(tmp_path / str(number), mode)
        _killed_at(sweep, number, when)
        assert when == "after" or len(sweep.records) < 5, "it was killed too late to show anything"
        changed = _change_one(sweep)
        _killed_at(sweep, 1 + number % 5, when)  # and again, while it goes on
        assert len(ends(sweep.run())) == 2
        _check_the_end(sweep, mode, changed, f"killed {when} call {number}")


@pytest.mark.parametrize("mode", ["delete", "quarantine"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_killed_run_deleted_is_not_saved_by_the_next(
    tmp_path: Path, time: FakeTime, mode: str, when: str
) -> None:
    for number in range(1, _calls_of_a_whole_run(tmp_path / "whole", mode) + 1):
        sweep = _killable(tmp_path / str(number), mode)
        _killed_at(sweep, number, when)
        there = sweep.there()
        sweep.saved = dict.fromkeys(["data/a", "data/b", "data/c", "data/d", "data/saved"], "held")
        sweep.run()
        saved = {key for key, (status, _) in sweep.records.items() if status == "saved"}
        assert saved == there == sweep.there(), f"killed {when} call {number}"


def _killed_at(sweep: Sweep, number: int, when: str) -> None:
    store = FaultyStore(sweep.store)
    fault: Fault = killing_at(number)
    setattr(store, when, fault)
    with contextlib.suppress(Killed):
        sweep.run(store)


def _change_one(sweep: Sweep) -> str:
    """Somebody writes an object of a begun part anew; "" where no part is open."""
    recorded = set(sweep.records)
    begun = begun_parts(sweep.store, sweep.parts)
    if sweep.parts[1].name in begun and "data/c" not in recorded:
        key = "data/c"
    elif sweep.parts[0].name in begun and "data/a" not in recorded:
        key = "data/a"
    else:
        return ""
    put_object(sweep.folder, key, b"new bytes", modified=CUTOFF + 100)
    return key


def _check_the_end(sweep: Sweep, mode: str, changed: str, what: str) -> None:
    ended = sweep.records
    assert set(ended) == {"data/a", "data/b", "data/saved", "data/c", "data/d"}, what
    kept = {"data/saved"} | ({changed} if changed else set())
    assert {key for key, (status, _) in ended.items() if status == "saved"} == kept, what
    assert {key for key, (status, _) in ended.items() if status == "deleted"} == set(ended) - kept, what
    assert sweep.there() == kept, what
    if changed:
        assert sweep.store.read(changed) == b"new bytes", what
    if mode == "quarantine":
        for key in set(ended) - kept:
            assert sweep.store.read(QUARANTINE_PREFIX + key) == key[-1:].encode(), what
