"""What was computed of ranges, kept in a cache: of a range alone, and of the versions of a region together.

A range's id says what it holds, but not what its full addresses mean: that hangs on the namespace, which is
part of an entry's key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan import limits
from lakeplan.formats.addresses import prefix_of
from lakeplan.ports.range_cache import RangeCache
from lakeplan.simulation.addresses import Addresses
from lakeplan.simulation.digests import Digest
from lakeplan.simulation.groups import Group, Shared

FORMAT = b"lakeplan range 5\n"
"""Changes with anything that is computed: hashes, what a candidate is, how addresses are compared."""
TEXTS = pa.schema(
    [
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
    ]
)
"""Of one range, the rows that neighbours did not keep once, with what tells them apart."""
_CHECK_BYTES = 16
_ID_BYTES = 32
_SHARED = "all"
_TEXT_COLUMNS = ("address", "path")
_CODEC = "lz4"
_LARGEST_RATIO = 256
"""Of LZ4."""
_SIZE_BYTES = 8
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class DigestCache:
    """For one namespace. ``namespace`` is ``namespace_key`` of it. Every getter gives None for what is not
    there, or is not what was put there."""

    cache: RangeCache
    namespace: str

    def digest(self, range_id: str) -> Digest | None:
        data = self._get(range_id, "numbers")
        if data is None or len(data) % 17:
            return None
        rows = len(data) // 17
        return Digest(
            _column(data, np.uint64, rows, 0),
            _column(data, np.int64, rows, 8 * rows),
            _column(data, np.uint8, rows, 16 * rows),
        )

    def put_digest(self, range_id: str, digest: Digest) -> None:
        self._put(range_id, "numbers", [digest.hashes, digest.sizes, digest.seen])

    def texts(self, range_id: str) -> pa.Table | None:
        """``TEXTS`` of those rows that were put there."""
        data = self._get(range_id, "texts")
        return None if data is None else _table_of(data)

    def put_texts(self, range_id: str, texts: pa.Table) -> None:
        plain = _plain_of(texts)
        packed = np.frombuffer(pa.compress(plain, codec=_CODEC), np.uint8)
        self._put(range_id, "texts", [np.array([len(plain)]), packed])

    def group(self, range_ids: Sequence[str]) -> Group | None:
        data = self._get(group_id(range_ids), "group")
        if data is None or len(data) < 16:
            return None
        rows, kinds = np.frombuffer(data, "<i8", 2).tolist()
        width = np.dtype(_index_type(kinds)).itemsize
        if rows < 0 or kinds < 0 or len(data) != 16 + rows * (16 + width) + kinds * 8:
            return None
        return Group(
            _column(data, np.uint64, rows, 16),
            _column(data, np.int64, rows, 16 + 8 * rows),
            _column(data, _index_type(kinds), rows, 16 + 16 * rows),
            _column(data, np.uint64, kinds, 16 + (16 + width) * rows),
        )

    def put_group(self, range_ids: Sequence[str], group: Group) -> None:
        index = group.index.astype(_index_type(group.held.size))
        head = np.array([len(group), group.held.size])
        self._put(group_id(range_ids), "group", [head, group.hashes, group.sizes, index, group.held])

    def shared(self) -> Shared | None:
        data = self._get(_SHARED, "shared")
        if data is None or len(data) < 8:
            return None
        groups = int.from_bytes(data[:8], "little")
        ends = 8 + groups * _ID_BYTES
        if len(data) < ends or (len(data) - ends) % 8:
            return None
        ids = frozenset(data[at : at + _ID_BYTES].hex() for at in range(8, ends, _ID_BYTES))
        return Shared(ids, _column(data, np.uint64, (len(data) - ends) // 8, ends))

    def put_shared(self, shared: Shared) -> None:
        """In place of what was known: of the groups of the last run."""
        ids = np.frombuffer(bytes.fromhex("".join(sorted(shared.groups))), np.uint8)
        self._put(_SHARED, "shared", [np.array([len(shared.groups)]), ids, shared.hashes])

    def _get(self, id: str, kind: str) -> memoryview | None:
        data = self.cache.get(self._key(id, kind))
        if data is None or len(data) < _CHECK_BYTES:
            return None
        body = memoryview(data)[_CHECK_BYTES:]
        return body if data[:_CHECK_BYTES] == self._check(id, kind, [body]) else None

    def _put(self, id: str, kind: str, columns: Sequence[npt.NDArray[np.generic]]) -> None:
        # caches are shared between machines
        parts = [column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes() for column in columns]
        self.cache.put(self._key(id, kind), b"".join([self._check(id, kind, parts), *parts]))

    def _key(self, id: str, kind: str) -> str:
        return f"{self.namespace}/{id[:2]}/{id}.{kind}"

    def _check(self, id: str, kind: str, parts: Sequence[bytes | memoryview]) -> bytes:
        """Of what it is as well as of what it holds: a file under another's name is damaged too."""
        digest = hashlib.blake2b(FORMAT, digest_size=_CHECK_BYTES)
        digest.update(f"{self.namespace}/{id}.{kind}\n".encode())
        for part in parts:
            digest.update(part)
        return digest.digest()


