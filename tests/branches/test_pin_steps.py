"""Every state of a change of pins is held against what it must keep."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lakeplan.branches.pins import Change, Loss, State, Step, Write, bare_rules, losses, safe_change
from lakeplan.retention.rules import DocumentedRule, ServerWalk
from lakeplan.values.pins import Pin, pin_name
from lakeplan.values.repository import Branch
from lakeplan.values.rules import GcRules
from tests.branches.test_pins import DANGLING, MEASURED, history
from tests.retention.conftest import NOW, draw_refs

SHARED = draw_refs("""
          -> root 50
          -> x1   40 root
    dev   -> x2   31 x1
    main  -> m1    1 root
""")


def test_a_loss_names_three_commits_by_twelve_digits() -> None:
    ids = tuple(letter * 64 for letter in "abcd")
    text = (
        "creating new pins would stop the server from keeping commit aaaaaaaaaaaa, bbbbbbbbbbbb, cccccccccccc"
    )
    assert str(Loss(Write.CREATE, "the server", NOW, ids[:3])) == text
    assert str(Loss(Write.CREATE, "the server", NOW, ids)) == f"{text} and 1 more"


def test_rules_that_are_cleared_go_before_the_pins_and_keep_everything() -> None:
    stored = GcRules(7, {pin_name("c2"): 0})
    change = Change(stored, None, (Pin("c2", 0),), ())
    assert change.steps() == [
        Step(Write.RULES, State(None, change.have)),
        Step(Write.DELETE, State(None, ())),
    ]
    assert list(losses(history(MEASURED, GcRules(0)), change)) == []


def test_a_pin_that_is_safe_costs_nothing_and_needs_no_more_than_there_was() -> None:
    pins = (Pin("c2", 0),)
    for stored in (None, GcRules(7), GcRules(30)):
        assert list(losses(history(MEASURED, GcRules(7)), Change(stored, GcRules(7), (), pins))) == []
    assert bare_rules(Change(None, GcRules(7), (), pins)) is None
    assert bare_rules(Change(GcRules(7, {pin_name("c2"): 0}), GcRules(7), pins, pins)) == GcRules(7)


def test_before_the_new_rules_are_written_the_old_ones_count() -> None:
    change = Change(GcRules(35), GcRules(1), (), (Pin("x2", 0),))
    lost = next(losses(history(DANGLING, GcRules(1)), change))
    assert (lost.write, lost.commits, lost.moment, lost.removed) == (Write.CREATE, ("x1",), NOW, "")


def test_what_a_branch_alone_keeps_may_go_with_it() -> None:
    stored, desired = GcRules(35, {"dev": 60}), GcRules(36, {"dev": 60})
    found = losses(history(SHARED, desired), Change(stored, desired, (), (Pin("x2"),)))
    assert list(found) == []


def test_only_pins_where_a_branch_stands_lose_their_rule() -> None:
    refs = draw_refs("""
              -> root 50
              -> x1   40 root
        dev   -> x2   31 x1
              -> m0   45 root
        main  -> m1    1 m0
    """)
    rules = GcRules(35)
    asked = Change(rules, rules, (), (Pin("m0", 0), Pin("x2", 0)))
    change, loss = safe_change(history(refs, rules), asked)
    assert loss is None
    assert change.want == (Pin("m0", 0), Pin("x2"))


def test_two_branches_at_a_pinned_commit_may_both_be_deleted() -> None:
    two = replace(SHARED, branches=(*SHARED.branches, Branch("fix", "x2")))
    rules = GcRules(35)
    asked = Change(rules, rules, (Pin("x2"),), (Pin("x2", 0),))
    lost = next(losses(history(two, rules), asked))
    assert (lost.removed, lost.commits) == ("dev and fix", ("x1",))
    change, loss = safe_change(history(two, rules), asked)
    assert loss is None
    assert change.want == (Pin("x2"),)


def test_branches_at_several_pinned_commits_may_all_be_deleted() -> None:
    refs = draw_refs("""
              -> x1   40
        old   -> x2   31 x1
        dev   -> x3   30 x2
        main  -> m1    1
    """)
    rules = GcRules(35)
    asked = Change(rules, rules, (), (Pin("x2", 0), Pin("x3", 0)))
    found = [(loss.removed, loss.commits) for loss in losses(history(refs, rules), asked)]
    assert set(found) == {("old and dev", ("x1",))}


def test_a_change_that_no_way_makes_safe_is_refused_with_its_loss() -> None:
    rules = GcRules(35)
    asked = Change(rules, rules, (), (Pin("x2", 0),))
    change, loss = safe_change(history(DANGLING, rules), asked)
    assert change == asked
    assert loss is not None
    assert (loss.write, loss.commits) == (Write.CREATE, ("x1",))


def test_verdicts_are_those_of_the_server_s_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tzinfo] = set()
    for rule in (ServerWalk, DocumentedRule):
        real = rule.active

        def active(self: Any, moment: datetime, zone: tzinfo = timezone.utc, real: Any = real) -> Any:
            seen.add(zone)
            return real(self, moment, zone)

        monkeypatch.setattr(rule, "active", active)
    zone = ZoneInfo("America/New_York")
    one = replace(history(MEASURED, GcRules(7)), zone=zone)
    assert list(losses(one, Change(GcRules(7), GcRules(7), (), (Pin("c2", 0),)))) == []
    assert seen == {zone}
