"""Classes of drift of policies and object rules, item by item."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.plan.drift_compare import DriftClass, setting_drift, setting_released
from lakeplan.review.differences import ORDER, diff_setting, same_setting
from lakeplan.values.desired import ObjectRule, Policy, SettingKind, item_body, items_from_body

DAY = 86400
POLICIES, OBJECTS = SettingKind.BRANCH_LIFECYCLE, SettingKind.OBJECT_LIFECYCLE
OLD = Policy("old", ("keep",), 30 * DAY)
FEATURES = Policy(None, ("feature-*", "wip-*"), 7 * DAY, 3 * DAY, "quiet")
GIVEN = Policy("pol-1", ("wip-*", "feature-*"), 7 * DAY, 3 * DAY, "quiet")
"""``FEATURES`` as a server stores it: with an id of its own."""


def classes(wanted, stored, applied, *, kind=POLICIES, recorded=True):
    return [(i.drift.value, i.item) for i in setting_drift(kind, wanted, stored, applied, recorded=recorded)]


def it_is_none_where_all_three_agree_in_any_order_and_with_ids_of_the_server():
    assert classes((OLD, FEATURES), (GIVEN, OLD), (OLD, GIVEN)) == []


def it_calls_a_policy_that_somebody_changed_on_the_server_edited():
    edited = Policy("pol-1", ("feature-*", "wip-*"), 90 * DAY, 3 * DAY, "quiet")
    (found,) = setting_drift(POLICIES, (FEATURES,), (edited,), (GIVEN,), recorded=True)
    assert (found.drift, found.item) == (DriftClass.SERVER_EDITED, "feature-*, wip-*")
    ages = found.applied["max_age"], found.stored["max_age"], found.wanted["max_age"]
    assert ages == ("7d", "90d", "7d")


def it_calls_added_and_removed_ones_edited():
    assert classes((FEATURES,), (GIVEN, OLD), (GIVEN,)) == [("server-edited", "old")]
    assert classes((FEATURES,), None, (GIVEN,)) == [("server-edited", "feature-*, wip-*")]


def it_takes_a_policy_made_anew_under_another_id_of_the_server_for_the_same():
    again = Policy("pol-2", GIVEN.patterns, 7 * DAY, 3 * DAY, "quiet")
    assert classes((FEATURES,), (again,), (GIVEN,)) == []


def it_finds_no_drift_where_policies_only_exchanged_ids_of_the_server():
    wanted = (Policy(None, ("a-*",), DAY), Policy(None, ("b-*",), DAY))
    stored = (Policy("one", ("a-*",), DAY), Policy("two", ("b-*",), DAY))
    applied = (Policy("two", ("a-*",), DAY), Policy("one", ("b-*",), DAY))
    assert classes(wanted, stored, applied) == []


def it_calls_what_the_tree_changed_tree_ahead():
    longer = Policy("old", ("keep",), 60 * DAY)
    assert classes((longer,), (OLD,), (OLD,)) == [("tree-ahead", "old")]
    assert classes(None, (OLD,), (OLD,)) == [("tree-ahead", "old")]


def it_is_not_ahead_of_a_server_that_was_edited_to_what_the_tree_says():
    longer = Policy("old", ("keep",), 60 * DAY)
    assert classes((longer,), (longer,), (OLD,)) == [("server-edited", "old")]


def it_counts_everything_that_is_missing_as_ahead_without_a_record():
    assert classes((OLD, FEATURES), (GIVEN,), None, recorded=False) == [("tree-ahead", "old")]


def it_compares_object_rules_by_id():
    rule, other = ObjectRule("r", ("main",), "raw/", 90), ObjectRule("r", ("main",), "raw/", 30)
    assert classes((rule,), (other,), (rule,), kind=OBJECTS) == [("server-edited", "r")]
    assert classes((rule,), (rule,), (rule,), kind=OBJECTS) == []


def it_lists_what_is_left_of_a_list_that_the_tree_manages_no_more():
    (found,) = setting_released(POLICIES, (GIVEN,), (GIVEN, OLD))
    assert (found.drift, found.item, found.wanted) == (DriftClass.RELEASED, "pol-1", {})
    assert setting_released(POLICIES, None, (OLD,)) == ()


PATTERNS = st.sampled_from([("a-*",), ("b-*",), ("a-*", "b-*")])
ITEMS = st.lists(
    st.builds(Policy, st.sampled_from(["one", "two", "three"]), PATTERNS, st.sampled_from([DAY, 7 * DAY])),
    max_size=3,
    unique_by=lambda policy: policy.id,
).map(tuple)
WANTED = ITEMS | ITEMS.map(lambda items: tuple(Policy(None, p.patterns, p.max_age_seconds) for p in items))


@given(WANTED, ITEMS, ITEMS, st.booleans())
def it_lists_every_list_that_a_plan_would_write_but_for_its_order(wanted, stored, applied, recorded):
    found = setting_drift(POLICIES, wanted, stored, applied, recorded=recorded)
    if any(ORDER not in change.after for change in diff_setting(stored, wanted)):
        assert found
    if same_setting(stored, wanted) and (not recorded or same_setting(applied, wanted)):
        assert not found


@given(ITEMS)
def it_reads_back_what_an_apply_records(items):
    assert items_from_body(POLICIES, [item_body(item) for item in items]) == items
