"""Ledgers that are lost, foreign, outdated or impossible: none makes a branch older than it was observed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from lakeplan.branches.documents import run_exit_code
from lakeplan.branches.recall import WITNESS, plain_endpoint
from lakeplan.errors import FeatureMissing, PermissionDenied, ServerUnreachable, UnexpectedAnswer
from lakeplan.values.desired import BranchSettings, Policy

KEY = "prod/analytics"
LEDGER = "branches/prod/analytics.json"
DAY = 86400


@pytest.fixture
def old(world):
    """``max_age: 14d`` by the HEAD's date; the repository is 100 days old and was looked at twice."""
    world.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=14 * DAY),)
    world.tree.settings = BranchSettings(assume_created="head_commit")
    world.lakefs.branch("other")
    world.clock.wait(100)
    world.run()
    world.clock.wait(1)
    assert world.ends() == {}
    return world


def warnings(report) -> str:
    return " ".join(w for r in report.repositories for w in r.warnings)


def young(world) -> None:
    """A branch that is seconds old, from a commit that is 100 days old."""
    world.lakefs.branch("feature-1")


def stays(world) -> None:
    """No run of the next 13 days deletes it, and one after 14 days does."""
    for _ in range(14):
        assert world.ends() == {}
        world.clock.wait(1 - 1 / DAY)
    world.clock.wait(1)
    assert world.ends() == {"feature-1": "deleted"}


def ledger(world) -> dict:
    return json.loads(world.state.records[LEDGER].data)


def store(world, document) -> None:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    world.state.records[LEDGER] = replace(world.state.records[LEDGER], data=data)


class DescribeALoss:
    def it_deletes_nothing_that_only_an_assumption_makes_old(self, old):
        del old.state.records[LEDGER]
        young(old)
        report = old.run()
        assert "cannot be trusted" in warnings(report)
        assert "ages are counted from now" in warnings(report)
        assert "feature-1" in old.lakefs.branches
        stays(old)

    def it_is_the_same_for_the_whole_state_or_another_state_url(self, old):
        old.state.records.clear()
        young(old)
        assert "different state store" in warnings(old.run())
        stays(old)

    def it_says_so_in_a_plan_too(self, old):
        del old.state.records[LEDGER]
        young(old)
        (repository,) = old.plan().repositories
        assert "cannot be trusted" in " ".join(repository.warnings)
        assert not any(o.verdict.deletes for o in repository.outlooks)

    def it_is_seen_by_records_of_deletions_where_the_repository_carries_nothing(self, idle):
        idle.run()
        idle.tree.settings = BranchSettings(assume_created="head_commit")
        del idle.state.records[LEDGER]
        idle.lakefs.marks.clear()
        young(idle)
        idle.clock.wait(0.1)
        assert "cannot be trusted" in warnings(idle.run())
        assert idle.ends() == {}

    def it_assumes_nothing_in_the_first_run_of_all_and_says_so(self, world):
        world.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=14 * DAY),)
        world.tree.settings = BranchSettings(assume_created="head_commit")
        young(world)
        world.clock.wait(100)
        report = world.run()
        assert "first run on this repository" in warnings(report)
        assert "feature-1" in world.lakefs.branches
        assert world.ends() == {"feature-1": "deleted"}
        assert warnings(world.run()) == ""


