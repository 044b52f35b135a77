"""When a mark may be swept: not before the rules have settled, not when it has grown old."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from lakeplan.model.mark import Mark
from lakeplan.model.rules import GcRules
from lakeplan.model.sweep import MARK_MAX_AGE_SECONDS


def lowered(before: GcRules | None, after: GcRules) -> bool:
    """Whether some branch, named or by the default, is kept for fewer days than before. Rules where none
    were known may have been lowered from anything."""
    if before is None:
        return True
    if after.default_retention_days < before.default_retention_days:
        return True
    names = {*before.branches, *after.branches}
    return any(after.days_for(name) < before.days_for(name) for name in names)


@dataclass(frozen=True)
class Window:
    """When a mark may be swept, as moments."""

    opens: datetime
    closes: datetime

    def problem(self, *, earliest: datetime, latest: datetime) -> str:
        """Why it may not be swept now, by the earliest and the latest clock; "" when it may."""
        if latest >= self.closes:
            hours = MARK_MAX_AGE_SECONDS // 3600
            return f"the mark is older than {hours} hours: too much may have happened since"
        if earliest < self.opens:
            at = f"{self.opens:%Y-%m-%d %H:%M}"
            return f"a rule was lowered less than sweep.settle ago: the mark may be swept from {at} UTC"
        return ""


def window(mark: Mark, settle_seconds: int, *, lowered_at: datetime | None = None) -> Window:
    """When a mark may be swept: its rules have settled, and it has not grown old. ``lowered_at``: when a rule
    was last lowered, as far as that is known by now."""
    since = max(mark.lowered_at, lowered_at or mark.lowered_at)
    return Window(
        opens=since + timedelta(seconds=settle_seconds) if settle_seconds else mark.marked_at,
        closes=mark.marked_at + timedelta(seconds=MARK_MAX_AGE_SECONDS),
    )


def proven_absent(*, first_seen: datetime, now: datetime, settle_seconds: int) -> bool:
    """Whether two looks at uncommitted data and refs, far enough apart, both missed an object: one
    sighting is no proof (retention.md, "What a safe mark must respect")."""
    return now - first_seen >= timedelta(seconds=settle_seconds)
