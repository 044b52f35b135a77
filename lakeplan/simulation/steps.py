"""The steps of a simulation: functions from Arrow batches to Arrow batches. No step knows who runs it.

1. ``read_bins`` reads a bin of ranges, listings and uncommitted runs, folds what it saw into one row a pair
   of
   address and path (``table``), and sends rows by hash, with texts of those that may be asked for.
2. ``meet`` has all rows of its hashes: it judges them, counts them by class, and gives what is asked for.
3. ``write`` (a mark's only, ``marking``) has neighbouring objects together.

What may be asked for is known early, because more leaves never make an object less kept: a row that one range
holds whose commits are kept needs no text. So ranges that surely stay are read first in a bin, and texts are
made only of pairs that none of them has, once each.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.errors import LakeplanError, SimulationFailed
from lakeplan.formats.hashing import Hashes, Ints
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.simulation.exchange import (
    ROWS_A_PIECE,
    TEXTS,
    Of,
    Piece,
    from_bytes,
    pieces_in,
    to_batch,
    to_bytes,
)
from lakeplan.simulation.failing import report_of
from lakeplan.simulation.fetching import FETCH_AHEAD, ahead
from lakeplan.simulation.observing import Sightings, Source, fetch, observe, where_of
from lakeplan.simulation.sets import CODES, Class, Classes, Leaf, Sets, by_pairs, leaf_of
from lakeplan.simulation.table import (
    STORED,
    Rows,
    Table,
    concat,
    folded,
    in_order,
    is_in,
    new_table,
    pack,
    places_in,
    starts_of,
    unpack,
)
from lakeplan.simulation.work import LISTINGS, WorkItem, unpack_bin

MAX_ROWS = 2_000_000
"""Rows that a table holds at most before they are sent."""

OBJECTS = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("seen", pa.int32(), nullable=False),
        pa.field("mask", pa.int64(), nullable=False),
        pa.field("alias_mask", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("version", pa.int64()),
        pa.field("paths", pa.list_(pa.string()), nullable=False),
    ]
)
"""One row an address that was asked for. ``size``: what the storage says of an object that was listed, else
the greatest that entries say. ``paths`` are distinct, in no order; ``last`` is -1 for none."""


class Question(Protocol):
    """What is asked of the objects of one repository. Picklable."""

    def wants(self, each: Class) -> bool:
        """Whether the texts of an object may be needed of which a leaf of this class is all that is known."""

    def takes(self, each: Class) -> bool:
        """Whether an object of this class, which is all there is to know, is asked for."""

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, Of, bytes]]:
        """What is made of the objects that are asked for (``OBJECTS``, some of them at a time), with the
        place in which the next step gets it (0 without one)."""


@dataclass(frozen=True)
class Asked:
    """One repository: ``parts`` of its hashes meet apart. Of another repository whose full addresses are
    looked for (``source.target``), the source alone counts."""

    source: Source
    question: Question
    parts: int
    exact: bool = False
    """Objects whose hash two addresses share are none of those that are asked for."""


@dataclass(frozen=True)
class Job:
    """What every task is given. Sources carry credentials. ``use_compiled``: there is enough to read."""

    asked: tuple[Asked, ...]
    places: int
    use_compiled: bool = False

    def place(self, source: int, part: int) -> int:
        # repositories of one part are spread over all tasks
        return (source + part) % self.places


LEAVES = np.dtype([("kind", "u1"), ("mask", "i8"), ("last", "i4"), ("holders", "i4")])


def leaves_of(items: Sequence[WorkItem]) -> npt.NDArray[np.void]:
    """Facts of items, which must be numbered by their places."""
    found = np.zeros(len(items), LEAVES)
    for name in ("kind", "mask", "last", "holders"):
        found[name] = [getattr(item, name) for item in items]
    return found


def judge_of(leaves: npt.NDArray[np.void]) -> Callable[[int], Leaf]:
    """Leaves by number, out of the facts of items."""

    def leaf(number: int) -> Leaf:
        item, code = leaves[number // CODES], number % CODES
        return leaf_of(int(item["kind"]), code, int(item["mask"]), int(item["last"]), int(item["holders"]))

    return leaf


def read_bins(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """The first step."""
    with ThreadPoolExecutor(FETCH_AHEAD) as pool, ThreadPoolExecutor(FETCH_AHEAD) as listers:
        for piece in pieces_in(batches):
            for source, items in groupby(unpack_bin(piece.data), key=lambda item: item.source):
                target = job.asked[source].source.target
                reader = _Reader(source if target is None else target, job)
                for found in reader.read(job.asked[source].source, list(items), pool, listers):
                    yield to_batch(found)


class _Reader:
    """One repository's items of one bin."""

    def __init__(self, source: int, job: Job) -> None:
        self._source = source
        self._job = job
        self._question = job.asked[source].question
        self._parts = job.asked[source].parts
        self._table = self._new_table()
        self._texts: list[pa.Table] = []

    def read(
        self, of: Source, items: list[WorkItem], pool: ThreadPoolExecutor, listers: ThreadPoolExecutor
    ) -> Iterator[Piece]:
        ranges = sorted((item for item in items if item.kind not in LISTINGS), key=self._may_be_asked)
        listings = [item for item in items if item.kind in LISTINGS]
        listed = ahead(listings, lambda one: fetch(of, one), listers, FETCH_AHEAD)
        begun = [*islice(listed, 1)]  # listings go on while ranges are read
        read = ahead(ranges, lambda one: fetch(of, one), pool, FETCH_AHEAD)
        for item, fetched in chain(read, begun, listed):
            try:
                for seen in observe(of, item, fetched(), use_compiled=self._job.use_compiled):
                    self._add(item, seen)
                    if len(self._table) >= MAX_ROWS:
                        yield from self._flush()
            except LakeplanError as error:
                report = report_of(error, where_of(of, item))
                yield Piece(self._job.place(self._source, 0), self._source, 0, Of.ERROR, report.encode())
        yield from self._flush()

    def _new_table(self) -> Table:
        return new_table(use_compiled=self._job.use_compiled)

    def _may_be_asked(self, item: WorkItem) -> bool:
        return any(self._wanted(item))

    def _wanted(self, item: WorkItem) -> list[bool]:
        """By code, whether texts may be needed."""
        return [
            self._question.wants(leaf_of(item.kind, code, item.mask, item.last, item.holders).of)
            for code in range(CODES)
        ]

    def _add(self, item: WorkItem, seen: Sightings) -> None:
        fresh = self._table.add(seen.pairs, seen.hashes, seen.sizes, seen.codes, item.number * CODES)
        rows = np.flatnonzero(fresh & np.array(self._wanted(item), np.bool_)[seen.codes])
        if rows.size:
            addresses, paths = seen.texts(rows)
            nothing = pa.nulls(rows.size, pa.int64())
            versions = nothing if seen.versions is None else pa.array(seen.versions[rows])
            columns = [pa.array(seen.pairs[rows]), pa.array(seen.hashes[rows]), addresses, paths, versions]
            self._texts.append(pa.Table.from_arrays(columns, schema=TEXTS))

    def _flush(self) -> Iterator[Piece]:
        sets = Sets()
        rows, texts = self._table.rows(sets), self._texts
        self._table, self._texts = self._new_table(), []
        yield from self._by_part(rows.hashes, lambda some: pack(rows.part(some), sets), Of.ROWS)
        if texts:
            table = pa.concat_tables(texts).combine_chunks()
            hashes = table["hash"].to_numpy()
            yield from self._by_part(hashes, lambda some: to_bytes(table.take(pa.array(some))), Of.TEXTS)

    def _by_part(self, hashes: Hashes, packed: Callable[[Ints], bytes], of: Of) -> Iterator[Piece]:
        order = np.argsort(part_of(hashes, self._parts), kind="stable")
        ends = np.searchsorted(part_of(hashes, self._parts)[order], np.arange(self._parts + 1)).tolist()
        for part in range(self._parts):
            for at in range(ends[part], ends[part + 1], ROWS_A_PIECE):
                some = order[at : min(at + ROWS_A_PIECE, ends[part + 1])]
                yield Piece(self._job.place(self._source, part), self._source, part, of, packed(some))