class DescribeAnotherRepository:
    def it_does_not_use_the_ledger_of_another_server(self, old):
        old.tree.endpoint = "https://other.example"
        old.lakefs.branch("feature-1")
        assert "it belongs to prod/analytics at http://x" in warnings(old.run())
        stays(old)

    def it_does_not_use_the_ledger_of_another_namespace(self, old):
        old.lakefs.namespace = "mem://b"
        young(old)
        assert "mem://a" in warnings(old.run())
        stays(old)

    def it_does_not_use_a_ledger_under_another_name(self, old):
        document = ledger(old) | {"repository": "old-name/analytics"}
        store(old, document)
        young(old)
        assert "it belongs to old-name/analytics" in warnings(old.run())
        stays(old)

    def it_begins_anew_for_a_repository_that_was_made_again(self, old):
        old.lakefs.created = int(old.clock.now.timestamp())
        old.lakefs.marks.clear()
        young(old)
        assert old.ends() == {}
        # It is its first ledger, so the HEAD's date counts, but no branch is older than its repository.
        old.clock.wait(14 - 1 / DAY)
        assert old.ends() == {}
        old.clock.wait(1 / DAY)
        assert old.ends() == {"feature-1": "deleted"}

    @pytest.mark.parametrize("url", ["http://X/", "http://x/api/v1", " http://x/api/v1/ "])
    def it_takes_spellings_of_an_address_for_the_same_server(self, url):
        assert plain_endpoint(url) == "http://x"


class DescribeAnOlderCopy:
    @pytest.mark.parametrize("runs", [1, 2])
    def it_is_not_used(self, old, runs):
        old.lakefs.branch("feature-1")
        old.run()
        copy = old.state.records[LEDGER].data
        old.clock.wait(13)
        for _ in range(runs):
            # Made again from the same commit, which only a run in between can tell.
            del old.lakefs.branches["feature-1"]
            old.run()
            old.lakefs.branch("feature-1")
            old.run()
        store(old, copy)
        old.clock.wait(2)
        assert "outdated copy" in warnings(old.run())
        stays(old)

    def it_is_not_used_after_a_run_that_was_killed_and_whose_record_was_rolled_back(self, idle, killed):
        idle.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=3 * DAY),)
        before = dict(idle.state.records)
        idle.kill_after(6)  # after the first deletion
        with pytest.raises(killed):
            idle.run()
        idle.kill_after(None)
        assert "feature-1" not in idle.lakefs.branches
        idle.state.records = before
        idle.lakefs.branch("feature-1")
        assert "outdated copy" in warnings(idle.run())
        assert idle.ends() == {}

    @pytest.mark.parametrize("steps", range(9))
    def it_is_not_taken_for_a_copy_when_a_run_was_killed(self, idle, killed, steps):
        idle.kill_after(steps)
        with pytest.raises(killed):
            idle.run()
        idle.kill_after(None)
        assert warnings(idle.run()) == ""

    def it_is_not_used_when_the_witness_was_removed(self, old):
        old.lakefs.marks.clear()
        assert "was removed from the repository's metadata" in warnings(old.run())

    def it_is_not_used_when_another_installation_marked_the_repository(self, old):
        old.lakefs.marks[WITNESS] = "v1 run-of-others 3"
        assert "run run-of-others started a new record" in warnings(old.run())

    @pytest.mark.parametrize("text", ["", "v2 run-001 2", "v1 run-001 -2", "v1 run-001 ²", "v1 run-001", "7"])
    def it_is_not_used_beside_a_witness_of_nothing_known(self, old, text):
        old.lakefs.marks[WITNESS] = text
        young(old)
        assert "cannot be trusted" in warnings(old.run())
        assert old.ends() == {}


