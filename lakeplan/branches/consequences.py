"""Computes which data expires after branches are deleted, because their commits get the default days
(lakefs/retention.md), and which data only stale branches keep.

The rules stay the same, but the graph changes. There are four moments: now, in 7 and in 30 days, and
``settled``, when everything that exists today is older than the default days, assuming no new commits.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo

from lakeplan.retention.graph import NO_PARENT, CommitGraph, metarange_masks
from lakeplan.retention.keep import branch_sets
from lakeplan.retention.rules import ServerWalk, expiry_us
from lakeplan.values.branches import MAX_STALE, SETTLED, Consequence, MomentTotal, OnlyHere
from lakeplan.values.pins import has_pin_commit
from lakeplan.values.records import moment_of
from lakeplan.values.repository import Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount, ImpactResult, Transition

MOMENTS = ("now", "plus_7_days", "plus_30_days", SETTLED)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MAX_BRANCHES = 50
"""Branches whose objects are counted separately. Each needs a bit of the mask, in addition to eight bits."""


BY_MOMENT = {name: Transition(1 << 2 * n, 1 << 2 * n + 1) for n, name in enumerate(MOMENTS)}
"""The bits of commits that are kept with and without the branches, at each moment."""


def branch_bit(place: int) -> int:
    return 1 << (2 * len(MOMENTS) + place)


@dataclass(frozen=True)
class Consequences:
    """The commits and tags that deletions affect. ``masks`` has one mask per commit of ``graph``.
    ``with_bit`` are the branches that have a bit, in order. ``commits`` counts by branch the commits of its
    main line that expire sooner or later; another deleted branch may count the same ones. ``tags`` are on
    these commits, each listed for one branch."""

    graph: CommitGraph
    masks: list[int]
    moments: Mapping[str, datetime]
    commits: Mapping[str, int]
    tags: Mapping[str, tuple[str, ...]]
    with_bit: tuple[str, ...] = field(default=())

    @property
    def any_follow(self) -> bool:
        return any(_gone(self.masks))

    def transitions(self) -> dict[str, Transition]:
        settled = BY_MOMENT[SETTLED].after
        places = enumerate(self.with_bit)
        return BY_MOMENT | {f"branch:{name}": Transition(branch_bit(n), settled) for n, name in places}

    def metaranges(self) -> dict[str, int]:
        """Metarange id → mask, of commits that are kept by any verdict."""
        return metarange_masks(self.graph, self.masks)

    def totals(self, result: ImpactResult | None) -> dict[str, MomentTotal]:
        """The totals at each moment. Objects are None without a simulation."""
        totals = {}
        for moment, transition in BY_MOMENT.items():
            commits = sum(1 for mask in self.masks if transition.expires(mask))
            amount = _amount(result, transition) if commits else Amount()
            totals[moment] = MomentTotal(self.moments[moment], commits, *_figures(amount))
        return totals

    def by_branch(self, result: ImpactResult | None) -> dict[str, Consequence]:
        """By branch. An object that two deleted branches have counts for both."""
        asked = self.transitions()
        by_name = {}
        for name, commits in self.commits.items():
            amount = Amount() if not commits else None
            if commits and name in self.with_bit:
                amount = _amount(result, asked[f"branch:{name}"])
            by_name[name] = Consequence(commits, *_figures(amount), self.tags[name])
        return by_name


def _amount(result: ImpactResult | None, transition: Transition) -> Amount | None:
    return None if result is None else result.amount(transition)


def _figures(amount: Amount | None) -> tuple[int | None, int | None]:
    """The numbers of objects and bytes. Both are None without a simulation."""
    return (None, None) if amount is None else (amount.objects, amount.size_bytes)


def consequences(
    graph: CommitGraph,
    deleted: Sequence[str],
    rules: GcRules,
    as_of: datetime,
    zone: tzinfo,
    tags: Iterable[Tag] = (),
) -> Consequences:
    """Return the consequences of deleting the ``deleted`` branches under these rules."""
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
        bits = BY_MOMENT[name]
        for walk, bit in ((with_branches, bits.before), (without, bits.after)):
            masks = [m | bit if flag else m for m, flag in zip(masks, walk.active(moment, zone), strict=True)]
    heads = {branch.id: head for branch, head in zip(graph.branches, graph.heads, strict=True)}
    starts = {name: heads[name] for name in deleted if name in heads}
    gone = _gone(masks)
    follow = _on_lines(graph, gone)
    counts = {name: follow[starts[name]] if name in starts else 0 for name in deleted}
    at_stake = _tags_at_stake(graph, starts, rules, follow, gone, tags)
    with_bit = tuple(deleted[:MAX_BRANCHES])
    for place, name in enumerate(with_bit):
        _mark(graph, starts.get(name, NO_PARENT), branch_bit(place), follow, gone, masks)
    return Consequences(
        graph, masks, moments, counts, {name: at_stake.get(name, ()) for name in deleted}, with_bit
    )


def _gone(masks: Sequence[int]) -> list[bool]:
    """Per commit, whether it expires because of the deletions at any of the moments."""
    follows = {mask: any(t.expires(mask) for t in BY_MOMENT.values()) for mask in set(masks)}
    return [follows[mask] for mask in masks]


def _on_lines(graph: CommitGraph, gone: list[bool]) -> array[int]:
    """Per commit, how many expiring commits are on the main line from it to the root, including itself. A
    kept commit does not end the count: it may be another branch's HEAD, with expiring commits below it."""
    follow = array("i", gone)
    for commit in reversed(graph.order):
        parent = graph.main_parent[commit]
        if parent >= 0:
            follow[commit] += follow[parent]
    return follow


