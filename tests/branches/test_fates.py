"""Which branches the server's job deletes, and when it first can."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan import limits
from lakeplan.branches.verdicts import (
    deleted_while_held,
    facts_of,
    fates_of,
    first_deletion,
    held_deletions,
    judge_branch,
)
from lakeplan.values.branches import BranchOutlook
from lakeplan.values.desired import BranchFacts, Evidence, Policy
from lakeplan.values.plan import BranchFate
from lakeplan.values.repository import Branch
from lakeplan.values.sweep import Hold

DAY = 86400
NOW = datetime(2026, 3, 31, 12, 0, tzinfo=timezone.utc)
AGE = Policy("age", ("f-*",), max_age_seconds=10 * DAY)
IDLE = Policy("idle", ("f-*",), max_idle_seconds=5 * DAY)


def branch(name: str, created: float, written: float | None = None) -> Branch:
    """A branch created and last written so many days ago."""
    at = int(NOW.timestamp())
    update = None if written is None else at - int(written * DAY)
    return Branch(name, "c" * 64, at - int(created * DAY), update)


def fates(branches, stored, wanted):
    return fates_of(branches, stored, wanted, NOW, default_branch="main")


def it_lists_who_goes_now_and_within_thirty_days_soonest_first() -> None:
    branches = [branch("f-new", 1), branch("f-old", 40), branch("g", 90), branch("main", 90)]
    found = fates(branches, None, [AGE])
    assert [f.branch_id for f in found] == ["f-old", "f-new"]
    assert [f.goes_at for f in found] == [NOW - timedelta(days=30), NOW + timedelta(days=9)]
    assert found[0].newly(NOW)
    assert not found[1].newly(NOW)
    assert found[1].newly(NOW + timedelta(days=9))


def it_exempts_branches_without_a_creation_time() -> None:
    assert fates([Branch("f-a", "c" * 64)], None, [AGE]) == ()


def it_takes_the_creation_time_where_no_write_is_recorded() -> None:
    (fate,) = fates([branch("f-a", 6)], None, [IDLE])
    assert fate.goes_at == NOW - timedelta(days=1)
    assert fate.idle


def it_does_not_call_new_what_the_stored_policies_do_too() -> None:
    (fate,) = fates([branch("f-a", 40)], [AGE], [AGE, IDLE])
    assert not fate.newly(NOW)


def it_shows_what_stays_through_the_change() -> None:
    (fate,) = fates([branch("f-a", 40)], [AGE], [Policy("none", ("x",), DAY)])
    assert fate.goes_at is None
    assert fate.before_at == NOW - timedelta(days=30)


def days(number: float) -> datetime:
    return NOW + timedelta(days=number)


def it_says_what_the_server_knows_of_a_branch() -> None:
    server, commit = Evidence.SERVER, "c" * 64
    assert facts_of(branch("f", 6, 2)) == BranchFacts("f", commit, days(-6), server, days(-2), server)
    assert facts_of(Branch("f", commit)) == BranchFacts("f", commit, None, None, None, None)


def it_shows_what_was_known_and_which_policy_is_the_deleter() -> None:
    undated = Branch("f-undated", "c" * 64)
    found = fates([undated, branch("g", 90), branch("f-a", 40, 1)], [AGE], [IDLE])
    made, written = days(-40), days(-1)
    assert found == (BranchFate("f-a", "c" * 64, made, written, "idle", days(4), days(-30), idle=True),)
    (before,) = fates([branch("f-a", 40)], [AGE], None)
    assert (before.policy, before.idle) == ("age", False)


def it_lists_what_stays_last_and_never_the_default_branch() -> None:
    branches = [branch("f-old", 40), branch("f-new", 1)]
    found = fates(branches, [AGE], [Policy("new", ("f-new",), 10 * DAY)])
    assert [fate.branch_id for fate in found] == ["f-new", "f-old"]
    assert fates_of(branches[:1], [AGE], [AGE], NOW, default_branch="f-old") == ()


def it_looks_thirty_days_ahead_the_last_moment_included() -> None:
    (fate,) = fates([branch("f-a", -20)], None, [AGE])
    assert fate.goes_at == days(30)
    assert fates([branch("f-a", -21)], None, [AGE]) == ()


AGES = st.none() | st.integers(1, 40 * DAY)
POLICY = st.builds(Policy, st.none(), st.just(("f-*",)), AGES, AGES)


@given(
    st.lists(st.tuples(st.floats(0, 60), st.none() | st.floats(0, 60)), max_size=6),
    st.lists(POLICY, max_size=3),
    st.integers(0, 30),
)
def it_agrees_with_the_verdict_at_any_later_moment(ages, policies, days) -> None:
    policies = [p for p in policies if p.max_age_seconds or p.max_idle_seconds]
    branches = [branch(f"f-{n}", *pair) for n, pair in enumerate(ages)]
    moment = NOW + timedelta(days=days)
    gone = {f.branch_id for f in fates(branches, None, policies) if f.newly(moment)}
    judged = {
        b.id for b in branches if judge_branch(facts_of(b), policies, moment, default_branch="main").deletes
    }
    assert gone == judged


class DescribeTheFirstDeletion:
    def it_is_the_next_run_when_a_branch_goes_now(self) -> None:
        found = fates([branch("f-a", 40)], None, [AGE])
        now = NOW + timedelta(minutes=1)
        assert first_deletion(found, now, "0 * * * *", timezone.utc) == NOW + timedelta(hours=1)
        assert first_deletion(found, NOW, "0 * * * *", timezone.utc) == NOW  # the run of this very moment
        just_after = NOW + timedelta(microseconds=1)
        assert first_deletion(found, just_after, "0 * * * *", timezone.utc) == NOW + timedelta(hours=1)

    def it_is_the_first_run_after_the_crossing(self) -> None:
        found = fates([branch("f-a", 8)], None, [AGE])
        assert first_deletion(found, NOW, "30 3 * * *", timezone.utc) == datetime(
            2026, 4, 3, 3, 30, tzinfo=timezone.utc
        )

    def it_reads_the_schedule_in_the_zone_of_the_server(self) -> None:
        found = fates([branch("f-a", 8)], None, [AGE])
        first = first_deletion(found, NOW, "30 3 * * *", ZoneInfo("Asia/Tokyo"))
        assert first == datetime(2026, 4, 2, 18, 30, tzinfo=timezone.utc)

    def it_is_none_when_no_branch_goes(self) -> None:
        assert first_deletion((), NOW, "0 * * * *", timezone.utc) is None

    def it_needs_a_schedule_that_can_be_read(self) -> None:
        found = fates([branch("f-a", 40)], None, [AGE])
        with pytest.raises(ValueError):
            first_deletion(found, NOW, "often", timezone.utc)


class DescribeHeldBranches:
    POLICY = Policy("quick", ("feature-*",), max_age_seconds=7 * DAY)

    def held(self, hold: Hold, *branches: Branch, policies: Sequence[Policy] = (POLICY,)) -> tuple[str, ...]:
        return held_deletions([hold], branches, policies, NOW, default_branch="main")

    def it_names_those_that_policies_delete_now_or_later_while_they_are_held(self) -> None:
        old, young = branch("feature-1", 40), branch("feature-2", 1)
        assert self.held(Hold("branch", "feature-1"), old, young) == (
            f"feature-1 (quick, at {NOW:%Y-%m-%d})",
        )
        later = (NOW + timedelta(days=6)).date()
        assert self.held(Hold("branch", "feature-2", later), old, young) == (
            f"feature-2 (quick, at {later})",
        )

    def it_names_none_whose_hold_ends_before_or_that_no_policy_matches(self) -> None:
        young, other = branch("feature-2", 1), branch("keep", 400)
        before = (NOW + timedelta(days=5)).date()
        assert self.held(Hold("branch", "feature-2", before), young, other) == ()
        assert self.held(Hold("branch", "keep"), young, other) == ()
        assert self.held(Hold("prefix", "feature-"), young, other) == ()

    @pytest.mark.parametrize(("until", "count"), [(-8, 0), (-1, 0), (0, 1)])
    def it_names_none_whose_hold_ended_after_the_branch_was_due(self, until: int, count: int) -> None:
        """The branch was due 33 days ago, under the hold, but can be deleted only now."""
        hold, old = Hold("branch", "feature-1", days(until).date()), branch("feature-1", 40)
        assert len(self.held(hold, old)) == count
        found = deleted_while_held([hold], [old], [self.POLICY], NOW, default_branch="main")
        assert len(found) == count

    def it_names_no_default_branch(self) -> None:
        every = Policy("all", ("*",), max_age_seconds=DAY)
        branches, holds = [branch("main", 40), branch("next", 40)], [Hold("branch", "main")]
        assert self.held(*holds, *branches, policies=[every]) == ()
        (text,) = held_deletions(holds, branches, [every], NOW, default_branch="next")
        assert text.startswith("main (all, ")

    def it_has_the_facts_of_those_that_policies_delete(self) -> None:
        old, young = branch("feature-1", 40), branch("feature-2", 1)
        held = [Hold("branch", "feature-1")]
        found = deleted_while_held(held, [old, young], [self.POLICY], NOW, default_branch="main")
        verdict = judge_branch(facts_of(old), [self.POLICY], NOW, default_branch="main")
        assert found["feature-1"] == BranchOutlook(facts_of(old), verdict)

    def it_counts_idle_time_of_branches_that_do_not_exist_yet(self) -> None:
        idle = Policy("idle", ("feature-*",), max_idle_seconds=7 * DAY)
        before, then = days(6).date(), days(7).date()
        assert self.held(Hold("branch", "*-legal", before), policies=[idle]) == ()
        assert len(self.held(Hold("branch", "*-legal", then), policies=[idle])) == 1

    def it_gives_up_comparing_patterns_and_counts_them_as_held(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "GLOB_PAIRS", 100)
        policy = Policy("hostile", ("a-*", *(f"b-{n}-*" for n in range(50))), max_age_seconds=7 * DAY)
        found = self.held(Hold("branch", "c-*"), policies=(policy,))
        (text,) = found
        assert text.endswith("or that a later pair of hold and pattern matches")

    def it_thinks_of_branches_that_do_not_exist_yet(self) -> None:
        (text,) = self.held(Hold("branch", "*-legal"))
        assert "'feature-*' of quick" in text
        assert self.held(Hold("branch", "legal-*")) == ()
        assert self.held(Hold("branch", "*-legal", (NOW + timedelta(days=6)).date())) == ()
        assert self.held(Hold("branch", "feature-9")) == ()  # it does not exist: another check says so
