"""The plan file as a ceiling."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.core.planning import ceiling
from lakeplan.model.desired import Safety
from lakeplan.model.plan import (
    Action,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    Plan,
    RepositoryPlan,
    TagLoss,
)
from lakeplan.model.rules import GcRules
from lakeplan.model.setting_plan import BranchFate, PoliciesPlan
from lakeplan.model.shown import Bit, Shown, commit_digests, object_digests, packed

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
        assert "lacks release-1," in found

    def it_skips_only_the_etag_when_forced(self):
        assert ceiling.stale_reasons(repository(), repository(before=None), check_etag=False) == []
        assert ceiling.stale_reasons(repository(), repository(after=GcRules(6)), check_etag=False)

    def it_takes_the_reviewed_rules_on_the_server_for_done(self):
        live = repository(before=GcRules(7), action=Action.NONE)
        assert ceiling.stale_reasons(repository(), live, check_etag=True) == []
        assert ceiling.is_done(repository(), live)
        assert not ceiling.is_done(repository(), repository())


class DescribeGrowth:
    def grows(self, reviewed: Impact, live: Impact, age: timedelta = HOUR) -> list[str]:
        return ceiling.growth(
            repository(impact=reviewed), repository(impact=live), Safety(), age=age, now=NOW + age
        )

    def it_lets_the_tolerance_pass_and_no_more(self):
        assert self.grows(impact(100), impact(110)) == []
        assert self.grows(impact(100), impact(111))
        assert self.grows(impact(size=1000), impact(size=1101))

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

    def it_holds_the_commits_and_tags_of_an_unknown_impact(self):
        at = HorizonImpact(NOW, 50, 40, 10, 0, 0)
        reviewed = Impact(ImpactStatus.UNKNOWN, horizons={Horizon.NOW.value: at})
        more = replace(reviewed, horizons={Horizon.NOW.value: replace(at, commits_expire=12)})
        assert self.grows(reviewed, reviewed) == []
        assert "12 commits" in self.grows(reviewed, more)[0]
        assert "v2" in self.grows(reviewed, replace(reviewed, tags=(TagLoss("v2", "c", None, None),)))[0]
        assert self.grows(Impact(ImpactStatus.UNKNOWN, reason="no graph"), more) == []

    def it_holds_an_older_plan_against_the_week_it_showed(self):
        reviewed = impact(100, week=200)
        assert self.grows(reviewed, impact(200), age=HOUR)
        assert self.grows(reviewed, impact(200), age=timedelta(days=2)) == []
        assert self.grows(reviewed, impact(221), age=timedelta(days=2))

    def it_refuses_what_became_unknown(self):
        assert self.grows(impact(), Impact(ImpactStatus.UNKNOWN, reason="range is damaged"))

    def it_trusts_no_digest(self):
        assert self.grows(impact(1, commits_digest="d"), impact(999, commits_digest="d"))

    def it_takes_no_others_for_the_reviewed_objects(self):
        """Six were reviewed and six others would go."""
        six = named({Bit.NOW: "abcdef"})
        assert self.grows(impact(6, shown=six), impact(6, shown=six)) == []
        (found,) = self.grows(impact(6, shown=six), impact(6, shown=named({Bit.NOW: "ghijkl"})))
        assert found == "6 objects would expire that are not among the 6 reviewed ones"
        assert self.grows(impact(6, shown=six), impact(6, shown=named({Bit.NOW: "abcdeX"})))

    def it_lets_the_tolerance_of_others_pass(self):
        ten = named({Bit.NOW: "abcdefghij"})
        assert self.grows(impact(10, shown=ten), impact(10, shown=named({Bit.NOW: "abcdefghiX"}))) == []
        assert self.grows(impact(10, shown=ten), impact(10, shown=named({Bit.NOW: "abcdefghXY"})))

    def it_counts_what_was_shown_for_the_week_only_when_the_plan_is_older_than_a_day(self):
        reviewed = impact(2, week=4, shown=named({Bit.NOW: "ab", Bit.WEEK: "abcd"}))
        live = impact(2, shown=named({Bit.NOW: "cd"}))
        assert self.grows(reviewed, live, age=HOUR)
        assert self.grows(reviewed, live, age=timedelta(days=2)) == []
        backlog = impact(2, week=4, shown=named({Bit.BACKLOG: "cd"}))
        assert self.grows(backlog, live, age=timedelta(days=2)), "the backlog is no part of the change"

    def it_refuses_a_plan_that_does_not_name_what_it_counts(self):
        live = impact(6, shown=named({Bit.NOW: "abcdef"}))
        beside = Shown(10_000, "0" * 64)
        for reviewed in (impact(6), impact(6, shown=beside)):
            assert "does not name the objects" in self.grows(reviewed, live)[0]

    def it_takes_no_other_commits_for_those_of_an_unknown_impact(self):
        at = {Horizon.NOW.value: HorizonImpact(NOW, 50, 40, 2, 0, 0)}
        reviewed, live = (
            Impact(ImpactStatus.UNKNOWN, horizons=at, shown=Shown.of(packed([(commit_digests("k", ids), 8)])))
            for ids in ("ab", "cd")
        )
        assert self.grows(reviewed, reviewed) == []
        assert "2 commits would expire that are not among the 2" in self.grows(reviewed, live)[0]

    def it_takes_no_other_branches_for_the_reviewed_ones(self):
        def policies(*names: str) -> PoliciesPlan:
            fates = tuple(BranchFate(n, "c", NOW, None, "p", NOW, None) for n in names)
            return PoliciesPlan(Action.CHANGE, fates=fates, deletions={"now": len(names)})

        def grows(reviewed: PoliciesPlan, live: PoliciesPlan) -> list[str]:
            pair = (repository(branch_lifecycle=p) for p in (reviewed, live))
            return ceiling.growth(*pair, Safety(), age=HOUR, now=NOW + HOUR)

        assert grows(policies("a", "b"), policies("b", "a")) == []
        assert "not reviewed: c, d" in grows(policies("a", "b"), policies("c", "d"))[0]


def named(objects: dict[Bit, str]) -> Shown:
    """Objects of one letter, by why they expire."""
    return Shown.of(
        packed([(object_digests("prod/a", letters), int(bit)) for bit, letters in objects.items()])
    )


def it_tells_a_plan_that_is_too_old():
    plan = Plan(NOW, "0", "tree", None, ())
    assert ceiling.too_old(plan, Safety(), NOW + timedelta(days=7)) is None
    assert "8 days" in (ceiling.too_old(plan, Safety(), NOW + timedelta(days=8)) or "")


def it_tells_a_plan_of_a_moment_to_come():
    plan = Plan(NOW, "0", "tree", None, ())
    assert ceiling.too_old(plan, Safety(), NOW - timedelta(minutes=50)) is None
    assert "to come" in (ceiling.too_old(plan, Safety(), NOW - timedelta(days=1)) or "")
