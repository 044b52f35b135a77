"""``branches exempt``: keeps a branch from policies until a moment, or ends that."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime

from lakeplan.branches.notices import Exemption, read_exemptions, read_notices, write_exemptions
from lakeplan.branches.recall import Readers
from lakeplan.errors import UsageError, WriteConflict
from lakeplan.review.run import Run, close_journal, open_journal
from lakeplan.stores.protocols import StateWriter
from lakeplan.values.desired import DesiredRepository

log = logging.getLogger(__name__)
TRIES = 5


@dataclass(frozen=True)
class ExemptOptions:
    """``until`` None: the exemption is removed."""

    branch: str
    until: datetime | None
    reason: str = ""


@dataclass(frozen=True)
class Exempted:
    repository: str
    branch: str
    exemption: Exemption


def exempt_branch(
    desired: DesiredRepository, options: ExemptOptions, readers: Readers, state: StateWriter, run: Run
) -> Exempted:
    """Records it. A run that is active notices within seconds: it takes no lease, so that nobody has to wait
    for a run to end. Raises UsageError for a branch that does not exist, and WriteConflict when others write
    all the time."""
    head = readers.branches.find_branch(desired.name, options.branch)
    if options.until is not None and head is None:
        raise UsageError(
            f"{desired.key} has no branch {options.branch!r}",
            hint="Run `lakeplan branches plan` to list the branches.",
        )
    for attempt in range(TRIES):
        exemptions, version = read_exemptions(state, desired.key)
        made = _made(
            desired.key, exemptions.get(options.branch), options, _now(state, desired.key, options, run), run
        )
        try:
            write_exemptions(state, desired.key, {**exemptions, options.branch: made}, version, run.now())
        except WriteConflict:
            if attempt == TRIES - 1:
                raise
        else:
            done = Exempted(desired.key, options.branch, made)
            _note(done, head or "", state, run)
            return done
    raise AssertionError("the last try returns or raises")


def _note(done: Exempted, head: str, state: StateWriter, run: Run) -> None:
    """Into the history."""
    outcome = "exemption_removed" if done.exemption.removed else "exempted"
    journal = open_journal(state, run, "branches exempt")
    step = {
        "status": "applied",
        "message": "" if done.exemption.removed else done.exemption.text,
        "counts": {outcome: 1},
        "branches": {done.branch: {"head": head, "outcome": outcome}},
    }
    journal.record["repositories"] = {done.repository: step}
    if note := close_journal(journal, run):
        log.warning("%s", note)


def _now(state: StateWriter, repository: str, options: ExemptOptions, run: Run) -> datetime:
    """Not before the notice of the branch: another clock may have dated that, and it is void from now on."""
    notice = read_notices(state, repository)[0].get(options.branch)
    return run.now() if notice is None else max(run.now(), notice.accepted_at)


def _made(
    repository: str, before: Exemption | None, options: ExemptOptions, now: datetime, run: Run
) -> Exemption:
    if options.until is not None:
        return Exemption(now, options.until, str(run.holder.get("user") or ""), options.reason)
    if before is None or not before.holds(run.now()):
        raise UsageError(
            f"the branch {options.branch!r} of {repository} is not exempt",
            hint="Run `lakeplan branches plan` to see what keeps it.",
        )
    return replace(before, end=now, removed=True)