def _mark(
    graph: CommitGraph, commit: int, bit: int, follow: array[int], gone: list[bool], masks: list[int]
) -> None:
    """Sets ``bit`` in the masks of expiring commits on the main line from ``commit``."""
    while commit >= 0 and follow[commit]:
        if gone[commit]:
            masks[commit] |= bit
        commit = graph.main_parent[commit]


def _tags_at_stake(
    graph: CommitGraph,
    starts: Mapping[str, int],
    rules: GcRules,
    follow: array[int],
    gone: list[bool],
    tags: Iterable[Tag],
) -> dict[str, tuple[str, ...]]:
    """Every tag on an expiring commit, listed for one branch: of the branches whose main line contains the
    commit, the one with the most days. No tag is missing, because walks start at HEADs and follow main
    parents: a deletion affects only commits on the main line of the deleted branch. Visits each commit
    once."""
    at: dict[int, list[str]] = {}
    for tag in tags:
        place = graph.index.get(tag.commit_id, NO_PARENT)
        if place >= 0 and gone[place]:
            at.setdefault(place, []).append(tag.id)
    lost_tags: dict[str, tuple[str, ...]] = {}
    passed = bytearray(len(graph))
    for name in sorted(starts, key=lambda name: (-rules.days_for(name), name)):
        commit, tag_ids = starts[name], list[str]()
        while commit >= 0 and follow[commit] and not passed[commit]:
            passed[commit] = 1
            tag_ids += at.get(commit, ())
            commit = graph.main_parent[commit]
        lost_tags[name] = tuple(sorted(tag_ids))
    return lost_tags


STALE_AFTER = timedelta(days=30)
_ALL_HISTORY = GcRules(36_500)


