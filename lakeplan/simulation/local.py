"""Packets, which steps exchange and return, and a runner of steps in threads of this process. A packet has
many rows as one value, so that runners need not look at rows. In Spark a packet is an Arrow batch."""

from __future__ import annotations

import os
import struct
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import IntEnum
from threading import Lock
from typing import IO, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lakeplan.errors import SimulationFailed
from lakeplan.simulation.documents import RunnerVersions
from lakeplan.simulation.runners import LOCAL, Leaves, Step, ahead

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


MEMORY_BYTES = 128 << 20
"""The most that waits between two steps in memory. The rest waits on disk."""
_HEAD = struct.Struct("<iiiiq")


class LocalRunner:
    """A ``Runner`` in threads."""

    name = LOCAL

    def __init__(self, threads: int | None = None, memory_bytes: int = MEMORY_BYTES) -> None:
        self._threads = threads or len(os.sched_getaffinity(0))
        self._memory = memory_bytes

    @property
    def versions(self) -> RunnerVersions:
        return {}

    @property
    def parallelism(self) -> int:
        return self._threads

    def run(self, bins: Sequence[bytes], steps: Sequence[Step], leaves: Leaves) -> Iterator[Packet]:
        """Implements ``Runner``. Ctrl-C does not wait for the threads, which may read for long. What they
        write is not used without an answer."""
        with ExitStack() as stack, _threads(self._threads) as pool:
            waiting = _Waiting(0)
            for number, data in enumerate(bins):
                waiting.add(Packet(number, 0, 0, PacketKind.BIN, data))
            for step in steps[:-1]:
                following = stack.enter_context(closing(_Waiting(self._memory)))

                def task(
                    place: int, step: Step = step, waiting: _Waiting = waiting, to: _Waiting = following
                ) -> None:
                    for packet in step.run(waiting.take(place), leaves):
                        to.add(packet)

                for _, done in ahead(waiting.places(), task, pool, 2 * self._threads):
                    done()
                waiting = following

            def last(place: int) -> list[Packet]:
                return list(steps[-1].run(waiting.take(place), leaves))

            for _, packets in ahead(waiting.places(), last, pool, self._threads):
                yield from packets()


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(count, thread_name_prefix="lakeplan-local")
    is_wanted = False
    try:
        yield pool
        is_wanted = True
    except Exception:
        is_wanted = True
        raise
    finally:
        pool.shutdown(wait=is_wanted, cancel_futures=True)


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SimulationFailed(
            f"a temporary file cannot be written: {error.strerror or error}",
            where=tempfile.gettempdir(),
            hint="Free up disk space there, set TMPDIR to a folder with more space, or use --runner spark.",
        ) from error


class _Waiting:
    """Packets that wait between two steps, by place. Several threads use it. Packets that do not fit into
    memory are in an unnamed temporary file, which disappears however this process ends."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory = memory_bytes
        self._packets: defaultdict[int, list[Packet]] = defaultdict(list)
        self._places: set[int] = set()
        self._held = 0
        self._lock = Lock()
        self._file: IO[bytes] | None = None
        self._runs: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """By place, the start and end of its packets in the file."""

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # it may try again to write what a full disk refused
                self._file.close()

    def places(self) -> list[int]:
        return sorted(self._places)

    def add(self, packet: Packet) -> None:
        with self._lock:
            self._places.add(packet.place)
            self._packets[packet.place].append(packet)
            self._held += len(packet.data)
            if self._memory and self._held > self._memory:
                self._spill()

    def take(self, place: int) -> Iterator[Packet]:
        """Removes and yields the packets of a place."""
        with self._lock:
            packets, runs = self._packets.pop(place, []), self._runs.pop(place, [])
            self._held -= sum(len(packet.data) for packet in packets)
        for start, end in runs:
            yield from self._read(start, end)
        while packets:
            yield packets.pop()

    def _read(self, start: int, end: int) -> Iterator[Packet]:
        assert self._file is not None
        while start < end:
            place, source, part, of, size = _HEAD.unpack(os.pread(self._file.fileno(), _HEAD.size, start))
            data = os.pread(self._file.fileno(), size, start + _HEAD.size)
            yield Packet(place, source, part, of, data)
            start += _HEAD.size + size

    def _spill(self) -> None:
        with _disk():
            file = self._file = self._file or tempfile.TemporaryFile(prefix="lakeplan-")  # noqa: SIM115
            for place, packets in self._packets.items():
                start = file.tell()
                for packet in packets:
                    file.write(_HEAD.pack(*packet[:4], len(packet.data)))
                    file.write(packet.data)
                self._runs[place].append((start, file.tell()))
            file.flush()
        self._packets.clear()
        self._held = 0
