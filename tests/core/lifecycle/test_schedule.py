"""Cron schedules."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.core.lifecycle.schedule import parse_cron
from lakeplan.errors import UsageError


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("cron", "now", "then"),
    [
        ("0 * * * *", "2026-03-01T10:00:00", "2026-03-01T11:00"),
        ("0 * * * *", "2026-03-01T09:59:59", "2026-03-01T10:00"),
        ("*/15 * * * *", "2026-03-01T10:46", "2026-03-01T11:00"),
        ("5,10-12 3 * * *", "2026-03-01T03:10", "2026-03-01T03:11"),
        ("0 0 * * mon-fri", "2026-03-06T12:00", "2026-03-09T00:00"),
        ("0 0 * * 7", "2026-03-02T00:00", "2026-03-08T00:00"),
        ("0 0 * * 0", "2026-03-02T00:00", "2026-03-08T00:00"),
        ("0 0 1 jan *", "2026-03-01T00:00", "2027-01-01T00:00"),
        ("0 0 29 2 *", "2026-03-01T00:00", "2028-02-29T00:00"),
        ("0 0 13 * fri", "2026-03-01T00:00", "2026-03-06T00:00"),  # either day is enough
        ("0 0 */2 * mon", "2026-03-01T00:00", "2026-03-09T00:00"),  # but both with a star
        ("30 2 * * *", "2026-03-29T01:30", "2026-03-29T02:30"),  # no hour is skipped in UTC
        ("50/5 * * * *", "2026-03-01T10:51", "2026-03-01T10:55"),
        ("@daily", "2026-12-31T23:59", "2027-01-01T00:00"),
    ],
)
def it_comes_when_cron_says(cron, now, then):
    assert parse_cron(cron).after(at(now)) == at(then)


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-2 * * * *",
     "*/0 * * * *", "x * * * *", "1,,2 * * * *", "- * * * *", "* * * * moon", "-1 * * * *", "@often"],
)  # fmt: skip
def it_refuses_what_is_no_schedule(text):
    with pytest.raises(UsageError):
        parse_cron(text)


def it_says_that_the_thirtieth_of_february_never_comes():
    with pytest.raises(UsageError, match="never comes"):
        parse_cron("0 0 30 2 *").after(at("2026-01-01T00:00"))


@given(
    st.integers(0, 20 * 366 * 86400),
    st.sampled_from(["*/7 * * * *", "13 */5 * * *", "0 0 * * sun", "59 23 31 * *"]),
)
def it_always_comes_later_and_on_a_minute(seconds, cron):
    moment = at("2020-01-01T00:00") + timedelta(seconds=seconds)
    found = parse_cron(cron).after(moment)
    assert found > moment
    assert (found.second, found.microsecond) == (0, 0)
    # Nothing of the schedule lies between.
    assert parse_cron(cron).after(found - timedelta(minutes=1)) == found