def part_of(hashes: Hashes, parts: int) -> Ints:
    found: Ints = ((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)
    return found


def meet(
    batches: Iterable[pa.RecordBatch], job: Job, leaves: npt.NDArray[np.void]
) -> Iterator[pa.RecordBatch]:
    """The second step: all pieces of some parts. ``leaves`` are ``leaves_of`` all items."""
    found: dict[tuple[int, int], dict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for piece in pieces_in(batches):
        found[piece.source, piece.part][piece.of].append(piece.data)
    for source, part in sorted(found):
        pieces = found.pop((source, part))
        if Of.ERROR in pieces:
            answers: Iterable[tuple[int, Of, bytes]] = [(0, Of.ERROR, min(pieces[Of.ERROR]))]
        else:
            answers = _answers(job.asked[source], leaves, pieces[Of.ROWS], pieces[Of.TEXTS])
        for place, of, data in answers:
            yield to_batch(Piece(place, source, part, of, data))


def _answers(
    asked: Asked, leaves: npt.NDArray[np.void], rows: list[bytes], texts: list[bytes]
) -> Iterator[tuple[int, Of, bytes]]:
    sets, classes = Sets(), Classes()
    pairs = folded(concat([unpack(data, sets) for data in rows]), sets)
    rows.clear()
    objects = objects_of(pairs, sets, classes, judge_of(leaves))
    yield 0, Of.COUNTS, counts_of(objects, classes).encode()
    takes = np.array([asked.question.takes(each) for each in classes.all], np.bool_)
    chosen = objects.part(takes[objects.classes])
    if len(chosen):
        tables = (from_bytes(texts.pop()) for _ in range(len(texts)))
        for table in named(chosen, tables, classes, exact=asked.exact):
            yield from asked.question.answers(table)


@dataclass(frozen=True)
class Objects:
    """Columns of equal length, in ascending order of hashes, each once. ``classes`` are numbers."""

    hashes: Hashes
    sizes: Ints
    classes: Ints
    lasts: Ints

    def __len__(self) -> int:
        return int(self.hashes.size)

    def part(self, rows: npt.NDArray[np.bool_]) -> Objects:
        return Objects(self.hashes[rows], self.sizes[rows], self.classes[rows], self.lasts[rows])


def objects_of(pairs: Rows, sets: Sets, classes: Classes, leaf: Callable[[int], Leaf]) -> Objects:
    """Pairs of one address joined: where it was seen under any path."""
    numbers, lasts = sets.judged(classes, leaf)
    order = in_order(pairs.hashes)
    hashes, of_pair = pairs.hashes[order], pairs.sets[order]
    starts = starts_of(hashes)
    found = numbers[of_pair[starts]]
    counts = np.diff(starts, append=hashes.size)
    step, more = 1, np.flatnonzero(counts > 1)
    while more.size:
        found[more] = by_pairs(found[more], numbers[of_pair[starts[more] + step]], classes.join)
        step += 1
        more = more[counts[more] > step]
    if not starts.size:
        return Objects(hashes, pairs.sizes, found, found)
    sizes = np.maximum.reduceat(pairs.sizes[order], starts)
    return Objects(hashes[starts], sizes & (STORED - 1), found, np.maximum.reduceat(lasts[of_pair], starts))


def counts_of(objects: Objects, classes: Classes) -> str:
    """Per class: where seen, verdicts, holders, objects, bytes."""
    amount = np.bincount(objects.classes, minlength=len(classes.all)).tolist()
    # in halves, so that no sum runs over 64 bits
    low, high = np.zeros(len(classes.all), np.int64), np.zeros(len(classes.all), np.int64)
    np.add.at(low, objects.classes, objects.sizes & 0xFFFFFFFF)
    np.add.at(high, objects.classes, objects.sizes >> 32)
    rows = zip(classes.all, amount, high.tolist(), low.tolist(), strict=True)
    found = [
        [c.seen, c.mask, c.alias_mask, sorted(c.holders), count, (above << 32) + below]
        for c, count, above, below in rows
        if count
    ]
    return json.dumps(found)


def named(chosen: Objects, texts: Iterable[pa.Table], classes: Classes, *, exact: bool) -> Iterator[pa.Table]:
    """``OBJECTS`` of some objects, told apart by whole addresses. ``texts`` may be of others too.

    Raises SimulationFailed when no address was sent of one.
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
            of_class([each.seen for each in every], pa.int32()),
            of_class([each.mask for each in every], pa.int64()),
            of_class([each.alias_mask for each in every], pa.int64()),
            pa.array(chosen.lasts[places]),
            pa.array(chosen.sizes[places]),
            grouped["version_max"],
            grouped["path_distinct"],
        ],
        schema=OBJECTS,
    )
    for at in range(0, table.num_rows, ROWS_A_PIECE):
        yield table.slice(at, ROWS_A_PIECE)


def _by_address(chosen: Objects, texts: Iterable[pa.Table], *, exact: bool) -> pa.Table:
    """One row an address: ``hash``, ``address``, ``path_distinct``, ``version_max``."""
    tables = []
    found: npt.NDArray[np.bool_] = np.zeros(len(chosen), np.bool_)
    for table in texts:
        places, hit = places_in(chosen.hashes, table["hash"].to_numpy())
        found[places[hit]] = True
        tables.append(table if hit.all() else table.filter(pa.array(hit)))
    if not found.all():
        raise SimulationFailed(f"{int((~found).sum())} objects are asked for that no address was sent of")
    grouped = (
        pa.concat_tables(tables)
        .group_by(["hash", "address"])
        .aggregate([("path", "distinct", pc.CountOptions(mode="only_valid")), ("version", "max")])
    )
    if grouped.num_rows == len(chosen):
        return grouped
    # Several addresses have one hash: what holds one of them may not hold the other.
    if exact:
        hashes = grouped["hash"].to_numpy()
        ascending = np.sort(hashes)
        return grouped.filter(pa.array(~is_in(ascending[1:][ascending[1:] == ascending[:-1]], hashes)))
    return grouped.filter(pa.array([is_candidate_key(text) for text in grouped["address"].to_pylist()]))
