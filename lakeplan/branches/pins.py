"""Pins: hidden branches that make every collector keep a commit. Which commits need one, and with which rule.

A server's walk starts at every branch, hidden ones too, and keeps each HEAD; tags are never asked
(docs/lakefs/retention.md). So a hidden branch at a commit keeps it for as long as it exists and nobody moves
it. But a pin is a start of the walk, and a wrong rule for it makes other commits expire:

- at a *dangling* commit (no branch's HEAD, nobody's main parent) it must have the default days, as the
  commit had before, or its ancestors lose them;
- at any other commit it must have 0 days, or its walk stops the walks of branches with fewer days.

``pin_steps`` checks every set of pins by both verdicts before, between and after the writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone, tzinfo

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import active_holds, commits_named, reachable
from lakeplan.retention.patterns import matches
from lakeplan.retention.rules import DocumentedRule, ServerWalk
from lakeplan.values.branches import LiveBranch
from lakeplan.values.pins import HOLD, PREFIX, Kept, Pin, has_pin_commit, may_be_pin
from lakeplan.values.repository import Branch, Refs
from lakeplan.values.rules import GcRules
from lakeplan.values.sweep import Hold

NO_DAYS = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class PinRules:
    """What the tree pins: tags by pattern, what holds name, commits that the documented rule keeps and
    the server's walk does not, and the newest commits of branches."""

    tags: tuple[str, ...] = ()
    holds: bool = False
    at_risk: bool = False
    newest: tuple[Kept, ...] = ()

    @property
    def asks(self) -> bool:
        return bool(self.tags or self.holds or self.at_risk or self.newest)


def own_pins(live: Iterable[LiveBranch], recorded: Iterable[str]) -> tuple[list[Pin], list[LiveBranch]]:
    """Branches that are certainly lakeplan's pins, and those that only look so: these are never deleted.

    Own are hidden branches whose name has the commit they are at, and which the state has on record
    (``recorded``: full commit ids).
    """
    known = set(recorded)
    named = sorted((b for b in live if b.id.startswith(PREFIX)), key=lambda branch: branch.id)
    own = [branch for branch in named if may_be_pin(branch) and branch.commit_id in known]
    return [Pin(branch.commit_id) for branch in own], [branch for branch in named if branch not in own]


def without_pins(refs: Refs, pins: Iterable[Pin]) -> Refs:
    """The same history without these pins."""
    names = {pin.name for pin in pins}
    return replace(refs, branches=tuple(b for b in refs.branches if b.id not in names))


def without_pin_branches(refs: Refs) -> Refs:
    """The same history without branches at the commit in their name. Refs do not say which are hidden."""
    left = (branch for branch in refs.branches if not has_pin_commit(branch.id, branch.commit_id))
    return replace(refs, branches=tuple(left))


def with_pins(refs: Refs, pins: Iterable[Pin]) -> Refs:
    """The same history with these pins; each may be there already."""
    there = {branch.id for branch in refs.branches}
    new = [Branch(pin.name, pin.commit_id) for pin in pins if pin.name not in there]
    return replace(refs, branches=(*refs.branches, *new))


def without_entries(rules: GcRules, pins: Iterable[str] = ()) -> GcRules:
    """Rules as a person wrote them: without the entries of these pins, given by name. What other branches
    are named is kept, also when it begins like a pin: somebody else wrote it."""
    names = set(pins)
    return GcRules(rules.default_retention_days, {b: d for b, d in rules.branches.items() if b not in names})


def with_entries(rules: GcRules, pins: Iterable[Pin]) -> GcRules:
    """Rules with the entries that pins need; an entry that a pin must not have is taken out."""
    branches = dict(rules.branches)
    for pin in pins:
        branches.pop(pin.name, None)
        if pin.days is not None:
            branches[pin.name] = pin.days
    return GcRules(rules.default_retention_days, branches)


def missing_entries(rules: GcRules | None, pins: Iterable[Pin]) -> list[Pin]:
    """Pins whose rule is not the one they need: a server's collector must not run until it is."""
    return [pin for pin in pins if (None if rules is None else rules.branches.get(pin.name)) != pin.days]


def blocking_rules(rules: GcRules) -> list[str]:
    """Branches whose own rule is 0 days or less, of rules without the entries of own pins: with them pins of
    0 days are not safe."""
    return [branch for branch, days in rules.branches.items() if days <= 0]


Moments = Sequence[datetime]


@dataclass(frozen=True, eq=False)
class History:
    """A history without own pins, and what decides about it: the tree's rules, the moments to judge at
    (the first is now), the server's zone."""

    refs: Refs
    graph: CommitGraph
    rules: GcRules
    moments: Moments
    zone: tzinfo = timezone.utc

    def expiring(self) -> set[int]:
        """Numbers of commits that a server's walk lets expire at one of the moments, and whose data no commit
        that stays has: the same metarange would keep it."""
        walk = ServerWalk(self.graph, self.rules)
        gone: set[int] = set()
        for moment in self.moments:
            active = walk.active(moment, self.zone)
            kept = {self.graph.meta_range_ids[n] for n, flag in enumerate(active) if flag}
            gone.update(
                n
                for n, flag in enumerate(active)
                if not flag and self.graph.meta_range_ids[n] and self.graph.meta_range_ids[n] not in kept
            )
        return gone

    def at_risk(self) -> set[int]:
        """Numbers of commits that the documented rule keeps at one of the moments, and the walk does not."""
        walk, documented = ServerWalk(self.graph, self.rules), DocumentedRule(self.graph, self.rules)
        found: set[int] = set()
        for moment in self.moments:
            pairs = zip(documented.active(moment, self.zone), walk.active(moment, self.zone), strict=True)
            found.update(n for n, (rule, server) in enumerate(pairs) if rule and not server)
        return found


