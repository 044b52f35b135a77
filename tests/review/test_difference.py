"""Differences between stored and wanted policies and rules, and what never is one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.review.differences import (
    action_of_setting,
    diff_setting,
    is_reordering,
    item_name,
    item_values,
    pair_items,
    same_setting,
    what_changed,
    with_server_ids,
)
from lakeplan.values.desired import ObjectRule, Policy, setting_etag
from lakeplan.values.plan import SettingChange
from lakeplan.values.rules import Action

DAY = 86400
PATTERNS = st.lists(st.sampled_from(["a-*", "b-*", "c", "d?"]), min_size=1, max_size=3).map(tuple)
AGES = st.integers(1, 5).map(lambda days: days * DAY)
NAMELESS = st.builds(
    Policy, st.none(), PATTERNS, AGES, st.none() | AGES, description=st.sampled_from(["", "x"])
)


@st.composite
def policies(draw: st.DrawFn, *, named: bool) -> tuple[Policy, ...]:
    """Some with ids of the tree, others (unless ``named``) without; ids are unique."""
    drawn = draw(st.lists(NAMELESS, max_size=4))
    own = [named or draw(st.booleans()) for _ in drawn]
    pairs = enumerate(zip(drawn, own, strict=True))
    return tuple(replace(p, id=f"p{n}") if mine else p for n, (p, mine) in pairs)


def by_server(wanted: tuple[Policy, ...]) -> tuple[Policy, ...]:
    """What a server stores of a list: ids given where there were none."""
    return tuple(p if p.id else replace(p, id=f"pol-{n:08x}") for n, p in enumerate(wanted))


@given(policies(named=False))
def it_is_no_difference_that_the_server_gave_ids(wanted: tuple[Policy, ...]) -> None:
    stored = by_server(wanted)
    assert same_setting(stored, wanted)
    assert action_of_setting(stored, wanted) is Action.NONE
    assert diff_setting(stored, wanted) == ()
    assert with_server_ids(wanted, stored) == stored


@given(policies(named=False), policies(named=True))
def it_shows_a_difference_exactly_when_something_is_written(
    wanted: tuple[Policy, ...], stored: tuple[Policy, ...]
) -> None:
    assert bool(diff_setting(stored, wanted)) == action_of_setting(stored, wanted).writes
    assert action_of_setting(stored, wanted).writes == (not same_setting(stored, wanted))


@given(policies(named=False), policies(named=True))
def it_sends_every_policy_once_with_unique_ids(
    wanted: tuple[Policy, ...], stored: tuple[Policy, ...]
) -> None:
    sent = with_server_ids(wanted, stored)
    assert [replace(p, id=None) for p in sent] == [replace(p, id=None) for p in wanted]
    ids = [p.id for p in sent if p.id is not None]
    assert len(set(ids)) == len(ids)
    assert same_setting(by_server(sent), wanted)


@given(policies(named=False), st.randoms())
def it_calls_nothing_but_a_reordering_one(wanted: tuple[Policy, ...], random: object) -> None:
    stored = list(by_server(wanted))
    random.shuffle(stored)  # type: ignore[attr-defined]
    if same_setting(stored, wanted):
        return
    assert is_reordering(stored, wanted)
    (change,) = diff_setting(stored, wanted)
    assert change.item == "order"
    assert not is_reordering(stored[1:], wanted)


OLD = Policy("old", ("a-*", "b-*"), 7 * DAY, None, "old ones")


class DescribePolicies:
    def it_takes_patterns_in_any_order_for_the_same(self) -> None:
        assert same_setting([OLD], [replace(OLD, patterns=("b-*", "a-*", "a-*"))])
        assert setting_etag([OLD]) == setting_etag([replace(OLD, patterns=("b-*", "a-*", "a-*"))])

    def it_shows_only_what_differs(self) -> None:
        (change,) = diff_setting([OLD], [replace(OLD, max_age_seconds=10 * DAY + 43200)])
        assert (change.item, change.action) == ("old", Action.CHANGE)
        assert (change.before, change.after) == ({"max_age": "7d"}, {"max_age": "10d12h"})

    def it_keeps_the_servers_id_when_a_threshold_changes(self) -> None:
        stored, wanted = replace(OLD, id="pol-1"), replace(OLD, id=None, max_age_seconds=DAY)
        (change,) = diff_setting([stored], [wanted])
        assert change.action is Action.CHANGE
        assert "id" not in change.before
        assert with_server_ids([wanted], [stored])[0].id == "pol-1"

    def it_shows_an_id_that_the_tree_gives(self) -> None:
        (change,) = diff_setting([replace(OLD, id="pol-1")], [OLD])
        assert (change.before, change.after) == ({"id": "pol-1"}, {"id": "old"})

    def it_shows_a_value_that_an_item_gets_or_loses(self) -> None:
        both = replace(OLD, max_idle_seconds=DAY)
        (added,) = diff_setting([OLD], [both])
        assert (added.before, added.after) == ({}, {"max_idle_age": "1d"})
        (removed,) = diff_setting([both], [OLD])
        assert (removed.before, removed.after) == ({"max_idle_age": "1d"}, {})

    def it_shows_what_is_added_and_removed(self) -> None:
        new = Policy(None, ("x",), None, DAY)
        added, removed = diff_setting([OLD], [new])
        assert (added.item, added.action, added.before) == ("x", Action.ADD, {})
        assert added.after == {"patterns": "x", "max_idle_age": "1d"}
        assert (removed.item, removed.action, removed.after) == ("old", Action.CLEAR, {})

    @pytest.mark.parametrize("nothing", [None, ()])
    def it_takes_an_empty_list_for_nothing(self, nothing: object) -> None:
        assert same_setting(nothing, None)  # type: ignore[arg-type]
        assert action_of_setting(nothing, [OLD]) is Action.ADD  # type: ignore[arg-type]
        assert action_of_setting([OLD], nothing) is Action.CLEAR  # type: ignore[arg-type]
        assert setting_etag(nothing) == "absent"  # type: ignore[arg-type]


class DescribeObjectRules:
    RAW = ObjectRule("raw", ("main", "dev"), "raw/", 90)
    TMP = ObjectRule("tmp", ("main",), "", 5)

    def it_takes_rules_and_branches_in_any_order_for_the_same(self) -> None:
        other = replace(self.RAW, branches=("dev", "main"))
        assert same_setting([self.TMP, other], [self.RAW, self.TMP])
        assert setting_etag([self.TMP, other]) == setting_etag([self.RAW, self.TMP])

    def it_pairs_by_id_alone(self) -> None:
        (change,) = diff_setting([self.RAW], [replace(self.RAW, prefix="")])
        assert (change.before, change.after) == ({"prefix": "raw/"}, {"prefix": "everything"})
        assert len(diff_setting([self.RAW], [replace(self.RAW, id="other")])) == 2


def it_says_in_words_what_somebody_changed() -> None:
    stored = [replace(OLD, max_age_seconds=9 * DAY), Policy("new", ("n",), DAY)]
    assert what_changed([OLD], stored) == "'old' changed (max_age 7d to 9d); 'new' added"
    assert what_changed([OLD], None) == "'old' removed"
    assert what_changed(stored, stored[::-1]) == "the order"
    assert what_changed([], [Policy("order", ("n",), DAY)]) == "'order' added"
    assert what_changed(stored, stored) == "its ETag differs, but its content is the same"


P = Policy("p", ("a-*",), max_age_seconds=DAY, description="x")
Q = Policy("q", ("b-*",), max_idle_seconds=2 * DAY)
RULE = ObjectRule("raw", ("main", "dev", "dev"), "raw/", 30, "y")


class DescribeAReordering:
    @pytest.mark.parametrize(
        ("stored", "wanted", "only_order"),
        [
            ((P, Q), (Q, P), True),
            ((P, Q), (replace(Q, id=None), replace(P, id=None)), True),
            ((P, Q), (P, Q), False),
            ((P, Q), (Q,), False),
            ((P,), (Q, P), False),
            ((P, Q), (Q, replace(P, max_age_seconds=2 * DAY)), False),
            (None, (P,), False),
            ((P,), None, False),
            (None, None, False),
        ],
    )
    def it_has_the_same_policies(self, stored: object, wanted: object, only_order: bool) -> None:
        assert is_reordering(stored, wanted) is only_order  # type: ignore[arg-type]

    def it_is_one_change(self) -> None:
        names = {"order": "p | q"}, {"order": "q | p"}
        assert diff_setting((P, Q), (Q, P)) == (SettingChange("order", Action.CHANGE, *names),)
        named_by_patterns = diff_setting((P, Q), (replace(Q, id=None), P))
        assert named_by_patterns[0].after == {"order": "b-* | p"}


@pytest.mark.parametrize(
    ("stored", "wanted", "action"),
    [
        ((P,), (P,), Action.NONE),
        (None, (P,), Action.ADD),
        ((), (P,), Action.ADD),
        ((P,), (Q,), Action.CHANGE),
        ((P,), (), Action.CLEAR),
        ((P,), None, Action.CLEAR),
    ],
)
def it_says_what_is_written(stored: object, wanted: object, action: Action) -> None:
    assert action_of_setting(stored, wanted) is action  # type: ignore[arg-type]


def it_pairs_policies_by_id_then_by_all_they_say_then_by_their_patterns() -> None:
    other = replace(P, id=None, description="")
    older = replace(P, id=None, max_age_seconds=3 * DAY)
    idle = replace(P, id=None, max_idle_seconds=DAY)
    stored = (
        replace(other, id="s1"),
        replace(older, id="s2"),
        replace(idle, id="s3"),
        replace(P, id="s4", patterns=("c",)),
        Q,
    )
    newer = Policy(None, ("c", "c"), max_age_seconds=9 * DAY)
    wanted = (Q, idle, older, newer, other)
    pairs = pair_items(stored, wanted)
    assert pairs == [(Q, Q), (stored[2], idle), (stored[1], older), (stored[3], newer), (stored[0], other)]
    assert [item.id for item in with_server_ids(wanted, stored)] == ["q", "s3", "s2", "s4", "s1"]
    assert pair_items((P,), (Q, replace(P, id="n"))) == [(None, Q), (P, replace(P, id="n"))]


def it_sends_what_the_tree_says_but_for_ids_that_it_leaves_to_the_server() -> None:
    assert with_server_ids((replace(P, id="n"), RULE, replace(Q, id=None)), (P, RULE)) == (
        replace(P, id="n"),
        RULE,
        replace(Q, id=None),
    )
    assert with_server_ids((RULE,), (replace(RULE, prefix=""),)) == (RULE,)


def it_names_every_value_of_an_item() -> None:
    assert item_values(P) == {"id": "p", "patterns": "a-*", "max_age": "1d", "description": "x"}
    assert item_values(replace(Q, id=None, patterns=("b", "a", "b"))) == {
        "patterns": "a, b",
        "max_idle_age": "2d",
    }
    rule = {
        "id": "raw",
        "branches": "dev, main",
        "prefix": "raw/",
        "expire_after_days": "30",
        "description": "y",
    }
    assert item_values(RULE) == rule
    assert item_values(replace(RULE, prefix=""))["prefix"] == "everything"
    assert (item_values(None), item_name(None), item_name(P), item_name(RULE)) == ({}, "", "p", "raw")
    assert item_name(replace(P, id=None, patterns=("b", "a"))) == "b, a"
