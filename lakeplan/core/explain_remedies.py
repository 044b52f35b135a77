"""What would have to change for data to stay, or to go. Everything proposed is tried before it is said."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Literal

from lakeplan.core.retention import CommitGraph, Keeper, documented_verdict, limit_us, server_verdict
from lakeplan.model.rules import GcRules

MOST_DAYS = 36_500
"""The most days a tree may ask for."""
TRIED = 3
NAMED = 10

Kind = Literal["days", "branch_here", "move_head", "too_young", "set_rules"]


@dataclass(frozen=True)
class Remedy:
    """One change. ``days``: the branch's (None: the default's) days must be at least this to stay, at most
    this to go. ``branch_here``: a branch at ``commit`` keeps it under every walk. ``move_head``: the branch's
    HEAD holds it, whatever its days. ``too_young``: even one day keeps it today. ``set_rules``: no rules are
    set, so nothing is collected."""

    kind: Kind
    branch: str | None = None
    days_now: int | None = None
    days: int | None = None
    commit: str | None = None


def days_needed(created_us: int, as_of: datetime, zone: tzinfo) -> int | None:
    """The fewest days whose limit lies before a date; None when the calendar of rules ends before."""
    low, high = 1, MOST_DAYS
    if limit_us(as_of, high, zone) >= created_us:
        return None
    while low < high:
        middle = (low + high) // 2
        if limit_us(as_of, middle, zone) < created_us:
            high = middle
        else:
            low = middle + 1
    return low


def to_stay(
    graph: CommitGraph,
    rules: GcRules,
    commit: int,
    reached_by: Sequence[tuple[Keeper, int | None]],
    highest: int,
    as_of: datetime,
    zone: tzinfo,
) -> tuple[Remedy, ...]:
    """Changes after which both the documented rule and the server's walk keep a commit (its number).

    ``reached_by``: starts that come to it, each with the date that must be after the limit; ``highest``: the
    most days of all that do.
    """
    wanted: list[tuple[int, str | None, int]] = []
    for keeper, created in reached_by:
        needed = None if created is None else days_needed(created, as_of, zone)
        if needed is not None:
            wanted.append((needed, keeper.branch, keeper.days))
    wanted.sort(key=lambda item: (item[0], item[1] is None, item[1] or ""))
    found: list[Remedy] = []
    tried: set[str | None] = set()
    for needed, branch, now in wanted:
        if branch in tried:
            continue
        if len(tried) >= TRIED:
            break
        tried.add(branch)
        # The least that the rule asks for; else more than all others, so that no other walk can stop it.
        for days in sorted({max(needed, now), max(needed, highest + 1)}):
            if days > now and _keeps(graph, _with_days(rules, branch, days), commit, as_of, zone):
                found.append(Remedy("days", branch, now, days))
                break
    return (*found, Remedy("branch_here", commit=graph.ids[commit]))


def _with_days(rules: GcRules, branch: str | None, days: int) -> GcRules:
    if branch is None:
        return replace(rules, default_retention_days=days)
    return replace(rules, branches={**rules.branches, branch: days})


def _keeps(graph: CommitGraph, rules: GcRules, commit: int, as_of: datetime, zone: tzinfo) -> bool:
    kept = documented_verdict(graph, rules, as_of, zone).active[commit]
    return bool(kept and server_verdict(graph, rules, as_of, zone)[commit])


def to_go(
    graph: CommitGraph,
    rules: GcRules,
    holders: Collection[int],
    branches: Sequence[str],
    as_of: datetime,
    zone: tzinfo,
) -> tuple[Remedy, ...]:
    """What each of ``branches`` (the first ten of them), and the default for dangling commits, would have to
    become for the documented rule to let go of all of ``holders``. All of these together are needed."""
    held = frozenset(holders)
    head_of = {branch.id: head for branch, head in zip(graph.branches, graph.heads, strict=True)}
    found: list[Remedy] = []
    for name in branches[:NAMED]:
        days = rules.days_for(name)
        if head_of[name] in held:
            found.append(Remedy("move_head", name, days, commit=graph.ids[head_of[name]]))
            continue
        newest = _newest_edge(graph, head_of[name], limit_us(as_of, days, zone), held)
        if newest is not None:
            found.append(_shorter(newest, name, days, as_of, zone))
    default = rules.default_retention_days
    limit = limit_us(as_of, default, zone)
    dates = []
    for start in graph.dangling:
        if start in held and graph.creation_us[start] > limit:
            dates.append(graph.creation_us[start])
        edge = _newest_edge(graph, start, limit, held)
        if edge is not None:
            dates.append(edge)
    if dates:
        found.append(_shorter(max(dates), None, default, as_of, zone))
    return tuple(found)


def _shorter(newest: int, branch: str | None, days: int, as_of: datetime, zone: tzinfo) -> Remedy:
    needed = days_needed(newest, as_of, zone)
    most = days - 1 if needed is None else needed - 1
    return Remedy("days", branch, days, most) if most >= 1 else Remedy("too_young", branch, days)


def _newest_edge(graph: CommitGraph, start: int, limit: int, held: frozenset[int]) -> int | None:
    """The greatest date of a child, younger than ``limit``, whose main parent is held."""
    newest: int | None = None
    child = start
    while graph.newest_ancestor_us[child] > limit and (parent := graph.main_parent[child]) >= 0:
        created = graph.creation_us[child]
        if parent in held and created > limit and (newest is None or created > newest):
            newest = created
        child = parent
    return newest
