"""``--as-of``: a moment as a person or a script writes it."""

from __future__ import annotations

from datetime import datetime, timezone

from lakeplan.errors import UsageError


def parse_time(text: str) -> datetime:
    """ISO 8601 (UTC unless it says otherwise) or epoch seconds, as an aware UTC datetime.

    Raises UsageError for anything else.
    """
    try:
        return datetime.fromtimestamp(float(text), tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        pass
    try:
        moment = datetime.fromisoformat(text.strip().replace("z", "Z"))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time", hint="ISO 8601, such as 2026-03-31T12:00:00Z, or epoch seconds"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc)


def now_utc() -> datetime:
    """The clock of a run, read here and nowhere below."""
    return datetime.now(tz=timezone.utc)
