"""What retention makes of deleted branches: their commits fall to the default days (retention.md).

The rules are the same before and after; the graph is not. Four moments are asked about: now, in 7 and 30
days, and ``settled``: once everything that exists today is past the default days, if nobody writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo

from lakeplan.core.retention import CommitGraph, ServerWalk, expiry_us, metarange_masks
from lakeplan.model.branches import SETTLED, Consequence, MomentTotal
from lakeplan.model.refs import Tag
from lakeplan.model.rules import GcRules
from lakeplan.model.simulation import Amount, ImpactResult, Transition

MOMENTS = ("now", "plus_7_days", "plus_30_days", SETTLED)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MAX_BRANCHES = 50
"""Branches whose objects are counted one by one: each takes a bit of the mask, beside eight."""


def before_bit(moment: str) -> int:
    return 1 << (2 * MOMENTS.index(moment))


def after_bit(moment: str) -> int:
    return 1 << (2 * MOMENTS.index(moment) + 1)


def branch_bit(place: int) -> int:
    return 1 << (2 * len(MOMENTS) + place)


@dataclass(frozen=True)
class Consequences:
    """``masks`` has one mask per commit of ``graph``; ``counted`` are the branches that have a bit, in
    order; ``commits`` says by branch how many of its commits follow sooner or later, ``tags`` which tags
    stand on them."""

    graph: CommitGraph
    masks: list[int]
    moments: Mapping[str, datetime]
    commits: Mapping[str, int]
    tags: Mapping[str, tuple[str, ...]]
    counted: tuple[str, ...] = field(default=())

    @property
    def any_follow(self) -> bool:
        return any(t.goes(mask) for mask in set(self.masks) for t in self.transitions().values())

    def transitions(self) -> dict[str, Transition]:
        asked = {m: Transition(before_bit(m), after_bit(m)) for m in MOMENTS}
        for place, name in enumerate(self.counted):
            asked[f"branch:{name}"] = Transition(branch_bit(place), after_bit(SETTLED))
        return asked

    def metaranges(self) -> dict[str, int]:
        """Metarange id → mask, over commits that some verdict keeps."""
        return metarange_masks(self.graph, self.masks)

    def totals(self, result: ImpactResult | None) -> dict[str, MomentTotal]:
        """By moment; objects are None without a simulation."""
        totals = {}
        for moment, transition in list(self.transitions().items())[: len(MOMENTS)]:
            commits = sum(1 for mask in self.masks if transition.goes(mask))
            amount = _amount(result, transition) if commits else Amount()
            totals[moment] = MomentTotal(
                self.moments[moment],
                commits,
                amount.objects if amount else None,
                amount.size_bytes if amount else None,
            )
        return totals

    def by_branch(self, result: ImpactResult | None) -> dict[str, Consequence]:
        """By branch; an object that two deleted branches hold counts for both."""
        asked = self.transitions()
        found = {}
        for name, commits in self.commits.items():
            amount = Amount() if not commits else None
            if commits and name in self.counted:
                amount = _amount(result, asked[f"branch:{name}"])
            found[name] = Consequence(
                commits,
                amount.objects if amount else None,
                amount.size_bytes if amount else None,
                self.tags[name],
            )
        return found


def _amount(result: ImpactResult | None, transition: Transition) -> Amount | None:
    return None if result is None else result.amount(transition)


def consequences(
    graph: CommitGraph,
    deleted: Sequence[str],
    rules: GcRules,
    as_of: datetime,
    zone: tzinfo,
    tags: Iterable[Tag] = (),
) -> Consequences:
    """The verdicts with and without the branches, under the stored rules."""
    newest = max(graph.creation_us, default=0) / 1_000_000
    ahead = max(0.0, newest - as_of.timestamp())
    settled = as_of + timedelta(days=max(rules.default_retention_days, 0) + 2, seconds=ahead)
    moments = {
        "now": as_of,
        "plus_7_days": as_of + timedelta(days=7),
        "plus_30_days": as_of + timedelta(days=30),
        SETTLED: max(settled, as_of + timedelta(days=30)),
    }
    after_graph = graph.without_branches(deleted)
    with_branches, without = ServerWalk(graph, rules), ServerWalk(after_graph, rules)
    masks = [0] * len(graph.ids)
    for name, moment in moments.items():
        for walk, bit in ((with_branches, before_bit(name)), (without, after_bit(name))):
            masks = [m | bit if flag else m for m, flag in zip(masks, walk.active(moment, zone), strict=True)]
    lines, masks = _attribute(graph, deleted, masks)
    counts = {name: len(line) for name, line in lines.items()}
    at_stake = _tags_on(graph, lines, tags)
    return Consequences(graph, masks, moments, counts, at_stake, tuple(deleted[:MAX_BRANCHES]))


def _attribute(
    graph: CommitGraph, deleted: Collection[str], masks: list[int]
) -> tuple[dict[str, list[int]], list[int]]:
    """Commits of each branch's main line that follow at any of the moments, and their bits."""
    follows = [Transition(before_bit(moment), after_bit(moment)) for moment in MOMENTS]
    heads = {branch.id: head for branch, head in zip(graph.branches, graph.heads, strict=True)}
    gone = [any(t.goes(mask) for t in follows) for mask in masks]
    marked = list(masks)
    lines: dict[str, list[int]] = {}
    for place, name in enumerate(deleted):
        commit, line = heads.get(name, -1), lines.setdefault(name, [])
        while commit >= 0 and gone[commit]:
            line.append(commit)
            if place < MAX_BRANCHES:
                marked[commit] |= branch_bit(place)
            commit = graph.main_parent[commit]
    return lines, marked


def _tags_on(
    graph: CommitGraph, lines: Mapping[str, Sequence[int]], tags: Iterable[Tag]
) -> dict[str, tuple[str, ...]]:
    """By branch, the tags on commits of its line, by name."""
    at: dict[int, list[str]] = {}
    for tag in tags:
        place = graph.index.get(tag.commit_id)
        if place is not None:
            at.setdefault(place, []).append(tag.id)
    return {
        name: tuple(sorted(tag for commit in line for tag in at.get(commit, ())))
        for name, line in lines.items()
    }


def safe_until(head_created_us: int, rules: GcRules | None, zone: tzinfo) -> datetime | None:
    """Until when a deleted branch's HEAD is kept under the default days (a dangling commit is kept only
    while younger). None without rules, or with days beyond any calendar: nothing is collected then."""
    if rules is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=expiry_us(head_created_us, rules.default_retention_days, zone))
    except OverflowError:
        return None
