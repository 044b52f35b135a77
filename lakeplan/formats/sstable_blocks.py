"""Reads and writes blocks of an SSTable: layout, checksums, compression, properties."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import cramjam
import google_crc32c

from lakeplan import limits
from lakeplan.formats.wire import damaged, read_uvarint, uvarint

IS_NATIVE = google_crc32c.implementation == "c"
FRAME_LIMIT = 65_536
_CHECKSUM = slice(14, 18)
"""After the stream identifier (10 bytes), the chunk's type (1) and its length (3)."""
_MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: bytes) -> int:
    """The masked CRC32C of ``data``: ``((crc >> 15 | crc << 17) + 0xa282ead8) mod 2**32``."""
    if not IS_NATIVE and 0 < len(data) <= FRAME_LIMIT:
        return int.from_bytes(bytes(cramjam.snappy.compress(data))[_CHECKSUM], "little")
    return _mask(google_crc32c.value(data))


def _mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


MAGIC = 0x88E241B785F4CFF7
FORMAT_VERSION = 2
FOOTER_SIZE = 53
HANDLES_END = 41
"""The footer's checksum type and two handles are padded with zeros to here; version and magic follow."""
CHECKSUM_CRC32C = 1
TRAILER_SIZE = 5
"""After each block: compression type (1 byte) and masked CRC32C (4)."""
COMPRESSION_NONE = 0
COMPRESSION_SNAPPY = 1
KEY_TRAILER_SIZE = 8
"""Keys in blocks end in sequence number and kind: ``sequence << 8 | kind``, 8 bytes, little endian."""
KIND_SET = 1
PROPERTIES_KEY = b"rocksdb.properties"
INDEX_TYPE_KEY = b"rocksdb.block.based.table.index.type"
TWO_LEVEL_INDEX = 2


class Handle(NamedTuple):
    """The position of a block: offset and size in bytes, without its trailer."""

    offset: int
    size: int

    def encode(self) -> bytes:
        return uvarint(self.offset) + uvarint(self.size)


def read_handle(data: bytes, position: int, end: int) -> tuple[Handle, int]:
    offset, position = read_uvarint(data, position, end)
    size, position = read_uvarint(data, position, end)
    return Handle(offset, size), position


def handle_of(value: bytes) -> Handle:
    """The handle that is the value of an index entry."""
    handle, end = read_handle(value, 0, len(value))
    if end != len(value):
        raise damaged("an index entry has data after the offset and size of its block")
    return handle


def load_block(data: bytes, handle: Handle, limit: int) -> bytes:
    """The block's verified, decompressed bytes. ``limit`` is the offset of the footer. A block that claims to
    be larger than any real block is not decompressed."""
    end = check_block(data, handle, limit)
    raw, compression = data[handle.offset : end], data[end]
    if compression not in (COMPRESSION_NONE, COMPRESSION_SNAPPY):
        raise damaged(f"the block at {handle.offset} has the unknown compression {compression}")
    is_packed = compression == COMPRESSION_SNAPPY
    try:
        size = int(cramjam.snappy.decompress_raw_len(raw)) if is_packed else len(raw)
        if is_packed and size > limits.SNAPPY_RATIO * len(raw):
            raise damaged(
                f"the header of the block at {handle.offset} states more data than Snappy can compress into"
                " it"
            )
        if size > limits.BLOCK_BYTES:
            raise damaged(
                f"the header of the block at {handle.offset} states a larger size than lakeFS ever writes"
            )
        return bytes(cramjam.snappy.decompress_raw(raw)) if is_packed else raw
    except cramjam.DecompressionError as error:
        raise damaged(f"the block at {handle.offset} cannot be decompressed") from error


def check_block(data: bytes, handle: Handle, limit: int) -> int:
    """The offset at which the block ends, before its trailer. Raises FormatError without a file name if the
    checksum does not match."""
    end = handle.offset + handle.size
    if end + TRAILER_SIZE > limit:
        raise damaged(f"a block at {handle.offset} of {handle.size} bytes lies outside the file")
    stored = int.from_bytes(data[end + 1 : end + TRAILER_SIZE], "little")
    if masked_crc32c(data[handle.offset : end + 1]) != stored:
        raise damaged(f"the checksum of the block at {handle.offset} does not match")
    return end


