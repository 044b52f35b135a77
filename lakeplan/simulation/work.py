"""What workers are given: things to read, packed into one bin a partition."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

BIN_BYTES = 64 << 20
"""Aimed-at range bytes of one bin: a few ranges of the largest size, some seconds of work."""
BINS_A_CORE = 12
"""At most: so many are enough for all cores to end together, and each costs Spark a task."""
ITEM_OVERHEAD = 64 << 10
"""What opening one more thing weighs, in bytes of reading."""
GROUP_RANGES = 31
"""So many versions have a bit each in 64 bits, twice."""
_GROUP_MIN = 8
_CUT_EVERY = 16


class Kind(IntEnum):
    RANGE = 0
    LISTING = 1
    ROOT_LISTING = 2
    UNCOMMITTED = 3
    LISTED = 4
    """A part that an earlier listing of this mark wrote."""
    MARKED = 5
    """A part of a mark."""
    FOREIGN_RANGE = 6
    """A range of another repository: only its full addresses count."""


class WorkItem(NamedTuple):
    """One thing to read once. ``name`` is a range id, a prefix to list, or the key of a Parquet file.

    ``mask``: verdict bits of the commits whose metaranges list the range. ``last``: position of the last of
    all commits that list it (-1: none). ``holders``: number of the set of branches (or tags) that hold it
    (-1: none). ``sort_key``: of a range, the key of its region (``regions``).
    """

    kind: Kind
    source: int
    name: str
    weight: int = 0
    mask: int = 0
    last: int = -1
    holders: int = -1
    sort_key: bytes = b""


def groups(items: Iterable[WorkItem]) -> Iterator[list[WorkItem]]:
    """Versions of a region together, in the order given; everything else alone.

    The same ranges always give the same groups. A region of many versions is cut behind certain ranges rather
    than after so many, so that one range more or less changes the groups beside it and no others.
    """
    for kind, of_region in groupby(items, key=lambda i: (i.source, i.kind, i.sort_key)):
        group: list[WorkItem] = []
        weight = 0
        for item in of_region:
            group.append(item)
            weight += item.weight
            if kind[1] is not Kind.RANGE or weight >= BIN_BYTES or len(group) == GROUP_RANGES or _cuts(group):
                yield group
                group, weight = [], 0
        if group:
            yield group


def _cuts(group: list[WorkItem]) -> bool:
    # an id is a hash, so its bytes are as good as chance
    return len(group) >= _GROUP_MIN and sum(group[-1].name.encode()) % _CUT_EVERY == 0


def in_groups(items: Sequence[WorkItem]) -> list[list[WorkItem]]:
    """All groups, in the order of paths."""
    # sorting is stable: versions of a region stay in the order given
    return list(groups(sorted(items, key=lambda item: (item.source, item.kind, item.sort_key))))


def pack(items: Sequence[WorkItem], parallelism: int) -> list[bytes]:
    """Bins of roughly equal weight, pickled, each for one partition. A group lies in one bin."""
    ordered = in_groups(items)
    weights = [sum(item.weight + ITEM_OVERHEAD for item in group) for group in ordered]
    total = sum(weights)
    wanted = min(-(-total // BIN_BYTES), BINS_A_CORE * parallelism)
    count = min(len(ordered), max(parallelism, wanted))
    bins: list[list[WorkItem]] = [[] for _ in range(count)]
    before = 0
    for group, weight in zip(ordered, weights, strict=True):
        bins[min(count - 1, (before + weight // 2) * count // total)].extend(group)
        before += weight
    return [pickle.dumps(bin_) for bin_ in bins if bin_]


def unpack(packed: bytes) -> list[WorkItem]:
    items: list[WorkItem] = pickle.loads(packed)
    return items
