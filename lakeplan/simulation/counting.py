"""Objects counted in Spark's workers in two steps: where ranges are read, then by hash.

The first step reads a bin: versions of a region, folded (``versions``), with the classes that their commits
make of them. It sends rows on as packed numbers, by hash. Texts go along only for addresses that may go. The
second step has all rows of its hashes, so it knows what goes: it counts objects
by class, and gives the texts of what really goes, one row an address. All rows travel many to a value, so
that the JVM between the workers looks at none of them.

Memory of a worker. First step: ``FETCH_AHEAD`` files (20 MiB each at most) in flight, one range decoded
(about ten times its file), ``MAX_ROWS`` rows of 24 bytes that wait to be folded, as many that were, and the
texts of those that may go. Second step: ``ROWS_A_PARTITION`` rows, likewise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.errors import LakeplanError, SimulationFailed
from lakeplan.formats.hashing import Ints
from lakeplan.ports.range_cache import RangeCache
from lakeplan.simulation.blocks import Block, Question
from lakeplan.simulation.fetching import ahead
from lakeplan.simulation.folding import STORED, Class, Classes, Rows, concat, fold, pack_rows, unpack_rows
from lakeplan.simulation.listed import ListedReader
from lakeplan.simulation.reading import Source, report_of, where_of
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.versions import Fetched, GroupReader, Step
from lakeplan.simulation.work import Kind, WorkItem, groups, unpack

FETCH_AHEAD = 4
MAX_ROWS = 2_000_000
ROWS_A_PARTITION = 2_000_000
ROWS_A_PIECE = 200_000
"""So many rows are packed into one value of a column: a few megabytes."""
BATCH_ROWS = 1 << 16
NUMBERS, TEXT, ERROR = 0, 1, 2

PIECES = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
        pa.field("kind", pa.int32(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""``schemas.PIECES`` in Arrow; a test compares the two."""