def required_pins(
    history: History, rules: PinRules, holds: Sequence[Hold] = (), have: Iterable[Pin] = ()
) -> list[Pin]:
    """The pins that the tree requires, by commit id, one a commit: new ones only for commits that would lose
    data at one of the moments, those there are (``have``) for as long as they are requested, and for as long
    as a hold is active that required them before. A pin at a dangling commit has the default days, any other
    0 days."""
    graph, expiring = history.graph, history.expiring()
    there = {graph.index[pin.commit_id]: pin.holds for pin in have if pin.commit_id in graph.index}
    expiring |= there.keys()
    reasons: dict[int, list[str]] = {}
    for reason, commits in _asked(history, rules, holds, there):
        for commit in commits:
            if commit in expiring:
                reasons.setdefault(commit, []).append(reason)
    pins = [Pin(graph.ids[commit], None, tuple(reasons[commit])) for commit in sorted(reasons)]
    return list(with_needed_days(graph, pins))


def with_needed_days(graph: CommitGraph, pins: Iterable[Pin]) -> tuple[Pin, ...]:
    """Pins with the rule that each needs in a history without pins; one that is not in it as it is."""
    dangling = {graph.ids[commit] for commit in graph.server_dangling}

    def days(pin: Pin) -> int | None:
        if pin.commit_id not in graph.index:
            return pin.days
        return None if pin.commit_id in dangling else NO_DAYS

    return tuple(replace(pin, days=days(pin)) for pin in pins)


def _asked(
    history: History, rules: PinRules, holds: Sequence[Hold], held_before: Mapping[int, Collection[str]]
) -> Iterator[tuple[str, Iterable[int]]]:
    """Reasons, each with the numbers of its commits."""
    graph, refs = history.graph, history.refs
    for tag in sorted(refs.tags, key=lambda tag: tag.id):
        if tag.commit_id in graph.index and any(matches(tag.id, glob) for glob in rules.tags):
            yield f"tag {tag.id}", [graph.index[tag.commit_id]]
    if rules.holds:
        commits = {commit.id: commit for commit in refs.commits}
        for hold in active_holds(holds, history.moments[0]):
            ids = commits_named(hold, refs)
            # as a sweep does: a hold on a branch names all that its HEAD was made from
            held = reachable(commits, ids) if hold.kind == "branch" else ids
            reason = f"{HOLD}{hold.kind} {hold.name}"
            before = {number for number, reasons in held_before.items() if reason in reasons}
            yield reason, before.union(graph.index[id] for id in held if id in graph.index)
    if rules.at_risk:
        yield "at risk", history.at_risk()
    for kept in rules.newest:
        for branch, head in zip(graph.branches, graph.heads, strict=True):
            if matches(branch.id, kept.branches):
                for reason, numbers in newest_of(graph, head, kept, history.zone):
                    yield f"{reason} of {branch.id}", numbers


Period = Callable[[date], tuple[int, ...]]
_PERIODS: Mapping[str, Period] = {
    "day": lambda day: (day.year, day.month, day.day),
    "week": lambda day: tuple(day.isocalendar()[:2]),
    "month": lambda day: (day.year, day.month),
}


def newest_of(
    graph: CommitGraph, head: int, kept: Kept, zone: tzinfo = timezone.utc
) -> Iterator[tuple[str, list[int]]]:
    """What ``kept`` selects on the main line that ends at ``head``, with the reason."""
    counts = {"day": kept.daily, "week": kept.weekly, "month": kept.monthly}
    if kept.commits:
        found = [commit for commit, _ in zip(_line(graph, head), range(kept.commits), strict=False)]
        yield f"last {kept.commits} commit{'s' if kept.commits != 1 else ''}", found
    for name, count in counts.items():
        if count:
            yield f"{name}s ({count})", _newest_by(graph, head, _PERIODS[name], count, zone)


def _newest_by(graph: CommitGraph, head: int, period: Period, count: int, zone: tzinfo) -> list[int]:
    """The newest commit of each of the last ``count`` periods that have one: the first on the way from the
    HEAD. A commit whose date no calendar has is in no period."""
    found: dict[tuple[int, ...], int] = {}
    for commit in _line(graph, head):
        try:
            made = (_EPOCH + timedelta(microseconds=graph.creation_us[commit])).astimezone(zone)
        except OverflowError:
            continue
        at = period(made.date())
        if at not in found:
            if len(found) == count:
                break
            found[at] = commit
    return list(found.values())


def _line(graph: CommitGraph, head: int) -> Iterator[int]:
    """A commit and its main ancestors."""
    commit = head
    while commit >= 0:
        yield commit
        commit = graph.main_parent[commit]
