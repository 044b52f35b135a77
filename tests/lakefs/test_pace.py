"""Requests at a pace, whoever sends them."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lakeplan.lakefs.transport import Pace


class Time:
    """A clock that passes only by sleeping; each thread sleeps for itself."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def it_spaces_requests_of_all_threads() -> None:
    pace, time = Pace(10), Time()
    clock: Any = time
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: pace.wait(clock), range(5)))
    assert sorted(round(one, 3) for one in time.slept) == [0, 0.1, 0.2, 0.3, 0.4]


def it_survives_pickling() -> None:
    clock: Any = Time()
    pace = pickle.loads(pickle.dumps(Pace(2)))
    pace.wait(clock)
    pace.wait(clock)
    assert clock.slept == [0, 0.5]
