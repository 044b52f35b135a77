from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.values.units import (
    parse_amount,
    parse_bytes,
    parse_count,
    parse_date,
    parse_duration,
    parse_percent,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_duration, "7d", 7 * 86400),
        (parse_duration, "2w", 14 * 86400),
        (parse_duration, "1w3d12h", 10 * 86400 + 12 * 3600),
        (parse_duration, "90s", 90),
        (parse_duration, "5m", 300),
        (parse_bytes, "5TB", 5 * 10**12),
        (parse_bytes, "1.5 GiB", 3 * 2**29),
        (parse_bytes, "12B", 12),
        (parse_bytes, 12, 12),
        (parse_percent, "30%", 30.0),
        (parse_percent, 12.5, 12.5),
        (parse_count, "10_000_000", 10**7),
        (parse_date, "2027-01-01", date(2027, 1, 1)),
        (parse_amount, "40%", 40.0),
        (parse_amount, "5TB", 5e12),
        (parse_amount, "1_000", 1000.0),
        (parse_amount, 3, 3.0),
    ],
)
def it_reads_a_value(parse: Callable[[object], object], text: object, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_duration, "0d"),
        (parse_duration, "7"),
        (parse_duration, "7d "),
        (parse_duration, "7d\n"),
        (parse_duration, "-7d"),
        (parse_duration, "7y"),
        (parse_duration, "٧d"),
        (parse_duration, "999999999w"),
        (parse_bytes, "5"),
        (parse_bytes, "5tb"),
        (parse_bytes, "-5TB"),
        (parse_percent, "101%"),
        (parse_percent, 100.5),
        (parse_percent, -1),
        (parse_percent, "x"),
        (parse_count, "1_"),
        (parse_count, "1.5"),
        (parse_date, "2027-02-30"),
        (parse_date, "20270101"),
        (parse_date, "2027-1-1"),
    ],
)
def it_refuses_what_it_cannot_read(parse: Callable[[object], object], text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@given(st.lists(st.tuples(st.integers(0, 500), st.sampled_from("smhdw")), min_size=1, max_size=5))
def it_adds_the_parts_of_a_duration(parts: list[tuple[int, str]]) -> None:
    seconds = sum(n * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[u] for n, u in parts)
    if seconds:
        assert parse_duration("".join(f"{n}{u}" for n, u in parts)) == seconds


@pytest.mark.parametrize("written", ["7", "'7'"])
def it_suggests_days_for_a_duration_without_a_unit(problem: Callable[..., str], written: str) -> None:
    entry = f"  team-a: {{branch_lifecycle: {{policies: [{{patterns: [x], max_age: {written}}}]}}}}"
    assert 'did you mean "7d"?' in problem("", entry)
