"""Cron schedules, as cron(5) has them, in UTC: no hour is skipped or comes twice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from lakeplan.errors import UsageError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day", 0, 7))
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST_WAIT = timedelta(days=366 * 9)
"""29 February comes after 8 years at the latest (around 2100); what has not come then never does."""


@dataclass(frozen=True)
class Cron:
    """Allowed values by field. When both days are restricted either is enough, as cron(5) says."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    month_days: frozenset[int]
    months: frozenset[int]
    week_days: frozenset[int]
    any_month_day: bool
    any_week_day: bool

    def after(self, moment: datetime) -> datetime:
        """The first moment of the schedule after ``moment``, in UTC to the minute. Raises UsageError when
        there is none, such as for 30 February."""
        start = moment.astimezone(timezone.utc).replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = start.replace(hour=0, minute=0)
        while day - start < _LONGEST_WAIT:
            if self._on(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        found = day.replace(hour=hour, minute=minute)
                        if found >= start:
                            return found
            day += timedelta(days=1)
        raise UsageError(f"the schedule {self.text!r} never comes", hint="check its day and month")

    def _on(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.month_days, day.isoweekday() % 7 in self.week_days
        if self.any_month_day or self.any_week_day:
            return by_month and by_week
        return by_month or by_week


def parse_cron(text: str) -> Cron:
    """``minute hour day-of-month month day-of-week``, with ``*``, lists, ranges, ``/steps`` and English
    names; or ``@hourly``, ``@daily``, ``@weekly``, ``@monthly``, ``@yearly``. Raises UsageError."""
    parts = _SHORT.get(text.strip().lower(), text).split()
    if len(parts) != 5:
        raise UsageError(
            f"{text!r} is not a cron schedule",
            hint='five fields: minute, hour, day of month, month, day of week, such as "0 * * * *"',
        )
    sets = [
        _values(part, low, high, name, text) for part, (name, low, high) in zip(parts, _FIELDS, strict=True)
    ]
    return Cron(
        text=text,
        minutes=sets[0],
        hours=sets[1],
        month_days=sets[2],
        months=sets[3],
        week_days=frozenset(day % 7 for day in sets[4]),
        any_month_day=parts[2].startswith("*"),
        any_week_day=parts[4].startswith("*"),
    )


def _values(part: str, low: int, high: int, name: str, text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in part.split(","):
        span, slash, step = item.partition("/")
        first, dash, last = span.partition("-")
        try:
            width = int(step) if slash else 1
            if span == "*":
                start, end = low, high
            else:
                start = _number(first, name)
                end = _number(last, name) if dash else (high if slash else start)
        except ValueError:
            raise _bad(item, name, text) from None
        if not low <= start <= end <= high or width < 1:
            raise _bad(item, name, text)
        found.update(range(start, end + 1, width))
    return frozenset(found)


def _number(word: str, name: str) -> int:
    names = {"month": (_MONTHS, 1), "day": (_DAYS, 0)}.get(name)
    if names is not None and word.lower() in names[0]:
        return names[0].index(word.lower()) + names[1]
    if not (word.isascii() and word.isdigit()):
        raise ValueError(word)
    return int(word)


def _bad(item: str, name: str, text: str) -> UsageError:
    what = "day of week" if name == "day" else name
    return UsageError(
        f"{item!r} cannot be the {what} of a cron schedule ({text!r})",
        hint='five fields: minute, hour, day of month, month, day of week, such as "0 * * * *"',
    )
