"""Verdicts on branches as lakeFS documents them. Tests that need a server are in tests/e2e/branches."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from lakeplan.branches.verdicts import default_branch_problems
from lakeplan.values.branches import Keep
from lakeplan.values.desired import BranchFacts


class DescribeAPolicy:
    @pytest.mark.parametrize(
        ("pattern", "name", "takes"),
        [
            ("feature-*", "feature-1", True),
            ("feature-*", "features", False),
            ("feature-?", "feature-1", True),
            ("feature-?", "feature-12", False),
            ("wip-[abc]", "wip-b", True),
            ("wip-[abc]", "wip-d", False),
            ("exact", "exact", True),
            ("exact", "exact-not", False),
        ],
    )
    def it_has_globs_or_literals(self, draw, pattern, name, takes):
        verdict = draw.judge(draw.branch(name), draw.policy(pattern, age=1))
        assert verdict.deletes == takes

    def it_matches_when_any_of_its_patterns_does(self, draw):
        policy = draw.policy("a-*", "feature-*", age=1)
        assert draw.judge(draw.branch("feature-1"), policy).deletes
        assert draw.judge(draw.branch("b-1"), policy).kept_by is Keep.NO_POLICY

    def it_counts_max_age_since_creation(self, draw):
        policy = draw.policy(age=7)
        assert draw.judge(draw.branch(age=8, idle=0), policy).deletes
        assert draw.judge(draw.branch(age=6, idle=0), policy).kept_by is Keep.NOT_CROSSED

    def it_counts_max_idle_age_since_the_last_write(self, draw):
        policy = draw.policy(idle=3)
        assert draw.judge(draw.branch(age=100, idle=4), policy).deletes
        assert draw.judge(draw.branch(age=100, idle=2), policy).kept_by is Keep.NOT_CROSSED

    @pytest.mark.parametrize(("age", "idle", "goes"), [(8, 4, True), (8, 2, False), (6, 4, False)])
    def it_needs_both_thresholds_crossed_when_both_are_given(self, draw, age, idle, goes):
        assert draw.judge(draw.branch(age=age, idle=idle), draw.policy(age=7, idle=3)).deletes == goes

    def it_has_a_description_that_decides_nothing(self, draw):
        plain = draw.policy(age=7)
        described = replace(plain, description="main, keep, 9d")
        for age in (6, 8):
            assert draw.judge(draw.branch(age=age), plain) == draw.judge(draw.branch(age=age), described)

    def it_may_not_match_the_default_branch_and_says_which_pattern_does(self, draw):
        policies = [draw.policy("m*", "feature-*", age=1, id="a"), draw.policy("main", age=1, id=None)]
        assert default_branch_problems(policies, "main") == [
            "a: its pattern 'm*' matches the default branch 'main'",
            "policy 2: its pattern 'main' matches the default branch 'main'",
        ]
        assert default_branch_problems(policies, "trunk") == []


class DescribeDeletion:
    def it_takes_a_branch_that_one_policy_lets_go(self, draw):
        verdict = draw.judge(draw.branch(age=10), draw.policy(age=7, id="old"))
        assert verdict.deletes
        assert verdict.policy == "old"
        assert verdict.since == draw.now - timedelta(days=3)

    def it_walks_policies_top_to_bottom_and_skips_those_not_crossed(self, draw):
        first, second = draw.policy(age=30, id="slow"), draw.policy(age=7, id="quick")
        assert draw.judge(draw.branch(age=10), first, second).policy == "quick"

    def it_records_the_first_crossed_policy_as_the_deleter(self, draw):
        first, second = draw.policy(age=7, id="one"), draw.policy(age=3, id="two")
        assert draw.judge(draw.branch(age=10), first, second).policy == "one"
        assert draw.judge(draw.branch(age=10), second, first).policy == "two"

    def it_is_the_same_in_any_order(self, draw):
        first, second = draw.policy(age=30, id="a"), draw.policy(idle=7, id="b")
        for branch in (draw.branch(age=10), draw.branch(age=40, idle=1), draw.branch(age=5)):
            assert draw.judge(branch, first, second).deletes == draw.judge(branch, second, first).deletes

    def it_says_when_a_branch_that_stays_will_go(self, draw):
        verdict = draw.judge(draw.branch(age=1), draw.policy(age=30, id="a"), draw.policy(age=3, id="b"))
        assert verdict.due == draw.now + timedelta(days=2)
        assert verdict.policy == "b"


class DescribeExemptions:
    def it_exempts_the_default_branch(self, draw):
        verdict = draw.judge(draw.branch("main", age=1000), draw.policy("*", age=1))
        assert verdict.kept_by is Keep.DEFAULT_BRANCH

    def it_exempts_branches_with_no_recorded_creation_time(self, draw):
        verdict = draw.judge(draw.branch(age=None), draw.policy(age=1))
        assert verdict.kept_by is Keep.NO_CREATION_TIME
        idle_only = BranchFacts("feature-1", "c1", None, None, draw.now - timedelta(days=9), None)
        assert draw.judge(idle_only, draw.policy(idle=1)).kept_by is Keep.NO_CREATION_TIME

    def it_exempts_read_only_repositories(self, draw):
        verdict = draw.judge(draw.branch(age=1000), draw.policy(age=1), read_only=True)
        assert verdict.kept_by is Keep.READ_ONLY

    def it_counts_the_creation_time_without_a_recorded_last_write(self, draw):
        policy = draw.policy(idle=3)
        assert draw.judge(draw.branch(age=4, idle=None), policy).deletes
        assert draw.judge(draw.branch(age=2, idle=None), policy).kept_by is Keep.NOT_CROSSED
