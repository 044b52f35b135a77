"""What keeps a branch that a policy would delete, what is staged there, and what is stale."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone, tzinfo

from lakeplan.branches.fates import takes
from lakeplan.retention.graph import CommitGraph, metarange_masks
from lakeplan.retention.keepers import branch_sets
from lakeplan.retention.patterns import matches
from lakeplan.retention.rules import ServerWalk
from lakeplan.values.branches import NOTHING_STAGED, BranchOutlook, Keep, OnlyHere, StagedData
from lakeplan.values.records import moment_of
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import LifecycleSettings, Policy
from lakeplan.values.simulation import ImpactResult, Transition

_DIALECT = re.compile(r"\[[^\]]*\]?|\{[^}]*\}?|\\.?|[\]},!^]")
"""What a glob of a branch protection rule may have beside ``*``, ``?`` and characters of branch names."""

_NEVER = datetime.min.replace(tzinfo=timezone.utc)


def is_exempt(branch_id: str, settings: LifecycleSettings) -> bool:
    return any(matches(branch_id, pattern) for pattern in settings.exempt)


def is_protected(branch_id: str, patterns: Iterable[str]) -> bool:
    """Whether a branch protection rule may match a branch. Rules are globs of another dialect than policies:
    every class, group and escape counts as ``*``, which matches all that it could mean."""
    return any(p == branch_id or matches(branch_id, _DIALECT.sub("*", p)) for p in patterns)


def keeper_of(
    outlook: BranchOutlook,
    settings: LifecycleSettings,
    *,
    merged: bool | None = None,
    protected: Iterable[str] = (),
) -> Keep | None:
    """The first setting that keeps a branch. ``merged`` None: it is not known, which keeps a branch under
    ``require_merged``. ``protected`` are the patterns of the repository's branch protection rules."""
    if is_exempt(outlook.id, settings):
        return Keep.EXEMPT
    staged = outlook.staged
    if settings.keep_with_uncommitted and staged is not None and (staged.changes or staged.more):
        return Keep.UNCOMMITTED
    if settings.keep_with_open_pull_request and outlook.pulls:
        return Keep.OPEN_PULL_REQUEST
    if settings.keep_protected and is_protected(outlook.id, protected):
        return Keep.PROTECTED
    if settings.require_merged and merged is not True:
        return Keep.NOT_MERGED
    return None


def keep(outlook: BranchOutlook, why: Keep) -> BranchOutlook:
    """The same branch, staying. The policy that would let it go, and since when, remain to be seen."""
    return replace(outlook, verdict=replace(outlook.verdict, kept_by=why))


def spare_newest(
    outlooks: Mapping[str, BranchOutlook], policies: Sequence[Policy], min_keep: int
) -> dict[str, BranchOutlook]:
    """``min_keep``: of the branches that a policy matches at least so many stay, whichever policy would be
    the deleter; what is spared is what was written last (then: the first by name)."""
    after = dict(outlooks)
    if not min_keep:
        return after
    for policy in policies:
        matched = [o for o in after.values() if takes(policy, o.id)]
        staying = sum(1 for o in matched if not o.verdict.goes)
        going = sorted(
            (o for o in matched if o.verdict.goes),
            key=lambda o: (-(o.facts.last_write or o.facts.created or _NEVER).timestamp(), o.id),
        )
        for outlook in going[: max(0, min_keep - staying)]:
            after[outlook.id] = keep(outlook, Keep.MIN_KEEP)
    return after


WrittenAt = Callable[[str], "datetime | None"]
"""By path: when the object was written; None when it is gone."""


@dataclass(frozen=True)
class Look:
    """``written``: the changes count as a write at this moment (epoch seconds); ``staged_at``: the newest
    object time among them."""

    data: StagedData
    written: int | None = None
    staged_at: int | None = None

    @property
    def fingerprint(self) -> str:
        return self.data.fingerprint


def look_at(data: StagedData, before: str | None, now: int, written_at: WrittenAt | None) -> Look:
    """``before`` is the fingerprint of the last look (None: nobody looked yet). Other changes than at the
    last look, more than are listed, a deletion not seen before and an object that vanished while it was
    looked at count as a write now; otherwise the objects' own times count. ``written_at`` None: times are
    not wanted, because whatever is staged keeps the branch."""
    known = before == data.fingerprint
    if before is not None and not known:
        return Look(data, written=now)
    if data.fingerprint == NOTHING_STAGED:
        return Look(data)
    if data.more or (not known and any(c.kind == "removed" for c in data.changes)):
        return Look(data, written=now)
    if written_at is None:
        return Look(data)
    newest = 0
    for change in data.changes:
        if change.kind == "removed":
            continue
        moment = written_at(change.path)
        if moment is None:
            return Look(data, written=now)
        newest = max(newest, int(moment.timestamp()))
    return Look(data, staged_at=newest or None)


STALE_AFTER = timedelta(days=30)
MAX_STALE = 20
"""Branches whose objects are counted one by one, the longest idle first."""
_ALL_HISTORY = GcRules(36_500)


@dataclass(frozen=True)
class StaleBranches:
    """``names`` are the stale branches that are counted, ``idle_since`` the date of each one's HEAD.
    ``masks`` has a mask per commit of ``graph``: a bit per branch for what it keeps alone, and one for all
    else that is kept."""

    graph: CommitGraph
    names: tuple[str, ...]
    idle_since: Mapping[str, datetime]
    masks: list[int]

    def transitions(self) -> dict[str, Transition]:
        """By branch: what only its own commits hold."""
        every = (1 << (len(self.names) + 1)) - 1
        return {name: Transition(1 << i, every & ~(1 << i)) for i, name in enumerate(self.names)}

    def metaranges(self) -> dict[str, int]:
        """Metarange id → mask, over the commits that something keeps."""
        return metarange_masks(self.graph, self.masks)

    @property
    def any_alone(self) -> bool:
        """Whether there is a commit that only one of them keeps: without one no object needs to be read."""
        others = 1 << len(self.names)
        return any(mask and mask != others for mask in set(self.masks))

    def only_here(self, result: ImpactResult | None) -> dict[str, OnlyHere]:
        """By branch; objects are None without a simulation."""
        found = {}
        for place, (name, transition) in enumerate(self.transitions().items()):
            commits = sum(1 for mask in self.masks if mask == 1 << place)
            if not commits:
                found[name] = OnlyHere(self.idle_since[name], 0, 0, 0)
            elif result is None:
                found[name] = OnlyHere(self.idle_since[name], commits)
            else:
                amount = result.amount(transition)
                found[name] = OnlyHere(self.idle_since[name], commits, amount.objects, amount.size_bytes)
        return found


def stale_branches(
    graph: CommitGraph,
    default_branch: str,
    going: Iterable[str],
    rules: GcRules | None,
    as_of: datetime,
    zone: tzinfo,
) -> StaleBranches | None:
    """Branches without a commit for thirty days, and those that policies let go (``going``); never the
    default branch. None when there is none."""
    heads = {branch.id: head for branch, head in zip(graph.branches, graph.heads, strict=True)}
    dates = {
        name: moment_of(graph.creation_us[head]) for name, head in heads.items() if name != default_branch
    }
    leaving = set(going)
    stale = [name for name, at in dates.items() if name in leaving or as_of - at >= STALE_AFTER]
    if not stale:
        return None
    names = tuple(sorted(stale, key=lambda name: (dates[name], name))[:MAX_STALE])
    held = rules or _ALL_HISTORY
    return StaleBranches(graph, names, dates, _masks(graph, names, held, as_of, zone))


def _masks(
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
