"""What a simulation takes of a range: an address's hash, size and kind a row; texts for those who ask.

Both can be kept in a cache. A range's id says what it holds, but not what its full addresses mean: that hangs
on the namespace, which is part of a cached entry's key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeplan.formats.hashing import Bytes, Hashes, Ints, hash_texts
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.formats.range_arrays import RangeArrays
from lakeplan.model.objects import AddressType
from lakeplan.ports.range_cache import RangeCache
from lakeplan.simulation.addresses import Addresses
from lakeplan.simulation.seen import Seen

FORMAT = b"lakeplan range 1\n"
"""Changes with anything that is computed: hashes, what a candidate is, how addresses are compared."""
_CHECK_BYTES = 16
_PLAIN, _CANDIDATE = int(Seen.ENTRY), int(Seen.ENTRY | Seen.CANDIDATE)
_TEXTS = pa.schema(
    [
        pa.field("row", pa.int64(), False),
        pa.field("address", pa.string(), False),
        pa.field("path", pa.string(), False),
    ]
)


@dataclass(frozen=True)
class Digest:
    """One row for each entry inside the namespace, and for each alias. ``seen`` are bits of ``Seen``."""

    hashes: Hashes
    sizes: Ints
    seen: Bytes

    def __len__(self) -> int:
        return int(self.hashes.size)


Texts = Callable[[Ints], tuple[pa.Array, pa.Array]]
"""Addresses (relative to the namespace) and paths of some rows of a digest."""


def digest_of(arrays: RangeArrays, addresses: Addresses) -> tuple[Digest, Texts]:
    """Of a range as it was read."""
    relative = arrays.address_types == AddressType.RELATIVE
    rows = np.flatnonzero(relative)
    seen = np.where(arrays.candidates(rows), _CANDIDATE, _PLAIN).astype(np.uint8)
    if relative.all():
        return Digest(arrays.hashes, arrays.sizes, seen), _texts_of(arrays, rows, {})
    others = np.flatnonzero(~relative)
    texts: list[str] = []
    of: list[int] = []
    kinds: list[int] = []
    for row, text in zip(others.tolist(), arrays.addresses(others), strict=True):
        inside = addresses.inside(text, int(arrays.address_types[row]))
        found = [inside] if inside is not None else addresses.aliases(text)
        for key in found:
            texts.append(key)
            of.append(row)
            if inside is None:
                kinds.append(int(Seen.ALIAS))
            else:
                kinds.append(_CANDIDATE if is_candidate_key(key) else _PLAIN)
    named = dict(enumerate(texts, rows.size))
    all_rows = np.concatenate((rows, np.array(of, dtype=np.int64)))
    digest = Digest(
        np.concatenate((arrays.hashes[rows], hash_texts(texts))),
        arrays.sizes[all_rows],
        np.concatenate((seen, np.array(kinds, dtype=np.uint8))),
    )
    return digest, _texts_of(arrays, all_rows, named)


def _texts_of(arrays: RangeArrays, rows: Ints, named: dict[int, str]) -> Texts:
    """``rows`` are entries by row of the digest; ``named``, rows whose address is not as it is stored."""

    def texts(wanted: Ints) -> tuple[pa.Array, pa.Array]:
        addresses = arrays.addresses(rows[wanted])
        if named:
            addresses = [named.get(n, text) for n, text in zip(wanted.tolist(), addresses, strict=True)]
        return pa.array(addresses, pa.string()), pa.array(arrays.paths(rows[wanted]), pa.string())

    return texts


@dataclass(frozen=True)
class CachedTexts:
    data: bytes

    def of(self, wanted: Ints) -> tuple[pa.Array, pa.Array] | None:
        """Addresses and paths of rows (ascending); None when some of them were not kept."""
        table = pa.ipc.open_stream(self.data).read_all()
        rows = table["row"].to_numpy()
        if not rows.size:
            return None
        places = np.minimum(np.searchsorted(rows, wanted), rows.size - 1)
        if (rows[places] != wanted).any():
            return None
        some = table.take(pa.array(places))
        return some["address"].combine_chunks(), some["path"].combine_chunks()


@dataclass(frozen=True)
class DigestCache:
    """Digests of one namespace's ranges. ``namespace`` is ``namespace_key`` of it."""

    cache: RangeCache
    namespace: str

    def digest(self, range_id: str) -> Digest | None:
        """None for what is not there, or is not what was put there."""
        data = self._get(range_id, "numbers")
        if data is None or len(data) % 17:
            return None
        rows = len(data) // 17
        if not rows:  # numpy takes no empty buffer
            return Digest(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.uint8))
        return Digest(
            np.frombuffer(data, "<u8", rows),
            np.frombuffer(data, "<i8", rows, 8 * rows),
            np.frombuffer(data, np.uint8, rows, 16 * rows),
        )

    def put_digest(self, range_id: str, digest: Digest) -> None:
        columns: tuple[npt.NDArray[np.generic], ...] = (
            digest.hashes.astype("<u8"),
            digest.sizes.astype("<i8"),
            digest.seen,
        )
        self._put(range_id, "numbers", b"".join(column.tobytes() for column in columns))

    def texts(self, range_id: str) -> CachedTexts | None:
        """Those that were put there."""
        data = self._get(range_id, "texts")
        return None if data is None else CachedTexts(data)

    def put_texts(self, range_id: str, rows: Ints, addresses: pa.Array, paths: pa.Array) -> None:
        """``rows`` ascend: a range's rows that neighbours do not keep, which are few of it."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        batch = pa.RecordBatch.from_arrays([pa.array(rows, pa.int64()), addresses, paths], schema=_TEXTS)
        with pa.ipc.new_stream(sink, _TEXTS, options=options) as stream:
            stream.write_batch(batch)
        self._put(range_id, "texts", sink.getvalue().to_pybytes())

    def _get(self, range_id: str, kind: str) -> bytes | None:
        data = self.cache.get(self._key(range_id, kind))
        if data is None or len(data) < _CHECK_BYTES:
            return None
        body = data[_CHECK_BYTES:]
        return body if data[:_CHECK_BYTES] == self._check(range_id, kind, body) else None

    def _put(self, range_id: str, kind: str, body: bytes) -> None:
        self.cache.put(self._key(range_id, kind), self._check(range_id, kind, body) + body)

    def _key(self, range_id: str, kind: str) -> str:
        return f"{self.namespace}/{range_id[:2]}/{range_id}.{kind}"

    def _check(self, range_id: str, kind: str, body: bytes) -> bytes:
        """Of what it is as well as of what it holds: a file under another's name is damaged too."""
        digest = hashlib.blake2b(FORMAT, digest_size=_CHECK_BYTES)
        digest.update(f"{self.namespace}/{range_id}.{kind}\n".encode())
        digest.update(body)
        return digest.digest()


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
    described = json.dumps([FORMAT.decode(), *addresses.namespaces, {"alias": addresses.alias_base}])
    return hashlib.sha256(described.encode()).hexdigest()[:32]
