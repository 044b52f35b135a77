"""Records as JSON: their digests, times and shapes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, overload

from lakeplan.errors import FormatError
from lakeplan.limits import TooLarge, parse_json

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST = datetime.min.replace(tzinfo=timezone.utc) + timedelta(days=1)
_LAST = datetime.max.replace(tzinfo=timezone.utc) - timedelta(days=1)
"""One day inside the ends of the calendar, so that these moments exist in every time zone."""
LAST_YEAR = 9000
"""The last year that lakeplan can have recorded or a person can have meant."""
_FIRST_US, _LAST_US = ((end - _EPOCH) // timedelta(microseconds=1) for end in (_FIRST, _LAST))


def moment_of(us: int) -> datetime:
    """Return UTC microseconds as a datetime. A commit may have any number, so the nearest possible time is
    returned."""
    return _EPOCH + timedelta(microseconds=min(max(us, _FIRST_US), _LAST_US))


def utc_text(moment: datetime) -> str:
    """Return an aware moment as ISO 8601 in UTC, ending in ``Z``, with microseconds unless they are 0."""
    return moment.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


@overload
def utc_second_text(moment: datetime) -> str: ...
@overload
def utc_second_text(moment: datetime | None) -> str | None: ...
def utc_second_text(moment: datetime | None) -> str | None:
    """Return the same as ``utc_text``, without microseconds."""
    return None if moment is None else utc_text(moment.replace(microsecond=0))


def json_digest(value: object) -> str:
    """Return the SHA-256 (hex) of canonical JSON: UTF-8, sorted keys, no white space. A lone surrogate (a
    byte of a path that is not UTF-8) is written as an escape."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def json_line(value: object) -> bytes:
    """Return a small record as it is stored."""
    return (json.dumps(value, sort_keys=True) + "\n").encode()


def json_text(value: object, *, indent: int = 2) -> bytes:
    """Return a record as it is stored where people may read it."""
    text = json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False)
    return f"{text}\n".encode("utf-8", "backslashreplace")


Shape = Callable[[Any, str], None]
"""A check of a value. Raises a ValueError that names the field."""


def read_record(data: bytes, shape: Shape, *, what: str, where: str, hint: str) -> dict[str, Any]:
    """Return the document of a record after checking its shape. ``what`` is its name in messages.

    Raises FormatError with ``where`` and ``hint`` for a damaged record.
    """
    try:
        document: dict[str, Any] = parse_json(data, pairs=without_duplicates)
        shape(document, "")
    except ValueError as error:
        known = isinstance(error, TooLarge | WrongShape)
        why = str(error) if known else "it is truncated or not JSON"
        raise FormatError(f"{what} is damaged: {why}", where=where, hint=hint) from None
    return document


class WrongShape(ValueError):
    """A value does not have the shape that its record requires."""


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs, for ``parse_json``. Raises WrongShape if a key appears twice, because
    JSON readers disagree about which one counts."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise WrongShape("a key appears twice")
    return values


def record(required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Shape:
    """Return the shape of an object with these keys. Optional keys may be missing or null."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(value, name, "an object")
        start = f"{name}." if name else ""
        for key, shape in required.items():
            if key not in value:
                raise WrongShape(f"{start}{key} is missing")
            shape(value[key], start + key)
        for key, shape in (optional or {}).items():
            if value.get(key) is not None:
                shape(value[key], start + key)

    return check


def list_of(shape: Shape) -> Shape:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, list):
            raise _wrong(value, name, "a list")
        for index, item in enumerate(value):
            shape(item, f"{name}[{index}]")

    return check


def map_of(shape: Shape) -> Shape:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(value, name, "an object")
        for key, item in value.items():
            shape(item, f"{name}.{key[:60]}")

    return check


def or_null(shape: Shape) -> Shape:
    def check(value: Any, name: str) -> None:
        if value is not None:
            shape(value, name)

    return check


def exactly(*values: str) -> Shape:
    """Return the shape of a value that is one of these texts."""

    def check(value: Any, name: str) -> None:
        if not isinstance(value, str) or value not in values:
            raise _wrong(value, name, " or ".join(values))

    return check


def text(value: Any, name: str) -> None:
    if not isinstance(value, str):
        raise _wrong(value, name, "text")


def flag(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise _wrong(value, name, "true or false")


def count(value: Any, name: str) -> None:
    """A whole number, 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise _wrong(value, name, "a whole number of 0 or more")


def days(value: Any, name: str) -> None:
    """A number of days, within the range that a server can store."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 31) <= value < 1 << 31:
        raise _wrong(value, name, "a number of days")


def anything(value: Any, name: str) -> None:
    """Accept any value, because nothing depends on it."""


def any_moment(value: Any, name: str) -> None:
    """A moment in ISO 8601 with a time zone."""
    text(value, name)
    try:
        read = moment_in(value)
    except ValueError:
        raise _wrong(value, name, "a time in ISO 8601") from None
    if read.tzinfo is None:
        raise _wrong(value, name, "a time with a time zone")


def moment(value: Any, name: str) -> None:
    """Like ``any_moment``, but far enough from the ends of the calendar for calculations."""
    any_moment(value, name)
    if not 1 < moment_in(value).year < LAST_YEAR:
        raise _wrong(value, name, "a plausible time")


def rules(value: Any, name: str) -> None:
    """The body of GC rules."""
    record({"default_retention_days": days, "branches": list_of(_RULE)})(value, name)
    names = [item["branch_id"] for item in value["branches"]]
    if len(set(names)) != len(names):
        raise WrongShape(f"{name} lists a branch twice")


_RULE = record({"branch_id": text, "retention_days": days})
AMOUNT = record({"objects": count, "size_bytes": count})


def moment_in(value: str) -> datetime:
    return datetime.fromisoformat(value.replace("Z", "+00:00"))


def check_repository(
    document: Mapping[str, Any], repository: str, *, what: str, where: str, hint: str
) -> None:
    """Raise FormatError if a record is not of this repository (``server/name``)."""
    stored = document.get("repository")
    if stored != repository:
        shown = stored if isinstance(stored, str) else "another repository"
        raise FormatError(f"{what} belongs to {shown}", where=where, hint=hint)


def _wrong(value: Any, name: str, expected: str) -> WrongShape:
    kind = "null" if value is None else repr(value)[:40]
    return WrongShape(f"{name or 'the record'} must be {expected}, but is {kind}")


LAST_SECOND = 253402300799
"""The end of the year 9999. Later times count as this one."""


def nearest_us(us: int) -> int:
    """The nearest supported time. Clients choose dates, and servers check none: milliseconds in place of
    seconds are a date in the year 58,000 (lakefs/api.md). Times that do not fit 64 bits are returned as they
    are, because servers let them overflow: no retention can be computed with them (``CommitGraph``)."""
    if not -(2**63) <= us < 2**63:
        return us
    return max(-LAST_SECOND * 1_000_000, min(us, LAST_SECOND * 1_000_000))
