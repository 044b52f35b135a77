"""Commits in order of their dates."""

from __future__ import annotations

from array import array

from lakeplan.core.retention.graph import CommitGraph


def by_date(graph: CommitGraph) -> array[int]:
    """Per commit number, its position by creation date, then id: the greatest is an object's last commit."""
    position = array("q", bytes(8 * len(graph)))
    for at, commit in enumerate(oldest_first(graph)):
        position[commit] = at
    return position


def oldest_first(graph: CommitGraph) -> list[int]:
    """Commit numbers by creation date, then id."""
    # numbers are in the order of ids already, and sorting is stable
    return sorted(range(len(graph)), key=graph.creation_us.__getitem__)
