"""Pins: hidden branches that make every collector keep a commit. Decides which commits need one, with which
rule, and in which order to write so that nothing is kept for less time meanwhile.

A server's walk starts at every branch, including hidden ones, and keeps each HEAD; it ignores tags
(docs/lakefs/retention.md). So a hidden branch keeps its commit as long as it exists and nobody moves it. But
the walk also starts at pins, and a wrong rule for a pin makes other commits expire:

- at a *dangling* commit (no branch's HEAD, no commit's main parent) it must have the default days, as the
  commit had before, or its ancestors lose them;
- at any other commit it must have 0 days, or its walk stops the walks of branches with fewer days.

The writes that bring the pins of a repository up to date:

1. PUT the old rules with the entries of new pins; 2. create the branches; 3. compare the server's own
verdict; 4. PUT the new rules; 5. delete retired pins; 6. PUT without their entries. A run may be killed after
any of them. So the server's walk and the documented rule are computed for the state after each write, at
each moment that is judged, with all branches and without those at pinned commits: each alone, all of one
commit, and all. A change that would keep less than it must in any of these states is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone, tzinfo
from enum import Enum
from functools import cache, cached_property

from lakeplan.retention.graph import CommitGraph, all_kept
from lakeplan.retention.keep import active_holds, commits_named, reachable
from lakeplan.retention.patterns import matches
from lakeplan.retention.rules import DocumentedRule, ServerWalk
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import DesiredRepository, GcDesired
from lakeplan.values.pins import HOLD, Kept, Pin, has_pin_commit, may_be_pin
from lakeplan.values.repository import Branch, Refs
from lakeplan.values.rules import GcRules
from lakeplan.values.sweep import Hold

NO_DAYS = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class PinRules:
    """The commits that the tree pins: those of tags by pattern, those that holds name, those that the
    documented rule keeps but the server's walk does not (``at_risk``), and the newest commits of branches."""

    tags: tuple[str, ...] = ()
    holds: bool = False
    at_risk: bool = False
    newest: tuple[Kept, ...] = ()


def pin_rules(desired: DesiredRepository) -> PinRules:
    """Return the rules for pins of a repository in the tree."""
    rules = desired.gc.branches if isinstance(desired.gc, GcDesired) else ()
    newest = tuple(rule.kept for rule in rules if rule.kept is not None)
    return PinRules(desired.pins.tags, desired.pins.holds, desired.pins.at_risk, newest)


def own_pins(live: Iterable[LiveBranch], recorded: Collection[str]) -> list[Pin]:
    """The branches that are certainly lakeplan's pins, by name. Others are never deleted.

    A pin is a hidden branch that is at the commit in its name and that the state has on record (``recorded``:
    full commit ids).
    """
    pins = (branch for branch in live if may_be_pin(branch) and branch.commit_id in recorded)
    return [Pin(branch.commit_id) for branch in sorted(pins, key=lambda branch: branch.id)]


def without_pins(refs: Refs, pins: Iterable[Pin]) -> Refs:
    """The same history without these pins."""
    names = {pin.name for pin in pins}
    return replace(refs, branches=tuple(b for b in refs.branches if b.id not in names))


def without_pin_branches(refs: Refs) -> Refs:
    """The same history without branches at the commit in their name. Refs do not say which are hidden."""
    left = (branch for branch in refs.branches if not has_pin_commit(branch.id, branch.commit_id))
    return replace(refs, branches=tuple(left))


def with_pins(refs: Refs, pins: Iterable[Pin]) -> Refs:
    """The same history with these pins. Any of them may be in it already."""
    there = {branch.id for branch in refs.branches}
    new = [Branch(pin.name, pin.commit_id) for pin in pins if pin.name not in there]
    return replace(refs, branches=(*refs.branches, *new))


def without_entries(rules: GcRules, names: Collection[str]) -> GcRules:
    """Rules without the entries of the pins with these names. Entries of other branches are kept even if
    their names begin like pins, because somebody else wrote them."""
    return GcRules(rules.default_retention_days, {b: d for b, d in rules.branches.items() if b not in names})


