"""Which ranges the commits of a repository use, and what each of them means for the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from lakeplan.formats.ranges import KnownRanges, read_metarange
from lakeplan.lakefs.protocols import MetadataKind, MetadataReader
from lakeplan.simulation.requests import Facts, Holders, union
from lakeplan.simulation.work import Kind, WorkItem, ahead
from lakeplan.values.objects import RangeInfo


class Regions:
    """Ranges by their first and last keys; one more range never divides a region."""

    def __init__(self, spans: Iterable[tuple[bytes, bytes]]) -> None:
        """``spans`` are (first key, last key) of all ranges."""
        self._parents: dict[tuple[bool, bytes], tuple[bool, bytes]] = {}
        self._first: dict[tuple[bool, bytes], bytes] = {}
        for first, last in spans:
            for end in ((False, first), (True, last)):
                self._parents.setdefault(end, end)
            low, high = self._root((False, first)), self._root((True, last))
            least = min(self._first.pop(low, first), self._first.pop(high, first), first)
            self._parents[high] = low
            self._first[low] = least

    def key(self, first: bytes) -> bytes:
        """Of the region of the range that begins here: its least key, no other region's."""
        return self._first[self._root((False, first))]

    def _root(self, end: tuple[bool, bytes]) -> tuple[bool, bytes]:
        while (parent := self._parents[end]) != end:
            self._parents[end] = self._parents[parent]  # halves the way for who comes next
            end = parent
        return end


FETCHES = 16
"""Files in flight: metaranges are small, and time goes into waiting."""


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
    for meta_range_id, data in fetch_metadata(metadata, "meta_range", facts):
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


def fetch_metadata(
    metadata: MetadataReader, kind: MetadataKind, ids: Iterable[str]
) -> Iterator[tuple[str, bytes]]:
    """Files in order, a bounded number in flight."""
    with ThreadPoolExecutor(FETCHES) as pool:
        for id, fetched in ahead(ids, partial(metadata.read_metadata, kind), pool, FETCHES):
            yield id, fetched()
