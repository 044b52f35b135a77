"""A plan that was made again: the reviewed one has to name all that it would delete. No tolerance helps."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.review import ceiling
from lakeplan.values.plan import (
    Bit,
    BranchFate,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    ObjectRulesPlan,
    PoliciesPlan,
    RepositoryPlan,
    SettingChange,
    Shown,
    TagLoss,
)
from lakeplan.values.rules import Action, GcRules
from lakeplan.values.shown_records import object_digests, packed

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY = timedelta(days=1)
NAMES = st.frozensets(st.sampled_from("abcdefgh"))
AGES = st.sampled_from((timedelta(hours=1), DAY, timedelta(days=1, seconds=1), timedelta(days=3)))


def shown(now: frozenset[str], week: frozenset[str] = frozenset()) -> Shown:
    parts = [(object_digests("prod/analytics", sorted(now)), int(Bit.NOW))]
    return Shown.of(packed([*parts, (object_digests("prod/analytics", sorted(week)), int(Bit.WEEK))]))


def impact(
    now: frozenset[str], week: frozenset[str] = frozenset(), *, risk: int = 0, named: bool = True
) -> Impact:
    def at(count: int) -> HorizonImpact:
        return HorizonImpact(NOW, 5, 4, 1, 0, 0, count, count * 10, 100, 1000, risk, 0)

    return Impact(
        ImpactStatus.SIMULATED,
        horizons={Horizon.NOW.value: at(len(now)), Horizon.WEEK.value: at(len(now | week))},
        shown=shown(now, week) if named else None,
    )


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
        impact=impact(frozenset()),
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


def outside(reviewed: RepositoryPlan, live: RepositoryPlan, age: timedelta = DAY) -> list[str]:
    return ceiling.outside(reviewed, live, age=age, now=NOW + age)


class DescribeWhatLiesWithin:
    @given(NAMES, NAMES, NAMES, AGES)
    @settings(max_examples=300, deadline=None)
    def it_is_a_subset_of_the_reviewed_objects_and_nothing_else(self, now, week, live, age):
        allowed = now if age <= DAY else now | week
        found = outside(repository(impact=impact(now, week)), repository(impact=impact(live)), age)
        if live <= allowed:
            assert found == []
        else:
            assert found

    @given(NAMES, NAMES)
    @settings(max_examples=100, deadline=None)
    def it_is_a_subset_of_the_reviewed_branches(self, names, live):
        def of(chosen: frozenset[str]) -> RepositoryPlan:
            created = NOW - timedelta(days=50)
            fates = tuple(
                BranchFate(name, "c", created, None, "p", NOW - DAY, None) for name in sorted(chosen)
            )
            policies = PoliciesPlan(Action.CHANGE, fates=fates, deletions={"now": len(fates)})
            return repository(branch_lifecycle=policies, impact=Impact(ImpactStatus.UNAFFECTED))

        assert (outside(of(names), of(live), timedelta(hours=1)) == []) is (live <= names)

    @given(NAMES, st.integers(0, 3), st.integers(0, 3))
    @settings(max_examples=50, deadline=None)
    def it_never_has_more_objects_at_risk(self, names, then, now):
        pair = [repository(impact=impact(names, risk=risk)) for risk in (then, now)]
        assert (outside(*pair) == []) is (now <= then)

    def it_has_no_tolerance_not_even_for_one_object_in_a_thousand(self):
        names = frozenset(f"object-{number}" for number in range(1000))
        assert outside(repository(impact=impact(names)), repository(impact=impact(names))) == []
        more = impact(names | {"another"})
        assert outside(repository(impact=impact(names)), repository(impact=more))


class DescribeWhatIsNotKnown:
    SIX = impact(frozenset("abcdef"))

    @pytest.mark.parametrize(
        ("reviewed", "live"),
        [
            (impact(frozenset("ab"), named=False), impact(frozenset("a"))),
            (SIX, impact(frozenset("a"), named=False)),
            (impact(frozenset("ab"), named=False), impact(frozenset("ab"), named=False)),
            (Impact(ImpactStatus.UNKNOWN), SIX),
            (SIX, Impact(ImpactStatus.UNKNOWN, reason="a range is damaged")),
            (Impact(ImpactStatus.UNKNOWN), Impact(ImpactStatus.UNKNOWN)),
            (SIX, Impact(ImpactStatus.SIMULATED)),
            (SIX, Impact(ImpactStatus.NOT_ASKED)),
        ],
    )
    def it_counts_as_outside(self, reviewed, live):
        assert outside(repository(impact=reviewed), repository(impact=live))

    def it_is_unknown_also_where_no_rules_are_written(self):
        unknown = repository(action=Action.NONE, impact=Impact(ImpactStatus.UNKNOWN))
        unasked = repository(action=Action.NONE, impact=Impact(ImpactStatus.NOT_ASKED))
        why = "it is unknown which objects would be deleted"
        assert why in outside(repository(impact=self.SIX), unknown)
        assert outside(repository(impact=self.SIX), unasked) == []
        assert why in outside(repository(impact=self.SIX), replace(unasked, action=Action.CHANGE))

    def it_is_enough_that_no_object_can_expire(self):
        for live in (Impact(ImpactStatus.UNAFFECTED), impact(frozenset()), impact(frozenset(), named=False)):
            assert outside(repository(impact=self.SIX), repository(impact=live)) == []

    def it_is_what_object_rules_delete(self):
        change = SettingChange("raw", Action.CHANGE)
        rules = ObjectRulesPlan(Action.CHANGE, changes=(change,))
        both = repository(object_lifecycle=rules)
        assert "object lifecycle rules" in outside(both, both)[0]
        cleared = replace(rules, changes=(replace(change, action=Action.CLEAR),))
        assert outside(both, repository(object_lifecycle=cleared)) == []

    def it_is_a_tag_that_nobody_saw(self):
        lost = replace(self.SIX, tags=(TagLoss("v1", "c", 1, 1),))
        assert outside(repository(impact=lost), repository(impact=lost)) == []
        assert "v1" in outside(repository(impact=self.SIX), repository(impact=lost))[0]


class DescribeWritesThatNobodyReviewed:
    def it_refuses_rules_where_only_policies_were_written(self):
        policies = PoliciesPlan(Action.CHANGE)
        reviewed = repository(action=Action.NONE, branch_lifecycle=policies)
        (found,) = outside(reviewed, repository(branch_lifecycle=policies))
        assert found == "its GC rules would be written, but the reviewed plan did not include that"

    def it_writes_fewer_settings_than_were_reviewed(self):
        assert outside(repository(), repository(action=Action.NONE)) == []


class DescribeWhatOnlyMoved:
    @pytest.mark.parametrize(
        "live",
        [
            None,
            repository(config_hash="other"),
            repository(after=GcRules(6)),
            repository(endpoint_url="http://127.0.0.1:9000"),
            repository(creation_date=99),
            repository(storage_namespace="s3://other/place"),
            repository(managed=False),
        ],
    )
    def it_is_no_other_configuration_and_no_other_repository(self, live):
        assert not ceiling.only_moved(repository(), live)

    @pytest.mark.parametrize(
        "live",
        [
            repository(),
            repository(before=GcRules(300, {"main": 9})),
            repository(before=None),
            repository(unexpanded={"release-2": 90}, before=GcRules(30, {"release-2": 90})),
            repository(endpoint_url="http://127.0.0.1:8000/"),
        ],
    )
    def it_is_what_the_server_has(self, live):
        assert ceiling.only_moved(repository(), live)
        assert ceiling.only_moved(repository(endpoint_url="http://127.0.0.1:8000/"), live)

    def it_is_no_setting_that_the_tree_left(self):
        policies = repository(branch_lifecycle=PoliciesPlan(Action.CHANGE))
        assert ceiling.only_moved(policies, policies)
        assert not ceiling.only_moved(policies, repository())
