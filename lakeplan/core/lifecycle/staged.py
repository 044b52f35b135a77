"""What uncommitted changes say about when a branch was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from lakeplan.model.branches import NOTHING_STAGED, StagedData

WrittenAt = Callable[[str], "datetime | None"]
"""By path: when the object was written; None when it is gone."""


@dataclass(frozen=True)
class Look:
    """``written``: the changes count as a write at this moment (epoch seconds); ``staged_at``: the newest
    object time among them."""

    data: StagedData
    written: int | None = None
    staged_at: int | None = None

    @property
    def fingerprint(self) -> str:
        return self.data.fingerprint


def look_at(data: StagedData, before: str | None, now: int, written_at: WrittenAt | None) -> Look:
    """``before`` is the fingerprint of the last look (None: nobody looked yet). Other changes than at the
    last look, more than are listed, a deletion not seen before and an object that vanished while it was
    looked at count as a write now; otherwise the objects' own times count. ``written_at`` None: times are
    not wanted, because whatever is staged keeps the branch."""
    known = before == data.fingerprint
    if before is not None and not known:
        return Look(data, written=now)
    if data.fingerprint == NOTHING_STAGED:
        return Look(data)
    if data.more or (not known and any(c.kind == "removed" for c in data.changes)):
        return Look(data, written=now)
    if written_at is None:
        return Look(data)
    newest = 0
    for change in data.changes:
        if change.kind == "removed":
            continue
        moment = written_at(change.path)
        if moment is None:
            return Look(data, written=now)
        newest = max(newest, int(moment.timestamp()))
    return Look(data, staged_at=newest or None)
