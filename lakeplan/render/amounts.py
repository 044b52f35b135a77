"""How figures look: the same everywhere, rounded only where it cannot mislead.

A part that is not nothing never reads "0 %", and one that is not everything never reads "100 %".
"""

from __future__ import annotations

from datetime import datetime, timezone

UNKNOWN = "unknown"
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def count(value: int) -> str:
    """``1204331`` as ``1,204,331``."""
    return f"{value:,}"


def counted(value: int, noun: str, plural: str = "") -> str:
    """A count with its noun: ``1 object``, ``2 objects``, ``3 repositories``."""
    if value == 1:
        return f"1 {noun}"
    return f"{count(value)} {plural or _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y"):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith("ch") else "s")


def size(value: int) -> str:
    """Bytes in decimal units with one decimal: ``999 B``, ``1.0 kB``, ``3.1 TB``."""
    if abs(value) < 1000:
        return f"{value} B"
    power = 1
    while power < len(_UNITS) and abs(round(value / 1000**power, 1)) >= 1000:
        power += 1  # by what is shown: 999,950 bytes are 1.0 MB, not 1000.0 kB
    return f"{value / 1000**power:,.1f} {_UNITS[power - 1]}"


def percent(part: int, whole: int) -> str:
    """``part`` of ``whole`` with one decimal; a part of nothing is everything, nothing of it is ``0 %``."""
    if part <= 0:
        return "0 %"
    if part >= whole:
        return "100 %"
    share = round(100 * part / whole, 1)
    if share <= 0:
        return "<0.1 %"
    return ">99.9 %" if share >= 100 else f"{share:.1f} %"


def days(value: int) -> str:
    """Retention days: ``1 day``, ``21 days``. Nonsense a server stored is shown as it is."""
    return f"{value} day" if value == 1 else f"{value:,} days"


def moment(value: str | datetime) -> str:
    """A time in UTC to the minute: ``2026-03-31T12:00Z``. Takes ISO 8601 text (UTC unless it says
    otherwise) or a datetime; text that is no time is given back as it is."""
    if isinstance(value, datetime):
        time = value
    else:
        try:
            time = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            return value
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%MZ")


def duration(seconds: float) -> str:
    """``0.4 s``, ``45 s``, ``3 min 05 s``, ``2 h 10 min``, ``3 d 4 h``."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400:,} d {whole % 86400 // 3600} h"
