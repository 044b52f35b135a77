"""The rule of a pin before the last branch at its commit is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lakeplan.branches import pin_records
from lakeplan.branches.pin_records import PinRecord, PinRelease, read_pin_record, write_pin_record
from lakeplan.branches.pins import with_pins
from lakeplan.errors import GateRefused, StalePlan
from lakeplan.review.run import Run
from lakeplan.values.branches import LiveBranch
from lakeplan.values.pins import Pin, pin_name
from lakeplan.values.repository import Branch, Refs
from lakeplan.values.rules import GcRules
from tests.memory import MemoryState
from tests.retention.conftest import NOW, draw_refs

KEY = "prod/lake"
X2, X1 = "2" * 64, "1" * 64
ZONE = ZoneInfo("America/New_York")
slept: list[float] = []


class Lake:
    """A server: rules, a history with pins, and what was written."""

    def __init__(self, refs: Refs, rules: GcRules | None, *pins: Pin) -> None:
        self.refs, self.rules, self.pins = with_pins(refs, pins), rules, pins
        self.written: list[GcRules] = []
        self.loses = False
        self.stale: list[GcRules] = []

    def get_gc_rules(self, repository: str) -> GcRules | None:
        assert repository == "lake"
        return self.stale.pop() if self.stale else self.rules

    def list_pins(self, repository: str) -> list[LiveBranch]:
        assert repository == "lake"
        return [LiveBranch(pin.name, pin.commit_id, hidden=True) for pin in self.pins]

    def set_gc_rules(self, repository: str, rules: GcRules) -> None:
        assert repository == "lake"
        self.written.append(rules)
        self.rules = self.rules if self.loses else rules


@pytest.fixture(autouse=True)
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    seen: list[Any] = []

    def read(lake: Lake, repository: str, *, read_only: bool) -> tuple[Refs, tuple[str, ...]]:
        seen.append((repository, read_only))
        return lake.refs, ()

    monkeypatch.setattr(pin_records, "read_all_refs", read)
    monkeypatch.setattr("lakeplan.review.run.PAUSES", ())
    return seen


def history(picture: str) -> Refs:
    """x1 and x2 with ids that pins can be named by."""
    names = {"x1": X1, "x2": X2}
    refs = draw_refs(picture)
    commits = (
        replace(c, id=names.get(c.id, c.id), parents=tuple(names.get(p, p) for p in c.parents))
        for c in refs.commits
    )
    branches = (Branch(b.id, names.get(b.commit_id, b.commit_id)) for b in refs.branches)
    return Refs(tuple(commits), tuple(branches), ())


ALONE = history("""
          -> root 50
          -> x1   45 root
    dev   -> x2   41 x1
    main  -> m1    1 root
