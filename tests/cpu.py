"""Limits of time that a busy machine does not break."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep

PATIENCE = 60.0
"""Seconds after which nobody waits for what takes less than one where nothing else runs."""


@contextmanager
def at_most_cpu_seconds(most: float) -> Iterator[None]:
    """Fails when what runs inside takes more processor time, ended children included."""
    before = sum(os.times()[:4])
    yield
    assert sum(os.times()[:4]) - before < most


def wait_until(holds: Callable[[], object]) -> None:
    """Fails when it does not come to hold."""
    deadline = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < deadline, "it did not come to hold"
        sleep(0.01)
