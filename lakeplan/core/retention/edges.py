"""What the server's walk and the documented rule share.

Both say: a commit is kept when it is a HEAD, or when a child of it (along main parents) is younger than some
limit; a dangling start counts as a child of its own date. They differ in whose limit reaches which edge from
a child to its main parent. That part depends on rules and history and not on the moment: it is computed once
as *ranks* of retention days, and every ``as_of`` is then one pass over the edges.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from lakeplan.core.retention.graph import CommitGraph
from lakeplan.model.rules import GcRules

NO_RANK = -1
_LAST_US = 2**63 - 1
"""The greatest date that a commit can have: nothing is after it."""


@dataclass(frozen=True)
class Starts:
    """Where walks start. ``days``: the distinct retention days, ascending; a *rank* is a position in it, so a
    greater rank is an older limit. ``rank``: per commit, the greatest rank that starts there, or -1."""

    days: tuple[int, ...]
    rank: array[int]
    default_rank: int
    dangling: array[int]


def starts_of(graph: CommitGraph, rules: GcRules, dangling: array[int]) -> Starts:
    """Starts of a rule set: every HEAD with its branch's days, dangling commits with the default."""
    of_branch = [rules.days_for(branch.id) for branch in graph.branches]
    days = tuple(sorted({*of_branch, rules.default_retention_days}))
    rank_of = {value: rank for rank, value in enumerate(days)}
    rank = array("i", [NO_RANK]) * len(graph)
    for head, value in zip(graph.heads, of_branch, strict=True):
        rank[head] = max(rank[head], rank_of[value])
    default_rank = rank_of[rules.default_retention_days]
    for commit in dangling:
        rank[commit] = default_rank
    return Starts(days, rank, default_rank, dangling)


@dataclass(frozen=True)
class Edges:
    """The oldest limit that decides at each edge. ``of_child``: per commit, the rank for the edge to its main
    parent; ``of_dangling``: per item of ``Starts.dangling``, the rank for the commit itself. -1: none."""

    of_child: array[int]
    of_dangling: array[int]


def active_flags(graph: CommitGraph, starts: Starts, edges: Edges, limits: Sequence[int]) -> bytearray:
    """1 for every commit that ``edges`` keep when the rank r has the limit ``limits[r]``."""
    active = bytearray(graph.is_head)
    # rank -1 ("none") finds the last item: a limit that nothing is after
    limit_of = [*limits, _LAST_US]
    for parent, created, rank in zip(graph.main_parent, graph.creation_us, edges.of_child, strict=True):
        if created > limit_of[rank] and parent >= 0:
            active[parent] = 1
    for commit, rank in zip(starts.dangling, edges.of_dangling, strict=True):
        if graph.creation_us[commit] > limit_of[rank]:
            active[commit] = 1
    return active


def all_kept(graph: CommitGraph) -> bytearray:
    """Every commit kept: without rules the collector cannot run (``shared/lakefs/retention.md``)."""
    return bytearray(b"\x01") * len(graph)
