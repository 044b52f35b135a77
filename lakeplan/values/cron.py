"""Cron lines of five fields, as lakeFS and cron read them, and the time of their next run.

Minute, hour, day of month, month, day of week (0 and 7 are Sunday); ``*``, lists, ranges, steps, names of
months and days, and ``@hourly`` and its like. If both days are restricted, a match of either is enough. A
time that a clock change skips has no run, and a time that it repeats has two.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo

_MONTHS = {
    name: n
    for n, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS = {name: n for n, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST_WAIT_DAYS = 366 * 8 + 2
"""29 February can be eight years away."""


@dataclass(frozen=True)
class Cron:
    """A parsed line. ``text`` is the line as written."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def next_after(self, moment: datetime, zone: tzinfo = timezone.utc) -> datetime | None:
        """Return the first run after an aware moment, in UTC, or None if there is none (30 February)."""
        day = moment.astimezone(zone).date()
        for _ in range(_LONGEST_WAIT_DAYS):
            if self._runs_on(day):
                later = [run for run in self._runs(day, zone) if run > moment]
                if later:
                    return min(later)
            if day == date.max:
                break
            day += timedelta(days=1)
        return None

    def _runs_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_month or by_week) if self.either_day else (by_month and by_week)

    def _runs(self, day: date, zone: tzinfo) -> list[datetime]:
        runs = []
        for hour in self.hours:
            for minute in self.minutes:
                for fold in (0, 1):
                    local = datetime.combine(day, time(hour, minute, fold=fold), zone)
                    run = local.astimezone(timezone.utc)
                    back = run.astimezone(zone)
                    if (back.date(), back.hour, back.minute) == (day, hour, minute):
                        runs.append(run)
        return runs


def parse_cron(text: str) -> Cron:
    """Return the parsed line. Raises ValueError with a message for people."""
    parts = _WORDS.get(text.strip().lower(), text).split()
    if len(parts) != len(_FIELDS):
        raise ValueError(
            f"{text!r} is not a valid cron expression: it must have five fields, for example '0 * * * *'"
        )
    minutes, hours, days, months, weekdays = (
        _field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    return Cron(
        text.strip(),
        minutes,
        hours,
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        # As in cron: a field that begins with a star does not restrict.
        either_day=not parts[2].startswith(("*", "?")) and not parts[4].startswith(("*", "?")),
    )


def _field(text: str, name: str, low: int, high: int, words: dict[str, int]) -> frozenset[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        body, slash, step_text = part.partition("/")
        step = _number(step_text, name, text, {}) if slash else 1
        if body in ("*", "?"):
            first, last = low, high - (name == "day of week")
        else:
            first_text, dash, last_text = body.partition("-")
            first = _number(first_text, name, text, words)
            last = _number(last_text, name, text, words) if dash else (high if slash else first)
        if not (low <= first <= last <= high) or step < 1:
            raise ValueError(
                f"the {name} field {text!r} of the cron expression is not valid: use values or ranges from"
                f" {low} to {high}, and steps of at least 1"
            )
        numbers.update(range(first, last + 1, step))
    return frozenset(numbers)


def _number(text: str, name: str, field: str, words: dict[str, int]) -> int:
    if text.lower() in words:
        return words[text.lower()]
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise ValueError(f"the {name} field {field!r} of the cron expression is not valid")
    return int(text)
