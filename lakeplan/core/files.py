"""Files in and beside a checkout, which strangers may have prepared: no link of theirs is followed."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from lakeplan.errors import LakeplanError
from lakeplan.limits import TooLarge, read_file

PRIVATE, SHARED = 0o600, 0o666
"""Modes of new files: for their owner alone, or as the user's umask says."""
PRIVATE_FOLDER = 0o700
_DEVICES = ("/dev/", "/proc/")
_PARTIAL = ".lakeplan-new-"


class LeadsOut(ValueError):
    """A path that leaves the folder that it was named in. The message fits behind the path."""

    def __init__(self) -> None:
        super().__init__("leads out of the tree through a symbolic link")


def inside(root: str | Path, path: str | Path) -> Path:
    """The real path of ``path``. Raises LeadsOut where that is outside the real ``root``."""
    try:
        real, top = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    except (OSError, ValueError):
        raise LeadsOut from None
    if real != top and top not in real.parents:
        raise LeadsOut
    return real


def read_inside(root: str | Path, path: str | Path, limit: int) -> bytes:
    """The bytes of a regular file of a tree. Raises OSError, LeadsOut, and TooLarge as ``read_file`` does."""
    return read_file(inside(root, path), limit)


def write_file(path: Path, data: str | bytes, *, mode: int = PRIVATE) -> None:
    """Puts a file in place as a whole. A link that has its name is replaced, not followed; a link of the
    current folder on the way to it is refused. Devices and pipes are written to only by absolute paths.
    Raises LakeplanError."""
    content = data.encode() if isinstance(data, str) else data
    try:
        refuse_links(path)
        if path.is_absolute() and _is_special(path):
            with path.open("wb") as file:
                file.write(content)
            return
        _replace(path, content, mode)
    except (OSError, TooLarge) as error:
        raise LakeplanError(
            f"cannot write: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            hint="name a file in a folder that exists",
        ) from None


def refuse_links(path: Path, below: Path | None = None) -> None:
    """Raises LakeplanError when a folder on the way to ``path`` is a symbolic link in the folder ``below``
    (default: the current one)."""
    here = Path.cwd() if below is None else below
    if below is None and not path.is_absolute():
        parts = path.parent.parts
    elif here in path.parents:
        parts = path.parent.relative_to(here).parts
    else:
        return
    for part in parts:
        here = here / part
        if here.is_symlink():
            raise LakeplanError(
                f"{part} is a symbolic link, which is not followed for output",
                where=str(path),
                hint="Name a file in a folder that is no link, or give an absolute path outside this folder.",
            )


def _is_special(path: Path) -> bool:
    """A device, a pipe, or a name such as /dev/stdout, which may be any file."""
    if str(path).startswith(_DEVICES):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def _replace(path: Path, content: bytes, mode: int) -> None:
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        kind = stat.S_IFREG
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise TooLarge("it is not a regular file")
    new = path.with_name(f"{_PARTIAL}{secrets.token_hex(8)}")
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(handle, "wb") as file:
            file.write(content)
        new.replace(path)
    finally:
        with contextlib.suppress(OSError):
            new.unlink()
