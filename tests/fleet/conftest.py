"""A server with one repository, for what reports on whole servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.in_process import no_sockets
from tests.sweeping.lake import Lake, LakeRepository


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path / "lake")
    with no_sockets():
        yield lake
    lake.close()


@pytest.fixture
def repo(lake: Lake) -> LakeRepository:
    """``a.bin`` was written anew 40, 30 and 20 days ago and yesterday, under a rule of 7 days."""
    repository = lake.repository("repo1")
    lake.clock.advance(days=1)
    for age, data in ((40, b"first"), (30, b"second"), (20, b"third"), (1, b"fourth")):
        repository.commit(age, a=data)
    repository.set_rules(7)
    lake.clock.advance(days=2)
    return repository
