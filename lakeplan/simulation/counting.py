"""Objects counted in Spark's workers in two steps: where ranges are read, then by hash.

The first step reads a bin: versions of a region, folded (``versions``), with the classes that their commits
make of them. Rows whose hashes stand in no other group (``sharing``) are counted at once. The others, and all
where that is not known, are sent on by hash, with texts of those that may go. The second step has all
rows of its hashes, so it knows what goes. Either counts objects by class, and gives the texts of what really
goes, one row an address.

Memory of a worker. First step: ``FETCH_AHEAD`` files (20 MiB each at most) in flight, or twice as many groups
of the cache; one range decoded (about ten times its file), ``MAX_ROWS`` rows of 24 bytes of a group that wait
to be folded, ``MAX_ROWS`` of finished groups and as much again while they are folded, and the texts of those
that may go. Second step: ``ROWS_A_PARTITION`` rows, likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeplan.errors import LakeplanError
from lakeplan.formats.hashing import Hashes, Ints
from lakeplan.ports.range_cache import RangeCache
from lakeplan.simulation.blocks import Block, Question
from lakeplan.simulation.fetching import FETCH_AHEAD, ahead
from lakeplan.simulation.folding import (
    Classes,
    Rows,
    concat,
    fold,
    in_order,
    pack_rows,
    places_in,
    twice,
    unpack_rows,
)
from lakeplan.simulation.listed import ListedReader
from lakeplan.simulation.pieces import (
    COUNTS,
    ERROR,
    NUMBERS,
    OBJECTS,
    ROWS_A_PIECE,
    TEXT,
    counted,
    failed,
    from_bytes,
    piece,
    to_bytes,
)
from lakeplan.simulation.reading import Source, report_of, where_of
from lakeplan.simulation.tally import Tally
from lakeplan.simulation.versions import Fetched, GroupReader, Step
from lakeplan.simulation.work import Kind, WorkItem, groups, unpack

MAX_ROWS = 2_000_000
ROWS_A_PARTITION = 4_000_000
MAX_SHARED = 1_000_000
"""Hashes; where more are shared, all rows meet in every run."""
TOO_MANY = b"\0"
"""Told in place of hashes."""
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Counting:
    """What is asked: ``questions`` for each repository in its order (empty: no texts are wanted), and whether
    what is stored was listed. ``partitions`` says into how many each repository's objects are divided, and
    ``places`` which number stands for each partition. ``tell_shared``: the second step tells which hashes
    stand in several groups."""

    sources: tuple[Source, ...]
    questions: tuple[tuple[Question, ...], ...]
    listing: bool
    partitions: tuple[int, ...]
    places: tuple[int, ...]
    cache: RangeCache | None = None
    tell_shared: bool = False

    def tally(self, source: int, classes: Classes) -> Tally:
        return Tally(source, self.questions[source], self.listing, classes)


@dataclass(frozen=True)
class Bins:
    """What is too large for every task's message. ``suspects``: for each repository, the hashes (ascending)
    that may stand in several groups; None for any."""

    packed: tuple[bytes, ...]
    suspects: tuple[Hashes | None, ...]


def fold_bins(batches: Iterable[pa.RecordBatch], bins: Bins, asked: Counting) -> Iterator[pa.RecordBatch]:
    """The first step, for ``mapInArrow``: each row's ``id`` is the number of a bin; gives ``PIECES``."""
    with ThreadPoolExecutor(FETCH_AHEAD) as pool:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                items = sorted(unpack(bins.packed[number]), key=lambda item: item.source)
                for source, of_source in groupby(items, key=lambda item: item.source):
                    folder = _Folder(source, number, asked, bins.suspects[source])
                    yield from folder.run(list(of_source), pool)