def restart_points(block: bytes) -> tuple[tuple[int, ...], int]:
    """The restart offsets, which begin with 0 and ascend, and the offset at which the entries end."""
    if len(block) < 4:
        raise damaged("a block is too short")
    count = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * count
    if count == 0 or end < 0:
        raise damaged("the restart points of a block do not fit into it")
    if count > limits.TABLE_RECORDS:
        raise damaged(f"a block exceeds the limit of {limits.TABLE_RECORDS:,} restart points")
    points = struct.unpack_from(f"<{count}I", block, end)
    if points[0] != 0 or any(a >= b for a, b in pairwise(points)):
        raise damaged("a block's restart points are out of order")
    return points, end


def read_entries(block: bytes) -> list[tuple[bytes, bytes]]:
    """All entries of a block: whole keys (with any trailer) and values."""
    points, end = restart_points(block)
    budget = min(limits.KEY_RATIO * len(block) + limits.KEY_BYTES, limits.TABLE_KEY_BYTES)
    restarts = frozenset(points)
    entries: list[tuple[bytes, bytes]] = []
    key = b""
    position = 0
    met = 0
    while position < end:
        start = position
        shared, position = read_uvarint(block, position, end)
        unshared, position = read_uvarint(block, position, end)
        size, position = read_uvarint(block, position, end)
        value_start = position + unshared
        value_end = value_start + size
        if value_end > end:
            raise damaged("an entry runs past the end of its block")
        if start in restarts:
            met += 1
            if shared:
                raise damaged("an entry at a restart point shares bytes with the key before it")
        if shared > len(key):
            raise damaged("an entry shares more bytes with the key before it than that key contains")
        if shared + unshared > limits.KEY_BYTES:
            raise damaged(f"a key is longer than the limit of {limits.KEY_BYTES:,} bytes")
        budget -= shared + unshared
        if budget < 0 or len(entries) >= limits.TABLE_RECORDS:
            raise damaged("a block has more keys, or longer keys, than lakeFS writes to any block")
        key = key[:shared] + block[position:value_start]
        entries.append((key, block[value_start:value_end]))
        position = value_end
    if entries and met != len(points):
        raise damaged("a restart point is not the start of an entry")
    return entries


