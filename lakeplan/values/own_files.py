"""Files and folders that only this user can change."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from lakeplan.values.local import PRIVATE

LOCK_SECONDS = 60
"""Longer than writing any record takes."""
LOCK_STEP = 0.01
_BASES = {"CACHE": ".cache", "CONFIG": ".config", "STATE": ".local/state"}


def user_folder(environ: Mapping[str, str], kind: Literal["CACHE", "CONFIG", "STATE"]) -> Path | None:
    """Return ``$XDG_kind_HOME``, or else its default in the home folder. Return None if that is not an
    absolute path."""
    base = environ.get(f"XDG_{kind}_HOME") or os.path.join(environ.get("HOME", ""), _BASES[kind])
    return Path(base) if os.path.isabs(base) else None


def is_own(folder: Path) -> bool:
    """Return whether only this user and root can change a folder and every folder above it."""
    for each in (folder, *folder.parents):
        status = os.lstat(each)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, os.geteuid()):
            return False
        sticky = status.st_mode & stat.S_ISVTX and each != folder
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            return False
    return stat.S_IMODE(os.lstat(folder).st_mode) & 0o077 == 0 and os.lstat(folder).st_uid == os.geteuid()


def read_own(path: Path, most: int) -> bytes | None:
    """Return the content of a regular file that only this user can change, or None."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            if not is_private or status.st_mode & 0o077 or status.st_size > most:
                return None
            return file.read(most)
    except OSError:
        return None


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Lock a file, which is created if needed, against other processes. Raises TimeoutError after
    ``LOCK_SECONDS``, because a process that was stopped keeps its lock."""
    end = time.monotonic() + LOCK_SECONDS
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, PRIVATE), "wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    why = f"another process has kept it locked for {LOCK_SECONDS} seconds"
                    raise TimeoutError(errno.ETIMEDOUT, why) from None
            time.sleep(LOCK_STEP)
        yield
