"""``apply --sweep``: marks after the rules are pushed, shows it, and stops; or, where the tree says
``sweep.automatic: true``, approves its own mark, but only within what the plan had shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeplan.app.run import Run
from lakeplan.app.sweep.approve import approve
from lakeplan.app.sweep.finish import finish
from lakeplan.app.sweep.ports import SweepPorts
from lakeplan.app.sweep.run import run_sweep
from lakeplan.app.sweep.service import MarkReport, open_mark
from lakeplan.core.planning.gates import Openers
from lakeplan.core.sweep.settling import window
from lakeplan.errors import ExitCode, LakeplanError
from lakeplan.model.mark import Mark
from lakeplan.model.plan import Horizon, Plan
from lakeplan.model.simulation import Amount
from lakeplan.model.sweep import EXPIRED_CLASSES
from lakeplan.ports.tree import DesiredTree

REASON = "sweep.automatic: within what the plan had shown"


@dataclass
class AutomaticEnd:
    """``waiting`` maps ``server/name`` to why its mark waits for a person; ``swept`` are documents of runs;
    ``failed`` why a sweep did not happen."""

    waiting: dict[str, str] = field(default_factory=dict)
    swept: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, LakeplanError] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        codes = [error.exit_code for error in self.failed.values()]
        if any(d["failed"]["objects"] or not d["finished"] or d["came_back"] != 0 for d in self.swept):
            codes.append(ExitCode.PARTLY_DONE)
        return max(codes, default=ExitCode.OK)


def shown_by(plan: Plan) -> dict[str, Amount]:
    """What a plan told its reader would go today, by repository: what newly expires, and the backlog when it
    was read. Unknown amounts are none: nothing may go by itself that nobody was shown."""
    shown: dict[str, Amount] = {}
    for repository in plan.repositories:
        now = repository.impact.horizons.get(Horizon.NOW.value)
        newly = Amount()
        if now is not None:  # what is at risk was shown, too, and no sweep takes it
            objects = (now.objects_expire or 0) - (now.objects_at_risk or 0)
            newly = Amount(max(objects, 0), max((now.bytes_expire or 0) - (now.bytes_at_risk or 0), 0))
        backlog = repository.impact.backlog
        if backlog is not None and backlog.objects is not None:
            newly += Amount(backlog.objects, backlog.size_bytes or 0)
        shown[repository.key] = newly
    return shown


def sweep_marks(
    report: MarkReport,
    tree: DesiredTree,
    ports: SweepPorts,
    *,
    shown: Mapping[str, Amount],
    openers: Openers,
    new_run: Callable[[], Run],
    new_official_id: Callable[[], str],
) -> AutomaticEnd:
    """Approves and sweeps the marks that may go by themselves. Each fails on its own."""
    end = AutomaticEnd()
    for mark in report.marks:
        if not mark.goes.objects:
            continue
        if why := _waits(mark, shown.get(mark.key, Amount())):
            end.waiting[mark.key] = why
            continue
        _sweep_one(mark, tree, ports, end, openers, (new_run(), new_official_id()))
    return end


def _waits(mark: Mark, shown: Amount) -> str:
    """Why a person has to approve a mark; "" when none has to."""
    if not mark.settings.automatic:
        return "awaiting approval"
    if mark.settings.engine != "builtin":
        return "awaiting approval: the official engine is never run by itself"
    goes = mark.goes
    if goes != mark.marked.amount(*EXPIRED_CLASSES):
        return "awaiting approval: no plan shows what was never committed"
    if goes.objects > shown.objects or goes.size_bytes > shown.size_bytes:
        return (
            f"awaiting approval: {goes.objects:,} objects would go ({goes.size_bytes:,} bytes); the plan had"
            f" shown {shown.objects:,} ({shown.size_bytes:,} bytes). plan --backlog shows what went before"
        )
    return ""


def _sweep_one(
    mark: Mark,
    tree: DesiredTree,
    ports: SweepPorts,
    end: AutomaticEnd,
    openers: Openers,
    run_and_id: tuple[Run, str],
) -> None:
    run, official_id = run_and_id
    try:
        site, stored = open_mark(tree, mark.mark_id, ports)
        approve(site, stored, ports.state, run, reason=REASON, openers=openers, automatic=True)
        opens = window(stored.mark, site.desired.sweep.settle_seconds).opens
        if ports.now() < opens:
            end.waiting[mark.key] = f"approved; it settles until {opens:%Y-%m-%d %H:%M} UTC, then sweep run"
            return
        swept = run_sweep(site, stored, ports, run)
        end.swept.append(finish(site, swept, ports, run, run_id=official_id))
    except LakeplanError as error:
        end.failed[mark.key] = error
