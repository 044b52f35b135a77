"""One block: its trailer (compression, checksum) and its prefix-compressed entries."""

from __future__ import annotations

import struct
from itertools import pairwise

import cramjam

from lakeplan import limits
from lakeplan.formats.damage import damaged
from lakeplan.formats.sstable.checksum import masked_crc32c
from lakeplan.formats.sstable.layout import (
    COMPRESSION_NONE,
    COMPRESSION_SNAPPY,
    TRAILER_SIZE,
    Handle,
)
from lakeplan.formats.varint import read_uvarint, uvarint


def load_block(data: bytes, handle: Handle, limit: int) -> bytes:
    """The block's bytes, checksum verified, decompressed. ``limit`` is where the footer begins."""
    raw, compression = _stored_block(data, handle, limit)
    size = _unpacked_size(raw, compression, handle)
    if size > limits.BLOCK_BYTES:
        raise damaged(f"the block at {handle.offset} claims to hold more than any lakeFS block")
    if compression == COMPRESSION_NONE:
        return raw
    try:
        return bytes(cramjam.snappy.decompress_raw(raw))
    except cramjam.DecompressionError as error:
        raise damaged(f"the block at {handle.offset} does not decompress") from error


def _stored_block(data: bytes, handle: Handle, limit: int) -> tuple[bytes, int]:
    """The block as stored, checksum verified, and its kind of compression."""
    end = check_block(data, handle, limit)
    return data[handle.offset : end], data[end]


def check_block(data: bytes, handle: Handle, limit: int) -> int:
    """Where the block ends, without its trailer. Raises FormatError, unnamed, when its checksum does not
    match."""
    end = handle.offset + handle.size
    if end + TRAILER_SIZE > limit:
        raise damaged(f"a block at {handle.offset} of {handle.size} bytes lies outside the file")
    stored = int.from_bytes(data[end + 1 : end + TRAILER_SIZE], "little")
    if masked_crc32c(data[handle.offset : end + 1]) != stored:
        raise damaged(f"the checksum of the block at {handle.offset} does not match")
    return end


def _unpacked_size(raw: bytes, compression: int, handle: Handle) -> int:
    """How many bytes the block has after decompression. Nothing is decompressed for it."""
    if compression == COMPRESSION_NONE:
        return len(raw)
    if compression != COMPRESSION_SNAPPY:
        raise damaged(f"the block at {handle.offset} has the unknown compression {compression}")
    try:
        size = int(cramjam.snappy.decompress_raw_len(raw))
    except cramjam.DecompressionError as error:
        raise damaged(f"the block at {handle.offset} does not decompress") from error
    if size > limits.SNAPPY_RATIO * len(raw):
        raise damaged(f"the block at {handle.offset} claims more bytes than snappy can hold")
    return size


def restart_points(block: bytes) -> tuple[tuple[int, ...], int]:
    """The restart offsets, and where the entries end. The first restart is 0, they ascend."""
    if len(block) < 4:
        raise damaged("a block is too short")
    count = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * count
    if count == 0 or end < 0:
        raise damaged("a block's restart points do not fit in it")
    if count > limits.TABLE_RECORDS:
        raise damaged(f"a block has more than {limits.TABLE_RECORDS:,} restart points")
    points = struct.unpack_from(f"<{count}I", block, end)
    if points[0] != 0 or any(a >= b for a, b in pairwise(points)):
        raise damaged("a block's restart points are out of order")
    return points, end


def read_entries(block: bytes) -> list[tuple[bytes, bytes]]:
    """All entries of a block: whole keys (trailer included, where keys have one) and values."""
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
                raise damaged("an entry at a restart point leans on the one before it")
        if shared > len(key):
            raise damaged("an entry shares more than the key before it has")
        if shared + unshared > limits.KEY_BYTES:
            raise damaged(f"a key is longer than {limits.KEY_BYTES:,} bytes")
        budget -= shared + unshared
        if budget < 0 or len(entries) >= limits.TABLE_RECORDS:
            raise damaged("the keys of a block are longer, or more, than any that lakeFS writes")
        key = key[:shared] + block[position:value_start]
        entries.append((key, block[value_start:value_end]))
        position = value_end
    if entries and met != len(points):
        raise damaged("a restart point is not the start of an entry")
    return entries


class BlockBuilder:
    """Builds one block; a restart point every ``restart_interval`` entries."""

    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self._parts: list[bytes] = []
        self._restarts: list[int] = []
        self._last_key = b""
        self.entry_bytes = 0
        self.count = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Appends an entry; the caller adds keys in order."""
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
        """Bytes of the block so far, before compression."""
        return self.entry_bytes + 4 * len(self._restarts) + 4

    def finish(self) -> bytes:
        """The block; an empty one has a single restart point at 0."""
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
