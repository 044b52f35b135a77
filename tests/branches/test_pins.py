"""Which commits are pinned, with which rule, and in which order that is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lakeplan.branches.pins import (
    Change,
    History,
    PinRules,
    State,
    Step,
    Write,
    blocking_rules,
    losses,
    missing_entries,
    newest_on,
    own_pins,
    pin_rules,
    required_pins,
    safe_change,
    states_of,
    with_entries,
    with_needed_days,
    with_pins,
    without_entries,
    without_pin_branches,
    without_pins,
)
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import DocumentedRule, ServerWalk, server_verdict
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import BranchRule, Cleared, DesiredRepository, GcDesired, Source
from lakeplan.values.pins import Kept, Pin, PinSettings, pin_name
from lakeplan.values.repository import Branch, Refs, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.sweep import Hold
from tests.branches.pin_histories import Life
from tests.retention.conftest import NOW, draw_refs

MEASURED = draw_refs("""
          -> c1 400
          -> c2 300 c1
          -> c3 200 c2
    main  -> c4   0 c3
""")


def history(refs: Refs, rules: GcRules, *days: int) -> History:
    moments = [NOW + timedelta(days=n) for n in (0, *days)]
    return History(refs, CommitGraph.from_refs(refs), rules, moments)


def kept(refs: Refs, rules: GcRules, *pins: Pin, at: datetime = NOW) -> str:
    graph = CommitGraph.from_refs(with_pins(refs, pins))
    flags = server_verdict(graph, with_entries(rules, pins), at)
    return " ".join(graph.ids[n] for n, flag in enumerate(flags) if flag)


@pytest.mark.parametrize(
    ("rules", "pins", "expected"),
    [
        (GcRules(7), [], "c3 c4"),
        (GcRules(7), [Pin("c2")], "c2 c3 c4"),
        (GcRules(350), [Pin("c2")], "c1 c2 c3 c4"),
        (GcRules(7, {"main": 0}), [Pin("c2", 0)], "c2 c4"),
    ],
)
def test_a_pin_keeps_what_a_real_server_was_seen_to_keep(
    rules: GcRules, pins: list[Pin], expected: str
) -> None:
    assert kept(MEASURED, rules, *pins) == expected


def test_a_tag_gets_a_pin_of_0_days_where_a_commit_follows_it() -> None:
    refs = replace(MEASURED, tags=(Tag("v1", "c2"), Tag("other", "c1")))
    assert required_pins(history(refs, GcRules(7)), PinRules(tags=("v*",))) == [Pin("c2", 0, ("tag v1",))]


DANGLING = draw_refs("""
          -> root 50
          -> x1   40 root
          -> x2   31 x1
    main  -> m1    1 root
