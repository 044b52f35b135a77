"""Writes SSTables as lakeFS does: 4 KiB blocks, restarts every 16, snappy, a two-level index when needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import cramjam

from lakeplan.formats.identity import FileIdHash
from lakeplan.formats.sstable.block import BlockBuilder
from lakeplan.formats.sstable.checksum import masked_crc32c
from lakeplan.formats.sstable.layout import (
    CHECKSUM_CRC32C,
    COMPRESSION_NONE,
    COMPRESSION_SNAPPY,
    FORMAT_VERSION,
    HANDLES_END,
    KEY_TRAILER_SIZE,
    KIND_SET,
    MAGIC,
    PROPERTIES_KEY,
    TRAILER_SIZE,
    Handle,
)
from lakeplan.formats.sstable.properties import TableFacts, engine_properties
from lakeplan.formats.varint import uvarint

BLOCK_SIZE = 4096
RESTART_INTERVAL = 16
_UNBOUNDED = 1 << 62
_SET_TRAILER = KIND_SET.to_bytes(KEY_TRAILER_SIZE, "little")
_SEPARATOR_TRAILER = bytes.fromhex("11ffffffffffffff")
"""Kind 17 (separator), the greatest sequence number: sorts before every record with the same key."""
_EMPTY_TRAILER = bytes.fromhex("ff00000000000000")
"""Kind 255 (invalid): stands in the index of a table without records."""


@dataclass(frozen=True)
class WrittenTable:
    """A finished file. ``estimated_size`` is what the server would put in its properties and metarange:
    bytes written before the last block, and that block uncompressed."""

    id: str
    data: bytes
    min_key: bytes
    max_key: bytes
    count: int
    estimated_size: int


def write_sstable(
    records: Iterable[tuple[bytes, bytes]], *, user_properties: Mapping[str, str]
) -> WrittenTable:
    """A table of records in ascending order of keys. ``user_properties`` (``type`` and what a refs dump
    adds) are part of its id. Raises ValueError for keys out of order."""
    writer = SSTableWriter(user_properties)
    for key, value in records:
        writer.add(key, value)
    return writer.finish()


@dataclass(frozen=True)
class _Index:
    """Where the (top) index block stands; sizes are before compression. No partitions: a single level."""

    handle: Handle
    size: int
    partitions: int = 0
    top_size: int = 0


class SSTableWriter:
    """Takes records one by one, in ascending order of keys."""

    def __init__(self, user_properties: Mapping[str, str]) -> None:
        self._user_properties = dict(user_properties)
        self._id = FileIdHash()
        self._parts: list[bytes] = []
        self._offset = 0
        self._block = BlockBuilder(RESTART_INTERVAL)
        self._blocks = 0
        self._index = BlockBuilder(1)
        self._index_parts: list[tuple[bytes, bytes]] = []
        self._last_separator = b""
        self._finished_block: Handle | None = None
        self._min_key = b""
        self._max_key: bytes | None = None
        self._key_bytes = 0
        self._value_bytes = 0
        self.count = 0

    @property
    def estimated_size(self) -> int:
        """Bytes written so far, and the open data and index blocks uncompressed."""
        return self._offset + self._block.size + self._index.size

    def add(self, key: bytes, value: bytes) -> None:
        if self._max_key is not None and key <= self._max_key:
            raise ValueError("records are out of order")
        if _is_full(self._block, RESTART_INTERVAL, len(key) + KEY_TRAILER_SIZE, len(value)):
            self._finish_block()
        if self._finished_block is not None:
            self._add_to_index(_separator(self._max_key or b"", key))
        if self._max_key is None:
            self._min_key = key
        self._block.add(key + _SET_TRAILER, value)
        self._id.add(key, value)
        self._max_key = key
        self._key_bytes += len(key) + KEY_TRAILER_SIZE
        self._value_bytes += len(value)
        self.count += 1

    def finish(self) -> WrittenTable:
        """The file. The writer is of no use afterwards."""
        estimated_size = self.estimated_size
        max_key = self._max_key or b""
        if self._finished_block is None:
            self._finish_block()
        self._add_to_index(_successor(max_key))
        data_size = self._offset
        index = self._write_index()
        facts = TableFacts(
            min_key=self._min_key,
            max_key=max_key,
            records=self.count,
            estimated_size=estimated_size,
            data_size=data_size,
            data_blocks=self._blocks,
            key_bytes=self._key_bytes,
            value_bytes=self._value_bytes,
            index_size=index.size,
            index_partitions=index.partitions,
            top_index_size=index.top_size,
        )
        properties = BlockBuilder(_UNBOUNDED)
        for key, value in sorted(engine_properties(facts, self._user_properties).items()):
            properties.add(key, value)
        place = self._write(properties.finish(), compress=False)
        meta = BlockBuilder(1)
        meta.add(PROPERTIES_KEY, place.encode())
        self._parts.append(_footer(self._write(meta.finish(), compress=False), index.handle))
        return WrittenTable(
            id=self._id.finish(self._user_properties),
            data=b"".join(self._parts),
            min_key=self._min_key,
            max_key=max_key,
            count=self.count,
            estimated_size=estimated_size,
        )

    def _finish_block(self) -> None:
        self._finished_block = self._write(self._block.finish(), compress=True)
        self._block = BlockBuilder(RESTART_INTERVAL)

    def _add_to_index(self, separator: bytes) -> None:
        assert self._finished_block is not None, "a block was finished before"
        key = separator + (_SEPARATOR_TRAILER if self.count else _EMPTY_TRAILER)
        place = self._finished_block.encode()
        if _is_full(self._index, 1, len(key), len(place)):
            self._finish_index_part()
        self._index.add(key, place)
        self._last_separator = key
        self._finished_block = None
        self._blocks += 1

    def _finish_index_part(self) -> None:
        self._index_parts.append((self._last_separator, self._index.finish()))
        self._index = BlockBuilder(1)

    def _write_index(self) -> _Index:
        """One block of (separator, place of data block), or several and a block on top."""
        if not self._index_parts:
            content = self._index.finish()
            return _Index(self._write(content, compress=True), len(content) + TRAILER_SIZE)
        self._finish_index_part()
        top = BlockBuilder(1)
        for key, content in self._index_parts:
            top.add(key, self._write(content, compress=True).encode())
        content = top.finish()
        parts_size = sum(len(part) for _, part in self._index_parts)
        return _Index(
            handle=self._write(content, compress=True),
            size=parts_size + len(content) + TRAILER_SIZE,
            partitions=len(self._index_parts),
            top_size=len(content),
        )

    def _write(self, block: bytes, *, compress: bool) -> Handle:
        kind, stored = COMPRESSION_NONE, block
        if compress:
            small = bytes(cramjam.snappy.compress_raw(block))
            # pebble's rule: compression that saves less than an eighth is not worth its time
            if len(small) < len(block) - len(block) // 8:
                kind, stored = COMPRESSION_SNAPPY, small
        body = stored + bytes((kind,))
        handle = Handle(self._offset, len(stored))
        self._parts.append(body + masked_crc32c(body).to_bytes(4, "little"))
        self._offset += len(stored) + TRAILER_SIZE
        return handle


def _is_full(block: BlockBuilder, restart_interval: int, key_size: int, value_size: int) -> bool:
    """Whether a block ends before this entry: at its size, or from nine tenths of it on when the entry would
    take it over. pebble's rule, kept so that files come out as the server's do."""
    if block.size >= BLOCK_SIZE:
        return True
    if block.size <= BLOCK_SIZE * 9 // 10:
        return False
    size = block.size + key_size + value_size + 4
    size += len(uvarint(key_size)) + len(uvarint(value_size))
    if block.count % restart_interval == 0:
        size += 4
    return size > BLOCK_SIZE


def _footer(meta: Handle, index: Handle) -> bytes:
    handles = bytes((CHECKSUM_CRC32C,)) + meta.encode() + index.encode()
    return (
        handles.ljust(HANDLES_END, b"\0") + FORMAT_VERSION.to_bytes(4, "little") + MAGIC.to_bytes(8, "little")
    )


def _separator(last: bytes, following: bytes) -> bytes:
    """A short key k with last <= k < following."""
    shared = 0
    while shared < len(last) and last[shared] == following[shared]:
        shared += 1
    if shared == len(last):
        return last
    if last[shared] + 1 < following[shared] or shared + 1 < len(following):
        return last[:shared] + bytes((last[shared] + 1,))
    for i in range(shared + 1, len(last)):
        if last[i] < 0xFF:
            return last[:i] + bytes((last[i] + 1,))
    return last


def _successor(last: bytes) -> bytes:
    """A short key k with last <= k, for the last block."""
    for i, byte in enumerate(last):
        if byte < 0xFF:
            return last[:i] + bytes((byte + 1,))
    return last
