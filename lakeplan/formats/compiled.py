"""The compiled decoder of ranges, and where its machine code is kept.

Whoever can write to the folder of machine code can run code here. So it is in the user's cache folder, which
must be in no tree and writable by nobody else. In CI code is always compiled again, because pull requests
share the cache folders of a CI. numba would also read ``.numba_config.yaml`` in the current folder and
variables of the environment, which may name another cache. It is made to read neither.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import logging
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from lakeplan import limits
from lakeplan.formats.range_arrays import SLACK, Bytes, RangeArrays, words_of
from lakeplan.values.own_files import is_own, locked, user_folder

_log = logging.getLogger(__name__)

WORTH_ENTRIES = 2_000_000
"""With fewer entries in a run, compiling costs more than it saves."""
CACHED_WORTH_ENTRIES = 400_000
"""The same if the machine code is cached."""
BODY_RATIO = 8
"""Bytes reserved for records, for each byte of a file. Unused memory costs nothing."""
_LEAST_BODY = 1 << 16
MOST_BODY = limits.TABLE_BYTES + limits.TABLE_KEY_BYTES + 40 * limits.TABLE_RECORDS
_KERNELS = "lakeplan.formats.kernels"
_CHECKSUM = "checksum"
_CHECKED = "NUMBA_BOUNDSCHECK"
"""The only setting of numba that is respected. With it every index is checked, for tests."""
_TREE = ("lakeplan.yaml", ".git")
"""Pull requests can put files below a folder that has one of these."""
_local = threading.local()
_loading = threading.Lock()


def kernels() -> ModuleType | None:
    """The compiled loops, loaded or else compiled, which takes seconds. None if neither is possible."""
    with _loading:  # several threads may call it
        return _kernels()


@cache
def _kernels() -> ModuleType | None:
    folder = _code_folder()
    try:
        return _loaded(folder)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        _log.info("%s is not installed, so ranges are decoded with numpy", missing)
        return None
    except Exception as error:  # noqa: BLE001 - damaged files fail with anything
        _log.info("cannot use the compiled code in %s (%s); compiling it again", folder, _named(error))
    shutil.rmtree(folder, ignore_errors=True)
    try:
        return _loaded(_own_temporary())
    except Exception as error:  # noqa: BLE001 - numpy decodes as well, only slower
        _log.warning("numba does not work here (%s), so ranges are decoded with numpy", _named(error))
        return None


def _named(error: Exception) -> str:
    first = next(iter(f"{error}".splitlines()), "")
    return f"{type(error).__name__}: {first[:200]}"


def _loaded(folder: Path) -> ModuleType:
    sys.modules.pop(_KERNELS, None)
    for name in [name for name in os.environ if name.startswith("NUMBA_") and name != _CHECKED]:
        del os.environ[name]
    # Only this locator: if it cannot write, others would use folders that were not checked.
    os.environ |= {"NUMBA_CACHE_DIR": str(folder), "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    with _no_configuration_file():
        config = importlib.import_module("numba.core.config")
        vars(config)["_config_fname"] = ""
        config.reload_config()
        return _imported(folder)


def _imported(folder: Path) -> ModuleType:
    """The compiled loops, from the files in the folder if these are exactly those that were written. numba
    does not check its files, and with a single wrong bit machine code may give wrong answers."""
    was_whole = _is_whole(folder)
    with nullcontext() if was_whole else locked(folder / ".lock"):
        if not was_whole and not _is_whole(folder):  # else another process has just compiled it
            for file in _files(folder):
                _log.info("%s is damaged or incomplete; compiling it again", file)
                file.unlink()
        module = importlib.import_module(_KERNELS)
        if not _is_whole(folder):  # also if numba adds code for another processor
            (folder / _CHECKSUM).write_bytes(_checksum(folder))
    return module


def _is_whole(folder: Path) -> bool:
    kept = folder / _CHECKSUM
    return kept.exists() and kept.read_bytes() == _checksum(folder)


def _checksum(folder: Path) -> bytes:
    digests = (hashlib.sha256(file.read_bytes()).digest() for file in _files(folder))
    return hashlib.sha256(b"".join(digests)).digest()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nb?"))


@contextmanager
def _no_configuration_file() -> Iterator[None]:
    """Hides the YAML library from numba, which then warns about its file in the current folder and ignores
    it."""
    hidden = sys.modules.get("yaml")
    sys.modules["yaml"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if hidden is None:
            del sys.modules["yaml"]
        else:
            sys.modules["yaml"] = hidden


def is_worth_it(entries: int) -> bool:
    """Whether a run that reads this many entries is faster with compiled loops."""
    if entries >= WORTH_ENTRIES:
        return True
    return entries >= CACHED_WORTH_ENTRIES and any(_code_folder().rglob("*.nbi"))


@cache
def _code_folder() -> Path:
    """The folder in the user's cache folder, if it is private, else a temporary one of this process."""
    folder, why = _kept_folder()
    if folder is not None:
        return folder
    _log.info("the compiled code is not kept for later runs: %s", why)
    return _own_temporary()


