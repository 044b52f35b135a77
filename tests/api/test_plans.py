"""Plan files, and the separate file that names their objects."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lakeplan.api import objects_path, read_plan
from lakeplan.errors import LakeplanError
from lakeplan.values.plan import Bit, Impact, ImpactStatus, Plan, RepositoryPlan, Shown
from lakeplan.values.plan_document import dump_objects, dump_plan
from lakeplan.values.rules import Action, GcRules
from lakeplan.values.shown_records import Records, object_digests, packed


def records(name: str, count: int) -> bytes:
    return packed([(object_digests(f"prod/{name}", map(str, range(count))), int(Bit.NOW))])


def a_plan(**counts: int) -> Plan:
    """Repositories that name so many objects."""
    repositories = tuple(
        RepositoryPlan(
            server="prod",
            name=name,
            entry=name,
            endpoint_url="https://lakefs.example.com",
            config_hash="h",
            action=Action.ADD,
            before=None,
            after=GcRules(7),
            impact=Impact(ImpactStatus.SIMULATED, shown=Shown.of(records(name, count))),
        )
        for name, count in counts.items()
    )
    return Plan(datetime(2026, 3, 31, tzinfo=timezone.utc), "0", "t", None, repositories)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    plan = a_plan(large=2_500, none=0, other=3_000, small=2_000)
    path = tmp_path / "plan.json"
    path.write_text(dump_plan(plan))
    objects_path(path).write_bytes(dump_objects(plan))
    return path


def named(plan: Plan) -> dict[str, Records | None]:
    shown = {r.name: r.impact.shown for r in plan.repositories}
    return {name: s.read() if s is not None else None for name, s in shown.items()}


def it_reads_the_objects_from_the_plan_or_from_the_file_beside_it(file: Path) -> None:
    found = named(read_plan(file))
    counts = {name: r.count(Bit.NOW) for name, r in found.items() if r is not None}
    assert counts == {"large": 2_500, "none": 0, "other": 3_000, "small": 2_000}
    large = found["large"]
    assert large is not None
    assert large.lacks(object_digests("prod/large", ["0", "2499"]), Bit.NOW) == 0


def it_says_that_they_are_missing_and_shows_the_plan_all_the_same(file: Path) -> None:
    objects_path(file).unlink()
    found = named(read_plan(file))
    assert (found["large"], found["other"]) == (None, None)
    assert found["small"] is not None


@pytest.mark.parametrize("edit", ["cut", "longer", "other records", "swapped", "head"])
def it_refuses_the_objects_of_another_plan(file: Path, edit: str) -> None:
    path = objects_path(file)
    data = path.read_bytes()
    head, size = data.index(b"\n") + 1, 17 * 2_500
    large, other = data[head : head + size], data[head + size :]
    path.write_bytes(
        {
            "cut": data[:-17],
            "longer": data + data[-17:],
            "other records": data[:head] + records("evil", 2_500) + other,
            "swapped": data[:head] + other + large,
            "head": b"lakeplan.plan-objects/v2\n" + data[head:],
        }[edit]
    )
    with pytest.raises(LakeplanError) as caught:
        read_plan(file)
    assert caught.value.where == str(path)
    assert "together" in caught.value.hint


def it_refuses_a_plan_that_hides_its_objects(file: Path) -> None:
    """Few objects are in the plan file itself: an empty list there is an edit."""
    plan = a_plan(small=5)
    shown = plan.repositories[0].impact.shown
    assert shown is not None
    hidden = replace(plan.repositories[0].impact, shown=replace(shown, inline=""))
    file.write_text(dump_plan(replace(plan, repositories=(replace(plan.repositories[0], impact=hidden),))))
    with pytest.raises(LakeplanError, match="stored in the wrong file"):
        read_plan(file)
