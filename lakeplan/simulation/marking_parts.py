"""What runs in Spark's workers when a namespace is listed or a mark is written: rows into parts.

A task may run twice (an executor died): every attempt writes under a name of its own, and the driver takes
only the parts that the attempt that ended well tells of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import uuid4

import pyarrow as pa

from lakeplan.errors import LakeplanError
from lakeplan.formats.mark_parts import LISTING, MARKED, write_part
from lakeplan.formats.namespace import DATA_PREFIX, check_not_nested, is_candidate_key
from lakeplan.model.objects import StoredObject
from lakeplan.model.sweep import MarkClass
from lakeplan.ports.sweep_storage import RecordWriter
from lakeplan.simulation.reading import Source, report_of
from lakeplan.simulation.work import Kind, unpack

LISTING_ROWS = 200_000
PART_ROWS = 10_000
"""A part of a mark is what a worker deletes between two records: ten of S3's largest batches."""
GOING, KEPT, ERROR = "going", "kept", "error"

_PARTS = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("amounts", pa.string(), nullable=False),
    ]
)
"""``marking.PARTS`` in Arrow; a test compares the two."""


@dataclass(frozen=True)
class Writer:
    """Writes parts below ``prefix`` of a namespace. ``going`` are the classes that may be deleted."""

    store: RecordWriter
    prefix: str
    going: frozenset[str] = frozenset()

    def write(self, table: str, rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
        """One part, and the row that tells of it. The name of a mark's part is relative to ``prefix``."""
        name = f"{table}/part-{uuid4().hex}.parquet"
        columns = {field.name: rows.column(field.name).combine_chunks() for field in schema}
        data, sha256 = write_part(columns, schema)
        self.store.create(self.prefix + name, data)
        size = sum(columns["size_bytes"].to_pylist())
        return _row(table, name, len(rows), size, sha256, self._amounts(rows))

    @staticmethod
    def _amounts(rows: pa.Table) -> str:
        if "class" not in rows.column_names:
            return "{}"
        grouped = rows.group_by("class").aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
        return json.dumps(
            {row["class"]: [row["size_bytes_count"], row["size_bytes_sum"]] for row in grouped.to_pylist()}
        )

    @staticmethod
    def amounts_of(text: str) -> Mapping[MarkClass, tuple[int, int]]:
        return {MarkClass(name): (pair[0], pair[1]) for name, pair in json.loads(text).items()}


def list_into_parts(
    batches: Iterable[pa.RecordBatch], bins: Sequence[bytes], source: Source, prefix: str
) -> Iterator[pa.RecordBatch]:
    """The function of ``mapInArrow`` for a listing. Parts of a listing have their whole key as name."""
    store: RecordWriter = source.namespace  # type: ignore[assignment]  # a SweepStore, by the marker
    for batch in batches:
        for number in batch.column("id").to_pylist():
            objects = _old(_objects(bins[number], source), source)
            try:
                while rows := list(islice(objects, LISTING_ROWS)):
                    sizes = [o.size for o in rows]
                    versions = [o.version for o in rows]
                    data, sha256 = write_part(
                        {"address": [o.key for o in rows], "size_bytes": sizes, "version": versions}, LISTING
                    )
                    name = f"{prefix}listing/part-{uuid4().hex}.parquet"
                    store.create(name, data)
                    yield _row(GOING, name, len(rows), sum(sizes), sha256, "{}")
            except LakeplanError as error:
                yield _row(ERROR, "", 0, 0, "", report_of(error, source.name))


def _objects(packed: bytes, source: Source) -> Iterator[StoredObject]:
    namespace = source.namespace
    if namespace is None:
        return
    for item in unpack(packed):
        if item.kind is Kind.ROOT_LISTING:
            yield from namespace.list_objects("", recursive=False)
            yield from namespace.list_objects(DATA_PREFIX, recursive=False)
        else:
            yield from namespace.list_objects(item.name)


def _old(objects: Iterable[StoredObject], source: Source) -> Iterator[StoredObject]:
    """Candidates that are old enough. Keys that are no UTF-8 are none: lakeFS writes no such key, and what
    cannot be written down exactly is not deleted."""
    for stored in objects:
        check_not_nested(stored.key)
        if stored.modified_us < source.young_from_us and is_candidate_key(stored.key):
            try:
                stored.key.encode()
            except UnicodeEncodeError:
                continue
            yield stored


def write_parts(batches: Iterable[pa.RecordBatch], writer: Writer) -> Iterator[pa.RecordBatch]:
    """The function of ``mapInArrow`` for a mark: what goes and what is kept, in parts of their own."""
    waiting: dict[str, list[pa.RecordBatch]] = {GOING: [], KEPT: []}
    try:
        for batch in batches:
            if failed := [text for text in batch.column("report").to_pylist() if text is not None]:
                yield _row(ERROR, "", 0, 0, "", failed[0])
                return
            goes = pa.array([name in writer.going for name in batch.column("class").to_pylist()])
            for table, chosen in ((GOING, batch.filter(goes)), (KEPT, batch.filter(pa.compute.invert(goes)))):
                waiting[table].append(chosen)
                while sum(map(len, waiting[table])) >= PART_ROWS:
                    rows = pa.Table.from_batches(waiting[table])
                    yield writer.write(table, rows.slice(0, PART_ROWS), MARKED)
                    waiting[table] = rows.slice(PART_ROWS).to_batches()
        for table, left in waiting.items():
            if sum(map(len, left)):
                yield writer.write(table, pa.Table.from_batches(left), MARKED)
    except LakeplanError as error:
        yield _row(ERROR, "", 0, 0, "", report_of(error, writer.prefix))


def _row(table: str, name: str, rows: int, size: int, sha256: str, amounts: str) -> pa.RecordBatch:
    values: list[object] = [table, name, rows, size, sha256, amounts]
    arrays = [pa.array([value], field.type) for value, field in zip(values, _PARTS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_PARTS)
