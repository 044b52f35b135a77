"""What travels between the steps, and what comes out, as Arrow batches of one schema.

All rows travel many to a value, so that whoever carries them looks at none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

ROWS_A_PIECE = 200_000
"""So many rows are packed into one value of a column: a few megabytes."""


class Of(IntEnum):
    """What a piece holds."""

    BIN = 0
    """Work for the first step."""
    ROWS = 1
    """Rows of numbers (``table.pack``)."""
    TEXTS = 2
    """Addresses and paths of some of them (``TEXTS``)."""
    ERROR = 3
    """The report of what cannot be read."""
    COUNTS = 4
    """Amounts by class, as JSON."""
    OBJECTS = 5
    """Objects that were asked for, as an Arrow stream."""
    PREFIXES = 6
    """Amounts by prefix, as an Arrow stream."""
    RECORDS = 7
    """Digests of objects (``lakeplan.model.shown``)."""
    PART = 8
    """A part that was written, as JSON."""


class Piece(NamedTuple):
    """``place``: which task of the next step gets it. ``source`` and ``part``: the repository, and the part
    of its hashes."""

    place: int
    source: int
    part: int
    of: int
    data: bytes


PIECES = pa.schema(
    [
        pa.field("place", pa.int32(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        pa.field("of", pa.int32(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
TEXTS = pa.schema(
    [
        pa.field("pair", pa.uint64(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        pa.field("version", pa.int64()),
    ]
)


def to_batch(piece: Piece) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([v], f.type) for v, f in zip(piece, PIECES, strict=True)], schema=PIECES
    )


def pieces_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in PIECES.names)
        yield from map(Piece._make, zip(*columns, strict=True))


def to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
