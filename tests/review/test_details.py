"""Differences in words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.review.ceiling import explain_rules
from lakeplan.values.rules import GcRules

rules = st.builds(
    GcRules,
    st.integers(0, 5),
    st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 3), max_size=3),
)


def it_names_what_changed_appeared_and_went():
    before = GcRules(21, {"main": 28, "old": 1, "__dunder__": 3})
    after = GcRules(30, {"main": 28, "dev": 7, "__dunder__": 4})
    assert explain_rules(before, after) == (
        "branch __dunder__ 3 → 4; branch dev set to 7; branch old removed; default_retention_days 21 → 30"
    )


def it_says_when_rules_were_set_or_removed():
    assert explain_rules(None, GcRules(1)) == "no rules were set before"
    assert explain_rules(GcRules(1), None) == "the rules were removed"
    assert explain_rules(None, None) == ""


def it_names_five_and_counts_the_rest():
    before, after = GcRules(1), GcRules(1, {f"b{n}": n for n in range(8)})
    assert explain_rules(before, after).endswith("; and 3 more")


@given(rules, rules)
def it_has_something_to_say_exactly_when_rules_differ(before: GcRules, after: GcRules):
    assert bool(explain_rules(before, after)) == (before != after)
