"""The interface of runners, the choice of one, and the items that it reads: in bins, and fetched ahead."""

from __future__ import annotations

import logging
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from lakeplan.errors import UsageError
from lakeplan.values.simulation import RunnerChoice

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lakeplan.simulation.documents import RunnerVersions
    from lakeplan.simulation.local import Packet


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


Leaves: TypeAlias = "npt.NDArray[np.void]"


@dataclass(frozen=True)
class Step:
    """A step of a job. ``run`` maps packets to packets, and also gets ``steps.leaves_of`` all items. Each
    call gets all packets with the same ``place``. There are ``places`` of them. ``run`` may carry
    credentials, so runners must not write it to a file. Leaves carry none."""

    run: Callable[[Iterable[Packet], Leaves], Iterator[Packet]]
    places: int


class Runner(Protocol):
    name: str

    @property
    def versions(self) -> RunnerVersions: ...

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at the same time."""

    def run(self, bins: Sequence[bytes], steps: Sequence[Step], leaves: Leaves) -> Iterator[Packet]:
        """Yields the packets of the last step. Each bin is a packet for the first step. Raises
        LakeplanError."""


_log = logging.getLogger(__name__)

AUTO, LOCAL, SPARK = "auto", "local", "spark"
NAMES = (AUTO, LOCAL, SPARK)

LOCAL_ENTRIES = 20_000_000
"""The most entries for which ``auto`` is ``local``. Threads read millions in the time that Spark takes to
start."""


def choose(asked: str, entries: int | None, *, master: str | None) -> RunnerChoice:
    """The runner for this many entries, the same on every machine. ``entries`` is None for work that reads
    none, such as deletions. Raises UsageError for a Spark master with the local runner."""
    if asked == LOCAL and master is not None:
        raise UsageError(
            "--runner local cannot be combined with --master", hint="Remove one of the two options."
        )
    if asked in (LOCAL, SPARK):
        return RunnerChoice(asked, "requested")
    if master is not None:
        return RunnerChoice(SPARK, "--master is set")
    if entries is not None and entries > LOCAL_ENTRIES:
        return RunnerChoice(SPARK, f"{entries:,} entries exceed the threshold of {LOCAL_ENTRIES:,}")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return RunnerChoice(SPARK, "spark-submit started this process")
    if entries is None:
        return RunnerChoice(LOCAL, "no entries are read")
    return RunnerChoice(LOCAL, f"{entries:,} entries do not exceed the threshold of {LOCAL_ENTRIES:,}")


@dataclass(frozen=True)
class Runners:
    """The user's choice of a runner, else the tree's: one of ``NAMES``, or None. ``master``, ``conf`` and
    ``spark_home`` are for Spark, and a tree cannot set them. ``master`` None: ``local[*]``, or that of
    spark-submit. ``spark_home`` None: the Spark that pyspark came with."""

    asked: str | None = None
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    spark_home: str | None = None

    def __post_init__(self) -> None:
        if self.asked is not None and self.asked not in NAMES:
            raise UsageError(f"unknown runner {self.asked}", hint=f"Use one of {', '.join(NAMES)}.")

    @property
    def is_local(self) -> bool:
        """Whether workers see the folders of this machine."""
        return not self.master or self.master.startswith("local")

    def or_else(self, asked: str | None) -> Runners:
        """The same choice, or the tree's if the user made none."""
        return self if self.asked is not None else replace(self, asked=asked)

    def choose(self, entries: int | None) -> RunnerChoice:
        """The runner for this many entries. The choice is logged."""
        choice = choose(self.asked or AUTO, entries, master=self.master)
        _log.info("runner %s: %s", choice.name, choice.reason)
        return choice

    @contextmanager
    def open(self, entries: int) -> Iterator[tuple[Runner, RunnerChoice]]:
        """The open runner, and the reason for its choice. Raises SimulationFailed if Spark does not start."""
        choice = self.choose(entries)
        # Arrow takes long to import, and pyspark longer than most local runs take.
        if choice.name == LOCAL:
            from lakeplan.simulation.local import LocalRunner

            yield LocalRunner(), choice
            return
        from lakeplan.simulation.spark import SparkRunner, open_session

        with open_session(self) as session:
            yield SparkRunner(session), choice
