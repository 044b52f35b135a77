"""What a lakeFS server will answer to ``prepare_commits``: the documented walk with its early stop.

The server takes its starts by commit id and walks up from each; it stops at a parent that an earlier walk
visited with an older or equal limit, before marking it (``shared/lakefs/retention.md``). Walked literally
that is quadratic: each of many branches may come with an older limit than all before. Instead:

- A walk passes a commit exactly when its limit is older than those of all earlier walks that started below
  it. The walks that pass a commit are thus the *records* of the starts below it, in order of commit ids: a
  staircase of start numbers with ever older limits.
- An edge from a child keeps the parent when the child is younger than the oldest limit among those records of
  the *parent* that come up through this child.
- Between joints nothing changes; at a joint the shorter staircases are merged into the longest one, so all
  merges together cost n log² n for n starts.

Two details of the server do not change its answer, and a test compares with the literal walk: a HEAD
overwrites the limit its commit was visited with (walks that therefore go further meet only HEADs before they
reach a commit that still has the older limit), and the order of branches that share a HEAD.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from datetime import datetime, timezone, tzinfo

from lakeplan.core.retention.edges import NO_RANK, Edges, Starts, active_flags, starts_of
from lakeplan.core.retention.graph import CommitGraph
from lakeplan.core.retention.limits import limit_us
from lakeplan.model.rules import GcRules

SELF = -1
"""In a joint: the walk that starts at the commit itself, not one that comes from a child."""

Staircase = tuple[list[int], list[int]]
"""Start numbers, ascending, and their ranks, strictly ascending."""


class ServerWalk:
    """The server's walk of one rule set over one history, prepared for any number of moments."""

    def __init__(self, graph: CommitGraph, rules: GcRules) -> None:
        self._graph = graph
        self._starts = starts_of(graph, rules, graph.server_dangling)
        self._edges: dict[tuple[int, ...], Edges] = {}

    def active(self, as_of: datetime, zone: tzinfo = timezone.utc) -> bytearray:
        """Per commit number, 1 when a server in ``zone``, asked at ``as_of`` (aware), keeps it."""
        limits = [limit_us(as_of, days, zone) for days in self._starts.days]
        return active_flags(self._graph, self._starts, self._edges_for(limits), limits)

    def _edges_for(self, limits: list[int]) -> Edges:
        # Different days can have the same limit (a day that a zone skipped, days past all calendars), and
        # the walk stops at equal limits: ranks then count limits, not days.
        levels = [0] * len(limits)
        for rank in range(1, len(limits)):
            levels[rank] = levels[rank - 1] if limits[rank] == limits[rank - 1] else rank
        key = tuple(levels)
        if key not in self._edges:
            self._edges[key] = _Joints(self._graph, self._starts, levels).edges()
        return self._edges[key]


def server_verdict(
    graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo = timezone.utc
) -> bytearray:
    """The server's answer at one moment. For several moments prepare one ``ServerWalk``."""
    return ServerWalk(graph, rules).active(as_of, zone)


class _Joints:
    """One pass from the leaves up, carrying the staircase of the starts below."""

    def __init__(self, graph: CommitGraph, starts: Starts, levels: list[int]) -> None:
        self._graph = graph
        self._dangling = {commit: n for n, commit in enumerate(starts.dangling)}
        self._own_rank = array("i", [rank if rank == NO_RANK else levels[rank] for rank in starts.rank])
        self._of_child = array("i", [NO_RANK]) * len(graph)
        self._of_dangling = array("i", [NO_RANK]) * len(starts.dangling)

    def edges(self) -> Edges:
        parents, child_count, own_rank = self._graph.main_parent, self._graph.child_count, self._own_rank
        arrived: dict[int, list[tuple[int, Staircase]]] = {}
        for leaf, count in enumerate(child_count):
            if count:
                continue
            commit = leaf
            stairs = self._join(commit, [])
            while (parent := parents[commit]) >= 0:
                if child_count[parent] == 1 and own_rank[parent] == NO_RANK:
                    self._of_child[commit] = stairs[1][-1] if stairs[1] else NO_RANK
                else:
                    below = arrived.setdefault(parent, [])
                    below.append((commit, stairs))
                    if len(below) < child_count[parent]:
                        break
                    stairs = self._join(parent, arrived.pop(parent))
                commit = parent
        return Edges(self._of_child, self._of_dangling)

    def _join(self, commit: int, below: list[tuple[int, Staircase]]) -> Staircase:
        """Merge what comes up to a commit, and what starts there; note the rank that each child is left
        with. The longest staircase is changed in place."""
        if self._own_rank[commit] != NO_RANK:
            below.append((SELF, ([commit], [self._own_rank[commit]])))
        if not below:
            return [], []
        longest = max(range(len(below)), key=lambda n: len(below[n][1][0]))
        child, merged = below.pop(longest)
        for _, (numbers, ranks) in below:
            for number, rank in zip(numbers, ranks, strict=True):
                _add(merged, number, rank)
        joined: set[int] = set()
        for other, (numbers, ranks) in below:
            passing = [(n, rank) for n, rank in zip(numbers, ranks, strict=True) if _has(merged, n)]
            joined.update(n for n, _ in passing)
            self._note(commit, other, passing[-1][1] if passing else NO_RANK)
        last = len(merged[0]) - 1
        while last >= 0 and merged[0][last] in joined:
            last -= 1
        self._note(commit, child, merged[1][last] if last >= 0 else NO_RANK)
        return merged

    def _note(self, commit: int, child: int, rank: int) -> None:
        if child != SELF:
            self._of_child[child] = rank
        elif commit in self._dangling:
            self._of_dangling[self._dangling[commit]] = rank


def _add(stairs: Staircase, number: int, rank: int) -> None:
    """Add a start unless an earlier one has an older or equal limit; drop the later ones it then stops."""
    numbers, ranks = stairs
    at = bisect_left(numbers, number)
    if at and ranks[at - 1] >= rank:
        return
    stopped = bisect_right(ranks, rank, at)
    numbers[at:stopped] = [number]
    ranks[at:stopped] = [rank]


def _has(stairs: Staircase, number: int) -> bool:
    at = bisect_left(stairs[0], number)
    return at < len(stairs[0]) and stairs[0][at] == number
