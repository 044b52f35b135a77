"""A world with a checker, an operator and a repository."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.checker import Checker
from tests.chaos.operators import Operator
from tests.chaos.wire import no_threads_no_waiting
from tests.chaos.world import ChaosWorld
from tests.sweeping.lake import LakeRepository


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChaosWorld]:
    # Power cuts have tests of their own; thousands of small files are quicker without the disk.
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    made = ChaosWorld(tmp_path)
    with no_threads_no_waiting(lambda: made.wire):
        yield made
    made.lake.close()


@pytest.fixture
def operator(world: ChaosWorld) -> Operator:
    return Operator(world, Checker(world))


@pytest.fixture
def repo(world: ChaosWorld, operator: Operator) -> LakeRepository:
    """``a.bin`` was written anew 40, 30, 20 and 10 days ago and today, under 7 days: three versions of it
    have expired, and everything stored is old enough to be deleted."""
    repository = world.repository()
    for age, data in ((40, b"first"), (30, b"second"), (20, b"third"), (10, b"fourth"), (0, b"fifth")):
        repository.commit(age, a=data)
    repository.set_rules(7)
    world.lake.clock.advance(days=2)
    return repository
