"""From commits to ranges: everything a range inherits from the commits that list it, as a few numbers.

A range is read once whatever number of commits share it, because all that matters of those commits is folded
into its work item on the driver: verdict bits, the last commit, and the set of branches or tags that hold it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from lakeplan.formats.ranges import KnownRanges, read_metarange
from lakeplan.model.objects import RangeInfo
from lakeplan.ports.lakefs import MetadataReader
from lakeplan.simulation.regions import Regions
from lakeplan.simulation.work import Kind, WorkItem

FETCHES = 16
"""Metaranges in flight: each is a small file, and time goes into waiting."""

Holders = tuple[int, ...]
"""Bits of holders, one integer for each rule set."""


@dataclass
class Facts:
    """What a metarange passes on to its ranges. ``last``: -1 for none."""

    mask: int = 0
    last: int = -1
    holders: Holders = ()


@dataclass
class _Range:
    info: RangeInfo
    mask: int = 0
    last: int = -1
    holders: set[Holders] = field(default_factory=set)


@dataclass(frozen=True)
class Collected:
    """The ranges of some metaranges. ``holder_sets`` are the distinct sets that work items number."""

    items: list[WorkItem]
    holder_sets: list[Holders]
    metaranges: int
    entries: int
    size_bytes: int


def collect_ranges(
    metadata: MetadataReader,
    facts: Mapping[str, Facts],
    *,
    name: str,
    source: int = 0,
    step: Callable[[], None] = lambda: None,
) -> Collected:
    """Reads the metaranges (each verified against its id) and folds their facts into their ranges.

    Items are in the order in which ranges are first listed: where ``facts`` are in the order of dates, one
    more commit adds its ranges at the end. ``name`` is the repository in errors; ``step`` is called after
    each metarange. Raises FormatError naming the metarange, and what ``metadata`` raises.
    """
    ranges: dict[str, _Range] = {}
    records: KnownRanges = {}
    for meta_range_id, data in _fetch_all(metadata, list(facts)):
        fact = facts[meta_range_id]
        where = f"{name}: metarange {meta_range_id}"
        for info in read_metarange(data, name=where, verify_id=meta_range_id, known=records):
            known = ranges.get(info.id)
            if known is None:
                known = ranges[info.id] = _Range(info)
            known.mask |= fact.mask
            known.last = max(known.last, fact.last)
            if any(fact.holders):
                known.holders.add(fact.holders)
        step()
    return _number_holders(ranges, source, len(facts))


def _number_holders(ranges: dict[str, _Range], source: int, metaranges: int) -> Collected:
    regions = Regions((known.info.min_key, known.info.max_key) for known in ranges.values())
    numbers: dict[Holders, int] = {}
    unions: dict[frozenset[Holders], int] = {}
    items = []
    for range_id, known in ranges.items():
        holders = -1
        if known.holders:
            key = frozenset(known.holders)
            if key not in unions:
                unions[key] = numbers.setdefault(union(key), len(numbers))
            holders = unions[key]
        info = known.info
        items.append(
            WorkItem(
                Kind.RANGE,
                source,
                range_id,
                weight=max(info.estimated_size, 0),
                mask=known.mask,
                last=known.last,
                holders=holders,
                sort_key=regions.key(info.min_key),
            )
        )
    infos = [known.info for known in ranges.values()]
    entries, size = sum(i.count for i in infos), sum(i.estimated_size for i in infos)
    return Collected(items, list(numbers), metaranges, entries, size)


def union(sets: frozenset[Holders] | list[Holders]) -> Holders:
    """Everyone in any of some non-empty sets."""
    found = [0] * max(map(len, sets), default=0)
    for holders in sets:
        for n, bits in enumerate(holders):
            found[n] |= bits
    return tuple(found)


def _fetch_all(metadata: MetadataReader, ids: list[str]) -> Iterator[tuple[str, bytes]]:
    """Metaranges in order, a bounded number in flight."""
    coming = iter(ids)
    waiting: deque[tuple[str, Future[bytes]]] = deque()
    with ThreadPoolExecutor(FETCHES) as pool:
        try:
            while True:
                for id in islice(coming, FETCHES - len(waiting)):
                    waiting.append((id, pool.submit(metadata.read_metadata, "meta_range", id)))
                if not waiting:
                    return
                id, future = waiting.popleft()
                yield id, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
