"""Moments: out of the numbers of commits, and into documents and records."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST = datetime.min.replace(tzinfo=timezone.utc) + timedelta(days=1)
_LAST = datetime.max.replace(tzinfo=timezone.utc) - timedelta(days=1)
"""A day from the ends of the calendar, so that every time zone has them."""
_FIRST_US, _LAST_US = ((end - _EPOCH) // timedelta(microseconds=1) for end in (_FIRST, _LAST))


def moment_of(us: int) -> datetime:
    """UTC microseconds, of which a commit may have any, as the nearest moment that every calendar has."""
    return _EPOCH + timedelta(microseconds=min(max(us, _FIRST_US), _LAST_US))


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC, ending in ``Z``, with microseconds where there are any. ``moment`` is aware."""
    return moment.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
