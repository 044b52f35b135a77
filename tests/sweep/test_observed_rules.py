"""When rules were last lowered, by what is recorded; test_time has whole sweeps that wait for it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.errors import ClockSkew, LeaseHeld, StoreBusy
from lakeplan.formats.namespace import RULES_KEY
from lakeplan.review.run import Run
from lakeplan.state.clocks import Clocks
from lakeplan.sweep import observed_rules as module
from lakeplan.sweep.observed_rules import ObservedRules, observe_rules, site_clocks, site_lease
from lakeplan.values.pins import pin_name
from lakeplan.values.rules import NO_RULES, GcRules
from tests.memory import MemoryState
from tests.sweeping.stores import folder_store

T0 = datetime(2026, 3, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SEVEN, EIGHT, YEAR = GcRules(7), GcRules(8), GcRules(365)
KEY = "sweep/rules/prod/lake.json"


def at(hours: float) -> datetime:
    return T0 + hours * HOUR


class Case:
    """The records of one repository, which was created at 0 hours. Moments are hours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = MemoryState()
        self.store = folder_store(folder)
        self.site: Any = SimpleNamespace(
            key="prod/lake",
            desired=SimpleNamespace(name="lake"),
            repository=SimpleNamespace(creation_date=int(T0.timestamp())),
            store=self.store,
            reader=SimpleNamespace(server_time=self.server_time),
        )
        self.runs = 0
        self.server: datetime | None = T0

    def server_time(self, repository: str) -> datetime | None:
        assert repository == "lake"
        return self.server

    def look(self, rules: GcRules, hours: float, settle: float = 24) -> ObservedRules:
        clocks = Clocks(at(hours) - MINUTE, at(hours))
        return observe_rules(self.site, self.state, rules, clocks, settle_seconds=int(settle * 3600))

    def lowered(self, rules: GcRules, hours: float, settle: float = 24) -> float:
        """The hours at which rules were last lowered."""
        return (self.look(rules, hours, settle).lowered_at - T0) / HOUR

    def write(self, key: str, record: Any) -> None:
        current = self.state.read(key)
        data = record if isinstance(record, bytes) else json.dumps(record).encode()
        self.state.write(key, data, if_version=current.version if current else None)

    def run(
        self,
        began: float,
        ended: float | None,
        repositories: dict[str, Any],
        *,
        digest: str = "0",
        **more: Any,
    ) -> str:
        """Records a run of an apply. Returns its id."""
        self.runs += 1
        run_id = f"{at(began):%Y%m%dT%H%M%S}.{self.runs:06}Z-0a"
        moments = {
            "started_at": at(began).isoformat(),
            "finished_at": None if ended is None else at(ended).isoformat(),
            "plan_as_of": at(began).isoformat(),
        }
        record = {"run_id": run_id, "command": "apply", "by": {}, **moments, "plan_digest": digest, **more}
        self.write(f"history/{run_id}.json", {**record, "repositories": repositories})
        return run_id

    def applied(
        self,
        before: GcRules | None,
        after: GcRules,
        began: float,
        ended: float | None = None,
        *,
        found: bool = False,
        **more: Any,
    ) -> str:
        """What an apply recorded that wrote rules, or that found them in place."""
        ended = began if ended is None else ended
        step = {"status": "already"} if found else replacing(before, after)
        run_id = self.run(began, ended, {"prod/lake": step, "prod/other": replacing(YEAR, EIGHT)}, **more)
        last = {"repository": "prod/lake", "config_hash": "0", "etag": after.etag, "body": after.to_body()}
        self.write("applied/prod/lake.json", {**last, "run_id": run_id, "at": at(ended).isoformat()})
        return run_id


def replacing(before: GcRules | None, after: GcRules | None) -> dict[str, Any]:
    bodies = (rules.to_body() if rules else None for rules in (before, after))
    return dict(zip(("status", "before", "after"), ("applied", *bodies), strict=True))


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    return Case(tmp_path)


