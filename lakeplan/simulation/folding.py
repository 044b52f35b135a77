"""Sightings of addresses as columns of numbers, and rows of one address folded into one.

A row is a 64-bit hash of an address, bytes, and the number of a *class* (where it was seen, verdict bits,
holders). Two addresses with one hash are taken for one object that has the verdicts of both, which keeps it
if either is kept: a hash can keep an object, never delete one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lakeplan.formats.hashing import Hashes, Ints

Booleans = npt.NDArray[np.bool_]
STORED = 1 << 62
"""Bit of a size that the storage told: it wins over what entries say. No object has so many bytes."""


class Class(NamedTuple):
    """``seen`` are bits of ``Seen``; ``holders`` numbers of sets of branches or tags."""

    seen: int
    mask: int = 0
    alias_mask: int = 0
    holders: frozenset[int] = frozenset()

    @property
    def any_mask(self) -> int:
        return self.mask | self.alias_mask

    def __or__(self, other: Class) -> Class:
        return Class(
            self.seen | other.seen,
            self.mask | other.mask,
            self.alias_mask | other.alias_mask,
            self.holders | other.holders,
        )


class Classes:
    """Classes by number. There are few of them however many objects there are."""

    def __init__(self, known: Iterable[Class] = ()) -> None:
        self._numbers: dict[Class, int] = {}
        self._joined: dict[tuple[int, int], int] = {}
        self.all: list[Class] = []
        for each in known:
            self.number(each)

    def number(self, each: Class) -> int:
        number = self._numbers.setdefault(each, len(self.all))
        if number == len(self.all):
            self.all.append(each)
        return number

    def join(self, left: Ints, right: Ints) -> Ints:
        """Row by row, the number of the class that is both."""
        pairs, places = np.unique(left << 32 | right, return_inverse=True)
        numbers = [self._join(pair >> 32, pair & 0xFFFFFFFF) for pair in pairs.tolist()]
        joined: Ints = np.array(numbers, dtype=np.int64)[places]
        return joined

    def _join(self, left: int, right: int) -> int:
        found = self._joined.get((left, right))
        if found is None:
            found = self._joined[left, right] = self.number(self.all[left] | self.all[right])
        return found


@dataclass(frozen=True)
class Rows:
    """Columns of equal length. ``numbers`` are of classes."""

    hashes: Hashes
    sizes: Ints
    numbers: Ints

    def __len__(self) -> int:
        return int(self.hashes.size)

    def part(self, rows: slice | Ints | Booleans) -> Rows:
        return Rows(self.hashes[rows], self.sizes[rows], self.numbers[rows])


def concat(parts: Sequence[Rows]) -> Rows:
    return Rows(
        np.concatenate([part.hashes for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.numbers for part in parts]),
    )


def in_order(hashes: Hashes) -> Ints:
    """Positions that put them into ascending order.

    numpy sorts numbers several times faster than positions by numbers, so each position takes the place of a
    hash's low bits, of which few are needed to tell hashes apart.
    """
    low = np.uint64((1 << max(hashes.size - 1, 1).bit_length()) - 1)
    keys = hashes & ~low
    keys |= np.arange(hashes.size, dtype=np.uint64)
    keys.sort()
    keys &= low
    order: Ints = keys.astype(np.int64)
    sorted_hashes = hashes[order]
    if (sorted_hashes[1:] < sorted_hashes[:-1]).any():
        # some differ in their low bits alone; what is nearly in order is sorted quickly
        order = order[np.argsort(sorted_hashes, kind="stable")]
    return order


def places_in(ascending: Hashes, hashes: Hashes) -> tuple[Ints, Booleans]:
    """For each of some hashes a place, and whether the same hash stands there."""
    if not ascending.size:
        return np.zeros(hashes.size, np.int64), np.zeros(hashes.size, np.bool_)
    places = np.minimum(np.searchsorted(ascending, hashes), ascending.size - 1)
    return places, ascending[places] == hashes


def starts_of(ascending: Hashes) -> Ints:
    """Where another hash begins."""
    starts: Ints = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), ascending[1:] != ascending[:-1])))
    return starts


def twice(hashes: Hashes) -> Hashes:
    """Those that are there more than once, ascending."""
    ascending = np.sort(hashes)
    return np.unique(ascending[1:][ascending[1:] == ascending[:-1]])


def fold(rows: Rows, classes: Classes) -> Rows:
    """One row a hash, in ascending order of them: greatest size, classes joined."""
    if not len(rows):
        return rows
    order = in_order(rows.hashes)
    hashes, numbers = rows.hashes[order], rows.numbers[order]
    starts = starts_of(hashes)
    if starts.size == hashes.size:
        return Rows(hashes, rows.sizes[order], numbers)
    found = numbers[starts]
    counts = np.diff(starts, append=hashes.size)
    step, more = 1, np.flatnonzero(counts > 1)
    while more.size:
        others = numbers[starts[more] + step]
        differ = found[more] != others
        which = more[differ]
        if which.size:
            found[which] = classes.join(found[which], others[differ])
        step += 1
        more = more[counts[more] > step]
    return Rows(hashes[starts], np.maximum.reduceat(rows.sizes[order], starts), found)


def pack_rows(rows: Rows, classes: Classes) -> bytes:
    """For the way to another worker."""
    used = np.flatnonzero(np.bincount(rows.numbers, minlength=1))
    places = np.zeros(len(classes.all), np.int32)
    places[used] = np.arange(used.size)
    numbers = places[rows.numbers]
    table = [[c.seen, c.mask, c.alias_mask, sorted(c.holders)] for c in map(classes.all.__getitem__, used)]
    described = json.dumps(table).encode()
    head = np.array([len(rows), len(described)], dtype="<i8").tobytes()
    columns = [
        column.astype(kind, copy=False)
        for column, kind in ((rows.hashes, "<u8"), (rows.sizes, "<i8"), (numbers, "<i4"))
    ]
    return b"".join((head, *(column.tobytes() for column in columns), described))


def unpack_rows(data: bytes, classes: Classes) -> Rows:
    """The rows of ``pack_rows``, with their classes among these."""
    count, size = np.frombuffer(data, "<i8", 2).tolist()
    at = 16
    columns = []
    for kind, width in (("<u8", 8), ("<i8", 8), ("<i4", 4)):
        columns.append(np.frombuffer(data, kind, count, at))
        at += count * width
    table = json.loads(data[at : at + size])
    places = np.array([classes.number(Class(s, m, a, frozenset(h))) for s, m, a, h in table], dtype=np.int64)
    hashes, sizes, numbers = columns
    return Rows(hashes, sizes, places[numbers])
