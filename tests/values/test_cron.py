"""Cron lines: the next run, and lines that mean nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.values.units import parse_cron

UTC = timezone.utc
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "now", "run"),
    [
        ("0 * * * *", "2026-03-31T12:00", "2026-03-31T13:00"),
        ("@hourly", "2026-12-31T23:30", "2027-01-01T00:00"),
        ("*/15 2-3 * * *", "2026-03-31T02:46", "2026-03-31T03:00"),
        ("30 4 1,15 * 5", "2026-03-31T12:00", "2026-04-01T04:30"),  # the 1st, or a Friday
        ("30 4 1,15 * 5", "2026-04-01T12:00", "2026-04-03T04:30"),
        ("0 0 29 feb *", "2026-03-01T00:00", "2028-02-29T00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("0 0 * * SUN", "2026-03-31T12:00", "2026-04-05T00:00"),
        ("0 0 * * 7", "2026-03-31T12:00", "2026-04-05T00:00"),
        ("0 0 */2 * 1", "2026-04-01T12:00", "2026-04-13T00:00"),  # a star with a step does not restrict
        ("5/20 * * * *", "2026-03-31T12:06", "2026-03-31T12:25"),
    ],
)
def it_finds_the_next_run(line: str, now: str, run: str) -> None:
    assert parse_cron(line).next_after(at(now)) == at(run)


def it_never_runs_on_days_that_do_not_exist() -> None:
    assert parse_cron("0 0 30 2 *").next_after(at("2026-01-01T00:00")) is None


class DescribeChangesOfClocks:
    def it_leaves_out_an_hour_that_does_not_exist(self) -> None:
        # 29 March 2026: 02:00 to 03:00 is left out
        run = parse_cron("30 2 * * *").next_after(at("2026-03-28T12:00"), BERLIN)
        assert run == at("2026-03-30T00:30")

    def it_runs_in_both_of_two_equal_hours(self) -> None:
        # 25 October 2026: 02:00 to 03:00 comes twice
        hourly = parse_cron("0 * * * *")
        first = hourly.next_after(at("2026-10-24T23:30"), BERLIN)
        assert first == at("2026-10-25T00:00")
        assert hourly.next_after(first, BERLIN) == at("2026-10-25T01:00")


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]),
)
def it_runs_within_an_hour_when_it_is_hourly(now: datetime, zone: str) -> None:
    run = parse_cron("0 * * * *").next_after(now, ZoneInfo(zone))
    assert run is not None
    # Lord Howe moves its clocks by half an hour, so that two full hours can be 90 minutes apart
    assert timedelta(0) < run - now <= timedelta(minutes=90)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "0 * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-2 * * * *",
        "*/0 * * * *",
        "a * * * *",
        "1, * * * *",
        "-1 * * * *",
        "² * * * *",
        "@reboot",
        "0 0 0 * * *",
    ],
)
def it_refuses_what_is_no_cron_line(line: str) -> None:
    with pytest.raises(ValueError, match="cron expression"):
        parse_cron(line)
