"""Steps without end: something happens to a repository, its tree and its state; then a command runs, and is
interrupted or not. A world lasts ``WORLD_STEPS`` steps, and every world has a seed of its own."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from lakeplan.errors import LakeplanError
from lakeplan.sweep.mark_record import Mark
from tests.chaos import faults
from tests.chaos.checker import QUARANTINE, RULES, Checker, Violation
from tests.chaos.faults import Killed
from tests.chaos.operators import Operator
from tests.chaos.trees import Edit, ask_for_pins, edit_days, edit_tree, first_tree, hold_branch, tighten
from tests.chaos.users import BRANCHES, Users
from tests.chaos.wire import no_threads_no_waiting
from tests.chaos.world import REPOSITORY, ChaosWorld

WORLD_STEPS = 40
HOURS = (0, 0, 1, 12, 25, 25, 50, 24 * 8)
SKEWS = (0,) * 20 + (25, -25)
"""Hours by which a process's clock is wrong."""


@dataclass
class Counts:
    """The deletions of a campaign: one that deletes nothing would prove nothing."""

    steps: int = 0
    deleting: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    tree: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)

    def text(self) -> str:
        share = 100 * self.deleting / max(1, self.steps)
        lines = [f"{self.steps:,} steps; {self.deleting:,} of them deleted something ({share:.0f} %)"]
        for name in ("commands", "ends", "faults", "users", "tree", "done"):
            counts: Counter[str] = getattr(self, name)
            lines.append(f"{name}: " + ", ".join(f"{k} {v:,}" for k, v in sorted(counts.items())))
        return "\n".join(lines)


class Lost(AssertionError):
    """A violation, with how to see it again and what led to it."""


def campaign(
    seed: int,
    steps: int,
    *,
    mirror: Callable[[Path], Any] | None = None,
    only_world: int | None = None,
    first_world: int = 0,
    counts: Counts | None = None,
    lived: Callable[[int, Counts], None] = lambda world, counts: None,
) -> Counts:
    """Runs so many steps. Raises Lost at the first violation. ``lived`` is called after each world."""
    counts = counts or Counts()
    number = first_world if only_world is None else only_world
    while counts.steps < steps:
        _World(seed, number, counts, mirror).live(min(WORLD_STEPS, steps - counts.steps))
        lived(number, counts)
        if only_world is not None:
            break
        number += 1
    return counts


