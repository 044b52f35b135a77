"""A cache in an object store, for runners that start empty. The store's lifecycle rules keep it small."""

from __future__ import annotations

import contextlib
import logging

from lakeplan.adapters.state import open_state
from lakeplan.errors import StorageError, WriteConflict
from lakeplan.ports.storage import StateWriter

_log = logging.getLogger(__name__)


class StoreCache:
    """``lakeplan.ports.range_cache.RangeCache`` over conditional puts: of two processes that write the same
    thing, one does. Only the URL travels in a pickle; every process opens the store from its environment."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: StateWriter | None = None

    def __repr__(self) -> str:
        return f"StoreCache({self._url!r})"

    def __getstate__(self) -> str:
        return self._url

    def __setstate__(self, url: str) -> None:
        self._url, self._store = url, None

    def get(self, key: str) -> bytes | None:
        try:
            found = self._opened().read(key)
        except StorageError as error:
            _log.debug("the cache was not read: %s", error)
            return None
        return found.data if found is not None else None

    def put(self, key: str, data: bytes) -> None:
        # a WriteConflict is a StorageError: another process put it there
        with contextlib.suppress(StorageError):
            store = self._opened()
            try:
                store.write(key, data, if_version=None)
            except WriteConflict:
                found = store.read(key)
                if found is not None and found.data != data:
                    store.write(key, data, if_version=found.version)

    def trim(self) -> None:
        """Nothing is listed, and nothing deleted."""

    def _opened(self) -> StateWriter:
        if self._store is None:  # opened twice by two threads: no harm
            self._store = open_state(self._url)
        return self._store
