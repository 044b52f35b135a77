"""Reads a whole SSTable. Every block's checksum, the order of keys and the record count are verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from lakeplan import limits
from lakeplan.formats.damage import blame, damaged
from lakeplan.formats.sstable.block import load_block, read_entries
from lakeplan.formats.sstable.layout import (
    CHECKSUM_CRC32C,
    FOOTER_SIZE,
    FORMAT_VERSION,
    HANDLES_END,
    INDEX_TYPE_KEY,
    KEY_TRAILER_SIZE,
    KIND_SET,
    MAGIC,
    PROPERTIES_KEY,
    TRAILER_SIZE,
    TWO_LEVEL_INDEX,
    Handle,
    handle_of,
    read_handle,
)
from lakeplan.formats.sstable.properties import COUNT, user_properties


@dataclass(frozen=True)
class SSTable:
    """A verified table. ``records`` are (key, value) in ascending order of keys, trailers dropped;
    ``properties`` are all properties as stored."""

    name: str
    properties: Mapping[bytes, bytes]
    records: tuple[tuple[bytes, bytes], ...]

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that are part of the file's id (``type``, in refs dumps also ``entity`` …)."""
        return user_properties(self.properties)


@dataclass(frozen=True)
class Blocks:
    """A table taken apart: verified, decompressed data blocks in order, and the properties."""

    properties: Mapping[bytes, bytes]
    data: tuple[bytes, ...]
    count: int


def read_sstable(data: bytes, *, name: str) -> SSTable:
    """Reads all of a table from the bytes of its file. Raises FormatError naming ``name``."""
    with blame(name):
        blocks = open_blocks(data)
        return SSTable(name, blocks.properties, tuple(read_records(blocks)))


def open_blocks(data: bytes) -> Blocks:
    """Verifies and decompresses every block; entries are not looked at yet."""
    frame = open_frame(data)
    handles = _index_handles(data, frame.index, frame.limit)
    if frame.is_two_level:
        _check_places(handles)
        handles = [*_part_handles(data, handles, frame.limit)]
    _check_places(handles)
    return Blocks(frame.properties, tuple(_load_all(data, handles, frame.limit)), frame.count)


@dataclass(frozen=True)
class Frame:
    """What a table says of itself. ``limit`` is where the footer begins."""

    properties: Mapping[bytes, bytes]
    index: Handle
    is_two_level: bool
    count: int
    limit: int


def open_frame(data: bytes) -> Frame:
    """Verifies the footer and the properties. Raises FormatError, unnamed."""
    if len(data) < FOOTER_SIZE:
        raise damaged(f"{len(data)} bytes are too few for an SSTable")
    if len(data) > limits.TABLE_BYTES:
        raise damaged(f"it is larger than {limits.size_text(limits.TABLE_BYTES)}")
    limit = len(data) - FOOTER_SIZE
    meta_handle, index_handle = _read_footer(data[limit:])
    properties = _read_properties(data, meta_handle, limit)
    is_two_level = int.from_bytes(properties.get(INDEX_TYPE_KEY, b""), "little") == TWO_LEVEL_INDEX
    return Frame(properties, index_handle, is_two_level, _count(properties), limit)


def _load_all(data: bytes, handles: list[Handle], limit: int) -> Iterator[bytes]:
    total = 0
    for handle in handles:
        block = load_block(data, handle, limit)
        total += len(block)
        if total > limits.TABLE_BYTES:
            raise damaged(f"its blocks are larger than {limits.size_text(limits.TABLE_BYTES)}")
        yield block


def _part_handles(data: bytes, parts: list[Handle], limit: int) -> Iterator[Handle]:
    count = 0
    for part in parts:
        handles = _index_handles(data, part, limit)
        count += len(handles)
        if count > limits.TABLE_RECORDS:
            raise damaged("its index names more blocks than any file that lakeFS writes")
        yield from handles


def _check_places(handles: list[Handle]) -> None:
    """Blocks follow one another: an index that names a block many times would make a small file huge."""
    for before, after in pairwise(handles):
        if after.offset < before.offset + before.size + TRAILER_SIZE:
            raise damaged("its index names blocks that overlap")


def read_records(blocks: Blocks) -> list[tuple[bytes, bytes]]:
    """The records of all blocks; checks key order, kinds and the count. Raises FormatError, unnamed."""
    records: list[tuple[bytes, bytes]] = []
    last: bytes | None = None
    key_bytes = 0
    for block in blocks.data:
        for key, value in read_entries(block):
            user_key = _user_key(key)
            key_bytes += len(key)
            if last is not None and user_key <= last:
                raise damaged("keys are out of order")
            last = user_key
            records.append((user_key, value))
        if key_bytes > limits.TABLE_KEY_BYTES or len(records) > limits.TABLE_RECORDS:
            raise damaged("it has more records, or longer keys, than any file that lakeFS writes")
    if len(records) != blocks.count:
        raise damaged(f"holds {len(records)} records, and its properties say {blocks.count}")
    return records


def _read_footer(footer: bytes) -> tuple[Handle, Handle]:
    if int.from_bytes(footer[45:], "little") != MAGIC:
        raise damaged("not an SSTable: the magic number is missing")
    version = int.from_bytes(footer[41:45], "little")
    if version != FORMAT_VERSION:
        raise damaged(f"SSTable version {version}, lakeFS writes {FORMAT_VERSION}")
    if footer[0] != CHECKSUM_CRC32C:
        raise damaged(f"checksum type {footer[0]}, lakeFS writes {CHECKSUM_CRC32C} (CRC32C)")
    meta, position = read_handle(footer, 1, HANDLES_END)
    index, position = read_handle(footer, position, HANDLES_END)
    if any(footer[position:HANDLES_END]):
        raise damaged("the footer is not padded with zeros")
    return meta, index


def _read_properties(data: bytes, handle: Handle, limit: int) -> dict[bytes, bytes]:
    meta = dict(read_entries(load_block(data, handle, limit)))
    if PROPERTIES_KEY not in meta:
        raise damaged("the properties are missing")
    if unknown := sorted(meta.keys() - {PROPERTIES_KEY}):
        # Filters would be harmless; range deletions would change what the table holds.
        raise damaged(f"holds blocks that lakeFS never writes: {unknown[0]!r}")
    return dict(read_entries(load_block(data, handle_of(meta[PROPERTIES_KEY]), limit)))


def _index_handles(data: bytes, handle: Handle, limit: int) -> list[Handle]:
    return [handle_of(value) for _, value in read_entries(load_block(data, handle, limit))]


def _count(properties: Mapping[bytes, bytes]) -> int:
    count = limits.number_of(properties.get(COUNT, b"").decode("latin-1"))
    if count is None:
        raise damaged("the count property is missing: not a lakeFS file")
    return count


def _user_key(key: bytes) -> bytes:
    if len(key) < KEY_TRAILER_SIZE:
        raise damaged("a key is too short")
    if key[-KEY_TRAILER_SIZE] != KIND_SET:
        raise damaged(f"a record of kind {key[-KEY_TRAILER_SIZE]}, lakeFS writes only sets")
    return key[:-KEY_TRAILER_SIZE]
