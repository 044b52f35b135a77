"""Durations, bytes, percentages, prices, counts and days as a tree writes them."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date
from decimal import Decimal
from itertools import islice

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(?:[0-9]{1,9}[smhdw])+", re.ASCII)
_BYTES = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?(?:([KMGTP])(i?))?B", re.ASCII)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", re.ASCII)
_PRICE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?: ([A-Z]{3}))?", re.ASCII)
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


MAX_NOTICE_SECONDS = 365 * 86400


def parse_notice_period(text: str) -> int:
    """Return the seconds of a notice period, at most a year. Raises ValueError."""
    seconds = parse_age(text)
    if seconds > MAX_NOTICE_SECONDS:
        raise ValueError("a notice period must be at most 365 days")
    return seconds


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


def parse_price(value: float | str) -> tuple[float, str]:
    """Return the amount and the currency of ``0.023 USD``. The currency is "" if none is named. Raises
    ValueError, including for a number that the text form does not allow."""
    if not isinstance(value, str):
        if not 0 <= value < 10**9:  # the cost of any number of bytes must be finite
            raise ValueError("a price must be from 0 to 999999999")
        return abs(float(value)), ""
    match = _PRICE.fullmatch(value)
    if not match:
        raise ValueError(
            f"{value!r} is not a valid price: use an amount with or without a currency, for example 0.023"
            " or 0.023 USD"
        )
    return float(match.group(1)), match.group(2) or ""


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
