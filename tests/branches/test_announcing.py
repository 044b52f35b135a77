"""What is published, recorded and reported of a notice; and what an exemption leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.branches.announce import HINT, TITLE, TRIES, Exempted, ExemptOptions, Noticed, exempt_branch
from lakeplan.branches.notices import Exemption, Notice, read_exemptions, read_notices
from lakeplan.errors import LakeplanError, WriteConflict
from lakeplan.values.desired import BranchSettings, Policy
from lakeplan.values.notify import Item, SentMessage

KEY = "prod/analytics"
DAY = 86400
NOW = datetime(2026, 3, 5, 0, 0, 30, 17, tzinfo=timezone.utc)
"""When notices are given, between two full minutes."""


class Answers:
    """A publisher that answers each item as ``problems`` says; what is missing there gets no answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.problems: dict[object, str] = {"feature-1": "", "feature-2": ""}

    @property
    def items(self) -> list[Item]:
        return [item for call in self.calls for item in call[2]]

    def publish(self, *call: object) -> list[SentMessage]:
        self.calls.append(call)
        items = [item for item in call[2] if item.facts["branch"] in self.problems]
        return [SentMessage((item,), "ops", self.problems[item.facts["branch"]]) for item in items]


@pytest.fixture
def world(idle, monkeypatch):
    idle.tree.settings = BranchSettings(notice_period_seconds=3 * DAY)
    idle.answers = Answers()
    ports, resolve = idle.ports, idle.tree.resolve
    idle.ports = lambda: replace(ports(), publisher=idle.answers)
    idle.tree.resolve = lambda server, live: [replace(r, owner="team") for r in resolve(server, live)]
    idle.clock.now = NOW
    return idle


def one_run(world):
    (repository,) = world.run().repositories
    assert repository.failure is None
    return repository


DUE = datetime(2026, 3, 8, 0, 1, tzinfo=timezone.utc)


class DescribeANotice:
    def it_says_everything(self, world):
        head = world.lakefs.branches["feature-1"].commit_id
        one_run(world)
        ((event, title, items, hint),) = world.answers.calls
        assert (event.value, title, hint) == ("branch-deletion", TITLE, HINT)
        command = "lakeplan branches exempt prod/analytics feature-1 --until 2026-04-07"
        assert items[0] == Item(
            subject="prod/analytics feature-1",
            text="will be deleted on or after 2026-03-08 00:01 UTC, by policy old",
            command=command,
            owner="team",
            facts={
                "repository": KEY,
                "branch": "feature-1",
                "commit_id": head,
                "policy": "old",
                "expired_since": "2026-03-04T00:00:00Z",
                "deleted_from": "2026-03-08T00:01:00Z",
                "keep_with": command,
            },
        )

    def it_is_reported_and_recorded(self, world):
        head = world.lakefs.branches["feature-1"].commit_id
        repository = one_run(world)
        due = NOW + timedelta(days=3)
        assert repository.warnings == ()
        assert repository.noticed == (
            Noticed("feature-1", head, "old", "ops", max(due, DUE)),
            Noticed("feature-2", head, "old", "ops", max(due, DUE)),
        )
        found, _ = read_notices(world.state, KEY)
        assert found["feature-1"] == Notice(head, "", NOW, DUE, "ops")

    def it_is_of_the_uncommitted_changes_that_were_there(self, world):
        world.tree.policies = (Policy("old", ("feature-1",), max_age_seconds=3 * DAY),)
        world.tree.settings = replace(world.tree.settings, keep_with_uncommitted=False)
        world.lakefs.stage("feature-1")
        world.run()
        world.run()
        count = len(world.answers.items)
        assert read_notices(world.state, KEY)[0]["feature-1"].staged != ""
        world.clock.wait(4)
        assert world.ends() == {"feature-1": "deleted"}
        assert len(world.answers.items) == count

    def it_tells_what_was_refused_and_what_nobody_sent_from_the_rest(self, world):
        world.lakefs.branch("feature-3")
        world.run()
        world.clock.wait(4)
        world.answers.problems = {"feature-1": "", "feature-2": "it is full"}
        world.lakefs.commit("feature-1")
        world.lakefs.commit("feature-2")
        world.run()
        world.clock.wait(3)
        repository = one_run(world)
        assert [n.branch_id for n in repository.noticed] == ["feature-1"]
        assert repository.warnings == (
            "no notice was given for 1 branch, so its deletion is postponed: no attempt was made to send the"
            " notice",
            "no notice was given for 1 branch, so its deletion is postponed: it is full (channel ops)",
        )

    def it_is_not_reported_where_it_could_not_be_recorded(self, world):
        write = world.state.write

        def refuse(key: str, data: bytes, *, if_version: str | None) -> str:
            if key.startswith("notices/"):
                raise WriteConflict("another writer was first", where=key)
            return write(key, data, if_version=if_version)

        world.state.write = refuse
        repository = one_run(world)
        assert repository.noticed == ()
        assert repository.warnings == (
            "no notice was given for 2 branches, so their deletion is postponed: the notice was"
            " published but not recorded (another writer was first)",
        )

    def it_is_reported_of_nothing_where_all_was_refused(self, world):
        world.answers.problems = {"feature-1": "no", "feature-2": "no"}
        repository = one_run(world)
        assert repository.noticed == ()
        assert read_notices(world.state, KEY) == ({}, None)


