"""Calendar days in the server's zone: leap days, changes of clocks, nonsense days."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import UsageError
from lakeplan.retention.rules import EARLIEST_US, LATEST_US, ZoneClock, expiry_us, limit_us, to_us, zone_clock

DAY = 86_400_000_000
NEW_YORK = ZoneInfo("America/New_York")
LONDON = ZoneInfo("Europe/London")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")  # half an hour
APIA = ZoneInfo("Pacific/Apia")  # had no 2011-12-30
ZONES = [timezone.utc, timezone(timedelta(hours=5, minutes=45)), NEW_YORK, LONDON, LORD_HOWE, APIA]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def moment(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=us)


@pytest.mark.parametrize(
    ("as_of", "days", "zone", "limit"),
    [
        ("2022-03-31T10:00:00", 21, timezone.utc, "2022-03-10T10:00:00"),
        ("2022-03-31T10:00:00", 7, timezone.utc, "2022-03-24T10:00:00"),
        ("2022-03-31T10:00:00.000001", 0, timezone.utc, "2022-03-31T10:00:00.000001"),
        ("2022-03-31T10:00:00", -3, timezone.utc, "2022-04-03T10:00:00"),
        # leap days
        ("2024-03-01T00:00:00", 1, timezone.utc, "2024-02-29T00:00:00"),
        ("2023-03-01T00:00:00", 1, timezone.utc, "2023-02-28T00:00:00"),
        ("2024-03-31T00:00:00", 365, timezone.utc, "2023-04-01T00:00:00"),
        ("2100-03-01T00:00:00", 1, timezone.utc, "2100-02-28T00:00:00"),
        # New York: forward on 2022-03-13 at 2:00, back on 2022-11-06 at 2:00
        ("2022-03-31T12:00:00", 21, NEW_YORK, "2022-03-10T13:00:00"),
        ("2022-11-07T12:00:00", 2, NEW_YORK, "2022-11-05T11:00:00"),
        # 2:30 did not exist on that day: Go takes 1:30 before the change
        ("2022-03-14T06:30:00", 1, NEW_YORK, "2022-03-13T06:30:00"),
        # 1:30 existed twice: Go takes the first
        ("2022-11-07T06:30:00", 1, NEW_YORK, "2022-11-06T05:30:00"),
        # London, without an offset in winter: 1:30 on 2022-03-27 did not exist, and becomes 2:30 summer time
        ("2022-03-28T00:30:00", 1, LONDON, "2022-03-27T01:30:00"),
        # half an hour
        ("2022-04-04T00:00:00", 2, LORD_HOWE, "2022-04-01T23:30:00"),
        # a date that the zone skipped is the next one
        ("2011-12-31T00:00:00", 1, APIA, "2011-12-31T00:00:00"),
        ("2011-12-31T00:00:00", 2, APIA, "2011-12-30T00:00:00"),
    ],
)
def it_counts_back_calendar_days(as_of: str, days: int, zone: tzinfo, limit: str) -> None:
    assert moment(limit_us(utc(as_of), days, zone)) == utc(limit)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("days", [2**31 - 1, 2**62, 10**30, -(2**31), -(10**30)])
def it_clamps_days_past_all_calendars(days: int, zone: tzinfo) -> None:
    limit = limit_us(utc("2022-03-31T10:00:00"), days, zone)
    expiry = expiry_us(to_us(utc("2022-03-31T10:00:00")), days, zone)
    far = (EARLIEST_US, LATEST_US) if days > 0 else (LATEST_US, EARLIEST_US)
    assert (limit, expiry) == far


@pytest.mark.parametrize("days", [4_000_000, -4_000_000])
@pytest.mark.parametrize("zone", ZONES)
def it_counts_past_the_years_that_datetime_has(days: int, zone: tzinfo) -> None:
    now = utc("2022-03-31T10:00:00")
    assert abs(limit_us(now, days, zone) - (to_us(now) - days * DAY)) < DAY
    assert abs(expiry_us(to_us(now), days, zone) - (to_us(now) + days * DAY)) < DAY


def it_refuses_a_time_without_a_zone() -> None:
    with pytest.raises(UsageError, match="no time zone"):
        limit_us(datetime(2022, 3, 31), 7, timezone.utc)  # noqa: DTZ001


def it_expires_one_microsecond_before_the_limit_comes() -> None:
    created = utc("2022-03-01T00:00:00")
    assert moment(expiry_us(to_us(created), 7, timezone.utc)) == utc("2022-03-07T23:59:59.999999")


CHANGES = [
    "2022-03-13T07:00:00",
    "2022-11-06T06:00:00",
    "2022-03-27T01:00:00",
    "2022-10-30T01:00:00",
    "2022-04-02T15:00:00",
    "2011-12-30T10:00:00",
    "2022-07-01T00:00:00",
]
near_changes = st.sampled_from(CHANGES)
hours = st.integers(-60, 60).map(lambda n: n * 1_800_000_000) | st.integers(-3 * DAY, 3 * DAY)


@given(near_changes, hours, hours, st.sampled_from([0, 1, 2, 7, 30, 238, -1]), st.sampled_from(ZONES))
def test_expiry_is_the_last_moment_that_is_young(
    at: str, off: int, probe: int, days: int, zone: tzinfo
) -> None:
    for created in (to_us(utc(at)) + off, to_us(utc(at)) + off - days * DAY):
        until = expiry_us(created, days, zone)
        assert limit_us(moment(until), days, zone) < created
        assert limit_us(moment(until + 1), days, zone) >= created
        for later in (1, 1_800_000_000, 3_600_000_000, DAY, abs(probe) + 1):
            assert limit_us(moment(until + later), days, zone) >= created


@given(near_changes, hours, st.integers(-3, 400), st.integers(0, 40), st.sampled_from(ZONES))
def test_more_days_never_have_a_younger_limit(at: str, off: int, days: int, more: int, zone: tzinfo) -> None:
    now = moment(to_us(utc(at)) + off)
    assert limit_us(now, days + more, zone) <= limit_us(now, days, zone)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("at", CHANGES)
def it_expires_at_the_last_moment_that_is_young_whenever_clocks_change(at: str, zone: tzinfo) -> None:
    half_hour = DAY // 48
    for days in (0, 1, 238):
        for half_hours in (*range(-6, 7), -96, -48, 48, 96):
            for created in (0, -1, -days * DAY):
                created += to_us(utc(at)) + half_hours * half_hour
                until = expiry_us(created, days, zone)
                assert type(until) is type(limit_us(moment(until), days, zone)) is int
                assert limit_us(moment(until), days, zone) < created
                for later in (1, half_hour, 2 * half_hour, DAY):
                    assert limit_us(moment(until + later), days, zone) >= created


def it_knows_zones_whose_clocks_never_change() -> None:
    assert [zone_clock(zone).fixed for zone in ZONES] == [True, True, False, False, False, False]


def it_asks_once_a_day_for_offsets_and_searches_only_near_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history has a million commits, and nearly all of them are far from any change."""
    clock, july = ZoneClock(NEW_YORK), to_us(utc("2022-07-01T00:00:00"))
    with monkeypatch.context() as patch:
        patch.setattr(clock, "_expiry_near_a_change", None)
        assert {clock.expiry(july + us, 7) - us for us in range(3)} == {july + 7 * DAY - 1}
    assert len(clock._calm) == 2
    assert not clock._changes


def it_finds_a_change_of_clocks_to_the_microsecond_from_two_days_around_it() -> None:
    change = to_us(utc("2022-03-13T07:00:00"))
    found = [ZoneClock(NEW_YORK)._changes_near(change // DAY + n) for n in range(-3, 4)]
    assert found == [(), *[(change,)] * 5, ()]
