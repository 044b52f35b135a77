"""What is stored as columns, and what of it may be garbage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.formats.hashing import WORD, Hashes, Ints, hash_spans
from lakeplan.formats.namespace import DATA_PREFIX, METADATA_PREFIX, check_not_nested, is_candidate_key
from lakeplan.model.objects import StoredObject
from lakeplan.ports.storage import ColumnReader, NamespaceReader, StoredColumns

AT_ONCE = 1 << 16
"""Listed objects that become rows together, at least where there are so many."""


def list_stored(
    reader: NamespaceReader, prefix: str = "", *, recursive: bool = True
) -> Iterator[StoredColumns]:
    """``list_objects`` as columns, ``AT_ONCE`` rows and more at a time."""
    if not isinstance(reader, ColumnReader):
        objects = reader.list_objects(prefix, recursive=recursive)
        while some := list(islice(objects, AT_ONCE)):
            yield columns_of(some)
        return
    waiting: list[StoredColumns] = []
    for columns in reader.list_columns(prefix, recursive=recursive):
        waiting.append(columns)
        if sum(map(len, waiting)) >= AT_ONCE:
            yield joined(waiting)
            waiting = []
    if waiting:
        yield joined(waiting)


def columns_of(objects: Iterable[StoredObject]) -> StoredColumns:
    some = list(objects)
    return StoredColumns(
        pa.array([stored.key.encode(errors="surrogateescape") for stored in some], pa.binary()),
        np.array([stored.size for stored in some], np.int64),
        np.array([stored.modified_us for stored in some], np.int64),
        pa.array([stored.e_tag for stored in some], pa.string()),
    )


def joined(columns: list[StoredColumns]) -> StoredColumns:
    return StoredColumns(
        pa.concat_arrays([one.keys for one in columns]),
        np.concatenate([one.sizes for one in columns]),
        np.concatenate([one.modified_us for one in columns]),
        pa.concat_arrays([one.e_tags for one in columns]),
    )


def chosen(columns: StoredColumns, mask: npt.NDArray[np.bool_]) -> StoredColumns:
    """The rows of a mask."""
    if mask.all():
        return columns
    rows = pa.array(mask)
    return StoredColumns(
        columns.keys.filter(rows),
        columns.sizes[mask],
        columns.modified_us[mask],
        columns.e_tags.filter(rows),
    )


def candidates(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """``namespace.is_candidate_key`` of each."""
    below = pc.and_(
        pc.starts_with(keys, DATA_PREFIX.encode()),
        pc.greater(pc.binary_length(keys), len(DATA_PREFIX)),
    )
    # A folder named by dots alone makes no candidate.
    plain = pc.and_not(below, pc.match_substring(keys, b"/."))
    found: npt.NDArray[np.bool_] = np.array(plain.to_numpy(zero_copy_only=False))
    others = np.flatnonzero(~found)
    found[others] = [is_candidate_key(key) for key in _texts(keys.take(others))]
    return found


def check_none_nested(keys: pa.Array) -> None:
    """``namespace.check_not_nested`` of each."""
    for key in _texts(keys.filter(pc.match_substring(keys, f"/{METADATA_PREFIX}".encode()))):
        check_not_nested(key)


def is_text(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each key is UTF-8."""
    try:
        keys.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([_is_utf8(key) for key in keys.to_pylist()], np.bool_)
    return np.ones(len(keys), np.bool_)


def strings_of(keys: pa.Array) -> pa.Array:
    """Keys as text that Arrow takes, always the same; bytes that are not UTF-8 show as ``\\xNN``."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="backslashreplace") for key in keys.to_pylist()], pa.string())


def hash_strings(strings: pa.Array) -> Hashes:
    """``hashing.hash_texts``."""
    if not len(strings):
        return np.zeros(0, np.uint64)
    _, offsets, data = strings.buffers()
    ends: Ints = np.frombuffer(offsets, np.int32)[strings.offset :][: len(strings) + 1].astype(np.int64)
    buffer = np.zeros(ends[-1] + WORD, np.uint8)
    buffer[: ends[-1]] = np.frombuffer(data or b"", np.uint8)[: ends[-1]]
    return hash_spans(buffer, ends[:-1], ends[1:])[0]


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _texts(keys: pa.Array) -> list[str]:
    return [key.decode(errors="surrogateescape") for key in keys.to_pylist()]
