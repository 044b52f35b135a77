"""One deletion: answers that are lost, and everything that keeps a branch read just before."""

from __future__ import annotations

import pytest

from lakeplan.branches import run, survey
from lakeplan.branches.deletion_records import Fate, list_runs, read_deletions
from lakeplan.branches.documents import run_exit_code
from lakeplan.branches.recall import read_ledger
from lakeplan.errors import ServerUnreachable, UnexpectedAnswer
from lakeplan.values.branches import Keep, PullRequest
from lakeplan.values.desired import BranchSettings, Policy
from lakeplan.values.repository import Tag
from lakeplan.values.sweep import Hold

KEY = "prod/analytics"
DAY = 86400


def deletions(world) -> list[str]:
    return [r for r in world.lakefs.requests if r.startswith("delete")]


def record_of(world, branch):
    return read_deletions(world.state, KEY, list_runs(world.state, KEY)[-1]).branches[branch]


@pytest.fixture
def one(world):
    """``feature-1``, which the policy deletes now."""
    world.lakefs.branch("feature-1")
    world.run()
    world.clock.wait(4)
    return world


class DescribeALostAnswer:
    @pytest.fixture(params=["no answer", 500, 502, 503])
    def error(self, request):
        if request.param == "no answer":
            return ServerUnreachable("no answer")
        return UnexpectedAnswer("busy", status=request.param)

    @staticmethod
    def lose(world, monkeypatch, error, *, acted, then=lambda: None, times=1):
        """The answers to the next deletions are lost; ``then`` happens before anything is read again."""
        original, left = world.lakefs.delete_branch, [None] * times

        def delete(repository, branch):
            if not left:
                return original(repository, branch)
            left.pop()
            if acted:
                original(repository, branch)
            else:
                world.lakefs.requests.append(f"delete {branch}")
            then()
            raise error

        monkeypatch.setattr(world.lakefs, "delete_branch", delete)

    def it_is_deleted_when_the_branch_is_gone(self, one, monkeypatch, error):
        self.lose(one, monkeypatch, error, acted=True)
        assert one.ends() == {"feature-1": "deleted"}
        assert len(deletions(one)) == 1
        one.undo()
        assert "feature-1" in one.lakefs.branches

    @pytest.mark.parametrize("work", ["a commit", "something staged"])
    def it_leaves_a_branch_that_was_made_again_with_new_work(self, one, monkeypatch, error, work):
        head = one.lakefs.branches["feature-1"].commit_id

        def make_again():
            one.lakefs.branch("feature-1")
            if work == "a commit":
                one.lakefs.commit("feature-1")
            else:
                one.lakefs.stage("feature-1")

        self.lose(one, monkeypatch, error, acted=True, then=make_again)
        one.run()
        assert len(deletions(one)) == 1
        assert "feature-1" in one.lakefs.branches
        record = record_of(one, "feature-1")
        assert (record.fate, record.head) == (Fate.INTENDED, head)
        if work == "a commit":
            assert record.found == one.lakefs.branches["feature-1"].commit_id
        # Whatever it is, its age counts anew.
        assert "feature-1" not in read_ledger(one.state, KEY).ledger.branches
        one.clock.wait(2)
        one.run()
        assert "feature-1" in one.lakefs.branches

    def it_judges_again_before_a_second_try(self, one, monkeypatch):
        error = UnexpectedAnswer("busy", status=503)
        pull = PullRequest("1", "feature-1", "main")
        self.lose(one, monkeypatch, error, acted=False, then=lambda: one.lakefs.pulls.append(pull))
        assert one.ends() == {"feature-1": "newly_kept"}
        assert len(deletions(one)) == 1

    def it_tries_again_when_everything_is_as_it_was_judged(self, one, monkeypatch):
        self.lose(one, monkeypatch, UnexpectedAnswer("busy", status=503), acted=False)
        assert one.ends() == {"feature-1": "deleted"}
        assert len(deletions(one)) == 2

    def it_gives_up_on_a_server_that_refuses_each_time(self, one, monkeypatch):
        self.lose(one, monkeypatch, UnexpectedAnswer("busy", status=503), acted=False, times=9)
        report = one.run()
        assert [e.outcome.value for e in report.repositories[0].branches] == ["failed"]
        assert len(deletions(one)) == 3
        assert run_exit_code(report) == 3

    def it_does_not_run_a_hook_twice_that_takes_long(self, one, monkeypatch):
        self.lose(
            one,
            monkeypatch,
            ServerUnreachable("the server did not respond within the time limit"),
            acted=False,
        )
        report = one.run()
        assert [e.outcome.value for e in report.repositories[0].branches] == ["uncertain"]
        assert len(deletions(one)) == 1
        assert run_exit_code(report) == 3

    def it_waits_longer_than_caches_last_before_it_believes_that_a_branch_is_there(
        self, one, monkeypatch, error
    ):
        head, stale = one.lakefs.branches["feature-1"].commit_id, [True] * 3
        original = one.lakefs.find_branch

        def find(repository, branch):
            gone = "feature-1" not in one.lakefs.branches
            return head if gone and stale and stale.pop() else original(repository, branch)

        monkeypatch.setattr(one.lakefs, "find_branch", find)
        self.lose(one, monkeypatch, error, acted=True)
        assert one.ends() == {"feature-1": "deleted"}


