"""Runs: which branches are deleted and kept, and what remains if a run is stopped at any point."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta

import pytest

from lakeplan.branches.deleting import ReviewedBranch
from lakeplan.branches.deletion_records import list_runs, read_deletions
from lakeplan.branches.documents import plan_document, reviewed_of, run_exit_code
from lakeplan.branches.recall import read_ledger
from lakeplan.errors import ConfigError, FormatError, PermissionDenied, PreconditionFailed, UsageError
from lakeplan.review.base import ReviewedTree
from lakeplan.values.branches import Keep, PullRequest, StagedData
from lakeplan.values.desired import BranchSettings, Override, Policy, Safety, Source

KEY = "prod/analytics"
DAY = 86400


class DescribeAnOpenSourceServer:
    def it_deletes_nothing_at_the_first_look_however_old_the_commits_are(self, world):
        world.lakefs.branch("feature-1")
        world.clock.wait(400)
        assert world.ends() == {}
        assert "feature-1" in world.lakefs.branches

    def it_deletes_after_the_threshold_was_observed_and_not_a_second_before(self, world):
        world.lakefs.branch("feature-1")
        world.run()
        world.clock.wait(3 - 1 / DAY)
        assert world.ends() == {}
        world.clock.wait(1 / DAY)
        assert world.ends() == {"feature-1": "deleted"}
        assert set(world.lakefs.branches) == {"main"}

    def it_deletes_no_branch_of_a_repository_that_another_tree_claims(self, idle):
        idle.lakefs.marks["lakeplan.tree.team-b"] = "2026-01-01T00:00:00Z"
        before = set(idle.lakefs.branches)
        (end,) = idle.run().repositories
        assert end.failure is not None
        assert "another tree manages this repository: 'team-b'" in end.failure.message
        assert set(idle.lakefs.branches) == before

    def it_counts_a_commit_as_a_write(self, idle):
        idle.lakefs.commit("feature-1")
        assert idle.ends() == {"feature-2": "deleted"}
        idle.clock.wait(3)
        assert idle.ends() == {"feature-1": "deleted"}

    def it_counts_age_from_the_first_look_whatever_was_written(self, world):
        world.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=3 * DAY),)
        world.lakefs.branch("feature-1")
        world.run()
        world.clock.wait(4)
        world.lakefs.commit("feature-1")
        assert world.ends() == {"feature-1": "deleted"}

    def it_does_not_give_a_branch_made_anew_the_old_one_s_age(self, world):
        world.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=3 * DAY),)
        world.lakefs.branch("feature-1")
        world.lakefs.commit("feature-1")
        world.run()
        world.clock.wait(4)
        del world.lakefs.branches["feature-1"]
        world.lakefs.commit("main")
        world.lakefs.branch("feature-1")
        assert world.ends() == {}
        world.clock.wait(2)
        assert world.ends() == {}
        world.clock.wait(1)
        assert world.ends() == {"feature-1": "deleted"}

    def it_says_when_what_it_does_not_know_will_be_known(self, world):
        world.lakefs.branch("feature-1")
        found = world.outlooks().feature_1
        assert found.verdict.kept_by is Keep.NOT_CROSSED
        assert found.verdict.due == world.clock.now + timedelta(days=3)
        assert "seen for the first time" in found.notes[0]

    def it_shows_what_will_have_gone_by_a_future_date(self, world):
        world.lakefs.branch("feature-1")
        assert not world.outlooks().feature_1.verdict.deletes
        assert world.outlooks(in_days=3).feature_1.verdict.deletes

    def it_writes_nothing_while_planning(self, idle):
        before = dict(idle.state.records)
        idle.plan()
        assert idle.state.records == before
        assert not any(r.startswith(("delete", "create")) for r in idle.lakefs.requests)

    def it_takes_heads_dates_only_when_the_tree_says_so(self, world):
        world.lakefs.branch("feature-1")
        world.clock.wait(30)
        world.tree.settings = BranchSettings(assume_created="head_commit")
        assert world.ends() == {}
        assert world.ends() == {"feature-1": "deleted"}

    def it_does_not_say_that_age_is_still_to_count_where_it_counts_from_the_head(self, world):
        world.lakefs.branch("feature-1")
        world.clock.wait(1)
        world.tree.settings = BranchSettings(assume_created="head_commit")
        world.run()
        assert world.outlooks().feature_1.notes == ()

    def it_knows_that_a_branch_that_appears_later_is_new_even_then(self, world):
        world.tree.settings = BranchSettings(assume_created="head_commit")
        world.run()
        world.clock.wait(30)
        world.lakefs.branch("feature-1")
        assert "seen for the first time" in world.outlooks().feature_1.notes[0]
        assert world.ends() == {}

    def it_reads_the_ledger_once_and_writes_it_once_a_run(self, idle):
        idle.state.log.clear()
        idle.run()
        ledger = "branches/prod/analytics.json"
        assert idle.state.log.count(f"read {ledger}") == 1
        assert idle.state.log.count(f"write {ledger}") == 1


class DescribeUncommittedChanges:
    def it_keeps_a_branch_that_has_some(self, idle):
        idle.lakefs.stage("feature-1")
        assert idle.ends() == {"feature-2": "deleted"}
        found = idle.outlooks().feature_1
        assert found.verdict.kept_by is Keep.UNCOMMITTED
        assert len(found.staged.changes) == 1

    def it_reads_them_only_of_branches_that_would_go(self, idle):
        idle.lakefs.branch("other")
        idle.lakefs.requests.clear()
        idle.plan()
        assert {r for r in idle.lakefs.requests if r.startswith("diff")} == {
            "diff feature-1",
            "diff feature-2",
        }

    def it_counts_their_times_when_they_do_not_keep_the_branch(self, idle):
        idle.tree.settings = BranchSettings(keep_with_uncommitted=False)
        idle.lakefs.stage("feature-1")
        assert idle.ends() == {"feature-2": "deleted"}
        idle.clock.wait(3)
        assert idle.ends() == {"feature-1": "deleted"}
        record = read_deletions(idle.state, KEY, list_runs(idle.state, KEY)[-1])
        assert record.branches["feature-1"].uncommitted == 1

    def it_counts_a_staged_deletion_not_seen_before_as_a_write_now(self, idle):
        idle.tree.settings = BranchSettings(keep_with_uncommitted=False)
        idle.lakefs.stage("feature-1", kind="removed")
        assert "feature-1" not in idle.ends()
        idle.clock.wait(3)
        assert idle.ends() == {"feature-1": "deleted"}

    def it_counts_a_reset_as_a_write(self, idle):
        idle.lakefs.stage("feature-1")
        idle.run()
        idle.lakefs.staged_on.clear()
        assert "feature-1" not in idle.ends()
        idle.clock.wait(3)
        assert idle.ends() == {"feature-1": "deleted"}

    def it_never_deletes_over_more_than_it_can_list(self, idle):
        idle.tree.settings = BranchSettings(keep_with_uncommitted=False)
        idle.lakefs.stage("feature-1", more=True)
        for _ in range(3):
            assert "feature-1" not in idle.ends()
            idle.clock.wait(30)


class DescribeSettings:
    def it_keeps_exempt_branches_and_open_pull_requests(self, idle):
        idle.tree.settings = BranchSettings(exempt=("*-1",))
        idle.lakefs.pulls = [PullRequest("7", "feature-2", "main")]
        assert idle.ends() == {}
        found = idle.outlooks()
        assert found.feature_1.verdict.kept_by is Keep.EXEMPT
        assert found.feature_2.verdict.kept_by is Keep.OPEN_PULL_REQUEST

    def it_keeps_the_destination_of_an_open_pull_request(self, idle):
        idle.lakefs.pulls = [PullRequest("7", "other", "feature-2")]
        assert idle.ends() == {"feature-1": "deleted"}
        outlook = idle.outlooks().feature_2
        assert outlook.verdict.kept_by is Keep.OPEN_PULL_REQUEST
        assert [pull.id for pull in outlook.pulls] == ["7"]

    def it_keeps_the_destination_of_a_pull_request_that_is_opened_during_the_run(self, idle):
        def open_one(branch: str) -> None:
            idle.lakefs.pulls = [PullRequest("7", "other", "feature-2")]
            idle.clock.sleep(16)

        idle.lakefs.before_delete = open_one
        assert idle.ends() == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_deletes_only_merged_ones_when_asked_to(self, idle):
        idle.lakefs.commit("feature-1")
        idle.run()
        idle.clock.wait(4)
        idle.tree.settings = BranchSettings(require_merged=True)
        idle.lakefs.branch("feature-2")
        idle.run()
        idle.clock.wait(4)
        assert idle.ends() == {"feature-2": "deleted"}
        assert idle.outlooks().feature_1.verdict.kept_by is Keep.NOT_MERGED

    def it_leaves_min_keep(self, idle):
        idle.tree.settings = BranchSettings(min_keep=1)
        assert len(idle.ends()) == 1

    def it_refuses_a_pattern_that_matches_the_default_branch(self, idle):
        idle.tree.policies = (Policy("all", ("*",), max_age_seconds=1),)
        (repository,) = idle.run().repositories
        assert "'*' matches the default branch 'main'" in repository.failure.message
        assert "repositories/a.yaml:3:5" in repository.failure.where
        assert isinstance(ConfigError("x"), Exception)

    def it_keeps_everything_in_a_read_only_repository(self, idle):
        idle.lakefs.read_only = True
        assert idle.ends() == {}
        assert idle.outlooks().feature_1.verdict.kept_by is Keep.READ_ONLY


class DescribeGates:
    def it_stops_at_max_deleted_branches(self, idle):
        idle.tree.safety = Safety(max_deleted_branches=1)
        report = idle.run()
        assert {e.outcome.value for e in report.repositories[0].branches} == {"gate_refused"}
        assert run_exit_code(report) == 4
        assert len(idle.lakefs.branches) == 3
        assert idle.plan().refused

    def it_opens_by_an_override(self, idle):
        idle.tree.safety = Safety(max_deleted_branches=1)
        idle.tree.overrides = (
            Override(
                "analytics", "deleted-branches", 2, "clean-up", date(2026, 12, 31), Source("l.yaml", 1, 1)
            ),
        )
        assert set(idle.ends().values()) == {"deleted"}

    def it_still_observes_behind_a_refusal(self, idle):
        idle.tree.safety = Safety(max_deleted_branches=1)
        idle.lakefs.branch("feature-3")
        idle.run()
        assert "feature-3" in read_ledger(idle.state, KEY).ledger.branches


class DescribeTheSecondLook:
    def it_keeps_a_branch_whose_head_moved_since_the_plan_of_the_run(self, idle):
        idle.lakefs.before_delete = lambda branch: None
        looked = []

        def write_after_look():
            if not looked:
                looked.append(1)
                idle.lakefs.commit("feature-1")

        idle.lakefs.after_look = write_after_look
        assert idle.ends() == {"feature-1": "moved", "feature-2": "deleted"}
        assert "feature-1" in idle.lakefs.branches

    def it_keeps_a_branch_on_which_something_was_staged_meanwhile(self, idle, monkeypatch):
        answers = iter([StagedData(), StagedData()])

        def staged(repository, branch):
            found = next(answers, None)
            if found is not None:
                return found
            idle.lakefs.stage(branch)
            return idle.lakefs.staged_on[branch]

        monkeypatch.setattr(idle.lakefs, "staged", staged)
        assert idle.ends() == {"feature-1": "written", "feature-2": "written"}

    def it_leaves_alone_what_somebody_else_deleted(self, idle):
        def delete_the_other(branch):
            idle.lakefs.branches.pop("feature-2", None)

        idle.lakefs.before_delete = delete_the_other
        assert idle.ends() == {"feature-1": "deleted", "feature-2": "gone"}
        idle.undo()
        assert set(idle.lakefs.branches) == {"main", "feature-1"}

    def it_stands_a_branch_that_goes_while_it_looks(self, idle):
        idle.lakefs.after_look = lambda: idle.lakefs.branches.pop("feature-1", None)
        assert idle.ends() == {"feature-2": "deleted"}

    def it_deletes_nothing_that_a_reviewed_plan_does_not_have(self, idle):
        head = idle.lakefs.branches["feature-1"].commit_id
        assert idle.ends(reviewed={KEY: {"feature-1": ReviewedBranch(head)}}) == {
            "feature-1": "deleted",
            "feature-2": "not_reviewed",
        }

    def it_keeps_what_the_settings_of_the_reviewed_plan_keep(self, idle):
        """The tree weakened them since: what was staged after the review would be lost."""
        idle.tree.settings = BranchSettings(min_keep=1)
        plan = reviewed_of(json.loads(json.dumps(plan_document(idle.plan()))), "plan.json")
        assert set(plan.branches[KEY]) == {"feature-2"}
        idle.tree.settings = BranchSettings(keep_with_uncommitted=False)
        idle.lakefs.stage("feature-2")
        idle.clock.wait(4)
        tree, idle.tree = idle.tree, ReviewedTree(idle.tree, plan.settings)
        assert idle.ends(reviewed=plan.branches) == {"feature-1": "not_reviewed"}
        idle.tree = tree
        assert idle.ends(reviewed=plan.branches)["feature-2"] == "written"

    def it_keeps_to_the_limit_of_the_reviewed_plan(self, idle):
        idle.tree.safety = Safety(max_deleted_branches=1)
        plan = reviewed_of(json.loads(json.dumps(plan_document(idle.plan()))), "plan.json")
        idle.tree.safety = Safety(max_deleted_branches=20)
        idle.tree = ReviewedTree(idle.tree, plan.settings)
        assert set(idle.ends(reviewed=plan.branches).values()) == {"gate_refused"}

    @pytest.mark.parametrize("written", ["2026-01-01T00:00:00", "once", 5])
    def it_refuses_a_plan_with_a_last_write_that_is_no_moment(self, idle, written):
        document = json.loads(json.dumps(plan_document(idle.plan())))
        for branch in document["repositories"][0]["branches"]:
            branch["last_write"] = written
        with pytest.raises(FormatError, match="last_write"):
            reviewed_of(document, "plan.json")

    def it_refuses_a_plan_without_settings(self, idle):
        document = json.loads(json.dumps(plan_document(idle.plan())))
        del document["repositories"][0]["settings"]["lifecycle"]["exempt"]
        assert reviewed_of(document, "plan.json")  # the default
        del document["repositories"][0]["settings"]
        with pytest.raises(FormatError, match="settings"):
            reviewed_of(document, "plan.json")

    @pytest.mark.parametrize(("path", "outcome"), [(None, "deleted"), ("a", "written"), ("b", "written")])
    def it_keeps_uncommitted_changes_that_were_made_after_the_review(self, idle, path, outcome):
        """As many as in the plan, and at the same HEAD: they are others all the same."""
        idle.tree.settings = BranchSettings(keep_with_uncommitted=False)
        idle.tree.policies = (Policy("old", ("feature-1",), max_age_seconds=3 * DAY),)
        idle.run()
        idle.lakefs.branch("feature-1")
        idle.lakefs.stage("feature-1", "a")
        idle.run()
        idle.clock.wait(4)
        plan = reviewed_of(json.loads(json.dumps(plan_document(idle.plan()))), "plan.json")
        idle.clock.wait(1)
        if path is not None:
            idle.lakefs.staged_on.clear()
            idle.lakefs.stage("feature-1", path)
        assert idle.ends(reviewed=plan.branches) == {"feature-1": outcome}

    def it_keeps_what_moved_since_the_reviewed_plan(self, idle):
        idle.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=3 * DAY),)
        head = idle.lakefs.branches["feature-1"].commit_id
        idle.lakefs.commit("feature-1")
        assert idle.ends(reviewed={KEY: {"feature-1": ReviewedBranch(head)}})["feature-1"] == "moved"


class DescribeRefusals:
    def it_reports_a_hook_that_refuses_and_keeps_the_branch_and_its_age(self, idle):
        idle.lakefs.refuse["feature-1"] = PreconditionFailed("hook no-delete refused")
        report = idle.run()
        ends = {e.outlook.id: e for e in report.repositories[0].branches}
        assert ends["feature-1"].outcome.value == "hook_refused"
        assert "hook no-delete refused" in ends["feature-1"].message
        assert run_exit_code(report) == 0
        idle.lakefs.refuse.clear()
        assert idle.ends() == {"feature-1": "deleted"}

    def it_goes_on_when_one_branch_cannot_be_deleted(self, idle):
        idle.lakefs.refuse["feature-1"] = PermissionDenied("it needs fs:DeleteBranch")
        report = idle.run()
        assert [e.outcome.value for e in report.repositories[0].branches] == ["failed", "deleted"]
        assert run_exit_code(report) == 3

    @pytest.mark.parametrize("skew", [timedelta(minutes=6), timedelta(hours=25), timedelta(hours=-25)])
    def it_does_not_trust_a_clock_that_disagrees_with_the_server(self, idle, skew):
        idle.lakefs.skew = skew
        (repository,) = idle.run().repositories
        assert "clock" in repository.failure.message
        assert len(idle.lakefs.branches) == 3
        assert idle.state.list_keys("leases/") == []
        idle.lakefs.skew = timedelta(minutes=4)
        assert len(idle.ends()) == 2

    def it_judges_ages_by_the_earlier_clock(self, world):
        world.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=DAY),)
        world.lakefs.branch("feature-1")
        world.run()
        world.clock.now += timedelta(days=1, minutes=2)
        world.lakefs.skew = timedelta(minutes=-4)
        assert world.ends() == {}
        world.lakefs.skew = timedelta(minutes=4)
        assert set(world.ends()) == {"feature-1"}

    def it_does_nothing_where_the_server_deletes_itself(self, idle):
        idle.tree.engine = "server"
        report = idle.run()
        assert report.repositories == ()
        assert report.not_ours == (KEY,)
        assert len(idle.lakefs.branches) == 3

    def it_says_so_when_there_are_no_policies(self, idle):
        idle.tree.engine = "none"
        with pytest.raises(UsageError, match="no selected repository"):
            idle.run()


class DescribeHidden:
    def it_deletes_hidden_branches_too_and_remembers_that_they_were(self, idle):
        idle.run()
        record = read_deletions(idle.state, KEY, list_runs(idle.state, KEY)[-1])
        assert {n: d.hidden for n, d in record.branches.items()} == {"feature-1": False, "feature-2": True}


def it_leaves_the_ledger_of_a_branch_alone_that_only_moved(idle):
    idle.lakefs.commit("feature-1")
    idle.run()
    record = read_ledger(idle.state, KEY).ledger.branches["feature-1"]
    assert record == replace(record, first=int((idle.clock.now - timedelta(days=4)).timestamp()))
