"""Where a lakeFS server puts new objects: ``data/<partition>/<object>``."""

from __future__ import annotations

from collections.abc import Callable

from lakeplan.formats.namespace import DATA_PREFIX
from lakeplan.formats.xid import XidSource

PARTITION_SECONDS = 3600
PARTITION_OBJECTS = 50_000


class ObjectPaths:
    """Hands out addresses. A partition lasts an hour or 50,000 objects (format.md)."""

    def __init__(self, clock: Callable[[], float], xids: XidSource) -> None:
        self._clock = clock
        self._xids = xids
        self._partition = ""
        self._since = 0.0
        self._count = PARTITION_OBJECTS

    def new(self) -> str:
        """A relative address that no object has."""
        now = self._clock()
        if self._count >= PARTITION_OBJECTS or now - self._since > PARTITION_SECONDS:
            self._partition, self._since, self._count = self._xids.descending(), now, 0
        self._count += 1
        return f"{DATA_PREFIX}{self._partition}/{self._xids.ascending()}"