""")


def test_a_pin_at_a_dangling_commit_has_the_default_days_because_0_would_cost_its_ancestors() -> None:
    refs = replace(DANGLING, tags=(Tag("v1", "x2"),))
    rules = GcRules(35)
    assert required_pins(history(refs, rules, 10), PinRules(tags=("*",))) == [Pin("x2", None, ("tag v1",))]
    assert kept(refs, rules) == "m1 root x1 x2"
    assert kept(refs, rules, Pin("x2", 0)) == "m1 root x2"
    assert kept(refs, rules, Pin("x2")) == "m1 root x1 x2"
    lost = next(losses(history(refs, rules), Change(rules, rules, (), (Pin("x2", 0),))))
    assert (lost.write, lost.verdict, lost.commits) == (Write.CREATE, "the server", ("x1",))
    assert str(lost) == "creating new pins would stop the server from keeping commit x1"


def test_no_pin_for_a_commit_that_expires_nowhere_or_whose_data_another_commit_keeps() -> None:
    asked = PinRules(tags=("*",))
    refs = replace(MEASURED, tags=(Tag("v1", "c2"),))
    assert required_pins(history(refs, GcRules(250)), asked) == []
    assert required_pins(history(refs, GcRules(250), 60), asked) == [Pin("c2", 0, ("tag v1",))]
    again = tuple(replace(c, meta_range_id="mr-c4") if c.id == "c2" else c for c in refs.commits)
    assert required_pins(history(replace(refs, commits=again), GcRules(7)), asked) == []


def test_a_pin_that_is_there_stays_for_as_long_as_it_is_asked_for() -> None:
    refs = replace(MEASURED, tags=(Tag("v1", "c2"),))
    there = [Pin("c2"), Pin("c1")]
    found = required_pins(history(refs, GcRules(500)), PinRules(tags=("*",)), (), there)
    assert [pin.commit_id for pin in found] == ["c2"]


def test_holds_on_a_branch_ask_for_all_that_its_head_was_made_from() -> None:
    asked = PinRules(holds=True)
    holds = [Hold("branch", "main"), Hold("prefix", "legal/")]
    found = required_pins(history(MEASURED, GcRules(7)), asked, holds)
    assert [(pin.commit_id, pin.reasons) for pin in found] == [
        ("c1", ("hold on branch main",)),
        ("c2", ("hold on branch main",)),
    ]
    over = [Hold("commit", "c1", until=NOW.date() - timedelta(days=1))]
    assert required_pins(history(MEASURED, GcRules(7)), asked, over) == []


TWO_PINNED_IN_A_ROW = """
                  -> root  50
                  -> dev   49 root
                  -> a     31 dev
                  -> b     28 a
        main      -> zhead 30 b
                  -> young 12 a
                  -> tip   15 young
    """


def test_retired_pins_whose_rules_were_lost_get_them_until_all_are_deleted() -> None:
    """Somebody set rules by hand. With the default days, the pin at b would stop the walk that keeps a."""
    refs = draw_refs(TWO_PINNED_IN_A_ROW)
    found = history(refs, GcRules(14))
    have = with_needed_days(found.graph, [Pin("a"), Pin("b"), Pin("tip")])
    assert [pin.days for pin in have] == [0, 0, None]
    change = Change(GcRules(7), GcRules(14), have, have[2:])
    steps = {step.write: step for step in change.steps()}
    assert steps[Write.RULES].after.rules == with_entries(GcRules(14), have)
    assert steps[Write.CLEAN].after.rules == GcRules(14)
    assert next(losses(found, change), None) is None
    deletions = list(states_of(change, steps[Write.DELETE]))
    assert [len(state.pins) for state in deletions] == [2, 1]
    for state in deletions:
        assert state.rules is not None
        graph = CommitGraph.from_refs(with_pins(refs, state.pins))
        flags = server_verdict(graph, state.rules, NOW)
        assert "a" in {graph.ids[n] for n, flag in enumerate(flags) if flag}


def test_a_step_after_which_a_wanted_pin_is_not_there_loses_its_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No change makes such steps: they are judged all the same."""
    refs = replace(DANGLING, tags=(Tag("v1", "x2"),))
    rules = GcRules(7)
    change = Change(rules, rules, (), (Pin("x2"),))
    assert next(losses(history(refs, rules), change), None) is None
    forgotten = Step(Write.RULES, State(rules, ()))
    monkeypatch.setattr(Change, "steps", lambda change: (forgotten,))
    lost = next(losses(history(refs, rules), change))
    assert (lost.write, lost.commits) == (Write.RULES, ("x2",))


def test_what_lies_between_two_deletions_is_judged() -> None:
    """As it was: the rules of retired pins stay lost."""
    refs = draw_refs(TWO_PINNED_IN_A_ROW)
    change = Change(GcRules(7), GcRules(14), (Pin("a"), Pin("b"), Pin("tip")), (Pin("tip"),))
    lost = next(losses(history(refs, GcRules(14)), change))
    assert (lost.write, lost.verdict, lost.commits) == (Write.DELETE, "the server", ("a",))