@dataclass(frozen=True)
class StaleBranches:
    """Stale branches and what they keep. ``names`` are the stale branches that are counted, ``idle_since``
    the dates of their HEADs. ``masks`` has a mask per commit of ``graph``: a bit per branch for the commits
    that it alone keeps, and one for all other kept commits."""

    graph: CommitGraph
    names: tuple[str, ...]
    idle_since: Mapping[str, datetime]
    masks: list[int]

    def transitions(self) -> dict[str, Transition]:
        """By branch: objects that only its own commits have."""
        all_bits = (1 << (len(self.names) + 1)) - 1
        return {name: Transition(1 << i, all_bits & ~(1 << i)) for i, name in enumerate(self.names)}

    def metaranges(self) -> dict[str, int]:
        """Metarange id → mask, of kept commits."""
        return metarange_masks(self.graph, self.masks)

    @property
    def any_alone(self) -> bool:
        """Whether any of these branches alone keeps a commit. If not, no object needs to be read."""
        others = 1 << len(self.names)
        return any(mask and mask != others for mask in set(self.masks))

    def only_here(self, result: ImpactResult | None) -> dict[str, OnlyHere]:
        """Return the data that each branch alone keeps. Objects are None without a simulation."""
        by_name = {}
        for place, (name, transition) in enumerate(self.transitions().items()):
            commits = sum(1 for mask in self.masks if mask == 1 << place)
            amount = _amount(result, transition) if commits else Amount()
            by_name[name] = OnlyHere(self.idle_since[name], commits, *_figures(amount))
        return by_name


def stale_branches(
    graph: CommitGraph,
    default_branch: str,
    going: Iterable[str],
    rules: GcRules | None,
    as_of: datetime,
    zone: tzinfo,
) -> StaleBranches | None:
    """Branches without a commit for 30 days, and those that policies delete (``going``), except the default
    branch. None if there are none."""
    heads = {
        branch.id: head
        for branch, head in zip(graph.branches, graph.heads, strict=True)
        if not has_pin_commit(branch.id, branch.commit_id)
    }
    dates = {
        name: moment_of(graph.creation_us[head]) for name, head in heads.items() if name != default_branch
    }
    leaving = set(going)
    stale = [name for name, at in dates.items() if name in leaving or as_of - at >= STALE_AFTER]
    if not stale:
        return None
    names = tuple(sorted(stale, key=lambda name: (dates[name], name))[:MAX_STALE])
    held = rules or _ALL_HISTORY
    return StaleBranches(graph, names, dates, _stale_masks(graph, names, held, as_of, zone))


def _stale_masks(
    graph: CommitGraph, names: tuple[str, ...], rules: GcRules, as_of: datetime, zone: tzinfo
) -> list[int]:
    keepers = branch_sets(graph, rules, as_of, zone)
    alone = {1 << keepers.names.index(name): 1 << place for place, name in enumerate(names)}
    others = 1 << len(names)
    by_set = [0 if not kept_by else alone.get(kept_by, others) for kept_by in keepers.masks]
    active = ServerWalk(graph, rules).active(as_of, zone)
    return [
        by_set[position] or (others if is_active else 0)
        for position, is_active in zip(keepers.of_commit, active, strict=True)
    ]


def safe_until(
    graph: CommitGraph, deleted: Collection[str], rules: GcRules | None, zone: tzinfo
) -> dict[str, datetime]:
    """By branch of ``deleted``: until when the server keeps its HEAD once all of them are deleted. If another
    branch has the same HEAD, this is the earliest moment after that branch is moved or deleted too. Without
    branches whose moment exceeds the calendar, and empty without rules, because then nothing is collected."""
    if rules is None or not deleted:
        return {}
    left = graph.without_branches(deleted)
    kept_until, days = ServerWalk(left, rules).kept_until_us(zone), dict[int, int]()
    default = rules.default_retention_days
    for branch, head in zip(left.branches, left.heads, strict=True):
        own = default if has_pin_commit(branch.id, branch.commit_id) else rules.days_for(branch.id)
        days[head] = min(days.get(head, default), own)
    ends: dict[str, datetime] = {}
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        if branch.id in deleted:
            created, until = graph.creation_us[head], kept_until[head]
            until = max(created, expiry_us(created, days[head], zone) if head in days else until)
            with suppress(OverflowError):
                ends[branch.id] = _EPOCH + timedelta(microseconds=until)
    return ends
