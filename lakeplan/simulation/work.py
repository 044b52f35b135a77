"""What the first step is given: things to read, packed into bins, fetched ahead, and how errors travel."""

from __future__ import annotations

import json
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from itertools import islice
from typing import NamedTuple, TypeVar

from lakeplan import errors
from lakeplan.errors import FormatError, LakeplanError

BIN_BYTES = 64 << 20
"""Aimed-at range bytes of one bin: a few ranges of the largest size, some seconds of work."""
BINS_A_CORE = 12
"""At most: so many are enough for all cores to end together, and each costs Spark a task."""
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
    """What is known of a range of another repository: its full addresses, in ``body``."""
    INVENTORY = 7
    """A file of an S3 inventory, in the place of a listing."""
    SEGMENT = 8
    """What an earlier run made of some ranges (``segments``)."""


LISTINGS = frozenset((Kind.LISTING, Kind.ROOT_LISTING, Kind.INVENTORY))


class WorkItem(NamedTuple):
    """One thing to read once. ``name`` is a range id, a prefix to list, or the key of a Parquet file.

    ``mask``: verdict bits of the commits whose metaranges list the range. ``last``: position of the last of
    all commits that list it (-1: none). ``holders``: number of the set of branches (or tags) that hold it
    (-1: none). ``sort_key``: of a range, the key of its region (``regions``). ``number``: its place among all
    items of a job. ``body``: what was read already.
    """

    kind: Kind
    source: int
    name: str
    weight: int = 0
    mask: int = 0
    last: int = -1
    holders: int = -1
    sort_key: bytes = b""
    number: int = 0
    body: bytes = b""


def numbered(items: Sequence[WorkItem]) -> list[WorkItem]:
    """In the order of sources, and of regions within one: versions of a region are together. Listings are
    first: a store makes them wait, and ranges are read meanwhile."""
    # sorting is stable: versions of a region stay in the order given
    ordered = sorted(
        items, key=lambda item: (item.source, item.kind not in LISTINGS, item.kind, item.sort_key)
    )
    return [item._replace(number=number) for number, item in enumerate(ordered)]


def pack(items: Sequence[WorkItem], parallelism: int) -> list[bytes]:
    """Bins of roughly equal weight, pickled. Neighbours lie in one bin."""
    weights = [item.weight + ITEM_OVERHEAD for item in items]
    total = sum(weights)
    wanted = min(-(-total // BIN_BYTES), BINS_A_CORE * parallelism)
    count = min(len(items), max(parallelism, wanted))
    bins: list[list[WorkItem]] = [[] for _ in range(count)]
    before = 0
    for item, weight in zip(items, weights, strict=True):
        bins[min(count - 1, (before + weight // 2) * count // total)].append(item)
        before += weight
    return [pickle.dumps(bin_) for bin_ in bins if bin_]


def unpack_bin(packed: bytes) -> list[WorkItem]:
    items: list[WorkItem] = pickle.loads(packed)
    return items


def report_of(error: LakeplanError, where: str) -> str:
    """An error as text; ``where`` when it does not say itself."""
    report = {
        "kind": type(error).__name__,
        "message": error.message,
        "where": error.where or where,
        "hint": error.hint,
        "detail": error.detail,
    }
    return json.dumps(report)


def failure(report: str | bytes) -> LakeplanError:
    """The error a worker met, out of its report."""
    fields = json.loads(report)
    kind = getattr(errors, fields.pop("kind"), FormatError)
    error: LakeplanError = FormatError.__new__(kind)
    LakeplanError.__init__(error, **fields)
    return error


FETCH_AHEAD = 4
"""Files in flight in one worker: ranges have 20 MiB each at most."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(
    items: Iterable[Item], fetch: Callable[[Item], Result], pool: ThreadPoolExecutor, at_once: int
) -> Iterator[tuple[Item, Callable[[], Result]]]:
    """Each item in order, with a function that gives what was fetched or raises what fetching raised. At most
    ``at_once`` are fetched, or fetched and not yet taken."""
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    coming = iter(items)
    try:
        while True:
            for item in islice(coming, at_once - len(waiting)):
                waiting.append((item, pool.submit(fetch, item)))
            if not waiting:
                return
            item, future = waiting.popleft()
            yield item, future.result
    finally:
        for _, future in waiting:
            future.cancel()