def test_what_only_the_documented_rule_keeps_is_pinned_when_at_risk_is_asked_for() -> None:
    # a walk of fewer days that begins further down by its id stops nothing; one of the same branch point does
    refs = draw_refs("""
              -> a 20
              -> b 12 a
        dev   -> z  1 b
        main  -> c 11 b
    """)
    rules = GcRules(30, {"dev": 11, "main": 15})
    found = history(refs, rules)
    at_risk = {found.graph.ids[n] for n in found.at_risk()}
    pins = required_pins(found, PinRules(at_risk=True))
    assert {pin.commit_id for pin in pins} == at_risk
    assert set(kept(refs, rules, *pins).split()) >= at_risk


def test_the_newest_commits_of_a_branch_are_counted_as_restic_counts_snapshots() -> None:
    refs = draw_refs("""
             -> a 62
             -> b 31.0 a
             -> c 30.9 b
             -> d 9 c
             -> e 2.1 d
             -> f 2 e
        main -> g 0 f
    """)
    graph = CommitGraph.from_refs(refs)

    def asked(**counts: int) -> dict[str, str]:
        return {
            reason: "".join(graph.ids[n] for n in numbers)
            for _, reason, numbers in newest_on(graph, [Kept("main", **counts)], timezone.utc)
        }

    assert asked(commits=3) == {"last 3 commits": "gfe"}
    assert asked(commits=1) == {"last 1 commit": "g"}
    assert asked(daily=3) == {"days (3)": "gfd"}
    assert asked(daily=5) == {"days (5)": "gfdca"}
    # b and c are of one day; 31 March 2022 is a Thursday, d of the week before
    assert asked(weekly=3) == {"weeks (3)": "gdc"}
    assert asked(monthly=9) == {"months (9)": "gca"}


def test_only_hidden_branches_on_record_at_the_commit_of_their_name_are_own() -> None:
    commit = "0123456789abcdef"
    own = LiveBranch(pin_name(commit), commit, hidden=True)
    assert pin_name(commit) == "lakeplan-pin-0123456789ab"
    assert own_pins([own, LiveBranch("main", commit)], [commit]) == [Pin(commit)]
    moved = replace(own, commit_id="f" * 16)
    for other, recorded in ((own, []), (replace(own, hidden=False), [commit]), (moved, [commit, "f" * 16])):
        assert own_pins([other], recorded) == []
    first = LiveBranch(pin_name("00" * 8), "00" * 8, hidden=True)
    assert own_pins([own, first], [commit, "00" * 8]) == [Pin("00" * 8), Pin(commit)]


def test_entries_are_added_taken_out_and_missed() -> None:
    rules = GcRules(7, {"main": 3, pin_name("gone"): 0})
    pins = [Pin("aaa", 0), Pin("bbb")]
    both = with_entries(rules, pins)
    assert both.branches == {"main": 3, pin_name("gone"): 0, pin_name("aaa"): 0}
    assert without_entries(both, [pin_name("aaa")]) == rules
    assert missing_entries(both, pins) == []
    assert missing_entries(rules, pins) == [pins[0]]
    assert missing_entries(with_entries(both, [Pin("bbb", 0)]), pins) == [pins[1]]
    assert missing_entries(None, pins) == [pins[0]]


def test_a_stored_rule_of_no_days_on_another_branch_blocks_pins() -> None:
    assert blocking_rules(GcRules(0, {"a": 0, "b": -3, "c": 1, pin_name("c2"): 0})) == [
        "a",
        "b",
        pin_name("c2"),
    ]


def test_the_writes_in_their_order() -> None:
    stored = with_entries(GcRules(7), [Pin("c1", 0)])
    change = Change(stored, GcRules(9), (Pin("c1", 0),), (Pin("c2", 0),))
    old, new = pin_name("c1"), pin_name("c2")
    assert [(step.write, step.after.rules, [p.name for p in step.after.pins]) for step in change.steps()] == [
        (Write.ENTRIES, GcRules(7, {old: 0, new: 0}), [old]),
        (Write.CREATE, GcRules(7, {old: 0, new: 0}), [old, new]),
        (Write.RULES, GcRules(9, {old: 0, new: 0}), [old, new]),
        (Write.DELETE, GcRules(9, {old: 0, new: 0}), [new]),
        (Write.CLEAN, GcRules(9, {new: 0}), [new]),
    ]
    assert Change(GcRules(9, {new: 0}), GcRules(9), change.want, change.want).steps() == []


