"""Explains why a commit is kept or not: by which walks, until when, and what would change that."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone, tzinfo
from functools import cached_property
from typing import Literal, TypedDict

from lakeplan.retention.graph import CommitGraph, all_kept
from lakeplan.retention.keep import BranchSets, Keeper, branch_sets, reaching, why
from lakeplan.retention.rules import (
    NEVER_EXPIRES,
    NEVER_KEPT,
    DocumentedVerdict,
    documented_verdict,
    limit_us,
    server_verdict,
)
from lakeplan.values.pins import has_pin_commit
from lakeplan.values.rules import GcRules

MAX_STEPS = 2_000_000
"""The maximum number of commits that a trace follows. The verdict does not need the trace."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Outcome = Literal["head", "young", "marks", "passes", "stops"]


@dataclass(frozen=True)
class Pass:
    """One walk. ``start`` is a commit id. ``branch`` is the branch with the most days among those that start
    there, or None for a dangling commit. ``outcome`` is ``head`` (starts at the commit and keeps it),
    ``young`` (starts at the commit, which is dangling and young enough), ``marks`` (keeps it), ``passes``
    (visits it but does not keep it, because its child is too old) or ``stops`` (ends at ``stopped_at``, which
    the walk of ``stopped_by`` visited before)."""

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
    graph: CommitGraph, rules: GcRules, commit: int, as_of: datetime, zone: tzinfo
) -> tuple[Pass, ...] | None:
    """Return the walks towards ``commit`` (a number), in the server's order, or None if there are too many
    commits to follow."""
    below = set(graph.descendants(commit))
    visited: dict[int, tuple[int, str]] = {}
    walks: list[Pass] = []
    steps = 0
    for start in _starts(graph, rules, below, as_of, zone):
        id = graph.ids[start.number]
        before = visited.get(start.number)
        if start.branch is None and before is not None and before[0] <= start.limit:
            # In old versions with three parents, the server treats a commit with a child as dangling.
            walks.append(Pass(id, None, start.days, "stops", id, before[1]))
            continue
        visited[start.number] = (start.limit, id)
        if start.number == commit:
            young = graph.creation_us[commit] > start.limit
            outcome: Outcome = "head" if start.branch is not None else "young" if young else "passes"
            walks.append(Pass(id, start.branch, start.days, outcome))
            continue
        at = start.number
        while at != commit:
            steps += 1
            if steps > MAX_STEPS:
                return None
            parent = graph.main_parent[at]
            before = visited.get(parent)
            if before is not None and before[0] <= start.limit:
                walks.append(Pass(id, start.branch, start.days, "stops", graph.ids[parent], before[1]))
                break
            visited[parent] = (start.limit, id)
            if parent == commit:
                marks = graph.creation_us[at] > start.limit
                walks.append(Pass(id, start.branch, start.days, "marks" if marks else "passes"))
            at = parent
    return tuple(walks)


def _starts(
    graph: CommitGraph, rules: GcRules, below: set[int], as_of: datetime, zone: tzinfo
) -> list[_Start]:
    """Return the starts of walks among ``below`` by commit id. Of branches that share a HEAD, the one with
    the most days counts."""
    at: dict[int, tuple[int, str | None]] = {}
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        days = rules.days_for(branch.id)
        if head in below and (head not in at or days > at[head][0]):
            at[head] = (days, branch.id)
    for commit in graph.server_dangling:
        if commit in below:
            at.setdefault(commit, (rules.default_retention_days, None))
    return [_Start(n, branch, days, limit_us(as_of, days, zone)) for n, (days, branch) in sorted(at.items())]


MOST_DAYS = 36_500
"""The maximum number of days that a tree may require."""
TRIED = 3
NAMED = 10

Kind = Literal[
    "days", "branch_here", "move_head", "remove_pin", "too_young", "set_rules", "reset", "end_protection"
]


@dataclass(frozen=True)
class Remedy:
    """One change that keeps data, or lets it expire.

    - ``days``: set the days of the branch (None: the default) to at least this to keep it, to at most this to
      let it expire
    - ``branch_here``: create a branch at ``commit_id``, which every walk keeps
    - ``move_head``: commit to the branch, because its HEAD is kept whatever its days. ``remove_pin``: remove
    the pin, whose HEAD never moves
    - ``too_young``: even one day keeps it today. ``set_rules``: no rules are set, so nothing is collected
    - ``reset``: reset the uncommitted change of ``branch``. ``end_protection``: remove what keeps it from
      lakeplan's sweeps
    """

    kind: Kind
    branch: str | None = None
    days_now: int | None = None
    days: int | None = None
    commit_id: str | None = None


def days_needed(created_us: int, as_of: datetime, zone: tzinfo) -> int | None:
    """Return the fewest days whose cutoff is before a date, or None if more than ``MOST_DAYS`` are needed."""
    # Limits never move forward as days grow.
    days = 1 + bisect_left(range(1, MOST_DAYS + 1), True, key=lambda n: limit_us(as_of, n, zone) < created_us)
    return days if days <= MOST_DAYS else None


