"""When lakeFS's own collector may do a sweep: it deletes by its own verdict, so nothing may be at stake that
it does not know how to keep (retention.md, "What the official Spark collector deletes")."""

from __future__ import annotations

from datetime import datetime
from math import ceil

from lakeplan.errors import GateRefused, UsageError
from lakeplan.model.mark import Mark
from lakeplan.model.stored import Versions
from lakeplan.model.sweep import MarkClass, SweepSettings

ENGINE = "lakefs-spark-client"
START_SECONDS = 300
"""How long the job may take from its command line to its first look at the clock: it counts ages from then.
Objects that are younger than the mark's cutoff by up to so much stay for the next sweep."""

_UNKNOWN_TO_IT = {
    MarkClass.AT_RISK: "at risk (the documented rule keeps them, the server does not)",
    MarkClass.PROTECTED: "protected by a tag, a hold or another repository",
    MarkClass.UNCERTAIN_ADDRESS: "that an address in an unusual spelling may mean",
    MarkClass.NEAR_LIMIT: "near a limit (sweep.margin)",
    MarkClass.NEVER_COMMITTED: "never committed, and sweep.never_committed is keep",
}


def check_collectable(mark: Mark) -> None:
    """Raises GateRefused, by name, while the mark keeps objects that the collector would delete, UsageError
    for settings that it has no notion of."""
    where = f"{mark.key}: mark {mark.mark_id}"
    _check_settings(mark.settings, where)
    kept = []
    for kind, words in _UNKNOWN_TO_IT.items():
        if kind is MarkClass.NEVER_COMMITTED and mark.settings.never_committed == "collect":
            continue
        if count := mark.marked.amount(kind).objects:
            kept.append(f"{kind.value}: {count:,} objects {words}")
    if kept:
        raise GateRefused(
            f"the official collector would delete what this mark keeps: {'; '.join(kept)}",
            where=where,
            hint="sweep.engine: builtin keeps them",
        )


def _check_settings(settings: SweepSettings, where: str) -> None:
    if settings.mode != "delete":
        problem = f"sweep.mode: {settings.mode}: it only deletes"
    elif settings.versions is not Versions.MARKER:
        problem = f"sweep.versions: {settings.versions.value}: it deletes current versions only"
    elif settings.rate is not None:
        problem = "sweep.rate: its speed cannot be limited"
    else:
        return
    raise UsageError(
        f"the official collector cannot do {problem}", where=where, hint="use sweep.engine: builtin"
    )


def min_age_seconds(*, cutoff: datetime, now: datetime) -> int:
    """The minimum age with which a job that is started now takes nothing that was modified after a mark's
    cutoff. At least 1."""
    return max(1, ceil((now - cutoff).total_seconds()) + START_SECONDS)
