"""Small files that would need much memory or time. Each is refused; an honest file of the kind is read."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterable

import cramjam
import pytest

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.ranges import read_metarange
from lakeplan.formats.sstable import _footer, read_sstable
from lakeplan.formats.sstable_blocks import BlockBuilder, Handle, masked_crc32c
from lakeplan.formats.wire import uvarint
from tests.cpu import at_most_cpu_seconds

SET = b"\x01" + bytes(7)


class Table:
    """A file put together block by block, with correct checksums around whatever is in them."""

    def __init__(self) -> None:
        self.data = b""

    def put(self, block: bytes, *, snappy: bool = True, raw: bytes | None = None) -> Handle:
        body = raw if raw is not None else bytes(cramjam.snappy.compress_raw(block)) if snappy else block
        handle = Handle(len(self.data), len(body))
        body += b"\x01" if snappy or raw is not None else b"\x00"
        self.data += body + masked_crc32c(body).to_bytes(4, "little")
        return handle

    def finish(self, handles: Iterable[Handle], *, count: int, kind: bytes = b"ranges") -> bytes:
        index = self.put(built((b"%08d" % n + SET, h.encode()) for n, h in enumerate(handles)))
        properties = self.put(built([(b"count", b"%d" % count), (b"type", kind)]))
        meta = self.put(built([(b"rocksdb.properties", properties.encode())]))
        return self.data + _footer(meta, index)


def built(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    builder = BlockBuilder(16)
    for key, value in items:
        builder.add(key, value)
    return builder.finish()


def entries(parts: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """A block with one restart point, of (shared, the rest of the key, value)."""
    made = [uvarint(s) + uvarint(len(k)) + uvarint(len(v)) + k + v for s, k, v in parts]
    return b"".join(made) + struct.pack("<2I", 0, 1)


def the_same_block_many_times() -> bytes:
    table = Table()
    place = table.put(built([(b"a" + SET, bytes(1_000_000))]))
    return table.finish([place] * 20_000, count=20_000)


def keys_that_share_a_long_beginning() -> bytes:
    table = Table()
    long = b"k" * 1_000_000
    block = entries([(0, long + SET, b""), *((len(long), b"%06d" % n + SET, b"") for n in range(50_000))])
    return table.finish([table.put(block)], count=50_001)


def keys_that_grow_by_a_byte() -> bytes:
    table = Table()
    block = entries([(0, b"\x01" * 9, b""), *((n + 9, b"\x01", b"") for n in range(300_000))])
    return table.finish([table.put(block)], count=300_001)


def keys_within_the_limit_that_share_much() -> bytes:
    table = Table()
    long = b"k" * 8_000
    block = entries([(0, long + SET, b""), *((len(long), b"%06d" % n + SET, b"") for n in range(100_000))])
    return table.finish([table.put(block)], count=100_001)


def a_block_that_claims_60_megabytes() -> bytes:
    table = Table()
    return table.finish([table.put(b"", raw=uvarint(60 << 20) + b"\x00x")], count=1)


def restart_points_only() -> bytes:
    table = Table()
    points = 12_000_000
    return table.finish([table.put(bytes(4 * points) + points.to_bytes(4, "little"))], count=0)


def a_number_without_end() -> bytes:
    table = Table()
    return table.finish([table.put(b"\xff" * 1_000_000 + struct.pack("<2I", 0, 1))], count=1)


def a_message_of_empty_fields() -> bytes:
    table = Table()
    message = b"\x12\x00" * 20_000_000
    identity = b"i" * 32
    value = uvarint(len(identity) << 1) + identity + uvarint(len(message) << 1) + message
    return table.finish([table.put(built([(b"a" + SET, value)]))], count=1)


BOMBS = [
    the_same_block_many_times,
    keys_that_share_a_long_beginning,
    keys_that_grow_by_a_byte,
    keys_within_the_limit_that_share_much,
    a_block_that_claims_60_megabytes,
    restart_points_only,
    a_number_without_end,
    a_message_of_empty_fields,
]
CHILD = """
import resource, sys
data = sys.stdin.buffer.read()
from lakeplan.errors import FormatError
from lakeplan.formats.ranges import read_range_arrays, read_range_columns
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
for read in (read_range_columns, read_range_arrays):
    try:
        read(data, name="bomb")
    except FormatError as error:
        print(error)
        continue
    sys.exit("it was read")
"""


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def it_refuses_a_small_file_that_needs_much_memory_or_time(bomb: object) -> None:
    data = bomb()  # type: ignore[operator]
    assert len(data) < 5_000_000
    addresses = limits.GIB * 3 // 2  # libraries take half a gigabyte of them
    with at_most_cpu_seconds(10):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(addresses)],
            input=data,
            capture_output=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()[-500:]
    assert done.stdout.decode().count("bomb: ") == 2


@pytest.mark.parametrize("bomb", BOMBS[:-1], ids=lambda bomb: bomb.__name__)
def it_refuses_such_a_metarange_and_refs_dump_too(bomb: object) -> None:
    with pytest.raises(FormatError) as caught:
        read_metarange(bomb(), name="bomb")  # type: ignore[operator]
    assert caught.value.where == "bomb"


def it_limits_records_and_sizes_of_a_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    places = [table.put(built((b"%04d%04d" % (b, n) + SET, bytes(100)) for n in range(50))) for b in range(4)]
    data = table.finish(places, count=200)
    assert len(read_sstable(data, name="x")) == 200
    for name, value in (
        ("TABLE_RECORDS", 199),
        ("TABLE_KEY_BYTES", 3_000),
        ("TABLE_BYTES", 20_000),
        ("TABLE_BYTES", len(data) - 1),
        ("BLOCK_BYTES", 5_000),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(limits, name, value)
            with pytest.raises(FormatError):
                read_sstable(data, name="x")


def it_reads_long_paths_that_share_most_of_their_text() -> None:
    table = Table()
    folder = b"a/long/folder/" * 70
    block = built((folder + b"%06d" % n + SET, b"%0100d" % n) for n in range(2_000))
    assert len(read_sstable(table.finish([table.put(block)], count=2_000), name="x")) == 2_000