def to_stay(
    graph: CommitGraph,
    rules: GcRules,
    commit: int,
    reached_by: Sequence[tuple[Keeper, int | None]],
    highest: int,
    as_of: datetime,
    zone: tzinfo,
) -> tuple[Remedy, ...]:
    """Return changes after which both the documented rule and the server's walk keep a commit (a number).

    ``reached_by`` has the starts that reach it, each with the date that must be after the cutoff. ``highest``
    is the greatest number of days among them.
    """
    wanted: list[tuple[int, str | None, int]] = []
    for keeper, created in reached_by:
        needed = None if created is None else days_needed(created, as_of, zone)
        if needed is not None:
            wanted.append((needed, keeper.branch, keeper.days))
    wanted.sort(key=lambda item: (item[0], item[1] is None, item[1] or ""))
    remedies: list[Remedy] = []
    tried: set[str | None] = set()
    for needed, branch, now in wanted:
        if branch in tried:
            continue
        if len(tried) >= TRIED:
            break
        tried.add(branch)
        # The fewest days by the rule, or else more days than all others, so that no other walk stops this
        # one.
        for days in sorted({max(needed, now), max(needed, highest + 1)}):
            if days > now and _keeps(graph, _with_days(rules, branch, days), commit, as_of, zone):
                remedies.append(Remedy("days", branch, now, days))
                break
    return (*remedies, Remedy("branch_here", commit_id=graph.ids[commit]))


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
    """Return the changes of the first ten of ``branches``, and of the default for dangling commits, that are
    needed together so that all of ``holders`` expire by the documented rule."""
    held = frozenset(holders)
    head_of = {branch.id: head for branch, head in zip(graph.branches, graph.heads, strict=True)}
    remedies: list[Remedy] = []
    for name in branches[:NAMED]:
        days = rules.days_for(name)
        if head_of[name] in held:
            remedies.append(_off_head(graph, name, head_of[name], days))
            continue
        newest = _newest_edge(graph, head_of[name], limit_us(as_of, days, zone), held)
        if newest is not None:
            remedies.append(_shorter(newest, name, days, as_of, zone))
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
        remedies.append(_shorter(max(dates), None, default, as_of, zone))
    return tuple(remedies)


def _off_head(graph: CommitGraph, branch: str, head: int, days: int | None) -> Remedy:
    commit = graph.ids[head]
    kind: Kind = "remove_pin" if has_pin_commit(branch, commit) else "move_head"
    return Remedy(kind, branch, days, commit_id=commit)


def without_rules(graph: CommitGraph, holders: Collection[int]) -> tuple[Remedy, ...]:
    """Return the changes that are needed if no rules are set: rules, and new HEADs, because no rule lets a
    HEAD expire."""
    held = frozenset(holders)
    heads = sorted((b.id, n) for b, n in zip(graph.branches, graph.heads, strict=True) if n in held)
    remedies = [_off_head(graph, branch, head, None) for branch, head in heads[:NAMED]]
    return (Remedy("set_rules"), *remedies) if held else ()


def _shorter(newest: int, branch: str | None, days: int, as_of: datetime, zone: tzinfo) -> Remedy:
    needed = days_needed(newest, as_of, zone)
    most = days - 1 if needed is None else needed - 1
    return Remedy("days", branch, days, most) if most >= 1 else Remedy("too_young", branch, days)


def _newest_edge(graph: CommitGraph, start: int, limit: int, held: frozenset[int]) -> int | None:
    """Return the newest date after ``limit`` among the commits of the walk whose main parent is in
    ``held``."""
    newest: int | None = None
    child = start
    while graph.newest_ancestor_us[child] > limit and (parent := graph.main_parent[child]) >= 0:
        created = graph.creation_us[child]
        if parent in held and created > limit and (newest is None or created > newest):
            newest = created
        child = parent
    return newest


KEEPERS_SHOWN = 10


class ReasonRow(TypedDict):
    """A walk that keeps the commit, as documents have it. ``start`` is the commit where it begins: a branch's
    HEAD, or without ``branch`` a dangling commit. ``replaced_by`` followed the commit on the walk at
    ``counted_from``, from which the days count. It is None if the walk begins at the commit. The days of a
    dangling commit then count from its own date. ``until`` is None for a HEAD, which is kept until the branch
    moves. ``source`` is the place of the days in the tree."""

    branch: str | None
    start: str
    days: int
    is_default: bool
    source: str | None
    replaced_by: str | None
    counted_from: str | None
    until: str | None


