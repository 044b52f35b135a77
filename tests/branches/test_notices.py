"""Notices and exemptions: no branch is deleted without a notice, or despite an exemption."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from lakeplan.branches.announce import ExemptOptions, exempt_branch
from lakeplan.branches.documents import plan_document
from lakeplan.branches.notices import LAPSE, read_exemptions, read_notices
from lakeplan.errors import FormatError, LakeplanError, StorageError, UsageError, WriteConflict
from lakeplan.review.history import list_runs
from lakeplan.values.branches import Keep, branch_row
from lakeplan.values.desired import BranchSettings, Policy, Safety
from lakeplan.values.notify import Event, Item, SentMessage
from lakeplan.values.rules import GcRules
from lakeplan.values.sweep import Hold

KEY = "prod/analytics"
DAY = 86400
PERIOD = 3 * DAY


class Board:
    """A publisher that remembers. ``problem``: it refuses with it."""

    def __init__(self, world) -> None:
        self.world = world
        self.items: list[Item] = []
        self.problem = ""
        self.takes = 0.0

    def publish(self, event: Event, title: str, items: Sequence[Item], hint: str = "") -> list[SentMessage]:
        assert event is Event.BRANCH_DELETION
        self.world.clock.sleep(self.takes)
        if not self.problem:
            self.items += items
        return [SentMessage(tuple(items), "ops", self.problem)]

    @property
    def branches(self) -> list[object]:
        return [item.facts["branch"] for item in self.items]


@pytest.fixture
def board(idle, monkeypatch):
    """``feature-1`` and ``feature-2`` are due; three days of notice."""
    idle.tree.settings = BranchSettings(notice_period_seconds=PERIOD)
    board = Board(idle)
    ports = idle.ports
    idle.ports = lambda: replace(ports(), publisher=board)
    return board


def exempt(world, branch: str, days: float | None, reason: str = "") -> None:
    until = None if days is None else world.clock.now + timedelta(days=days)
    (desired,) = world.tree.resolve("prod", [])
    exempt_branch(
        desired, ExemptOptions(branch, until, reason), world.readers(), world.state, world.this_run()
    )


class DescribeTheHistoryOfAnExemption:
    @staticmethod
    def steps(world) -> list[tuple[str, dict[str, int]]]:
        return [(s.status, dict(s.counts)) for run in list_runs(world.state).runs for s in run.steps]

    @staticmethod
    def last(world) -> tuple[str, str]:
        """The HEAD and the message of the newest record."""
        run = list_runs(world.state).runs[0]
        step = json.loads(world.state.records[f"history/{run.run_id}.json"].data)["repositories"][KEY]
        return step["branches"]["feature-1"]["head"], step["message"]

    def it_has_one_whose_run_ended_once_the_exemption_was_recorded(self, idle, killed):
        idle.kill_after(2)  # the history, then the exemption
        with pytest.raises(killed):
            exempt(idle, "feature-1", 30)
        idle.kill_after(None)
        assert "feature-1" in read_exemptions(idle.state, KEY)[0]
        assert self.steps(idle) == [("pending", {"pending": 1})]
        assert list_runs(idle.state).runs[0].finished_at is None
        assert self.last(idle)[0] == idle.lakefs.branches["feature-1"].commit_id
        exempt(idle, "feature-1", 30)
        assert self.steps(idle) == [("applied", {"exempted": 1}), ("pending", {"pending": 1})]

    @pytest.mark.parametrize(
        ("error", "status"), [(WriteConflict("first"), "failed"), (StorageError("no answer"), "uncertain")]
    )
    def it_says_that_one_was_not_or_may_not_be_recorded(self, idle, monkeypatch, error, status):
        write = idle.state.write

        def refuse(key, data, *, if_version):
            if key.startswith("exemptions/"):
                raise error
            return write(key, data, if_version=if_version)

        monkeypatch.setattr(idle.state, "write", refuse)
        with pytest.raises(type(error)):
            exempt(idle, "feature-1", 30)
        assert self.steps(idle) == [(status, {status: 1})]
        assert list_runs(idle.state).runs[0].finished_at is not None
        assert self.last(idle) == (idle.lakefs.branches["feature-1"].commit_id, str(error))


class DescribeAPeriod:
    def it_deletes_only_after_a_notice_was_accepted_and_the_period_passed(self, board):
        world = board.world
        assert world.ends() == {}
        assert board.branches == ["feature-1", "feature-2"]
        world.clock.wait(3)
        assert world.ends() == {}, "the notice named the next full minute"
        world.clock.wait(2 / (24 * 60))
        assert world.ends() == {"feature-1": "deleted", "feature-2": "deleted"}
        assert board.branches == ["feature-1", "feature-2"], "it is told once"

    def it_counts_from_the_moment_the_channel_accepted(self, board):
        world = board.world
        board.takes = 50.0
        began = world.clock.now
        world.run()
        notice = read_notices(world.state, KEY)[0]["feature-1"]
        assert notice.accepted_at >= began + timedelta(seconds=50)

    def it_postpones_where_the_channel_refuses(self, board):
        world = board.world
        board.problem = "it returned status 500"
        for _ in range(3):
            (repository,) = world.run().repositories
            assert repository.failure is None
            assert repository.branches == ()
            assert repository.warnings == (
                "no notice was given for 2 branches, so their deletion is postponed: it returned status 500"
                " (channel ops)",
            )
            world.clock.wait(4)
        assert read_notices(world.state, KEY) == ({}, None)
        board.problem = ""
        assert world.ends() == {}
        world.clock.wait(4)
        assert world.ends() == {"feature-1": "deleted", "feature-2": "deleted"}

    def it_postpones_where_the_tree_has_no_channel(self, idle):
        idle.tree.settings = BranchSettings(notice_period_seconds=PERIOD)
        for _ in range(2):
            (repository,) = idle.run().repositories
            assert repository.branches == ()
            assert "the tree has no `notify` channel" in repository.warnings[0]
            idle.clock.wait(4)

    def it_tells_how_to_keep_a_branch(self, board):
        board.world.run()
        item = board.items[0]
        assert item.subject == "prod/analytics feature-1"
        assert item.command == "lakeplan branches exempt prod/analytics feature-1 --until 2026-04-07"
        assert item.text == "will be deleted on or after 2026-03-08 00:01 UTC, by policy old"

    def it_keeps_to_the_moment_that_the_notice_named_if_the_period_is_shortened(self, board):
        world = board.world
        world.run()
        world.tree.settings = BranchSettings(notice_period_seconds=DAY)
        world.clock.wait(2)
        assert world.ends() == {}
        world.clock.wait(1.1)
        assert world.ends() == {"feature-1": "deleted", "feature-2": "deleted"}

    def it_waits_longer_if_the_period_is_lengthened(self, board):
        world = board.world
        world.run()
        world.tree.settings = BranchSettings(notice_period_seconds=5 * DAY)
        world.clock.wait(4)
        assert world.ends() == {}
        world.clock.wait(1.1)
        assert set(world.ends().values()) == {"deleted"}

    def it_gives_notice_anew_when_the_old_one_is_long_past(self, board):
        world = board.world
        world.run()
        world.clock.wait(3 + LAPSE.days + 1)
        assert world.ends() == {}
        assert board.branches == ["feature-1", "feature-2"] * 2
        world.clock.wait(3.1)
        assert set(world.ends().values()) == {"deleted"}

    def it_gives_no_notice_when_it_is_asked_to_stop(self, board):
        board.world.stop = True
        board.world.run()
        assert board.items == []

    def it_needs_no_notice_without_a_period(self, board):
        board.world.tree.settings = BranchSettings()
        assert board.world.ends() == {"feature-1": "deleted", "feature-2": "deleted"}
        assert board.items == []


class DescribeABranchThatChangedSince:
    def it_needs_another_notice_after_a_commit(self, board):
        world = board.world
        world.run()
        world.clock.wait(1)
        world.lakefs.commit("feature-1")
        world.clock.wait(3)
        assert world.ends() == {"feature-2": "deleted"}
        world.clock.wait(3)
        assert world.ends() == {}
        assert board.branches == ["feature-1", "feature-2", "feature-1"]
        world.clock.wait(3.1)
        assert world.ends() == {"feature-1": "deleted"}

    def it_needs_another_notice_after_a_commit_that_the_policy_does_not_count(self, board):
        world = board.world
        world.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=3 * DAY),)
        world.run()
        world.lakefs.commit("feature-1")
        world.clock.wait(4)
        assert world.ends() == {"feature-2": "deleted"}
        assert board.branches == ["feature-1", "feature-2", "feature-1"]

    def it_needs_another_notice_after_an_upload_that_does_not_keep_it(self, board):
        world = board.world
        world.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=3 * DAY),)
        world.tree.settings = BranchSettings(keep_with_uncommitted=False, notice_period_seconds=PERIOD)
        world.run()
        world.lakefs.stage("feature-1")
        world.clock.wait(4)
        assert world.ends() == {"feature-2": "deleted"}
        assert board.branches == ["feature-1", "feature-2", "feature-1"]

    def it_needs_another_notice_when_it_was_made_again(self, board):
        world = board.world
        world.run()
        world.clock.wait(4)
        assert set(world.ends().values()) == {"deleted"}
        world.undo()
        world.run()
        world.clock.wait(4)
        assert world.ends() == {}
        assert board.branches == ["feature-1", "feature-2"] * 2

    def it_is_kept_when_its_head_moves_right_before(self, board):
        world = board.world
        world.run()
        world.clock.wait(4)

        def move() -> None:
            if len(world.lakefs.commits) < 3:
                world.lakefs.commit("feature-1")

        world.lakefs.after_look = move
        assert world.ends() == {"feature-1": "moved", "feature-2": "deleted"}


class DescribeWhatANoticeNames:
    def it_names_nothing_that_something_else_keeps(self, board):
        world = board.world
        world.tree.settings = BranchSettings(notice_period_seconds=PERIOD, min_keep=1)
        world.lakefs.stage("feature-2")
        world.run()
        assert board.branches == ["feature-1"]

    def it_names_nothing_while_a_hold_is_wrong(self, board):
        board.world.tree.holds = (Hold("tag", "nowhere", None, ""),)
        (repository,) = board.world.run().repositories
        assert repository.failure is not None
        assert board.items == []

    def it_is_told_although_a_gate_refuses_to_delete_others(self, board):
        world = board.world
        world.lakefs.branch("feature-3")
        world.run()
        world.clock.wait(4)
        world.tree.safety = Safety(max_deleted_branches=1)
        assert set(world.ends().values()) == {"gate_refused"}
        assert board.branches == ["feature-1", "feature-2", "feature-3"]


class DescribeAnExemption:
    def it_keeps_a_branch_until_its_end(self, idle):
        exempt(idle, "feature-1", 10, "release is late")
        assert idle.ends() == {"feature-2": "deleted"}
        outlook = idle.outlooks().feature_1
        assert outlook.verdict.kept_by is Keep.EXEMPTED
        assert outlook.verdict.due == idle.clock.now + timedelta(days=10)
        assert outlook.notes[-1] == "exempt until 2026-03-15 00:00 UTC by me: release is late"
        idle.clock.wait(10 - 1 / DAY)
        assert idle.ends() == {}
        idle.clock.wait(1 / DAY)
        assert idle.ends() == {"feature-1": "deleted"}

    def it_is_shown_where_no_policy_deletes_the_branch_yet(self, world):
        world.lakefs.branch("feature-1")
        exempt(world, "feature-1", 10)
        outlook = world.outlooks().feature_1
        assert outlook.verdict.kept_by is Keep.NOT_CROSSED
        assert outlook.notes[-1].startswith("exempt until")

    def it_ends_when_it_is_removed(self, idle):
        exempt(idle, "feature-1", 10)
        exempt(idle, "feature-1", None)
        assert idle.ends() == {"feature-1": "deleted", "feature-2": "deleted"}

    def it_keeps_the_branch_from_an_earlier_notice_for_good(self, board):
        world = board.world
        world.run()
        exempt(world, "feature-1", 1)
        world.clock.wait(4)
        assert world.ends() == {"feature-2": "deleted"}
        assert board.branches == ["feature-1", "feature-2", "feature-1"]

    def it_does_so_although_it_was_removed_before_any_run_saw_it(self, board):
        world = board.world
        world.run()
        exempt(world, "feature-1", 10)
        exempt(world, "feature-1", None)
        world.clock.wait(4)
        assert world.ends() == {"feature-2": "deleted"}
        assert board.branches == ["feature-1", "feature-2", "feature-1"]

    def it_does_so_although_the_clock_of_that_person_is_behind(self, board):
        world = board.world
        world.run()
        world.clock.wait(-0.01)
        exempt(world, "feature-1", 10)
        exempt(world, "feature-1", None)
        world.clock.wait(4)
        assert world.ends() == {"feature-2": "deleted"}

    def it_counts_while_a_run_deletes(self, idle):
        idle.lakefs.before_delete = lambda branch: (
            exempt(idle, "feature-2", 9) if branch == "feature-1" else None
        )
        deleting = idle.lakefs.delete_branch

        def slow(repository: str, branch: str) -> None:
            deleting(repository, branch)
            idle.clock.sleep(16)

        idle.lakefs.delete_branch = slow
        assert idle.ends() == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_counts_at_once_while_a_run_deletes_within_seconds(self, idle):
        idle.lakefs.before_delete = lambda branch: exempt(idle, "feature-2", 30)
        assert idle.ends() == {"feature-1": "deleted", "feature-2": "newly_kept"}

    def it_is_not_reported_as_success_if_the_branch_is_deleted_meanwhile(self, idle):
        write = idle.state.write

        def delete_first(key: str, data: bytes, *, if_version: str | None) -> str:
            if key.startswith("exemptions/"):
                idle.lakefs.branches.pop("feature-1", None)
            return write(key, data, if_version=if_version)

        idle.state.write = delete_first
        with pytest.raises(LakeplanError, match="feature-1 was deleted in the meantime") as raised:
            exempt(idle, "feature-1", 30)
        assert "branches undo --branch feature-1" in raised.value.hint
        assert "feature-1" in read_exemptions(idle.state, KEY)[0]

    def it_spares_one_more_of_those_that_min_keep_counts(self, idle):
        idle.tree.settings = BranchSettings(min_keep=1)
        exempt(idle, "feature-1", 9)
        assert idle.ends() == {"feature-2": "deleted"}

    def it_is_refused_for_a_branch_that_does_not_exist(self, idle):
        with pytest.raises(UsageError, match="no branch 'feature-9'"):
            exempt(idle, "feature-9", 9)
        assert read_exemptions(idle.state, KEY) == ({}, None)

    def it_says_that_there_is_none_to_remove(self, idle):
        with pytest.raises(UsageError, match=f"of {KEY} has no exemption"):
            exempt(idle, "feature-1", None)
        exempt(idle, "feature-1", 1)
        idle.clock.wait(2)
        with pytest.raises(UsageError, match="has no exemption"):
            exempt(idle, "feature-1", None)

    def it_is_recorded_although_somebody_else_records_one(self, idle):
        write = idle.state.write
        attempts = []

        def twice(key: str, data: bytes, *, if_version: str | None) -> str:
            attempts.append(key)
            if len(attempts) == 1:
                exempt(idle, "feature-2", 5)
            return write(key, data, if_version=if_version)

        idle.state.write = twice
        exempt(idle, "feature-1", 5)
        assert set(read_exemptions(idle.state, KEY)[0]) == {"feature-1", "feature-2"}

    def it_gives_up_when_others_always_are_first(self, idle):
        def never(key: str, data: bytes, *, if_version: str | None) -> str:
            raise WriteConflict("another writer was first", where=key)

        idle.state.write = never
        with pytest.raises(WriteConflict):
            exempt(idle, "feature-1", 5)


@pytest.mark.parametrize("kind", ["exemptions", "notices"])
class DescribeADamagedRecord:
    @pytest.mark.parametrize(
        "data",
        [
            b"{",
            b"[]",
            b'{"format": "other"}',
            b'{"format": "lakeplan.%s/v1", "repository": "a/b", "branches": {}}',
        ],
    )
    def it_deletes_nothing(self, board, kind, data):
        board.world.tree.settings = BranchSettings()
        key = f"{kind}/prod/analytics.json"
        board.world.state.write(key, data.replace(b"%s", kind.encode()), if_version=None)
        (repository,) = board.world.run().repositories
        assert repository.failure is not None
        assert repository.branches == ()
        assert key in str(repository.failure.where)


class DescribeRecords:
    def it_forgets_notices_of_branches_that_are_gone(self, board):
        world = board.world
        world.run()
        del world.lakefs.branches["feature-1"]
        world.lakefs.branch("feature-3")
        world.run()
        world.clock.wait(3)
        world.lakefs.commit("feature-2")
        world.run()
        assert board.branches == ["feature-1", "feature-2", "feature-3"]
        assert set(read_notices(world.state, KEY)[0]) == {"feature-2", "feature-3"}

    def it_publishes_again_what_could_not_be_recorded(self, board):
        world = board.world
        write = world.state.write

        def refuse(key: str, data: bytes, *, if_version: str | None) -> str:
            if key.startswith("notices/"):
                raise WriteConflict("another writer was first", where=key)
            return write(key, data, if_version=if_version)

        world.state.write = refuse
        (repository,) = world.run().repositories
        assert "published but not recorded" in repository.warnings[0]
        world.state.write = write
        world.clock.wait(4)
        assert world.ends() == {}
        assert board.branches == ["feature-1", "feature-2"] * 2

    def it_shows_both_in_a_plan(self, board):
        world = board.world
        (repository,) = plan_document(world.plan())["repositories"]
        assert {b["reason"] for b in repository["branches"]} == {"default_branch", "notice_due"}
        world.run()
        (repository,) = plan_document(world.plan())["repositories"]
        found = {b["branch_id"]: b for b in repository["branches"]}
        assert found["feature-1"]["reason"] == "notice_given"
        assert found["feature-1"]["due"] == "2026-03-08T00:01:00Z"

    def it_counts_them_in_a_plan_as_if_they_were_deleted_now(self, board):
        world = board.world
        world.tree.safety = Safety(max_deleted_branches=1)
        for _ in range(2):
            made = world.plan()
            (gate,) = made.repositories[0].gates
            assert (gate.gate, gate.outcome.value, gate.value) == ("deleted-branches", "refused", 2)
            assert [g.value for g in made.gates] == [2]
            assert made.deletions == 0
            world.run()

    def it_shows_what_follows_from_them(self, board):
        world = board.world
        world.lakefs.rules = GcRules(1)
        world.lakefs.commit("feature-1")
        world.clock.wait(8)
        world.run()
        world.clock.wait(4)
        found = world.outlooks().feature_1
        assert found.verdict.kept_by is Keep.NOTICE_DUE
        assert found.follows is not None
        assert found.follows.commits == 1

    def it_forecasts_when_they_are_deleted(self, board):
        world = board.world
        row = branch_row(world.outlooks().feature_1)
        assert not row.is_deleted
        assert row.is_expired
        assert not row.is_deleted_by(world.clock.now + timedelta(days=2))
        assert row.is_deleted_by(world.clock.now + timedelta(days=3))
        exempt(world, "feature-2", 5)
        row = branch_row(world.outlooks().feature_2)
        assert not row.is_expired
        assert not row.is_deleted_by(world.clock.now + timedelta(days=4))
        assert row.is_deleted_by(world.clock.now + timedelta(days=5))

    def it_fails_when_a_record_is_of_another_format(self, idle):
        idle.state.write(
            "exemptions/prod/analytics.json", json.dumps({"format": 1}).encode(), if_version=None
        )
        with pytest.raises(FormatError):
            read_exemptions(idle.state, KEY)