class DescribeWhatEarlierLooksRecorded:
    def it_counts_from_the_first_look(self, case: Case) -> None:
        assert [case.lowered(SEVEN, hours) for hours in (100, 150, 200)] == [100, 100, 100]
        recorded = case.state.records[KEY].data
        assert case.store.read(RULES_KEY) == recorded
        assert json.loads(recorded) == {
            "rules": SEVEN.to_body(),
            "seen_at": "2026-03-09T08:00:00Z",
            "lowered_at": "2026-03-05T04:00:00Z",
        }

    def it_counts_any_change_that_nobody_recorded(self, case: Case) -> None:
        """They may have been higher in between."""
        case.look(SEVEN, 100)
        assert [case.lowered(rules, hours) for rules, hours in ((EIGHT, 150), (EIGHT, 200))] == [150, 150]

    def it_takes_the_later_of_both_records(self, case: Case) -> None:
        case.look(SEVEN, 100)
        old, old_file = case.state.records[KEY].data, case.store.read(RULES_KEY)
        case.look(EIGHT, 150)
        new_file = case.store.read(RULES_KEY)
        case.write(KEY, old)
        assert case.lowered(EIGHT, 200) == 200, "the state is the older one"
        case.write(KEY, new_file)
        case.store.put(RULES_KEY, old_file)
        assert case.lowered(EIGHT, 210) == 210, "the file is the older one"

    def it_never_takes_an_earlier_moment_than_a_record_has(self, case: Case) -> None:
        case.look(SEVEN, 100)
        assert case.lowered(EIGHT, 90) == 100

    @pytest.mark.parametrize("data", [b"damaged", b"{}"])
    def it_counts_from_now_where_a_record_is_damaged(self, case: Case, data: bytes) -> None:
        case.look(SEVEN, 100)
        case.store.put(RULES_KEY, data)
        assert case.lowered(SEVEN, 150) == 150

    def it_does_without_the_file_but_not_without_the_state(self, case: Case) -> None:
        case.look(SEVEN, 100)
        (case.folder / RULES_KEY).unlink()
        assert case.lowered(SEVEN, 150) == 100
        del case.state.records[KEY]
        assert case.lowered(SEVEN, 200) == 200

    def it_takes_no_record_of_a_predecessor(self, case: Case) -> None:
        case.look(SEVEN, 0)
        assert case.lowered(SEVEN, 50) == 0, "seen at the moment of creation"
        case.site.repository.creation_date += 50 * 3600 + 1
        assert case.lowered(SEVEN, 60) == 60

    def it_ignores_the_entries_of_pins(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        pin = pin_name("0123456789abcdef" * 4)

        def read_stored(reader: Any, repository: str) -> Any:
            assert (reader, repository) == (case.site.reader, "lake")
            return SimpleNamespace(bare=SEVEN)

        monkeypatch.setattr(module, "read_stored", read_stored)
        case.look(SEVEN, 100)
        assert case.lowered(GcRules(7, {pin: 0}), 150) == 100
        monkeypatch.setattr(module, "read_stored", lambda *_: SimpleNamespace(bare=None))
        assert case.lowered(GcRules(7, {pin: 0}), 160) == 160, "without rules, those with pins count"


class DescribeWhatAppliesRecorded:
    def it_counts_no_raise(self, case: Case) -> None:
        case.look(SEVEN, 100)
        case.applied(SEVEN, EIGHT, 110)
        assert case.look(EIGHT, 150) == ObservedRules(at(100), SEVEN)

    def it_counts_a_lowering_from_its_end(self, case: Case) -> None:
        case.look(EIGHT, 100)
        case.applied(EIGHT, SEVEN, 90, 120)
        assert case.look(SEVEN, 150) == ObservedRules(at(120), EIGHT)

    def it_counts_the_first_rules_as_a_lowering(self, case: Case) -> None:
        case.applied(None, SEVEN, 100)
        assert case.look(SEVEN, 150) == ObservedRules(at(100), NO_RULES)

    def it_counts_from_now_where_it_saw_the_rules_before_at_the_same_moment(self, case: Case) -> None:
        case.look(SEVEN, 100)
        case.applied(SEVEN, EIGHT, 100)
        assert case.lowered(EIGHT, 150) == 150

    @pytest.mark.parametrize(("before", "found"), [(YEAR, False), (SEVEN, True)])
    def it_counts_a_raise_of_rules_that_it_had_not_seen(
        self, case: Case, before: GcRules, found: bool
    ) -> None:
        case.look(SEVEN, 100)
        case.applied(before, EIGHT, 110, found=found)
        assert case.lowered(EIGHT, 150, settle=0) == 110

    def it_counts_from_an_apply_that_found_what_an_earlier_one_wrote(self, case: Case) -> None:
        """The rules may have been raised and lowered again in between."""
        case.look(SEVEN, 100)
        as_of = at(90).isoformat()
        case.applied(SEVEN, EIGHT, 110, plan_as_of=as_of)
        case.applied(None, EIGHT, 120, found=True, plan_as_of=as_of)
        assert case.look(EIGHT, 150, settle=0) == ObservedRules(at(120), SEVEN)

    def it_takes_no_earlier_moment_from_an_apply(self, case: Case) -> None:
        case.look(YEAR, 100)
        case.look(SEVEN, 200)
        data = json.loads(case.state.records[KEY].data)
        early = json.dumps({**data, "seen_at": at(100).isoformat()}).encode()
        case.write(KEY, early)
        case.store.put(RULES_KEY, early)
        case.applied(YEAR, EIGHT, 110)
        assert case.lowered(EIGHT, 250, settle=0) == 200

    def it_counts_no_apply_before_the_repository_was_created(self, case: Case) -> None:
        case.applied(EIGHT, SEVEN, -1)
        assert case.look(SEVEN, 100) == ObservedRules(at(100), None)
        del case.state.records[KEY]
        case.applied(EIGHT, SEVEN, 0)
        assert case.look(SEVEN, 150).before == EIGHT

    def it_counts_no_apply_of_other_rules(self, case: Case) -> None:
        case.applied(EIGHT, SEVEN, 50)
        assert case.look(YEAR, 100) == ObservedRules(at(100), None)

    @pytest.mark.parametrize("key", ["applied/prod/lake.json", "history/"])
    def it_does_not_know_the_rules_before_where_a_record_is_damaged(self, case: Case, key: str) -> None:
        run_id = case.applied(EIGHT, SEVEN, 50)
        case.write(f"{key}{run_id}.json" if key == "history/" else key, b"damaged")
        assert case.look(SEVEN, 100).before is None

    def it_does_not_take_a_state_that_does_not_answer_for_one_without_records(
        self, case: Case, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise StoreBusy("SlowDown")

        case.applied(EIGHT, SEVEN, 50)
        monkeypatch.setattr(module, "find_run", fail)
        with pytest.raises(StoreBusy):
            case.look(SEVEN, 100)

    def it_takes_the_rules_before_from_an_earlier_run_of_the_same_plan(self, case: Case) -> None:
        as_of = at(40).isoformat()
        case.applied(EIGHT, SEVEN, 50, plan_as_of=as_of)
        case.applied(None, SEVEN, 60, found=True, plan_as_of=as_of)
        assert case.look(SEVEN, 100).before == EIGHT
        case.run(55, 55, {"prod/lake": {"status": "already"}}, digest="1")
        case.run(56, 56, {"prod/other": replacing(YEAR, SEVEN)}, digest="1")
        assert case.look(SEVEN, 101).before == EIGHT
        case.run(57, 57, {"prod/lake": replacing(YEAR, SEVEN)}, digest="1")
        assert case.look(SEVEN, 102).before is None

    def it_does_not_know_the_rules_before_of_a_run_without_the_moment_of_its_plan(self, case: Case) -> None:
        case.applied(EIGHT, SEVEN, 50, plan_as_of=None)
        case.applied(None, SEVEN, 60, found=True, plan_as_of=None)
        assert case.look(SEVEN, 100).before is None


class DescribeTheHistory:
    @pytest.fixture
    def seen(self, case: Case) -> Case:
        """The rules are the ones that were seen at 0 hours."""
        case.look(SEVEN, 0)
        return case

    @pytest.mark.parametrize(
        ("step", "hours"),
        [
            (replacing(EIGHT, SEVEN), 110),
            (replacing(None, SEVEN), 110),
            (replacing(SEVEN, EIGHT), 0),
            (replacing(SEVEN, SEVEN), 0),
            (replacing(SEVEN, None), 0),
            ({"status": "already"}, 0),
        ],
    )
    def it_has_every_lowering(self, seen: Case, step: dict[str, Any], hours: float) -> None:
        seen.run(100, 110, {"prod/other": replacing(YEAR, SEVEN), "prod/lake": step})
        assert seen.lowered(SEVEN, 120) == hours

    def it_has_no_lowerings_of_other_repositories(self, seen: Case) -> None:
        seen.run(100, 110, {"prod/other": replacing(YEAR, SEVEN)})
        assert seen.lowered(SEVEN, 120) == 0

    @pytest.mark.parametrize(("now", "hours"), [(110, 110), (200, 124)])
    def it_takes_a_run_that_was_killed_to_have_lasted_for_a_day(
        self, seen: Case, now: float, hours: float
    ) -> None:
        seen.run(100, None, {"prod/lake": replacing(EIGHT, SEVEN)})
        assert seen.lowered(SEVEN, now, settle=24 * 7) == hours

    @pytest.mark.parametrize(("now", "hours"), [(90, 90), (110, 110), (200, 124)])
    def it_takes_a_damaged_run_for_a_lowering(self, seen: Case, now: float, hours: float) -> None:
        seen.write(f"history/{at(100):%Y%m%dT%H%M%S}.000001Z-0a.json", b"damaged")
        assert seen.lowered(SEVEN, now, settle=24 * 7) == hours

    def it_is_searched_for_the_last_lowering(self, seen: Case) -> None:
        seen.run(90, 91, {"prod/lake": replacing(SEVEN, EIGHT)})
        seen.run(100, 130, {"prod/lake": replacing(EIGHT, SEVEN)})
        seen.write(f"history/{at(101):%Y%m%dT%H%M%S}.000009Z-0a.json", b"damaged")
        assert seen.lowered(SEVEN, 200, settle=24 * 7) == 130, "25 hours after the other began"
        seen.run(150, 151, {"prod/lake": replacing(EIGHT, SEVEN)})
        assert seen.lowered(SEVEN, 200, settle=24 * 7) == 151

    def it_is_not_searched_longer_than_rules_settle(self, seen: Case) -> None:
        seen.run(100, 101, {"prod/lake": replacing(EIGHT, SEVEN)})
        assert seen.lowered(SEVEN, 148.1, settle=24) == 0, "a day for the wait, a day for the run"
        seen.run(101, 102, {"prod/lake": replacing(EIGHT, SEVEN)})
        assert seen.lowered(SEVEN, 149, settle=24) == 102


class DescribeClocks:
    def it_reads_those_of_the_server_and_the_store(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[Any] = []

        def store_time(store: Any, key: str, record: Any) -> datetime:
            written.append((store, key, record))
            return T0 + 2 * MINUTE

        monkeypatch.setattr(module, "store_time", store_time)
        case.server = T0 - MINUTE
        clocks = site_clocks(case.site, "a/clock.json", lambda: T0, by="ann")
        assert clocks == Clocks(T0 - MINUTE, T0 + 2 * MINUTE)
        assert written == [(case.store, "a/clock.json", {"by": "ann", "at": T0.isoformat()})]

    def it_names_the_repository_and_the_clock_that_is_wrong(self, case: Case) -> None:
        case.server = T0 + HOUR
        with pytest.raises(ClockSkew, match="the server's clock") as caught:
            site_clocks(case.site, "a/clock.json", lambda: T0, by="ann")
        assert caught.value.where == "prod/lake"


class DescribeTheLease:
    def it_is_the_repository_s_for_longer_than_a_round(self, case: Case) -> None:
        now, asked = T0, []

        def is_gone(holder: Any) -> bool:
            asked.append(holder["user"])
            return False

        run, other = (Run("r", {"user": user}, lambda: now, is_gone) for user in ("ann", "bob"))
        with site_lease(case.site, case.state, run):
            now, case.server = T0 + 30 * MINUTE, T0 + HOUR
            with pytest.raises(LeaseHeld, match="prod/lake"), site_lease(case.site, case.state, other):
                raise AssertionError("two runs have it")
        assert asked == ["ann"]

    def it_is_not_over_by_the_clock_of_one_machine(self, case: Case) -> None:
        now = T0
        run, other = (Run("r", {"user": user}, lambda: now, lambda _: False) for user in ("ann", "bob"))
        site_lease(case.site, case.state, run).__enter__()
        now, case.server = T0 + 3 * HOUR, T0 + MINUTE
        with pytest.raises(ClockSkew) as caught, site_lease(case.site, case.state, other):
            raise AssertionError("the server's clock says that the lease is not over")
        assert caught.value.where == "prod/lake"
        case.server = now - MINUTE
        with site_lease(case.site, case.state, other):
            assert case.state.list_keys("leases/") == ["leases/prod/lake.json"]
