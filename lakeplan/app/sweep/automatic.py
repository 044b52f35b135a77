"""``apply --sweep``: marks after the rules are pushed, shows it, and stops; or, where the tree says
``sweep.automatic: true``, approves its own mark, but only within what the plan had shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeplan.app.run import Run
from lakeplan.app.sweep.approve import approve
from lakeplan.app.sweep.finish import finish
from lakeplan.app.sweep.ports import Site, SweepPorts
from lakeplan.app.sweep.run import run_sweep
from lakeplan.app.sweep.service import MarkReport, open_mark
from lakeplan.core.planning.gates import Openers
from lakeplan.core.sweep.settling import window
from lakeplan.errors import ExitCode, LakeplanError
from lakeplan.formats.mark_parts import read_part
from lakeplan.formats.sweep_keys import mark_prefix
from lakeplan.model.mark import Mark
from lakeplan.model.plan import Plan
from lakeplan.model.shown import Bit
from lakeplan.model.shown_records import Digests, absent, object_digests
from lakeplan.model.sweep import EXPIRED_CLASSES
from lakeplan.ports.tree import DesiredTree

REASON = "sweep.automatic: every object was in what the plan showed"
_EXPIRED = frozenset(kind.value for kind in EXPIRED_CLASSES)


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


def shown_by(plan: Plan) -> dict[str, Digests]:
    """The objects that a plan showed as deleted at once, by repository: what newly expires, and the backlog
    when it was read. Nothing may be deleted automatically that nobody was shown."""
    shown: dict[str, Digests] = {}
    for repository in plan.repositories:
        named = repository.impact.shown.read() if repository.impact.shown is not None else None
        if named is not None:
            shown[repository.key] = named.of(Bit.NOW | Bit.BACKLOG)
    return shown


def sweep_marks(
    report: MarkReport,
    tree: DesiredTree,
    ports: SweepPorts,
    *,
    shown: Mapping[str, Digests],
    openers: Openers,
    new_run: Callable[[], Run],
    new_official_id: Callable[[], str],
) -> AutomaticEnd:
    """Approves and sweeps the marks that may go by themselves. Each fails on its own."""
    end = AutomaticEnd()
    for mark in report.marks:
        if not mark.goes.objects:
            continue
        if why := _never_automatic(mark):
            end.waiting[mark.key] = why
            continue
        _sweep_one(mark, tree, ports, end, openers, shown.get(mark.key), (new_run(), new_official_id()))
    return end


def _never_automatic(mark: Mark) -> str:
    """Why a person has to approve a mark whatever was shown; ""."""
    if not mark.settings.automatic:
        return "awaiting approval"
    if mark.settings.engine != "builtin":
        return "awaiting approval: the official engine is never run by itself"
    if mark.goes != mark.marked.amount(*EXPIRED_CLASSES):
        return "awaiting approval: no plan shows what was never committed"
    return ""


def _not_shown(site: Site, mark: Mark, shown: Digests | None) -> str:
    """Why a person has to approve, since objects of the mark's parts are not among those of the plan; "".
    The parts decide, object by object: as many others prove nothing."""
    never, others = 0, 0
    for part in mark.marked.going:
        key = mark_prefix(mark.mark_id) + part.name
        rows = read_part(site.store.read(key), name=f"{site.store.url}/{key}", sha256=part.sha256)
        classes = rows.column("class").to_pylist()
        never += sum(1 for each in classes if each not in _EXPIRED)
        found = object_digests(mark.key, rows.column("address").to_pylist())
        others += len(found) if shown is None else absent(found, shown)
    if never:
        return "awaiting approval: no plan shows what was never committed"
    if not others:
        return ""
    return (
        f"awaiting approval: {mark.goes.objects:,} objects would be deleted, and of these the plan had shown"
        f" {mark.goes.objects - others:,}. plan --backlog shows what expired before"
    )


def _sweep_one(
    mark: Mark,
    tree: DesiredTree,
    ports: SweepPorts,
    end: AutomaticEnd,
    openers: Openers,
    shown: Digests | None,
    run_and_id: tuple[Run, str],
) -> None:
    run, official_id = run_and_id
    try:
        site, stored = open_mark(tree, mark.mark_id, ports)
        if why := _not_shown(site, stored.mark, shown):
            end.waiting[mark.key] = why
            return
        approve(site, stored, ports.state, run, reason=REASON, openers=openers, automatic=True)
        opens = window(stored.mark, site.desired.sweep.settle_seconds).opens
        if ports.now() < opens:
            end.waiting[mark.key] = f"approved; it settles until {opens:%Y-%m-%d %H:%M} UTC, then sweep run"
            return
        swept = run_sweep(site, stored, ports, run)
        end.swept.append(finish(site, swept, ports, run, run_id=official_id))
    except LakeplanError as error:
        end.failed[mark.key] = error