def test_without_rules_nothing_is_collected_so_pins_come_before_the_first_rules() -> None:
    change = Change(None, GcRules(7), (), (Pin("c2", 0),))
    assert [step.write for step in change.steps()] == [Write.CREATE, Write.RULES]


def test_a_lost_entry_is_written_again() -> None:
    change = Change(GcRules(7), GcRules(7), (Pin("c2"),), (Pin("c2", 0),))
    assert [(step.write, step.after.rules) for step in change.steps()] == [
        (Write.RULES, GcRules(7, {pin_name("c2"): 0}))
    ]


def test_a_pin_where_a_branch_stands_has_no_rule_that_would_cost_commits_once_the_branch_goes() -> None:
    refs = draw_refs("""
              -> root 50
              -> x1   40 root
        dev   -> x2   31 x1
        main  -> m1    1 root
    """)
    refs = replace(refs, tags=(Tag("v1", "x2"),))
    rules, pin = GcRules(35), Pin("x2", 0, ("tag v1",))
    asked = Change(rules, rules, (replace(pin, days=None),), (pin,))
    lost = next(losses(history(refs, rules), asked))
    assert lost.removed == "dev"
    assert str(lost).endswith("would stop the server from keeping commit x1 once branch dev is deleted")
    change, loss = safe_change(history(refs, rules), asked)
    assert loss is None
    assert change.want == (replace(pin, days=None),)


def test_no_step_ever_keeps_less_in_random_lives() -> None:
    seen: Counter[str] = Counter()
    for seed in range(400):
        seen += Life(seed).run()
    assert seen["pins"] > 400
    assert seen["changed"] > 500
    assert seen["killed"] > 100
    assert seen["refused"] < 5


NEW_YORK = ZoneInfo("America/New_York")


def test_branches_of_other_names_are_passed_over() -> None:
    own = LiveBranch(pin_name("0123456789abcdef"), "0123456789abcdef", hidden=True)
    assert own_pins([LiveBranch("a", "x"), own], [own.commit_id]) == [Pin(own.commit_id)]


def test_a_history_without_pins() -> None:
    commit = "0123456789abcdef"
    refs = replace(MEASURED, branches=(*MEASURED.branches, Branch(pin_name(commit), commit)))
    moved = Branch(pin_name("f" * 16), "c2")
    assert without_pins(refs, [Pin(commit), Pin("c2")]) == MEASURED
    assert without_pins(refs, [Pin("c2")]) == refs
    assert without_pin_branches(refs) == MEASURED
    assert without_pin_branches(replace(MEASURED, branches=(moved,))).branches == (moved,)


def newest(refs: Refs, kept: Kept) -> list[str]:
    graph = CommitGraph.from_refs(refs)
    ((_, _, numbers),) = newest_on(graph, [kept], timezone.utc)
    return [graph.ids[n] for n in numbers]


def test_a_commit_with_an_older_date_than_its_ancestors_does_not_replace_a_newer_period() -> None:
    refs = draw_refs("""
             -> a 9
             -> b 2 a
             -> c 2.1 b
             -> d 1 c
        main -> e 40 d
    """)
    assert newest(refs, Kept("main", daily=3)) == ["d", "b", "a"]


def test_an_entry_that_a_pin_must_not_have_is_taken_out() -> None:
    assert with_entries(GcRules(7, {pin_name("c2"): 0, "main": 1}), [Pin("c2")]) == GcRules(7, {"main": 1})


def test_a_hold_on_a_commit_asks_for_that_commit_alone() -> None:
    found = required_pins(history(MEASURED, GcRules(7)), PinRules(holds=True), [Hold("commit", "c2")])
    assert [pin.commit_id for pin in found] == ["c2"]


def test_the_newest_commits_are_asked_for_on_every_branch_that_the_pattern_matches() -> None:
    refs = draw_refs("""
                   -> a 40
        dev        -> d 20 a
                   -> b 30 a
        main       -> c  0 b
        maintained -> e 10 b
    """)
    asked = PinRules(newest=(Kept("main*", 3),))
    found = {p.commit_id: p.reasons for p in required_pins(history(refs, GcRules(7)), asked)}
    reasons = ("last 3 commits of main", "last 3 commits of maintained")
    assert found == {"a": reasons}


