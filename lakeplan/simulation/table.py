"""Joins sightings of objects into rows of numbers, without text.

An object is identified by a 64-bit hash of its address, and a *pair* by a hash of its address, one of its
paths and its size there. The size is part of it because entries may disagree, and which size counts depends
on the question. Two addresses with the same hash count as one object that has the verdicts of both, and is
kept if either is kept. So a hash can keep an object, and can never delete one. Two pairs with the same hash
are separate rows if the hashes of their addresses differ. Anybody can make a path that has a given hash, and
must not be able to attach the holders of another object to their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lakeplan.formats.compiled import kernels
from lakeplan.formats.range_arrays import Bytes, Hashes, Ints
from lakeplan.simulation.sets import CODES, Sets

Booleans = npt.NDArray[np.bool_]
STORED = 1 << 62
"""The bit of a size that the storage reported, which is used rather than those of entries. No object is so
large."""
_HEAD = 24


@dataclass(frozen=True)
class Rows:
    """Columns of equal length that say where addresses were seen. ``sets`` are numbers of a ``Sets``."""

    hashes: Hashes
    sizes: Ints
    sets: Ints

    def __len__(self) -> int:
        return int(self.hashes.size)

    def part(self, rows: slice | Ints | Booleans) -> Rows:
        return Rows(self.hashes[rows], self.sizes[rows], self.sets[rows])


def concat(parts: Sequence[Rows]) -> Rows:
    return Rows(
        np.concatenate([np.zeros(0, np.uint64), *(part.hashes for part in parts)]),
        np.concatenate([np.zeros(0, np.int64), *(part.sizes for part in parts)]),
        np.concatenate([np.zeros(0, np.int64), *(part.sets for part in parts)]),
    )


class Table(Protocol):
    """Pairs and the leaves that hold them, added item by item."""

    def __len__(self) -> int:
        """The approximate number of rows."""

    def add(self, pairs: Hashes, hashes: Hashes, sizes: Ints, codes: Bytes, first_leaf: int) -> Booleans:
        """Adds the rows of an item, whose leaves are ``first_leaf`` plus codes. Returns which rows have a new
        pair, once for equal pairs. (Pairs of addresses with different hashes may be new again.)"""

    def rows(self, sets: Sets) -> tuple[Hashes, Rows]:
        """Each pair once, with the number of its set of leaves in ``sets``, in ascending order of the hashes
        of addresses."""


def new_table(*, use_compiled: bool) -> Table:
    compiled = kernels() if use_compiled else None
    return SortedTable() if compiled is None else CompiledTable(compiled)


class CompiledTable:
    """``Table`` as a hash table."""

    def __init__(self, compiled: ModuleType) -> None:
        self._compiled = compiled
        self._used, self._nodes = 0, 1
        self._slots = np.zeros(1 << 16, np.int32)
        self._hashes = np.empty((2, 1 << 15), np.uint64)
        self._columns = np.empty((2, 1 << 15), np.int64)
        self._sets = np.zeros((2, 1 << 12), np.int64)
        self._sets[1, 0] = -1

    def __len__(self) -> int:
        return self._used

    def add(self, pairs: Hashes, hashes: Hashes, sizes: Ints, codes: Bytes, first_leaf: int) -> Booleans:
        self._make_room(pairs.size)
        fresh = np.zeros(pairs.size, np.bool_)
        following = np.zeros((CODES, self._sets.shape[1]), np.int32)
        self._used, self._nodes, status = self._compiled.add_rows(
            (pairs, hashes, sizes, codes),
            first_leaf,
            (self._slots, self._columns, self._hashes),
            self._used,
            (self._sets, following),
            self._nodes,
            fresh,
        )
        assert status == self._compiled.OK, "there is room for one set per row"
        return fresh

    def _make_room(self, rows: int) -> None:
        """Makes room for this many more rows, with a new set for each row or for each set and code."""
        sets = self._nodes + min(rows, CODES * self._nodes)
        if sets > self._sets.shape[1]:
            self._sets = _grown(self._sets, sets)
        if self._used + rows <= self._hashes.shape[1]:
            return
        self._hashes = _grown(self._hashes, self._used + rows)
        self._columns = _grown(self._columns, self._used + rows)
        self._slots = np.zeros(2 << int(self._hashes.shape[1] - 1).bit_length(), np.int32)
        self._compiled.place_rows(self._hashes[0, : self._used], self._slots)

    def rows(self, sets: Sets) -> tuple[Hashes, Rows]:
        numbers = [0]
        before, leaf = self._sets[:, : self._nodes].tolist()
        for of, one in zip(before[1:], leaf[1:], strict=True):
            numbers.append(sets.add(numbers[of], one))
        used = self._used
        sets_of = np.array(numbers, np.int64)[self._columns[1, :used]]
        rows = Rows(self._hashes[1, :used], self._columns[0, :used], sets_of)
        return _by_hash(self._hashes[0, :used], rows)


def _grown(columns: npt.NDArray[Any], least: int) -> npt.NDArray[Any]:
    grown = np.zeros((columns.shape[0], max(least, 2 * columns.shape[1])), columns.dtype)
    grown[:, : columns.shape[1]] = columns
    return grown


class SortedTable:
    """``Table`` without compiled code. Rows are sorted."""

    def __init__(self) -> None:
        self._known = self._known_hashes = np.zeros(0, np.uint64)
        self._parts: list[Rows] = []
        self._pairs: list[Hashes] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pairs: Hashes, hashes: Hashes, sizes: Ints, codes: Bytes, first_leaf: int) -> Booleans:
        places, known = places_in(self._known, pairs)
        if self._known.size:
            known &= self._known_hashes[places] == hashes
        fresh = np.flatnonzero(~known)
        fresh = fresh[pairs_in_order(pairs[fresh], hashes[fresh])]
        fresh = fresh[starts_of_pairs(pairs[fresh], hashes[fresh])]
        once = np.zeros(pairs.size, np.bool_)
        once[fresh] = True
        self._known = np.concatenate((self._known, pairs[fresh]))
        order = in_order(self._known)
        self._known = self._known[order]
        self._known_hashes = np.concatenate((self._known_hashes, hashes[fresh]))[order]
        self._pairs.append(pairs)
        self._parts.append(Rows(hashes, sizes, codes.astype(np.int64) + first_leaf))
        self._count += pairs.size
        return once

    def rows(self, sets: Sets) -> tuple[Hashes, Rows]:
        rows = concat(self._parts)
        all_pairs = np.concatenate([np.zeros(0, np.uint64), *self._pairs])
        order = pairs_in_order(all_pairs, rows.hashes)
        pairs, hashes, leaves = all_pairs[order], rows.hashes[order], rows.sets[order]
        starts = starts_of_pairs(pairs, hashes)
        set_of = sets.added(np.zeros(starts.size, np.int64), leaves[starts])
        counts = np.diff(starts, append=pairs.size)
        step, more = 1, np.flatnonzero(counts > 1)
        while more.size:
            set_of[more] = sets.added(set_of[more], leaves[starts[more] + step])
            step += 1
            more = more[counts[more] > step]
        return _by_hash(pairs[starts], Rows(hashes[starts], most(rows.sizes[order], starts), set_of))


def most(values: Ints, starts: Ints) -> Ints:
    """The greatest value of each group."""
    greatest: Ints = np.maximum.reduceat(values, starts) if starts.size else values[:0]
    return greatest


def _by_hash(pairs: Hashes, rows: Rows) -> tuple[Hashes, Rows]:
    order = in_order(rows.hashes)
    return pairs[order], rows.part(order)


def pairs_in_order(pairs: Hashes, hashes: Hashes) -> Ints:
    """``in_order`` of pairs. Equal pairs are in order of the hash of the address."""
    order = in_order(pairs)
    ascending, of_address = pairs[order], hashes[order]
    if ((ascending[1:] == ascending[:-1]) & (of_address[1:] != of_address[:-1])).any():
        order = np.lexsort((hashes, pairs))
    return order


def starts_of_pairs(ascending: Hashes, hashes: Hashes) -> Ints:
    """Return where another pair begins, or an equal pair of another address."""
    others = (ascending[1:] != ascending[:-1]) | (hashes[1:] != hashes[:-1])
    starts: Ints = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), others)))
    return starts[: ascending.size]


def in_order(hashes: Hashes) -> Ints:
    """The positions that sort hashes in ascending order, stably.

    numpy sorts numbers several times faster than positions by numbers. So each position replaces the low bits
    of its hash, which are rarely needed to distinguish hashes.
    """
    low = np.uint64((1 << max(hashes.size - 1, 1).bit_length()) - 1)
    keys = hashes & ~low
    keys |= np.arange(hashes.size, dtype=np.uint64)
    keys.sort()
    keys &= low
    order: Ints = keys.astype(np.int64)
    ascending = hashes[order]
    if (ascending[1:] < ascending[:-1]).any():
        # Some differ only in their low bits. What is nearly in order is sorted quickly.
        order = order[np.argsort(ascending, kind="stable")]
    return order


def starts_of(ascending: Hashes) -> Ints:
    """The positions where another hash begins."""
    starts: Ints = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), ascending[1:] != ascending[:-1])))
    return starts[: ascending.size]


def places_in(ascending: Hashes, hashes: Hashes) -> tuple[Ints, Booleans]:
    """For each hash a place in ``ascending``, and whether the same hash is there."""
    if not ascending.size:
        return np.zeros(hashes.size, np.int64), np.zeros(hashes.size, np.bool_)
    places = np.minimum(np.searchsorted(ascending, hashes), ascending.size - 1)
    return places, ascending[places] == hashes


def pairs_of(hashes: Hashes, paths: Hashes, sizes: Ints | None = None) -> Hashes:
    """The pairs of addresses and paths, given by their hashes, and sizes of entries. ``paths`` are 0 for
    none."""
    pairs: Hashes = hashes ^ paths * np.uint64(0x9E3779B97F4A7C15)
    if sizes is not None:
        pairs ^= sizes.astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
    pairs *= np.uint64(0xBF58476D1CE4E5B9)
    return pairs ^ pairs >> np.uint64(32)


def pack(rows: Rows, sets: Sets, leaves: Ints | None = None) -> bytes:
    """The rows and the sets that they need, as bytes for another worker. ``leaves``: new numbers of the
    leaves, -1 for those to leave out."""
    needed = np.flatnonzero(np.bincount(rows.sets)).tolist()
    numbers: dict[int, int] = {0: 0}
    before, leaf = [0], [-1]
    for of in needed:
        chain = []
        while of not in numbers:
            chain.append(of)
            of = sets.before[of]
        for each in reversed(chain):
            one = sets.leaf[each] if leaves is None else int(leaves[sets.leaf[each]])
            if one < 0:
                numbers[each] = numbers[sets.before[each]]
                continue
            numbers[each] = len(leaf)
            before.append(numbers[sets.before[each]])
            leaf.append(one)
    set_of = np.zeros(len(sets), np.int64)
    set_of[needed] = [numbers[of] for of in needed]
    head = np.array([len(rows), len(leaf), 0], "<i8")
    columns = (
        head,
        rows.hashes.astype("<u8", copy=False),
        rows.sizes.astype("<i8", copy=False),
        set_of[rows.sets].astype("<u4"),
        np.array(before, "<u4"),
        np.array(leaf, "<i4"),
    )
    return b"".join(column.tobytes() for column in columns)


def unpack(data: bytes | memoryview, sets: Sets) -> Rows:
    """The rows that ``pack`` packed, with their sets added to ``sets``. Raises ValueError for damaged
    bytes."""
    if len(data) < _HEAD:
        raise ValueError("the rows are truncated")
    count, nodes, _ = np.frombuffer(data, "<i8", 3).tolist()
    if count < 0 or nodes < 1 or len(data) != _HEAD + 20 * count + 8 * nodes:
        raise ValueError("the rows are truncated")
    at = _HEAD
    columns: list[Any] = []
    for kind, width, size in (
        ("<u8", 8, count),
        ("<i8", 8, count),
        ("<u4", 4, count),
        ("<u4", 4, nodes),
        ("<i4", 4, nodes),
    ):
        columns.append(np.frombuffer(data, kind, size, at))
        at += size * width
    hashes, sizes, set_of, before, leaf = columns
    if (set_of >= nodes).any() or (before[1:] >= np.arange(1, nodes)).any():
        raise ValueError("sets of rows are not in order")
    numbers = [0]
    for of, one in zip(before[1:].tolist(), leaf[1:].tolist(), strict=True):
        numbers.append(sets.add(numbers[of], one))
    return Rows(hashes, sizes, np.array(numbers, np.int64)[set_of])
