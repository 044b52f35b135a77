"""The steps of a simulation: functions from packets to packets. No step knows who runs it.

1. ``read_bins`` reads a bin of ranges, listings and uncommitted runs. It makes one row for each address, path
   and size (``table``) and sends rows by hash, with the texts of those that may be requested.
2. ``meet`` gets all rows of some hashes. It judges them, counts them by class, and returns those requested.
3. ``write_parts`` (for marks only, in ``marking``) gets neighbouring objects together.

An object that is in more places is never kept less. So a row needs no text if a range of kept commits holds
it. In each bin, ranges of kept commits are read first, and texts are made once for each pair that none of
them holds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.errors import LakeplanError, SimulationFailed, report_of
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.formats.range_arrays import Hashes, Ints
from lakeplan.simulation.local import ROWS_A_PIECE, TEXTS, Data, Packet, PacketKind, from_bytes, to_bytes
from lakeplan.simulation.observing import Fetched, Sightings, Source, fetch, observe, where_of
from lakeplan.simulation.runners import FETCH_AHEAD, LISTINGS, Kind, Leaves, WorkItem, ahead, unpack_bin
from lakeplan.simulation.segments import Opened, Segment, read_segment, segment_of, write_segment
from lakeplan.simulation.table import (
    CODES,
    NO_LEAF,
    STORED,
    Class,
    Classes,
    Leaf,
    Rows,
    Sets,
    Table,
    by_pairs,
    concat,
    fold_groups,
    in_order,
    leaf_of,
    most,
    new_table,
    pack,
    pairs_in_order,
    places_in,
    starts_of,
    starts_of_pairs,
    unpack,
)
from lakeplan.simulation.verdicts import Sighting

MAX_ROWS = 2_000_000
"""A table with this many rows is sent."""

MARK_PARTS = {Kind.LISTED, Kind.MARKED}
"""Their texts are always sent, with versions. A row of another address can have the same hash and pair, by
chance or because somebody made a path for it, and must not hide them."""

OBJECTS = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("seen", pa.int32(), nullable=False),
        pa.field("mask", pa.int64(), nullable=False),
        pa.field("alias_mask", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("version", pa.int64()),
        pa.field("modified_us", pa.int64()),
        pa.field("paths", pa.list_(pa.string()), nullable=False),
    ]
)
"""One row for each requested address. ``size`` is that of the storage for an object that was listed, else the
greatest of any entry. ``paths`` are distinct and in no order. ``last`` is -1 for none."""


ADDRESSES = pa.schema(
    [
        pa.field("hash", pa.uint64()),
        pa.field("address", pa.string()),
        pa.field("path_distinct", pa.list_(pa.string())),
        pa.field("version_max", pa.int64()),
        pa.field("modified_us_max", pa.int64()),
    ]
)


class Question(Protocol):
    """A question about the objects of one repository. Picklable."""

    def wants(self, each: Class) -> bool:
        """Whether texts may be needed for an object that is known only from a leaf of this class."""

    def takes(self, each: Class) -> bool:
        """Whether objects of this final class are requested."""

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, PacketKind, bytes]]:
        """The answers about some of the requested objects (``OBJECTS``), each with the place that gets it in
        the next step (0 without one)."""


@dataclass(frozen=True)
class Asked:
    """One repository. Its hashes meet in ``parts`` separate parts. Of another repository whose full addresses
    are searched for (``source.target``), only the source counts."""

    source: Source
    question: Question
    parts: int
    exact: bool = False
    """Whether objects whose hash two addresses share are never returned."""
    compares_sizes: bool = False
    """Whether ``Sighting.RESIZED`` is noted. The size of such an object is that of the entry."""


@dataclass(frozen=True)
class Job:
    """The input of every task. Sources carry credentials. ``use_compiled``: there is enough to read."""

    asked: tuple[Asked, ...]
    places: int
    use_compiled: bool = False

    def place(self, source: int, part: int) -> int:
        # repositories of one part are spread over all tasks
        return (source + part) % self.places


LEAVES = np.dtype([("kind", "u1"), ("mask", "i8"), ("last", "i4"), ("holders", "i4")])


def leaves_of(items: Sequence[WorkItem]) -> Leaves:
    """The facts of items, which must be numbered by their places."""
    rows = np.zeros(len(items), LEAVES)
    for name in ("kind", "mask", "last", "holders"):
        rows[name] = [getattr(item, name) for item in items]
    return rows


def judge_of(leaves: Leaves) -> Callable[[int], Leaf]:
    """A function from the number of a leaf to the leaf, according to the facts of items."""

    def leaf(number: int) -> Leaf:
        item, code = leaves[number // CODES], number % CODES
        return leaf_of(int(item["kind"]), code, int(item["mask"]), int(item["last"]), int(item["holders"]))

    return leaf


def read_bins(packets: Iterable[Packet], leaves: Leaves, job: Job) -> Iterator[Packet]:
    """The first step. ``leaves`` are ``leaves_of`` all items."""
    with ThreadPoolExecutor(FETCH_AHEAD) as pool, ThreadPoolExecutor(FETCH_AHEAD) as listers:
        for packet in packets:
            for source, items in groupby(unpack_bin(packet.data), key=lambda item: item.source):
                of = job.asked[source].source
                reader = _Reader(source if of.target is None else of.target, of, job, leaves)
                yield from reader.read(list(items), pool, listers)


class _Reader:
    """One repository's items of one bin."""

    def __init__(self, target: int, of: Source, job: Job, leaves: Leaves) -> None:
        self._target = target
        self._of = of
        self._job = job
        self._leaves = leaves
        self._question = job.asked[target].question
        self._parts = job.asked[target].parts
        self._errors: list[str] = []

    def read(
        self, items: list[WorkItem], pool: ThreadPoolExecutor, listers: ThreadPoolExecutor
    ) -> Iterator[Packet]:
        listings = [item for item in items if item.kind in LISTINGS]
        listed = ahead(listings, self._fetch, listers, FETCH_AHEAD)
        begun = [*islice(listed, 1)]  # listings continue while ranges are read
        others: list[WorkItem] = []
        ranges: list[WorkItem] = []
        for item in items:
            if item.kind is Kind.SEGMENT:
                segment, places = segment_of(item)
                opened = read_segment(self._of, segment)
                if opened is None:
                    ranges += self._ranges_of(segment, places)
                else:
                    yield from self._kept(opened, np.array(places, np.int64))
            elif item.kind is Kind.RANGE and self._of.cache is not None:
                ranges.append(item)
            elif item.kind not in LISTINGS:
                others.append(item)
        others.sort(key=lambda item: any(self._wanted(item)))
        yield from self._fold(ahead(ranges, self._fetch, pool, FETCH_AHEAD), all_texts=True)
        read = ahead(others, self._fetch, pool, FETCH_AHEAD)
        yield from self._fold(chain(read, begun, listed), all_texts=False)
        if self._errors:
            # Every part gets it: when Spark repeats a task, the second attempt may fail where the first did
            # not, and perhaps only one part still waits for its packets.
            report = min(self._errors).encode()
            yield from (self._packet(part, PacketKind.ERROR, report) for part in range(self._parts))

    def _fetch(self, item: WorkItem) -> Fetched:
        return fetch(self._of, item)

    def _ranges_of(self, segment: Segment, places: list[int]) -> Iterator[WorkItem]:
        for id, number in zip(segment.ranges, places, strict=True):
            if number >= 0:
                mask, last, holders = (int(self._leaves[number][n]) for n in ("mask", "last", "holders"))
                yield WorkItem(Kind.RANGE, self._target, id, 0, mask, last, holders, number=number)

    def _fold(
        self, items: Iterable[tuple[WorkItem, Callable[[], Fetched]]], *, all_texts: bool
    ) -> Iterator[Packet]:
        use_compiled = self._job.use_compiled
        fold = _Fold(new_table(use_compiled=use_compiled), all_texts)
        for item, fetched in items:
            try:
                for rows in observe(self._of, item, fetched(), use_compiled=use_compiled):
                    fold.add(item, rows, self._wanted(item))
                    if len(fold.table) >= MAX_ROWS:
                        yield from self._flush(fold)
                        fold = _Fold(new_table(use_compiled=use_compiled), all_texts)
            except LakeplanError as error:
                self._errors.append(report_of(error, where_of(self._of, item)))
        if fold.items:
            yield from self._flush(fold)

    def _wanted(self, item: WorkItem) -> list[bool]:
        """Whether texts may be needed, by code."""
        return [
            self._question.wants(leaf_of(item.kind, code, item.mask, item.last, item.holders).of)
            for code in range(CODES)
        ]

    def _flush(self, fold: _Fold) -> Iterator[Packet]:
        sets = Sets()
        pairs, rows = fold.table.rows(sets)
        numbers = np.array([item.number for item in fold.items], np.int64)
        if not fold.all_texts:
            yield from self._send(rows, sets, numbers)
            if fold.texts:
                texts = pa.concat_tables(fold.texts)
                yield from self._send_texts(texts.take(pa.array(in_order(texts["hash"].to_numpy()))))
            return
        texts = fold.texts_of(pairs, rows.hashes)
        yield from self._send(rows, sets, numbers)
        yield from self._send_wanted(
            rows, sets, numbers, lambda some: [t.filter(pa.array(some)) for t in texts]
        )
        written = write_segment(self._of, [item.name for item in fold.items], rows, sets, texts)
        if written is not None:
            yield self._packet(0, PacketKind.SEGMENT, json.dumps(written).encode())

    def _kept(self, opened: Opened, numbers: Ints) -> Iterator[Packet]:
        yield from self._send(opened.rows, opened.sets, numbers)
        yield from self._send_wanted(opened.rows, opened.sets, numbers, opened.texts)

    def _send(self, rows: Rows, sets: Sets, numbers: Ints) -> Iterator[Packet]:
        """Sends rows. ``numbers`` are those of the items with leaves in ``sets``, -1 for other items."""
        leaves = leaves_among(numbers)
        if (numbers < 0).any():
            rows = rows.part(sets.having(leaves >= 0)[rows.sets])
        yield from self._by_part(
            rows.hashes, lambda some: pack(rows.part(some), sets, leaves), PacketKind.ROWS
        )

    def _send_wanted(
        self,
        rows: Rows,
        sets: Sets,
        numbers: Ints,
        texts: Callable[[npt.NDArray[np.bool_]], Sequence[pa.Array]],
    ) -> Iterator[Packet]:
        """Sends the texts of rows that no leaf here keeps."""
        classes, leaf, leaves = Classes(), judge_of(self._leaves), leaves_among(numbers)
        kinds, _ = sets.judged(classes, lambda one: leaf(int(leaves[one])) if leaves[one] >= 0 else NO_LEAF)
        wanted = np.array([each.flags != 0 and self._question.wants(each) for each in classes.all], np.bool_)
        some = wanted[kinds][rows.sets]
        if some.any():
            hashes = pa.array(rows.hashes[some])
            nothing = pa.nulls(int(some.sum()), pa.int64())
            columns = [hashes, *texts(some), nothing, nothing]
            yield from self._send_texts(pa.Table.from_arrays(columns, schema=TEXTS))

    def _send_texts(self, texts: pa.Table) -> Iterator[Packet]:
        """Sends ``texts``, which are in ascending order of hashes."""
        hashes = texts["hash"].to_numpy()
        yield from self._by_part(
            hashes, lambda some: to_bytes(texts.slice(some.start, some.stop - some.start)), PacketKind.TEXTS
        )

    def _by_part(
        self, ascending: Hashes, packed: Callable[[slice], bytes], of: PacketKind
    ) -> Iterator[Packet]:
        ends = np.searchsorted(part_of(ascending, self._parts), np.arange(self._parts + 1)).tolist()
        for part in range(self._parts):
            for at in range(ends[part], ends[part + 1], ROWS_A_PIECE):
                yield self._packet(part, of, packed(slice(at, min(at + ROWS_A_PIECE, ends[part + 1]))))

    def _packet(self, part: int, of: PacketKind, data: bytes) -> Packet:
        return Packet(self._job.place(self._target, part), self._target, part, of, data)


