"""Days of retention as instants, exactly as a lakeFS server counts them (``shared/lakefs/retention.md``).

The limit of a rule is *now minus days*, in calendar days of the server's time zone: the wall clock is kept
and the date moves, so a day on which clocks change has 23 or 25 hours. Where the wall time does not exist or
exists twice, the instant is chosen as Go's ``time.Date`` does. A commit is *young* when its creation is
strictly after the limit. Everything is UTC microseconds since the epoch.

Servers store any number of days (negative, zero, huge): limits outside 64 bits are clamped to ``EARLIEST_US``
and ``LATEST_US``, which no commit's date passes.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from lakeplan.errors import UsageError

DAY_US = 86_400_000_000
EARLIEST_US = -(2**63) + 2
LATEST_US = 2**63 - 3

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
# zones have rules only for years that datetime can express; one year of room at both ends
_FIRST_LOOKUP_US = (datetime(2, 1, 1, tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND
_LAST_LOOKUP_US = (datetime(9998, 12, 31, tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND
_REACH_DAYS = 2
"""Offsets are below 27 hours, so a change of clocks further than this away moves nothing."""


def to_us(moment: datetime) -> int:
    """UTC microseconds of an aware datetime. Raises UsageError for a naive one: its zone would be a guess."""
    if moment.utcoffset() is None:
        raise UsageError(f"the time {moment.isoformat()} has no time zone", hint="add Z or an offset to it")
    return (moment - _EPOCH) // _MICROSECOND


def limit_us(as_of: datetime, days: int, zone: tzinfo = timezone.utc) -> int:
    """``as_of`` minus ``days`` calendar days in ``zone``; any int is accepted and the result clamped."""
    return zone_clock(zone).limit(to_us(as_of), days)


def expiry_us(creation_us: int, days: int, zone: tzinfo = timezone.utc) -> int:
    """The last ``as_of`` at which a commit created at ``creation_us`` is after the limit of ``days``.

    Around a change of clocks the commit may fall behind the limit and pass it once more within hours; this is
    the end of the last such stretch, so nothing is promised to go before it can.
    """
    return zone_clock(zone).expiry(creation_us, days)


@lru_cache(maxsize=64)
def zone_clock(zone: tzinfo) -> ZoneClock:
    """The calculator of a zone; its look-ups are remembered."""
    return ZoneClock(zone)


class ZoneClock:
    """Limits and expiries in one time zone. ``fixed`` is true when its offset never changes."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self.fixed = zone.utcoffset(None) is not None
        self._calm: dict[int, int | None] = {}
        self._changes: dict[int, tuple[int, ...]] = {}

    def limit(self, now_us: int, days: int) -> int:
        """``now_us`` minus calendar days, clamped."""
        wall = now_us + self._offset(now_us) - days * DAY_US
        return _clamp(wall - self._offset_of_wall(wall))

    def expiry(self, creation_us: int, days: int) -> int:
        """The last instant whose limit lies before ``creation_us``, clamped."""
        later = creation_us + days * DAY_US
        if not self.fixed:
            offset_then = self._calm_offset(creation_us // DAY_US)
            offset_later = self._calm_offset(later // DAY_US)
            if offset_then is None or offset_later is None:
                return _clamp(self._expiry_near_a_change(creation_us, days))
            later += offset_then - offset_later
        return _clamp(later - 1)

    def _offset(self, at_us: int) -> int:
        if self.fixed:
            return 0  # one that never changes makes no difference
        at_us = min(max(at_us, _FIRST_LOOKUP_US), _LAST_LOOKUP_US)
        offset = (_EPOCH + timedelta(microseconds=at_us)).astimezone(self._zone).utcoffset()
        if offset is None:
            raise UsageError(f"the time zone {self._zone} has no offset")
        return offset // _MICROSECOND

    def _offset_of_wall(self, wall_us: int) -> int:
        # As Go does: take the wall time for UTC, and correct once with the offset found there.
        return self._offset(wall_us - self._offset(wall_us))

    def _calm_offset(self, day: int) -> int | None:
        """The offset around a day (of the epoch), or None when clocks change near it."""
        try:
            return self._calm[day]
        except KeyError:
            around = {self._offset((day + n) * DAY_US) for n in range(-_REACH_DAYS, _REACH_DAYS + 2)}
            self._calm[day] = answer = around.pop() if len(around) == 1 else None
            return answer

    def _changes_near(self, day: int) -> tuple[int, ...]:
        """Instants of the changes of clocks around a day (of the epoch)."""
        if day not in self._changes:
            found = []
            for n in range(day - _REACH_DAYS, day + _REACH_DAYS + 1):
                low, high = n * DAY_US, (n + 1) * DAY_US
                before = self._offset(low)
                if self._offset(high) == before:
                    continue
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if self._offset(middle) == before else (low, middle)
                found.append(high)
            self._changes[day] = tuple(found)
        return self._changes[day]

    def _expiry_near_a_change(self, creation_us: int, days: int) -> int:
        """The limit, seen as a function of now, has slope one between a few breaks: try the stretches from
        the last to the first."""
        later = creation_us + days * DAY_US
        first, last = later - _REACH_DAYS * DAY_US, later + _REACH_DAYS * DAY_US
        changes_now = self._changes_near(later // DAY_US)
        breaks = {first, last, *changes_now}
        offsets_now = {self._offset(at) for at in (first, last, *changes_now)}
        for change in self._changes_near(creation_us // DAY_US):
            offsets_then = {0, self._offset(change - 1), self._offset(change)}
            breaks |= {change + then + days * DAY_US - now for then in offsets_then for now in offsets_now}
        stretches = sorted(at for at in breaks if first <= at <= last)
        for start, end in zip(stretches[-2::-1], stretches[:0:-1], strict=True):
            lag = self.limit(start, days) - start
            at = min(end - 1, creation_us - lag - 1)
            if at >= start:
                return at
        return later - 1  # a clamped limit: no stretch is near


def _clamp(at_us: int) -> int:
    return min(max(at_us, EARLIEST_US), LATEST_US)
