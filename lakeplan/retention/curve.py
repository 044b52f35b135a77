"""The smallest number of retention days that keeps each commit under the documented rule.

One number of a rule set varies: the default days, or the days of one branch. More days never keep less under
the documented rule, so each commit has a smallest number of days that keeps it. The server's walk is not
monotone and has no such number. It can only be evaluated at points.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import DAY_US, LATEST_US, limit_us, to_us
from lakeplan.values.rules import MAX_DAYS, GcRules

ALWAYS = -1
"""Kept at any number of days: it is a HEAD, or a rule that does not vary keeps it."""
NEVER = MAX_DAYS + 1
"""No number of days up to ``MAX_DAYS`` keeps it; a curve ends there."""


@dataclass(frozen=True)
class Varied:
    """The number that varies: the days of one branch, or the default days if ``branch_id`` is None."""

    branch_id: str | None = None

    def in_rules(self, rules: GcRules) -> int:
        """The days that the rules have now."""
        return rules.default_retention_days if self.branch_id is None else rules.days_for(self.branch_id)

    def at(self, rules: GcRules, days: int) -> GcRules:
        """The rules with other days."""
        if self.branch_id is None:
            return GcRules(days, rules.branches)
        return GcRules(rules.default_retention_days, {**rules.branches, self.branch_id: days})


def days_needed(
    graph: CommitGraph, rules: GcRules, varied: Varied, as_of: datetime, zone: tzinfo = timezone.utc
) -> array[int]:
    """Per commit number, the smallest days from 0 to ``MAX_DAYS`` for ``varied`` at which the documented rule
    keeps the commit at ``as_of`` (aware) with the server in ``zone``; or ``ALWAYS``, or ``NEVER``.

    Calendar days and time zones count exactly as for a verdict: commit c is kept at n days when, and only
    when, ``days_needed(…)[c] <= n``.
    """
    starts = _starts(graph, rules, varied, as_of, zone)
    smallest = _smallest_days(graph, as_of, zone)
    needed = array("i", [NEVER]) * len(graph)
    for commit in graph.order:
        parent = graph.main_parent[commit]
        if parent < 0:
            continue
        if starts.fixed_limit[commit] < graph.creation_us[commit]:
            needed[parent] = ALWAYS
        elif starts.varies[commit]:
            needed[parent] = min(needed[parent], smallest[commit])
        starts.pass_on(commit, parent)
    for commit in graph.dangling:
        if starts.default_limit is None:
            needed[commit] = min(needed[commit], smallest[commit])
        elif starts.default_limit < graph.creation_us[commit]:
            needed[commit] = ALWAYS
    for head in graph.heads:
        needed[head] = ALWAYS
    return needed


@dataclass
class _Starts:
    """Per commit, the walks that start at it or below it: whether the days of any vary, and the oldest limit
    of the others. ``default_limit``: the limit of dangling starts, or None if it varies."""

    varies: bytearray
    fixed_limit: array[int]
    default_limit: int | None

    def pass_on(self, commit: int, parent: int) -> None:
        if self.varies[commit]:
            self.varies[parent] = 1
        self.add(parent, self.fixed_limit[commit])

    def add(self, commit: int, limit: int) -> None:
        self.fixed_limit[commit] = min(self.fixed_limit[commit], limit)


def _starts(graph: CommitGraph, rules: GcRules, varied: Varied, as_of: datetime, zone: tzinfo) -> _Starts:
    default = None if varied.branch_id is None else limit_us(as_of, rules.default_retention_days, zone)
    # No commit is after this limit, which stands for no fixed start.
    starts = _Starts(bytearray(len(graph)), array("q", [LATEST_US + 1]) * len(graph), default)
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        days = rules.branches.get(branch.id)
        if branch.id == varied.branch_id or (days is None and default is None):
            starts.varies[head] = 1
        elif days is not None:
            starts.add(head, limit_us(as_of, days, zone))
        elif default is not None:
            starts.add(head, default)
    for commit in graph.dangling:
        if default is None:
            starts.varies[commit] = 1
        else:
            starts.add(commit, default)
    return starts


def _smallest_days(graph: CommitGraph, as_of: datetime, zone: tzinfo) -> array[int]:
    """Per commit, the smallest days whose limit is before its creation. Limits never move forward as days
    grow, so bisection finds them."""
    oldest = min(graph.creation_us, default=0)
    # Two more days, for offsets of zones and a day that a zone skipped.
    days = min(MAX_DAYS, max(0, (to_us(as_of) - oldest) // DAY_US + 3))
    back = [-limit_us(as_of, n, zone) for n in range(days + 1)]
    smallest = array("i", bytes(4 * len(graph)))
    for commit, created in enumerate(graph.creation_us):
        at = bisect_right(back, -created)
        smallest[commit] = at if at <= days else NEVER
    return smallest
