"""Where the commits of a history stand in a drawing: a row each, the newest first, and a lane each.

Every commit stands above its parents. A lane is followed from a commit to its main parent for as long as that
one has no place yet; the longest line of main parents (as a rule the default branch) has lane 0 to itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from lakeplan.core.retention import CommitGraph


@dataclass(frozen=True)
class Drawing:
    """``order``: commit numbers from the top down. ``lane``: per commit number. ``lanes``: how many."""

    order: list[int]
    lane: list[int]
    lanes: int


def draw(graph: CommitGraph, parents: Sequence[Sequence[int]]) -> Drawing:
    """Places for all commits. ``parents``: per commit number, the numbers of all its parents, the main one
    included."""
    order = _top_down(graph, parents)
    if len(order) < len(graph):
        # Other parents in a circle: no server makes them, and retention does not look at them.
        order = _top_down(graph, [[p] if p >= 0 else [] for p in graph.main_parent])
    lane = [-1] * len(graph)
    first = _longest_line(graph)
    free: list[int] = []
    lanes = 1
    # per commit number, the lanes that end at it
    waiting: dict[int, list[int]] = {}
    for commit in order:
        ends = waiting.pop(commit, [])
        if commit in first:
            lane[commit] = 0
        elif ends:
            lane[commit] = min(ends)
        elif free:
            lane[commit] = heapq.heappop(free)
        else:
            lane[commit], lanes = lanes, lanes + 1
        for other in ends:
            if other not in (lane[commit], 0):
                heapq.heappush(free, other)
        parent = graph.main_parent[commit]
        if parent >= 0:
            waiting.setdefault(parent, []).append(lane[commit])
        elif lane[commit]:
            heapq.heappush(free, lane[commit])
    return Drawing(order, lane, lanes)


def _top_down(graph: CommitGraph, parents: Sequence[Sequence[int]]) -> list[int]:
    """The newest first, but every commit above its parents, whatever their dates."""
    children = [0] * len(graph)
    for each in parents:
        for parent in set(each):
            children[parent] += 1
    ready = [(-graph.creation_us[n], n) for n, count in enumerate(children) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, commit = heapq.heappop(ready)
        order.append(commit)
        for parent in set(parents[commit]):
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, (-graph.creation_us[parent], parent))
    return order


def _longest_line(graph: CommitGraph) -> set[int]:
    """The commits of the branch with the longest line of main parents; of equals the first by name."""
    depth = [0] * len(graph)
    for commit in reversed(graph.order):
        parent = graph.main_parent[commit]
        depth[commit] = depth[parent] + 1 if parent >= 0 else 1
    # max takes the first of equals, and heads stand in the order of their branches' names
    commit = max(list(graph.heads) or list(graph.dangling), key=lambda n: depth[n], default=-1)
    line = set()
    while commit >= 0:
        line.add(commit)
        commit = graph.main_parent[commit]
    return line