def with_entries(rules: GcRules, pins: Iterable[Pin]) -> GcRules:
    """Rules with the entries that pins need, and without the entries of pins that must not have one."""
    branches = dict(rules.branches)
    for pin in pins:
        branches.pop(pin.name, None)
        if pin.days is not None:
            branches[pin.name] = pin.days
    return GcRules(rules.default_retention_days, branches)


def missing_entries(rules: GcRules | None, pins: Iterable[Pin]) -> list[Pin]:
    """Pins whose rule is not the one that they need. Until it is, a server's collector must not run."""
    return [pin for pin in pins if (None if rules is None else rules.branches.get(pin.name)) != pin.days]


def blocking_rules(rules: GcRules) -> list[str]:
    """Branches with a rule of 0 days or less, in rules without the entries of pins. They make pins of 0 days
    unsafe."""
    return [branch for branch, days in rules.branches.items() if days <= 0]


@dataclass(frozen=True, eq=False)
class History:
    """A history without lakeplan's pins, and what decides which commits expire: the tree's rules, the moments
    to judge at (the first is now) and the server's time zone."""

    refs: Refs
    graph: CommitGraph
    rules: GcRules
    moments: Sequence[datetime]
    zone: tzinfo = timezone.utc

    def expiring(self) -> set[int]:
        """Numbers of commits that expire by the server's walk at one of the moments, and whose metarange no
        kept commit has."""
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
        """Numbers of commits that the documented rule keeps at one of the moments, but the walk does not."""
        walk, documented = ServerWalk(self.graph, self.rules), DocumentedRule(self.graph, self.rules)
        numbers: set[int] = set()
        for moment in self.moments:
            pairs = zip(documented.active(moment, self.zone), walk.active(moment, self.zone), strict=True)
            numbers.update(n for n, (rule, server) in enumerate(pairs) if rule and not server)
        return numbers


def required_pins(
    history: History, rules: PinRules, holds: Sequence[Hold] = (), have: Iterable[Pin] = ()
) -> list[Pin]:
    """The pins that the tree requires, one per commit, by commit id. A new pin is required only for a commit
    that would lose data at one of the moments. An existing one (``have``) is required as long as the tree
    requests it, or a hold that required it is active. A pin at a dangling commit has the default days, any
    other 0 days."""
    graph, expiring = history.graph, history.expiring()
    existing = {graph.index[pin.commit_id]: pin.holds for pin in have if pin.commit_id in graph.index}
    expiring |= existing.keys()
    reasons: dict[int, list[str]] = {}
    for reason, commits in _requested(history, rules, holds, existing):
        for commit in commits:
            if commit in expiring:
                reasons.setdefault(commit, []).append(reason)
    pins = [Pin(graph.ids[commit], None, tuple(reasons[commit])) for commit in sorted(reasons)]
    return list(with_needed_days(graph, pins))


def with_needed_days(graph: CommitGraph, pins: Iterable[Pin]) -> tuple[Pin, ...]:
    """Pins with the rule that each needs in a history without pins. Pins at other commits are unchanged."""
    dangling = {graph.ids[commit] for commit in graph.server_dangling}

    def days(pin: Pin) -> int | None:
        if pin.commit_id not in graph.index:
            return pin.days
        return None if pin.commit_id in dangling else NO_DAYS

    return tuple(replace(pin, days=days(pin)) for pin in pins)


def _requested(
    history: History, rules: PinRules, holds: Sequence[Hold], held_before: Mapping[int, Collection[str]]
) -> Iterator[tuple[str, Iterable[int]]]:
    """The reasons for pins, each with the numbers of its commits."""
    graph, refs = history.graph, history.refs
    for tag in sorted(refs.tags, key=lambda tag: tag.id):
        if tag.commit_id in graph.index and any(matches(tag.id, glob) for glob in rules.tags):
            yield f"tag {tag.id}", [graph.index[tag.commit_id]]
    if rules.holds:
        commits = {commit.id: commit for commit in refs.commits}
        for hold in active_holds(holds, history.moments[0]):
            ids = commits_named(hold, refs)
            # As for a sweep, a hold on a branch names every ancestor of its HEAD.
            held = reachable(commits, ids) if hold.kind == "branch" else ids
            reason = f"{HOLD}{hold.kind} {hold.name}"
            before = {number for number, reasons in held_before.items() if reason in reasons}
            yield reason, before.union(graph.index[id] for id in held if id in graph.index)
    if rules.at_risk:
        yield "at risk", history.at_risk()
    for branch, reason, numbers in newest_on(graph, rules.newest, history.zone):
        yield f"{reason} of {branch}", numbers


