"""Two runs at once, and runs that are killed at any point."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakeplan.branches import run
from lakeplan.branches.deletion_records import list_runs, read_deletions
from lakeplan.branches.documents import run_exit_code
from lakeplan.errors import ServerUnreachable
from lakeplan.state.store import LEASE_GRACE
from lakeplan.values.desired import Policy

KEY = "prod/analytics"
DAY = 86400


class DescribeTwoRunsAtOnce:
    def it_processes_no_branch_twice(self, idle):
        idle.gone = False
        inner = []

        def run_inside(branch):
            if not inner:
                inner.append(None)
                inner[0] = idle.run()

        idle.lakefs.before_delete = run_inside
        assert set(idle.ends().values()) == {"deleted"}
        (second,) = inner[0].repositories
        assert second.branches == ()
        assert "another run" in second.failure.message
        assert run_exit_code(inner[0]) == 5
        assert [r for r in idle.lakefs.requests if r.startswith("delete")] == [
            "delete feature-1",
            "delete feature-2",
        ]

    @pytest.mark.parametrize("last", [False, True])
    def it_stops_when_its_lease_was_taken_over(self, idle, last):
        def stall(branch):
            if last and branch != "feature-2":
                return
            # The lease and its grace pass, and another run takes the repository.
            idle.lakefs.before_delete = lambda branch: None
            idle.clock.now += timedelta(seconds=121) + LEASE_GRACE
            idle.gone = False
            other.append(idle.run())

        other = []
        idle.lakefs.before_delete = stall
        (first,) = idle.run().repositories
        (second,) = other[0].repositories
        assert second.failure is None
        assert first.failure is not None
        # The second run cannot know what the first is at: it takes both branches for new ones.
        asked = [r for r in idle.lakefs.requests if r.startswith("delete")]
        assert asked == ["delete feature-1", *["delete feature-2"] * last]
        assert ("feature-2" in idle.lakefs.branches) is not last
        idle.undo()
        assert set(idle.lakefs.branches) == {"main", "feature-1", "feature-2"}


class DescribeTheLeases:
    @pytest.mark.parametrize("error", [ServerUnreachable("no answer"), KeyboardInterrupt()], ids=repr)
    @pytest.mark.parametrize("step", ["give_notice", "weigh", "finish"])
    def it_releases_all_when_a_run_fails_before_it_deletes(self, idle, monkeypatch, error, step):
        def fail(*args, **more):
            assert idle.state.list_keys("leases/")
            raise error

        monkeypatch.setattr(run._Runner, step, fail)
        with pytest.raises(type(error)):
            idle.run()
        assert idle.state.list_keys("leases/") == []

    def it_releases_all_when_it_is_interrupted_while_it_inspects(self, idle, monkeypatch):
        inspect = run._Runner.inspect

        def interrupted(self, desired):
            inspect(self, desired)
            raise KeyboardInterrupt

        monkeypatch.setattr(run._Runner, "inspect", interrupted)
        with pytest.raises(KeyboardInterrupt):
            idle.run()
        assert idle.state.list_keys("leases/") == []


class DescribeBeingKilled:
    @pytest.mark.parametrize("steps", range(14))
    def it_can_be_killed_at_any_point(self, idle, killed, steps):
        heads = {n: b for n, b in idle.lakefs.branches.items() if n != "main"}
        idle.kill_after(steps)
        try:
            idle.run()
            finished = True
        except killed:
            finished = False
        idle.kill_after(None)
        assert finished == (steps >= 12), "the number of steps of a run changed: check every one"
        missing = {n for n in heads if n not in idle.lakefs.branches}
        # Undo works at once: everything that is gone comes back as it was.
        if missing:
            idle.undo()
        assert {n: b for n, b in idle.lakefs.branches.items() if n != "main"} == heads

    @pytest.mark.parametrize("steps", range(12))
    def it_is_finished_by_the_next_run(self, idle, killed, steps):
        idle.kill_after(steps)
        with pytest.raises(killed):
            idle.run()
        idle.kill_after(None)
        idle.run()
        idle.clock.wait(4)
        idle.run()
        assert set(idle.lakefs.branches) == {"main"}
        assert all(read_deletions(idle.state, KEY, r).finished for r in list_runs(idle.state, KEY))

    @pytest.mark.parametrize("steps", range(12))
    def it_does_not_give_a_new_branch_the_age_of_one_that_a_killed_run_deleted(self, idle, killed, steps):
        idle.kill_after(steps)
        with pytest.raises(killed):
            idle.run()
        idle.kill_after(None)
        gone = {"feature-1", "feature-2"} - set(idle.lakefs.branches)
        for name in gone:
            idle.lakefs.branch(name)
        assert not gone & set(idle.ends())

    def it_can_undo_a_deletion_after_which_somebody_made_another_branch_of_the_name(self, idle, killed):
        head = idle.lakefs.commit("feature-1")
        idle.run()
        idle.clock.wait(4)
        idle.kill_after(6)  # after the first deletion
        with pytest.raises(killed):
            idle.run()
        idle.kill_after(None)
        idle.lakefs.branch("feature-1")
        idle.run()
        del idle.lakefs.branches["feature-1"]
        idle.undo(None, "feature-1")
        assert idle.lakefs.branches["feature-1"].commit_id == head

    @pytest.mark.parametrize("runs", [1, 2])
    def it_can_undo_a_deletion_that_the_server_carries_out_after_the_next_run(self, idle, killed, runs):
        """A hook may hold the killed run's request back for a while."""
        head = idle.lakefs.branches["feature-1"].commit_id
        idle.kill_after(5)  # at the first deletion
        with pytest.raises(killed):
            idle.run()
        idle.kill_after(None)
        for _ in range(runs):
            assert idle.ends() == {}
        del idle.lakefs.branches["feature-1"]
        idle.run()
        idle.undo()
        assert idle.lakefs.branches["feature-1"].commit_id == head
        assert "feature-2" in idle.lakefs.branches

    def it_remembers_what_two_killed_runs_in_a_row_may_have_deleted(self, idle, killed):
        old, other = idle.tree.policies, (Policy("other", ("other-*",), max_age_seconds=DAY),)
        idle.lakefs.branch("other-1")
        idle.tree.policies = other
        idle.run()
        idle.clock.wait(2)
        idle.tree.policies = old
        for policies, steps in ((old, 6), (other, 5)):  # after the first deletion; after the record
            idle.tree.policies = policies
            idle.kill_after(steps)
            with pytest.raises(killed):
                idle.run()
        idle.kill_after(None)
        assert set(idle.lakefs.branches) == {"main", "feature-2", "other-1"}
        idle.lakefs.branch("feature-1")
        idle.tree.policies = (*old, *other)
        assert idle.ends() == {}
        idle.clock.wait(3)
        assert set(idle.ends()) == {"feature-1", "feature-2", "other-1"}

    def it_stops_cleanly_when_asked_to(self, idle):
        idle.lakefs.before_delete = lambda branch: setattr(idle, "stop", True)
        report = idle.run()
        assert [e.outcome.value for e in report.repositories[0].branches] == ["deleted", "stopped"]
        idle.stop = False
        assert idle.ends() == {"feature-2": "deleted"}
