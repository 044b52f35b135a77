"""Sets of *leaves*, which say where objects were seen.

A leaf is a place whose objects are all treated the same, such as the candidates of one range, or the old
objects of one listing. The verdict on an object depends only on the leaves that hold it, and there are few
distinct sets of leaves however many objects there are. So objects carry the number of a set, and rules judge
sets instead of objects. The same table serves every rule set and every moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lakeplan.formats.range_arrays import Ints
from lakeplan.simulation.verdicts import Sighting
from lakeplan.simulation.work import LISTINGS, Kind

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

    def leaves(self, of: int) -> list[int]:
        """The leaves of a set, in the order in which they were added."""
        leaves = []
        while of:
            leaves.append(self.leaf[of])
            of = self.before[of]
        return leaves[::-1]

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
