"""The documented rule: the server's walk without its early stop (``active_documented``).

From every HEAD, and from every dangling commit with the default days, along *all* main ancestors: a commit is
kept when its child on that path is younger than the start's limit. Walking each path is quadratic; but older
limits keep more, so of all starts below a child only the greatest days matter, and these are the maximum over
the child's subtree: one pass, children first.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo

from lakeplan.core.retention.edges import NO_RANK, Edges, active_flags, starts_of
from lakeplan.core.retention.graph import CommitGraph
from lakeplan.core.retention.limits import DAY_US, EARLIEST_US, LATEST_US, limit_us, zone_clock
from lakeplan.model.rules import GcRules

NEVER_EXPIRES = 2**63 - 1
"""``kept_until_us`` of a HEAD: it stays as long as its branch does."""
NEVER_KEPT = -(2**63)
"""``kept_until_us`` of a commit that no start reaches: no moment keeps it."""


@dataclass(frozen=True)
class DocumentedVerdict:
    """Per commit number: ``active`` (1: kept) at one moment, and ``kept_until_us``: the last instant, UTC
    microseconds, at which the rule keeps the commit if nobody writes; in the past for an expired one,
    ``NEVER_EXPIRES`` for a HEAD. The array is shared between verdicts: do not change it."""

    active: bytearray
    kept_until_us: array[int]


class DocumentedRule:
    """The documented rule of one rule set over one history, prepared for any number of moments."""

    def __init__(self, graph: CommitGraph, rules: GcRules) -> None:
        self._graph = graph
        self._starts = starts_of(graph, rules, graph.dangling)
        self._edges = self._edges_to_parents()
        self._kept_until: dict[tzinfo, array[int]] = {}

    def _edges_to_parents(self) -> Edges:
        starts, parents = self._starts, self._graph.main_parent
        of_child = array("i", starts.rank)
        for commit in self._graph.order:
            parent = parents[commit]
            if parent >= 0 and of_child[commit] > of_child[parent]:
                of_child[parent] = of_child[commit]
        return Edges(of_child, array("i", [starts.default_rank]) * len(starts.dangling))

    def active(self, as_of: datetime, zone: tzinfo = timezone.utc) -> bytearray:
        """Per commit number, 1 when the rule keeps it at ``as_of`` (aware) with the server in ``zone``."""
        limits = [limit_us(as_of, days, zone) for days in self._starts.days]
        return active_flags(self._graph, self._starts, self._edges, limits)

    def kept_until_us(self, zone: tzinfo = timezone.utc) -> array[int]:
        """Per commit number, when it goes: see ``DocumentedVerdict``."""
        if zone not in self._kept_until:
            self._kept_until[zone] = self._expiries(zone)
        return self._kept_until[zone]

    def verdict(self, as_of: datetime, zone: tzinfo = timezone.utc) -> DocumentedVerdict:
        return DocumentedVerdict(self.active(as_of, zone), self.kept_until_us(zone))

    def _expiries(self, zone: tzinfo) -> array[int]:
        graph, starts = self._graph, self._starts
        clock = zone_clock(zone)
        kept_until = array("q", [NEVER_KEPT]) * len(graph)
        spans = [days * DAY_US - 1 for days in starts.days]
        for parent, created, rank in zip(
            graph.main_parent, graph.creation_us, self._edges.of_child, strict=True
        ):
            if parent < 0 or rank == NO_RANK:
                continue
            if clock.fixed:
                until = min(max(created + spans[rank], EARLIEST_US), LATEST_US)
            else:
                until = clock.expiry(created, starts.days[rank])
            if until > kept_until[parent]:
                kept_until[parent] = until
        for commit in starts.dangling:
            until = clock.expiry(graph.creation_us[commit], starts.days[starts.default_rank])
            kept_until[commit] = max(kept_until[commit], until)
        for head in graph.heads:
            kept_until[head] = NEVER_EXPIRES
        return kept_until


def documented_verdict(
    graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo = timezone.utc
) -> DocumentedVerdict:
    """The documented rule at one moment. For several moments prepare one ``DocumentedRule``."""
    return DocumentedRule(graph, rules).verdict(as_of, zone)
