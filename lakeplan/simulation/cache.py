"""The cache of the facts about ranges, in a folder or a store, so that no range is read twice."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Protocol

from lakeplan import limits
from lakeplan.errors import StorageError, WriteConflict
from lakeplan.stores.open import FolderLocation, StateWriter, open_state, parse_location
from lakeplan.values.local import PRIVATE_FOLDER, new_file
from lakeplan.values.own_files import user_folder

_log = logging.getLogger(__name__)


class RangeCache(Protocol):
    """Files by key (components separated by ``/``). Picklable, because Spark workers use it, several at once.

    Nothing in it is needed. A cache that cannot be read or written counts as empty, so no method raises.
    Callers must check what they read.
    """

    def get(self, key: str) -> bytes | None:
        """The file, or None."""

    def put(self, key: str, data: bytes) -> None:
        """Store or replace the file, completely or not at all."""

    def trim(self) -> None:
        """Remove the least recently used files over the limit. Called at the end of a run."""


LEFTOVER = ".new-"
LEFTOVER_SECONDS = 3600
"""An unfinished file of this age belongs to a process that was killed."""
USED_SECONDS = 600
"""The precision of the time of last use. It is updated at most once in this time."""
ROOM = 0.9
"""After the limit is exceeded, files are removed down to this share of it, so that few runs have to remove
any."""


class FolderCache:
    """Implements ``RangeCache`` in a folder. Files are written under another name and renamed, so that
    readers find a complete file or none. The time of last use is the file's modification time."""

    def __init__(self, root: str, limit_bytes: int) -> None:
        self._root = root
        self._limit = limit_bytes
        self._put = 0

    def __repr__(self) -> str:
        return f"FolderCache({self._root!r})"

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_size > limits.OBJECT_BYTES:
                    return None
                data = file.read()
                used = status.st_mtime
        except OSError:
            return None
        if time.time() - used > USED_SECONDS:
            with contextlib.suppress(OSError):  # another user's cache, which is read-only
                os.utime(path)
        return data

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        folder = os.path.dirname(path)
        try:
            # Other users of the machine must not read the paths in it.
            os.makedirs(folder, mode=PRIVATE_FOLDER, exist_ok=True)
            with new_file(path, prefix=LEFTOVER) as file:
                file.write(data)
                file.close()
                os.replace(file.name, path)
            self._put += len(data)
        except OSError as error:  # a full disk is no reason to stop
            _log.info("%s could not be written to the cache: %s", path, error.strerror)
        if self._put > self._limit * (1 - ROOM):
            self.trim()

    def trim(self) -> None:
        self._put = 0
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        if total <= self._limit:
            return
        for _, size, path in files:
            if total <= self._limit * ROOM:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """The time of last use, bytes and path of each file."""
        now = time.time()
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):  # another process removed it
                    status = os.stat(path)
                    if not name.startswith("."):
                        yield status.st_mtime, status.st_size, path
                    elif name.startswith(LEFTOVER) and now - status.st_mtime > LEFTOVER_SECONDS:
                        os.unlink(path)

    def _path(self, key: str) -> str:
        return os.path.join(self._root, *key.split("/"))


class StoreCache:
    """Implements ``RangeCache`` in a store, by conditional puts. A pickle has only the URL, and every process
    opens the store with credentials from its environment."""

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
            stored = self._opened().read(key)
        except StorageError as error:
            _log.debug("the cache could not be read: %s", error)
            return None
        return stored.data if stored is not None else None

    def put(self, key: str, data: bytes) -> None:
        # a WriteConflict is a StorageError: another process put it there
        with contextlib.suppress(StorageError):
            store = self._opened()
            try:
                store.write(key, data, if_version=None)
            except WriteConflict:
                stored = store.read(key)
                if stored is not None and stored.data != data:
                    store.write(key, data, if_version=stored.version)

    def trim(self) -> None:
        """Does nothing, because a lifecycle rule of the store removes old files."""

    def _opened(self) -> StateWriter:
        if self._store is None:  # two threads may open it twice, which is harmless
            self._store = open_state(self._url)
        return self._store


CACHE_OFF = "off"
DEFAULT_LIMIT = 20 * 10**9
"""Bytes: 25 an entry of a range and of a group, so some 800 million entries."""


def open_cache(
    where: str | None, *, limit_bytes: int = DEFAULT_LIMIT, environ: Mapping[str, str]
) -> RangeCache | None:
    """The cache in a folder, or at a URL of ``stores.open.open_namespace``. None: in the user's cache
    directory (``XDG_CACHE_HOME``, else ``~/.cache``). ``off``: no cache. The first put creates it.

    Raises StorageError for a URL of another kind or one that carries credentials.
    """
    if where == CACHE_OFF:
        return None
    if where is None:
        base = user_folder(environ, "CACHE")
        return FolderCache(str(base / "lakeplan" / "ranges"), limit_bytes) if base is not None else None
    if "://" not in where:
        return FolderCache(os.path.abspath(where), limit_bytes)
    location = parse_location(where)
    if isinstance(location, FolderLocation):
        return FolderCache(location.path, limit_bytes)
    return StoreCache(where)
