"""What commands that write for long have in common: they stop in order, and their state must last."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from lakeplan.errors import UsageError


def check_lasting_state(url: str, environ: Mapping[str, str]) -> None:
    """Raises UsageError for a state folder in CI: what was observed and approved would vanish with the
    runner."""
    if environ.get("CI") and url.startswith("file://"):
        raise UsageError(
            "the state is a folder and CI is set: what lakeplan remembers would vanish with the runner",
            hint="set state.url to an s3:// or Azure blob URL",
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


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """SIGTERM sets the event: what is at hand is finished, records are stored, and the run ends."""
    stop = threading.Event()

    def ask(signum: int, frame: FrameType | None) -> None:
        stop.set()

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
