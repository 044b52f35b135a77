"""A cache in a folder: safe with several processes, bounded, least recently used out."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator

from lakeplan import limits
from lakeplan.core.files import PRIVATE, PRIVATE_FOLDER

LEFTOVER = ".new-"
LEFTOVER_SECONDS = 3600
"""A file of this age that was never given its name belongs to a process that was killed."""
USED_SECONDS = 600
"""How exactly the time of last use is kept: at most one write to the folder per file in this time."""
ROOM = 0.9
"""Share of the limit that is left when it was passed, so that not every run has to sort all files."""


class FolderCache:
    """``lakeplan.ports.range_cache.RangeCache``. Files are written beside their place and renamed: a reader
    finds a whole file or none. The time of last use is the file's modification time."""

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
            with contextlib.suppress(OSError):  # somebody else's cache, for reading only
                os.utime(path)
        return data

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        folder = os.path.dirname(path)
        new = os.path.join(folder, LEFTOVER + secrets.token_hex(8))
        try:
            # paths in it are not for other people of the machine
            os.makedirs(folder, mode=PRIVATE_FOLDER, exist_ok=True)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
                file.write(data)
            os.replace(new, path)
            self._put += len(data)
        except OSError:  # a full disk is no reason to stop
            with contextlib.suppress(OSError):
                os.unlink(new)
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
        """Time of last use, bytes and path of each file."""
        now = time.time()
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):  # another process was quicker
                    found = os.stat(path)
                    if not name.startswith(LEFTOVER):
                        yield found.st_mtime, found.st_size, path
                    elif now - found.st_mtime > LEFTOVER_SECONDS:
                        os.unlink(path)

    def _path(self, key: str) -> str:
        return os.path.join(self._root, *key.split("/"))