def _kept_folder() -> tuple[Path | None, str]:
    """The cached folder for these versions, or why there is none."""
    base = user_folder(os.environ, "CACHE")
    if os.environ.get("CI"):
        return None, "CI is set"
    if base is None:
        return None, "neither XDG_CACHE_HOME nor HOME is an absolute path"
    try:
        folder = Path(base, "lakeplan", f"compiled-{_versions()}").resolve()
        files = ((each, name) for each in folder.parents for name in _TREE)
        if tree := next((each for each, name in files if os.path.lexists(each / name)), None):
            return None, f"{folder} is in the tree {tree}"
        folder.mkdir(0o700, parents=True, exist_ok=True)
        if not is_own(folder):
            return None, f"other users can write to {folder}, or to one of its parent folders"
        with tempfile.TemporaryFile(dir=folder):
            return folder, ""
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        return None, f"{error}"


def _versions() -> str:
    """A digest of all versions that machine code depends on."""
    versions = [sys.version, os.environ.get(_CHECKED, "")]
    for name in ("lakeplan", "numba", "llvmlite", "numpy"):
        try:
            versions.append(version(name))
        except PackageNotFoundError:
            versions.append("")
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]


def _own_temporary() -> Path:
    made = tempfile.mkdtemp(prefix="lakeplan-compiled-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def handles_of(block: bytes) -> npt.NDArray[np.int64] | None:
    """Offsets and sizes in an inflated index block, or None if it is irregular."""
    compiled = kernels()
    if compiled is None:
        return None
    handles = np.empty((len(block) // 5 + 1, 2), np.int64)
    count = compiled.handles_in(read_only(block), len(block), handles)
    return handles[:count] if count > 0 else None


def decode(data: bytes, blocks: npt.NDArray[np.int64], count: int) -> tuple[RangeArrays, memoryview] | None:
    """The entries of a range's data ``blocks`` (offset, size), and the bytes whose SHA-256 is its id (without
    its properties). None for anything but the shape that lakeFS writes, or without compiled code."""
    compiled = kernels()
    if compiled is None or not blocks.size or count > min(limits.TABLE_RECORDS, len(data)):
        return None
    source = read_only(data)
    size = BODY_RATIO * int(blocks[:, 1].sum()) + _LEAST_BODY
    while True:
        body = _buffer(min(size, MOST_BODY))
        places = np.empty((4, count), np.int64)
        numbers = np.empty((3, count), np.int64)
        hashes = np.empty((2, count), np.uint64)
        status, records, used, plain = compiled.decode(
            (source, words_of(source)),
            source.size,
            blocks,
            (*_scratch(), body, words_of(body)),
            (places, numbers, hashes),
        )
        if status == compiled.FULL and records:
            _grow(records)
        elif status == compiled.FULL and size < MOST_BODY:
            size = min(4 * size, MOST_BODY)
        elif status != compiled.OK or records != count:
            return None
        else:
            break
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
        flags=numbers[2],
    )
    return arrays, body.data[:used]


def read_only(data: bytes) -> Bytes:
    """A read-only array of the bytes, as the compiled loops expect."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def _buffer(size: int) -> Bytes:
    return np.empty(size + SLACK, np.uint8)


def _scratch() -> tuple[Bytes, Any]:
    """The buffer in which this thread inflates blocks, and its words."""
    if not hasattr(_local, "scratch"):
        _grow(1 << 20)
    scratch: tuple[Bytes, Any] = _local.scratch
    return scratch


def _grow(size: int) -> None:
    buffer = _buffer(size)
    _local.scratch = buffer, words_of(buffer)
