"""Settings that keep what a policy lets go."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.branches.keepers import keeper_of, spare_newest
from lakeplan.branches.verdicts import judge_branch
from lakeplan.values.branches import BranchOutlook, Keep, PullRequest, StagedChange, StagedData
from lakeplan.values.desired import BranchSettings

DIRTY = StagedData((StagedChange("a", "added"),))
PULLS = (PullRequest("1", "feature-1", "main"),)


def outlook(draw, name="feature-1", idle=5, **more) -> BranchOutlook:
    facts = draw.branch(name, age=10, idle=idle)
    verdict = judge_branch(facts, [draw.policy("feature-*", age=1)], draw.now, default_branch="main")
    return BranchOutlook(facts, verdict, **more)


class DescribeKeeping:
    @pytest.mark.parametrize(
        ("more", "settings", "why"),
        [
            ({}, {}, None),
            ({}, {"exempt": ("feature-*",)}, Keep.EXEMPT),
            ({}, {"exempt": ("keep-*",)}, None),
            ({"staged": DIRTY}, {}, Keep.UNCOMMITTED),
            ({"staged": StagedData((), more=True)}, {}, Keep.UNCOMMITTED),
            ({"staged": DIRTY}, {"keep_with_uncommitted": False}, None),
            ({"staged": StagedData()}, {}, None),
            ({"pulls": PULLS}, {}, Keep.OPEN_PULL_REQUEST),
            ({"pulls": PULLS}, {"keep_with_open_pull_request": False}, None),
        ],
    )
    def it_keeps_by_the_tree_s_settings(self, draw, more, settings, why):
        assert keeper_of(outlook(draw, **more), BranchSettings(**settings)) is why

    @pytest.mark.parametrize(("merged", "why"), [(True, None), (False, "n"), (None, "n")])
    def it_keeps_what_is_not_known_to_be_merged_when_asked_to(self, draw, merged, why):
        found = keeper_of(outlook(draw), BranchSettings(require_merged=True), merged=merged)
        assert found is (Keep.NOT_MERGED if why else None)


class DescribeProtection:
    @pytest.mark.parametrize(
        "pattern", ["feature-1", "feature-*", "*", "feature-?", "f*1", "{feature,release}-*", "feature-[0-9]",
                    "feature-[!2]", "feature-[^2]", "[a-z]*", "**", "feat\\\\ure-1", "feature-{1"],
    )  # fmt: skip
    def it_keeps_what_a_rule_may_match_in_any_dialect(self, draw, pattern):
        found = keeper_of(outlook(draw), BranchSettings(), protected=["main", pattern])
        assert found is Keep.PROTECTED
        settings = BranchSettings(keep_protected=False)
        assert keeper_of(outlook(draw), settings, protected=[pattern]) is None

    @pytest.mark.parametrize("pattern", ["main", "feature", "feature-2", "release-*", "feature-??", "x{1,2}"])
    def it_keeps_nothing_that_no_rule_matches(self, draw, pattern):
        assert keeper_of(outlook(draw), BranchSettings(), protected=[pattern]) is None


class DescribeMinKeep:
    def names(self, draw, outlooks, min_keep) -> set[str]:
        spared = spare_newest({o.id: o for o in outlooks}, [draw.policy(age=1)], min_keep)
        return {name for name, o in spared.items() if o.verdict.kept_by is Keep.MIN_KEEP}

    def it_spares_the_most_recently_written(self, draw):
        outlooks = [outlook(draw, f"feature-{n}", idle=n) for n in (1, 2, 3, 4)]
        assert self.names(draw, outlooks, 2) == {"feature-1", "feature-2"}
        assert self.names(draw, outlooks, 0) == set()
        assert len(self.names(draw, outlooks, 99)) == 4

    def it_counts_a_branch_that_stays_once(self, draw):
        young = [draw.branch("feature-9", age=0)]
        policies = [draw.policy("feature-*", age=1)]
        staying = [
            BranchOutlook(f, judge_branch(f, policies, draw.now, default_branch="main")) for f in young
        ]
        going = [outlook(draw, f"feature-{n}", idle=n) for n in (1, 2)]
        assert self.names(draw, [*staying, *going], 2) == {"feature-1"}

    def it_takes_the_creation_for_the_last_write_of_what_was_never_written(self, draw):
        written, made = outlook(draw, "feature-1", idle=5), outlook(draw, "feature-2", idle=None)
        newer = replace(made, facts=replace(made.facts, created=draw.now - timedelta(days=3)))
        assert self.names(draw, [written, newer], 1) == {"feature-2"}
        assert self.names(draw, [written, made], 1) == {"feature-1"}, "made ten days ago"
        unknown = replace(made, facts=replace(made.facts, created=None))
        assert self.names(draw, [written, unknown], 1) == {"feature-1"}

    def it_counts_branches_that_stay_anyway(self, draw):
        staying = BranchOutlook(
            draw.branch("feature-9", age=0),
            judge_branch(
                draw.branch("feature-9", age=0), [draw.policy(age=1)], draw.now, default_branch="main"
            ),
        )
        assert self.names(draw, [staying, outlook(draw)], 1) == set()

    @given(st.lists(st.integers(0, 9), max_size=8), st.integers(0, 10))
    def it_leaves_at_least_so_many_and_deletes_no_more_than_without(self, draw, idles, min_keep):
        before = {f"feature-{n}": outlook(draw, f"feature-{n}", idle=i) for n, i in enumerate(idles)}
        after = spare_newest(before, [draw.policy(age=1)], min_keep)
        assert sum(not o.verdict.deletes for o in after.values()) >= min(min_keep, len(before))
        assert all(before[n].verdict.deletes for n, o in after.items() if o.verdict.deletes)
