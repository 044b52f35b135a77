"""lakeplan's commands, each as one process of a world, and what their reports have to say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from lakeplan.branches.announce import ExemptOptions, exempt_branch
from lakeplan.branches.deleting import UndoOptions, undo_branches
from lakeplan.branches.plan import BranchesOptions
from lakeplan.branches.run import run_branches
from lakeplan.errors import LakeplanError
from lakeplan.plan.apply import ApplyOptions, apply_plan
from lakeplan.plan.pin_sync import SyncOptions, sync_pins
from lakeplan.plan.planning import PlanOptions, make_plan
from lakeplan.review.selection import Selection
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.purge import list_quarantines, purge
from lakeplan.sweep.restore import RestoreOptions, restore
from lakeplan.sweep.run import close_sweep
from lakeplan.sweep.service import find_mark, sweep_marks
from lakeplan.values.gates import GATES
from lakeplan.values.shown_records import object_digests
from tests.chaos.checker import Checker
from tests.chaos.faults import Interruption
from tests.chaos.world import REPOSITORY, ChaosWorld


class Operator:
    """Somebody at a terminal or a pipeline. Each method is a separate process: it may be killed
    (``faults.Killed``), and raises the LakeplanError that the command would show."""

    def __init__(self, world: ChaosWorld, checker: Checker) -> None:
        self.world, self.checker = world, checker
        self.marks: list[Mark] = []
        self.finished: set[str] = set()
        """Marks whose last report says so."""
        self._facts: dict[str, dict[str, int]] = {}
        self._approved: dict[str, dict[str, Any]] = {}
        """Trees that marks were approved by; only what the tree says of days now counts."""

    def mark(self, interruption: Interruption | None = None, *, skew_hours: float = 0) -> Mark:
        self._few_parts()
        with self.world.running(interruption, skew_hours=skew_hours) as process:
            mark = self.world.mark()
        self.marks.append(mark)
        self._facts[mark.mark_id] = {
            "going": len(self.checker.going(mark.mark_id)),
            "candidates": process.doing["candidates"],
        }
        return mark

    def _few_parts(self) -> None:
        """A part a round, and at most eight rounds."""
        self.world.marker.rows = max(2, len(self.world.truth.stored(REPOSITORY)) // 8)
        self.world.sweeper.parts_a_round = 1

    def approve(self, mark: Mark, interruption: Interruption | None = None, *, skew_hours: float = 0) -> None:
        with self.world.running(interruption, skew_hours=skew_hours) as process:
            self.world.approve(mark)
        self._approved[mark.mark_id] = {**process.tree, "gc": None}

    def sweep(
        self,
        mark: Mark,
        interruption: Interruption | None = None,
        *,
        skew_hours: float = 0,
        close: bool = False,
        between_rounds: Callable[[int], None] = lambda number: None,
    ) -> dict[str, Any]:
        """``sweep run``, and its report."""
        world, sweeper = self.world, self.world.sweeper
        sweeper.parts_a_round, sweeper.rounds, sweeper.after_round = 1, 0, between_rounds
        facts = self._facts.get(mark.mark_id)
        doing: dict[str, Any] = {"mark": facts, "allowed": world.allowed}
        if mark.mark_id in self._approved:
            doing["approved"] = self._approved[mark.mark_id]
        with world.running(interruption, skew_hours=skew_hours, **doing) as process:
            if close:
                site, stored = find_mark(world.tree(), mark.mark_id, world.ports())
                end = close_sweep(site, stored, world.ports(), world.run_of())
            else:
                end = world.run(mark)
            document = world.finish(end)
        if document["finished"] and document["came_back"] is not None:
            self.finished.add(mark.mark_id)
        self.checker.check_sweep(mark.mark_id, document, process)
        return document

    def automatic(self, shown: set[str], interruption: Interruption | None = None) -> Any:
        """``apply --sweep`` under ``sweep.automatic``, after a plan that showed these addresses."""
        self._few_parts()
        world = self.world
        with world.running(interruption, shown=shown, allowed=world.allowed):
            return sweep_marks(
                world.mark_all(),
                world.tree(),
                world.ports(),
                shown={f"prod/{REPOSITORY}": np.sort(object_digests(f"prod/{REPOSITORY}", shown))},
                overrides=world.gate_overrides,
                new_run=world.run_of,
                new_official_id=lambda: world.new_official_id(),
            )

    def restore(
        self, mark: Mark, interruption: Interruption | None = None, *, skew_hours: float = 0
    ) -> dict[str, Any]:
        world, before = self.world, set(self.world.truth.stored(REPOSITORY))
        with world.running(interruption, skew_hours=skew_hours):
            site, stored = find_mark(world.tree(), mark.mark_id, world.ports())
            document = restore(site, stored, world.ports(), world.run_of(), RestoreOptions())
        self.checker.check_restore(document, before)
        return document

    def purge(
        self, interruption: Interruption | None = None, *, older_hours: float = 0, skew_hours: float = 0
    ) -> list[dict[str, Any]]:
        world = self.world
        with world.running(interruption, skew_hours=skew_hours) as process:
            older = world.now() - timedelta(hours=older_hours)
            done = [
                purge(quarantine, world.ports(), world.run_of(), older_than=older)
                for quarantine in list_quarantines(world.site(), older_than=older)
            ]
        self.checker.check_purge(done, process.doing.get("deletes", 0))
        return done

    def branches(self, interruption: Interruption | None = None, *, skew_hours: float = 0) -> Any:
        world = self.world
        with world.running(interruption, skew_hours=skew_hours) as process:
            options = BranchesOptions(world.now(), world.now(), simulate=False)
            report = run_branches(world.tree(), options, world.branches_ports(), world.run_of())
        self.checker.check_branches(report, process)
        return report

    def exempt(
        self,
        branch: str,
        hours: float | None,
        interruption: Interruption | None = None,
        *,
        skew_hours: float = 0,
    ) -> None:
        """``hours`` None: the exemption is removed."""
        world = self.world
        until = None if hours is None else world.lake.clock() + timedelta(hours=hours)
        try:
            with world.running(interruption, skew_hours=skew_hours):
                ports, (desired,) = world.branches_ports(), world.tree().resolve("prod", [])
                options = ExemptOptions(branch, until)
                exempt_branch(desired, options, ports.readers("prod"), world.state, world.run_of())
        except BaseException:
            self.checker.exempted(branch, None)  # nobody knows whether it was recorded
            raise
        self.checker.exempted(branch, until)

    def undo(self, interruption: Interruption | None = None, *, skew_hours: float = 0) -> Any:
        world = self.world
        with world.running(interruption, skew_hours=skew_hours) as process:
            report = undo_branches(
                world.tree(), UndoOptions(Selection()), world.branches_ports(), world.run_of()
            )
        self.checker.check_undo(report, process)
        return report

    def apply(self, interruption: Interruption | None = None, *, skew_hours: float = 0) -> Any:
        """``apply`` without a file, with all gates overridden: the checker is the gate here."""
        world = self.world
        with world.running(interruption, skew_hours=skew_hours) as process:
            allowed, tree = frozenset(GATES), world.tree()
            ports, apply_ports = world.pin_ports(_NoSimulator())
            options = PlanOptions(as_of=world.now(), simulate="none", allowed=allowed)
            plan = make_plan(tree, options, ports)
            report = apply_plan(
                *(plan, tree, ApplyOptions(allowed=allowed), ports, apply_ports, world.run_of()),
                plan_digest="chaos",
            )
        self.checker.check_apply(report, process)
        return report

    def sync_pins(self, interruption: Interruption | None = None, *, skew_hours: float = 0) -> Any:
        world = self.world
        with world.running(interruption, skew_hours=skew_hours):
            options = SyncOptions(Selection(), frozenset(GATES))
            report = sync_pins(world.tree(), options, *world.pin_ports(_NoSimulator()), world.run_of())
        self.checker.done.update(f"pins {one.outcome.value}" for one in report.results)
        return report


class _NoSimulator:
    def impact(self, requests: Any) -> Any:
        return {request.key: LakeplanError("nothing is simulated here") for request in requests}
