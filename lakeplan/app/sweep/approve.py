"""``sweep approve``: somebody looked at a mark and says yes. Deletes nothing."""

from __future__ import annotations

import json
from dataclasses import replace

from lakeplan.app.run import Run
from lakeplan.app.sweep.mark import by_text
from lakeplan.app.sweep.places import approval_key
from lakeplan.app.sweep.ports import Site
from lakeplan.app.sweep.store_marks import StoredMark
from lakeplan.core.planning.gates import Openers
from lakeplan.core.sweep.gates import mark_gates
from lakeplan.errors import GateRefused, UsageError
from lakeplan.model.mark import Mark
from lakeplan.model.moments import utc_text
from lakeplan.model.plan import GateOutcome, GateResult
from lakeplan.model.sweep import Approval
from lakeplan.ports.storage import StateWriter


def approve(
    site: Site, stored: StoredMark, state: StateWriter, run: Run, *, reason: str, openers: Openers
) -> Approval:
    """Records who approves which bytes. Raises GateRefused while a gate is shut or a repository of the
    server could not be read, UsageError without a reason or for an empty mark."""
    mark = stored.mark
    if not reason.strip():
        raise UsageError("an approval needs a reason", hint='--reason "quarterly clean-up, ticket 42"')
    if not mark.goes.objects:
        raise UsageError("there is nothing to approve: the mark lets nothing go", where=mark.key)
    check_readable(mark)
    shut = [g for g in decide(site, mark, openers) if g.outcome is GateOutcome.REFUSED]
    if shut:
        lines = "; ".join(f"{g.gate}: {g.message}" for g in shut)
        opens = " ".join(dict.fromkeys(f"--allow {g.gate}" for g in shut))
        raise GateRefused(
            f"a gate is shut: {lines}",
            where=f"{mark.key}: mark {mark.mark_id}",
            hint=f"{opens} at a terminal, or acknowledge it in the tree",
        )
    key = approval_key(mark.mark_id)
    current = state.read(key)
    approval = Approval(
        mark.mark_id,
        stored.digest,
        mark.goes.objects,
        mark.goes.size_bytes,
        by_text(run),
        utc_text(run.now()),
        reason.strip(),
    )
    data = (json.dumps(vars(approval), indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
    state.write(key, data, if_version=current.version if current else None)
    return approval


def check_readable(mark: Mark) -> None:
    """Raises GateRefused when some repository of the server could not be read: it may hold addresses here."""
    if mark.unreadable:
        named = ", ".join(sorted(mark.unreadable)[:5])
        raise GateRefused(
            f"{len(mark.unreadable)} other repositories of the server could not be read ({named}):"
            " they may hold full addresses into this namespace",
            where=f"{mark.key}: mark {mark.mark_id}",
            hint="let the user of this tree read them (retention and List permissions), then mark again",
        )


def decide(site: Site, mark: Mark, openers: Openers) -> list[GateResult]:
    """The gates as the tree has them now: what was opened when the mark was made does not stay open, and a
    limit that was tightened since counts."""
    now = site.desired.sweep
    settings = replace(mark.settings, max_objects=now.max_objects, max_bytes=now.max_bytes)
    return list(
        mark_gates(
            site.desired,
            mark.goes,
            mark.candidates,
            settings,
            site.desired.safety,
            grace_period_seconds=site.preparer.grace_period_seconds(),
            openers=openers,
        )
    )
