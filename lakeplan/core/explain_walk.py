"""What the server's walk does at one commit, walk by walk: who marks it, who passes it, who stops before.

The literal walk of ``shared/lakefs/retention.md``, over the starts that come to this commit only: a start
that visits any commit on such a way goes on to this one, unless it is stopped, so no other start matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from typing import Literal

from lakeplan.core.retention import CommitGraph, limit_us
from lakeplan.model.rules import GcRules

MAX_STEPS = 2_000_000
"""Commits walked before the trace is given up; the verdict itself does not need it."""

Outcome = Literal["head", "young", "marks", "passes", "stops"]


@dataclass(frozen=True)
class Pass:
    """One walk. ``start``: commit id; ``branch``: the branch with the most days that starts there, None for a
    dangling commit. ``outcome``: ``head`` (starts here, always kept), ``young`` (a dangling start that is
    young enough), ``marks`` (keeps the commit), ``passes`` (visits it and does not keep it: its child is too
    old), ``stops`` (ends at ``stopped_at``, which the walk of ``stopped_by`` visited before)."""

    start: str
    branch: str | None
    days: int
    outcome: Outcome
    stopped_at: str | None = None
    stopped_by: str | None = None


@dataclass(frozen=True)
class _Start:
    number: int
    branch: str | None
    days: int
    limit: int


def trace(
    graph: CommitGraph, rules: GcRules, commit: int, as_of: datetime, zone: tzinfo = timezone.utc
) -> tuple[Pass, ...] | None:
    """The walks that come towards ``commit`` (a number), in the server's order. None when the history is too
    large to follow one by one."""
    below = set(graph.descendants(commit))
    visited: dict[int, tuple[int, str]] = {}
    found: list[Pass] = []
    steps = 0
    for start in _starts(graph, rules, below, as_of, zone):
        own = graph.ids[start.number]
        before = visited.get(start.number)
        if start.branch is None and before is not None and before[0] <= start.limit:
            # Old versions with three parents: the server takes a commit that has a child for a dangling one.
            found.append(Pass(own, None, start.days, "stops", own, before[1]))
            continue
        visited[start.number] = (start.limit, own)
        if start.number == commit:
            young = graph.creation_us[commit] > start.limit
            outcome: Outcome = "head" if start.branch is not None else "young" if young else "passes"
            found.append(Pass(own, start.branch, start.days, outcome))
            continue
        at = start.number
        while at != commit:
            steps += 1
            if steps > MAX_STEPS:
                return None
            parent = graph.main_parent[at]
            before = visited.get(parent)
            if before is not None and before[0] <= start.limit:
                found.append(Pass(own, start.branch, start.days, "stops", graph.ids[parent], before[1]))
                break
            visited[parent] = (start.limit, own)
            if parent == commit:
                marks = graph.creation_us[at] > start.limit
                found.append(Pass(own, start.branch, start.days, "marks" if marks else "passes"))
            at = parent
    return tuple(found)


def _starts(
    graph: CommitGraph, rules: GcRules, below: set[int], as_of: datetime, zone: tzinfo
) -> list[_Start]:
    """The starts among ``below`` by commit id; of branches that share a HEAD the one with the most days."""
    at: dict[int, tuple[int, str | None]] = {}
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        days = rules.days_for(branch.id)
        if head in below and (head not in at or days > at[head][0]):
            at[head] = (days, branch.id)
    for commit in graph.server_dangling:
        if commit in below:
            at.setdefault(commit, (rules.default_retention_days, None))
    return [_Start(n, branch, days, limit_us(as_of, days, zone)) for n, (days, branch) in sorted(at.items())]