Period = Callable[[date], tuple[int, ...]]
_PERIODS: Mapping[str, Period] = {
    "day": lambda day: (day.year, day.month, day.day),
    "week": lambda day: tuple(day.isocalendar()[:2]),
    "month": lambda day: (day.year, day.month),
}


def newest_on(
    graph: CommitGraph, newest: Iterable[Kept], zone: tzinfo, *, without: Collection[str] = ()
) -> Iterator[tuple[str, str, list[int]]]:
    """The commits that ``newest`` selects on the main lines of all branches but those in ``without``: the
    branch, the reason and the numbers."""

    @cache  # most branches share most of their main lines
    def date_of(commit: int) -> date | None:
        try:
            return (_EPOCH + timedelta(microseconds=graph.creation_us[commit])).astimezone(zone).date()
        except OverflowError:
            return None

    for kept in newest:
        for branch, head in zip(graph.branches, graph.heads, strict=True):
            if branch.id not in without and matches(branch.id, kept.branches):
                for reason, numbers in _newest_of(graph, head, kept, date_of):
                    yield branch.id, reason, numbers


def newest_kept(
    desired: DesiredRepository, zone: tzinfo, graph: CommitGraph, pins: frozenset[str]
) -> dict[str, frozenset[int]]:
    """By branch: the newest commits that the tree keeps. Their pins may not exist yet, like those of tags."""
    found = dict[str, frozenset[int]]()
    for branch, _, numbers in newest_on(graph, pin_rules(desired).newest, zone, without=pins):
        found[branch] = found.get(branch, frozenset()).union(numbers)
    return found


def _newest_of(
    graph: CommitGraph, head: int, kept: Kept, date_of: Callable[[int], date | None]
) -> Iterator[tuple[str, list[int]]]:
    counts = {"day": kept.daily, "week": kept.weekly, "month": kept.monthly}
    if kept.commits:
        commits = [commit for commit, _ in zip(_line(graph, head), range(kept.commits), strict=False)]
        yield f"last {kept.commits} commit{'s' if kept.commits != 1 else ''}", commits
    for name, count in counts.items():
        if count:
            yield f"{name}s ({count})", _newest_by(graph, head, _PERIODS[name], count, date_of)


def _newest_by(
    graph: CommitGraph, head: int, period: Period, count: int, date_of: Callable[[int], date | None]
) -> list[int]:
    """The newest commit of each of the last ``count`` periods that have one, newest first; of equal dates the
    one nearer the HEAD. A commit may have an older date than its ancestors. One with a date outside the
    calendar is in no period."""
    newest: dict[tuple[int, ...], int] = {}
    us, first = graph.creation_us, None
    for commit in _line(graph, head):
        if first is not None and graph.newest_ancestor_us[commit] <= us[newest[first]]:
            break
        if (made := date_of(commit)) is None:
            continue
        at = period(made)
        if at not in newest or us[commit] > us[newest[at]]:
            newest[at] = commit
            if len(newest) > count:
                del newest[min(newest)]
            if len(newest) == count:
                first = min(newest)
    return [newest[at] for at in sorted(newest, reverse=True)]


def _line(graph: CommitGraph, head: int) -> Iterator[int]:
    """A commit and its main ancestors."""
    commit = head
    while commit >= 0:
        yield commit
        commit = graph.main_parent[commit]


# ---- the writes
class Write(str, Enum):
    """The kinds of steps, as text for people."""

    ENTRIES = "adding the rules that new pins need"
    CREATE = "creating new pins"
    RULES = "writing the new rules"
    DELETE = "deleting retired pins"
    CLEAN = "removing the rules of retired pins"


