"""Runs on a schedule."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.branches.run import serve
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.values.units import parse_cron

START = datetime(2026, 3, 1, 10, 30, tzinfo=timezone.utc)


class Time:
    """A clock that moves when somebody waits; SIGTERM comes at ``stop``."""

    def __init__(self, stop: datetime) -> None:
        self.now = START
        self.stop = stop

    def wait(self, seconds: float) -> bool:
        self.now += timedelta(seconds=seconds)
        return self.now >= self.stop


def served(hours: float, work: float = 0, cron: str = "0 * * * *", fail: bool = False) -> list[datetime]:
    time = Time(START + timedelta(hours=hours))
    ticks = []

    def tick() -> int:
        ticks.append(time.now)
        time.now += timedelta(seconds=work)
        if fail:
            raise LakeplanError("the server is down", hint="wait")
        return 0

    assert serve(parse_cron(cron), tick, lambda: time.now, time.wait) == len(ticks)
    return ticks


def it_runs_at_every_moment_of_the_schedule():
    assert [t.strftime("%H:%M") for t in served(3)] == ["11:00", "12:00", "13:00"]


def it_does_not_make_up_for_runs_that_it_missed():
    assert [t.strftime("%H:%M") for t in served(5, work=2.5 * 3600)] == ["11:00", "14:00"]


def it_goes_on_after_a_run_that_failed(caplog):
    with caplog.at_level(logging.ERROR):
        assert len(served(3, fail=True)) == 3
    assert "the server is down (wait)" in caplog.text


def it_stops_while_it_waits():
    assert served(0.2) == []


def it_says_that_the_thirtieth_of_february_never_comes():
    with pytest.raises(UsageError, match="never occurs"):
        served(1, cron="0 0 30 2 *")
