from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.retention.patterns import expand
from lakeplan.values.desired import BranchRule, GcDesired, Source

AT = Source("a.yaml", 1, 1)


def exact(name: str, days: int) -> BranchRule:
    return BranchRule(name, False, days, AT)


def pattern(name: str, days: int) -> BranchRule:
    return BranchRule(name, True, days, AT)


def gc(*rules: BranchRule, default: int = 21) -> GcDesired:
    return GcDesired(default, rules, AT)


def it_gives_every_matching_branch_a_rule_of_its_own() -> None:
    found = expand(gc(pattern("release-*", 90)), ["main", "release-1", "release-2"])
    assert dict(found.rules.branches) == {"release-1": 90, "release-2": 90}
    assert found.rules.default_retention_days == 21


def it_gives_a_branch_of_several_patterns_the_largest_days() -> None:
    found = expand(gc(pattern("*", 5), pattern("r*", 90), pattern("re*", 30)), ["release"])
    assert dict(found.rules.branches) == {"release": 90}
    assert found.by_branch["release"].name == "r*"


def it_lets_an_exact_rule_count_and_warns_when_it_keeps_less() -> None:
    found = expand(gc(exact("release-1", 7), exact("release-2", 99), pattern("r*", 90)), ["release-1"])
    assert dict(found.rules.branches) == {"release-1": 7, "release-2": 99}
    assert [(low.exact.name, low.pattern.name) for low in found.lowered] == [("release-1", "r*")]
    assert "the rule of branch 'release-1' keeps 7 days, fewer than the 90" in found.warnings[0]


def it_does_not_warn_when_the_exact_rule_keeps_as_much() -> None:
    assert expand(gc(exact("a", 90), pattern("*", 90)), ["a"]).warnings == ()


def it_writes_a_rule_that_equals_the_default() -> None:
    found = expand(gc(pattern("a", 21), exact("b", 21)), ["a", "b"])
    assert dict(found.rules.branches) == {"a": 21, "b": 21}


def it_tells_patterns_and_rules_that_meet_no_branch() -> None:
    found = expand(gc(pattern("x-*", 5), exact("gone", 9)), ["main"])
    assert [r.name for r in found.unmatched] == ["x-*"]
    assert [r.name for r in found.unknown] == ["gone"]
    assert dict(found.rules.branches) == {"gone": 9}
    assert found.warnings == ("a.yaml:1:1: the pattern 'x-*' matches no branch",)


def it_minds_capitals() -> None:
    assert dict(expand(gc(pattern("R*", 5)), ["release", "Release"]).rules.branches) == {"Release": 5}


NAMES = st.text("ab", min_size=1, max_size=3)
RULES = st.lists(
    st.one_of(
        st.builds(exact, NAMES, st.integers(1, 50)),
        st.builds(pattern, st.text("ab*?", min_size=1, max_size=3), st.integers(1, 50)),
    ),
    max_size=6,
    unique_by=lambda rule: rule.key,
)


@given(RULES, st.lists(NAMES, max_size=8), st.randoms())
def it_keeps_every_branch_as_long_as_its_rules_say_in_any_order(
    rules: list[BranchRule], branches: list[str], random: object
) -> None:
    found = expand(gc(*rules), branches)
    own = {r.name: r.retention_days for r in rules if not r.is_pattern}
    for branch in branches:
        fitting = [r.retention_days for r in rules if r.is_pattern and fnmatchcase(branch, r.name)]
        wanted = own.get(branch, max(fitting, default=None))
        assert found.rules.branches.get(branch) == wanted
    assert set(found.rules.branches) <= {*branches, *own}
    shuffled = list(rules)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = expand(gc(*shuffled), reversed(branches))
    assert again.rules == found.rules
    assert again.by_branch == found.by_branch


@given(RULES, st.lists(NAMES, max_size=5), NAMES)
def it_changes_no_other_branch_when_one_appears(
    rules: list[BranchRule], branches: list[str], another: str
) -> None:
    before, after = expand(gc(*rules), branches), expand(gc(*rules), [*branches, another])
    for branch, days in before.rules.branches.items():
        assert after.rules.branches[branch] == days
