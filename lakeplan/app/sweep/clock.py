"""Two clocks, and the earlier of them: a clock that runs ahead would make young things old."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from lakeplan.app.sweep.ports import Site
from lakeplan.errors import LakeplanError


def earlier_clock(site: Site, key: str, now: datetime, *, by: str) -> datetime:
    """The earlier of this machine's clock and the store's own, which is the time of a small file that is
    written to ``key``. Raises StorageError."""
    record = {"by": by, "at": now.isoformat()}
    site.store.put(key, (json.dumps(record, sort_keys=True) + "\n").encode())
    facts = site.store.stat(key)
    if facts is None:
        raise LakeplanError("what was just written is not there", where=f"{site.store.url}/{key}")
    return min(now, datetime.fromtimestamp(facts.modified_us / 1_000_000, tz=timezone.utc))
