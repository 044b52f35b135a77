"""Reads several clocks, and uses the safest one for each decision: this machine's, the server's (``Date`` of
its answers) and the store's (the modification time of a file written for this).

A clock that is hours off would make young objects look old, or old approvals look new. If clocks disagree,
nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Protocol

from lakeplan.errors import ClockSkew, LakeplanError
from lakeplan.stores.open import SweepStore
from lakeplan.values.records import json_line, moment_of

MAX_DIFFERENCE = timedelta(minutes=5)
"""Between any two clocks."""


@dataclass(frozen=True)
class Clocks:
    """``earliest`` decides what the passage of time permits: ages, waits, the end of a hold. ``latest``
    decides what it forbids: old marks, expired overrides."""

    earliest: datetime
    latest: datetime


@dataclass(frozen=True)
class _Reading:
    """The time ``at`` of a clock, which is between ``least`` and ``most`` ahead of this machine's."""

    name: str
    at: datetime
    least: timedelta
    most: timedelta


class HasClock(Protocol):
    def server_time(self, repository: str) -> datetime | None:
        """The server's clock, to the second, or None if the server does not report it."""


def read_clocks(
    now: Callable[[], datetime], others: Mapping[str, Callable[[], datetime | None]], *, where: str
) -> Clocks:
    """The earliest and the latest of this machine's clock (``now``) and all others. Each is read between two
    readings of this machine's clock, so a slow answer does not count as a difference.

    Raises ClockSkew when two clocks differ by more than ``MAX_DIFFERENCE``, or only this machine's is known.
    """
    began = now()
    readings = [_Reading("this machine's clock", began, timedelta(), timedelta())]
    times = [began]
    for name, read in others.items():
        before = now()
        at = read()
        after = now()
        if at is None:
            continue
        reading = _Reading(name, at, at - after, at - before)
        for other in readings:
            if max(reading.least - other.most, other.least - reading.most) > MAX_DIFFERENCE:
                raise ClockSkew(
                    f"{other.name} shows {_text(other.at)}, but {name} shows {_text(at)}, so ages cannot be"
                    " determined and nothing is deleted",
                    where=where,
                    hint="Synchronize the clocks (NTP), then run the command again.",
                )
        readings.append(reading)
        times += [at, after]
    if len(readings) == 1:
        raise ClockSkew(
            f"{' and '.join(others)} could not be read, so only this machine's clock is known",
            where=where,
            hint="Check that no proxy removes the Date header from the server's responses.",
        )
    # The callers take days from these moments, and holds and overrides end with a day of UTC.
    return Clocks(min(times).astimezone(timezone.utc), max(times).astimezone(timezone.utc))


def server_clock(server: HasClock, repository: str, now: Callable[[], datetime], *, where: str) -> Clocks:
    """The earliest and latest of this machine's clock and the server's. Raises ClockSkew, ServerError."""
    return read_clocks(now, {"the server's clock": lambda: server.server_time(repository)}, where=where)


def clock_errors(
    repositories: Iterable[str], connect: Callable[[str], HasClock], now: Callable[[], datetime]
) -> dict[str, LakeplanError]:
    """Why this machine's clock may be wrong, by server of these repositories (``server/name``)."""
    errors = {}
    for server, _, name in {key.partition("/")[0]: key.partition("/") for key in repositories}.values():
        try:
            server_clock(connect(server), name, now, where=server)
        except LakeplanError as error:
            errors[server] = error
    return errors


def clock_warning(server: HasClock, repository: str, now: datetime) -> str | None:
    """The warning of a plan if this machine's clock is wrong, or None. Raises ServerError."""
    try:
        server_clock(server, repository, lambda: now, where=repository)
    except ClockSkew as error:
        return error.message
    return None


def is_recent(at: datetime, now: datetime, seconds: float) -> bool:
    """Whether a moment is at most this long ago. If the clock was set back, nothing is recent."""
    return 0 <= (now - at).total_seconds() <= seconds


def store_time(store: SweepStore, key: str, record: Mapping[str, str]) -> datetime:
    """The store's clock: the modification time that a listing shows for a small file, which this function
    writes to ``key``. Listings decide how old objects are. Raises StorageError."""
    store.put(key, json_line(record))
    facts = store.find([key]).get(key)
    if facts is None:
        raise LakeplanError(
            "the file that lakeplan just wrote is missing from the store's listing",
            where=f"{store.url}/{key}",
            hint="Make sure that only lakeplan deletes files in _lakeplan/.",
        )
    return moment_of(facts.modified_us)


def _text(at: datetime) -> str:
    return f"{at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
