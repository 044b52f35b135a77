"""Stale branches, and the data that each of them alone holds.

A branch holds what the commits hold that it keeps under the rules (``core.retention.keepers``); without
rules, what all its commits hold. What no other branch and no kept dangling commit holds as well is held by it
alone: that is what goes, in time, when the branch goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from lakeplan.core.retention import CommitGraph, ServerWalk, metarange_masks
from lakeplan.core.retention.keepers import branch_sets
from lakeplan.model.branches import OnlyHere
from lakeplan.model.moments import moment_of
from lakeplan.model.rules import GcRules
from lakeplan.model.simulation import ImpactResult, Transition

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
