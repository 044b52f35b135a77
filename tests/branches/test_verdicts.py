"""Verdicts: against a plain reference, and where time is odd."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.branches.verdicts import check_default_branch, judge_branch
from lakeplan.errors import ConfigError
from lakeplan.retention.patterns import matches
from lakeplan.values.branches import Keep
from lakeplan.values.desired import (
    BranchFacts,
    Cleared,
    DesiredRepository,
    Evidence,
    PoliciesDesired,
    PoliciesSetting,
    Policy,
    Source,
)

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
SECONDS = st.integers(0, 100)
POLICIES = st.lists(
    st.builds(
        Policy,
        st.sampled_from([None, "a", "b"]),
        st.lists(st.sampled_from(["f-*", "f-1", "w*", "*"]), min_size=1, max_size=3).map(tuple),
        st.none() | st.integers(1, 100),
        st.none() | st.integers(1, 100),
    ).filter(lambda p: p.max_age_seconds is not None or p.max_idle_seconds is not None),
    max_size=4,
)


def facts(name: str, age: int | None, idle: int | None) -> BranchFacts:
    created = None if age is None else NOW - timedelta(seconds=age)
    written = None if idle is None else NOW - timedelta(seconds=idle)
    return BranchFacts(name, "c", created, Evidence.OBSERVED, written, Evidence.OBSERVED)


@given(
    st.sampled_from(["f-1", "f-2", "w", "main"]),
    st.none() | SECONDS,
    st.none() | SECONDS,
    POLICIES,
    st.booleans(),
)
def it_is_what_the_documents_say_word_by_word(name, age, idle, policies, read_only):
    verdict = judge_branch(facts(name, age, idle), policies, NOW, default_branch="main", read_only=read_only)
    deleter = None
    for number, policy in enumerate(policies, 1):
        if not any(matches(name, p) for p in policy.patterns) or age is None:
            continue
        old = policy.max_age_seconds is None or age >= policy.max_age_seconds
        quiet = policy.max_idle_seconds is None or (age if idle is None else idle) >= policy.max_idle_seconds
        if old and quiet:
            deleter = policy.id or f"policy {number}"
            break
    goes = deleter is not None and name != "main" and not read_only
    assert verdict.deletes == goes
    if goes:
        assert verdict.policy == deleter


@given(SECONDS, SECONDS, POLICIES)
def it_goes_at_the_moment_it_names_and_not_before(age, idle, policies):
    branch = facts("f-1", age, min(age, idle))
    verdict = judge_branch(branch, policies, NOW, default_branch="main")
    moment = verdict.due
    if moment is None:
        assert verdict.deletes or verdict.kept_by is Keep.NO_POLICY
        return
    assert moment > NOW
    assert judge_branch(branch, policies, moment, default_branch="main").deletes
    assert not judge_branch(branch, policies, moment - timedelta(seconds=1), default_branch="main").deletes


@given(SECONDS, SECONDS, POLICIES, SECONDS)
def it_keeps_a_branch_at_least_as_long_when_it_is_written(age, idle, policies, newer):
    before = judge_branch(facts("f-1", age, max(idle, newer)), policies, NOW, default_branch="main")
    after = judge_branch(facts("f-1", age, min(idle, newer)), policies, NOW, default_branch="main")
    assert before.deletes or not after.deletes


class DescribeTime:
    @pytest.mark.parametrize(
        ("zone", "start", "days"),
        [
            ("Europe/Berlin", "2026-03-28T12:00", 2),  # clocks go forward between
            ("Europe/Berlin", "2026-10-24T12:00", 2),  # and back
            ("UTC", "2028-02-28T12:00", 2),  # a leap day between
            ("UTC", "2027-02-28T12:00", 2),
        ],
    )
    def it_counts_elapsed_seconds_whatever_the_calendar_does(self, zone, start, days):
        created = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).astimezone(timezone.utc)
        branch = BranchFacts("f-1", "c", created, Evidence.OBSERVED, None, None)
        policy = Policy("p", ("f-*",), max_age_seconds=days * 86400)
        end = created + timedelta(seconds=days * 86400)
        assert judge_branch(branch, [policy], end, default_branch="main").deletes
        early = judge_branch(branch, [policy], end - timedelta(seconds=1), default_branch="main")
        assert early.due == end

    def it_knows_weeks(self):
        policy = Policy("p", ("f-*",), max_age_seconds=2 * 7 * 86400)
        verdict = judge_branch(facts("f-1", 0, None), [policy], NOW, default_branch="main")
        assert verdict.due == NOW + timedelta(weeks=2)

    def it_keeps_a_branch_from_the_future(self):
        branch = BranchFacts("f-1", "c", NOW + timedelta(days=1), Evidence.OBSERVED, None, None)
        policy = Policy("p", ("f-*",), max_age_seconds=1)
        assert not judge_branch(branch, [policy], NOW, default_branch="main").deletes

    def it_comes_at_the_second_and_not_before(self):
        policy = Policy("p", ("f-*",), max_age_seconds=10, max_idle_seconds=5)
        verdict = judge_branch(facts("f-1", 10, 5), [policy], NOW, default_branch="main")
        assert (verdict.deletes, verdict.since) == (True, NOW)
        for age, idle in ((9, 5), (10, 4)):
            kept = judge_branch(facts("f-1", age, idle), [policy], NOW, default_branch="main")
            assert kept.due == NOW + timedelta(seconds=1)

    def it_never_comes_without_a_threshold(self):
        verdict = judge_branch(facts("f-1", 99, 99), [Policy("p", ("f-*",))], NOW, default_branch="main")
        assert (verdict.kept_by, verdict.policy, verdict.due) == (Keep.NOT_CROSSED, "p", None)

    def it_names_the_first_of_policies_that_come_at_once(self):
        policies = [Policy(name, ("f-*",), max_age_seconds=10) for name in ("z", "a")]
        verdict = judge_branch(facts("f-1", 1, None), policies, NOW, default_branch="main")
        assert verdict.policy == "z"

    def it_never_comes_when_no_calendar_has_it(self):
        policy = Policy("p", ("f-*",), max_age_seconds=10**12)
        verdict = judge_branch(facts("f-1", 0, None), [policy], NOW, default_branch="main")
        assert verdict.kept_by is Keep.NOT_CROSSED
        assert verdict.due is None


class DescribePoliciesThatMatchTheDefaultBranch:
    SOURCE = Source("a.yaml", 3, 5)

    def desired(self, setting: PoliciesSetting) -> DesiredRepository:
        return DesiredRepository("prod", "lake", "lake", None, "0", {}, {}, branch_lifecycle=setting)

    def policies(self, *patterns: str) -> DesiredRepository:
        policies = tuple(Policy(None, (pattern,), max_age_seconds=1) for pattern in patterns)
        return self.desired(PoliciesDesired(policies, (self.SOURCE,) * len(policies), self.SOURCE))

    def it_refuses_them_and_names_each(self) -> None:
        with pytest.raises(ConfigError) as caught:
            check_default_branch(self.policies("f-*", "m*", "*"), "main")
        message = caught.value.message
        assert all(text in message for text in ("policy 2", "'m*'", "policy 3", "'*'", "'main'"))
        assert "policy 1" not in message
        assert caught.value.where == "prod/lake at a.yaml:3:5"

    def it_passes_others(self) -> None:
        check_default_branch(self.policies("f-*", "m*"), "trunk")
        check_default_branch(self.policies(), "main")

    @pytest.mark.parametrize("setting", [None, Cleared.CLEAR])
    def it_passes_a_repository_without_policies(self, setting: PoliciesSetting) -> None:
        check_default_branch(self.desired(setting), "main")
