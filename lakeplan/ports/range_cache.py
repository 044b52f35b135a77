"""Where what was computed from ranges is kept, so that no range is read twice."""

from __future__ import annotations

from typing import Protocol


class RangeCache(Protocol):
    """Small files by key (parts between ``/``). Picklable: Spark workers use it themselves, several at once.

    Nothing in it is needed: a cache that cannot be read or written is as good as an empty one, so neither
    method raises for that. Whoever reads must check what it gets.
    """

    def get(self, key: str) -> bytes | None:
        """What stands there, or None."""

    def put(self, key: str, data: bytes) -> None:
        """Stores it whole or not at all, in place of what stands there."""

    def trim(self) -> None:
        """Brings it back to its size, least recently used out. Called at the end of a run."""