@dataclass(frozen=True)
class State:
    """A server's rules (None: none) and pins at one time."""

    rules: GcRules | None
    pins: tuple[Pin, ...]


@dataclass(frozen=True)
class Step:
    """One write, and the state after it."""

    write: Write
    after: State


@dataclass(frozen=True)
class Loss:
    """Commits that would expire in a state although they must be kept. ``removed`` are the branches that
    would have to be deleted for that, as text, or ""."""

    write: Write
    verdict: str
    moment: datetime
    commits: tuple[str, ...]
    removed: str = ""

    def __str__(self) -> str:
        ids = ", ".join(commit[:12] for commit in self.commits[:3])
        more = f" and {len(self.commits) - 3} more" if len(self.commits) > 3 else ""
        then = f" once branch {self.removed} is deleted" if self.removed else ""
        return f"{self.write.value} would stop {self.verdict} from keeping commit {ids}{more}{then}"


@dataclass(frozen=True)
class Change:
    """A change from the existing pins (``have``) to the wanted ones. ``stored`` are the server's rules with
    the entries of pins, ``desired`` the rules to write, without them; None: no rules. ``have`` have the days
    that they need: a retired pin keeps its rule until it is deleted, and gets it back if it was lost."""

    stored: GcRules | None
    desired: GcRules | None
    have: tuple[Pin, ...]
    want: tuple[Pin, ...]

    @property
    def new(self) -> tuple[Pin, ...]:
        there = {pin.name for pin in self.have}
        return tuple(pin for pin in self.want if pin.name not in there)

    @property
    def retired(self) -> tuple[Pin, ...]:
        wanted = {pin.name for pin in self.want}
        return tuple(pin for pin in self.have if pin.name not in wanted)

    def steps(self) -> list[Step]:
        """The writes that are needed, in order, or none if nothing differs."""
        new, retired, steps = self.new, self.retired, []
        rules, there = self.stored, self.have
        if rules is not None and any(pin.days is not None for pin in new):
            # Without rules nothing is collected, so there is nothing to prepare.
            rules = with_entries(rules, new)
            steps.append(Step(Write.ENTRIES, State(rules, there)))
        if new:
            there = (*there, *new)
            steps.append(Step(Write.CREATE, State(rules, there)))
        full = clean = None
        if self.desired is not None:
            full = with_entries(self.desired, (*retired, *self.want))
            clean = with_entries(self.desired, self.want)
        if full != rules:
            steps.append(Step(Write.RULES, State(full, there)))
        if retired:
            steps.append(Step(Write.DELETE, State(full, self.want)))
            if clean != full:
                steps.append(Step(Write.CLEAN, State(clean, self.want)))
        return steps


MOST_BETWEEN = 16
"""If more pins than this are deleted, not every state between two deletions is judged, but at least this many
of them, evenly spaced."""


