"""Files that are whole or not there, whoever is killed and whenever."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import BinaryIO

UNFINISHED = ".lakeplan-unfinished-"
"""How names of records begin while they are written. Readers of a namespace do not list them."""


def make_folders(path: str, mode: int = 0o777) -> None:
    """Like makedirs, and each new folder's name is on the disk before anything is put into it."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_folders(parent, mode)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
    flush_folder(parent)


def flush_folder(path: str) -> None:
    """A rename survives a power cut only when the folder is flushed too."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def written_beside(path: str, *, prefix: str = UNFINISHED) -> Iterator[BinaryIO]:
    """A new file in the folder of ``path``, which the caller renames or links to ``path`` (its name is the
    file's ``name``). What is still under that name at the end is removed; a kill leaves it behind."""
    folder = os.path.dirname(path)
    make_folders(folder)
    new = os.path.join(folder, prefix + secrets.token_hex(8))
    try:
        with open(new, "x+b") as file:
            yield file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)


def flush_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