class DescribeWhatKeepsABranch:
    """Everything is read again just before a deletion, not only when the run began."""

    def kept(self, world, change) -> dict[str, str]:
        """``change`` happens during the run, after the survey and the first deletion, a minute later."""

        def act(branch):
            world.lakefs.before_delete = lambda branch: None
            world.clock.sleep(60)
            change()

        world.lakefs.before_delete = act
        return world.ends()

    def it_is_a_pull_request_that_was_opened(self, idle):
        pull = PullRequest("1", "feature-2", "main")
        found = self.kept(idle, lambda: idle.lakefs.pulls.append(pull))
        assert found == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_a_branch_protection_rule(self, idle):
        found = self.kept(idle, lambda: idle.lakefs.protected.append("feature-?"))
        assert found == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_being_the_default_branch(self, idle):
        found = self.kept(idle, lambda: setattr(idle.lakefs, "default_branch", "feature-2"))
        assert found == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_a_repository_that_became_read_only(self, idle):
        found = self.kept(idle, lambda: setattr(idle.lakefs, "read_only", True))
        assert found == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_a_repository_that_was_made_again(self, idle):
        found = self.kept(idle, lambda: setattr(idle.lakefs, "created", 8))
        assert found == {"feature-1": "deleted", "feature-2": "failed"}

    def it_is_a_default_branch_that_lost_its_commits(self, idle):
        idle.tree.settings = BranchSettings(require_merged=True)
        other = idle.lakefs.commits[idle.lakefs.commit("other", "0" * 64)]
        idle.lakefs.commits[other.id] = type(other)(other.id, other.creation_us, "", ())
        found = self.kept(idle, lambda: idle.lakefs.branches.update(main=idle.lakefs.branches["other"]))
        assert found == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_not_a_default_branch_that_went_on(self, idle):
        idle.tree.settings = BranchSettings(require_merged=True)
        found = self.kept(idle, lambda: idle.lakefs.commit("main"))
        assert set(found.values()) == {"deleted"}

    def it_is_min_keep_when_somebody_deleted_those_that_were_to_stay(self, world):
        for name in ("feature-1", "feature-2"):
            world.lakefs.branch(name)
        world.run()
        world.clock.wait(4)
        world.lakefs.branch("feature-8")
        world.lakefs.branch("feature-9")
        world.tree.settings = BranchSettings(min_keep=2)

        def change():
            del world.lakefs.branches["feature-8"]

        assert self.kept(world, change) == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_min_keep_which_counts_no_pin_that_was_moved(self, world):
        world.tree.policies = (Policy("old", ("*-*",), max_idle_seconds=3 * 86400),)
        world.tree.settings = BranchSettings(min_keep=1)
        for name in ("feature-1", "feature-2", "lakeplan-pin-0123456789ab"):
            world.lakefs.branch(name)
        world.run()
        world.clock.wait(4)
        world.lakefs.branch("feature-8")

        def change():
            del world.lakefs.branches["feature-8"]

        assert self.kept(world, change) == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_an_object_written_again_under_its_path(self, idle):
        idle.tree.settings = BranchSettings(keep_with_uncommitted=False)
        idle.lakefs.stage("feature-2")
        idle.run()
        idle.lakefs.branch("feature-1")
        idle.run()
        idle.clock.wait(4)

        def write_again():
            idle.lakefs.times["feature-2/a"] = idle.clock.now

        assert self.kept(idle, write_again) == {"feature-1": "deleted", "feature-2": "written"}

    def it_is_a_hold_on_a_commit_that_only_this_branch_leads_to_by_now(self, idle):
        held = idle.lakefs.commit("feature-2")
        idle.run()
        idle.lakefs.branch("feature-1")
        idle.lakefs.branch("other", "feature-2")
        idle.run()
        idle.clock.wait(4)
        idle.tree.holds = (Hold("commit", held),)
        found = self.kept(idle, lambda: idle.lakefs.branches.pop("other"))
        assert found == {"feature-1": "deleted", "feature-2": "newly_kept"}

    @pytest.fixture
    def shared(self, idle):
        """The HEAD of ``feature-2``, which ``other`` and ``third`` lead to as well."""
        held = idle.lakefs.commit("feature-2")
        idle.run()
        idle.lakefs.branch("feature-1")
        for name in ("other", "third"):
            idle.lakefs.branch(name, "feature-2")
        idle.run()
        idle.clock.wait(4)
        return held

    @pytest.mark.parametrize("moved", [False, True])
    def it_is_a_hold_on_a_commit_that_others_lead_to_until_the_refs_are_read(
        self, idle, shared, monkeypatch, moved
    ):
        idle.tree.holds = (Hold("commit", shared),)
        original = survey.read_all_refs

        def slow(*args, **more):
            found = original(*args, **more)
            if "other" not in idle.lakefs.branches:
                idle.clock.sleep(300)
                idle.lakefs.branches["third"] = idle.lakefs.branches["main"]
                if not moved:
                    del idle.lakefs.branches["third"]
            return found

        monkeypatch.setattr(survey, "read_all_refs", slow)
        found = self.kept(idle, lambda: idle.lakefs.branches.pop("other"))
        assert found == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_a_hold_on_a_tag_that_somebody_deletes(self, idle, shared):
        for name in ("other", "third"):
            del idle.lakefs.branches[name]
        idle.lakefs.tags = [Tag("v1", shared)]
        idle.tree.holds = (Hold("tag", "v1"),)
        found = self.kept(idle, idle.lakefs.tags.clear)
        assert found == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_read_again_after_a_pin_had_to_be_given_another_rule(self, idle, monkeypatch):
        class Pins:
            def before_deleting(self, branch, commit):
                idle.clock.sleep(16)
                if branch == "feature-2":
                    idle.lakefs.commit("feature-2")

        monkeypatch.setattr(run._Runner, "_pins", lambda runner, held: Pins())
        assert idle.ends() == {"feature-1": "deleted", "feature-2": "moved"}

    def it_is_listed_once_in_fifteen_seconds_and_not_once_a_branch(self, world):
        for n in range(30):
            world.lakefs.branch(f"feature-{n}")
        world.tree.safety = type(world.tree.safety)(max_deleted_branches=99)
        world.run()
        world.clock.wait(4)
        world.lakefs.requests.clear()
        world.lakefs.before_delete = lambda branch: world.clock.sleep(1)
        assert set(world.ends().values()) == {"deleted"}
        # Once in the survey, then at 0, 16, and so on.
        assert world.lakefs.requests.count("pulls") == 3

    def it_is_never_older_than_fifteen_seconds_when_a_branch_is_deleted(self, idle, monkeypatch):
        original = idle.lakefs.staged

        def slow(repository, branch):
            idle.clock.sleep(20)
            return original(repository, branch)

        monkeypatch.setattr(idle.lakefs, "staged", slow)
        report = idle.run()
        ends = [(e.outcome.value, e.message) for e in report.repositories[0].branches]
        assert {outcome for outcome, _ in ends} == {"failed"}
        assert "15 seconds" in ends[0][1]
        assert deletions(idle) == []


class DescribeProtection:
    def it_keeps_a_branch_although_the_server_would_let_it_be_deleted(self, idle):
        idle.lakefs.protected = ["feature-1"]
        assert idle.ends() == {"feature-2": "deleted"}
        assert idle.outlooks().feature_1.verdict.kept_by is Keep.PROTECTED

    def it_keeps_nothing_where_the_tree_says_so(self, idle):
        idle.tree.settings = BranchSettings(keep_protected=False)
        idle.lakefs.protected = ["*"]
        assert set(idle.ends().values()) == {"deleted"}
        assert "protection" not in idle.lakefs.requests


def it_forgets_the_age_of_a_branch_that_somebody_else_deleted(idle):
    idle.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=3 * DAY),)
    idle.lakefs.before_delete = lambda branch: idle.lakefs.branches.pop("feature-2", None)
    assert idle.ends()["feature-2"] == "gone"
    idle.lakefs.before_delete = lambda branch: None
    idle.lakefs.branch("feature-2")
    assert idle.ends() == {}
