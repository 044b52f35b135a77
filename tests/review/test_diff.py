"""Actual against desired rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.review.differences import action_of, diff_rules
from lakeplan.values.plan import ValueChange, shortens
from lakeplan.values.rules import Action, GcRules, etag_of

rules = st.builds(
    GcRules,
    st.integers(-7, 36500),
    st.dictionaries(st.text(min_size=1, max_size=5), st.integers(-7, 36500), max_size=4),
)


def it_names_every_value_that_differs():
    before = GcRules(21, {"main": 28, "old": 1})
    after = GcRules(30, {"main": 28, "__dunder__": 7})
    assert diff_rules(before, after) == (
        ValueChange("default_retention_days", 21, 30),
        ValueChange("branches/__dunder__", None, 7),
        ValueChange("branches/old", 1, None),
    )


def it_names_every_value_of_rules_that_are_set_or_removed():
    rules = GcRules(21, {"main": 28})
    named = ("default_retention_days", 21), ("branches/main", 28)
    assert diff_rules(None, rules) == tuple(ValueChange(path, None, days) for path, days in named)
    assert diff_rules(rules, None) == tuple(ValueChange(path, days, None) for path, days in named)
    assert diff_rules(None, None) == diff_rules(rules, rules) == ()


def it_tells_add_change_clear_and_none():
    one, two = GcRules(1), GcRules(2)
    assert action_of(None, one) is Action.ADD
    assert action_of(one, two) is Action.CHANGE
    assert action_of(one, None) is Action.CLEAR
    assert action_of(one, GcRules(1)) is Action.NONE
    assert action_of(None, None) is Action.NONE


def it_takes_branch_order_out_of_the_etag():
    assert GcRules(1, {"b": 2, "a": 1}).etag == GcRules(1, {"a": 1, "b": 2}).etag
    assert etag_of(None) == "absent"


@given(rules, rules)
def it_has_changes_exactly_when_etags_differ(before: GcRules, after: GcRules):
    assert bool(diff_rules(before, after)) == (before.etag != after.etag)
    assert (action_of(before, after) is Action.NONE) == (before.etag == after.etag)


@given(rules, rules)
def it_never_shortens_both_ways_unless_branches_pull_apart(before: GcRules, after: GcRules):
    longer = GcRules(before.default_retention_days + 1, {b: d + 1 for b, d in before.branches.items()})
    assert not shortens(before, longer)
    assert shortens(longer, before)
    assert shortens(None, after)
    assert not shortens(before, None)
    assert not shortens(before, before)


def it_sees_that_a_removed_branch_rule_can_shorten():
    assert shortens(GcRules(7, {"main": 28}), GcRules(7))
    assert not shortens(GcRules(28, {"dev": 7}), GcRules(28))
