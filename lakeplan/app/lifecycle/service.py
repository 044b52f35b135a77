"""``lifecycle run --every``: one run after the other on a cron schedule, until asked to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from lakeplan.core.cron import Cron
from lakeplan.errors import LakeplanError, UsageError

log = logging.getLogger(__name__)
LONGEST_SLEEP = 60.0
"""Seconds: a clock that is set, or a machine that slept, is noticed within this."""


def serve(
    cron: Cron,
    tick: Callable[[], int],
    now: Callable[[], datetime],
    wait: Callable[[float], bool],
) -> int:
    """Runs ``tick`` at every moment of the schedule; runs that were missed are not made up for. ``wait``
    sleeps so many seconds and says whether to stop. A run that fails is logged, and the next one comes.
    Returns how many runs there were."""
    ticks = 0
    due = _next(cron, now())
    while True:
        left = (due - now()).total_seconds()
        if left > 0:
            if wait(min(left, LONGEST_SLEEP)):
                return ticks
            continue
        try:
            tick()
        except LakeplanError as error:
            log.error("%s%s", error, f" ({error.hint})" if error.hint else "")
        ticks += 1
        if wait(0):
            return ticks
        due = _next(cron, max(now(), due))


def _next(cron: Cron, moment: datetime) -> datetime:
    """In UTC, where no hour is skipped and none comes twice."""
    found = cron.next_after(moment)
    if found is None:
        raise UsageError(f"the schedule {cron.text!r} never comes", hint="check its day and month")
    return found
