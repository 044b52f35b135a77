"""Packets, which steps exchange and return. In Spark they are Arrow batches of one schema.

A packet has many rows as one value, so that runners need not look at rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

ROWS_A_PIECE = 200_000
"""The most rows in one packet: a few megabytes."""


class PacketKind(IntEnum):
    """The kind of data in a packet."""

    BIN = 0
    """Work for the first step."""
    ROWS = 1
    """Rows of numbers (``table.pack``)."""
    TEXTS = 2
    """Addresses and paths of some of them (``TEXTS``)."""
    ERROR = 3
    """The report of an error (``work.report_of``)."""
    COUNTS = 4
    """Amounts by class, as JSON."""
    OBJECTS = 5
    """Objects that were requested, as an Arrow stream."""
    PREFIXES = 6
    """Amounts by prefix, as an Arrow stream."""
    RECORDS = 7
    """Digests of objects (``lakeplan.values.shown_records``)."""
    PART = 8
    """A part that was written, as JSON."""
    SEGMENT = 9
    """A segment that was written (``segments``), as JSON."""
    FOREIGN = 10
    """The id of another repository's range, and its packed entries (``range_arrays.odd_entries``)."""


Data: TypeAlias = "bytes | pa.Buffer"
"""Large buffers are not copied."""


class Packet(NamedTuple):
    """Data that steps exchange. ``place`` is the task of the next step that gets it, ``source`` the
    repository, and ``part`` the part of its hashes."""

    place: int
    source: int
    part: int
    of: int
    data: Data


PACKETS = pa.schema(
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
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("modified_us", pa.int64()),
    ]
)


def to_batch(packet: Packet) -> pa.RecordBatch:
    *numbers, data = packet
    places = pa.py_buffer(np.array([0, len(data)], np.int32))
    columns = [pa.array(np.array([number], np.int32)) for number in numbers]
    value = pa.BinaryArray.from_buffers(pa.binary(), 1, [None, places, pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays([*columns, value], schema=PACKETS)


def packets_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
    for batch in batches:
        *numbers, data = (batch.column(name) for name in PACKETS.names)
        columns = (column.to_pylist() for column in numbers)
        yield from map(Packet._make, zip(*columns, (value.as_buffer() for value in data), strict=True))


def to_bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def from_bytes(data: Data) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
