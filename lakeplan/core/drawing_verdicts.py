"""What becomes of drawn commits and objects, whatever ids the commits will have.

A server starts its walks by commit id and stops early, so its answer depends on ids, which are hashes that
no drawing knows (``shared/lakefs/retention.md``). Data *survives* when the documented rule keeps it and no
order of ids makes a server lose it; it is *at risk* when some order does; it *goes* when no rule keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone, tzinfo

from lakeplan.core.drawing import Fate
from lakeplan.core.retention import CommitGraph, documented_verdict, limit_us
from lakeplan.model.rules import GcRules


def fates(
    graph: CommitGraph, rules: GcRules | None, as_of: datetime, zone: tzinfo = timezone.utc
) -> list[Fate]:
    """Per commit number. Without rules nothing is ever collected."""
    if rules is None:
        return ["survives"] * len(graph)
    active = documented_verdict(graph, rules, as_of, zone).active
    starts = _starts(graph, rules, as_of, zone)
    found: list[Fate] = []
    for commit in range(len(graph)):
        if not active[commit]:
            found.append("goes")
        elif graph.is_head[commit] or _survives_every_order(graph, starts, commit):
            found.append("survives")
        else:
            found.append("at_risk")
    return found


def _starts(graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo) -> dict[int, int]:
    """Per start, its oldest limit."""
    limits: dict[int, int] = {}
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        limit = limit_us(as_of, rules.days_for(branch.id), zone)
        limits[head] = min(limit, limits.get(head, limit))
    default = limit_us(as_of, rules.default_retention_days, zone)
    for commit in graph.dangling:
        limits[commit] = default
    return limits


def _survives_every_order(graph: CommitGraph, starts: dict[int, int], commit: int) -> bool:
    """A walk that visits a commit without marking it, with a limit as old as any that would mark it, loses it
    when its start sorts first: it is then stopped by none, and all the others are. If no walk is like that,
    the oldest of those that mark it comes through in every order, or is stopped on its way only by one that
    goes on with an older limit through the same child, and marks it."""
    marking: list[int] = []
    passing: list[int] = []
    if commit in starts:
        marking.append(starts[commit])  # a dangling commit: nothing is below it
    for child in graph.children(commit):
        created = graph.creation_us[child]
        for start in graph.descendants(child):
            if start in starts:
                (marking if created > starts[start] else passing).append(starts[start])
    return not passing or min(passing) > min(marking)


def fate_of(commits: Sequence[Fate], *, staged: bool) -> Fate:
    """An object's, out of those of the commits that hold it. It survives by one commit that does, or staged;
    several that are at risk leave it at risk, though one order need not lose them all: when in doubt."""
    if staged or "survives" in commits:
        return "survives"
    return "at_risk" if "at_risk" in commits else "goes"
