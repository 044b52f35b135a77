"""Which pins are lakeplan's own, and rules with and without their entries."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from lakeplan.branches.pin_records import (
    PinRecord,
    PinRecords,
    StoredRules,
    check_pins,
    read_pin_record,
    read_stored,
    with_rules_of,
    write_pin_record,
)
from lakeplan.errors import FormatError, GateRefused, WriteConflict
from lakeplan.values.branches import LiveBranch
from lakeplan.values.pins import Pin, has_pin_commit, is_pin_name, may_be_pin, pin_name
from lakeplan.values.rules import GcRules
from tests.memory import MemoryState

A, B, C = "a" * 64, "b" * 64, "c" * 64
AT = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
KEY = "prod/lake"


class Reader:
    """Rules, and branches that are named like pins."""

    def __init__(self, rules: GcRules | None, *branches: LiveBranch) -> None:
        self.rules, self.branches, self.listed = rules, list(branches), 0

    def get_gc_rules(self, repository: str) -> GcRules | None:
        assert repository == "lake"
        return self.rules

    def list_pins(self, repository: str) -> list[LiveBranch]:
        assert repository == "lake"
        self.listed += 1
        return self.branches


def pin(commit: str, *, hidden: bool = True, at: str = "") -> LiveBranch:
    return LiveBranch(pin_name(commit), at or commit, hidden)


def look(*branches: LiveBranch, more: bool = True, **days: int) -> StoredRules:
    return read_stored(Reader(GcRules(7, days), *branches), "lake", list_pins=more)  # type: ignore[arg-type]


def it_tells_pins_by_name_place_and_that_they_are_hidden() -> None:
    assert is_pin_name("lakeplan-pin-0123456789ab")
    for other in (
        "lakeplan-pin-0123456789a",
        "lakeplan-pin-0123456789abc",
        "x-lakeplan-pin-0123456789ab",
        "main",
    ):
        assert not is_pin_name(other)
    assert has_pin_commit(pin_name(A), A)
    assert not has_pin_commit(pin_name(A), B)
    assert not has_pin_commit("lakeplan-pin-zzz", "zzz")
    assert may_be_pin(pin(A))
    assert not may_be_pin(pin(A, hidden=False))


def it_takes_the_entries_of_pins_out_and_of_no_other_branch() -> None:
    days = {"main": 3, pin_name(A): 0, pin_name(B): 0, pin_name(C): 4}
    stored = look(pin(A), pin(B, hidden=False), **days)  # C has no branch
    assert stored.bare == GcRules(7, {"main": 3, pin_name(B): 0})
    assert stored.raw == GcRules(7, days)
    assert stored.entries == {pin_name(A): 0, pin_name(C): 4}
    assert stored.pins == (pin(A),)
    assert stored.others == (pin(B, hidden=False),)


def it_writes_the_entries_with_every_rule() -> None:
    stored = look(pin(A), **{"main": 3, pin_name(A): 0})
    assert stored.with_entries(GcRules(9, {"dev": 1})) == GcRules(9, {"dev": 1, pin_name(A): 0})
    assert stored.with_entries(None) is None
    assert with_rules_of(GcRules(1, {"x": 1}), {"x": 2}) == GcRules(1, {"x": 2})


def it_lists_branches_only_where_there_may_be_pins() -> None:
    plain = Reader(GcRules(7, {"main": 3}), pin(A))
    assert read_stored(plain, "lake") == StoredRules(plain.rules, plain.rules)  # type: ignore[arg-type]
    assert plain.listed == 0
    assert read_stored(plain, "lake", list_pins=True).pins == (pin(A),)  # type: ignore[arg-type]
    ruled = Reader(GcRules(7, {pin_name(A): 0}), pin(A))
    assert read_stored(ruled, "lake").bare == GcRules(7)  # type: ignore[arg-type]
    none = Reader(None, pin(A))
    assert read_stored(none, "lake") == StoredRules(None, None)  # type: ignore[arg-type]
    assert read_stored(none, "lake", list_pins=True) == StoredRules(None, None, (pin(A),))  # type: ignore[arg-type]
    assert StoredRules(None, None).entries == {}


def it_says_which_are_its_own_and_why_others_are_not() -> None:
    moved, visible = pin(B, at=C), pin(C, hidden=False)
    stored = look(pin(A), moved, visible)
    record = PinRecord((Pin(A, 0), Pin(B, 0), Pin(C)))
    assert stored.own(record) == (Pin(A, 0),)
    assert stored.own(PinRecord()) == ()
    assert stored.foreign(record) == [
        f"{moved.id}: it was moved to another commit",
        f"{visible.id}: it is not hidden",
    ]
    assert stored.foreign(PinRecord())[-1] == f"{pin_name(A)}: the state has no record of it"


def it_finds_wrong_rules_and_pins_that_are_gone() -> None:
    record = PinRecord((Pin(A, 0), Pin(B), Pin(C, 0)))
    stored = look(pin(A), pin(B), **{pin_name(A): 0})
    assert stored.wrong(record) == []
    assert stored.gone(record) == [Pin(C, 0)]
    assert look(pin(A), pin(B)).wrong(record) == [Pin(A, 0)]
    assert look(pin(A), pin(B), **{pin_name(A): 0, pin_name(B): 0}).wrong(record) == [Pin(B)]
    assert look(pin(A), pin(B, at=A), **{pin_name(A): 0}).gone(record) == [Pin(B), Pin(C, 0)]
    assert StoredRules(None, None, (pin(A),)).wrong(record) == []


class DescribeTheRecord:
    def write(self, state: MemoryState, *pins: Pin, record: PinRecord = PinRecord()) -> PinRecord:  # noqa: B008
        return write_pin_record(state, KEY, replace(record, pins=pins), run_id="r1", at=AT)

    def it_reads_what_it_wrote(self) -> None:
        state = MemoryState()
        assert read_pin_record(state, KEY) == PinRecord()
        held = Pin(B, 0, ("tag v1", "hold on branch main"))
        first = self.write(state, held, Pin(A), record=PinRecord(config_hash="h"))
        found = read_pin_record(state, KEY)
        assert found == PinRecord((Pin(A), Pin(B, 0, ("hold on branch main",))), "h", first.version)
        (stored,) = state.records.values()
        assert stored.data.startswith(b'{\n  "at": "2026-03-31T12:00:00Z",\n  "config_hash": "h",\n')
        assert found.commit_ids == {A, B}
        assert self.write(state, record=found).pins == ()
        assert read_pin_record(state, KEY).pins == ()

    def it_does_not_replace_the_record_of_another_writer(self) -> None:
        state = MemoryState()
        self.write(state, Pin(A))
        with pytest.raises(WriteConflict):
            self.write(state, Pin(B))

    def it_names_a_damaged_one(self) -> None:
        state = MemoryState()
        self.write(state, Pin(A))
        (key,) = state.list_keys("pins/")
        found = state.read(key)
        assert found is not None
        record = json.loads(found.data)
        assert record["at"] == "2026-03-31T12:00:00Z"
        assert record["run_id"] == "r1"
        for damage in ({"repository": "prod/other"}, {"pins": [A]}, {"pins": {A: {"retention_days": "0"}}}):
            version = state.read(key).version  # type: ignore[union-attr]
            state.write(key, json.dumps({**record, **damage}).encode(), if_version=version)
            with pytest.raises(FormatError, match="record of pins"):
                read_pin_record(state, KEY)

    def it_reads_of_many_repositories_only_those_that_have_one(self) -> None:
        state = MemoryState()
        self.write(state, Pin(A))
        known = PinRecords(state)
        assert known.of(KEY).pins == (Pin(A),)
        state.read = lambda key: pytest.fail(f"read {key}")  # type: ignore[method-assign]
        assert known.of("prod/other") == PinRecord()


class DescribeTheCheckBeforeACollection:
    def record(self, *pins: Pin) -> MemoryState:
        state = MemoryState()
        write_pin_record(state, KEY, PinRecord(pins), run_id="r1", at=AT)
        return state

    def check(self, state: MemoryState, reader: Reader) -> None:
        check_pins(reader, state, KEY)  # type: ignore[arg-type]

    def it_asks_nothing_without_pins(self) -> None:
        reader = Reader(None)
        self.check(MemoryState(), reader)
        assert reader.listed == 0

    def it_lets_a_collection_go_on_when_all_is_there(self) -> None:
        self.check(self.record(Pin(A, 0), Pin(B)), Reader(GcRules(7, {pin_name(A): 0}), pin(A), pin(B)))

    def it_refuses_while_a_rule_or_a_pin_is_missing(self) -> None:
        state = self.record(Pin(A, 0), Pin(B))
        with pytest.raises(GateRefused, match=f"{pin_name(A)} does not have the rule.*1 pin affected"):
            self.check(state, Reader(GcRules(7), pin(A), pin(B)))
        with pytest.raises(
            GateRefused, match=f"{pin_name(B)} was deleted or moved.*2 pins affected"
        ) as refused:
            self.check(state, Reader(GcRules(7), pin(A)))
        assert "pins sync" in refused.value.hint
        assert refused.value.where == KEY
