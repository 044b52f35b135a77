"""Classes of drift, value by value."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.plan.drift_compare import DriftClass, LastApplied, drift_of, released, unmanaged_new
from lakeplan.retention.patterns import expand
from lakeplan.review.differences import diff_rules
from lakeplan.values.desired import BranchRule, Cleared, DesiredRepository, GcDesired, Source
from lakeplan.values.rules import GcRules

AT = datetime(2026, 3, 1, tzinfo=timezone.utc)
HERE = Source("a.yaml", 1, 1)


def desired(default=21, exact=None, patterns=None, config="same", gc=...):
    rules = [BranchRule(n, False, d, HERE) for n, d in (exact or {}).items()]
    rules += [BranchRule(n, True, d, HERE) for n, d in (patterns or {}).items()]
    block = GcDesired(default, tuple(rules), HERE) if gc is ... else gc
    return DesiredRepository("prod", "a", "a", block, config, {}, {})


def last(rules, config="same"):
    return LastApplied(rules, config, "run", AT)


def classes(*arguments):
    return [(v.drift.value, v.path) for v in drift_of(*arguments)]


def it_finds_none_where_all_three_agree():
    rules = GcRules(21, {"main": 28})
    assert classes(desired(exact={"main": 28}), rules, ["main"], last(rules)) == []


def it_calls_a_value_that_differs_from_the_applied_one_server_edited():
    applied = GcRules(21, {"main": 28})
    found = classes(desired(exact={"main": 28}), GcRules(21, {"main": 5, "x": 1}), ["main"], last(applied))
    assert found == [("server-edited", "branches/main"), ("server-edited", "branches/x")]


def it_calls_removed_rules_server_edited():
    assert classes(desired(), None, [], last(GcRules(21))) == [("server-edited", "default_retention_days")]


def it_calls_what_the_tree_changed_tree_ahead():
    applied = GcRules(21)
    found = drift_of(desired(default=30, config="new"), applied, [], last(applied))
    assert [(v.drift, v.applied, v.stored, v.wanted) for v in found] == [(DriftClass.TREE_AHEAD, 21, 21, 30)]


def it_counts_everything_that_is_missing_as_ahead_without_a_record():
    found = classes(desired(exact={"main": 1}, patterns={"r-*": 9}), GcRules(21), ["r-1"], None)
    assert found == [("tree-ahead", "branches/main"), ("tree-ahead", "branches/r-1")]


def it_tells_both_edits_apart():
    found = classes(desired(default=30, config="new"), GcRules(21, {"x": 1}), ["x"], last(GcRules(21)))
    assert found == [("server-edited", "branches/x"), ("tree-ahead", "default_retention_days")]


def it_is_not_ahead_of_a_server_that_was_edited_to_what_the_tree_says():
    found = classes(desired(default=30, config="new"), GcRules(30), [], last(GcRules(21)))
    assert found == [("server-edited", "default_retention_days")]


class DescribeStalePatterns:
    tree = staticmethod(lambda config="same": desired(patterns={"release-*": 90}, config=config))

    def it_names_branches_that_appeared(self):
        rules = GcRules(21, {"release-1": 90})
        found = classes(self.tree(), rules, ["release-1", "release-2"], last(rules))
        assert found == [("patterns-stale", "branches/release-2")]

    def it_names_branches_that_went(self):
        rules = GcRules(21, {"release-1": 90})
        assert classes(self.tree(), rules, [], last(rules)) == [("patterns-stale", "branches/release-1")]

    def it_leaves_a_new_branch_to_the_tree_when_that_changed_too(self):
        found = classes(self.tree("new"), GcRules(21), ["release-2"], last(GcRules(21)))
        assert found == [("tree-ahead", "branches/release-2")]

    def it_knows_a_pattern_whose_days_changed(self):
        rules = GcRules(21, {"release-1": 30})
        found = classes(self.tree("new"), rules, ["release-1"], last(rules))
        assert found == [("tree-ahead", "branches/release-1")]

    def it_knows_an_exact_rule_that_was_taken_out(self):
        rules = GcRules(21, {"main": 30})
        assert classes(self.tree("new"), rules, [], last(rules)) == [("tree-ahead", "branches/main")]


def it_knows_a_clear_that_was_not_applied_and_one_that_was_undone():
    clear = desired(gc=Cleared.CLEAR)
    assert classes(clear, GcRules(3), [], last(GcRules(3))) == [("tree-ahead", "default_retention_days")]
    assert classes(clear, GcRules(3), [], last(None)) == [("server-edited", "default_retention_days")]


def it_lists_what_a_released_repository_still_has():
    found = released(GcRules(21, {"main": 5}), last(GcRules(20)))
    assert [(v.path, v.applied, v.stored, v.wanted) for v in found] == [
        ("default_retention_days", 20, 21, None),
        ("branches/main", None, 5, None),
    ]
    assert released(None, last(GcRules(20))) == ()


@pytest.mark.parametrize(("applied", "new"), [(None, ("late", "odd", "old")), (AT, ("late", "odd"))])
def it_calls_repositories_new_that_are_younger_than_the_last_apply(applied, new):
    created = {
        "old": AT - timedelta(days=1),
        "late": AT + timedelta(days=1),
        "odd": datetime.fromtimestamp(0, tz=timezone.utc),
    }
    assert unmanaged_new(created, applied) == new


NAMES = st.sampled_from(["main", "dev", "r-1", "r-2", "x"])
RULES = st.none() | st.builds(
    GcRules, st.integers(-1, 3), st.dictionaries(NAMES, st.integers(-1, 3), max_size=4)
)
DESIRED = st.builds(
    desired,
    st.integers(1, 3),
    st.dictionaries(NAMES, st.integers(1, 3), max_size=2),
    st.dictionaries(st.sampled_from(["r-*", "*", "?ain"]), st.integers(1, 3), max_size=2),
    st.sampled_from(["same", "new"]),
)


@given(DESIRED, RULES, st.sets(NAMES), st.none() | st.builds(last, RULES))
def it_lists_every_value_a_plan_would_write_and_every_one_edited_by_hand(tree, stored, branches, record):
    found = drift_of(tree, stored, branches, record)
    paths = {v.path for v in found}
    assert paths >= {c.path for c in diff_rules(stored, expand(tree.gc, branches).rules)}
    edited = {c.path for c in diff_rules(record.rules, stored)} if record else set()
    assert {v.path for v in found if v.drift is DriftClass.SERVER_EDITED} == edited


@given(DESIRED, st.sets(NAMES), st.booleans())
def it_is_silent_right_after_an_apply(tree, branches, recorded):
    rules = expand(tree.gc, branches).rules
    shuffled = GcRules(rules.default_retention_days, dict(reversed(rules.branches.items())))
    record = replace(last(rules), config_hash=tree.config_hash) if recorded else None
    assert drift_of(tree, shuffled, branches, record) == ()