class DescribeTheWitness:
    @pytest.mark.parametrize("error", [PermissionDenied("no"), FeatureMissing("no")])
    def it_goes_without_and_then_assumes_nothing(self, world, error):
        world.lakefs.refuse["metadata"] = error
        world.tree.policies = (Policy("old", ("feature-*",), max_age_seconds=14 * DAY),)
        world.tree.settings = BranchSettings(assume_created="head_commit")
        young(world)
        world.clock.wait(100)
        assert "fs:UpdateRepository" in warnings(world.run())
        stays(world)

    def it_is_not_needed_while_the_repository_is_read_only(self, idle):
        before, idle.lakefs.read_only = dict(idle.lakefs.marks), True
        assert warnings(idle.run()) == ""
        assert idle.lakefs.marks == before
        idle.lakefs.read_only = False
        assert set(idle.ends().values()) == {"deleted"}

    def it_deletes_nothing_while_it_cannot_be_known(self, idle, monkeypatch):
        idle.lakefs.refuse["metadata"] = UnexpectedAnswer("busy", status=503)
        (repository,) = idle.run().repositories
        assert "busy" in repository.failure.message
        assert {"feature-1", "feature-2"} <= set(idle.lakefs.branches)

    def it_is_set_when_only_the_answer_was_lost(self, idle, monkeypatch):
        original = idle.lakefs.set_metadata

        def lose(repository, values):
            original(repository, values)
            raise ServerUnreachable("no answer")

        monkeypatch.setattr(idle.lakefs, "set_metadata", lose)
        assert set(idle.ends().values()) == {"deleted"}

    def it_is_set_before_anything_is_deleted(self, idle):
        before = dict(idle.lakefs.marks)
        seen = []
        idle.lakefs.before_delete = lambda branch: seen.append(dict(idle.lakefs.marks) != before)
        idle.run()
        assert seen == [True, True]


class DescribeImpossibleValues:
    """Such a ledger fails its repository: where it is, and what to do."""

    @pytest.fixture
    def spoil(self, idle):
        def spoil(change) -> None:
            document = ledger(idle)
            change(document, document["branches"]["feature-1"])
            store(idle, document)

        return spoil

    @pytest.mark.parametrize(
        "value", [-1, "1", "yesterday", 1.5, True, None, [], 6, 10**12], ids=lambda value: repr(value)
    )
    @pytest.mark.parametrize("key", ["first", "moved"])
    def it_fails_on_a_moment_of_a_branch(self, idle, spoil, key, value):
        if (key, value) == ("moved", None):
            return  # it never moved
        spoil(lambda document, row: row.update({key: value}))
        report = idle.run()
        failure = report.repositories[0].failure
        assert "feature-1" in failure.message
        assert LEDGER in failure.where
        assert KEY in failure.where
        assert "delete it" in failure.hint
        assert run_exit_code(report) == 1
        assert {"feature-1", "feature-2"} <= set(idle.lakefs.branches)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("began", -1), ("began", "0"), ("at", 1.0), ("at", 0), ("generation", 0), ("generation", "2"),
            ("generation", True), ("repository_created", -1), ("repository_created", 10**12), ("id", 7),
            ("id", ""), ("endpoint", None), ("assumable", "yes"), ("branches", []), ("began", 10**12),
        ],
    )  # fmt: skip
    def it_fails_on_a_value_of_the_whole(self, idle, spoil, key, value):
        spoil(lambda document, row: document.update({key: value}))
        assert "damaged" in idle.run().repositories[0].failure.message
        assert {"feature-1", "feature-2"} <= set(idle.lakefs.branches)

    def it_fails_on_an_assumed_time_after_the_first_look(self, idle, spoil):
        spoil(lambda document, row: row.update(assumed=row["first"] + 1))
        assert "assumed" in idle.run().repositories[0].failure.message

    @pytest.mark.parametrize(("minutes", "fails"), [(4, False), (6, True)])
    def it_fails_on_a_ledger_from_the_future(self, idle, spoil, minutes, fails):
        future = int((idle.clock.now + timedelta(minutes=minutes)).timestamp())
        spoil(lambda document, row: document.update(at=future))
        failure = idle.run().repositories[0].failure
        assert (failure is not None and "a time in the future" in failure.message) is fails

    def it_fails_in_a_plan_too(self, idle, spoil):
        spoil(lambda document, row: row.update(first=-1))
        with pytest.raises(AssertionError, match="damaged"):
            idle.plan()


def it_counts_from_the_last_look_when_the_clock_was_set_back(world):
    world.lakefs.branch("feature-1")
    world.run()
    world.clock.now -= timedelta(minutes=4)
    world.lakefs.branch("feature-2")
    world.run()
    rows = ledger(world)["branches"]
    assert rows["feature-2"]["first"] >= rows["feature-1"]["first"]
    world.clock.wait(3)
    assert world.ends() == {}
