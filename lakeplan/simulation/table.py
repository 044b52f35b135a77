"""Joins sightings of objects into rows of numbers, without text, and judges sets of *leaves*.

A leaf is a place whose objects are all treated the same, such as the candidates of one range, or the old
objects of one listing. The verdict on an object depends only on the leaves that hold it, and there are few
distinct sets of leaves however many objects there are. So objects carry the number of a set, and rules judge
sets instead of objects. The same table serves every rule set and every moment.

An object is identified by a 64-bit hash of its address, and a *pair* by a hash of its address, one of its
paths and its size there. The size is part of it because entries may disagree, and which size counts depends
on the question. Two addresses with the same hash count as one object that has the verdicts of both, and is
kept if either is kept. So a hash can keep an object, and can never delete one. Two pairs with the same hash
are separate rows if the hashes of their addresses differ. Anybody can make a path that has a given hash, and
must not be able to attach the holders of another object to their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lakeplan.formats.compiled import kernels
from lakeplan.formats.range_arrays import Bytes, Hashes, Ints
from lakeplan.simulation.runners import LISTINGS, Kind
from lakeplan.simulation.verdicts import Sighting

CODES = 8
"""The leaves of each work item. A leaf's number is the item's number times this, plus a ``Code``."""


class Code(IntEnum):
    """How an item contains an address."""

    PLAIN = 0
    CANDIDATE = 1
    HELD = 2
    HELD_CANDIDATE = 3
    ALIAS = 4
    FOREIGN = 5
    STAGED = 6
    OUTSIDE = 7


_SEEN: dict[int, Sighting] = {
    Code.PLAIN: Sighting.ENTRY,
    Code.CANDIDATE: Sighting.ENTRY | Sighting.CANDIDATE,
    Code.HELD: Sighting.ENTRY | Sighting.HELD,
    Code.HELD_CANDIDATE: Sighting.ENTRY | Sighting.CANDIDATE | Sighting.HELD,
    Code.ALIAS: Sighting.ALIAS,
    Code.FOREIGN: Sighting.FOREIGN,
    Code.STAGED: Sighting.UNCOMMITTED,
    Code.OUTSIDE: Sighting.OUTSIDE,
}


class Listed(IntEnum):
    """The codes of a listing or of a mark's part."""

    YOUNG = 0
    OLD = 1
    MARKED = 2


_LISTED_SEEN: dict[int, Sighting] = {
    Listed.YOUNG: Sighting.LISTED,
    Listed.OLD: Sighting.LISTED | Sighting.OLD,
    Listed.MARKED: Sighting.MARKED,
}


_LISTINGS = LISTINGS | {Kind.LISTED, Kind.MARKED}


class Class(NamedTuple):
    """The facts that decide about an object: bits of ``Sighting``, the verdict bits of commits that certainly
    hold it (``mask``) and of those that may (``alias_mask``), and numbers of the sets of branches or tags
    that hold it."""

    flags: int
    mask: int = 0
    alias_mask: int = 0
    holders: frozenset[int] = frozenset()

    @property
    def any_mask(self) -> int:
        return self.mask | self.alias_mask

    def __or__(self, other: Class) -> Class:
        return Class(
            self.flags | other.flags,
            self.mask | other.mask,
            self.alias_mask | other.alias_mask,
            self.holders | other.holders,
        )


NOWHERE = Class(0)


@dataclass(frozen=True)
class Leaf:
    """A leaf under the rules of a run. ``last``: position of the last commit that has it, -1 for none."""

    of: Class
    last: int = -1


NO_LEAF = Leaf(NOWHERE)


def leaf_of(kind: int, code: int, mask: int, last: int, holders: int) -> Leaf:
    """The leaf of a work item's facts and a code. ``holders``: number of a set of holders, -1 for none."""
    if kind in _LISTINGS:
        return Leaf(Class(int(_LISTED_SEEN.get(code, 0))))
    flags = int(_SEEN.get(code, 0))
    held = frozenset(() if holders < 0 else (holders,))
    if code == Code.ALIAS:
        return Leaf(Class(flags, 0, mask, held), last)
    return Leaf(Class(flags, mask, 0, held), last)


