"""Questions about the objects of repositories, the job that a runner gets, and the answers as rows."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.errors import LakeplanError, failure
from lakeplan.formats.compiled import is_worth_it
from lakeplan.formats.range_arrays import Ints
from lakeplan.simulation.local import Packet, PacketKind, from_bytes, to_bytes
from lakeplan.simulation.observing import Source
from lakeplan.simulation.output import EXPIRED, MAX_NAMES, MAX_PREFIX_DEPTH, NEVER_COMMITTED
from lakeplan.simulation.requests import Holders, union
from lakeplan.simulation.runners import LISTINGS, Kind, Runner, Step, WorkItem, numbered, pack
from lakeplan.simulation.segments import Manifest, Segment, item_of
from lakeplan.simulation.steps import Asked, Job, Question, leaves_of, meet, read_bins
from lakeplan.simulation.table import Class
from lakeplan.simulation.verdicts import BranchTotals, ObjectClass, RuleSetBits, Sighting
from lakeplan.values.shown_records import RECORD, object_digests, packed
from lakeplan.values.simulation import Amount, Transition

_PATHS = pa.list_(pa.string())
_FILE_NAME = "[^/]*$"
PREFIXES = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("prefix", pa.string(), nullable=False),
        pa.field("objects", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
    ]
)
"""Amounts by prefix, on their way to the driver. ``name`` is that of the rule set."""
ByPrefix = dict[str, dict[str, Amount]]
"""By name, then by prefix."""


def goes(objects: pa.Table, bits: RuleSetBits, *, listing: bool) -> pa.Table:
    """The rows of ``steps.OBJECTS`` that the server's collector would delete (lakefs/retention.md)."""
    flags, both = _ints(objects["seen"]), _ints(objects["mask"]) | _ints(objects["alias_mask"])
    wanted = int(Sighting.OLD if listing else Sighting.ENTRY | Sighting.CANDIDATE)
    going = (flags & wanted == wanted) & (flags & int(Sighting.UNCOMMITTED) == 0) & (both & bits.server == 0)
    return objects if going.all() else objects.filter(pa.array(going))


def rows_of(going: pa.Table, last_commits: Mapping[int, str], bits: RuleSetBits) -> pa.Table:
    """The columns of ``objects/``, with ``rule_set`` last."""
    flags, both = _ints(going["seen"]), _ints(going["mask"]) | _ints(going["alias_mask"])
    committed = flags & int(Sighting.ENTRY | Sighting.ALIAS) != 0
    paths = sorted_paths(going["paths"])
    return pa.table(
        {
            "address": going["address"],
            "size_bytes": going["size"],
            "paths": pc.list_slice(paths, 0, MAX_NAMES) if _longest(paths) > MAX_NAMES else paths,
            "last_commit_id": _commit_ids(going["last"], last_commits),
            "reason": pc.if_else(pa.array(committed), EXPIRED, NEVER_COMMITTED),
            "at_risk": pa.array(both & bits.documented != 0),
            "rule_set": pa.repeat(pa.scalar(bits.name, pa.string()), going.num_rows),
        }
    )


