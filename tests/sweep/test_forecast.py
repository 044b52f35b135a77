"""How a mark differs from the forecast of its rules' plan."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from lakeplan.state.store import record_forecast
from lakeplan.sweep.contents import forecast_of
from lakeplan.sweep.mark_record import Mark
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount
from tests.sweep.test_time import applied, write
from tests.sweeping.lake import LakeRepository
from tests.sweeping.world import SweepWorld

DAY = timedelta(days=1)


@pytest.fixture
def mark(world: SweepWorld, repo: LakeRepository) -> Mark:
    """Two objects, 11 bytes, newly expired by an apply of a moment ago."""
    applied(world, repo, GcRules(365), GcRules(7))
    return world.mark()


def forecast(world: SweepWorld, *expire: tuple[float, int, int], run_id: str = "") -> None:
    """Days since the mark, objects, bytes."""
    record = world.state.read("applied/prod/repo1.json")
    assert record is not None
    record_forecast(
        world.state,
        "prod/repo1",
        run_id=run_id or json.loads(record.data)["run_id"],
        plan_digest="d" * 64,
        expire={world.now() + days * DAY: Amount(objects, size) for days, objects, size in expire},
    )


def it_knows_none_without_a_plan_on_record(world: SweepWorld, mark: Mark) -> None:
    assert forecast_of(world.state, mark) is None


@pytest.mark.parametrize(
    ("expire", "least", "most", "differs"),
    [
        (((-1, 1, 5), (6, 2, 11)), 1, 2, "no"),
        (((-1, 1, 5), (6, 1, 5)), 1, 1, "more"),
        (((-1, 2, 10), (6, 2, 10)), 2, 2, "more"),
        (((-1, 3, 20), (6, 4, 30)), 3, 4, "fewer"),
        (((-40, 0, 0), (-33, 1, 5), (-10, 2, 11)), 2, None, "no"),
        (((1, 0, 0),), None, 0, "more"),
    ],
)
def it_compares_with_the_moments_around_the_mark(
    world: SweepWorld,
    mark: Mark,
    expire: tuple[tuple[float, int, int], ...],
    least: int | None,
    most: int | None,
    differs: str,
) -> None:
    forecast(world, *expire)
    found = forecast_of(world.state, mark)
    assert found is not None
    assert (found["least"] or {}).get("objects") == least
    assert (found["most"] or {}).get("objects") == most
    assert (found["found"]["objects"], found["differs"]) == (2, differs)


def it_ignores_a_plan_of_other_rules(world: SweepWorld, repo: LakeRepository, mark: Mark) -> None:
    forecast(world, (0, 2, 11), run_id="20240101T000000.000001Z-0a")
    assert forecast_of(world.state, mark) is None
    forecast(world, (0, 2, 11))
    assert forecast_of(world.state, mark) is not None
    repo.set_rules(6)
    assert forecast_of(world.state, world.mark()) is None, "somebody else changed the rules since"


def it_does_without_a_damaged_record(world: SweepWorld, mark: Mark) -> None:
    write(world, "forecasts/prod/repo1.json", {"repository": "prod/repo1"})
    assert forecast_of(world.state, mark) is None
