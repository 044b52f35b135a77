"""Rows into parts: what is listed for a mark, and what a mark says.

A task may run twice (an executor died): every attempt writes under a name of its own, and the driver takes
only the parts that the attempt that ended well reports.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.errors import LakeplanError
from lakeplan.formats.mark_parts import LISTING, MARKED, write_part
from lakeplan.model.sweep import MarkClass
from lakeplan.ports.storage import StoredColumns
from lakeplan.ports.sweep_storage import RecordWriter
from lakeplan.simulation.exchange import Of, Piece, from_bytes, pieces_in, to_batch
from lakeplan.simulation.failing import report_of
from lakeplan.simulation.fetching import FETCH_AHEAD, ahead
from lakeplan.simulation.observing import Source, list_item
from lakeplan.simulation.stored import (
    candidates,
    check_none_nested,
    chosen,
    is_text,
    joined,
)
from lakeplan.simulation.work import WorkItem, unpack_bin

LISTING_ROWS = 200_000
PART_ROWS = 10_000
"""A part of a mark is what a worker deletes between two records: ten of S3's largest batches."""
GOING, KEPT = "going", "kept"


@dataclass(frozen=True)
class Writer:
    """Writes parts below ``prefix`` of a namespace. ``going`` are the classes that may be deleted."""

    store: RecordWriter
    prefix: str
    going: frozenset[str] = frozenset()

    def write(self, table: str, rows: pa.Table) -> Piece:
        """One part, and the piece that says so. Its name is relative to ``prefix``."""
        name = f"{table}/part-{uuid4().hex}.parquet"
        columns = {field.name: rows.column(field.name).combine_chunks() for field in MARKED}
        data, sha256 = write_part(columns, MARKED)
        self.store.create(self.prefix + name, data)
        size = pc.sum(columns["size_bytes"]).as_py()
        return _piece(table, name, rows.num_rows, size, sha256, _amounts(rows))


def _amounts(rows: pa.Table) -> Mapping[str, tuple[int, int]]:
    grouped = rows.group_by("class").aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    return {row["class"]: (row["size_bytes_count"], row["size_bytes_sum"]) for row in grouped.to_pylist()}


def amounts_of(part: Mapping[str, object]) -> Mapping[MarkClass, tuple[int, int]]:
    amounts: dict[str, tuple[int, int]] = part["amounts"]  # type: ignore[assignment]
    return {MarkClass(name): (pair[0], pair[1]) for name, pair in amounts.items()}


def list_into_parts(
    batches: Iterable[pa.RecordBatch], source: Source, prefix: str
) -> Iterator[pa.RecordBatch]:
    """The step of a listing. Parts of a listing have their whole key as name."""
    store: RecordWriter = source.opened()  # type: ignore[assignment]  # a SweepStore, by the marker
    for piece in pieces_in(batches):
        try:
            for rows in _sized(_old(_stored(unpack_bin(piece.data), source), source)):
                columns: dict[str, Sequence[object] | pa.Array] = {
                    "address": rows.keys.cast(pa.string()),
                    "size_bytes": pa.array(rows.sizes),
                    "version": [stored.version for stored in rows.objects()],
                }
                data, sha256 = write_part(columns, LISTING)
                name = f"{prefix}listing/part-{uuid4().hex}.parquet"
                store.create(name, data)
                yield to_batch(_piece(GOING, name, len(rows), int(rows.sizes.sum()), sha256, {}))
        except LakeplanError as error:
            yield to_batch(Piece(0, 0, 0, Of.ERROR, report_of(error, source.name).encode()))


def _stored(items: Iterable[WorkItem], source: Source) -> Iterator[StoredColumns]:
    """Several prefixes at the same time: a store answers one page after the other."""
    with ThreadPoolExecutor(FETCH_AHEAD) as pool:
        for _, listed in ahead(items, lambda item: list_item(source, item), pool, FETCH_AHEAD):
            yield from listed()


def _old(listing: Iterable[StoredColumns], source: Source) -> Iterator[StoredColumns]:
    """Candidates that are old enough. Keys that are no UTF-8 are none: lakeFS writes no such key, and what
    cannot be written down exactly is not deleted."""
    for columns in listing:
        check_none_nested(columns.keys)
        old = columns.modified_us < source.young_from_us
        yield chosen(columns, old & candidates(columns.keys) & is_text(columns.keys))


def _sized(listing: Iterable[StoredColumns]) -> Iterator[StoredColumns]:
    """The same rows, about ``LISTING_ROWS`` at a time."""
    waiting: list[StoredColumns] = []
    for columns in listing:
        waiting += [columns] if len(columns) else []
        if sum(map(len, waiting)) >= LISTING_ROWS:
            yield joined(waiting)
            waiting = []
    if waiting:
        yield joined(waiting)


def write_parts(batches: Iterable[pa.RecordBatch], writer: Writer) -> Iterator[pa.RecordBatch]:
    """The last step of a mark: what goes and what is kept, in parts of their own, in order of addresses."""
    by_place: defaultdict[int, list[pa.Table]] = defaultdict(list)
    for piece in pieces_in(batches):
        if piece.of == Of.OBJECTS:
            by_place[piece.place].append(from_bytes(piece.data))
        else:
            yield to_batch(piece)
    try:
        for place in sorted(by_place):
            rows = pa.concat_tables(by_place.pop(place)).sort_by("address")
            goes = pc.is_in(rows["class"], pa.array(sorted(writer.going), pa.string()))
            for table, chosen in ((GOING, rows.filter(goes)), (KEPT, rows.filter(pc.invert(goes)))):
                for at in range(0, chosen.num_rows, PART_ROWS):
                    yield to_batch(writer.write(table, chosen.slice(at, PART_ROWS)))
    except LakeplanError as error:
        yield to_batch(Piece(0, 0, 0, Of.ERROR, report_of(error, writer.prefix).encode()))


def _piece(
    table: str, name: str, rows: int, size: int, sha256: str, amounts: Mapping[str, tuple[int, int]]
) -> Piece:
    part = {
        "table": table,
        "name": name,
        "rows": rows,
        "size_bytes": size,
        "sha256": sha256,
        "amounts": amounts,
    }
    return Piece(0, 0, 0, Of.PART, json.dumps(part).encode())