def prefix_rows(name: str, objects: pa.Table) -> pa.Table:
    """The rows of ``PREFIXES`` for these objects."""
    amounts = amounts_by_prefix(objects)
    columns = [
        pa.repeat(pa.scalar(name, pa.string()), len(amounts)),
        pa.array(amounts, pa.string()),
        pa.array([amount.objects for amount in amounts.values()], pa.int64()),
        pa.array([amount.size_bytes for amount in amounts.values()], pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=PREFIXES)


def _add_prefixes(by_name: ByPrefix, rows: pa.Table) -> None:
    for row in rows.to_pylist():
        of_name = by_name.setdefault(row["name"], {})
        amount = Amount(row["objects"], row["size_bytes"])
        of_name[row["prefix"]] = of_name.get(row["prefix"], Amount()) + amount


def largest(amounts: Mapping[str, Amount], most: int) -> list[tuple[str, Amount]]:
    """The prefixes with the most bytes, then the most objects, then by name."""
    order = sorted(amounts.items(), key=lambda row: (-row[1].size_bytes, -row[1].objects, row[0]))
    return order[:most]


def _ints(column: pa.ChunkedArray) -> Ints:
    numbers: Ints = column.to_numpy().astype(np.int64)
    return numbers


def sorted_paths(column: pa.ChunkedArray) -> pa.ListArray:
    """Each list of paths, sorted. Null becomes an empty list."""
    paths = column.combine_chunks().cast(_PATHS)
    if paths.null_count:
        paths = pc.if_else(paths.is_valid(), paths, pa.scalar([], _PATHS))
    if _longest(paths) <= 1:
        return paths
    return pa.array([sorted(of_one) for of_one in paths.to_pylist()], _PATHS)


def _longest(paths: pa.ListArray) -> int:
    return int(pc.max(pc.list_value_length(paths)).as_py() or 0)


def _commit_ids(last: pa.ChunkedArray, names: Mapping[int, str]) -> pa.Array:
    positions = pa.array(names, pa.int64())
    places = pc.index_in(last.combine_chunks(), positions)
    return pa.array(names.values(), pa.string()).take(places)


def amounts_by_prefix(going: pa.Table) -> dict[str, Amount]:
    """Amounts of ``steps.OBJECTS`` by prefix. An object counts once for each distinct prefix of its paths."""
    paths, sizes = going["paths"].combine_chunks(), _ints(going["size"])
    lengths = _ints(pa.chunked_array([pc.list_value_length(paths)]))
    sums: dict[str, Amount] = {}

    def add(prefixes: set[str], objects: int, size: int) -> None:
        for prefix in prefixes:
            sums[prefix] = sums.get(prefix, Amount()) + Amount(objects, size)

    none = lengths == 0
    if none.any():
        add({""}, int(none.sum()), sum(sizes[none].tolist()))
    for row in np.flatnonzero(lengths > 1).tolist():
        add(set().union(*map(prefixes_of, paths[row].as_py())), 1, int(sizes[row]))
    one = lengths == 1
    if one.any():
        folders = pc.replace_substring_regex(
            paths.filter(pa.array(one)).flatten(), pattern=_FILE_NAME, replacement=""
        )
        # In halves, because clients choose the size of an entry, and few of the largest exceed 64 bits.
        low, high = sizes[one] & 0xFFFFFFFF, sizes[one] >> 32
        amounts = pa.table({"folder": folders, "low": low, "high": high}).group_by("folder")
        rows = amounts.aggregate([("low", "sum"), ("high", "sum"), ("low", "count")]).to_pylist()
        for row in rows:
            add(prefixes_of(row["folder"]), row["low_count"], row["low_sum"] + (row["high_sum"] << 32))
    return sums


def prefixes_of(path: str) -> set[str]:
    """ "" and every folder of the path, down to ``MAX_PREFIX_DEPTH``."""
    parts = path.split("/")
    depth = min(len(parts) - 1, MAX_PREFIX_DEPTH)
    return {"", *("/".join(parts[:n]) + "/" for n in range(1, depth + 1))}


def branch_totals(
    classes: Iterable[ObjectClass],
    holder_sets: Sequence[Holders],
    rule_set: int,
    branches: int,
    *,
    listing: bool,
) -> BranchTotals:
    """Return the objects that branches hold under the documented rule. ``rule_set`` is its position in
    ``Holders``. The bit after those of the branches is that of dangling commits, which hold objects too."""
    by_mask: dict[int, Amount] = {}
    for each in classes:
        if each.holders and each.counts(listing):
            mask = union([holder_sets[n] for n in each.holders])[rule_set]
            by_mask[mask] = by_mask.get(mask, Amount()) + each.amount
    held = np.zeros((4, branches), dtype=np.int64)
    width = branches // 8 + 1
    for mask, amount in by_mask.items():
        alone = mask.bit_count() == 1
        bits = np.unpackbits(np.frombuffer(mask.to_bytes(width, "little"), np.uint8), bitorder="little")
        flags = bits[:branches].astype(np.int64)
        held[0] += flags * amount.objects
        held[1] += flags * amount.size_bytes
        if alone:
            held[2] += flags * amount.objects
            held[3] += flags * amount.size_bytes
    return BranchTotals(*(row.tolist() for row in held))


class Naming(NamedTuple):
    """The objects of one repository that are named one by one. ``key`` is ``server/name``. ``bits`` are, for
    each transition, the bit that its objects get and verdict bits before and after. A bit may appear more
    than once."""

    key: str
    bits: tuple[tuple[int, int, int], ...]


def records_of(objects: pa.Table, naming: Naming) -> bytes:
    """Records of those objects in ``steps.OBJECTS`` that expire in some transition."""
    masks = objects["mask"].to_numpy().astype(np.int64, copy=False)
    bits: npt.NDArray[np.uint8] = np.zeros(masks.size, np.uint8)
    for bit, before, after in naming.bits:
        bits[(masks & before != 0) & (masks & after == 0)] |= bit
    going = bits != 0
    addresses = objects["address"].filter(pa.array(going)).to_pylist()
    return packed([(object_digests(naming.key, addresses), bits[going])])


def joined(parts: Sequence[bytes]) -> bytes:
    """The ordered records of several parts as one ordered set."""
    records = np.frombuffer(b"".join(parts), RECORD)
    return packed([(np.ascontiguousarray(records["digest"]), records["bits"])])


CANDIDATES = Sighting.ENTRY | Sighting.CANDIDATE


@dataclass(frozen=True)
class CountsOnly:
    """Requests only counts."""

    def wants(self, each: Class) -> bool:
        return False

    def takes(self, each: Class) -> bool:
        return False

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, PacketKind, bytes]]:
        yield from ()


