"""What a change weakens for branches and commits to come, and on servers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeplan.review.strictness import changed_server, held_to_guard, weaker_later, weaker_on_server
from lakeplan.values.desired import (
    BranchRule,
    Cleared,
    DesiredRepository,
    GcDesired,
    GcSetting,
    ObjectRule,
    ObjectRulesDesired,
    PoliciesDesired,
    Policy,
    ServerConfig,
    Source,
)
from lakeplan.values.pins import Kept
from lakeplan.values.plan import ObjectRulesPlan, RepositoryPlan, SettingChange, SweepGuard, WeakenedSetting
from lakeplan.values.rules import Action, GcRules
from lakeplan.values.sweep import Hold

HERE, THERE = Source("a.yaml", 7, 3), Source("b.yaml", 9, 5)
GC, RULE = Source("gc.yaml", 1, 1), Source("rule.yaml", 2, 2)
DAY = 86_400
RELEASES = BranchRule("release-*", True, 90, RULE)
MAIN = BranchRule("main", False, 60, RULE)


def rules(*branches: BranchRule, default: int = 21) -> GcDesired:
    return GcDesired(default, branches, GC)


def later(base: GcSetting, head: GcSetting, *changed: str) -> list[tuple[str, str, str, str]]:
    old, new = (DesiredRepository("prod", "lake", "lake", gc, "5f", {}, {}) for gc in (base, head))
    found = [*weaker_later(old, new, changed, runs_policies=True)]
    assert {each.scope for each in found} <= {"prod/lake"}
    return [(each.path, each.before, each.after, each.where) for each in found]


class DescribeRulesOfBranchesToCome:
    PATH = "gc.branches[release-*]"

    def it_lists_a_pattern_with_fewer_days(self) -> None:
        weaker = replace(RELEASES, retention_days=89)
        listed = [(self.PATH, "90 days", "89 days", "rule.yaml:2:2")]
        assert later(rules(RELEASES), rules(weaker)) == listed
        assert later(rules(RELEASES), rules(weaker), "main", "dev") == listed
        assert later(rules(RELEASES), rules(RELEASES)) == []
        assert later(rules(weaker), rules(RELEASES)) == []

    def it_lists_a_new_pattern_that_takes_too_long_to_compare(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lakeplan.review.strictness._STEPS", 0)
        covered = BranchRule("release-slow-*", True, 7, RULE)
        found = later(rules(RELEASES), rules(RELEASES, covered))
        assert found == [("gc.branches[release-slow-*]", "21 days", "7 days", "rule.yaml:2:2")]

    def it_lists_no_pattern_of_which_the_plan_shows_a_branch(self) -> None:
        weaker = replace(RELEASES, retention_days=89)
        assert later(rules(RELEASES), rules(weaker), "main", "release-1") == []

    def it_lists_a_pattern_of_which_the_plan_shows_only_a_branch_with_another_rule(self) -> None:
        """As where the days of that branch rise."""
        weaker, exact = replace(RELEASES, retention_days=1), BranchRule("release-1", False, 30, RULE)
        base, head = rules(RELEASES, exact), rules(weaker, replace(exact, retention_days=60))
        assert [path for path, *_ in later(base, head, "release-1")] == [self.PATH]
        assert [path for path, *_ in later(rules(RELEASES), head, "release-1")] == [self.PATH]

    def it_lists_a_new_pattern_by_which_later_branches_have_fewer_days_than_the_default(self) -> None:
        new = BranchRule("rel*", True, 20, RULE)
        listed = [("gc.branches[rel*]", "21 days", "20 days", "rule.yaml:2:2")]
        assert later(rules(), rules(new)) == later(rules(RELEASES), rules(RELEASES, new)) == listed
        assert later(rules(), rules(new), "main", "other") == listed
        assert later(rules(), rules(new), "release-1") == [], "the plan shows it"
        assert later(rules(), rules(replace(new, retention_days=21))) == []
        inner = replace(new, name="release-2*")
        assert later(rules(RELEASES), rules(RELEASES, inner)) == [], "the larger number of days applies"

    def it_goes_by_the_default_without_the_rule(self) -> None:
        assert later(rules(RELEASES), rules()) == [(self.PATH, "90 days", "absent", "gc.yaml:1:1")]
        assert later(rules(RELEASES), rules(default=90)) == []
        assert later(rules(RELEASES), rules(default=89)) != []
        assert later(rules(RELEASES), None) == [(self.PATH, "90 days", "absent", "")]
        least = replace(RELEASES, retention_days=1)
        assert [path for path, *_ in later(rules(least), None)] == [self.PATH]

    def it_lists_nothing_where_all_rules_are_removed_or_there_were_none(self) -> None:
        assert later(rules(RELEASES), Cleared.CLEAR) == []
        assert later(None, rules(RELEASES)) == []
        assert later(Cleared.CLEAR, rules(RELEASES)) == []

    def it_lists_every_rule_and_takes_no_pattern_for_a_name(self) -> None:
        other = replace(RELEASES, name="dev-*")
        named = replace(RELEASES, name="main", is_pattern=True)
        found = later(rules(MAIN, RELEASES, other), rules(MAIN))
        assert [path for path, *_ in found] == [self.PATH, "gc.branches[dev-*]"]
        assert later(rules(MAIN), rules()) == []
        assert later(rules(named), rules(MAIN)) == [("gc.branches[main]", "90 days", "absent", "gc.yaml:1:1")]

    @pytest.mark.parametrize("name", ["commits", "daily", "weekly", "monthly"])
    def it_lists_fewer_newest_commits_of_any_kind(self, name: str) -> None:
        many = Kept("main", 1, 2, 3, 4)
        fewer = replace(many, **{name: 0})
        shown = "60 days, min_commits 1, daily 2, weekly 3, monthly 4"
        (found,) = later(rules(replace(MAIN, kept=many)), rules(replace(MAIN, kept=fewer)), "main")
        path, before, after, where = found
        assert (path, before, where) == ("gc.branches[main]", shown, "rule.yaml:2:2")
        left_out = {"commits": ", min_commits 1", "daily": ", daily 2", "weekly": ", weekly 3"}
        assert after == shown.replace(left_out.get(name, ", monthly 4"), "")
        assert later(rules(replace(MAIN, kept=fewer)), rules(replace(MAIN, kept=many))) == []

    def it_lists_newest_commits_that_no_rule_keeps_any_more(self) -> None:
        kept = replace(MAIN, kept=Kept("main", 0, 0, 0, 1))
        assert later(rules(kept), rules(MAIN)) == [
            ("gc.branches[main]", "60 days, monthly 1", "60 days", "rule.yaml:2:2")
        ]
        assert later(rules(kept), rules()) == [
            ("gc.branches[main]", "60 days, monthly 1", "absent", "gc.yaml:1:1")
        ]
        assert later(rules(MAIN), rules(kept)) == []

    def it_separates_thousands(self) -> None:
        ((_, before, after, _),) = later(
            rules(replace(RELEASES, retention_days=2_000)), rules(replace(RELEASES, retention_days=1_000))
        )
        assert (before, after) == ("2,000 days", "1,000 days")


def on_server(base: GcSetting, head: GcSetting, stored: GcRules | None) -> list[tuple[str, str, str, str]]:
    old, new = (DesiredRepository("prod", "lake", "lake", gc, "5f", {}, {}) for gc in (base, head))
    plan = RepositoryPlan("prod", "lake", "lake", "http://lake", "5f", Action.CHANGE, stored, stored)
    found = [*weaker_on_server(old, new, plan)]
    assert {each.scope for each in found} <= {"prod/lake"}
    return [(each.path, each.before, each.after, each.where) for each in found]


class DescribeRulesThatTheServerHasAlready:
    """A plan compares the tree with the server, so it calls none of these days shorter."""

    FEWER = rules(replace(MAIN, retention_days=6), RELEASES, default=5)
    MAIN_LINE = ("gc.branches[main]", "60 days", "6 days", "rule.yaml:2:2")
    DEFAULT_LINE = ("gc.default_retention_days", "21 days", "5 days", "gc.yaml:1:1")

    @pytest.mark.parametrize("edited", [GcRules(5, {"main": 6}), GcRules(1, {"main": 1}), GcRules(4, {})])
    def it_lists_each(self, edited: GcRules) -> None:
        assert on_server(rules(MAIN, RELEASES), self.FEWER, edited) == [self.DEFAULT_LINE, self.MAIN_LINE]

    def it_lists_none_that_the_plan_shows_as_shorter(self) -> None:
        base = rules(MAIN, RELEASES)
        assert on_server(base, self.FEWER, GcRules(21, {"main": 60})) == []
        assert on_server(base, self.FEWER, GcRules(21, {"main": 6})) == [self.MAIN_LINE]
        assert on_server(base, self.FEWER, GcRules(5, {"main": 60})) == [self.DEFAULT_LINE]
        assert on_server(base, self.FEWER, None) == []

    def it_lists_none_that_did_not_get_fewer(self) -> None:
        assert on_server(self.FEWER, rules(MAIN, RELEASES), GcRules(1, {})) == []
        assert (
            on_server(None, self.FEWER, GcRules(1, {})) == on_server(self.FEWER, None, GcRules(1, {})) == []
        )

    def it_goes_by_what_applies_without_an_exact_rule(self) -> None:
        exact = BranchRule("release-1", False, 7, RULE)
        line = ("gc.branches[release-1]", "90 days", "7 days", "rule.yaml:2:2")
        assert on_server(rules(RELEASES), rules(RELEASES, exact), GcRules(21, {"release-1": 7})) == [line]
        line = ("gc.branches[main]", "60 days", "21 days", "gc.yaml:1:1")
        assert on_server(rules(MAIN), rules(), GcRules(21, {})) == [line]


class DescribeObjectRulesThatTheServerHasAlready:
    OLD = ObjectRule("raw", ("main", "dev"), "raw/", 30)
    SHOWN = "a prefix of dev, main: 30 days"

    def listed(
        self,
        rule: ObjectRule | None,
        *changes: SettingChange,
        old: ObjectRule | None = OLD,
        planned: bool = True,
    ) -> object:
        before = ObjectRulesDesired((old,), THERE) if old else None
        after = ObjectRulesDesired((rule,), HERE) if rule else None
        plan = RepositoryPlan("prod", "lake", "lake", "http://lake", "5f", Action.NONE, None, None)
        rules = ObjectRulesPlan(Action.CHANGE if changes else Action.NONE, changes=changes)
        first = DesiredRepository("prod", "lake", "lake", None, "5f", {}, {})
        base, head = (replace(first, object_lifecycle=each) for each in (before, after))
        found = [*weaker_on_server(base, head, replace(plan, object_lifecycle=rules if planned else None))]
        assert {(each.scope, each.where) for each in found} <= {("prod/lake", "a.yaml:7:3")}
        return [(each.path, each.before, each.after) for each in found]

    def it_lists_one_that_expires_more_or_sooner(self) -> None:
        path = "object_lifecycle.rules[raw]"
        sooner = replace(self.OLD, expire_after_days=1)
        assert self.listed(sooner) == [(path, self.SHOWN, "a prefix of dev, main: 1 days")]
        assert self.listed(replace(self.OLD, prefix="")) == [(path, self.SHOWN, "dev, main: 30 days")]
        assert self.listed(self.OLD, old=None) == [(path, "absent", self.SHOWN)]
        assert self.listed(replace(self.OLD, branches=("main", "test"))) != []

    def it_lists_none_that_the_plan_shows_or_that_expires_no_more(self) -> None:
        sooner = replace(self.OLD, expire_after_days=1)
        assert self.listed(sooner, SettingChange("raw", Action.CHANGE, {}, {})) == []
        assert self.listed(sooner, SettingChange("other", Action.CHANGE, {}, {})) != []
        assert self.listed(replace(self.OLD, branches=("main",), prefix="raw/a", expire_after_days=31)) == []
        assert self.listed(self.OLD) == []
        assert self.listed(None) == self.listed(sooner, planned=False) == []


OLD = Policy("p1", ("tmp-*", "ci-*"), max_age_seconds=9 * DAY)


def policies(*several: Policy) -> PoliciesDesired:
    places = tuple(Source("policies.yaml", line, 1) for line in range(1, len(several) + 1))
    return PoliciesDesired(several, places, HERE)


def of_policies(
    base: PoliciesDesired | Cleared | None, head: PoliciesDesired | Cleared | None, *, runs: bool = True
) -> list[WeakenedSetting]:
    old, new = (
        DesiredRepository("prod", "lake", "lake", None, "5f", {}, {}, branch_lifecycle=setting)
        for setting in (base, head)
    )
    return [*weaker_later(old, new, (), runs_policies=runs)]


class DescribePolicies:
    def it_lists_one_that_deletes_sooner_if_lakeplan_runs_it(self) -> None:
        sooner = replace(OLD, max_age_seconds=8 * DAY)
        before, after = "tmp-*, ci-*: max_age 9d", "tmp-*, ci-*: max_age 8d"
        found = WeakenedSetting(
            "prod/lake", "branch_lifecycle.policies[p1]", before, after, "policies.yaml:1:1"
        )
        assert of_policies(policies(OLD), policies(sooner)) == [found]
        assert of_policies(policies(OLD), policies(sooner), runs=False) == []
        assert of_policies(policies(sooner), policies(OLD)) == []
        assert of_policies(policies(OLD), policies(OLD)) == []

    def it_lists_one_that_is_new_by_its_patterns(self) -> None:
        new = Policy(None, ("a-*", "b-*"), DAY, 2 * DAY)
        shown = "a-*, b-*: max_age 1d, max_idle_age 2d"
        path = "branch_lifecycle.policies[a-*, b-*]"
        for base in (None, Cleared.CLEAR, policies(), policies(OLD)):
            (found,) = of_policies(base, policies(new))
            assert (found.path, found.before, found.after) == (path, "absent", shown)
        assert of_policies(policies(OLD), policies()) == []
        assert of_policies(policies(OLD), Cleared.CLEAR) == []
        assert of_policies(policies(OLD), None) == []

    def it_lists_each_at_its_place(self) -> None:
        sooner = [replace(OLD, id=name, max_age_seconds=DAY) for name in ("p1", "p2", "p3")]
        found = of_policies(policies(OLD), policies(*sooner))
        assert [(each.path[-3:-1], each.where) for each in found] == [
            ("p1", "policies.yaml:1:1"),
            ("p2", "policies.yaml:2:1"),
            ("p3", "policies.yaml:3:1"),
        ]
        assert [each.before for each in found] == ["tmp-*, ci-*: max_age 9d", "absent", "absent"]

    def it_shows_every_one_of_the_same_patterns(self) -> None:
        plain = Policy(None, ("a-*",), 9 * DAY)
        (found,) = of_policies(
            policies(plain, replace(plain, max_age_seconds=8 * DAY)),
            policies(replace(plain, max_age_seconds=7 * DAY)),
        )
        assert found.before == "a-*: max_age 9d; a-*: max_age 8d"

    @pytest.mark.parametrize(
        ("change", "listed"),
        [
            ({"patterns": ("tmp-*",)}, False),
            ({"patterns": ("ci-*", "tmp-*")}, False),
            ({"patterns": ("tmp-*", "ci-*", "x-*")}, True),
            ({"max_age_seconds": 10 * DAY}, False),
            ({"max_idle_seconds": DAY}, False),
            ({"max_age_seconds": None, "max_idle_seconds": 99 * DAY}, True),
            ({"id": "p2"}, False),
            ({"description": "other words"}, False),
        ],
    )
    def it_compares_what_they_delete(self, change: dict[str, object], listed: bool) -> None:
        changed = replace(OLD, **change)  # type: ignore[arg-type]
        assert bool(of_policies(policies(OLD), policies(changed))) is listed

    def it_compares_both_ages(self) -> None:
        both = replace(OLD, max_idle_seconds=5 * DAY)
        assert of_policies(policies(both), policies(OLD))
        assert of_policies(policies(both), policies(replace(both, max_idle_seconds=4 * DAY)))
        assert not of_policies(policies(both), policies(replace(both, max_idle_seconds=6 * DAY)))
        one_of_two = policies(Policy("x", ("x-*",), DAY), OLD)
        assert not of_policies(one_of_two, policies(OLD)), "any of the base's may cover it"


def it_lists_what_changes_on_a_server() -> None:
    base = ServerConfig("prod", "http://lakefs", source=THERE)
    other = replace(base, name="lake", time_zone="Europe/Berlin", source=HERE)
    engine = replace(base, branch_lifecycle_engine="lakeplan", source=None)
    assert [*changed_server(base, other)] == [
        WeakenedSetting("tree", "servers.lake.time_zone", "UTC", "Europe/Berlin", "a.yaml:7:3")
    ]
    assert [*changed_server(base, engine)] == [
        WeakenedSetting("tree", "servers.prod.branch_lifecycle.engine", "none", "lakeplan", "")
    ]
    assert [*changed_server(base, replace(base, endpoint_url="http://other"))] == []


def it_keeps_the_holds_of_a_repository_and_of_its_guard() -> None:
    own, other = (Hold("prefix", name, None, "legal") for name in ("a/", "b/"))
    desired = DesiredRepository("prod", "lake", "lake", None, "5f", {}, {}, holds=(own,))
    guard = SweepGuard(desired.safety, (other,), desired.sweep)
    assert held_to_guard(desired, guard).holds == (own, other)
