"""Durations, bytes, percentages, counts, days and cron lines as a tree writes them, and counts of nouns.

A cron line has five fields, as lakeFS and cron read them: minute, hour, day of month, month, day of week (0
and 7 are Sunday); ``*``, lists, ranges, steps, names of months and days, and ``@hourly`` and its like. If
both days are restricted, a match of either is enough. A time that a clock change skips has no run, and a time
that it repeats has two.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from itertools import islice

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


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(?:[0-9]{1,9}[smhdw])+", re.ASCII)
_BYTES = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?(?:([KMGTP])(i?))?B", re.ASCII)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,30}(?:_[0-9]{1,30})*", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
MAX_SECONDS = 36500 * 86400


def parse_duration(text: str) -> int:
    """Return the seconds of ``7d`` or ``1w3d12h`` (lakefs/branch-lifecycle.md). Raises ValueError, including
    for 0."""
    if not _DURATION.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a valid duration: use the units s, m, h, d and w, for example 7d or 1w3d12h"
        )
    seconds = sum(int(part[:-1]) * _SECONDS[part[-1]] for part in re.findall(r"[0-9]+[smhdw]", text))
    if seconds == 0:
        raise ValueError("a duration must be more than zero")
    if seconds > MAX_SECONDS:
        raise ValueError("a duration must be at most 36500 days")
    return seconds


def parse_age(text: str) -> int:
    """Return the seconds of a duration, which may also be ``0s``. Raises ValueError."""
    return 0 if text == "0s" else parse_duration(text)


def parse_bytes(value: int | str) -> int:
    """Return the number of bytes: ``5TB`` is 5 × 10^12, ``5TiB`` is 5 × 2^40. Raises ValueError."""
    if isinstance(value, int):
        return value
    match = _BYTES.fullmatch(value)
    if not match:
        raise ValueError(
            f"{value!r} is not a valid number of bytes: use a number with or without a unit, for example"
            " 500GB or 5TiB"
        )
    number, unit, binary = match.groups()
    factor = (1024 if binary else 1000) ** _POWERS.get(unit, 0)
    return int(Decimal(number) * factor)


def parse_percent(value: float | str) -> float:
    """Return a percentage from 0 to 100. Raises ValueError."""
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value)
        if not match:
            raise ValueError(
                f"{value!r} is not a valid percentage: use a number with or without %, for example 30 or 30%"
            )
        value = float(match.group(1))
    if not 0 <= value <= 100:
        raise ValueError("a percentage must be from 0 to 100")
    return float(value)


def parse_count(value: int | str) -> int:
    if isinstance(value, int):
        return value
    if not _COUNT.fullmatch(value):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value.replace("_", ""))


def parse_date(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise ValueError(f"{text!r} is not a valid date: use the form YYYY-MM-DD, for example 2027-01-01")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text} is not a date in the calendar") from None


def parse_amount(value: float | str) -> float:
    """Return the number in ``max`` of an override: plain, in bytes, or a percentage. Raises ValueError."""
    if not isinstance(value, str):
        return float(value)
    if value.endswith("%"):
        return parse_percent(value)
    return float(parse_bytes(value) if value.endswith("B") else parse_count(value))


def count_of(value: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: ``1 object``, ``1,204 objects``, ``3 repositories``."""
    if value == 1:
        return f"1 {noun}"
    return f"{value:,} {plural or _plural(noun)}"


def first_of(texts: Collection[str], most: int) -> str:
    """Return the first texts in one line, and how many others there are."""
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(islice(texts, most)) + more


def _plural(noun: str) -> str:
    if noun.endswith("y") and not noun.endswith(("ay", "ey", "oy")):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("ch", "x")) else "s")


def number_of(text: str) -> int | None:
    """The number in a text of at most 18 decimal digits, or None. (``int`` raises ValueError for many.)"""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None
