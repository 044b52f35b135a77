"""Constants and handles of the SSTable layout (pebble, RocksDB version 2, block based)."""

from __future__ import annotations

from typing import NamedTuple

from lakeplan.formats.damage import damaged
from lakeplan.formats.varint import read_uvarint, uvarint

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
    """Where a block stands: offset and size in bytes, its trailer not counted."""

    offset: int
    size: int

    def encode(self) -> bytes:
        return uvarint(self.offset) + uvarint(self.size)


def read_handle(data: bytes, position: int, end: int) -> tuple[Handle, int]:
    offset, position = read_uvarint(data, position, end)
    size, position = read_uvarint(data, position, end)
    return Handle(offset, size), position


def handle_of(value: bytes) -> Handle:
    """The handle that is the whole value of an index entry."""
    handle, end = read_handle(value, 0, len(value))
    if end != len(value):
        raise damaged("an index entry holds more than a block's place")
    return handle
