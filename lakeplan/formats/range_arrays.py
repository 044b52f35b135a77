"""A range as numbers and places of texts: no Python object is made of an entry that nobody asks about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lakeplan.formats.hashing import Bytes, Hashes, Ints, hash_spans
from lakeplan.formats.namespace import DATA_PREFIX, is_candidate_key

_DATA = np.frombuffer(DATA_PREFIX.encode(), np.uint8)
_SLASH, _DOT = b"/."
_PAIRS = np.frombuffer(b"///.", np.uint16)


def _has_unusual_pair(buffer: Bytes) -> bool:
    """Whether a slash stands before a slash or a dot anywhere, two bytes at a time."""
    for first in (0, 1):
        pairs = buffer[first : buffer.size - (buffer.size - first) % 2].view(np.uint16)
        if any((pairs == pair).any() for pair in _PAIRS):
            return True
    return False


@dataclass(frozen=True)
class RangeArrays:
    """Columns of equal length, in ascending order of paths. ``buffer[address_start:address_end]`` is an
    address as stored, in UTF-8, and ``hashes`` are of it; ``sizes`` are bytes, ``keys`` the paths' bytes."""

    buffer: Bytes
    address_start: Ints
    address_end: Ints
    address_types: Ints
    sizes: Ints
    hashes: Hashes
    keys: list[bytes]

    def __len__(self) -> int:
        return int(self.sizes.size)

    def addresses(self, rows: Ints) -> list[str]:
        data = self.buffer.data
        spans = zip(self.address_start[rows].tolist(), self.address_end[rows].tolist(), strict=True)
        return [str(data[start:end], "utf-8") for start, end in spans]

    def paths(self, rows: Ints) -> list[str]:
        """Bytes that are not UTF-8 show as ``\\xNN``."""
        return [self.keys[row].decode(errors="backslashreplace") for row in rows.tolist()]

    @cached_property
    def unusual(self) -> npt.NDArray[np.bool_]:
        """Where the address as stored is not certainly a key that means itself (``addresses.is_usual_key``):
        a superset, found without making texts."""
        found = np.zeros(len(self), np.bool_)
        rows = np.flatnonzero(self.address_end > self.address_start)
        buffer, start, end = self.buffer, self.address_start[rows], self.address_end[rows]
        found[rows] = (buffer[start] == _SLASH) | (buffer[start] == _DOT) | (buffer[end - 1] == _SLASH)
        if not _has_unusual_pair(buffer):  # most ranges
            return found
        at = np.flatnonzero(buffer[:-1] == _SLASH)
        at = at[(buffer[at + 1] == _SLASH) | (buffer[at + 1] == _DOT)]
        if at.size and rows.size:  # addresses are in the buffer in the order of rows
            of = np.searchsorted(start, at, side="right") - 1
            found[rows[of[(of >= 0) & (at < end[of])]]] = True
        return found

    def candidates(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """``namespace.is_candidate_key`` of the addresses as stored."""
        start, end = self.address_start[rows], self.address_end[rows]
        below: npt.NDArray[np.bool_] = end - start > _DATA.size
        for at, byte in enumerate(_DATA):
            below &= self.buffer[start + at] == byte
        # a folder named by dots alone makes no candidate
        others = np.flatnonzero(~below | self.unusual[rows])
        if others.size:
            below[others] = [is_candidate_key(text) for text in self.addresses(rows[others])]
        return below


def arrays_of(
    paths: Sequence[str], addresses: Sequence[str], address_types: Sequence[int], sizes: Sequence[int]
) -> RangeArrays:
    """The same from texts, for ranges that were read entry by entry."""
    encoded = [address.encode() for address in addresses]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), dtype=np.int64)
    buffer = np.frombuffer(b"".join((*encoded, bytes(64))), np.uint8)
    starts = np.concatenate((np.zeros(1, np.int64), ends))[:-1]
    types, amounts = np.array(address_types, dtype=np.int64), np.array(sizes, dtype=np.int64)
    hashes, _ = hash_spans(buffer, starts, ends)
    return RangeArrays(buffer, starts, ends, types, amounts, hashes, [path.encode() for path in paths])
