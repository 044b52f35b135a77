"""Versions of a region folded into one: each address once, with a bit for every version that holds it.

Nothing of it hangs on verdicts, so it is the same for all rules and times; what a version's commits make of
it comes in when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeplan.formats.hashing import Hashes, Ints
from lakeplan.simulation.digests import Digest
from lakeplan.simulation.folding import Class, Classes, Rows, in_order, starts_of
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.work import GROUP_RANGES, WorkItem

_CANDIDATE_BIT = 1 << 2 * GROUP_RANGES
Index = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Group:
    """Columns of equal length, ``hashes`` ascending, each once; ``sizes`` are the greatest seen.

    ``held[index]`` are a row's bits: version n (its position) holds it by an entry inside the namespace (bit
    n), or by a full address that may mean it (bit ``GROUP_RANGES`` + n); the last bit is ``Seen.CANDIDATE``.
    """

    hashes: Hashes
    sizes: Ints
    index: Index
    held: Hashes

    def __len__(self) -> int:
        return int(self.hashes.size)

    def rows(self, items: Sequence[WorkItem], classes: Classes) -> Rows:
        """With what these versions' commits make of it."""
        numbers = [classes.number(_class_of(bits, items)) for bits in self.held.tolist()]
        return Rows(self.hashes, self.sizes, np.array(numbers, np.int64)[self.index])

    def held_only_by(self, version: int, others: Sequence[int]) -> Hashes:
        """Those rows of a version that none of some others holds, ascending."""
        without = (self.held & np.uint64(_bits(others))) == 0
        wanted = without & ((self.held & np.uint64(_bits([version]))) != 0)
        if not wanted.any():
            return np.zeros(0, np.uint64)
        hashes: Hashes = self.hashes[wanted[self.index]]
        return hashes


def _bits(versions: Sequence[int]) -> int:
    return sum(1 << n | 1 << GROUP_RANGES + n for n in versions)


def _class_of(bits: int, items: Sequence[WorkItem]) -> Class:
    found = Class(int(Seen.CANDIDATE) if bits & _CANDIDATE_BIT else 0)
    for n, item in enumerate(items):
        holders = frozenset(() if item.holders < 0 else (item.holders,))
        if bits >> n & 1:
            found |= Class(int(Seen.ENTRY), item.mask, 0, holders)
        if bits >> GROUP_RANGES + n & 1:
            found |= Class(int(Seen.ALIAS), 0, item.mask, holders)
    return found


@dataclass(frozen=True)
class Shared:
    """``hashes`` (ascending) has all that stand in more than one of ``groups``, by id; and maybe others."""

    groups: frozenset[str]
    hashes: Hashes


class Gathering:
    """Versions on their way to become a group; no more than ``max_rows`` wait to be folded."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._waiting: list[tuple[Hashes, Ints, Hashes]] = []
        self._count = 0

    def add(self, version: int, digest: Digest) -> None:
        bits = np.zeros(int(Seen.ENTRY | Seen.ALIAS | Seen.CANDIDATE) + 1, np.uint64)
        bits[int(Seen.ENTRY)] = 1 << version
        bits[int(Seen.ENTRY | Seen.CANDIDATE)] = 1 << version | _CANDIDATE_BIT
        bits[int(Seen.ALIAS)] = 1 << GROUP_RANGES + version
        self._waiting.append((digest.hashes, digest.sizes, bits[digest.seen]))
        self._count += len(digest)
        if self._count >= self._max_rows:
            self._waiting = [self._folded()]
            self._count = 0

    def group(self) -> Group:
        hashes, sizes, bits = self._folded()
        # many rows, few kinds of them: Arrow tells them apart by hash, numpy would sort
        kinds = pa.array(bits).dictionary_encode()
        held: Hashes = kinds.dictionary.to_numpy().astype(np.uint64)
        return Group(hashes, sizes, kinds.indices.to_numpy(), held)

    def _folded(self) -> tuple[Hashes, Ints, Hashes]:
        hashes, sizes, bits = (np.concatenate(columns) for columns in zip(*self._waiting, strict=True))
        if not hashes.size:
            return hashes, sizes, bits
        order = in_order(hashes)
        hashes = hashes[order]
        starts = starts_of(hashes)
        sizes = np.maximum.reduceat(sizes[order], starts)
        return hashes[starts], sizes, np.bitwise_or.reduceat(bits[order], starts)