COUNTED = pa.schema(
    [
        pa.field("source", pa.int32(), nullable=False),
        pa.field("counts", pa.string()),
        pa.field("objects", pa.binary()),
    ]
)
"""``schemas.COUNTED`` in Arrow; a test compares the two."""
GOING = pa.schema(
    [
        pa.field("source", pa.int32(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("seen", pa.int32(), nullable=False),
        pa.field("mask", pa.int64(), nullable=False),
        pa.field("alias_mask", pa.int64(), nullable=False),
        pa.field("last", pa.int64()),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("stored_size", pa.int64(), nullable=False),
        pa.field("paths", pa.list_(pa.string()), nullable=False),
    ]
)
"""``schemas.GOING`` in Arrow; a test compares the two."""


@dataclass(frozen=True)
class Counting:
    """What is asked: ``questions`` for each repository in its order (empty: no texts are wanted), and whether
    what is stored was listed. ``partitions`` says into how many each repository's objects are divided, and
    ``places`` which number stands for each partition."""

    sources: tuple[Source, ...]
    questions: tuple[tuple[Question, ...], ...]
    listing: bool
    partitions: tuple[int, ...]
    places: tuple[int, ...]
    cache: RangeCache | None = None


def fold_bins(
    batches: Iterable[pa.RecordBatch], bins: Sequence[bytes], asked: Counting
) -> Iterator[pa.RecordBatch]:
    """The first step, for ``mapInArrow``: each row's ``id`` is the number of a bin; gives ``PIECES``."""
    with ThreadPoolExecutor(FETCH_AHEAD) as pool:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                items = sorted(unpack(bins[number]), key=lambda item: item.source)
                for source, of_source in groupby(items, key=lambda item: item.source):
                    yield from _Folder(source, asked).run(list(of_source), pool)


class _Folder:
    """One repository's items of one bin."""

    def __init__(self, source: int, asked: Counting) -> None:
        self._source = source
        self._asked = asked
        self._classes = Classes()
        of, questions = asked.sources[source], asked.questions[source]
        self._listed = ListedReader(of, self._classes, with_texts=bool(questions))
        self._versions = GroupReader(of, questions, asked.cache, self._classes, MAX_ROWS)
        self._rows: list[Rows] = []
        self._texts: list[pa.Table] = []
        self._count = 0

    def run(self, items: list[WorkItem], pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
        ranges = [item for item in items if item.kind is Kind.RANGE]
        others = [item for item in items if item.kind is not Kind.RANGE]
        for item, listed in ahead(others, self._listed.fetch, pool, FETCH_AHEAD):
            yield from self._read_listed(item, listed)
        looked_up = ahead(groups(ranges), self._versions.look_up, pool, FETCH_AHEAD)
        steps = self._versions.steps(looked_up)
        for step, fetched in ahead(steps, self._versions.fetch, pool, FETCH_AHEAD):
            yield from self._read_version(step, fetched)
        yield from self._flush()

    def _read_listed(self, item: WorkItem, listed: Callable[[], bytes]) -> Iterator[pa.RecordBatch]:
        try:
            for block in self._listed.blocks(item, listed()):
                yield from self._add(block)
        except LakeplanError as error:
            yield self._failed(error, item)

    def _read_version(self, step: Step, fetched: Callable[[], Fetched]) -> Iterator[pa.RecordBatch]:
        try:
            block = self._versions.block(step, fetched)
        except LakeplanError as error:
            yield self._failed(error, step.items[0])
        else:
            if block is not None:
                yield from self._add(block)

    def _failed(self, error: LakeplanError, item: WorkItem) -> pa.RecordBatch:
        report = report_of(error, where_of(self._asked.sources[self._source], item))
        return self._piece(0, ERROR, report.encode())

    def _add(self, block: Block) -> Iterator[pa.RecordBatch]:
        self._rows.append(block.rows)
        if block.texts is not None and block.texts.num_rows:
            self._texts.append(block.texts)
        self._count += len(block.rows)
        if self._count >= MAX_ROWS:
            yield from self._flush()

    def _flush(self) -> Iterator[pa.RecordBatch]:
        rows, texts = self._rows, self._texts
        self._rows, self._texts, self._count = [], [], 0
        if not rows:
            return
        parts = self._asked.partitions[self._source]
        ends = [np.searchsorted(_partition_of(of_one.hashes, parts), np.arange(parts + 1)) for of_one in rows]
        for part in range(parts):
            slices = [r.part(slice(e[part], e[part + 1])) for r, e in zip(rows, ends, strict=True)]
            together = concat(slices)
            for at in range(0, len(together), ROWS_A_PIECE):
                some = together.part(slice(at, at + ROWS_A_PIECE))
                yield self._piece(part, NUMBERS, pack_rows(some, self._classes))
        if texts:
            yield from self._send_texts(pa.concat_tables(texts), parts)

    def _send_texts(self, table: pa.Table, parts: int) -> Iterator[pa.RecordBatch]:
        part_of = _partition_of(table["hash"].to_numpy(), parts)
        for part in range(parts):
            some = table if parts == 1 else table.filter(pa.array(part_of == part))
            for at in range(0, some.num_rows, ROWS_A_PIECE):
                yield self._piece(part, TEXT, to_bytes(some.slice(at, ROWS_A_PIECE)))

    def _piece(self, part: int, kind: int, data: bytes) -> pa.RecordBatch:
        # repositories of one partition are spread over all of them
        places = self._asked.places
        place = places[(self._source + part) % len(places)]
        values = [[place], [self._source], [kind], [data]]
        arrays = [pa.array(value, field.type) for value, field in zip(values, PIECES, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=PIECES)


def _partition_of(hashes: npt.NDArray[np.uint64], parts: int) -> Ints:
    """Ascending with the hash."""
    found: Ints = ((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)
    return found


def to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


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
            pieces.setdefault(source, {}).setdefault(kind, []).append(data)
    for source in sorted(pieces):
        of_source = pieces.pop(source)
        if ERROR in of_source:
            yield _counts(source, {"error": min(of_source[ERROR]).decode()})
        else:
            yield from _Counter(source, asked).run(of_source.get(NUMBERS, []), of_source.get(TEXT, []))


class _Counter:
    """One repository's part of one partition."""

    def __init__(self, source: int, asked: Counting) -> None:
        self._source = source
        self._questions = asked.questions[source]
        self._listing = asked.listing
        self._classes = Classes()

    def run(self, numbers: list[bytes], texts: list[bytes]) -> Iterator[pa.RecordBatch]:
        rows = fold(concat([unpack_rows(data, self._classes) for data in numbers]), self._classes)
        numbers.clear()
        rows = Rows(rows.hashes, rows.sizes & (STORED - 1), rows.numbers)
        yield _counts(self._source, {"classes": self._amounts(rows)})
        going = np.array([self._goes(each) for each in self._classes.all])[rows.numbers]
        if going.any():
            gone = Rows(rows.hashes[going], rows.sizes[going], rows.numbers[going])
            yield from self._objects(gone, texts)

    def _amounts(self, rows: Rows) -> list[list[object]]:
        """Per class: where seen, verdicts, holders, objects, bytes."""
        classes = self._classes.all
        objects = np.bincount(rows.numbers, minlength=len(classes)).tolist()
        # in halves, so that no sum runs over 64 bits
        low, high = np.zeros(len(classes), np.int64), np.zeros(len(classes), np.int64)
        np.add.at(low, rows.numbers, rows.sizes & 0xFFFFFFFF)
        np.add.at(high, rows.numbers, rows.sizes >> 32)
        return [
            [c.seen, c.mask, c.alias_mask, sorted(c.holders), count, (above << 32) + below]
            for c, count, above, below in zip(classes, objects, high.tolist(), low.tolist(), strict=True)
            if count
        ]

    def _goes(self, each: Class) -> bool:
        wanted = Seen.OLD if self._listing else Seen.ENTRY | Seen.CANDIDATE
        if each.seen & wanted != wanted or each.seen & Seen.UNCOMMITTED:
            return False
        return any(question.goes(each.any_mask) for question in self._questions)

    def _objects(self, gone: Rows, pieces: list[bytes]) -> Iterator[pa.RecordBatch]:
        """Told apart by whole addresses from here on."""
        tables = []
        found = np.zeros(len(gone), np.bool_)
        while pieces:
            table = from_bytes(pieces.pop())
            hashes = table["hash"].to_numpy()
            places = np.minimum(np.searchsorted(gone.hashes, hashes), len(gone) - 1)
            hit = gone.hashes[places] == hashes
            found[places[hit]] = True
            tables.append(table.filter(pa.array(hit)))
        if not found.all():
            raise SimulationFailed(f"{int((~found).sum())} objects go that no address was sent of")
        grouped = (
            pa.concat_tables(tables)
            .group_by(["hash", "address"])
            .aggregate([("path", "distinct", pc.CountOptions(mode="only_valid")), ("last", "max")])
        )
        places = np.searchsorted(gone.hashes, grouped["hash"].to_numpy())
        classes = [self._classes.all[number] for number in gone.numbers[places].tolist()]
        sizes = pa.array(gone.sizes[places])
        columns = {
            "source": pa.repeat(pa.scalar(self._source, pa.int32()), len(classes)),
            "address": grouped["address"],
            "seen": pa.array([each.seen for each in classes], pa.int32()),
            "mask": pa.array([each.mask for each in classes], pa.int64()),
            "alias_mask": pa.array([each.alias_mask for each in classes], pa.int64()),
            "last": grouped["last_max"],
            "size": sizes,
            "stored_size": sizes,
            "paths": grouped["path_distinct"].cast(GOING.field("paths").type),
        }
        table = pa.Table.from_arrays([columns[name] for name in GOING.names], schema=GOING)
        for at in range(0, table.num_rows, ROWS_A_PIECE):
            yield _counted(self._source, objects=to_bytes(table.slice(at, ROWS_A_PIECE)))


def _counts(source: int, document: dict[str, object]) -> pa.RecordBatch:
    return _counted(source, counts=json.dumps(document))


def _counted(source: int, *, counts: str | None = None, objects: bytes | None = None) -> pa.RecordBatch:
    arrays = [pa.array([v], f.type) for v, f in zip((source, counts, objects), COUNTED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COUNTED)
