"""The writes that bring a repository's pins up to date, in an order that never keeps less.

1. PUT the old rules with the entries of new pins; 2. make the branches; 3. compare the server's own verdict;
4. PUT the new rules; 5. delete retired pins; 6. PUT without their entries. A run may be killed after any of
them. The server's walk and the documented rule are computed for the state after each, at each moment that is
looked at, as the branches are and with the branches deleted that are at a pinned commit: each alone, all of
one commit, and all. A state that keeps less than it must is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from enum import Enum
from functools import cached_property

from lakeplan.branches.pins import History, with_entries, with_pins, without_entries
from lakeplan.retention.graph import CommitGraph, all_kept
from lakeplan.retention.rules import DocumentedRule, ServerWalk
from lakeplan.values.pins import Pin
from lakeplan.values.rules import GcRules


class Write(str, Enum):
    """What a step writes, as a person reads it."""

    ENTRIES = "add the rules that new pins need"
    CREATE = "create new pins"
    RULES = "write the new rules"
    DELETE = "delete retired pins"
    CLEAN = "take out the rules of retired pins"


@dataclass(frozen=True)
class State:
    """What a server has at one time: its rules (None: none), and the pins there."""

    rules: GcRules | None
    pins: tuple[Pin, ...]


@dataclass(frozen=True)
class Step:
    """One write, and the state after it."""

    write: Write
    after: State


@dataclass(frozen=True)
class Loss:
    """Commits that a state would let expire although they must be kept. ``removed``: the branches whose
    deletion it would take, as text; "" for none."""

    write: Write
    verdict: str
    moment: datetime
    commits: tuple[str, ...]
    removed: str = ""

    def __str__(self) -> str:
        ids = ", ".join(commit[:12] for commit in self.commits[:3])
        more = f" and {len(self.commits) - 3} more" if len(self.commits) > 3 else ""
        then = f" once branch {self.removed} is deleted" if self.removed else ""
        return f"to {self.write.value} would let {self.verdict} expire commit {ids}{more}{then}"


@dataclass(frozen=True)
class Change:
    """From the pins there are to the pins that are wanted. ``stored`` is what the server has (None: no
    rules), own entries with it; ``desired`` the rules to be, without them (None: none). ``have`` are pins
    with the days that they need: a retired pin has its rule until it is deleted, also where it was lost."""

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
        """The writes that are needed, in order; none when all is as it should be."""
        new, retired, steps = self.new, self.retired, []
        rules, there = self.stored, self.have
        if rules is not None and any(pin.days is not None for pin in new):
            # without rules nothing is collected, so there is nothing to prepare
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
"""When more pins than this are deleted, only every second, third, … state between two deletions is judged,
and at least this many."""


def states_of(change: Change, step: Step) -> Iterator[State]:
    """The states that a step passes through: retired pins are deleted one after the other."""
    if step.write is Write.DELETE:
        retired = change.retired
        stride = max(1, (len(retired) - 1) // MOST_BETWEEN)
        for deleted in range(1, len(retired), stride):
            yield State(step.after.rules, (*change.want, *retired[deleted:]))
    yield step.after


@dataclass(frozen=True, eq=False)
class _Verdicts:
    """Both verdicts of one state, as integers with a bit per byte of their flags."""

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
    """What a step would let expire although it must be kept, worst step first in order; nothing when the
    change is safe. ``history`` is without own pins.

    Before the new rules are written nothing may be kept less than now. From then on all must be kept that the
    new rules keep without any pin, and every commit whose pin stays.
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
    return None if change.stored is None else without_entries(change.stored, [p.name for p in change.have])


def _shared(history: History, pins: Iterable[Pin]) -> Iterable[tuple[str, ...]]:
    """Branches that are at a pinned commit: each alone, all of one commit, because only the last that is
    deleted leaves the commit to its pin, and all."""
    at: dict[str, tuple[str, ...]] = {pin.commit_id: () for pin in pins}
    for branch in history.refs.branches:
        if branch.commit_id in at:
            at[branch.commit_id] += (branch.id,)
    every = tuple(branch for branches in at.values() for branch in branches)
    found = (*((branch,) for branch in every), *at.values(), every)
    return dict.fromkeys(branches for branches in found if branches)


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
    """The change as it can be made safely, and what even that would lose: with a loss nothing is written.

    Where a branch is at a pinned commit, the branch keeps it and may be deleted at any time: its pin goes
    without a rule of its own, or goes, when the set is not safe otherwise. A later run makes it again.
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
