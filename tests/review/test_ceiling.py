"""The plan file as a ceiling."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.review import ceiling
from lakeplan.review.differences import what_changed
from lakeplan.values.desired import Policy, Safety
from lakeplan.values.pins import PinRow, PinsPlan, PinState
from lakeplan.values.plan import (
    Bit,
    BranchFate,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    Plan,
    PoliciesPlan,
    RepositoryPlan,
    SettingChange,
    Shown,
    TagLoss,
)
from lakeplan.values.rules import Action, GcRules
from lakeplan.values.shown_records import commit_digests, object_digests, packed

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def impact(
    objects: int = 100, size: int = 1000, risk: int = 0, week: int | None = None, **more: object
) -> Impact:
    def at(count: int) -> HorizonImpact:
        return HorizonImpact(NOW, 5, 4, 1, 0, 0, count, size, 1000, 10**6, risk, 0)

    horizons = {Horizon.NOW.value: at(objects), Horizon.WEEK.value: at(objects if week is None else week)}
    return replace(Impact(ImpactStatus.SIMULATED, horizons=horizons), **more)  # type: ignore[arg-type]


def repository(**changes: object) -> RepositoryPlan:
    plan = RepositoryPlan(
        server="prod",
        name="analytics",
        entry="analytics",
        endpoint_url="http://127.0.0.1:8000",
        config_hash="hash",
        action=Action.CHANGE,
        before=GcRules(30),
        after=GcRules(7),
        impact=impact(),
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


class DescribeStaleness:
    def it_accepts_what_is_as_it_was(self):
        assert ceiling.stale_reasons(repository(), repository(), check_etag=True) == []

    @pytest.mark.parametrize(
        "live",
        [
            None,
            repository(config_hash="other"),
            repository(after=GcRules(6)),
            repository(before=GcRules(29)),
            repository(endpoint_url="http://127.0.0.1:9000"),
            repository(creation_date=99),
            repository(storage_namespace="s3://other/place"),
        ],
    )
    def it_refuses(self, live):
        assert ceiling.stale_reasons(repository(), live, check_etag=True)

    def it_writes_no_rules_that_the_tree_does_not_manage(self):
        """An edited plan: the tree manages policies alone, and rules stand there to be written."""
        evil = repository(managed=False, before=GcRules(30), after=GcRules(1))
        kept = repository(managed=False, before=GcRules(30), after=GcRules(30), action=Action.NONE)
        for live in (kept, repository(after=GcRules(7))):
            assert "rules that would be written" in ceiling.stale_reasons(evil, live, check_etag=False)[0]
        assert ceiling.stale_reasons(kept, kept, check_etag=True) == []

    def it_misses_branches_that_were_taken_off_the_list(self):
        """Patterns are expanded over the branches of the plan alone, so what is not there loses its days."""
        before = GcRules(30, {"release-1": 365})
        live = repository(before=before, unexpanded={"release-1": 365, "release-2": 365})
        (found,) = ceiling.stale_reasons(repository(before=before), live, check_etag=True)
        assert found.endswith("longer retention from patterns: release-1")

    def it_skips_only_the_etag_when_forced(self):
        assert ceiling.stale_reasons(repository(), repository(before=None), check_etag=False) == []
        assert ceiling.stale_reasons(repository(), repository(after=GcRules(6)), check_etag=False)

    def it_takes_the_reviewed_rules_on_the_server_for_done(self):
        live = repository(before=GcRules(7), action=Action.NONE)
        assert ceiling.stale_reasons(repository(), live, check_etag=True) == []
        assert ceiling.is_done(repository(), live)
        assert not ceiling.is_done(repository(), repository())

    def it_is_not_done_while_a_pin_is_missing(self):
        live = repository(before=GcRules(7), action=Action.NONE)
        for state, done in ((PinState.KEPT, True), (PinState.MISSING, False), (PinState.RETIRED, False)):
            pins = PinsPlan(NOW, (PinRow("c" * 64, "lakeplan-pin-cccccccccccc", state),))
            assert ceiling.is_done(repository(), replace(live, pins=pins)) is done

    def it_tells_five_differences_and_counts_the_rest(self):
        def branches(count: int) -> GcRules:
            return GcRules(30, {f"b{number}": 7 for number in range(count)})

        assert "more" not in ceiling.explain_rules(GcRules(30), branches(5))
        assert ceiling.explain_rules(GcRules(30), branches(7)).endswith("; and 2 more")


class DescribeWhatIsSaidOfAStalePlan:
    def said(self, reviewed: RepositoryPlan, live: RepositoryPlan | None, *, check_etag: bool = True):
        return ceiling.stale_reasons(reviewed, live, check_etag=check_etag)

    def it_stops_at_another_repository(self):
        assert self.said(repository(), None) == ["the checked-out tree no longer has an entry for it"]
        other = repository(endpoint_url="http://other/", config_hash="x")
        assert self.said(repository(), other) == [
            "the server's endpoint_url is http://other/ in the tree, but http://127.0.0.1:8000 in the plan"
        ]
        assert self.said(repository(), repository(creation_date=9, config_hash="x")) == [
            "it is a different repository with the same name, created after the plan"
        ]

    def it_takes_no_slash_at_the_end_for_another_server(self):
        slash = repository(endpoint_url="http://127.0.0.1:8000/")
        assert self.said(repository(), slash) == []
        assert self.said(slash, repository()) == []
        below = repository(endpoint_url="http://127.0.0.1:8000/X")
        assert self.said(repository(), below)
        assert self.said(below, repository())

    def it_names_everything_that_differs(self):
        live = repository(
            config_hash="x",
            after=GcRules(6),
            before=GcRules(31, {"a": 90}),
            unexpanded=dict.fromkeys(("a", "f", "e", "d", "c", "b"), 90),
        )
        first, second, third, fourth = self.said(repository(), live)
        assert first == "its configuration in the tree differs from the reviewed one"
        assert second == "the rules that would be written differ from the reviewed ones"
        assert (
            third
            == "the plan omits branches that have rules on the server and would get longer retention from"
            " patterns: a"
        )
        assert fourth.startswith("the rules on the server have changed: their ETag is ")
        assert live.before_etag[:12] in fourth
        assert repository().before_etag[:12] in fourth

    def it_misses_no_branch_without_rules_on_either_side_or_with_as_many_days(self):
        before, more = GcRules(30, {"a": 90}), {"a": 90}
        assert self.said(repository(before=before), repository(before=before, unexpanded=more))
        same = repository(before=before, after=GcRules(90))
        assert self.said(same, replace(same, unexpanded=more)) == []
        listed = repository(before=before, after=GcRules(7, {"a": 90}))
        assert self.said(listed, replace(listed, unexpanded=more)) == []
        clear = repository(before=before, after=None, action=Action.CLEAR)
        assert self.said(clear, replace(clear, unexpanded=more)) == []
        new = repository(before=None)
        assert self.said(new, replace(new, unexpanded=more)) == []

    def it_names_at_most_five_branches_in_order(self):
        names = "gfedcba"
        before = GcRules(30, dict.fromkeys(names, 90))
        live = repository(before=before, unexpanded=dict.fromkeys(names, 90))
        (found,) = self.said(repository(before=before), live)
        assert (
            found
            == "the plan omits branches that have rules on the server and would get longer retention from"
            " patterns: a, b, c, d, e"
        )

    def it_says_so_when_the_tree_begins_or_ends_to_manage_rules(self):
        unmanaged = repository(managed=False, action=Action.NONE)
        words = ["the rules that would be written differ from the reviewed ones"]
        assert self.said(unmanaged, repository()) == words
        assert self.said(repository(), unmanaged)[0] == words[0]
        elsewhere = replace(unmanaged, before=GcRules(1), after=GcRules(1))
        assert self.said(unmanaged, elsewhere) == [], "rules that are not managed may change"

    def it_says_so_when_rules_would_be_written_where_none_were(self):
        kept = repository(action=Action.NONE, after=GcRules(30))
        words = "the rules that would be written differ from the reviewed ones"
        assert words in self.said(kept, repository(after=GcRules(7)))


WEEKLY = Policy("p", ("f-*",), max_age_seconds=7 * 86_400)
DAILY = replace(WEEKLY, max_age_seconds=86_400)
YEARLY = replace(WEEKLY, max_age_seconds=365 * 86_400)


def with_policies(before: Policy | None = WEEKLY, after: Policy = DAILY, etag: str = "e") -> RepositoryPlan:
    """A plan that writes branch lifecycle policies, and no rules."""
    policies = PoliciesPlan(
        Action.CHANGE, server_etag=etag, before=None if before is None else (before,), after=(after,)
    )
    return repository(managed=False, action=Action.NONE, branch_lifecycle=policies)


class DescribeStalePolicies:
    def said(self, live: RepositoryPlan, *, check_etag: bool = True) -> list[str]:
        return ceiling.stale_reasons(with_policies(), live, check_etag=check_etag)

    def it_accepts_what_is_as_it_was_or_was_written_already(self):
        assert self.said(with_policies()) == []
        assert self.said(with_policies(before=DAILY, etag="after")) == []

    def it_names_what_else_differs_too(self):
        live = replace(with_policies(after=YEARLY), config_hash="x")
        assert [reason.split(" ")[1] for reason in self.said(live)] == ["configuration", "branch"]

    def it_refuses_what_is_not_managed_any_more(self):
        assert self.said(repository(managed=False, action=Action.NONE)) == [
            "the tree no longer manages its branch lifecycle policies on the server"
        ]

    def it_refuses_other_policies_than_the_reviewed_whether_or_not_it_is_forced(self):
        words = ["the branch lifecycle policies that would be written differ from the reviewed ones"]
        for check_etag in (True, False):
            assert self.said(with_policies(after=YEARLY), check_etag=check_etag) == words

    @pytest.mark.parametrize(("before", "etag"), [(YEARLY, "e"), (WEEKLY, "other"), (YEARLY, "other")])
    def it_refuses_a_change_on_the_server_unless_it_is_forced(self, before, etag):
        live = with_policies(before=before, etag=etag)
        (found,) = self.said(live)
        assert found.startswith("the branch lifecycle policies on the server have changed: ")
        changed = what_changed((WEEKLY,), (before,))
        assert found.endswith(f": {changed}")
        assert self.said(live, check_etag=False) == []

    def it_is_done_when_the_server_has_the_reviewed_policies(self):
        reviewed = with_policies()
        assert ceiling.is_done(reviewed, with_policies(before=DAILY))
        assert not ceiling.is_done(reviewed, with_policies())
        assert not ceiling.is_done(reviewed, repository(managed=False, action=Action.NONE))
        both = repository(branch_lifecycle=reviewed.branch_lifecycle)
        done = repository(before=GcRules(7), branch_lifecycle=with_policies(before=DAILY).branch_lifecycle)
        assert ceiling.is_done(both, done)
        assert not ceiling.is_done(both, replace(done, before=GcRules(30)))
        assert not ceiling.is_done(both, replace(done, branch_lifecycle=reviewed.branch_lifecycle))


class DescribeGrowth:
    def grows(self, reviewed: Impact, live: Impact, age: timedelta = HOUR) -> list[str]:
        return ceiling.growth(
            repository(impact=reviewed), repository(impact=live), Safety(), age=age, now=NOW + age
        )

    def it_lets_the_tolerance_pass_and_no_more(self):
        assert self.grows(impact(100), impact(110)) == []
        assert self.grows(impact(100), impact(111))
        assert self.grows(impact(size=1000), impact(size=1101))

    def it_says_by_how_much(self):
        assert self.grows(impact(1000, 50), impact(1200, 60, risk=3)) == [
            "1,200 objects would expire, but the reviewed plan shows 1,000",
            "60 bytes would expire, but the reviewed plan shows 50",
            "3 objects would be at risk, but the reviewed plan shows 0",
        ]

    def it_takes_the_tolerance_that_the_tree_sets(self):
        pair = (repository(impact=impact(100, 0)), repository(impact=impact(150, 0)))
        for percent, fine in ((50.0, True), (49.0, False), (0.0, False)):
            safety = Safety(impact_tolerance_percent=percent)
            assert (ceiling.growth(*pair, safety, age=HOUR, now=NOW + HOUR) == []) is fine

    def it_holds_a_plan_of_exactly_a_day_against_that_day(self):
        assert self.grows(impact(100, week=200), impact(200), age=timedelta(days=1))
        assert not self.grows(impact(100, week=200), impact(200), age=timedelta(days=1, seconds=1))

    def it_has_nothing_to_compare_without_figures_of_now(self):
        assert self.grows(impact(), Impact(ImpactStatus.SIMULATED)) == []
        assert self.grows(Impact(ImpactStatus.SIMULATED), impact(1, 0)) == [
            "1 object would expire, but the reviewed plan shows 0"
        ]

    def it_takes_a_figure_that_was_not_measured_for_none(self):
        unread = HorizonImpact(NOW, 5, 4, 1, 0, 0)
        live = Impact(ImpactStatus.SIMULATED, horizons={Horizon.NOW.value: unread})
        assert self.grows(impact(), live) == []
        assert len(self.grows(live, impact(2, 2, risk=2))) == 3

    def it_has_no_tolerance_above_nothing(self):
        assert self.grows(impact(0, 0), impact(1, 0))

    def it_lets_no_object_at_risk_be_added(self):
        assert self.grows(impact(risk=5), impact(risk=6))
        assert self.grows(impact(risk=5), impact(risk=5)) == []

    def it_names_tags_that_were_not_reviewed(self):
        live = impact(tags=(TagLoss("v2", "c", 1, 1),))
        assert "v2" in self.grows(impact(), live)[0]

    def it_takes_a_tag_on_another_commit_for_a_new_one(self):
        reviewed = impact(tags=(TagLoss("v2", "c", 1, 1),))
        assert self.grows(reviewed, impact(tags=(TagLoss("v2", "c", 1, 1),))) == []
        assert "v2" in self.grows(reviewed, impact(tags=(TagLoss("v2", "d", 1, 1),)))[0]
        several = tuple(TagLoss(name, "c", 1, 1) for name in ("v3", "v2", "v1"))
        assert self.grows(reviewed, impact(tags=several)) == [
            "tags that were not reviewed would lose data: v1, v3"
        ]

    def it_holds_the_commits_and_tags_of_an_unknown_impact(self):
        at = HorizonImpact(NOW, 50, 40, 10, 0, 0)
        reviewed = Impact(ImpactStatus.UNKNOWN, horizons={Horizon.NOW.value: at})
        more = replace(reviewed, horizons={Horizon.NOW.value: replace(at, commits_expire=12)})
        assert self.grows(reviewed, reviewed) == []
        assert "12 commits" in self.grows(reviewed, more)[0]
        assert "v2" in self.grows(reviewed, replace(reviewed, tags=(TagLoss("v2", "c", None, None),)))[0]
        assert self.grows(Impact(ImpactStatus.UNKNOWN, reason="no graph"), more) == []
        assert self.grows(reviewed, Impact(ImpactStatus.UNKNOWN, reason="no graph")) == []
        eleven = replace(reviewed, horizons={Horizon.NOW.value: replace(at, commits_expire=11)})
        assert self.grows(reviewed, eleven) == [], "within the tolerance"
        assert self.grows(reviewed, more) == ["12 commits would expire, but the reviewed plan shows 10"]

    def it_holds_an_older_plan_against_the_week_it_showed(self):
        reviewed = impact(100, week=200)
        assert self.grows(reviewed, impact(200), age=HOUR)
        assert self.grows(reviewed, impact(200), age=timedelta(days=2)) == []
        assert self.grows(reviewed, impact(221), age=timedelta(days=2))

    def it_refuses_what_became_unknown(self):
        assert self.grows(impact(), Impact(ImpactStatus.UNKNOWN, reason="range is damaged")) == [
            "it is no longer known which objects would expire: range is damaged"
        ]

    def it_trusts_no_digest(self):
        assert self.grows(impact(1, commits_digest="d"), impact(999, commits_digest="d"))

    def it_takes_no_others_for_the_reviewed_objects(self):
        """Six were reviewed and six others would go."""
        six = named({Bit.NOW: "abcdef"})
        assert self.grows(impact(6, shown=six), impact(6, shown=six)) == []
        (found,) = self.grows(impact(6, shown=six), impact(6, shown=named({Bit.NOW: "ghijkl"})))
        assert found == "6 objects that were not reviewed would expire (the plan lists 6 objects)"
        assert self.grows(impact(6, shown=six), impact(6, shown=named({Bit.NOW: "abcdeX"})))

    def it_takes_no_count_for_a_set_that_the_live_plan_does_not_have(self):
        reviewed = impact(6, shown=named({Bit.NOW: "abcdef"}))
        (found,) = self.grows(reviewed, impact(6))
        assert found == "too many objects would expire now to compare each one with the plan"
        assert self.grows(reviewed, impact(0)) == []

    def it_lets_the_tolerance_of_others_pass(self):
        ten = named({Bit.NOW: "abcdefghij"})
        assert self.grows(impact(10, shown=ten), impact(10, shown=named({Bit.NOW: "abcdefghiX"}))) == []
        assert self.grows(impact(10, shown=ten), impact(10, shown=named({Bit.NOW: "abcdefghXY"})))

    def it_counts_what_was_shown_for_the_week_only_when_the_plan_is_older_than_a_day(self):
        reviewed = impact(2, week=4, shown=named({Bit.NOW: "ab", Bit.WEEK: "abcd"}))
        live = impact(2, shown=named({Bit.NOW: "cd"}))
        assert self.grows(reviewed, live, age=HOUR)
        assert self.grows(reviewed, live, age=timedelta(days=2)) == []
        assert self.grows(reviewed, live, age=timedelta(days=1))
        apart = impact(2, week=4, shown=named({Bit.NOW: "cd", Bit.WEEK: "ab"}))
        assert self.grows(apart, live, age=timedelta(days=2)) == []
        backlog = impact(2, week=4, shown=named({Bit.BACKLOG: "cd"}))
        assert self.grows(backlog, live, age=timedelta(days=2)), "the backlog is no part of the change"

    def it_refuses_a_plan_that_does_not_name_what_it_counts(self):
        live = impact(6, shown=named({Bit.NOW: "abcdef"}))
        beside = Shown(10_000, "0" * 64)
        for reviewed in (impact(6), impact(6, shown=beside)):
            assert self.grows(reviewed, live) == [
                "the plan does not list the objects that expire, or its file PLAN.objects is missing"
            ]
        assert self.grows(impact(6), impact(6, shown=beside)) == [], "nobody counted them now"
        assert self.grows(impact(6), impact(6, shown=named({Bit.WEEK: "ab"}))) == [], "none expires now"

    def it_takes_no_other_commits_for_those_of_an_unknown_impact(self):
        at = {Horizon.NOW.value: HorizonImpact(NOW, 50, 40, 2, 0, 0)}
        reviewed, live = (
            Impact(ImpactStatus.UNKNOWN, horizons=at, shown=Shown.of(packed([(commit_digests("k", ids), 8)])))
            for ids in ("ab", "cd")
        )
        assert self.grows(reviewed, reviewed) == []
        assert self.grows(reviewed, live) == [
            "2 commits that were not reviewed would expire (the plan lists 2 commits)"
        ]

    def it_takes_no_other_branches_for_the_reviewed_ones(self):
        def policies(*names: str) -> PoliciesPlan:
            fates = tuple(BranchFate(n, "c", NOW, None, "p", NOW, None) for n in names)
            return PoliciesPlan(Action.CHANGE, fates=fates, deletions={"now": len(names)})

        def grows(reviewed: PoliciesPlan, live: PoliciesPlan) -> list[str]:
            pair = (repository(branch_lifecycle=p) for p in (reviewed, live))
            return ceiling.growth(*pair, Safety(), age=HOUR, now=NOW + HOUR)

        assert grows(policies("a", "b"), policies("b", "a")) == []
        assert grows(policies("a", "b"), policies("d", "c")) == [
            "branches that were not reviewed would be deleted: c, d"
        ]
        seven = policies(*"gfedcba")
        assert grows(policies(*"ABCDEFG"), seven) == [
            "branches that were not reviewed would be deleted: a, b, c, d, e"
        ]
        ten = policies(*"abcdefghij")
        assert grows(ten, policies(*"abcdefghiX")) == [], "one in ten is within the tolerance"
        assert grows(ten, policies(*"abcdefghXY")) != []

    def it_counts_branches_beyond_the_reviewed_and_the_tolerance(self):
        def policies(now: int, week: int | None = None) -> PoliciesPlan:
            deletions = {Horizon.NOW.value: now, Horizon.WEEK.value: now if week is None else week}
            return PoliciesPlan(Action.CHANGE, deletions=deletions)

        def grows(reviewed: PoliciesPlan | None, live: PoliciesPlan | None, age: timedelta = HOUR):
            pair = (repository(branch_lifecycle=p) for p in (reviewed, live))
            return ceiling.growth(*pair, Safety(), age=age, now=NOW + age)

        assert grows(policies(10), policies(11)) == []
        assert grows(policies(1000), policies(1101)) == [
            "1,101 branches would be deleted, but the reviewed plan shows 1,000"
        ]
        assert grows(None, policies(1)) == ["1 branch would be deleted, but the reviewed plan shows 0"]
        assert grows(policies(1), None) == []
        assert grows(None, policies(0)) == []
        assert grows(PoliciesPlan(Action.CHANGE), PoliciesPlan(Action.CHANGE)) == []
        day = timedelta(days=1)
        assert grows(policies(1, week=5), policies(5), day) != []
        assert grows(policies(1, week=5), policies(5), 2 * day) == []

    def it_knows_branches_that_the_plan_showed_for_the_week_once_it_is_older_than_a_day(self):
        """One of a later creation date is another branch of the same name."""
        day = timedelta(days=1)

        def fate(name: str, goes_in: timedelta, created: datetime = NOW) -> BranchFate:
            return BranchFate(name, "c", created, None, "p", NOW + goes_in, None)

        def grows(reviewed: BranchFate, live: BranchFate, age: timedelta) -> list[str]:
            counts = {"now": 1, Horizon.WEEK.value: 1}
            pair = (
                repository(branch_lifecycle=PoliciesPlan(Action.CHANGE, fates=(f,), deletions=counts))
                for f in (reviewed, live)
            )
            return ceiling.growth(*pair, Safety(), age=age, now=NOW + age)

        soon, gone = fate("a", 7 * day), fate("a", timedelta())
        assert grows(soon, gone, 2 * day) == []
        assert grows(soon, gone, day) != []
        assert grows(fate("a", 7 * day + HOUR), gone, 2 * day) != []
        assert grows(gone, fate("a", timedelta(), NOW + HOUR), HOUR) != []
        assert grows(fate("b", timedelta()), fate("a", 2 * HOUR), HOUR) == [], "it does not go yet"


def named(objects: dict[Bit, str]) -> Shown:
    """Objects of one letter, by why they expire."""
    return Shown.of(
        packed([(object_digests("prod/a", letters), int(bit)) for bit, letters in objects.items()])
    )


def it_tells_a_plan_that_is_too_old():
    plan = Plan(NOW, "0", "tree", None, ())
    assert ceiling.too_old(plan, Safety(), NOW + timedelta(days=7)) is None
    assert ceiling.too_old(plan, Safety(), NOW + timedelta(days=7, seconds=1)) == (
        "the plan is 7d1s old, but max_plan_age is 7d"
    )
    half = Safety(max_plan_age_seconds=43_200)
    assert ceiling.too_old(plan, half, NOW + timedelta(hours=13)) == (
        "the plan is 13h old, but max_plan_age is 12h"
    )
    assert ceiling.too_old(plan, half, NOW + timedelta(hours=12, microseconds=1)) == (
        "the plan is 12h1s old, but max_plan_age is 12h"
    )


def it_tells_a_plan_of_a_moment_to_come():
    plan = Plan(NOW, "0", "tree", None, ())
    assert ceiling.too_old(plan, Safety(), NOW - timedelta(hours=1)) is None
    assert ceiling.too_old(plan, Safety(), NOW - timedelta(hours=1, seconds=1)) is not None
    assert "for a time in the future" in (ceiling.too_old(plan, Safety(), NOW - timedelta(days=1)) or "")


def taken_back(before: GcRules | None, then: GcRules | None, **more: object) -> list[str]:
    """What a plan that was made again would take back, of the rules that are stored now."""
    reviewed = repository(before=then, **more)
    live = repository(before=before, **more)
    age = timedelta(hours=1)
    found = ceiling.outside(reviewed, live, age=age, now=NOW)
    return [
        text.partition("undo that: ")[2]
        for text in found
        if "retention was lengthened after the plan" in text
    ]


class DescribeWhatSomebodyLetTheServerKeep:
    @pytest.mark.parametrize(
        ("then", "now", "after", "found"),
        [
            (GcRules(30), GcRules(365), GcRules(7), ["default_retention_days 365"]),
            (GcRules(30), None, GcRules(7), ["the GC rules were removed"]),
            (GcRules(30), GcRules(30, {"main": 365}), GcRules(7), ["branch main 365"]),
            (
                GcRules(30, {"main": 40}),
                GcRules(31, {"main": 41}),
                GcRules(7, {"main": 3}),
                ["default_retention_days 31, branch main 41"],
            ),
            (GcRules(30), GcRules(365), GcRules(365), []),
            (GcRules(30), GcRules(365), GcRules(400), []),
            (GcRules(30), GcRules(30), GcRules(7), []),
            (GcRules(30), GcRules(20), GcRules(7), []),
            (GcRules(30, {"main": 40}), GcRules(30, {"main": 40}), GcRules(7, {"main": 3}), []),
            (GcRules(30), GcRules(30, {"main": 35}), GcRules(7, {"main": 35}), []),
            # a rule of its own that is gone: the branch has the default days again
            (GcRules(30, {"main": 3}), GcRules(30), GcRules(7, {"main": 3}), ["branch main 30"]),
            (GcRules(30, {"main": 90}), GcRules(30), GcRules(7), []),
            (None, GcRules(365), GcRules(7), []),
            (None, None, GcRules(7), []),
            (GcRules(30), GcRules(365), None, []),
        ],
    )  # fmt: skip
    def it_is_named(
        self, then: GcRules | None, now: GcRules | None, after: GcRules | None, found: list[str]
    ) -> None:
        assert taken_back(now, then, after=after) == found

    def it_is_left_by_a_plan_that_writes_no_rules(self) -> None:
        assert taken_back(GcRules(365), GcRules(30), action=Action.NONE) == []


AGO = NOW - HOUR
TODAY = BranchFate("old", "c1", AGO, AGO, "p", AGO, None)
CHANGED = SettingChange("p", Action.CHANGE, {"max_age": "9d"}, {"max_age": "3d"})
ADDED = SettingChange("q", Action.ADD, {}, {"max_age": "1d"})


def of_policies(then: PoliciesPlan | None, live: PoliciesPlan | None) -> list[str]:
    reviewed = repository(branch_lifecycle=then)
    found = ceiling.outside(reviewed, repository(branch_lifecycle=live), age=HOUR, now=NOW)
    return [text for text in found if "policies would" in text or "now point to commits" in text]


def policies(*changes: SettingChange, fates: tuple[BranchFate, ...] = (), **more: object) -> PoliciesPlan:
    made = PoliciesPlan(action=Action.CHANGE, changes=changes, fates=fates)
    return replace(made, **more)  # type: ignore[arg-type]


class DescribePoliciesThatAreOtherThanReviewed:
    def it_takes_those_that_were_reviewed(self) -> None:
        reviewed = policies(CHANGED, ADDED, fates=(TODAY,))
        assert of_policies(reviewed, reviewed) == []
        assert of_policies(reviewed, policies(CHANGED, fates=(TODAY,))) == []
        assert of_policies(policies(), policies(fates=())) == []

    def it_refuses_another_change(self) -> None:
        more = replace(CHANGED, before={"max_age": "90d"})
        (found,) = of_policies(policies(CHANGED), policies(more, ADDED))
        assert found == "its policies would change in ways that were not reviewed: p, q"

    def it_takes_a_removal_and_another_order(self) -> None:
        gone = replace(CHANGED, action=Action.CLEAR)
        assert of_policies(policies(), policies(gone)) == []
        assert of_policies(policies(), policies(CHANGED, reordered=True)) == []

    def it_refuses_a_branch_with_other_commits(self) -> None:
        moved = replace(TODAY, commit_id="c2")
        late = replace(TODAY, branch_id="late", goes_at=NOW + HOUR)
        anyway = replace(TODAY, branch_id="anyway", before_at=AGO)
        reviewed = policies(CHANGED, fates=(TODAY,))
        (found,) = of_policies(reviewed, policies(CHANGED, fates=(moved,)))
        assert found == "branches that would be deleted now point to commits that were not reviewed: old"
        assert of_policies(reviewed, policies(CHANGED, fates=(TODAY, late, anyway))) == []
        names = [replace(TODAY, branch_id=f"b{number}") for number in (6, 1, 2, 3, 4, 5)]
        (found,) = of_policies(reviewed, policies(CHANGED, fates=tuple(names)))
        assert found.endswith(": b1, b2, b3, b4, b5")

    def it_leaves_what_is_not_written(self) -> None:
        other = policies(ADDED, fates=(replace(TODAY, commit_id="c2"),))
        assert of_policies(policies(CHANGED), replace(other, action=Action.NONE)) == []
        assert of_policies(policies(CHANGED), None) == []
        (found,) = of_policies(None, other)
        assert "would be written, but the reviewed plan did not include that" in found