@dataclass
class _Fold:
    """Items that become rows together, in the order of their leaves. ``all_texts``: texts of all pairs are
    made, not only of those that may be requested."""

    table: Table
    all_texts: bool
    items: list[WorkItem] = field(default_factory=list)
    pairs: list[Hashes] = field(default_factory=list)
    texts: list[pa.Table] = field(default_factory=list)
    """The texts of ``pairs``."""

    def add(self, item: WorkItem, batch: Sightings, wanted: Sequence[bool]) -> None:
        if not self.items or self.items[-1] is not item:
            self.items.append(item)
        first_leaf = (len(self.items) - 1) * CODES
        fresh = self.table.add(batch.pairs, batch.hashes, batch.sizes, batch.codes, first_leaf)
        if item.kind in MARK_PARTS:
            fresh[:] = True
        rows = np.flatnonzero(fresh if self.all_texts else fresh & np.array(wanted, np.bool_)[batch.codes])
        if rows.size:
            addresses, paths = batch.texts(rows)
            nothing = pa.nulls(rows.size, pa.int64())
            versions = nothing if batch.versions is None else pa.array(batch.versions[rows])
            modified = nothing if batch.modified_us is None else pa.array(batch.modified_us[rows])
            columns = [pa.array(batch.hashes[rows]), addresses, paths, versions, modified]
            self.pairs.append(batch.pairs[rows])
            self.texts.append(pa.Table.from_arrays(columns, schema=TEXTS))

    def texts_of(self, pairs: Hashes, hashes: Hashes) -> list[pa.Array]:
        """Addresses and paths of all pairs, in the order given."""
        texts = pa.concat_tables([TEXTS.empty_table(), *self.texts])
        known, of_known = np.concatenate([pairs[:0], *self.pairs]), texts["hash"].to_numpy()
        order = pairs_in_order(known, of_known)
        once = order[starts_of_pairs(known[order], of_known[order])]
        places = np.empty(pairs.size, np.int64)
        places[pairs_in_order(pairs, hashes)] = once
        table = texts.select(["address", "path"]).take(pa.array(places)).combine_chunks()
        return [column.chunk(0) for column in table.columns]