@dataclass(frozen=True)
class Explanation:
    """The verdict of one rule set on the commits that hold something.

    - ``kept_by_server``, ``kept_by_documented``: how many holders each keeps. ``server``, ``documented``:
    whether it keeps any - ``commit``: the holder that is kept the longest, or expired last. ``reasons``: what
    keeps or kept it, the strongest first, of ``reason_count``
    - ``branches``: the branches that keep a holder, of ``branch_count``
    - ``until_us``: the last instant at which the documented rule keeps a holder, assuming no new commits;
    None without an end (a HEAD or no rules). ``gone_since_us``: since when it keeps none, or None
    - ``walk``: the server's walks towards ``commit``; None when there are too many commits to follow
    """

    rule_set: str
    has_rules: bool
    kept_by_server: int
    kept_by_documented: int
    commit: str | None = None
    reasons: tuple[ReasonRow, ...] = ()
    reason_count: int = 0
    branches: tuple[str, ...] = ()
    branch_count: int = 0
    until_us: int | None = None
    gone_since_us: int | None = None
    walk: tuple[Pass, ...] | None = None
    to_stay: tuple[Remedy, ...] = ()
    to_go: tuple[Remedy, ...] = ()

    @property
    def server(self) -> bool:
        return self.kept_by_server > 0

    @property
    def documented(self) -> bool:
        return self.kept_by_documented > 0


@dataclass(eq=False)
class Judge:
    """The verdicts of one rule set at one moment. If ``rules`` is None, no rules are set, so nothing is
    collected. ``sources`` has the places in the tree of the days of each branch, and under "" those of the
    default."""

    graph: CommitGraph
    name: str
    rules: GcRules | None
    as_of: datetime
    zone: tzinfo
    sources: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def server(self) -> bytearray:
        """Return, by commit number, 1 if the server keeps the commit."""
        if self.rules is None:
            return all_kept(self.graph)
        return server_verdict(self.graph, self.rules, self.as_of, self.zone)

    @cached_property
    def documented(self) -> DocumentedVerdict | None:
        """Return the verdict of the documented rule, or None without rules."""
        if self.rules is None:
            return None
        return documented_verdict(self.graph, self.rules, self.as_of, self.zone)

    @cached_property
    def branches(self) -> BranchSets | None:
        if self.rules is None:
            return None
        return branch_sets(self.graph, self.rules, self.as_of, self.zone)

    def keeps(self, commit: int) -> bool:
        """Return whether the server or the documented rule keeps a commit."""
        return bool(self.server[commit] or self.documented is None or self.documented.active[commit])

    def surely_keeps(self, holders: Collection[int]) -> bool:
        """Return whether both keep one of these commits, so that further holders change nothing."""
        documented = self.documented
        kept = documented is None or any(documented.active[n] for n in holders)
        return bool(holders) and kept and any(self.server[n] for n in holders)

    def explain(self, holders: Collection[int]) -> Explanation:
        """Return the verdict on these holders. Data without a holder was never committed, so nothing keeps
        it."""
        documented, sets, rules = self.documented, self.branches, self.rules
        if rules is None or documented is None or sets is None:
            count = len(holders)
            return Explanation(self.name, False, count, count, to_go=without_rules(self.graph, holders))
        if not holders:
            return Explanation(self.name, True, 0, 0)
        kept_server = sum(self.server[n] for n in holders)
        kept_documented = sum(documented.active[n] for n in holders)
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
            dated = [(k, self._replaced(k, best)[1]) for k in longest]
            highest = max((k.days for k in reached), default=0)
            stay = to_stay(self.graph, rules, best, dated, highest, self.as_of, self.zone)
        return Explanation(
            rule_set=self.name,
            has_rules=True,
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
        """Return a sort key that puts commits that both keep above those that only the documented rule keeps,
        then sorts by how long they are kept, then by date."""
        active = documented.active[n]
        until = documented.kept_until_us[n]
        return (active and self.server[n], active, until, self.graph.creation_us[n], n)

    def _reason(self, keeper: Keeper, commit: int) -> ReasonRow:
        by, replaced_us = self._replaced(keeper, commit)
        return {
            "branch": keeper.branch,
            "start": keeper.start,
            "days": keeper.days,
            "is_default": keeper.is_default,
            "source": self.sources.get("" if keeper.is_default else keeper.branch or ""),
            "replaced_by": by,
            "counted_from": None if replaced_us is None else iso(replaced_us),
            "until": None if keeper.until_us is None else iso(keeper.until_us),
        }

    def _replaced(self, keeper: Keeper, commit: int) -> tuple[str | None, int | None]:
        """Return the commit that followed on the walk, if any, and the date that must be after the cutoff."""
        graph, child = self.graph, self.graph.index[keeper.start]
        if child == commit:
            return None, None if keeper.branch is not None else graph.creation_us[commit]
        while graph.main_parent[child] != commit:
            child = graph.main_parent[child]
        return graph.ids[child], graph.creation_us[child]


def _longest_first(keeper: Keeper) -> tuple[int, bool, str, str]:
    until = NEVER_EXPIRES if keeper.until_us is None else keeper.until_us
    return (-until, keeper.branch is None, keeper.branch or "", keeper.start)


def iso(us: int) -> str:
    """Return ISO 8601 with a Z. A time outside the calendar is shown as the calendar's first or last
    second."""
    if us >= NEVER_EXPIRES:
        return "9999-12-31T23:59:59Z"
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return "9999-12-31T23:59:59Z" if us > 0 else "0001-01-01T00:00:00Z"
    return moment.isoformat().replace("+00:00", "Z")