class Classes:
    """Numbered classes. There are not many, whatever the number of objects."""

    def __init__(self) -> None:
        self._numbers: dict[Class, int] = {}
        self._joined: dict[tuple[int, int], int] = {}
        self.all: list[Class] = []

    def number(self, each: Class) -> int:
        number = self._numbers.setdefault(each, len(self.all))
        if number == len(self.all):
            self.all.append(each)
        return number

    def join(self, left: int, right: int) -> int:
        """The number of the union of two classes."""
        joined = self._joined.get((left, right))
        if joined is None:
            joined = self._joined[left, right] = self.number(self.all[left] | self.all[right])
        return joined


class Sets:
    """Sets of leaves by number; 0 is empty. Each set is stored as another set plus one leaf, so that
    thousands of versions of a region cost one pair of numbers each."""

    def __init__(self) -> None:
        self.before: list[int] = [0]
        self.leaf: list[int] = [-1]
        self._next: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.leaf)

    def add(self, of: int, leaf: int) -> int:
        """The number of the set with one more leaf."""
        if self.leaf[of] == leaf:
            return of
        key = of << 32 | leaf
        number = self._next.get(key)
        if number is None:
            number = self._next[key] = len(self.leaf)
            self.before.append(of)
            self.leaf.append(leaf)
        return number

    def add_all(self, before: Sequence[int], leaf: Sequence[int]) -> Ints:
        """Adds all sets of another ``Sets``, given as its columns. Returns their numbers."""
        numbers = [0]
        for of, one in zip(before[1:], leaf[1:], strict=True):
            numbers.append(self.add(numbers[of], one))
        return np.array(numbers, np.int64)

    def having(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """For each set, whether it has any of the chosen leaves."""
        having = [False]
        for of, leaf in zip(self.before[1:], self.leaf[1:], strict=True):
            having.append(having[of] or bool(chosen[leaf]))
        return np.array(having, np.bool_)

    def added(self, sets: Ints, leaves: Ints) -> Ints:
        """The result of ``add`` for each row."""
        return by_pairs(sets, leaves, self.add)

    def judged(self, classes: Classes, leaf_of: Callable[[int], Leaf]) -> tuple[Ints, Ints]:
        """For each set, the number of its class among ``classes`` and the position of its last commit."""
        leaves: dict[int, tuple[int, int]] = {}
        numbers, lasts = [classes.number(NOWHERE)], [-1]
        for of, leaf in zip(self.before[1:], self.leaf[1:], strict=True):
            if leaf not in leaves:
                judged = leaf_of(leaf)
                leaves[leaf] = classes.number(judged.of), judged.last
            number, last = leaves[leaf]
            numbers.append(classes.join(numbers[of], number))
            lasts.append(max(lasts[of], last))
        return np.array(numbers, np.int64), np.array(lasts, np.int64)


def by_pairs(left: Ints, right: Ints, join: Callable[[int, int], int]) -> Ints:
    """The results of ``join`` for each row of numbers below 2**31. It is called once per distinct pair."""
    pairs, places = np.unique(left << 32 | right, return_inverse=True)
    numbers = [join(pair >> 32, pair & 0xFFFFFFFF) for pair in pairs.tolist()]
    results: Ints = np.array(numbers, dtype=np.int64)[places]
    return results


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
        """Makes room for this many more rows, with a new set for each row."""
        if self._nodes + rows > self._sets.shape[1]:
            self._sets = _grown(self._sets, self._nodes + rows)
        if self._used + rows <= self._hashes.shape[1]:
            return
        self._hashes = _grown(self._hashes, self._used + rows)
        self._columns = _grown(self._columns, self._used + rows)
        self._slots = np.zeros(2 << int(self._hashes.shape[1] - 1).bit_length(), np.int32)
        self._compiled.place_rows(self._hashes[0, : self._used], self._slots)

    def rows(self, sets: Sets) -> tuple[Hashes, Rows]:
        used, numbers = self._used, sets.add_all(*self._sets[:, : self._nodes].tolist())
        sets_of = numbers[self._columns[1, :used]]
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
        fold_groups(set_of, leaves, starts, sets.added)
        return _by_hash(pairs[starts], Rows(hashes[starts], most(rows.sizes[order], starts), set_of))


def fold_groups(firsts: Ints, values: Ints, starts: Ints, join: Callable[[Ints, Ints], Ints]) -> None:
    """Joins to the first value of each group, in place, the others one after the other."""
    counts = np.diff(starts, append=values.size)
    step, more = 1, np.flatnonzero(counts > 1)
    while more.size:
        firsts[more] = join(firsts[more], values[starts[more] + step])
        step += 1
        more = more[counts[more] > step]


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
    return Rows(hashes, sizes, sets.add_all(before.tolist(), leaf.tolist())[set_of])
