"""Undo: what is restored, what cannot be, and what is reported."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest

from lakeplan.branches import deleting
from lakeplan.branches.deleting import AT_ONCE
from lakeplan.branches.deletion_records import list_runs, read_deletions, record_heads
from lakeplan.branches.documents import undo_exit_code
from lakeplan.errors import PermissionDenied, ServerUnreachable, UnexpectedAnswer, UsageError
from lakeplan.review.history import list_runs as list_history
from lakeplan.values.desired import BranchSettings, Safety
from lakeplan.values.rules import GcRules

KEY = "prod/analytics"


@pytest.fixture
def deleted(world):
    """A run that deleted two branches: one with commits of its own, one hidden."""
    world.lakefs.rules = GcRules(21)
    world.lakefs.branch("feature-1")
    world.lakefs.commit("feature-1")
    world.lakefs.branch("feature-2", hidden=True)
    world.run()
    world.clock.wait(4)
    world.heads = {n: b for n, b in world.lakefs.branches.items() if n != "main"}
    assert set(world.ends().values()) == {"deleted"}
    return world


def ends(report) -> dict[str, str]:
    return {b.branch_id: b.outcome.value for r in report.repositories for b in r.branches}


def it_brings_branches_back_at_their_heads_hidden_ones_hidden(deleted):
    assert ends(deleted.undo()) == {"feature-1": "restored", "feature-2": "restored"}
    assert {n: b for n, b in deleted.lakefs.branches.items() if n != "main"} == deleted.heads


def it_does_not_see_them_go_again_at_the_next_run(deleted):
    deleted.undo()
    assert deleted.ends() == {}
    deleted.clock.wait(2.9)
    assert deleted.ends() == {}
    deleted.clock.wait(0.1)
    assert len(deleted.ends()) == 2


def it_leaves_a_branch_of_that_name_alone(deleted):
    deleted.lakefs.branch("feature-1", "main")
    report = deleted.undo()
    assert ends(report) == {"feature-1": "exists", "feature-2": "restored"}
    assert deleted.lakefs.branches["feature-1"] != deleted.heads["feature-1"]
    message = report.repositories[0].branches[0].message
    assert message.endswith(f"the deleted branch was at {deleted.heads['feature-1'].commit_id}")


def it_brings_branches_back_when_the_engine_was_turned_off_since(deleted):
    deleted.tree.engine = "none"
    assert ends(deleted.undo()) == {"feature-1": "restored", "feature-2": "restored"}


def it_fails_only_the_repository_whose_record_is_damaged(deleted):
    (key,) = deleted.state.list_keys("deletions/")
    other = key.replace("/analytics/", "/other/")
    deleted.state.write(other, b"{", if_version=None)
    (repository,) = deleted.tree.resolve("prod", ())
    deleted.tree.resolve = lambda server, live: [repository, replace(repository, name="other")]
    report = deleted.undo()
    assert ends(report) == {"feature-1": "restored", "feature-2": "restored"}
    failed = {r.repository: r.failure for r in report.repositories if r.failure is not None}
    assert set(failed) == {"prod/other"}
    assert "damaged" in failed["prod/other"].message
    assert undo_exit_code(report) == 3


def it_brings_back_only_the_branches_that_are_named(deleted):
    assert ends(deleted.undo(None, "feature-2")) == {"feature-2": "restored"}
    assert ends(deleted.undo()) == {"feature-1": "restored"}


def it_has_nothing_to_do_a_second_time(deleted):
    deleted.undo()
    with pytest.raises(UsageError, match="no record of any run"):
        deleted.undo()


def it_undoes_a_named_run(deleted):
    run = list_runs(deleted.state, KEY)[-1]
    with pytest.raises(UsageError, match="no record of run nope"):
        deleted.undo("nope")
    assert len(ends(deleted.undo(run))) == 2


def it_warns_of_records_of_repositories_that_are_not_in_the_tree(deleted, caplog):
    deleted.state.write("deletions/old/analytics/run-000.json", b"{}", if_version=None)
    assert len(ends(deleted.undo())) == 2
    assert "not in the tree: old/analytics." in caplog.text


def it_says_until_when_the_commits_are_safe(deleted):
    record = read_deletions(deleted.state, KEY, list_runs(deleted.state, KEY)[-1])
    made = deleted.clock.now - timedelta(days=4)
    assert record.branches["feature-1"].safe_until[:10] == f"{made + timedelta(days=20):%Y-%m-%d}" or (
        record.branches["feature-1"].safe_until[:10] == f"{made + timedelta(days=21):%Y-%m-%d}"
    )
    warnings = deleted.undo().repositories[0].branches[0].warnings
    assert warnings == ()


def it_warns_once_that_is_past_and_when_data_is_gone(deleted):
    deleted.clock.wait(30)
    deleted.lakefs.gone_objects = 3
    (first, _) = deleted.undo().repositories[0].branches
    assert any("were safe until" in w for w in first.warnings)
    assert any("a collection has run since the deletion: 3 of 4" in w for w in first.warnings)


def it_says_that_uncommitted_changes_cannot_come_back(world):
    world.tree.settings = BranchSettings(keep_with_uncommitted=False)
    world.lakefs.branch("feature-1")
    world.lakefs.stage("feature-1")
    world.lakefs.stage("feature-1", "b")
    world.run()
    world.clock.wait(4)
    assert world.ends() == {"feature-1": "deleted"}
    (branch,) = world.undo().repositories[0].branches
    assert any(w.startswith("2 uncommitted changes were lost") for w in branch.warnings)


def it_goes_on_when_one_branch_cannot_be_made(deleted, monkeypatch):
    original = deleted.lakefs.create_branch

    def refuse(repository, branch):
        if branch.id == "feature-1":
            raise PermissionDenied("it needs fs:CreateBranch")
        original(repository, branch)

    monkeypatch.setattr(deleted.lakefs, "create_branch", refuse)
    report = deleted.undo()
    assert ends(report) == {"feature-1": "failed", "feature-2": "restored"}
    assert undo_exit_code(report) == 3


@pytest.mark.parametrize("steps", range(9))
def it_can_be_killed_at_any_point(deleted, killed, steps):
    deleted.kill_after(steps)
    with contextlib.suppress(killed):  # it may be done already
        deleted.undo()
    deleted.kill_after(None)
    try:
        deleted.undo()
    except UsageError:
        assert steps > 3  # the killed one had brought everything back
    assert {n: b for n, b in deleted.lakefs.branches.items() if n != "main"} == deleted.heads


@pytest.mark.parametrize("created", [0, 1])
def it_is_in_the_history_with_what_it_may_have_restored_when_it_is_killed(deleted, killed, created):
    deleted.kill_after(2 + created)  # after the lease and the history
    with pytest.raises(killed):
        deleted.undo()
    deleted.kill_after(None)
    last = list_history(deleted.state).runs[0]
    (step,) = last.steps
    assert (last.command, last.finished_at, step.status) == ("branches undo", None, "pending")
    assert step.counts == {"pending": 2}
    assert {name: branch.head for name, branch in step.branches.items()} == {
        name: branch.commit_id for name, branch in deleted.heads.items()
    }


def it_restores_nothing_that_it_cannot_record(deleted, monkeypatch):
    write = deleted.state.write

    def refuse(key, data, **more):
        if key.startswith("history/"):
            raise PermissionDenied("the state cannot be written")
        return write(key, data, **more)

    monkeypatch.setattr(deleted.state, "write", refuse)
    report = deleted.undo()
    assert "cannot be written" in report.repositories[0].failure.message
    assert set(deleted.lakefs.branches) == {"main"}


def it_finds_a_branch_whose_deletion_was_never_answered(world):
    world.lakefs.branch("feature-1")
    world.run()
    world.clock.wait(4)
    original = world.lakefs.delete_branch

    def hang(repository, branch):
        raise ServerUnreachable("the server did not respond within the time limit")

    world.lakefs.delete_branch = hang
    assert world.ends() == {"feature-1": "uncertain"}
    original("analytics", "feature-1")  # the server gets to it later
    assert ends(world.undo()) == {"feature-1": "restored"}


class DescribeALostAnswer:
    @pytest.fixture
    def one(self, world):
        """A run deleted ``feature-1``."""
        world.lakefs.branch("feature-1")
        world.run()
        world.clock.wait(4)
        assert world.ends() == {"feature-1": "deleted"}
        return world

    @staticmethod
    def lost(world, monkeypatch, error, act):
        def lose(repository, branch):
            world.lakefs.requests.append(f"create {branch.id}")
            act(branch)
            raise error

        monkeypatch.setattr(world.lakefs, "create_branch", lose)

    @pytest.fixture(params=[ServerUnreachable("no answer"), UnexpectedAnswer("boom", status=500)])
    def error(self, request):
        return request.param

    def it_is_restored_when_the_branch_is_there(self, one, monkeypatch, error):
        branches = one.lakefs.branches
        self.lost(one, monkeypatch, error, lambda branch: branches.update({branch.id: branch}))
        assert ends(one.undo()) == {"feature-1": "restored"}

    def it_leaves_alone_what_somebody_created_meanwhile(self, one, monkeypatch, error):
        self.lost(one, monkeypatch, error, lambda branch: one.lakefs.commit("feature-1", "main"))
        assert ends(one.undo()) == {"feature-1": "exists"}
        assert one.lakefs.requests.count("create feature-1") == 1

    def it_is_uncertain_only_where_the_server_did_not_answer_at_all(self, one, monkeypatch, error):
        self.lost(one, monkeypatch, error, lambda branch: None)
        report = one.undo()
        uncertain = isinstance(error, ServerUnreachable)
        assert ends(report) == {"feature-1": "uncertain" if uncertain else "failed"}
        assert undo_exit_code(report) == (3 if uncertain else 1)


def it_brings_back_what_a_server_s_own_job_deleted_when_it_was_seen(world):
    world.tree.engine = "server"
    world.lakefs.branch("feature-1", hidden=True)
    head = world.lakefs.branches["feature-1"]
    record_heads(world.state, KEY, world.lakefs.branches.values(), world.this_run())
    del world.lakefs.branches["feature-1"]
    with pytest.raises(UsageError):
        world.undo()
    assert ends(world.undo(None, "feature-1")) == {"feature-1": "restored"}
    assert world.lakefs.branches["feature-1"] == head


class DescribeManyBranches:
    """More than a batch: the record is not written whole for each of them."""

    BATCH, COUNT = 5, 12

    @pytest.fixture
    def many(self, world, monkeypatch):
        monkeypatch.setattr(deleting, "SAVE_EVERY", self.BATCH)
        world.tree.safety = Safety(max_deleted_branches=None)
        for number in range(self.COUNT):
            world.lakefs.branch(f"feature-{number:04}")
        world.run()
        world.clock.wait(4)
        assert len(world.ends()) == self.COUNT
        world.state.log.clear()
        return world

    def writes(self, world) -> int:
        return sum(line.startswith("write deletions/") for line in world.state.log)

    def it_stores_a_record_a_batch_and_every_branch_is_in_it(self, many):
        assert set(ends(many.undo()).values()) == {"restored"}
        assert self.writes(many) == 3
        with pytest.raises(UsageError):
            many.undo()

    @pytest.mark.parametrize(("made", "code"), [(0, 1), (BATCH + 2, 3)])
    def it_reports_what_it_did_not_come_to_when_it_is_asked_to_stop(self, many, monkeypatch, made, code):
        original = many.lakefs.create_branch

        def create(repository, branch):
            original(repository, branch)
            many.stop = len(many.lakefs.branches) > made

        monkeypatch.setattr(many.lakefs, "create_branch", create)
        many.stop = made == 0
        report = many.undo()
        left = self.COUNT - len(ends(report))
        assert left
        (repository,) = report.repositories
        assert f"{left} of {self.COUNT} branches were not restored" in repository.failure.message
        assert undo_exit_code(report) == code
        many.stop = False
        monkeypatch.setattr(many.lakefs, "create_branch", original)
        assert len(ends(many.undo())) == left

    def it_loses_at_most_a_batch_when_it_is_killed(self, many, killed, monkeypatch):
        original, made = many.lakefs.create_branch, []

        def create(repository, branch):
            if len(made) == self.BATCH + 2:
                raise killed
            made.append(branch.id)
            original(repository, branch)

        monkeypatch.setattr(many.lakefs, "create_branch", create)
        with pytest.raises(killed):
            many.undo()
        monkeypatch.setattr(many.lakefs, "create_branch", original)
        found = ends(many.undo())
        assert len(found) == self.COUNT - self.BATCH
        assert set(many.lakefs.branches) > set(found)
        assert all(found[name] == "exists" for name in made[self.BATCH :])
        with pytest.raises(UsageError):
            many.undo()  # all are settled, so that an older run can be undone

    def it_keeps_a_deletion_on_record_that_may_still_take_effect(self, many, killed):
        many.undo()
        many.run()
        many.clock.wait(4)
        many.kill_after(5)  # at the first deletion
        with pytest.raises(killed):
            many.run()
        many.kill_after(None)
        heads = dict(many.lakefs.branches)
        assert set(ends(many.undo()).values()) == {"exists"}
        del many.lakefs.branches["feature-0000"]
        many.undo()
        assert many.lakefs.branches == heads

    def it_reads_the_data_of_a_commit_that_they_share_once(self, many, monkeypatch):
        asked = []
        original = many.lakefs.readable_sample
        monkeypatch.setattr(
            many.lakefs, "readable_sample", lambda *args: asked.append(args) or original(*args)
        )
        many.undo()
        assert 1 <= len(asked) <= AT_ONCE