@dataclass(frozen=True)
class ExpiryUnderRules:
    """Requests what the server's collector would delete under any of the rule sets. ``listing``: stored
    objects were listed. ``rows``: whether objects are requested too, besides amounts by prefix."""

    rule_sets: Sequence[RuleSetBits]
    listing: bool
    rows: bool

    def wants(self, each: Class) -> bool:
        return not all(each.any_mask & bits.server for bits in self.rule_sets)

    def takes(self, each: Class) -> bool:
        wanted = Sighting.OLD if self.listing else Sighting.ENTRY | Sighting.CANDIDATE
        if each.flags & wanted != wanted or each.flags & Sighting.UNCOMMITTED:
            return False
        return any(not each.any_mask & bits.server for bits in self.rule_sets)

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, PacketKind, bytes]]:
        for bits in self.rule_sets:
            going = goes(objects, bits, listing=self.listing)
            if going.num_rows:
                yield 0, PacketKind.PREFIXES, to_bytes(prefix_rows(bits.name, going))
        if self.rows:
            yield 0, PacketKind.OBJECTS, to_bytes(objects)


@dataclass(frozen=True)
class ExpiryInTransitions:
    """Requests what expires because of changes of rules. Objects of ``detail`` are counted by prefix, those
    of ``naming`` are named one by one."""

    detail: Transition
    naming: Naming

    @property
    def _all(self) -> list[tuple[int, int]]:
        return [*self.detail.bits, *((before, after) for _, before, after in self.naming.bits)]

    def wants(self, each: Class) -> bool:
        if each.flags & Sighting.LISTED and not each.flags & Sighting.ENTRY:
            return False  # the text comes with an entry
        return not all(each.any_mask & after for _, after in self._all)

    def takes(self, each: Class) -> bool:
        if each.flags & CANDIDATES != CANDIDATES:
            return False
        mask = each.any_mask
        return any(mask & before and not mask & after for before, after in self._all)

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, PacketKind, bytes]]:
        masks = objects["mask"].to_numpy()
        going = np.zeros(masks.size, np.bool_)
        for before, after in self.detail.bits:
            going |= (masks & before != 0) & (masks & after == 0)
        if going.any():
            yield 0, PacketKind.PREFIXES, to_bytes(prefix_rows("", objects.filter(pa.array(going))))
        if self.naming.bits:
            yield 0, PacketKind.RECORDS, records_of(objects, self.naming)


_log = logging.getLogger(__name__)
ROWS_A_PART = 1_000_000
"""Rows that meet in one task. Each takes 32 bytes, and as much again while rows are sorted."""
FEW_ROWS = 500_000
"""Below this many rows, a repository's objects meet in one task."""
LISTED_PARTS = 16
"""The least number of parts where storage is listed: it may hold many times more objects than commits
name."""


@dataclass(frozen=True)
class Asking:
    """A question about one repository. Of another repository whose full addresses are searched for
    (``source.target``), only the items count. ``rows``: about how many entries and stored objects there are.
    ``items`` have the place of the repository among all as their ``source``."""

    source: Source
    question: Question
    items: Sequence[WorkItem]
    rows: int
    exact: bool = False
    compares_sizes: bool = False


@dataclass
class Answer:
    """The ``classes`` of all objects and the amounts of those requested by prefix, or the ``error`` of what
    could not be read."""

    classes: list[ObjectClass] = field(default_factory=list)
    prefixes: ByPrefix = field(default_factory=dict)
    error: LakeplanError | None = None

    def checked(self) -> Answer:
        """Raises the error, if there is one."""
        if self.error is not None:
            raise self.error
        return self


Take = Callable[[int, PacketKind, bytes], None]
"""Gets the place of a repository and a part of the answer to its question, as soon as it arrives."""