class _Folder:
    """One repository's items of one bin."""

    def __init__(self, source: int, number: int, asked: Counting, suspects: Hashes | None) -> None:
        self._source = source
        self._number = number
        self._asked = asked
        self._suspects = suspects
        self._classes = Classes()
        of, questions = asked.sources[source], asked.questions[source]
        self._tally = asked.tally(source, self._classes)
        self._listed = ListedReader(of, self._classes, with_texts=bool(questions))
        self._versions = GroupReader(of, questions, asked.cache, self._classes, MAX_ROWS)
        self._rows: list[Rows] = []
        self._alone: list[Rows] = []
        self._texts: list[pa.Table] = []
        self._count = 0

    def run(self, items: list[WorkItem], pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
        ranges = [item for item in items if item.kind is Kind.RANGE]
        others = [item for item in items if item.kind is not Kind.RANGE]
        for item, listed in ahead(others, self._listed.fetch, pool, FETCH_AHEAD):
            yield from self._read_listed(item, listed)
        for step, fetched in self._versions.steps(groups(ranges), pool):
            yield from self._read_version(step, fetched)
        yield from self._flush()

    def _read_listed(self, item: WorkItem, listed: Callable[[], bytes]) -> Iterator[pa.RecordBatch]:
        try:
            for block in self._listed.blocks(item, listed()):
                yield from self._add(block, self._rows)
        except LakeplanError as error:
            yield self._failed(error, item)

    def _read_version(self, step: Step, fetched: Callable[[], Fetched]) -> Iterator[pa.RecordBatch]:
        try:
            block = self._versions.block(step, fetched)
        except LakeplanError as error:
            yield self._failed(error, step.items[0])
        else:
            if block is not None and self._suspects is None:
                yield from self._add(block, self._rows)
            elif block is not None:
                yield from self._add(block, self._alone)

    def _failed(self, error: LakeplanError, item: WorkItem) -> pa.RecordBatch:
        report = report_of(error, where_of(self._asked.sources[self._source], item))
        return self._piece(0, ERROR, report.encode())

    def _add(self, block: Block, rows: list[Rows]) -> Iterator[pa.RecordBatch]:
        rows.append(block.rows)
        if block.texts is not None and block.texts.num_rows:
            self._texts.append(block.texts)
        self._count += len(block.rows)
        if self._count >= MAX_ROWS:
            yield from self._flush()

    def _flush(self) -> Iterator[pa.RecordBatch]:
        rows, alone, texts = self._rows, self._alone, self._texts
        self._rows, self._alone, self._texts, self._count = [], [], [], 0
        if alone:
            assert self._suspects is not None, "rows are counted here where it is known which can be"
            apart = [places_in(self._suspects, of_one.hashes)[1] for of_one in alone]
            rows += [of_one.part(where) for of_one, where in zip(alone, apart, strict=True)]
            alone = [of_one.part(~where) for of_one, where in zip(alone, apart, strict=True)]
            yield from self._count_here(concat(alone), texts)
            hits = [places_in(self._suspects, table["hash"].to_numpy())[1] for table in texts]
            texts = [t.filter(pa.array(hit)) for t, hit in zip(texts, hits, strict=True) if hit.any()]
        if rows:
            yield from self._send(self._folded(concat(rows)))
        if texts:
            yield from self._send_texts(pa.concat_tables(texts))

    def _count_here(self, rows: Rows, texts: list[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Rows that meet no others: no hash of them is elsewhere."""
        yield self._piece(self._number, COUNTS, self._tally.counts(rows).encode())
        for data in self._tally.objects(rows, texts):
            yield self._piece(self._number, OBJECTS, data)

    def _folded(self, rows: Rows) -> Rows:
        """Each hash once; those of several groups twice, if the second step is to tell of them."""
        folded = fold(rows, self._classes)
        if len(folded) == len(rows) or not self._asked.tell_shared:
            return folded
        again = concat([folded, folded.part(places_in(twice(rows.hashes), folded.hashes)[1])])
        return again.part(in_order(again.hashes))

    def _send(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """``rows`` are in ascending order."""
        parts = self._asked.partitions[self._source]
        ends = np.searchsorted(_partition_of(rows.hashes, parts), np.arange(parts + 1)).tolist()
        for part in range(parts):
            for at in range(ends[part], ends[part + 1], ROWS_A_PIECE):
                some = rows.part(slice(at, min(at + ROWS_A_PIECE, ends[part + 1])))
                yield self._piece(part, NUMBERS, pack_rows(some, self._classes))

    def _send_texts(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        parts = self._asked.partitions[self._source]
        part_of = _partition_of(table["hash"].to_numpy(), parts)
        for part in range(parts):
            some = table if parts == 1 else table.filter(pa.array(part_of == part))
            for at in range(0, some.num_rows, ROWS_A_PIECE):
                yield self._piece(part, TEXT, to_bytes(some.slice(at, ROWS_A_PIECE)))

    def _piece(self, part: int, kind: int, data: bytes) -> pa.RecordBatch:
        # repositories of one partition are spread over all of them
        places = self._asked.places
        return piece(places[(self._source + part) % len(places)], self._source, kind, data)


def _partition_of(hashes: npt.NDArray[np.uint64], parts: int) -> Ints:
    """Ascending with the hash."""
    found: Ints = ((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)
    return found


def unpack_objects(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: the column ``objects`` of ``COUNTED`` as rows, ``GOING``."""
    for batch in batches:
        for data in batch.column("objects").to_pylist():
            yield from from_bytes(data).to_batches(max_chunksize=BATCH_ROWS)


def count_objects(batches: Iterable[pa.RecordBatch], asked: Counting) -> Iterator[pa.RecordBatch]:
    """The second step: one partition of ``PIECES``, which has all rows of its hashes, as ``COUNTED``."""
    pieces: dict[int, dict[int, list[bytes]]] = {}
    for batch in batches:
        columns = (batch.column(name) for name in ("source", "kind", "data"))
        for source, kind, data in zip(*(column.to_pylist() for column in columns), strict=True):
            if kind == COUNTS:
                yield counted(source, counts=data.decode())
            elif kind == OBJECTS:
                yield counted(source, objects=data)
            else:
                pieces.setdefault(source, {}).setdefault(kind, []).append(data)
    for source in sorted(pieces):
        of_source = pieces.pop(source)
        if ERROR in of_source:
            yield counted(source, counts=failed(min(of_source[ERROR]).decode()))
        elif NUMBERS in of_source:
            yield from _meet(source, of_source[NUMBERS], of_source.get(TEXT, []), asked)


def _meet(source: int, numbers: list[bytes], texts: list[bytes], asked: Counting) -> Iterator[pa.RecordBatch]:
    """One repository's part of one partition."""
    classes = Classes()
    rows = concat([unpack_rows(data, classes) for data in numbers])
    numbers.clear()
    shared = _told(rows.hashes, asked.partitions[source]) if asked.tell_shared else None
    rows = fold(rows, classes)
    tally = asked.tally(source, classes)
    yield counted(source, counts=tally.counts(rows), shared=shared)
    for data in tally.objects(rows, (from_bytes(texts.pop()) for _ in range(len(texts)))):
        yield counted(source, objects=data)


def _told(hashes: Hashes, partitions: int) -> bytes:
    """Those that are there more than once. Hashes spread evenly, so no partition has many more than its
    share of as many as are kept."""
    found = twice(hashes)
    return found.astype("<u8").tobytes() if found.size <= 2 * MAX_SHARED // partitions + 1000 else TOO_MANY
