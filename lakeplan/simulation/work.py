"""Packs the items that the first step reads into bins, fetches them ahead, and reports errors."""

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
"""Bytes of ranges in one bin: a few of the largest ranges, which take some seconds."""
BINS_A_CORE = 12
"""The most bins for each core: enough for all cores to end together. Each costs Spark a task."""
ITEM_OVERHEAD = 64 << 10
"""What opening a file costs, in bytes read."""


class Kind(IntEnum):
    RANGE = 0
    LISTING = 1
    ROOT_LISTING = 2
    UNCOMMITTED = 3
    LISTED = 4
    """A part of the listing of this mark."""
    MARKED = 5
    """A part of a mark."""
    FOREIGN_RANGE = 6
    """The full addresses of a range of another repository, in ``body``."""
    INVENTORY = 7
    """A file of an S3 inventory, instead of a listing."""
    SEGMENT = 8
    """What an earlier run read of some ranges (``segments``)."""


LISTINGS = frozenset((Kind.LISTING, Kind.ROOT_LISTING, Kind.INVENTORY))


class WorkItem(NamedTuple):
    """Something to read once. ``name`` is a range id, a prefix to list, or the key of a Parquet file.

    ``mask``: verdict bits of the commits whose metaranges list the range. ``last``: position of the last
    commit that lists it (-1: none). ``holders``: number of the set of branches (or tags) that hold it (-1:
    none). ``sort_key``: the key of a range's region (``inputs.Regions``), the checksum of a file, or what
    ``segments.item_of`` packed. ``number``: its place among all items of a job. ``body``: what was already
    read.
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
    """The items in order of sources and, within a source, of regions, so that versions of a region are
    together. Listings come first, because ranges are read while a store answers."""
    # sorting is stable: versions of a region stay in the order given
    ordered = sorted(
        items, key=lambda item: (item.source, item.kind not in LISTINGS, item.kind, item.sort_key)
    )
    return [item._replace(number=number) for number, item in enumerate(ordered)]


def pack(items: Sequence[WorkItem], parallelism: int) -> list[bytes]:
    """Pickled bins of roughly equal weight. Neighbours are in one bin."""
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
    """An error as JSON. ``where`` is used if the error has none."""
    report = {
        "kind": type(error).__name__,
        "message": error.message,
        "where": error.where or where,
        "hint": error.hint,
        "detail": error.detail,
    }
    return json.dumps(report)


def failure(report: str | bytes) -> LakeplanError:
    """The error in a report."""
    fields = json.loads(report)
    kind = getattr(errors, fields.pop("kind"), FormatError)
    error: LakeplanError = FormatError.__new__(kind)
    LakeplanError.__init__(error, **fields)
    return error


FETCH_AHEAD = 4
"""Files in flight in one worker. A range has at most 20 MiB."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(
    items: Iterable[Item], fetch: Callable[[Item], Result], pool: ThreadPoolExecutor, at_once: int
) -> Iterator[tuple[Item, Callable[[], Result]]]:
    """Yields each item in order, with a function that returns what was fetched or raises what fetching
    raised. At most ``at_once`` items are being fetched or wait to be used."""
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
