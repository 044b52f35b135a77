"""How far the marks of a list are."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

import pytest

from lakeplan.errors import StoreBusy
from lakeplan.sweep.records import list_marks
from tests.sweeping.lake import LakeRepository
from tests.sweeping.world import SweepWorld


def row(world: SweepWorld, **later: float) -> dict[str, Any]:
    (found,) = list_marks(world.state, world.now() + timedelta(**later))["marks"]
    return {**found}


def it_says_of_a_mark_that_it_is_too_old_to_be_swept(world: SweepWorld, repo: LakeRepository) -> None:
    mark = world.mark()
    assert row(world)["state"] == "marked"
    assert row(world, hours=71)["state"] == "marked"
    assert row(world, hours=72)["state"] == "too_old"
    world.approve(mark)
    assert row(world, hours=71)["state"] == "approved"
    assert row(world, hours=72)["state"] == "too_old"


def it_says_what_was_swept(world: SweepWorld, repo: LakeRepository) -> None:
    world.sweep_of(world.mark())
    found = row(world, hours=100)
    assert (found["state"], found["goes"], found["deleted"]["objects"]) == ("swept", found["deleted"], 2)


@pytest.mark.parametrize("field", ["goes", "marked_at"])
def it_lists_a_mark_whose_record_lacks_a_field_as_unknown(
    world: SweepWorld, repo: LakeRepository, field: str
) -> None:
    mark = world.mark()
    key = f"sweep/marks/{mark.mark_id}.json"
    stored = world.state.read(key)
    assert stored is not None
    index = json.loads(stored.data)
    del index[field]
    world.state.write(key, json.dumps(index).encode(), if_version=stored.version)
    assert (row(world)["state"], row(world)["goes"]) == ("unknown", None)


def it_lists_a_mark_whose_records_are_damaged(world: SweepWorld, repo: LakeRepository) -> None:
    mark = world.mark()
    world.sweep_of(mark)
    for key in (f"sweep/marks/{mark.mark_id}.json", "sweep/ends/prod/repo1.json"):
        stored = world.state.read(key)
        assert stored is not None
        world.state.write(key, b"{", if_version=stored.version)
    found = row(world)
    assert (found["repository"], found["state"], found["goes"]) == ("?", "unknown", None)


def it_does_not_list_a_swept_mark_as_approved_if_the_record_of_its_sweep_is_unreadable(
    world: SweepWorld, repo: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.sweep_of(world.mark())
    key = "sweep/ends/prod/repo1.json"
    stored = world.state.read(key)
    assert stored is not None
    world.state.write(key, b"{", if_version=stored.version)
    found = row(world)
    assert (found["repository"], found["state"], found["deleted"]) == ("prod/repo1", "unknown", None)
    read = world.state.read

    def busy(wanted: str) -> Any:
        if wanted == key:
            raise StoreBusy("busy")
        return read(wanted)

    monkeypatch.setattr(world.state, "read", busy)
    with pytest.raises(StoreBusy):
        row(world)


@pytest.mark.parametrize("name", [b"a copy.json", b"\xff.json", b".json"])
def it_lists_no_file_that_is_no_mark(world: SweepWorld, repo: LakeRepository, name: bytes) -> None:
    mark = world.mark()
    with open(os.path.join(os.fsencode(world.folder), b"state/sweep/marks", name), "wb") as file:
        file.write(b"{}")
    assert row(world)["mark_id"] == mark.mark_id