class _World:
    """A world and its steps. ``diary`` describes for people what happened."""

    def __init__(self, seed: int, number: int, counts: Counts, mirror: Callable[[Path], Any] | None) -> None:
        self.seed, self.number, self.counts, self._mirror = seed, number, counts, mirror
        self.random = Random(f"{seed}/{number}")
        self.diary: list[str] = []
        self._snapshots: list[tuple[dict[str, Any], int | None]] = []
        self._approved: list[Mark] = []

    def live(self, steps: int) -> None:
        random.seed(f"{self.seed}/{self.number}")  # the sandbox shuffles its answers
        folder = Path(tempfile.mkdtemp(prefix="lakeplan-chaos-"))
        try:
            self.world = ChaosWorld(folder, self._mirror)
            with (
                # Power cuts have tests of their own; thousands of small files are quicker without the disk.
                mock.patch.object(os, "fsync", return_value=None),
                no_threads_no_waiting(lambda: self.world.wire),
            ):
                self._begin()
                for _ in range(steps):
                    self._step()
        except Violation as violation:
            last = "\n  ".join(self.diary[-25:])
            raise Lost(
                f"{violation}\n  {last}\nsee it again: make chaos CHAOS_ARGS="
                f'"--seed {self.seed} --world {self.number}"'
            ) from violation
        finally:
            self.world.lake.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _begin(self) -> None:
        self.checker = Checker(self.world)
        self.operator = Operator(self.world, self.checker)
        first_tree(self.world, self.random)
        if self.number % 3 == 1:
            ask_for_pins(self.world, self.random)
        self.users = Users(self.world, self.random)
        self.users.begin()

    def _step(self) -> None:
        self.counts.steps += 1
        before = self.checker.deletions
        for _ in range(self.random.randint(0, 3)):
            self.users.act()
        self._sometimes(0.3, self._edit_tree)
        self._sometimes(0.15, self._accident)
        self._sometimes(0.1, self._move_held)
        self.world.lake.clock.advance(hours=self.random.choice(HOURS))
        (command,) = self.random.choices(*zip(*self._commands(), strict=True))
        self._run(command)
        self.checker.check_all_there()
        self.counts.deleting += self.checker.deletions > before
        self.counts.done += self.checker.done
        self.checker.done.clear()
        self.counts.users += self.users.done
        self.users.done.clear()

    def _commands(self) -> list[tuple[Callable[[], Any], int]]:
        return [
            (self._whole_sweep, 55),
            (self._sweep_again, 10),
            (self._close, 4),
            (self._automatic, 7),
            (self._restore, 6),
            (self._purge, 8),
            (self._branches, 22),
            (self._exempt, 4),
            (self._undo, 2),
            (self._apply, 10),
            *(((self._sync_pins, 10), (self._branch_at_a_pin, 10)) if self.world.pins else ()),
        ]

    def _run(self, command: Callable[[], Any]) -> None:
        name = command.__name__.strip("_")
        self.counts.commands[name] += 1
        self.diary.append(f"{self.world.lake.clock():%m-%d %H:%M} {name}")
        try:
            end = command()
            text = "fine" if end is None else str(end)
        except Killed as killed:
            text = "killed"
            self.diary.append(f"    killed {killed}")
        except LakeplanError as error:
            text = type(error).__name__
            self.diary.append(f"    {text}: {error}")
        if self.checker.found is not None:  # whoever swallowed it
            raise self.checker.found
        self.counts.ends[text] += 1

    def _sometimes(self, chance: float, act: Callable[[], None]) -> None:
        if self.random.random() < chance:
            act()

    def _edit_tree(self) -> None:
        text = edit_tree(self.world, self.random)
        self.diary.append(f"    tree: {text}")
        self.counts.tree[text.partition(" ")[0]] += 1

    def _accident(self) -> None:
        """Loses or copies the state, or restores an older copy."""
        memory = self.world.memory
        kind = self.random.choice(("copied",) * 4 + ("lost", "put back") + ("ledger put back",) * 3)
        if kind == "copied":
            self._snapshots.append((dict(memory.records), self.checker.lowered_us))
            return
        if any(key.startswith("branches/") for key in memory.records):
            self.checker.ledger_lost = True
        if kind in ("lost", "put back"):  # exemptions are lost with it (docs/operations.md)
            self.checker.exemptions.clear()
        if kind == "lost":
            memory.records = {}
        elif kind == "ledger put back" and self._snapshots:
            records, _ = self.random.choice(self._snapshots)
            self._make_again_and_look()
            ledgers = {key: one for key, one in records.items() if key.startswith("branches/")}
            memory.records = {**memory.records, **ledgers}
        elif self._snapshots:
            records, self.checker.lowered_us = self.random.choice(self._snapshots)
            memory.records = dict(records)
        self.counts.faults[f"state {kind}"] += 1
        self.diary.append(f"    the state is {kind}")
        if kind == "ledger put back":
            self._run(self._branches)

    def _make_again_and_look(self) -> None:
        """A run finds a branch missing that exists again at the next run."""
        name = self.random.choice(BRANCHES[1:])
        head = self.world.truth.heads(REPOSITORY).get(name)
        if head is not None:
            self.users.attempt(lambda: self.users.repo.drop_branch(name))
            self._run(self._branches)
            self.users.attempt(lambda: self.users.repo.branch(name, head))

    def _move_held(self) -> None:
        """The branch of a hold leads elsewhere: the hold keeps what it kept."""
        if held := [hold["branch"] for hold in self.world.holds if "branch" in hold]:
            self.diary.append("    the branch of a hold is moved")
            self.users.attempt(lambda: self.users.replace(self.random.choice(held)))

    def _machine(self) -> dict[str, Any]:
        """Whose clock is how wrong."""
        skew = self.random.choice(SKEWS)
        if skew:
            self.counts.faults["clock"] += 1
            self.diary.append(f"    its clock is {skew:+} hours wrong")
        return {"skew_hours": skew}

    def _fault(self, *aims: str, often: Sequence[str] = faults.FAULTS) -> dict[str, Any]:
        """Arguments of a command: its interruption and its clock."""
        return {**self._machine(), **self._interruption(*aims, often=often)}

    def _interruption(self, *aims: str, often: Sequence[str] = faults.FAULTS) -> dict[str, Any]:
        interruption = faults.draw(self.random, self._meanwhile, aims, often)
        if interruption is not None:
            self.diary.append(f"    {interruption}")
            interruption.then = self._while_slow if interruption.kind == "slow" else self._after_a_fault
            interruption.count = self.counts.faults
        return {"interruption": interruption}

    def _after_a_fault(self) -> None:
        """Others act before a process tries again."""
        kind = self.random.choice(("nothing", "users", "again", "again", "again"))
        if kind == "users":
            self.users.act()
        elif kind == "again":
            self.users.attempt(lambda: self.users.make_again(self.checker.deleted_branch))

    def _while_slow(self) -> None:
        self.world.lake.clock.advance(hours=self.random.choice((30, 120, 900)) / 3600)
        self._after_a_fault()

    def _meanwhile(self) -> None:
        """Somebody acts between two calls of a process: users, time, or a second operator."""
        kind = self.random.choice(("users", "revive", "time", "operator"))
        self.diary.append(f"    meanwhile: {kind}")
        if kind == "users":
            self.users.act()
        elif kind == "revive":
            self._revive()
        elif kind == "time":
            self.world.lake.clock.advance(hours=self.random.choice((0.006, 0.2, 1)))
        else:
            (command,) = self.random.choices(*zip(*self._commands(), strict=True))
            self._run(command)

    def _between(self) -> None:
        """Between mark and approval, approval and run, two rounds."""
        what = self.random.choice((None, None, None, self.users.act, self._revive, self._edit_tree, "time"))
        if what == "time":
            self.world.lake.clock.advance(hours=self.random.choice((1, 25)))
        elif callable(what):
            what()

    def _revive(self) -> None:
        marks = self.operator.marks
        if marks:
            self.users.revive(self.checker.going(marks[-1].mark_id))

    # ---- commands
    def _whole_sweep(self) -> None:
        unfinished = self._unfinished()
        if unfinished is not None:  # a new mark would be refused
            self._sometimes(0.5, self._revive)
            self._sweep(unfinished, self._machine()) if self.random.random() < 0.7 else self._close()
            return
        if self.random.random() < 0.06:
            self._hold_and_move(self._mark_and_sweep)
            return
        if self.random.random() < 0.7:
            self.users.attempt(self.users.churn)
        self._mark_and_sweep()

    def _mark_and_sweep(self) -> None:
        self._sometimes(0.1, lambda: self.users.revive(self.checker.expired()))
        machine = self._machine()
        if machine["skew_hours"]:
            self.users.stray()
        # mostly the sweep is interrupted: it is what deletes
        hit = self.random.choice(("mark", "approve", "sweep", "sweep", "sweep"))
        mark = self.operator.mark(**machine, **self._interruption() if hit == "mark" else {})
        self._between()
        self.operator.approve(mark, **machine, **self._interruption() if hit == "approve" else {})
        self._approved.append(mark)
        if self.random.random() < 0.2:
            self._tightened(lambda: self._sweep(mark, machine))
        else:
            self._between()
            self._sweep(mark, machine, interrupted=hit == "sweep")

    def _tightened(self, act: Callable[[], None]) -> None:
        """The tree asks for more care for a while."""
        self._for_a_while(tighten(self.world, self.random), act)

    def _hold_and_move(self, act: Callable[[], None]) -> None:
        """A branch is held and inspected, then leads elsewhere: the hold keeps what it kept."""
        name, head = self.random.choice(sorted(self.world.truth.heads(REPOSITORY).items()))

        def inspect_and_move() -> None:
            self.users.attempt(lambda: self.users.churn(name))
            self.operator.mark()
            self.users.attempt(lambda: self.users.repo.hard_reset(head, name))
            act()

        self._for_a_while(hold_branch(self.world, name), inspect_and_move)

    def _held(self, act: Callable[[], Any]) -> None:
        """The tree holds a branch for a while."""
        name = self.random.choice(sorted(self.world.truth.heads(REPOSITORY)))
        self._for_a_while(hold_branch(self.world, name), act)

    def _for_a_while(self, edit: Edit, act: Callable[[], Any]) -> None:
        text, undo = edit
        self.diary.append(f"    tree: {text}")
        self.counts.tree["tightened"] += 1
        try:
            act()
        finally:
            undo()

    def _sweep(self, mark: Mark, machine: dict[str, Any], *, interrupted: bool = True) -> None:
        def between(number: int) -> None:
            if number == 1:
                self._between_rounds()

        aims = ("store delete", "store delete", "store copy", "refs/dump")
        how = self._interruption(*aims, often=faults.KILLS) if interrupted else {}
        try:
            document = self.operator.sweep(mark, **machine, **how, between_rounds=between)
        except Killed as killed:
            if self.random.random() < 0.25:
                raise
            self.diary.append(f"    killed {killed}")
            self._revive_gone(mark)
            document = self.operator.sweep(mark, **machine)
        self.diary.append(f"    {document['deleted']['objects']} deleted, {document['problem']}")

    def _revive_gone(self, mark: Mark) -> None:
        """Objects that a killed sweep deleted are needed again when the sweep continues."""
        gone = self.checker.going(mark.mark_id) - set(self.world.truth.stored(REPOSITORY))
        self.diary.append(f"    {len(gone)} are gone, and one is needed again")
        self.users.revive(gone)

    def _between_rounds(self) -> None:
        """The tree is read once a command: it does not change for a command that runs."""
        what = self.random.choice((None, None, self.users.act, self._revive))
        if what is not None:
            what()

    def _unfinished(self) -> Mark | None:
        """A mark whose sweep began and has not ended."""
        for mark in reversed(self._approved):
            folder = self.users.repo.folder / f"_lakeplan/sweeps/{mark.mark_id}"
            if (folder / "begun").is_dir() and mark.mark_id not in self.operator.finished:
                return mark
        return None

    def _sweep_again(self) -> None:
        oldest = self.world.lake.clock() - timedelta(hours=self.random.choice((72, 72, 100)))
        marks = [m for m in self._approved[-4:] if m.marked_at > oldest]
        if marks:
            self._sweep(self.random.choice(marks), self._machine())

    def _close(self) -> None:
        mark = self._unfinished()
        if mark is not None:
            self.operator.sweep(mark, **self._fault(), close=True)

    def _automatic(self) -> None:
        shown = self.checker.expired()
        # what nobody was shown expires
        self._sometimes(0.5, lambda: self.users.attempt(self.users.churn))
        self._between()
        before = self.world.sweep
        # what was never committed always waits for a person
        never = self.random.choice(("keep", "keep", before["never_committed"]))
        self.world.sweep = {**before, "automatic": True, "never_committed": never}
        try:
            self.operator.automatic(shown, **self._interruption())
        finally:
            self.world.sweep = before

    def _restore(self) -> None:
        marks = [m for m in self.operator.marks[-4:] if m.settings.mode == "quarantine"]
        if marks:
            mark = self.random.choice(marks)
            self.operator.restore(mark, **self._fault())

    def _purge(self) -> None:
        copies = {
            file.relative_to(folder).as_posix()
            for folder in self.users.repo.folder.glob(f"{QUARANTINE}*")
            for file in folder.rglob("*")
            if file.is_file()
        }
        self._sometimes(0.5, lambda: self.users.revive(copies))
        self.operator.purge(**self._fault(), older_hours=self.random.choice((0, 0, 24)))

    def _branches(self) -> None:
        self._sometimes(0.4, lambda: self.users.attempt(self.users.branch))
        aims = ("server DELETE", "server DELETE", "/diff", "/branches/", "channel", "state write notices")
        how = self._fault(*aims, often=("lost answer", "500 after", "timeout after", "slow"))
        self.world.channel.refuses = self.random.random() < 0.2
        if self.random.random() < 0.25:
            self._held(lambda: self.operator.branches(**how))
        else:
            self.operator.branches(**how)

    def _exempt(self) -> None:
        name = self.random.choice(BRANCHES[1:])
        self.operator.exempt(name, self.random.choice((None, 12, 100, 500)), **self._fault())

    def _undo(self) -> None:
        self.operator.undo(**self._fault())

    def _branch_at_a_pin(self) -> None:
        """A branch at a pinned commit changes the days that the pin needs, and is deleted some days later."""
        self.users.attempt(self.users.leave_tagged)
        self._run(self._apply_as_it_is)  # a sync leaves rules of others alone
        self.users.attempt(self.users.branch_at_pin)
        self._run(self._sync_pins)
        for _ in range(self.random.choice((1, 2))):
            self._run(self._branches)
            self.world.lake.clock.advance(hours=24 * 4)
        self._branches()

    def _sync_pins(self) -> None:
        self._sometimes(0.5, lambda: self.users.attempt(self.users.leave_tagged))
        often = ("stale", "500 after", "timeout after", "lost answer")
        self.operator.sync_pins(**self._fault(f"PUT {RULES}", RULES, "/branches", often=often))

    def _apply_as_it_is(self) -> None:
        self.operator.apply()

    def _apply(self) -> None:
        self._sometimes(0.5, lambda: edit_days(self.world, self.random))
        often = ("stale", "500 after", "timeout after", "lost answer")
        self.operator.apply(**self._fault(f"PUT {RULES}", RULES, often=often))