def test_days_are_those_of_the_server_s_zone() -> None:
    refs = draw_refs("""
             -> a 3
             -> b 0.54 a
             -> c 0.48 b
        main -> d 0.02 c
    """)  # b and c: 23:02 and 00:28 UTC, both 30 March in New York
    found = {}
    for zone in (timezone.utc, NEW_YORK):
        one = replace(history(refs, GcRules(7), 30), zone=zone)
        asked = PinRules(newest=(Kept("main", daily=3),))
        found[zone] = {p.commit_id for p in required_pins(one, asked)}
    assert found == {timezone.utc: {"b", "a"}, NEW_YORK: {"c", "a"}}


def test_both_verdicts_are_judged_in_the_server_s_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for rule in (ServerWalk, DocumentedRule):
        real = rule.active

        def active(self: Any, moment: datetime, zone: tzinfo = timezone.utc, real: Any = real) -> Any:
            seen.append((type(self), moment, zone))
            return real(self, moment, zone)

        monkeypatch.setattr(rule, "active", active)
    one = replace(history(MEASURED, GcRules(7), 7), zone=NEW_YORK)
    one.at_risk()
    both = [(rule, moment, NEW_YORK) for moment in one.moments for rule in (DocumentedRule, ServerWalk)]
    assert seen == both
    seen.clear()
    one.expiring()
    assert seen == [(ServerWalk, moment, NEW_YORK) for moment in one.moments]


def test_a_commit_whose_date_no_calendar_has_is_in_no_period() -> None:
    refs = draw_refs("""
             -> a 62
             -> b 31 a
        main -> c  0 b
    """)
    commits = (replace(c, creation_us=2**62) if c.id == "b" else c for c in refs.commits)
    assert newest(replace(refs, commits=tuple(commits)), Kept("main", monthly=5)) == ["c", "a"]


def test_the_tree_pins_what_its_pins_block_and_its_branch_rules_name() -> None:
    at, kept = Source("lake.yaml", 1, 1), Kept("main", daily=7)
    rules = BranchRule("main", False, 9, at, kept), BranchRule("dev", False, 9, at)
    desired = DesiredRepository(
        "prod", "lake", "lake", GcDesired(30, rules, at), "5f", {}, {}, pins=PinSettings(("v*",), True, False)
    )
    assert pin_rules(desired) == PinRules(("v*",), holds=True, at_risk=False, newest=(kept,))
    at_risk = replace(desired, gc=Cleared.CLEAR, pins=PinSettings(at_risk=True))
    assert pin_rules(at_risk) == PinRules(at_risk=True)


def test_a_pin_stays_while_the_hold_that_required_it_is_active_even_if_its_branch_is_gone() -> None:
    asked = PinRules(holds=True)
    have = [Pin("c1", 0, ("hold on branch gone",)), Pin("c2", 0, ("hold on branch other",))]
    found = required_pins(history(MEASURED, GcRules(7)), asked, [Hold("branch", "gone")], have)
    assert found == have[:1]


def test_of_equal_dates_the_commit_nearer_the_head_is_the_newest() -> None:
    refs = draw_refs("""
             -> a 9
             -> b 2 a
             -> c 2 b
        main -> d 1 c
    """)
    assert newest(refs, Kept("main", daily=3)) == ["d", "c", "a"]


@pytest.mark.parametrize(("retired", "judged"), [(1, 1), (4, 4), (32, 32), (33, 17), (34, 18)])
def test_of_many_deletions_evenly_spaced_ones_are_judged(retired: int, judged: int) -> None:
    change = Change(None, None, tuple(Pin(f"{n:012}") for n in range(retired)), ())
    left = [len(state.pins) for state in states_of(change, change.steps()[-1])]
    assert len(left) == judged
    assert left[-1] == 0
    assert left == sorted(set(left), reverse=True)
