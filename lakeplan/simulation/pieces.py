"""What travels between the two steps of counting, and what comes out, as Arrow batches.

All rows travel many to a value, so that the JVM between the workers looks at none of them.
"""

from __future__ import annotations

import json

import pyarrow as pa

NUMBERS, TEXT, ERROR, COUNTS, OBJECTS = 0, 1, 2, 3, 4
"""Kinds of pieces: rows (``folding.pack_rows``), texts of some of them (``blocks.TEXTS``), the error of what
cannot be read, and what needs no second step: amounts by class, and objects that go (``GOING``)."""
ROWS_A_PIECE = 200_000
"""So many rows are packed into one value of a column: a few megabytes."""

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
        pa.field("shared", pa.binary()),
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


def piece(place: int, source: int, kind: int, data: bytes) -> pa.RecordBatch:
    arrays = [pa.array([v], f.type) for v, f in zip((place, source, kind, data), PIECES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PIECES)


def counted(
    source: int, *, counts: str | None = None, objects: bytes | None = None, shared: bytes | None = None
) -> pa.RecordBatch:
    values = (source, counts, objects, shared)
    arrays = [pa.array([v], f.type) for v, f in zip(values, COUNTED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COUNTED)


def failed(report: str) -> str:
    """As ``counts``."""
    return json.dumps({"error": report})


def to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    """What ``to_bytes`` made in the same run. An Arrow stream says itself how large it becomes, so nothing is
    read here that somebody else could have written: what a cache keeps has another form."""
    return pa.ipc.open_stream(data).read_all()
