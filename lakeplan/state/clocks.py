"""Clocks. Whatever time opens or ends is judged by the safest of all clocks that take part: this machine's,
the server's (``Date`` of its answers) and the store's (the modification time of a file written for this).

A clock that is wrong by hours would make young things old, or old approvals young: nothing is deleted then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Protocol

from lakeplan.errors import ClockSkew, LakeplanError
from lakeplan.stores.protocols import SweepStore
from lakeplan.values.records import json_line, moment_of

MAX_DIFFERENCE = timedelta(minutes=5)
"""Between any two clocks."""


@dataclass(frozen=True)
class Clocks:
    """``earliest`` judges what opens with time: ages, waits, the end of a hold. ``latest`` judges what ends
    with it: old marks, overrides that expire."""

    earliest: datetime
    latest: datetime


@dataclass(frozen=True)
class _Reading:
    """A clock that said ``at``, and how far it is ahead of ours, from ``least`` to ``most``."""

    name: str
    at: datetime
    least: timedelta
    most: timedelta


class HasClock(Protocol):
    def server_time(self, repository: str) -> datetime | None:
        """The server's clock, to the second; None when it does not say."""


def read_clocks(
    now: Callable[[], datetime], others: Mapping[str, Callable[[], datetime | None]], *, where: str
) -> Clocks:
    """Reads every other clock between two readings of ours (``now``): how long an answer takes is no
    difference. Raises ClockSkew, naming the clocks, when two differ by more than ``MAX_DIFFERENCE`` or none
    but ours tells the time."""
    began = now()
    read_at = [_Reading("this machine's clock", began, timedelta(), timedelta())]
    found = [began]
    for name, read in others.items():
        before = now()
        at = read()
        after = now()
        if at is None:
            continue
        reading = _Reading(name, at, at - after, at - before)
        for other in read_at:
            if max(reading.least - other.most, other.least - reading.most) > MAX_DIFFERENCE:
                raise ClockSkew(
                    f"{other.name} says {_text(other.at)} and {name} says {_text(at)}:"
                    " ages cannot be judged, so nothing is deleted",
                    where=where,
                    hint="Set the clocks right (NTP), then run the command again.",
                )
        read_at.append(reading)
        found += [at, after]
    if len(read_at) == 1:
        raise ClockSkew(
            f"only this machine's clock is known: {', '.join(others)} did not say the time",
            where=where,
            hint="Check that no proxy removes the Date header of the server's answers.",
        )
    # Days are those of UTC, whatever zone a clock names.
    return Clocks(min(found).astimezone(timezone.utc), max(found).astimezone(timezone.utc))


def server_clock(server: HasClock, repository: str, now: Callable[[], datetime], *, where: str) -> Clocks:
    """This machine's clock and the server's. Raises ClockSkew, ServerError."""
    return read_clocks(now, {"the server's clock": lambda: server.server_time(repository)}, where=where)


def clock_warning(server: HasClock, repository: str, now: datetime) -> str | None:
    """What is wrong with this machine's clock, for a plan; None when nothing is. Raises ServerError."""
    try:
        server_clock(server, repository, lambda: now, where=repository)
    except ClockSkew as error:
        return error.message
    return None


def store_time(store: SweepStore, key: str, record: Mapping[str, str]) -> datetime:
    """The store's clock: the modification time of a small file that is written to ``key``. Raises
    StorageError."""
    store.put(key, json_line(record))
    facts = store.stat(key)
    if facts is None:
        raise LakeplanError(
            "a file that was just written does not exist",
            where=f"{store.url}/{key}",
            hint="Check that nothing else removes files below _lakeplan/.",
        )
    return moment_of(facts.modified_us)


def _text(at: datetime) -> str:
    return f"{at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
