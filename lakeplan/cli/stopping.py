"""What commands that write for long have in common: they stop in order, and their state must last."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from lakeplan.errors import UsageError

STEP = 0.2
"""Seconds of a sleep between two looks."""


def is_lost(state_url: str, environ: Mapping[str, str]) -> bool:
    """Whether the state goes with the runner: a job in CI starts from an empty folder every time."""
    return bool(environ.get("CI")) and state_url.startswith("file://")


def check_lasting_state(url: str, environ: Mapping[str, str]) -> None:
    """Raises UsageError for a state folder in CI: what was observed and approved would vanish with the
    runner."""
    if is_lost(url, environ):
        raise UsageError(
            "the state is a local folder and CI is set, so the state would be lost with the runner",
            hint="Set state.url to an s3://, gs:// or Azure blob URL.",
        )


def interrupt_on_sigterm() -> None:
    """On a terminal SIGTERM ends a command as Ctrl-C does: bars go and the cursor comes back; a second one
    ends it at once. Elsewhere it ends as any process does."""
    if not sys.stderr.isatty():
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


class Stop:
    """Whether a signal asked to stop. It has no lock, which the signal's handler could find taken, and it
    sleeps in short steps: a wait that the signal comes just before of would not be woken by it."""

    def __init__(self) -> None:
        self._asked = False

    def ask(self, signum: int, frame: FrameType | None) -> None:
        self._asked = True

    def is_set(self) -> bool:
        return self._asked

    def wait(self, seconds: float = math.inf) -> bool:
        """Until it is asked for, or so many seconds; whether it was."""
        end = time.monotonic() + seconds
        while not self._asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, STEP))
        return self._asked


@contextmanager
def stopping(*numbers: signal.Signals) -> Iterator[Stop]:
    """SIGTERM, or these signals, ask to stop: what is at hand is finished, records are stored, and the run
    ends."""
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in numbers or (signal.SIGTERM,)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