def _plain_of(texts: pa.Table) -> bytes:
    """How many rows; their hashes; of each text column where its texts end; the texts of each."""
    rows = texts.num_rows
    ends, joined = [], []
    for column in (texts[name].combine_chunks() for name in _TEXT_COLUMNS):
        ends.append(np.concatenate([[0], np.cumsum(pc.binary_length(column).to_numpy())]).astype("<i4"))
        joined.append(pc.binary_join(pa.ListArray.from_arrays([0, rows], column), "")[0].as_py().encode())
    numbers = [np.array([rows], "<i8"), texts["hash"].to_numpy().astype("<u8"), *ends]
    return b"".join([*(column.tobytes() for column in numbers), *joined])


def _table_of(data: memoryview) -> pa.Table | None:
    """``TEXTS`` out of a cache, which anybody may have written: None for what would not fit in memory, or is
    no such table. It is no Arrow stream, because those say themselves how large they become."""
    if len(data) < _SIZE_BYTES:
        return None
    size = int.from_bytes(data[:_SIZE_BYTES], "little")
    packed = data[_SIZE_BYTES:]
    if not _SIZE_BYTES <= size <= min(limits.PARQUET_UNPACKED_BYTES, _LARGEST_RATIO * len(packed)):
        return None
    try:
        plain = pa.decompress(packed, size, codec=_CODEC)
        rows = int.from_bytes(plain[:_SIZE_BYTES].to_pybytes(), "little")
        columns = [pa.Array.from_buffers(pa.uint64(), rows, [None, plain.slice(_SIZE_BYTES, 8 * rows)])]
        ends_at = _SIZE_BYTES + 8 * rows
        at = ends_at + len(_TEXT_COLUMNS) * 4 * (rows + 1)
        for number in range(len(_TEXT_COLUMNS)):
            ends = plain.slice(ends_at + number * 4 * (rows + 1), 4 * (rows + 1))
            length = int(np.frombuffer(ends, "<i4")[rows])
            columns.append(pa.Array.from_buffers(pa.string(), rows, [None, ends, plain.slice(at, length)]))
            at += length
        table = pa.Table.from_arrays(columns, schema=TEXTS)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, IndexError, OverflowError):
        return None
    return table if at == size else None


def _column(data: memoryview, kind: type[Number], rows: int, at: int) -> npt.NDArray[Number]:
    if not rows:  # numpy takes no empty buffer
        return np.zeros(0, kind)
    found: npt.NDArray[Number] = np.frombuffer(data, np.dtype(kind).newbyteorder("<"), rows, at)
    return found


def _index_type(kinds: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if kinds <= 1 << 8 else np.uint16 if kinds <= 1 << 16 else np.uint32


def group_id(range_ids: Sequence[str]) -> str:
    """Of a group with these versions in this order: a version's bit is its position."""
    return hashlib.sha256(json.dumps(list(range_ids)).encode()).hexdigest()


@contextmanager
def trimmed(cache: RangeCache | None) -> Iterator[None]:
    """Keeps the cache to its size at the end of a run, however it ends."""
    try:
        yield
    finally:
        if cache is not None:
            cache.trim()


def namespace_key(addresses: Addresses) -> str:
    """Two namespaces have the same only if every address means the same in both."""
    urls = dict.fromkeys(prefix_of(url) for url in addresses.namespaces)
    described = json.dumps([FORMAT.decode(), *urls])
    return hashlib.sha256(described.encode()).hexdigest()[:32]