class BlockBuilder:
    """Builds one block, with a restart point every ``restart_interval`` entries."""

    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self._parts: list[bytes] = []
        self._restarts: list[int] = []
        self._last_key = b""
        self.entry_bytes = 0
        self.count = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Appends an entry. The caller adds keys in order."""
        shared = 0
        if self.count % self._interval == 0:
            self._restarts.append(self.entry_bytes)
        else:
            shared = _common_prefix(self._last_key, key)
        part = b"".join(
            (uvarint(shared), uvarint(len(key) - shared), uvarint(len(value)), key[shared:], value)
        )
        self._parts.append(part)
        self.entry_bytes += len(part)
        self.count += 1
        self._last_key = key

    @property
    def size(self) -> int:
        """The size of the block so far in bytes, before compression."""
        return self.entry_bytes + 4 * len(self._restarts) + 4

    def finish(self) -> bytes:
        """The finished block. An empty one has a single restart point at 0."""
        restarts = self._restarts or [0]
        return b"".join(self._parts) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def _common_prefix(a: bytes, b: bytes) -> int:
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    low, high = 0, limit
    while low + 1 < high:
        middle = (low + high) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle
    return low


COUNT = b"count"
ESTIMATED_SIZE = b"estimated_size_bytes"
MIN_KEY = b"min_key"
MAX_KEY = b"max_key"
_ADDED_AT_CLOSE = frozenset({COUNT, ESTIMATED_SIZE, MIN_KEY, MAX_KEY})
_ENGINE_PREFIXES = (b"rocksdb.", b"pebble.")


def user_properties(properties: Mapping[bytes, bytes]) -> dict[str, str]:
    """The properties set before bounds, count and size, which alone are part of the file's id.

    Raises UnicodeDecodeError for text that is not UTF-8 (``wire.blame`` turns it into a FormatError).
    """
    return {
        key.decode(): value.decode()
        for key, value in properties.items()
        if key not in _ADDED_AT_CLOSE and not key.startswith(_ENGINE_PREFIXES)
    }


@dataclass
class TableFacts:
    """The figures that a writer records about a table. Sizes are bytes, of an index before compression.
    ``index_partitions`` is 0 and ``top_index_size`` unused for a single-level index. ``estimated_size`` is
    what the server would put in properties and metarange: bytes written before the last block, and that block
    uncompressed."""

    min_key: bytes = b""
    max_key: bytes = b""
    records: int = 0
    estimated_size: int = 0
    data_size: int = 0
    data_blocks: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    index_size: int = 0
    index_partitions: int = 0
    top_index_size: int = 0


def engine_properties(facts: TableFacts, user: Mapping[str, str]) -> dict[bytes, bytes]:
    """Every property of the file, with the names and types that a real server writes."""
    two_level = facts.index_partitions > 0
    properties = {
        **_CONSTANT,
        INDEX_TYPE_KEY: (TWO_LEVEL_INDEX if two_level else 0).to_bytes(4, "little"),
        b"rocksdb.data.size": uvarint(facts.data_size),
        b"rocksdb.index.size": uvarint(facts.index_size),
        b"rocksdb.num.data.blocks": uvarint(facts.data_blocks),
        b"rocksdb.num.entries": uvarint(facts.records),
        b"rocksdb.raw.key.size": uvarint(facts.key_bytes),
        b"rocksdb.raw.value.size": uvarint(facts.value_bytes),
        COUNT: b"%d" % facts.records,
        ESTIMATED_SIZE: b"%d" % facts.estimated_size,
        MIN_KEY: facts.min_key,
        MAX_KEY: facts.max_key,
    }
    if two_level:
        properties[b"rocksdb.index.partitions"] = uvarint(facts.index_partitions)
        properties[b"rocksdb.top-level.index.size"] = uvarint(facts.top_index_size)
    properties.update((key.encode(), value.encode()) for key, value in user.items())
    return properties


_ZERO = uvarint(0)
_CONSTANT = {
    b"rocksdb.block.based.table.prefix.filtering": b"0",
    b"rocksdb.block.based.table.whole.key.filtering": b"0",
    b"rocksdb.column.family.id": uvarint(2**31 - 1),
    b"rocksdb.comparator": b"leveldb.BytewiseComparator",
    b"rocksdb.compression": b"Snappy",
    b"rocksdb.compression_options": b"window_bits=-14; level=32767; strategy=0; max_dict_bytes=0; "
    b"zstd_max_train_bytes=0; enabled=0; ",
    b"rocksdb.creation.time": _ZERO,
    b"rocksdb.deleted.keys": _ZERO,
    b"rocksdb.external_sst_file.global_seqno": bytes(8),
    b"rocksdb.external_sst_file.version": FORMAT_VERSION.to_bytes(4, "little"),
    b"rocksdb.filter.size": _ZERO,
    b"rocksdb.fixed.key.length": _ZERO,
    b"rocksdb.format.version": _ZERO,
    b"rocksdb.index.key.is.user.key": _ZERO,
    b"rocksdb.index.value.is.delta.encoded": _ZERO,
    b"rocksdb.merge.operands": _ZERO,
    b"rocksdb.merge.operator": b"pebble.concatenate",
    b"rocksdb.num.range-deletions": _ZERO,
    b"rocksdb.oldest.key.time": _ZERO,
    b"rocksdb.prefix.extractor.name": b"nullptr",
    b"rocksdb.property.collectors": b"[static]",
}