class DescribeAnExemption:
    def exempt(self, world, until: datetime | None, reason: str = "late", branch: str = "feature-1"):
        (desired,) = world.tree.resolve("prod", [])
        asked = []
        readers = world.readers()
        find = world.lakefs.find_branch
        world.lakefs.find_branch = lambda *names: asked.append(names) or find(*names)
        run = world.this_run()
        done = exempt_branch(desired, ExemptOptions(branch, until, reason), readers, world.state, run)
        assert asked == [("analytics", branch)] * (1 if until is None else 2)
        world.lakefs.find_branch = find
        history = json.loads(world.state.records[f"history/{run.run_id}.json"].data)
        return done, history

    def it_is_returned_recorded_and_noted(self, world):
        head = world.lakefs.branches["feature-1"].commit_id
        until = NOW + timedelta(days=9)
        done, history = self.exempt(world, until)
        assert done == Exempted(KEY, "feature-1", Exemption(NOW, until, "me", "late"))
        assert read_exemptions(world.state, KEY)[0] == {"feature-1": done.exemption}
        assert history["command"] == "branches exempt"
        assert history["finished_at"]
        assert history["repositories"] == {
            KEY: {
                "status": "applied",
                "message": "exempt until 2026-03-14 00:00 UTC by me: late",
                "counts": {"exempted": 1},
                "branches": {"feature-1": {"head": head, "outcome": "exempted"}},
            }
        }

    def it_is_removed_with_the_moment_and_what_it_said(self, world):
        head = world.lakefs.branches["feature-1"].commit_id
        self.exempt(world, NOW + timedelta(days=9))
        world.clock.wait(1)
        done, history = self.exempt(world, None, "")
        later = NOW + timedelta(days=1)
        assert done.exemption == Exemption(NOW, later, "me", "late", removed=True)
        assert done.exemption.removed is True
        assert read_exemptions(world.state, KEY)[0] == {"feature-1": done.exemption}
        assert history["repositories"] == {
            KEY: {
                "status": "applied",
                "message": "",
                "counts": {"exemption_removed": 1},
                "branches": {"feature-1": {"head": head, "outcome": "exemption_removed"}},
            }
        }

    def it_drops_no_other_by_a_clock_that_is_ahead(self, world):
        self.exempt(world, NOW + timedelta(days=9))
        ahead = replace(world.this_run(), now=lambda: NOW + timedelta(days=4_000))
        (desired,) = world.tree.resolve("prod", [])
        options = ExemptOptions("feature-2", NOW + timedelta(days=5_000))
        exempt_branch(desired, options, world.readers(), world.state, ahead)
        assert read_exemptions(world.state, KEY)[0].keys() == {"feature-1", "feature-2"}

    def it_needs_no_time_of_the_server(self, world):
        asked = []

        def fail(repository: str) -> datetime:
            asked.append(repository)
            raise LakeplanError("no answer")

        world.lakefs.server_time = fail
        self.exempt(world, NOW + timedelta(days=9))
        assert read_exemptions(world.state, KEY)[0].keys() == {"feature-1"}
        assert asked == ["analytics"]

    def it_is_removed_from_a_branch_that_is_gone(self, world):
        self.exempt(world, NOW + timedelta(days=9))
        del world.lakefs.branches["feature-1"]
        _, history = self.exempt(world, None, "")
        assert history["repositories"][KEY]["branches"]["feature-1"]["head"] == ""

    def it_is_not_undone_by_a_history_that_cannot_be_written(self, world, caplog):
        write = world.state.write

        def refuse(key: str, data: bytes, *, if_version: str | None) -> str:
            if key.startswith("history/"):
                raise WriteConflict("another writer was first", where=key)
            return write(key, data, if_version=if_version)

        world.state.write = refuse
        (desired,) = world.tree.resolve("prod", [])
        options = ExemptOptions("feature-1", NOW + timedelta(days=9))
        exempt_branch(desired, options, world.readers(), world.state, world.this_run())
        assert "feature-1" in read_exemptions(world.state, KEY)[0]
        (line,) = caplog.messages
        assert line.startswith("the end of this step was not recorded in the history:")

    @pytest.mark.parametrize("holder", [{}, {"user": None}, {"user": ""}])
    def it_names_nobody_where_nobody_is_known(self, world, holder):
        (desired,) = world.tree.resolve("prod", [])
        run = replace(world.this_run(), holder=holder)
        options = ExemptOptions("feature-1", NOW + timedelta(days=9))
        assert exempt_branch(desired, options, world.readers(), world.state, run).exemption.by == ""

    @pytest.mark.parametrize("conflicts", [TRIES - 1, TRIES])
    def it_tries_five_times(self, world, conflicts):
        write, left = world.state.write, [conflicts]

        def busy(key: str, data: bytes, *, if_version: str | None) -> str:
            if key.startswith("exemptions/") and left[0]:
                left[0] -= 1
                raise WriteConflict("another writer was first", where=key)
            return write(key, data, if_version=if_version)

        world.state.write = busy
        (desired,) = world.tree.resolve("prod", [])
        options = ExemptOptions("feature-1", NOW + timedelta(days=9))

        def run() -> Exempted:
            return exempt_branch(desired, options, world.readers(), world.state, world.this_run())

        if conflicts < TRIES:
            assert run().branch == "feature-1"
        else:
            with pytest.raises(WriteConflict):
                run()
        assert TRIES == 5
        assert left == [0]
