"""How documents and records write a moment."""

from __future__ import annotations

from datetime import datetime, timezone


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC, ending in ``Z``, with microseconds where there are any. ``moment`` is aware."""
    return moment.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