def states_of(change: Change, step: Step) -> Iterator[State]:
    """The states during a step, in which retired pins are deleted one after the other."""
    if step.write is Write.DELETE:
        retired = change.retired
        stride = max(1, (len(retired) - 1) // MOST_BETWEEN)
        for deleted in range(1, len(retired), stride):
            yield State(step.after.rules, (*change.want, *retired[deleted:]))
    yield step.after


@dataclass(frozen=True, eq=False)
class _Verdicts:
    """The verdicts of the server and of the documented rule in one state, as integers with a byte per
    commit."""

    graph: CommitGraph
    rules: GcRules | None

    @cached_property
    def _walk(self) -> ServerWalk | None:
        return None if self.rules is None else ServerWalk(self.graph, self.rules)

    @cached_property
    def _documented(self) -> DocumentedRule | None:
        return None if self.rules is None else DocumentedRule(self.graph, self.rules)

    def kept(self, moment: datetime, zone: tzinfo) -> Iterator[tuple[str, int]]:
        for name, rule in (("the server", self._walk), ("the documented rule", self._documented)):
            flags = all_kept(self.graph) if rule is None else rule.active(moment, zone)
            yield name, int.from_bytes(flags, "little")


def losses(history: History, change: Change) -> Iterator[Loss]:
    """Return the commits that each step would let expire although they must be kept; none if the change is
    safe. ``history`` is without lakeplan's pins.

    Until the new rules are written, everything that is kept now must be kept. From then on, everything that
    the new rules keep without pins must be kept, and every commit with a wanted pin.
    """
    pins = {pin.name: pin for pin in (*change.have, *change.want)}
    everything = CommitGraph.from_refs(with_pins(history.refs, pins.values()))
    steps = change.steps()
    for removed in ((), *_shared(history, (*change.have, *change.want))):
        at_start = _at(everything, pins.values(), State(change.stored, change.have), removed)
        bare = _at(everything, pins.values(), State(change.desired, ()), removed)
        old = _at(everything, pins.values(), State(bare_rules(change), ()), removed)
        for step in steps:
            before_rules = step.write in (Write.ENTRIES, Write.CREATE)
            needed = (at_start, old) if before_rules else (bare,)
            pinned = () if before_rules else change.want
            for after in states_of(change, step):
                state = _at(everything, pins.values(), after, removed)
                yield from _compared(history, step, state, needed, pinned, removed)


def bare_rules(change: Change) -> GcRules | None:
    """The server's rules as if there were no pins."""
    return (
        None if change.stored is None else without_entries(change.stored, {pin.name for pin in change.have})
    )


def _shared(history: History, pins: Iterable[Pin]) -> Iterable[tuple[str, ...]]:
    """Branches at pinned commits: each alone, all of one commit (only when the last is deleted, its pin alone
    keeps it), and all together."""
    at: dict[str, tuple[str, ...]] = {pin.commit_id: () for pin in pins}
    for branch in history.refs.branches:
        if branch.commit_id in at:
            at[branch.commit_id] += (branch.id,)
    branches_at = tuple(branch for branches in at.values() for branch in branches)
    subsets = (*((branch,) for branch in branches_at), *at.values(), branches_at)
    return dict.fromkeys(branches for branches in subsets if branches)


def _at(everything: CommitGraph, pins: Iterable[Pin], state: State, removed: Iterable[str]) -> _Verdicts:
    there = {pin.name for pin in state.pins}
    gone = {pin.name for pin in pins if pin.name not in there}.union(removed)
    return _Verdicts(everything.without_branches(gone), state.rules)


def _compared(
    history: History,
    step: Step,
    state: _Verdicts,
    needed: Sequence[_Verdicts],
    pinned: Sequence[Pin],
    removed: tuple[str, ...],
) -> Iterator[Loss]:
    graph = state.graph
    must = sum(1 << 8 * graph.index[pin.commit_id] for pin in pinned)
    for moment in history.moments:
        before = [dict(each.kept(moment, history.zone)) for each in needed]
        for verdict, kept in state.kept(moment, history.zone):
            lost = must
            for each in before:
                lost |= each[verdict]
            lost &= ~kept
            if lost:
                flags = lost.to_bytes(len(graph), "little")
                ids = tuple(graph.ids[n] for n, flag in enumerate(flags) if flag)
                yield Loss(step.write, verdict, moment, ids, " and ".join(removed))


def safe_change(history: History, change: Change) -> tuple[Change, Loss | None]:
    """The change in a safe form, and None; or the change and a loss, if no form is safe.

    If a branch is at a pinned commit, the branch keeps the commit, but it may be deleted at any time. If the
    change is otherwise unsafe, such pins get no rule of their own, or are left for a later run to create.
    """
    heads = {branch.commit_id for branch in history.refs.branches}
    without_rule = tuple(replace(p, days=None) if p.commit_id in heads else p for p in change.want)
    without_pin = tuple(p for p in change.want if p.commit_id not in heads)
    first: Loss | None = None
    for want in dict.fromkeys((change.want, without_rule, without_pin)):
        tried = replace(change, want=want)
        loss = next(losses(history, tried), None)
        if loss is None:
            return tried, None
        first = first or loss
    return change, first
