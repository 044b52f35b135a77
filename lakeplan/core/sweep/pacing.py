"""How fast a sweep goes: back-off while the store is busy, and a rate that a person set.

The shortest and longest waits are those of the official collector (retention.md: 1 and 120 seconds).
"""

from __future__ import annotations

from dataclasses import dataclass

MIN_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 120.0
MAX_TRIES = 10
"""Of one batch: a store that is busy for some ten minutes ends the run, which can go on later."""


def backoff_seconds(
    failures: int, jitter: float, *, least: float = MIN_BACKOFF_SECONDS, most: float = MAX_BACKOFF_SECONDS
) -> float:
    """The wait after so many failures in a row (1 or more); ``jitter`` is a random number in [0, 1) that
    keeps workers from coming back at the same moment. Between half of the doubled wait and all of it."""
    doubled = min(most, least * 2.0 ** min(failures - 1, 30))
    return doubled * (0.5 + jitter / 2)


@dataclass
class Throttle:
    """Spreads deletions over time. ``rate`` is objects a second for this worker (None: as fast as it goes).
    Times are seconds of a clock that only goes forward."""

    rate: float | None
    _free_at: float = 0.0

    def wait_seconds(self, objects: int, now: float) -> float:
        """How long to wait before a batch of so many objects; call it once a batch."""
        if not self.rate:
            return 0.0
        start = max(now, self._free_at)
        self._free_at = start + objects / self.rate
        return start - now