def leaves_among(numbers: Ints) -> Ints:
    """For each leaf of some items, its number among the leaves of all items, or -1 for an item that has
    none."""
    leaves = numbers[:, None] * CODES + np.arange(CODES)
    leaves[numbers < 0] = -1
    matching: Ints = leaves.ravel()
    return matching


def part_of(hashes: Hashes, parts: int) -> Ints:
    numbers: Ints = ((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)
    return numbers


def meet(packets: Iterable[Packet], leaves: Leaves, job: Job) -> Iterator[Packet]:
    """The second step, for all packets of some parts. ``leaves`` are ``leaves_of`` all items."""
    by_part: dict[tuple[int, int], dict[int, list[Data]]] = defaultdict(lambda: defaultdict(list))
    for packet in packets:
        by_part[packet.source, packet.part][packet.of].append(packet.data)
    for source, part in sorted(by_part):
        its = by_part.pop((source, part))
        for data in its[PacketKind.SEGMENT]:
            yield Packet(0, source, part, PacketKind.SEGMENT, data)
        if PacketKind.ERROR in its:
            yield Packet(0, source, part, PacketKind.ERROR, min(map(bytes, its[PacketKind.ERROR])))
            continue
        for place, of, data in _answers(
            job.asked[source], leaves, its[PacketKind.ROWS], its[PacketKind.TEXTS]
        ):
            yield Packet(place, source, part, of, data)


def _answers(
    asked: Asked, leaves: Leaves, rows: list[Data], texts: list[Data]
) -> Iterator[tuple[int, PacketKind, bytes]]:
    sets, classes = Sets(), Classes()
    together = concat([unpack(data, sets) for data in rows])
    rows.clear()
    objects = objects_of(together, sets, classes, judge_of(leaves))
    if asked.compares_sizes:
        objects = with_resized(objects, together, sets.judged(classes, judge_of(leaves))[0], classes)
    yield 0, PacketKind.COUNTS, counts_of(objects, classes).encode()
    takes = np.array([asked.question.takes(each) for each in classes.all], np.bool_)
    chosen = objects.part(takes[objects.classes])
    if len(chosen):
        tables = (from_bytes(texts.pop()) for _ in range(len(texts)))
        for table in named(chosen, tables, classes, exact=asked.exact):
            yield from asked.question.answers(table)


@dataclass(frozen=True)
class Objects:
    """Columns of equal length, in ascending order of distinct hashes. ``classes`` are numbers."""

    hashes: Hashes
    sizes: Ints
    classes: Ints
    lasts: Ints

    def __len__(self) -> int:
        return int(self.hashes.size)

    def part(self, rows: npt.NDArray[np.bool_]) -> Objects:
        return Objects(self.hashes[rows], self.sizes[rows], self.classes[rows], self.lasts[rows])


def objects_of(rows: Rows, sets: Sets, classes: Classes, leaf: Callable[[int], Leaf]) -> Objects:
    """One object for each address, with all places where it was seen, under any path."""
    numbers, lasts = sets.judged(classes, leaf)
    order = in_order(rows.hashes)
    hashes, of_row = rows.hashes[order], rows.sets[order]
    starts = starts_of(hashes)
    class_of = numbers[of_row[starts]]
    fold_groups(class_of, numbers[of_row], starts, partial(by_pairs, join=classes.join))
    sizes = most(rows.sizes[order], starts) & (STORED - 1)
    return Objects(hashes[starts], sizes, class_of, most(lasts[of_row], starts))


def with_resized(objects: Objects, all_rows: Rows, numbers: Ints, classes: Classes) -> Objects:
    """The same objects, where those that are stored in another size than a kept entry says have
    ``Sighting.RESIZED`` and that entry's size. ``numbers`` are the classes of the sets of ``seen``."""
    names = np.array([is_kept_entry(each) for each in classes.all], np.bool_)
    stored = np.array([bool(each.flags & Sighting.LISTED) for each in classes.all], np.bool_)
    entries = all_rows.part(names[numbers[all_rows.sets]] & (all_rows.sizes < STORED))
    places, _ = places_in(objects.hashes, entries.hashes)
    differs = stored[objects.classes[places]] & (entries.sizes != objects.sizes[places])
    if not differs.any():
        return objects
    sizes, class_of, rows = objects.sizes.copy(), objects.classes.copy(), places[differs]
    sizes[rows] = 0
    np.maximum.at(sizes, rows, entries.sizes[differs])
    resized = classes.number(Class(int(Sighting.RESIZED)))
    rows = np.unique(rows)
    class_of[rows] = by_pairs(class_of[rows], np.full(rows.size, resized), classes.join)
    return Objects(objects.hashes, sizes, class_of, objects.lasts)


def is_kept_entry(each: Class) -> bool:
    """Whether an entry of a commit with a mask, or one below a held prefix, certainly names the object."""
    return bool(each.flags & Sighting.ENTRY and (each.mask or each.flags & Sighting.HELD))


def counts_of(objects: Objects, classes: Classes) -> str:
    """Counts of each class, as JSON: where it was seen, verdict bits, holders, objects and bytes."""
    amount = np.bincount(objects.classes, minlength=len(classes.all)).tolist()
    # in halves, so that no sum runs over 64 bits
    low, high = np.zeros(len(classes.all), np.int64), np.zeros(len(classes.all), np.int64)
    np.add.at(low, objects.classes, objects.sizes & 0xFFFFFFFF)
    np.add.at(high, objects.classes, objects.sizes >> 32)
    rows = zip(classes.all, amount, high.tolist(), low.tolist(), strict=True)
    counts = [
        [c.flags, c.mask, c.alias_mask, sorted(c.holders), count, (above << 32) + below]
        for c, count, above, below in rows
        if count and c.flags
    ]
    return json.dumps(counts)


def named(chosen: Objects, texts: Iterable[pa.Table], classes: Classes, *, exact: bool) -> Iterator[pa.Table]:
    """``OBJECTS`` of the chosen objects, distinguished by whole addresses. ``texts`` may be of others too.

    Raises SimulationFailed when the address of an object was not sent.
    """
    grouped = _by_address(chosen, texts, exact=exact)
    places = np.searchsorted(chosen.hashes, grouped["hash"].to_numpy())
    numbers = chosen.classes[places]

    def of_class(values: list[int], kind: pa.DataType) -> pa.Array:
        return pa.array(np.array(values, np.int64)[numbers]).cast(kind)

    every = classes.all
    table = pa.Table.from_arrays(
        [
            grouped["address"],
            of_class([each.flags for each in every], pa.int32()),
            of_class([each.mask for each in every], pa.int64()),
            of_class([each.alias_mask for each in every], pa.int64()),
            pa.array(chosen.lasts[places]),
            pa.array(chosen.sizes[places]),
            grouped["version_max"],
            grouped["modified_us_max"],
            grouped["path_distinct"],
        ],
        schema=OBJECTS,
    )
    for at in range(0, table.num_rows, ROWS_A_PIECE):
        yield table.slice(at, ROWS_A_PIECE)


def _by_address(chosen: Objects, texts: Iterable[pa.Table], *, exact: bool) -> pa.Table:
    """The chosen objects as ``ADDRESSES``."""
    tables = []
    for table in texts:
        _, hit = places_in(chosen.hashes, table["hash"].to_numpy())
        tables.append(table if hit.all() else table.filter(pa.array(hit)))
    every = pa.concat_tables([TEXTS.empty_table(), *tables])
    hashes = every["hash"].to_numpy()
    order = in_order(hashes)
    starts = starts_of(hashes[order])
    if starts.size != len(chosen):
        raise SimulationFailed(f"{len(chosen) - starts.size} objects are requested without an address")
    single = np.diff(starts, append=hashes.size) == 1
    alone = every.take(pa.array(order[starts[single]])).combine_chunks()
    lone = pa.Table.from_arrays(
        [
            *(alone["hash"], alone["address"], _alone(alone["path"])),
            *(alone["version"], alone["modified_us"]),
        ],
        schema=ADDRESSES,
    )
    if single.all():
        return lone
    several = order[np.repeat(~single, np.diff(starts, append=hashes.size))]
    return pa.concat_tables([lone, _grouped(every.take(pa.array(several)), exact=exact)])


def _alone(paths: pa.ChunkedArray) -> pa.ListArray:
    """Each path as a list of one. Null becomes an empty list."""
    places = np.concatenate((np.zeros(1, np.int32), np.cumsum(paths.is_valid().to_numpy(), dtype=np.int32)))
    return pa.ListArray.from_arrays(pa.array(places), paths.drop_null().combine_chunks())


def _grouped(texts: pa.Table, *, exact: bool) -> pa.Table:
    grouped = (
        texts.group_by(["hash", "address"])
        .aggregate(
            [
                ("path", "distinct", pc.CountOptions(mode="only_valid")),
                *(("version", "max"), ("modified_us", "max")),
            ]
        )
        .select(ADDRESSES.names)
        .cast(ADDRESSES)
    )
    hashes = grouped["hash"].to_numpy()
    ascending = np.sort(hashes)
    _, shared = places_in(ascending[1:][ascending[1:] == ascending[:-1]], hashes)
    if not shared.any():
        return grouped
    # Several addresses have one hash, and what holds one of them may not hold the other.
    if exact:
        return grouped.filter(pa.array(~shared))
    candidates = [is_candidate_key(text) for text in grouped["address"].to_pylist()]
    return grouped.filter(pa.array(candidates, pa.bool_()))
