"""``sweep approve``: somebody looked at a mark and says yes. Deletes nothing."""

from __future__ import annotations

import json

from lakeplan.app.run import Run
from lakeplan.app.sweep.judge import judge_for_approval, refuse_shut
from lakeplan.app.sweep.mark import by_text
from lakeplan.app.sweep.places import approval_key
from lakeplan.app.sweep.ports import Site
from lakeplan.app.sweep.store_marks import StoredMark
from lakeplan.core.planning.gates import Openers
from lakeplan.errors import GateRefused, UsageError
from lakeplan.model.approval import Approval
from lakeplan.model.mark import Mark
from lakeplan.model.moments import utc_text
from lakeplan.model.plan_document import encode
from lakeplan.ports.storage import StateWriter


def approve(
    site: Site,
    stored: StoredMark,
    state: StateWriter,
    run: Run,
    *,
    reason: str,
    openers: Openers,
    automatic: bool = False,
) -> Approval:
    """Records who approves which bytes, and by what they were judged. Raises GateRefused while a gate
    refuses or a repository of the server could not be read, StalePlan for a mark made with weaker settings
    than the tree has now, UsageError without a reason or for an empty mark."""
    mark = stored.mark
    openers.check_named([mark.key])
    if not reason.strip():
        raise UsageError("an approval needs a reason", hint='--reason "quarterly clean-up, ticket 42"')
    if not mark.goes.objects:
        raise UsageError("there is nothing to approve: the mark lets nothing go", where=mark.key)
    check_readable(mark)
    judged, gates = judge_for_approval(site, mark, openers, automatic=automatic)
    refuse_shut(gates, mark)
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
        judged,
    )
    data = (json.dumps(encode(approval), indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
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
