"""How fast a sweep goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.sweep.rules import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS, Throttle, backoff_seconds


def it_doubles_the_wait_up_to_two_minutes() -> None:
    waits = [backoff_seconds(failures, 1.0) for failures in range(1, 11)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 120, 120, 120]
    assert [backoff_seconds(failures, 0.0) for failures in (1, 2, 9)] == [0.5, 1, 60]


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_a_wait_stays_within_its_bounds(failures: int, jitter: float) -> None:
    wait = backoff_seconds(failures, jitter)
    assert MIN_BACKOFF_SECONDS / 2 <= wait <= MAX_BACKOFF_SECONDS
    assert backoff_seconds(failures + 1, jitter) >= wait


class DescribeTheThrottle:
    def it_lets_everything_through_without_a_rate(self) -> None:
        throttle = Throttle(None)
        assert [throttle.wait_seconds(1000, 0.0) for _ in range(5)] == [0.0] * 5

    def it_starts_at_once_and_then_waits_for_what_went_before(self) -> None:
        throttle = Throttle(100.0)
        assert throttle.wait_seconds(50, 10.0) == 0
        assert throttle.wait_seconds(50, 10.0) == pytest.approx(0.5)
        assert throttle.wait_seconds(1, 11.0) == 0

    def it_saves_nothing_up_while_it_is_idle(self) -> None:
        throttle = Throttle(10.0)
        throttle.wait_seconds(10, 0.0)
        assert throttle.wait_seconds(10, 1000.0) == 0
        assert throttle.wait_seconds(10, 1000.0) == pytest.approx(1.0)

    @given(
        st.floats(0.5, 10_000),
        st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 5)), min_size=2, max_size=30),
    )
    def test_no_stretch_of_time_sees_more_than_the_rate_and_one_batch(
        self, rate: float, batches: list[tuple[int, float]]
    ) -> None:
        throttle, now, begun = Throttle(rate), 0.0, []
        for objects, pause in batches:
            now += throttle.wait_seconds(objects, now)
            begun.append((now, objects))
            now += pause
        for first in range(len(begun)):
            for last in range(first + 1, len(begun)):
                before_the_last = sum(objects for _, objects in begun[first:last])
                assert before_the_last <= rate * (begun[last][0] - begun[first][0]) + 1e-6 * before_the_last