def ask(
    runner: Runner,
    asking: Sequence[Asking],
    more: Sequence[Step] = (),
    take: Take = lambda place, kind, data: None,
) -> list[Answer]:
    """Runs one job for all repositories. ``take`` gets what their questions request besides amounts. ``more``
    are steps after ``meet``."""
    items = numbered([item for one in asking for item in one.items])
    of_source = {source: list(of) for source, of in groupby(items, key=attrgetter("source"))}
    kept = [_Kept(one.source, of_source.get(place, [])) for place, one in enumerate(asking)]
    to_read = [item for one in kept for item in one.to_read]
    parallelism = runner.parallelism
    parts = [_parts_of(one, parallelism) for one in asking]
    spread = max([1, *parts, min(parallelism, len(asking))])
    job = Job(
        tuple(
            Asked(one.source, one.question, count, one.exact, one.compares_sizes)
            for one, count in zip(asking, parts, strict=True)
        ),
        spread,
        use_compiled=is_worth_it(
            sum(int(one.rows * its.share) for one, its in zip(asking, kept, strict=True))
        ),
    )
    steps = (Step(partial(read_bins, job=job), 0), Step(partial(meet, job=job), spread), *more)
    counts: defaultdict[int, dict[tuple[object, ...], Amount]] = defaultdict(dict)
    answers = [Answer() for _ in asking]
    for packet in runner.run(pack(to_read, parallelism), steps, leaves_of(items)) if to_read else ():
        answer = answers[packet.source]
        if packet.of == PacketKind.ERROR:
            answer.error = answer.error or failure(bytes(packet.data))
        elif packet.of == PacketKind.COUNTS:
            _count(counts[packet.source], packet)
        elif packet.of == PacketKind.SEGMENT:
            kept[packet.source].wrote(bytes(packet.data))
        elif packet.of == PacketKind.PREFIXES:
            _add_prefixes(answer.prefixes, from_bytes(packet.data))
        else:
            take(packet.source, PacketKind(packet.of), packet.data)
    for one in kept:
        one.end()
    for place, answer in enumerate(answers):
        answer.classes = [
            ObjectClass(Sighting(flags), mask, alias_mask, holders, amount)  # type: ignore[arg-type]
            for (flags, mask, alias_mask, holders), amount in counts[place].items()
        ]
    return answers


def _parts_of(one: Asking, parallelism: int) -> int:
    listed = LISTED_PARTS if any(item.kind in LISTINGS for item in one.items) else 1
    return listed if one.rows < FEW_ROWS else max(parallelism, listed, -(-one.rows // ROWS_A_PART))


class _Kept:
    """The ranges of one repository that are in the cache, and those that a run adds. ``to_read`` are the
    items to read, and ``share`` is their share of all bytes."""

    def __init__(self, source: Source, items: Sequence[WorkItem]) -> None:
        self._source = source
        self._written: list[Segment] = []
        self.to_read, self.share = list(items), 1.0
        if source.cache is None:
            return
        numbers = {item.name: item.number for item in items if item.kind is Kind.RANGE}
        self._used = Manifest.read(source).useful(numbers)
        known = {id for segment in self._used for id in segment.ranges}
        self.to_read = [item for item in items if item.kind is not Kind.RANGE or item.name not in known]
        weight = sum(item.weight for item in items)
        if weight:
            self.share = sum(item.weight for item in self.to_read) / weight
        left = sum(item.kind is Kind.RANGE for item in self.to_read)
        _log.info(
            "%s: %d of %d ranges are in the cache (%d MB)",
            source.name,
            len(numbers) - left,
            len(numbers),
            sum(segment.size for segment in self._used) // 1_000_000,
        )
        place = items[0].source if items else 0
        self.to_read += [item_of(segment, place, numbers) for segment in self._used]

    def wrote(self, data: bytes) -> None:
        name, ranges, *amounts = json.loads(data)
        self._written.append(Segment(name, tuple(ranges), *amounts))

    def end(self) -> None:
        if self._written:
            Manifest.after(self._used, self._written).write(self._source)
        if self._written and self._source.cache is not None:
            self._source.cache.trim()


def _count(counts: dict[tuple[object, ...], Amount], packet: Packet) -> None:
    for flags, mask, alias_mask, holders, objects, size in json.loads(bytes(packet.data)):
        key = (flags, mask, alias_mask, tuple(holders))
        counts[key] = counts.get(key, Amount()) + Amount(objects, size)
