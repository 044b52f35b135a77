"""The compiled decoder of ranges, and where its machine code is kept.

numba reads ``.numba_config.yaml`` of the current folder, which may be a stranger's and could name another
cache: it is imported without its YAML reader. What it compiled lies in the user's cache folder, which nobody
else may write: whoever writes there runs code here. In CI it is compiled anew, because folders of a CI's
cache are shared with pull requests.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import stat
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from lakeplan import limits
from lakeplan.formats.hashing import Bytes, Ints
from lakeplan.formats.range_arrays import RangeArrays

WORTH_ENTRIES = 2_000_000
"""Below this many entries of a run, compiling costs more than it saves."""
CACHED_WORTH_ENTRIES = 400_000
"""The same when machine code is at hand."""
_local = threading.local()


@cache
def kernels() -> ModuleType | None:
    """The compiled loops; None where numba is not installed. Compiles nothing yet."""
    hidden = sys.modules.get("yaml")
    sys.modules["yaml"] = None  # type: ignore[assignment]
    os.environ["NUMBA_CACHE_DIR"] = str(_code_folder())
    try:
        config = importlib.import_module("numba.core.config")
    except ImportError:
        return None
    finally:
        if hidden is None:
            del sys.modules["yaml"]
        else:
            sys.modules["yaml"] = hidden
    vars(config)["_config_fname"] = ""
    return importlib.import_module("lakeplan.formats.kernels")


def is_worth_it(entries: int) -> bool:
    """Whether a run that reads so many entries is faster with compiled loops."""
    if entries >= WORTH_ENTRIES:
        return True
    return entries >= CACHED_WORTH_ENTRIES and any(_code_folder().rglob("*.nbi"))


@cache
def _code_folder() -> Path:
    """In the user's cache folder, if that is the user's alone; else one that ends with this process."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", ""), ".cache")
    if os.path.isabs(base) and not os.environ.get("CI"):
        folder = Path(base) / "lakeplan" / f"compiled-{sys.implementation.cache_tag}"
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            if is_own(folder):
                return folder
        except OSError:
            pass
    made = tempfile.mkdtemp(prefix="lakeplan-compiled-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def is_own(folder: Path) -> bool:
    """Whether a folder, and every folder above it, can be changed by this user and root alone."""
    for each in (folder, *folder.parents):
        status = os.lstat(each)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, os.geteuid()):
            return False
        sticky = status.st_mode & stat.S_ISVTX and each != folder
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            return False
    return stat.S_IMODE(os.lstat(folder).st_mode) & 0o077 == 0 and os.lstat(folder).st_uid == os.geteuid()


def handles_of(block: bytes) -> npt.NDArray[np.int64] | None:
    """Offsets and sizes in an inflated index block; None for what is not regular."""
    compiled = kernels()
    if compiled is None:
        return None
    found = np.empty((len(block) // 5 + 1, 2), np.int64)
    count = compiled.handles_in(np.frombuffer(block, np.uint8), len(block), found)
    return found[:count] if count > 0 else None


def decode(data: bytes, blocks: npt.NDArray[np.int64], count: int) -> tuple[RangeArrays, memoryview] | None:
    """The entries of a range's data ``blocks`` (offset, size), and the bytes whose SHA-256 is its id
    (but for its properties). None for what is not the shape that lakeFS writes, or where nothing is
    compiled."""
    compiled = kernels()
    if compiled is None or not blocks.size or count > min(limits.TABLE_RECORDS, len(data)):
        return None
    source = np.frombuffer(data, np.uint8)
    size = max(int(blocks[:, 1].sum()) * 2, 1 << 16)
    while True:
        body = _buffer(size)
        places = np.empty((4, count), np.int64)
        numbers = np.empty((3, count), np.int64)
        hashes = np.empty((2, count), np.uint64)
        status, records, used, plain = compiled.decode(
            source,
            _words(source),
            source.size,
            blocks,
            *_scratch(compiled.SLACK),
            body,
            _words(body),
            places,
            numbers,
            hashes,
        )
        if status == compiled.FULL and records:
            _grow(records)
        elif status == compiled.FULL and size <= limits.TABLE_BYTES + limits.TABLE_KEY_BYTES:
            size *= 2
        elif status != compiled.OK or records != count:
            return None
        else:
            break
    flags = numbers[2]
    arrays = RangeArrays(
        buffer=body,
        address_start=places[2],
        address_end=places[3],
        address_types=numbers[1],
        sizes=numbers[0],
        hashes=hashes[0],
        key_buffer=body,
        key_start=places[0],
        key_end=places[1],
        path_hashes=hashes[1],
        plain=bool(plain),
        flags=flags,
    )
    return arrays, body.data[:used]


def gathered(buffer: Bytes, start: Ints, ends: Ints) -> Bytes:
    """Spans of a buffer of ``decode`` one behind the other, up to ``ends``."""
    compiled = kernels()
    assert compiled is not None, "it decoded the buffer"
    size = int(ends[-1]) if ends.size else 0
    out = _buffer(size)
    compiled.gather(_words(buffer), start, ends, _words(out))
    return out[:size]


def _buffer(size: int) -> Bytes:
    return np.empty(size + 64, np.uint8)


def _words(buffer: Bytes) -> npt.NDArray[np.uint64]:
    """The little-endian word that begins at each byte."""
    return np.ndarray((buffer.size - 7,), "<u8", buffer, strides=(1,))


def _scratch(slack: int) -> tuple[Bytes, Any]:
    """Where this thread inflates blocks."""
    if not hasattr(_local, "scratch"):
        _grow(1 << 20)
    found: tuple[Bytes, Any] = _local.scratch
    return found


def _grow(size: int) -> None:
    buffer = _buffer(size)
    _local.scratch = buffer, _words(buffer)