""")


def release(
    lake: Lake,
    branch: str = "dev",
    commit: str = X2,
    *,
    known: bool = True,
    surveyed: GcRules | None = None,
) -> MemoryState:
    state = MemoryState()
    days = {} if lake.rules is None else lake.rules.branches
    pins = tuple(replace(pin, days=days.get(pin.name)) for pin in lake.pins)
    write_pin_record(state, KEY, PinRecord(pins if known else (), "h"), run_id="r0", at=NOW)
    run = Run("r1", {}, lambda: NOW, lambda _: False, sleep=slept.append)
    one = PinRelease(KEY, lake, lake, state, run, ZONE, surveyed)  # type: ignore[arg-type]
    one.before_deleting(branch, commit)
    return state


def it_gives_the_pin_the_default_days_where_nothing_else_is_at_the_commit() -> None:
    other = Pin("3" * 64, 0)
    refs = replace(ALONE, commits=(*ALONE.commits, replace(ALONE.commits[0], id="3" * 64)))
    lake = Lake(refs, GcRules(35, {"main": 9, pin_name(X2): 0, other.name: 0}), Pin(X2, 0), other)
    state = release(lake)
    assert lake.written == [GcRules(35, {"main": 9, other.name: 0})]
    assert read_pin_record(state, KEY).pins == (Pin(X2), other)
    assert read_pin_record(state, KEY).config_hash == "h"


def it_leaves_the_rule_where_a_branch_or_a_commit_follows(reads: list[Any]) -> None:
    rules = GcRules(35, {pin_name(X2): 0})
    twin = replace(ALONE, branches=(*ALONE.branches, Branch("twin", X2)))
    followed = replace(
        ALONE,
        commits=(*ALONE.commits, replace(ALONE.commits[0], id="4" * 64, parents=(X2,))),
        branches=(*ALONE.branches, Branch("later", "4" * 64)),
    )
    for refs in (twin, followed):
        lake = Lake(refs, rules, Pin(X2, 0))
        release(lake)
        assert lake.written == []
    assert reads == [("lake", False)] * 2


def it_reads_no_history_for_branches_that_are_not_pinned(reads: list[Any]) -> None:
    rules = GcRules(35, {pin_name(X2): 0})
    release(Lake(ALONE, rules, Pin(X2, 0)), "main", "m1")  # another commit
    release(Lake(ALONE, rules, Pin(X2, 0)), known=False)  # not on record
    release(Lake(ALONE, rules, Pin(X2, 0)), known=False, surveyed=GcRules(35))  # nor in the rules
    release(Lake(ALONE, GcRules(35), Pin(X2)))  # the default days already
    release(Lake(ALONE, None, Pin(X2)))  # nothing is collected
    gone = Lake(ALONE, rules, Pin(X2, 0))
    gone.list_pins = lambda repository: []  # type: ignore[method-assign]
    release(gone)
    assert reads == []


def it_refuses_for_a_pin_that_only_the_rules_name() -> None:
    """As after the state was lost: nothing says what its rule of 0 days would cost."""
    rules = GcRules(35, {pin_name(X2): 0})
    lake = Lake(ALONE, rules, Pin(X2, 0))
    with pytest.raises(GateRefused, match=f"commit of pin {pin_name(X2)}, of which the state has no record"):
        release(lake, known=False, surveyed=rules)
    assert lake.written == []


def it_releases_no_pin_without_a_rule_among_others_with_one(reads: list[Any]) -> None:
    lake = Lake(ALONE, GcRules(35, {pin_name("3" * 64): 0}), Pin(X2), Pin("3" * 64, 0))
    release(lake)
    assert lake.written == reads == []


def it_removes_rules_from_the_repository_that_it_is_given() -> None:
    removed: list[str] = []
    server = SimpleNamespace(writer=SimpleNamespace(delete_gc_rules=removed.append))
    pin_records.store_rules(server, "lake", None)  # type: ignore[arg-type]
    assert removed == ["lake"]


def it_refuses_when_the_default_days_would_cost_other_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(ALONE, GcRules(35, {pin_name(X2): 0}), Pin(X2, 0))
    seen = []

    def losses(known: Any, change: Any) -> Iterator[str]:
        seen.append((known, change))
        yield "the server would give up commit x"

    monkeypatch.setattr(pin_records, "losses", losses)
    with pytest.raises(GateRefused, match="branch dev is at a pinned commit: the server would") as refused:
        release(lake)
    assert lake.written == []
    assert refused.value.where == KEY
    ((known, change),) = seen
    assert known.moments == [NOW, NOW + timedelta(days=7), NOW + timedelta(days=30)]
    assert known.rules == change.desired == GcRules(35)
    assert known.zone is ZONE
    assert known.graph.ids == sorted(commit.id for commit in ALONE.commits)
    assert {branch.id for branch in known.refs.branches} == {"dev", "main"}
    assert change.stored == GcRules(35, {pin_name(X2): 0})
    assert (change.have, change.want) == ((Pin(X2, 0),), (Pin(X2),))


def it_reads_the_rules_until_they_are_those_that_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeplan.review.run.PAUSES", (3.0, 4.0))
    rules = GcRules(35, {pin_name(X2): 0})
    lake = Lake(ALONE, rules, Pin(X2, 0))
    slept.clear()
    real = lake.set_gc_rules

    def write(repository: str, after: GcRules) -> None:
        real(repository, after)
        lake.stale = [rules]  # what a server's cache answers for a while

    lake.set_gc_rules = write  # type: ignore[method-assign]
    release(lake)
    assert slept == [3.0]


def it_judges_by_the_rule_that_each_pin_has_on_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Pin("3" * 64, 0)
    refs = replace(ALONE, commits=(*ALONE.commits, replace(ALONE.commits[0], id=other.commit_id)))
    lake = Lake(refs, GcRules(35, {pin_name(X2): 0}), Pin(X2, 0), other)
    state = MemoryState()
    write_pin_record(state, KEY, PinRecord((Pin(X2, 0), other)), run_id="r0", at=NOW)
    seen = []
    monkeypatch.setattr(pin_records, "losses", lambda known, change: seen.append(change) or iter(()))
    run = Run("r1", {}, lambda: NOW, lambda _: False, sleep=slept.append)
    PinRelease(KEY, lake, lake, state, run, ZONE).before_deleting("dev", X2)  # type: ignore[arg-type]
    assert seen[0].have == (Pin(X2, 0), replace(other, days=None))


def it_stops_when_the_rules_are_not_those_that_it_wrote() -> None:
    lake = Lake(ALONE, GcRules(35, {pin_name(X2): 0}), Pin(X2, 0))
    lake.loses = True
    with pytest.raises(StalePlan, match="differ from those that lakeplan just wrote"):
        release(lake)


def it_does_not_write_over_rules_that_somebody_set_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(ALONE, GcRules(35, {pin_name(X2): 0}), Pin(X2, 0))

    def read(lake: Lake, repository: str, *, read_only: bool) -> tuple[Refs, tuple[str, ...]]:
        lake.rules = GcRules(400)
        return lake.refs, ()

    monkeypatch.setattr(pin_records, "read_all_refs", read)
    with pytest.raises(StalePlan, match="someone else changed"):
        release(lake)
    assert lake.written == []
