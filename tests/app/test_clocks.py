"""The safest of several clocks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.app.clocks import MAX_DIFFERENCE, Clocks, read_clocks
from lakeplan.errors import ClockSkew

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


def of(*others: timedelta | None) -> Clocks:
    clocks: dict[str, Callable[[], datetime | None]] = {
        f"clock {number}": lambda other=other: None if other is None else NOW + other
        for number, other in enumerate(others)
    }
    return read_clocks(lambda: NOW, clocks, where="prod/lake")


def it_takes_the_earliest_and_the_latest_of_all() -> None:
    assert of(3 * SECOND, -2 * SECOND) == Clocks(NOW - 2 * SECOND, NOW + 3 * SECOND)
    assert of(SECOND) == Clocks(NOW, NOW + SECOND)
    assert of(-SECOND, None) == Clocks(NOW - SECOND, NOW)


@pytest.mark.parametrize("sign", [1, -1])
def it_refuses_a_difference_of_more_than_five_minutes(sign: int) -> None:
    assert of(sign * MAX_DIFFERENCE)
    with pytest.raises(ClockSkew, match=r"clock 1 says 2026-01-01 1.:..:01|clock 1 says .*:59") as caught:
        of(timedelta(), sign * (MAX_DIFFERENCE + SECOND))
    assert (caught.value.where, "NTP" in caught.value.hint) == ("prod/lake", True)


def it_refuses_two_other_clocks_that_differ_by_more() -> None:
    half = MAX_DIFFERENCE / 2
    assert of(half, -half)
    with pytest.raises(ClockSkew, match=r"clock 0 says .* and clock 1 says"):
        of(half, -half - SECOND)


def it_refuses_when_nothing_else_tells_the_time() -> None:
    with pytest.raises(ClockSkew, match="only this machine's clock is known: clock 0 did not"):
        of(None)


def it_does_not_count_the_time_that_an_answer_takes() -> None:
    """A server that takes an hour to answer is read at some moment of that hour."""
    ours = iter([NOW, NOW, NOW + timedelta(hours=1)])
    clocks = read_clocks(lambda: next(ours), {"slow": lambda: NOW + 30 * SECOND}, where="")
    assert clocks == Clocks(NOW, NOW + timedelta(hours=1))
