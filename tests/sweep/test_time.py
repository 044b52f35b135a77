"""The waits of a sweep: rules must settle, and clocks must agree."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lakeplan.errors import ClockSkew, FormatError, GateRefused, LakeplanError, StalePlan, StoreBusy
from lakeplan.formats.namespace import RULES_KEY
from lakeplan.simulation.requests import DeleteRequest, RoundEnd
from lakeplan.sweep import run
from lakeplan.sweep.mark_record import Mark, read_mark
from lakeplan.values.rules import NO_RULES, GcRules, RulesBefore
from lakeplan.values.simulation import Status
from tests.sweeping.lake import LakeRepository
from tests.sweeping.stores import FakeTime
from tests.sweeping.world import SweepWorld

DAY = timedelta(days=1)


@pytest.fixture
def settled(world: SweepWorld, repo: LakeRepository) -> Mark:
    """An approved mark of rules that were seen a day before it."""
    world.sweep["settle"] = "24h"
    world.mark()
    world.lake.clock.advance(hours=25)
    mark = world.mark()
    world.approve(mark)
    return mark


def applied(
    world: SweepWorld,
    repo: LakeRepository,
    before: GcRules | None,
    after: GcRules,
    *,
    hours: float = 0,
    digest: str = "0",
) -> None:
    """What an apply that took so many hours leaves on the server and on record."""
    repo.set_rules(after.default_retention_days)
    now = world.now()
    run_id = f"{now - timedelta(hours=hours):%Y%m%dT%H%M%S}.{next(world._numbers):06}Z-0a"
    step = {"status": "applied", "before": before.to_body() if before else None, "after": after.to_body()}
    record = {
        "run_id": run_id,
        "command": "apply",
        "by": {},
        "started_at": now.isoformat(),
        "finished_at": now.isoformat(),
        "plan_digest": digest,
        "plan_as_of": now.isoformat(),
        "repositories": {"prod/repo1": step},
    }
    write(world, f"history/{run_id}.json", record)
    last = {
        "repository": "prod/repo1",
        "config_hash": "0",
        "etag": after.etag,
        "body": after.to_body(),
        "run_id": run_id,
        "at": now.isoformat(),
    }
    write(world, "applied/prod/repo1.json", last)


def applied_again(world: SweepWorld, digest: str) -> None:
    """Records an apply of the plan with a digest, which found the rules of the last apply in place."""
    stored = world.state.read("applied/prod/repo1.json")
    assert stored is not None
    last = json.loads(stored.data)
    earlier = world.state.read(f"history/{last['run_id']}.json")
    assert earlier is not None
    run = json.loads(earlier.data)
    world.lake.clock.advance(hours=1)
    run_id = f"{world.now():%Y%m%dT%H%M%S}.{next(world._numbers):06}Z-0a"
    moments = {"started_at": world.now().isoformat(), "finished_at": world.now().isoformat()}
    again = {"run_id": run_id, "plan_digest": digest, "repositories": {"prod/repo1": {"status": "already"}}}
    write(world, f"history/{run_id}.json", {**run, **moments, **again})
    write(world, "applied/prod/repo1.json", {**last, "run_id": run_id, "at": world.now().isoformat()})


def write(world: SweepWorld, key: str, record: dict[str, object]) -> None:
    current = world.state.read(key)
    version = current.version if current else None
    world.state.write(key, json.dumps(record).encode(), if_version=version)


def forget(world: SweepWorld, key: str) -> None:
    current = world.state.read(key)
    assert current is not None
    world.state.delete(key, if_version=current.version)


class DescribeClasses:
    def it_calls_newly_expired_what_the_first_rules_let_expire(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        applied(world, repo, None, GcRules(7))
        mark = world.mark()
        assert set(world.going(mark).values()) == {"newly_expired"}
        assert mark.to_delete.objects == 2
        assert mark.to_document()["rules_before"] == {"known": "none", "rules": None}

    @pytest.mark.parametrize("again", [False, True], ids=["applied once", "applied twice"])
    def it_calls_backlog_what_the_rules_before_let_expire(
        self, world: SweepWorld, repo: LakeRepository, again: bool
    ) -> None:
        applied(world, repo, GcRules(25), GcRules(7))
        if again:
            applied_again(world, "0")
        mark = world.mark()
        assert sorted(world.going(mark).values()) == ["backlog", "newly_expired"]
        assert mark.to_document()["rules_before"]["rules"] == GcRules(25).to_body()

    def it_takes_no_rules_before_from_the_run_of_another_plan(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        applied(world, repo, GcRules(25), GcRules(7))
        applied_again(world, "1")
        assert world.mark().to_document()["rules_before"] == {"known": "unknown", "rules": None}

    def it_takes_no_rules_before_if_another_plan_replaced_rules_in_between(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        """Somebody put back the rules of the first plan, so those of the other plan were the ones before."""
        applied(world, repo, GcRules(25), GcRules(7))
        first = world.state.read("applied/prod/repo1.json")
        assert first is not None
        world.lake.clock.advance(hours=1)
        applied(world, repo, GcRules(7), GcRules(9), digest="1")
        repo.set_rules(7)
        write(world, "applied/prod/repo1.json", json.loads(first.data))
        applied_again(world, "0")
        assert world.mark().to_document()["rules_before"] == {"known": "unknown", "rules": None}

    def it_takes_the_rules_before_from_the_last_run_that_replaced_some(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        applied(world, repo, GcRules(25), GcRules(12))
        world.lake.clock.advance(hours=1)
        applied(world, repo, GcRules(12), GcRules(7))
        last = world.state.read("applied/prod/repo1.json")
        assert last is not None
        key = f"history/{json.loads(last.data)['run_id']}.json"
        stored = world.state.read(key)
        assert stored is not None
        run = json.loads(stored.data)
        run["repositories"]["prod/repo2"] = {"status": "already"}
        run["plan_as_of"] = (world.now() - DAY).isoformat()
        write(world, key, run)
        assert world.mark().to_document()["rules_before"]["rules"] == GcRules(12).to_body()

    def it_says_when_the_rules_before_are_not_known(self, world: SweepWorld, repo: LakeRepository) -> None:
        mark = world.mark()
        assert set(world.going(mark).values()) == {"backlog"}
        assert mark.to_document()["rules_before"] == {"known": "unknown", "rules": None}

    @pytest.mark.parametrize("kind", ["applied/prod/repo1", "history/"])
    def it_calls_nothing_backlog_because_the_state_did_not_answer(
        self, world: SweepWorld, repo: LakeRepository, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        applied(world, repo, GcRules(25), GcRules(7))
        read = world.state.read

        def fail(key: str) -> object:
            if key.startswith(kind):
                raise StoreBusy("SlowDown")
            return read(key)

        monkeypatch.setattr(world.state, "read", fail)
        with pytest.raises(LakeplanError, match="SlowDown"):
            world.mark()

    @pytest.mark.parametrize("before", [NO_RULES, GcRules(25, {"main": 30}), None])
    def it_reads_back_what_it_knew(
        self, world: SweepWorld, repo: LakeRepository, before: RulesBefore
    ) -> None:
        mark = replace(world.mark(), rules_before=before)
        assert read_mark(mark.to_bytes(), name="mark").rules_before == before

    @pytest.mark.parametrize("field", ["rules_before", "repository_created", "runner"])
    def it_reads_no_mark_that_lacks_a_field(
        self, world: SweepWorld, repo: LakeRepository, field: str
    ) -> None:
        document: dict[str, object] = {**world.mark().to_document()}
        del document[field]
        with pytest.raises(FormatError, match=f"{field} is missing"):
            read_mark(json.dumps(document).encode(), name="mark")


class DescribeSettling:
    def it_sweeps_once_the_rules_have_settled(self, world: SweepWorld, settled: Mark) -> None:
        assert world.run(settled).amount(Status.DELETED).objects > 0

    def it_counts_rules_that_were_raised_and_lowered_within_a_minute(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        """The server shows what it showed before; only the history knows."""
        applied(world, repo, GcRules(7), GcRules(365))
        world.lake.clock.advance(hours=1 / 60)
        applied(world, repo, GcRules(365), GcRules(7))
        before = repo.stored()
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)
        assert before <= repo.stored()
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.sweep_of(world.mark())
        world.lake.clock.advance(hours=24)
        assert world.run(settled).amount(Status.DELETED).objects > 0

    def it_counts_a_change_that_nobody_recorded_from_its_first_sight(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        repo.set_rules(365)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)
        repo.set_rules(7)
        world.lake.clock.advance(hours=23.9)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)
        world.lake.clock.advance(hours=24)
        assert world.run(settled).amount(Status.DELETED).objects > 0

    def it_does_not_wait_after_lakeplan_raised_rules(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        world.lake.clock.advance(hours=1)
        applied(world, repo, GcRules(7), GcRules(8))
        world.run(settled)

    def it_notices_rules_that_are_lowered_while_other_repositories_are_read(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.lake.clock.advance(hours=1)
        applied(world, repo, GcRules(7), GcRules(365))
        read = run.all_others

        def lower_meanwhile(*arguments: Any, **more: Any) -> Any:
            repo.set_rules(7)
            return read(*arguments, **more)

        monkeypatch.setattr(run, "all_others", lower_meanwhile)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)
        assert {*world.going(settled)} <= {*repo.stored()}

    def it_counts_a_run_from_its_end(self, world: SweepWorld, repo: LakeRepository, settled: Mark) -> None:
        """It began before the rules were last seen, and wrote them after."""
        world.lake.clock.advance(hours=1)
        applied(world, repo, GcRules(365), GcRules(7), hours=20)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)

    def it_does_not_count_lowerings_of_other_repositories(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        world.lake.clock.advance(hours=1)
        applied(world, repo, GcRules(365), GcRules(7))
        (key,) = world.state.list_keys("history/")
        record = json.loads(world.state.read(key).data)  # type: ignore[union-attr]
        record["repositories"] = {"prod/repo2": record["repositories"]["prod/repo1"]}
        write(world, key, record)
        assert world.run(settled).amount(Status.DELETED).objects > 0

    def it_counts_a_run_that_was_killed_or_damaged_as_a_lowering(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        applied(world, repo, GcRules(8), GcRules(7))
        (key,) = world.state.list_keys("history/")
        record = json.loads(world.state.read(key).data)  # type: ignore[union-attr]
        write(world, key, {**record, "finished_at": None})
        world.lake.clock.advance(hours=25)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)
        write(world, key, {})
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)

    def it_starts_anew_when_the_state_was_lost(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        forget(world, "sweep/rules/prod/repo1.json")
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)

    def it_counts_from_an_apply_that_found_the_rules_in_place(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        """Rules that it did not write itself may have been raised and lowered again before."""
        applied(world, repo, GcRules(7), GcRules(8))
        applied_again(world, "0")
        mark = world.mark()
        world.approve(mark)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(mark)
        world.lake.clock.advance(hours=24)
        assert world.run(mark).amount(Status.DELETED).objects > 0

    def it_knows_of_a_lowering_when_an_older_state_is_put_back(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        key = "sweep/rules/prod/repo1.json"
        old = world.state.read(key)
        assert old is not None
        for days in (30, 7):
            repo.set_rules(days)
            world.mark()
        write(world, key, json.loads(old.data))
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)

    @pytest.mark.parametrize("far", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"])
    def it_starts_anew_when_a_record_has_a_moment_at_the_ends_of_the_calendar(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark, far: str
    ) -> None:
        record = json.loads(world.site().store.read(RULES_KEY))
        world.site().store.put(RULES_KEY, json.dumps({**record, "lowered_at": far}).encode())
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)
        world.lake.clock.advance(hours=24)
        assert world.run(settled).amount(Status.DELETED).objects > 0

    def it_takes_a_damaged_run_at_the_end_of_the_calendar_for_one_of_now(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        write(world, "history/99991231T235959.000001Z-0a.json", {})
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)

    @pytest.mark.parametrize("data", [b"damaged", b"{}", b'{"rules": 1}'])
    def it_starts_anew_when_a_record_is_damaged(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark, data: bytes
    ) -> None:
        world.site().store.put(RULES_KEY, data)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(settled)

    def it_counts_the_rules_of_a_repository_that_was_made_again_from_their_first_sight(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        """They are the first ones of this repository, and by chance those of the one before."""
        applied(world, repo, GcRules(8), GcRules(7))
        world.lake.clock.advance(hours=25)
        world.lake.call("DELETE", "/repositories/repo1")
        again = world.lake.repository("repo1", "local://again")
        world.lake.clock.advance(days=1)
        for age in (40, 30, 20, 1):
            again.commit(age, a=bytes([age]))
        world.lake.clock.advance(days=2)
        again.set_rules(7)
        mark = world.mark()
        world.approve(mark)
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(mark)
        world.lake.clock.advance(hours=24)
        assert world.run(mark).amount(Status.DELETED).objects > 0

    def it_looks_again_before_every_round(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark
    ) -> None:
        world.marker.rows = world.sweeper.parts_a_round = 1
        mark = world.mark()
        world.approve(mark)
        world.sweeper.after_round = lambda number: applied(world, repo, GcRules(30), GcRules(7))
        end = world.run(mark)
        assert "retention was shortened less than" in end.problem
        assert end.amount(Status.DELETED).objects == 1


class DescribeClocks:
    @pytest.mark.parametrize("hours", [25, -25, 0.1, -0.1])
    def it_never_deletes_by_a_clock_that_is_wrong(
        self, world: SweepWorld, repo: LakeRepository, settled: Mark, hours: float
    ) -> None:
        before = repo.stored()
        for clock in ("skew", "store_skew"):
            setattr(world, clock, timedelta(hours=hours))
            with pytest.raises(ClockSkew, match="this machine's clock shows"):
                world.run(settled)
            with pytest.raises(ClockSkew, match="this machine's clock shows"):
                world.mark()
            setattr(world, clock, timedelta())
        assert before <= repo.stored()
        assert world.run(settled).amount(Status.DELETED).objects > 0

    @pytest.mark.parametrize("clock", ["skew", "store_skew"])
    def it_waits_by_the_earliest_clock(self, world: SweepWorld, repo: LakeRepository, clock: str) -> None:
        world.sweep["settle"] = "24h"
        mark = world.mark()
        world.approve(mark)
        world.lake.clock.advance(hours=24 - 1 / 60)
        setattr(world, clock, timedelta(minutes=2))
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(mark)

    @pytest.mark.parametrize("clock", ["skew", "store_skew"])
    def it_ends_an_old_mark_by_the_latest_clock(
        self, world: SweepWorld, repo: LakeRepository, clock: str
    ) -> None:
        mark = world.mark()
        world.approve(mark)
        world.lake.clock.advance(hours=72 - 1 / 60)
        setattr(world, clock, timedelta(minutes=2))
        with pytest.raises(StalePlan, match="older than the limit of 72 hours"):
            world.run(mark)

    @pytest.mark.parametrize("clock", ["skew", "store_skew"])
    def it_marks_by_the_earliest_clock(self, world: SweepWorld, repo: LakeRepository, clock: str) -> None:
        setattr(world, clock, timedelta(minutes=-4))
        assert world.mark().marked_at == world.lake.clock() - timedelta(minutes=4)

    def it_deletes_no_longer_by_an_inspection_when_the_clock_is_set_back(
        self, world: SweepWorld, settled: Mark, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        passed, requests = FakeTime(), list[DeleteRequest]()
        monkeypatch.setattr("lakeplan.sweep.run.time", passed)
        delete = world.sweeper.delete

        def inspecting() -> None:
            """It takes nine minutes, in which the clock is set back by thirteen."""
            if not requests:
                passed.at += 9 * 60
                world.lake.clock.advance(hours=-4 / 60)

        def note(request: DeleteRequest) -> RoundEnd:
            requests.append(request)
            return delete(request)

        monkeypatch.setattr(world.sweeper, "delete", note)
        world.between = inspecting
        world.run(settled)
        assert requests[0].until == world.now() + timedelta(minutes=1)

    def it_stops_when_a_clock_jumps_between_rounds(self, world: SweepWorld, settled: Mark) -> None:
        world.marker.rows = world.sweeper.parts_a_round = 1
        mark = world.mark()
        world.approve(mark)
        world.sweeper.after_round = lambda number: setattr(world, "skew", timedelta(hours=25))
        end = world.run(mark)
        assert "this machine's clock shows" in end.problem
        assert end.amount(Status.DELETED).objects == 1

    def it_refuses_a_server_and_a_store_that_do_not_agree(self, world: SweepWorld, settled: Mark) -> None:
        world.store_skew = timedelta(minutes=6)
        with pytest.raises(LakeplanError, match="the store's clock"):
            world.run(settled)
