"""Entries of a range as columns, their 64-bit hashes, and those that may refer to an object elsewhere."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lakeplan.formats.namespace import DATA_PREFIX, is_candidate_key
from lakeplan.values.repository import AddressType

if TYPE_CHECKING:
    import pyarrow as pa


Bytes: TypeAlias = npt.NDArray[np.uint8]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]
WORD = 8
"""Bytes that must follow the last span in a buffer."""
_SEED, _FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(32)
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(WORD + 1)], dtype=np.uint64)
_HIGH_BITS = np.uint64(0x8080808080808080)


def hash_spans(buffer: Bytes, start: Ints, end: Ints) -> tuple[Hashes, bool]:
    """Hashes of ``buffer[start:end]`` for each row, and whether all these bytes are ASCII."""
    length = end - start
    words = (length + (WORD - 1)) // WORD
    counts = np.unique(words).tolist()
    if len(counts) == 1:
        return _hash(buffer, start, length, counts[0])
    hashes, ascii_only = np.zeros(length.size, np.uint64), True
    for count in counts:
        rows = np.flatnonzero(words == count)
        hashes[rows], plain = _hash(buffer, start[rows], length[rows], count)
        ascii_only &= plain
    return hashes, ascii_only


def hash_texts(texts: Sequence[str]) -> Hashes:
    """The hashes of texts, as UTF-8."""
    return hash_spans(*joined([text.encode() for text in texts]))[0]


def _hash(buffer: Bytes, start: Ints, length: Ints, count: int) -> tuple[Hashes, bool]:
    """The hashes of ``hash_spans`` for spans of ``count`` words each, of which the last may be short."""
    hashes: Hashes = (_SEED ^ length.astype(np.uint64)) * _FACTOR
    all_words = np.zeros(length.size, np.uint64)
    words = words_of(buffer)
    for word in range(count):
        value = words[start + word * WORD]
        if word == count - 1:
            value &= _MASKS[length - word * WORD]
        all_words |= value
        hashes ^= value
        hashes *= _FACTOR
        hashes ^= hashes >> _SHIFT
    hashes *= _SEED
    hashes ^= hashes >> _SHIFT
    return hashes, not (np.bitwise_or.reduce(all_words) & _HIGH_BITS)


def words_of(buffer: Bytes) -> Hashes:
    """The little-endian word that begins at each byte."""
    words: Hashes = np.ndarray((buffer.size - WORD + 1,), dtype="<u8", buffer=buffer, strides=(1,))
    return words


_DATA = np.frombuffer(DATA_PREFIX.encode(), np.uint8)
_SLASH, _DOT = b"/."
SLACK = 64
"""Bytes after the last text of a buffer, so that whole words can be read."""
_PAIRS = np.frombuffer(b"///.", np.uint16)


def _has_unusual_pair(buffer: Bytes) -> bool:
    """Whether a slash precedes a slash or a dot anywhere in the buffer."""
    for first in (0, 1):
        pairs = buffer[first : buffer.size - (buffer.size - first) % 2].view(np.uint16)
        if any((pairs == pair).any() for pair in _PAIRS):
            return True
    return False


@dataclass(frozen=True)
class RangeArrays:
    """Columns of equal length, in ascending order of paths. ``buffer[address_start:address_end]`` is an
    address as stored, in UTF-8, and ``hashes`` are of it. ``key_buffer[key_start:key_end]`` is a path's
    bytes, with ``path_hashes`` of them. ``sizes`` are bytes. ``plain``: all paths and addresses are ASCII."""

    buffer: Bytes
    address_start: Ints
    address_end: Ints
    address_types: Ints
    sizes: Ints
    hashes: Hashes
    key_buffer: Bytes
    key_start: Ints
    key_end: Ints
    path_hashes: Hashes
    plain: bool
    flags: Ints | None = None
    """What compiled code found (``kernels``), for ``candidates`` and ``unusual``."""

    def __len__(self) -> int:
        return int(self.sizes.size)

    def addresses(self, rows: Ints) -> list[str]:
        data = self.buffer.data
        spans = zip(self.address_start[rows].tolist(), self.address_end[rows].tolist(), strict=True)
        return [str(data[start:end], "utf-8") for start, end in spans]

    def paths(self, rows: Ints) -> list[str]:
        """The paths of rows. Bytes that are not UTF-8 become ``\\xNN``."""
        data = self.key_buffer.data
        spans = zip(self.key_start[rows].tolist(), self.key_end[rows].tolist(), strict=True)
        return [str(data[start:end], "utf-8", "backslashreplace") for start, end in spans]

    def paths_begin(self, rows: Ints, prefixes: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Whether each row's path, as ``paths`` shows it, begins with one of the prefixes."""
        if not self.plain:
            return np.array([path.startswith(prefixes) for path in self.paths(rows)], np.bool_)
        begins = np.zeros(rows.size, np.bool_)
        start, length = self.key_start[rows], self.key_end[rows] - self.key_start[rows]
        for prefix in prefixes:
            expected = prefix.encode(errors="surrogatepass")
            matching = np.flatnonzero(length >= len(expected))
            for at, byte in enumerate(expected):
                matching = matching[self.key_buffer[start[matching] + at] == byte]
            begins[matching] = True
        return begins

    def texts(self, rows: Ints) -> tuple[pa.Array, pa.Array]:
        """Addresses as stored and paths, as Arrow strings."""
        import pyarrow as pa  # few readers of formats need it

        if not self.plain:
            return pa.array(self.addresses(rows), pa.string()), pa.array(self.paths(rows), pa.string())
        return (
            _strings(self.buffer, self.address_start[rows], self.address_end[rows]),
            _strings(self.key_buffer, self.key_start[rows], self.key_end[rows]),
        )

    @cached_property
    def unusual(self) -> npt.NDArray[np.bool_]:
        """Rows whose stored address may not be a usual key (``namespace.is_usual_key``): a superset, computed
        without making texts."""
        if self.flags is not None:
            odd: npt.NDArray[np.bool_] = (self.flags & 2) != 0
            return odd
        flags = np.zeros(len(self), np.bool_)
        rows = np.flatnonzero(self.address_end > self.address_start)
        buffer, start, end = self.buffer, self.address_start[rows], self.address_end[rows]
        flags[rows] = (buffer[start] == _SLASH) | (buffer[start] == _DOT) | (buffer[end - 1] == _SLASH)
        if not _has_unusual_pair(buffer):  # most ranges
            return flags
        at = np.flatnonzero(buffer[:-1] == _SLASH)
        at = at[(buffer[at + 1] == _SLASH) | (buffer[at + 1] == _DOT)]
        if at.size and rows.size:  # addresses are in the buffer in the order of rows
            of = np.searchsorted(start, at, side="right") - 1
            flags[rows[of[(of >= 0) & (at < end[of])]]] = True
        return flags

    def candidates(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """``namespace.is_candidate_key`` of the addresses as stored."""
        start, end = self.address_start[rows], self.address_end[rows]
        below: npt.NDArray[np.bool_] = end - start > _DATA.size
        if self.flags is not None:
            below = (self.flags[rows] & 1) != 0
        else:
            for at, byte in enumerate(_DATA):
                below &= self.buffer[start + at] == byte
        # A key with a segment of dots is no candidate.
        others = np.flatnonzero(~below | self.unusual[rows])
        if others.size:
            below[others] = [is_candidate_key(text) for text in self.addresses(rows[others])]
        return below


def _strings(buffer: Bytes, start: Ints, end: Ints) -> pa.Array:
    """Spans of ASCII as Arrow strings."""
    import pyarrow as pa

    offsets = np.zeros(start.size + 1, np.int32)
    np.cumsum(end - start, out=offsets[1:])
    index = np.arange(offsets[-1], dtype=np.int64)
    index += np.repeat(start - offsets[:-1], end - start)
    return pa.StringArray.from_buffers(start.size, pa.py_buffer(offsets), pa.py_buffer(buffer[index]))


def joined(texts: Sequence[bytes]) -> tuple[Bytes, Ints, Ints]:
    """Texts joined in a buffer, with the start and end of each."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), dtype=np.int64)
    buffer = np.frombuffer(b"".join((*texts, bytes(SLACK))), np.uint8)
    return buffer, np.concatenate((np.zeros(1, np.int64), ends))[:-1], ends


def arrays_of(
    keys: Sequence[bytes], addresses: tuple[Bytes, Ints, Ints], address_types: Ints, sizes: Ints
) -> tuple[RangeArrays, bool]:
    """The arrays of entries, given the bytes of their paths, the positions of addresses in a buffer, and
    whether all addresses are ASCII."""
    hashes, ascii_only = hash_spans(*addresses)
    key_places = joined(keys)
    path_hashes, plain = hash_spans(*key_places)
    both = plain and ascii_only
    return RangeArrays(
        *addresses, address_types, sizes, hashes, *key_places, path_hashes, plain=both
    ), ascii_only


Odd = tuple[str, int]
"""An address as it is stored, and its type."""


def odd_entries(arrays: RangeArrays) -> list[Odd]:
    """The distinct addresses, sorted, except relative ones in a usual spelling."""
    rows = np.flatnonzero((arrays.address_types != AddressType.RELATIVE) | arrays.unusual)
    types = arrays.address_types[rows].tolist()
    return sorted(set(zip(arrays.addresses(rows), types, strict=True)))


def pack_odd(entries: Sequence[Odd]) -> bytes:
    """The entries as bytes, which are empty for no entries."""
    return zlib.compress(json.dumps(entries, separators=(",", ":")).encode(), 1) if entries else b""


def unpack_odd(data: bytes) -> list[Odd]:
    """The entries that ``pack_odd`` packed. Raises ValueError for empty bytes."""
    if not data:
        raise ValueError("no packed entries")
    return [(address, kind) for address, kind in json.loads(zlib.decompress(data))]
