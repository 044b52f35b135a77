"""Records of HEADs that were observed, and the reads before they are removed."""

from __future__ import annotations

from datetime import datetime

import pytest

from lakeplan.branches.deletion_records import (
    SEEN_KEPT,
    Deletion,
    DeletionRecord,
    Fate,
    drop_observed,
    list_runs,
    record_heads,
)
from lakeplan.review.run import Run
from lakeplan.values.branches import LiveBranch

KEY = "prod/analytics"


@pytest.fixture
def look(world):
    """Records one observation of the HEADs, this many days ago. Returns its run id."""
    today = world.clock.now

    def look(days_ago: int) -> str:
        world.clock.now = today
        world.clock.wait(-days_ago)
        run_id = id_at(world.clock.now)
        run = Run(run_id, {}, lambda: world.clock.now, lambda _: False)
        record_heads(world.state, KEY, [LiveBranch("feature-1", f"c{days_ago}", False)], run)
        world.clock.now = today
        return run_id

    return look


def id_at(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%S.%fZ}-00000000"


def reads(world) -> list[str]:
    """Run ids of the records that forgetting reads."""
    world.state.log.clear()
    drop_observed(world.state, KEY, world.clock.now)
    return [line.rpartition("/")[2].removesuffix(".json") for line in world.state.log if "read" in line]


def it_forgets_what_newer_ones_took_the_place_of_long_ago(world, look):
    first, second, new = look(SEEN_KEPT.days + 50), look(SEEN_KEPT.days + 1), look(1)
    assert reads(world) == [first, second]
    assert list_runs(world.state, KEY) == [second, new]


def it_reads_no_record_whose_run_id_is_too_new(world, look):
    look(SEEN_KEPT.days - 1)
    look(1)
    assert reads(world) == []


def it_reads_none_where_one_old_one_is_left_in_force(world, look):
    kept = look(SEEN_KEPT.days + 1)
    new = look(1)
    assert reads(world) == []
    assert list_runs(world.state, KEY) == [kept, new]


def it_reads_no_new_record_of_what_a_run_deleted(world, look):
    old = [look(SEEN_KEPT.days + 9), look(SEEN_KEPT.days + 1)]
    deleted = {"feature-1": Deletion("c1", fate=Fate.DELETED)}
    DeletionRecord(world.state, KEY, id_at(world.clock.now), "2026-03-01T00:00:00Z", {}, deleted).save()
    assert reads(world) == old


def it_tells_the_age_by_the_record_where_the_id_has_none(world):
    branch = LiveBranch("feature-1", "c1", False)
    for days in (0, 1, SEEN_KEPT.days + 2):
        world.clock.wait(days)
        record_heads(world.state, KEY, [branch], world.this_run())
    drop_observed(world.state, KEY, world.clock.now)
    assert list_runs(world.state, KEY) == ["run-002", "run-003"]
