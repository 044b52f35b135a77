"""What workers are given: things to read, packed into one bin a partition."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

BIN_BYTES = 64 << 20
"""Aimed-at range bytes of one bin: a few ranges of the largest size, some seconds of work."""
ITEM_OVERHEAD = 64 << 10
"""What opening one more thing weighs, in bytes of reading."""


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
    (-1: none). ``sort_key`` puts ranges that cover the same paths beside each other.
    """

    kind: Kind
    source: int
    name: str
    weight: int = 0
    mask: int = 0
    last: int = -1
    holders: int = -1
    sort_key: bytes = b""


def pack(items: Sequence[WorkItem], parallelism: int) -> list[bytes]:
    """Bins of roughly equal weight, pickled, each for one partition.

    Versions of a range cover the same paths and share most objects. They are put into the same bin, so that
    most duplicates are folded before the shuffle; within a bin the order of paths is kept.
    """
    ordered = sorted(items, key=lambda item: (item.source, item.kind, item.sort_key, item.name))
    total = sum(item.weight + ITEM_OVERHEAD for item in ordered)
    count = min(len(ordered), max(parallelism, -(-total // BIN_BYTES)))
    bins: list[list[WorkItem]] = [[] for _ in range(count)]
    before = 0
    for item in ordered:
        weight = item.weight + ITEM_OVERHEAD
        bins[min(count - 1, (before + weight // 2) * count // total)].append(item)
        before += weight
    return [pickle.dumps(bin_) for bin_ in bins if bin_]


def unpack(packed: bytes) -> list[WorkItem]:
    items: list[WorkItem] = pickle.loads(packed)
    return items
