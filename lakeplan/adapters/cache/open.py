"""The one way to open a cache of ranges."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lakeplan.adapters.cache.folder import FolderCache
from lakeplan.adapters.cache.store import StoreCache
from lakeplan.adapters.storage.urls import FolderLocation, parse_location
from lakeplan.ports.range_cache import RangeCache

CACHE_OFF = "off"
DEFAULT_LIMIT = 20 * 10**9
"""Bytes: 25 an entry of a range and of a group, so some 800 million entries."""


def open_cache(
    where: str | None, *, limit_bytes: int = DEFAULT_LIMIT, environ: Mapping[str, str]
) -> RangeCache | None:
    """A folder, or a URL of ``storage.open_namespace``; None for the user's cache directory
    (``XDG_CACHE_HOME``, else ``~/.cache``), ``off`` for none. Nothing is made before the first put.

    Raises StorageError for a URL of another kind or one that carries credentials.
    """
    if where == CACHE_OFF:
        return None
    if where is None:
        base = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME", ""), ".cache")
        if not os.path.isabs(base):
            return None  # nobody's home: nowhere to keep it
        return FolderCache(os.path.join(base, "lakeplan", "ranges"), limit_bytes)
    if "://" not in where:
        return FolderCache(os.path.abspath(where), limit_bytes)
    location = parse_location(where)
    if isinstance(location, FolderLocation):
        return FolderCache(location.path, limit_bytes)
    return StoreCache(where)
