from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.output.text import count, days, duration, moment, percent, size
from lakeplan.values.units import count_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (3_100_000_000_000, "3.1 TB"),
        (999_999_999_999_999_999, "1.0 EB"),
        (5_000_000_000_000_000_000_000, "5,000.0 EB"),
    ],
)
def it_shows_bytes_in_decimal_units(value: int, text: str) -> None:
    assert size(value) == text


@given(st.integers(1, 2**70))
def it_never_shows_bytes_as_nothing_nor_four_digits_of_a_smaller_unit(value: int) -> None:
    number, unit = size(value).split()
    assert float(number.replace(",", "")) > 0
    assert unit == "EB" or float(number) < 1000


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def it_rounds_no_part_to_nothing_and_none_to_everything(part: int, whole: int) -> None:
    text = percent(part, whole)
    assert (text == "0 %") == (part == 0)
    assert text == "100 %" if part and part >= whole else text != "100 %"
    assert "100.0" not in text
    assert not text.startswith("0.0")


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (121, 1_000, "12.1 %"),
        (1, 10_000_000, "<0.1 %"),
        (9_999_999, 10_000_000, ">99.9 %"),
        (7, 0, "100 %"),
        (0, 0, "0 %"),
    ],
)
def it_shows_percent(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text


def it_counts_with_separators_and_nouns() -> None:
    assert count(1_204_331) == "1,204,331"
    assert count_of(1, "object") == "1 object"
    assert count_of(0, "repository") == "0 repositories"
    assert count_of(4_812, "branch") == "4,812 branches"
    assert count_of(2, "entry") == "2 entries"
    assert count_of(2, "day") == "2 days"


def it_shows_days_as_the_server_has_them() -> None:
    assert [days(d) for d in (1, 21, 0, -3, 36_500)] == [
        "1 day",
        "21 days",
        "0 days",
        "-3 days",
        "36,500 days",
    ]


def it_shows_times_in_utc_to_the_minute() -> None:
    assert moment("2026-03-31T12:00:59Z") == "2026-03-31T12:00Z"
    assert moment("2026-03-31T12:00:59.123456Z") == "2026-03-31T12:00Z"
    assert moment("2026-03-31T12:00:00+02:00") == "2026-03-31T10:00Z"
    assert moment("2026-03-31T12:00:00") == "2026-03-31T12:00Z"
    assert moment(datetime(2026, 3, 31, 12, tzinfo=timezone(timedelta(hours=-5)))) == "2026-03-31T17:00Z"
    assert moment("some day") == "some day"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7_800, "2 h 10 min"),
        (273_600, "3 d 4 h"),
    ],
)
def it_shows_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
