"""``apply --sweep``: what happens once the rules are pushed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import timezone
from typing import Any

from rich.console import Console

from lakeplan.app.base import GuardedTree
from lakeplan.app.plan import Selection
from lakeplan.app.run import Run
from lakeplan.app.sweep.automatic import AutomaticEnd, shown_by, sweep_marks
from lakeplan.app.sweep.ports import SweepPorts
from lakeplan.app.sweep.service import MarkReport, mark_all, marks_document
from lakeplan.cli.console import stderr, stdout
from lakeplan.cli.costs import with_costs
from lakeplan.cli.outputs import RICH, Output
from lakeplan.cli.redaction import shown
from lakeplan.cli.stopping import check_lasting_state, stopping
from lakeplan.cli.sweeping import sweep_ports
from lakeplan.cli.when import now_utc
from lakeplan.cli.who import new_mark_id, new_run_id
from lakeplan.cli.wiring import Session
from lakeplan.core.planning.gates import Openers
from lakeplan.formats.xid import XidSource
from lakeplan.model.plan import Plan
from lakeplan.ports.tree import DesiredTree
from lakeplan.render.sweep import render_after_apply

AFTER_FORMAT = "lakeplan.apply-sweep/v1"


@dataclass(frozen=True)
class AfterApply:
    """Marks the repositories of the plan; where the tree allows it, sweeps them."""

    session: Session
    outputs: tuple[Output, ...]
    no_color: bool
    redact: bool = False

    def mark_and_sweep(self, plan: Plan, selection: Selection, run: Run, *, applied: int) -> int:
        """The worst exit code of marks and sweeps. Nothing is marked after an apply that did not finish."""
        if applied:
            stderr(no_color=self.no_color).print("Nothing is marked: the apply did not finish.")
            return 0
        tree = GuardedTree(self.session.tree, plan.sweep_guards)
        keys = {r.key for r in plan.repositories if r.failure is None and selection.takes_key(r.key)}
        if not keys:
            return 0
        if any(d.sweep.automatic for s in tree.servers for d in tree.resolve(s, _names(keys, s))):
            check_lasting_state(self.session.tree.state_url, os.environ)
        chosen = replace(selection, targets=tuple(sorted(keys)))
        with (
            stopping() as stop,
            sweep_ports(self.session, runners=self.session.runners, stop=stop.is_set) as ports,
        ):
            report, end = self._run(tree, plan, chosen, run, ports)
        self._show(report, end)
        return max(report.exit_code, end.exit_code)

    def _run(
        self, tree: DesiredTree, plan: Plan, chosen: Selection, run: Run, ports: SweepPorts
    ) -> tuple[MarkReport, AutomaticEnd]:
        today = now_utc().astimezone(timezone.utc).date()
        openers = Openers(frozenset(), tuple(tree.overrides), today)
        report = mark_all(
            tree,
            chosen,
            ports,
            run,
            settings=lambda settings: settings,
            openers=openers,
            new_mark_id=lambda: new_mark_id(now_utc()),
        )
        end = sweep_marks(
            report,
            tree,
            ports,
            shown=shown_by(plan),
            openers=openers,
            new_run=lambda: replace(run, run_id=new_run_id(now_utc())),
            new_official_id=XidSource(lambda: now_utc().timestamp(), os.urandom).descending,
        )
        return report, end

    def _show(self, report: MarkReport, end: AutomaticEnd) -> None:
        """The apply's own report has its formats; people see what was marked beside it, on the other stream
        when a document goes to standard output."""
        taken = any(o.path is None and o.format != RICH for o in self.outputs)
        console: Console = stderr(no_color=self.no_color) if taken else stdout(no_color=self.no_color)
        document = with_costs(after_document(report, end), self.session.tree, "swept")
        document["marked"] = with_costs(document["marked"], self.session.tree, "marks")
        render_after_apply(shown(document, redact=self.redact), console)


def _names(keys: set[str], server: str) -> list[str]:
    return [name for of, _, name in (key.partition("/") for key in keys) if of == server]


def after_document(report: MarkReport, end: AutomaticEnd) -> dict[str, Any]:
    return {
        "format": AFTER_FORMAT,
        "marked": marks_document(report),
        "waiting": dict(end.waiting),
        "swept": list(end.swept),
        "failed": {
            key: {"message": error.message, "where": error.where, "hint": error.hint}
            for key, error in end.failed.items()
        },
    }
