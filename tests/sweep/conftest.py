"""A sandbox and the plain engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeplan.sweep import deleting
from tests.in_process import no_sockets
from tests.sweeping.lake import Lake, LakeRepository
from tests.sweeping.stores import FakeTime
from tests.sweeping.world import SweepWorld


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepWorld]:
    monkeypatch.setattr(deleting, "time", FakeTime())
    # Power cuts have tests of their own; thousands of small files are quicker without the disk.
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    lake = Lake(tmp_path / "lake")
    with no_sockets():
        yield SweepWorld(tmp_path, lake)
    lake.close()


@pytest.fixture
def repo(world: SweepWorld) -> LakeRepository:
    """``repo1`` with a history: ``a.bin`` was written anew 40, 30 and 20 days ago and yesterday, under a
    rule of 7 days: the first two versions have expired, the third was the HEAD 7 days ago."""
    repository = world.lake.repository("repo1")
    world.lake.clock.advance(days=1)
    for age, data in ((40, b"first"), (30, b"second"), (20, b"third"), (1, b"fourth")):
        repository.commit(age, a=data)
    repository.set_rules(7)
    world.lake.clock.advance(days=2)
    return repository
