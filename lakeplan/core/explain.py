"""Why data is kept or not, under one rule set: by the server's walk and by the documented rule.

Everything is asked of a set of commits, the *holders*: one commit is the set of itself, an object is the set
of commits that hold it. An object is kept while at least one of them is (``shared/lakefs/retention.md``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from functools import cached_property

from lakeplan.core.explain_remedies import Remedy, to_go, to_stay
from lakeplan.core.explain_walk import Pass, trace
from lakeplan.core.retention import (
    NEVER_EXPIRES,
    NEVER_KEPT,
    BranchSets,
    CommitGraph,
    DocumentedVerdict,
    Keeper,
    all_kept,
    branch_sets,
    documented_verdict,
    reaching,
    server_verdict,
    why,
)
from lakeplan.model.rules import GcRules

KEEPERS_SHOWN = 10


@dataclass(frozen=True)
class Reason:
    """A keeper of ``commit``, and how: it is the branch's HEAD (``replaced_by`` None), or was followed on the
    branch's way by ``replaced_by`` at ``replaced_us``, and the days count from there. A dangling commit
    counts from its own date. ``until_us`` None: as long as the branch stays where it is."""

    keeper: Keeper
    commit: str
    replaced_by: str | None
    replaced_us: int | None

    @property
    def until_us(self) -> int | None:
        return self.keeper.until_us


@dataclass(frozen=True)
class Explanation:
    """What one rule set means for some holders.

    - ``server``, ``documented``: whether each keeps at least one holder; ``kept_by_server`` and
      ``kept_by_documented`` of ``holders`` commits
    - ``commit``: the holder that is kept the longest (or went last); ``reasons``: who keeps (or kept) it, the
      strongest first, of ``reason_count``
    - ``branches``, ``branch_count``: all branches that keep any holder
    - ``until_us``: the last instant the documented rule keeps a holder if nobody writes; None: no end (a HEAD
      or no rules). ``gone_since_us``: since when it keeps none; None while it keeps one
    - ``walk``: the server's walks towards ``commit``; None when there are too many to follow
    """

    rule_set: str
    has_rules: bool
    server: bool
    documented: bool
    holders: int
    kept_by_server: int
    kept_by_documented: int
    commit: str | None = None
    reasons: tuple[Reason, ...] = ()
    reason_count: int = 0
    branches: tuple[str, ...] = ()
    branch_count: int = 0
    until_us: int | None = None
    gone_since_us: int | None = None
    walk: tuple[Pass, ...] | None = None
    to_stay: tuple[Remedy, ...] = ()
    to_go: tuple[Remedy, ...] = ()

    @property
    def at_risk(self) -> bool:
        """The documented rule keeps it and the server does not."""
        return self.documented and not self.server


class Judge:
    """The verdicts of one rule set (None: no rules are set, so nothing is ever collected) at one moment."""

    def __init__(
        self,
        graph: CommitGraph,
        name: str,
        rules: GcRules | None,
        as_of: datetime,
        zone: tzinfo = timezone.utc,
    ) -> None:
        self.graph, self.name, self.rules, self.as_of, self.zone = graph, name, rules, as_of, zone

    @cached_property
    def server(self) -> bytearray:
        """Per commit number, 1 when the server keeps it."""
        if self.rules is None:
            return all_kept(self.graph)
        return server_verdict(self.graph, self.rules, self.as_of, self.zone)

    @cached_property
    def documented(self) -> DocumentedVerdict | None:
        """None without rules."""
        if self.rules is None:
            return None
        return documented_verdict(self.graph, self.rules, self.as_of, self.zone)

    @cached_property
    def branches(self) -> BranchSets | None:
        if self.rules is None:
            return None
        return branch_sets(self.graph, self.rules, self.as_of, self.zone)

    def keeps(self, commit: int) -> bool:
        """Whether the server or the documented rule keeps a commit."""
        return bool(self.server[commit] or self.documented is None or self.documented.active[commit])

    def surely_keeps(self, holders: Collection[int]) -> bool:
        """Whether both keep something of these: then nothing more can change that."""
        documented = self.documented
        kept = documented is None or any(documented.active[n] for n in holders)
        return bool(holders) and kept and any(self.server[n] for n in holders)

    def explain(self, holders: Collection[int]) -> Explanation:
        """See ``Explanation``. No holders: never committed, so kept by nothing."""
        documented, sets, rules = self.documented, self.branches, self.rules
        if rules is None or documented is None or sets is None:
            count = len(holders)
            return Explanation(
                *(self.name, False, count > 0, count > 0, count, count, count),
                to_go=(Remedy("set_rules"),) if count else (),
            )
        kept_server = sum(self.server[n] for n in holders)
        kept_documented = sum(documented.active[n] for n in holders)
        if not holders:
            return Explanation(self.name, True, False, False, 0, 0, 0)
        best = max(holders, key=lambda n: self._strength(documented, n))
        last = max(documented.kept_until_us[n] for n in holders)
        mask = 0
        for n in holders:
            mask |= sets.masks[sets.of_commit[n]]
        branches = sets.names_in(mask)
        is_kept = kept_documented > 0
        commit = self.graph.ids[best]
        ask = why(self.graph, rules, commit, self.as_of, self.zone) if is_kept else None
        reached = reaching(self.graph, rules, commit, self.zone)
        reasons = sorted(reached if ask is None else ask, key=_longest_first)
        stay: tuple[Remedy, ...] = ()
        if not (kept_server and is_kept):
            longest = sorted(reached, key=_longest_first)[:KEEPERS_SHOWN]
            dated = [(k, self._reason(k, best).replaced_us) for k in longest]
            highest = max((k.days for k in reached), default=0)
            stay = to_stay(self.graph, rules, best, dated, highest, self.as_of, self.zone)
        return Explanation(
            rule_set=self.name,
            has_rules=True,
            server=kept_server > 0,
            documented=is_kept,
            holders=len(holders),
            kept_by_server=kept_server,
            kept_by_documented=kept_documented,
            commit=commit,
            reasons=tuple(self._reason(keeper, best) for keeper in reasons[:KEEPERS_SHOWN]),
            reason_count=len(reasons),
            branches=branches[:KEEPERS_SHOWN],
            branch_count=len(branches),
            until_us=None if not is_kept or last == NEVER_EXPIRES else last,
            gone_since_us=None if is_kept or last == NEVER_KEPT else last + 1,
            walk=trace(self.graph, rules, best, self.as_of, self.zone),
            to_stay=stay,
            to_go=to_go(self.graph, rules, holders, branches, self.as_of, self.zone) if is_kept else (),
        )

    def _strength(self, documented: DocumentedVerdict, n: int) -> tuple[int, int, int, int, int]:
        """Both keep it, then the documented rule alone; then how long; then the newest."""
        active = documented.active[n]
        until = documented.kept_until_us[n]
        return (active and self.server[n], active, until, self.graph.creation_us[n], n)

    def _reason(self, keeper: Keeper, commit: int) -> Reason:
        graph = self.graph
        start = graph.index[keeper.start]
        if start == commit:
            replaced = None if keeper.branch is not None else graph.creation_us[commit]
            return Reason(keeper, graph.ids[commit], None, replaced)
        child = start
        while graph.main_parent[child] != commit:
            child = graph.main_parent[child]
        return Reason(keeper, graph.ids[commit], graph.ids[child], graph.creation_us[child])


def _longest_first(keeper: Keeper) -> tuple[int, bool, str, str]:
    until = NEVER_EXPIRES if keeper.until_us is None else keeper.until_us
    return (-until, keeper.branch is None, keeper.branch or "", keeper.start)


@dataclass(frozen=True)
class BranchExplanation:
    """What a branch keeps under one rule set. ``limit_us``: how far back it keeps; ``commits``: how many it
    keeps, ``alone``: those that no other branch keeps. ``loses``: commits that the server would let go once
    the branch is deleted (its own then count as dangling, with the default days)."""

    rule_set: str
    days: int | None
    is_default: bool
    commits: int
    alone: int
    oldest: str | None
    loses: int


def explain_branch(judge: Judge, branch: str) -> BranchExplanation:
    """Raises LakeplanError when there is no such branch (through the graph)."""
    graph, rules, sets = judge.graph, judge.rules, judge.branches
    if rules is None or sets is None:
        return BranchExplanation(judge.name, None, False, len(graph), 0, None, 0)
    bit = 1 << sets.names.index(branch)
    mine = [n for n in range(len(graph)) if sets.masks[sets.of_commit[n]] & bit]
    alone = sum(sets.masks[sets.of_commit[n]] == bit for n in mine)
    after = server_verdict(graph.without_branches([branch]), rules, judge.as_of, judge.zone)
    loses = sum(before and not now for before, now in zip(judge.server, after, strict=True))
    oldest = min(mine, key=lambda n: (graph.creation_us[n], n), default=None)
    return BranchExplanation(
        rule_set=judge.name,
        days=rules.days_for(branch),
        is_default=branch not in rules.branches,
        commits=len(mine),
        alone=alone,
        oldest=None if oldest is None else graph.ids[oldest],
        loses=loses,
    )


def judges(
    graph: CommitGraph,
    rule_sets: Sequence[tuple[str, GcRules | None]],
    as_of: datetime,
    zone: tzinfo = timezone.utc,
) -> list[Judge]:
    return [Judge(graph, name, rules, as_of, zone) for name, rules in rule_sets]
