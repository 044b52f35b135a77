"""Histories drawn as small pictures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.retention.graph import CommitGraph
from lakeplan.values.repository import Branch, Commit, Refs

NOW = datetime(2022, 3, 31, 12, tzinfo=timezone.utc)

Draw = Callable[[str], CommitGraph]


def draw_refs(picture: str) -> Refs:
    """A line per commit: ``branches -> id  age in days  parents``; ``v0`` at its end for an old version."""
    commits, branches = [], []
    for line in filter(str.strip, picture.splitlines()):
        heads, _, rest = line.rpartition("->")
        commit_id, age, *parents = rest.split()
        version = 0 if parents[-1:] == ["v0"] else 1
        if version == 0:
            parents.pop()
        created = NOW - timedelta(days=float(age))
        created_us = (created - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
        commits.append(Commit(commit_id, created_us, f"mr-{commit_id}", tuple(parents), version))
        branches += [Branch(name, commit_id) for name in heads.split()]
    return Refs(tuple(commits), tuple(branches), ())


@pytest.fixture
def refs() -> Callable[[str], Refs]:
    return draw_refs


@pytest.fixture
def draw() -> Draw:
    return lambda picture: CommitGraph.from_refs(draw_refs(picture))


@pytest.fixture
def now() -> datetime:
    """2022-03-31, noon UTC: ages in pictures count from here."""
    return NOW


@pytest.fixture
def kept() -> Callable[[CommitGraph, bytearray], str]:
    """The ids that flags mark, as a picture's answer: ``a b c``."""
    return lambda graph, flags: " ".join(graph.ids[n] for n, flag in enumerate(flags) if flag)
