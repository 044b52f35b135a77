"""Who runs, and whether a lease's process is gone."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lakeplan.cli.process import is_gone, new_run_id, parse_time, this_run
from lakeplan.errors import UsageError


@pytest.fixture
def finished() -> int:
    """The id of a process that was there and is not any more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def it_knows_its_own_process_to_be_alive():
    assert not is_gone(this_run(Path()).holder)


def it_takes_over_from_a_process_that_ended_on_this_machine(finished):
    assert is_gone({**this_run(Path()).holder, "pid": finished})


@pytest.mark.parametrize("machine", ["another-boot/1", "", None])
def it_does_not_trust_a_host_name_alone(finished, machine):
    # Containers share names: the same host name, another machine or process namespace.
    holder = {**this_run(Path()).holder, "pid": finished, "machine": machine}
    assert not is_gone(holder)


@pytest.mark.parametrize("pid", [None, "1", -1, 0, 1 << 31, 1 << 100])
def it_does_not_take_nonsense_for_gone(pid):
    assert not is_gone({**this_run(Path()).holder, "pid": pid})


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-10:00", "0001-01-01T00:00:00+10:00", "9500-01-01", "-62135596800", "1e300"]
)
def it_takes_no_time_with_which_nobody_can_calculate(text):
    with pytest.raises(UsageError, match="is not a valid time"):
        parse_time(text)


@pytest.mark.parametrize(
    "text", ["20260331", " 20260331 ", "2026-03-31", "2026-W14-2", "1774915200", "1774915200.0"]
)
def it_never_reads_a_date_as_seconds(text):
    # 20260331 seconds are in 1970, when nothing had expired.
    assert parse_time(text) == datetime(2026, 3, 31, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text",
    [*["2026", "202603", "2026033112", "202603311200", "20260331120000"], "٢٠٢٦٠٣٣١", "20261331", "20260230"],
)
def it_refuses_a_year_a_month_digits_of_an_hour_or_minute_and_an_impossible_date(text):
    with pytest.raises(UsageError, match="is not a valid time"):
        parse_time(text)


def it_makes_run_ids_that_sort_by_time_and_never_repeat():
    early, late = datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 2, tzinfo=timezone.utc)
    assert new_run_id(early) < new_run_id(late)
    assert new_run_id(early) < new_run_id(early.replace(microsecond=1))
    assert new_run_id(early) != new_run_id(early)
