"""Reads and writes whole SSTables, whose ids are checksums of their content. A reader verifies checksums, the
order of keys and the record count."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import cramjam

from lakeplan import limits
from lakeplan.formats.sstable_blocks import (
    CHECKSUM_CRC32C,
    COMPRESSION_NONE,
    COMPRESSION_SNAPPY,
    COUNT,
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
    BlockBuilder,
    Handle,
    TableFacts,
    engine_properties,
    handle_of,
    load_block,
    masked_crc32c,
    read_entries,
    read_handle,
    user_properties,
)
from lakeplan.formats.wire import blame, damaged, uvarint
from lakeplan.values.units import count_of, number_of

_BYTES, _STRING, _INT64, _STRINGS, _STRING_MAP, _EMBEDDED = (bytes((t,)) for t in range(6))
_RECORDS_PER_UPDATE = 4096


def encode_int64(value: int) -> bytes:
    return _INT64 + b"\x08" + value.to_bytes(8, "big", signed=True)


def encode_embedded(identity: bytes) -> bytes:
    """The encoding of an embedded identity: the SHA-256 (32 bytes) of what it identifies."""
    return _EMBEDDED + _BYTES + encode_int64(len(identity)) + identity


def encode_string(value: str) -> bytes:
    raw = value.encode()
    return _STRING + encode_int64(len(raw)) + raw


def encode_strings(values: Sequence[str]) -> bytes:
    return _STRINGS + encode_int64(len(values)) + b"".join(map(encode_string, values))


def encode_string_map(values: Mapping[str, str]) -> bytes:
    # Go compares strings by their bytes.
    keys = sorted(values, key=str.encode)
    pairs = b"".join(encode_string(k) + encode_string(values[k]) for k in keys)
    return _STRING_MAP + encode_int64(len(keys)) + pairs


class FileIdHash:
    """Computes the id of a range or metarange from its records, in the order of the file."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._pieces: list[bytes] = []

    def add(self, key: bytes, value: bytes) -> None:
        self._pieces.append(b"%d%b|%d%b|" % (len(key), key, len(value), value))
        if len(self._pieces) == _RECORDS_PER_UPDATE:
            self._flush()

    def finish(self, properties: Mapping[str, str]) -> str:
        """The id as 64 hex digits. ``properties`` are those present before bounds, count and size are added
        (``SSTable.user_properties``)."""
        self._flush()
        self._digest.update(encode_string_map(properties))
        return self._digest.hexdigest()

    def _flush(self) -> None:
        self._digest.update(b"".join(self._pieces))
        self._pieces.clear()


def file_id(records: Iterable[tuple[bytes, bytes]], properties: Mapping[str, str]) -> str:
    """The id (64 hex digits) of the range or metarange with these records."""
    identity = FileIdHash()
    for key, value in records:
        identity.add(key, value)
    return identity.finish(properties)


def file_id_of_body(body: Iterable[bytes | memoryview], properties: Mapping[str, str]) -> str:
    """The id (as ``file_id``) of records that ``FileIdHash.add`` would join to these bytes, in chunks of any
    length."""
    digest = hashlib.sha256()
    for piece in body:
        digest.update(piece)
    digest.update(encode_string_map(properties))
    return digest.hexdigest()


@dataclass(frozen=True)
class SSTable:
    """A verified table. ``records`` are (key, value) in ascending order of keys, without trailers.
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
    """A table's verified, decompressed data blocks in order, and its properties."""

    properties: Mapping[bytes, bytes]
    data: tuple[bytes, ...]
    count: int


def read_sstable(data: bytes, *, name: str) -> SSTable:
    """The table in the bytes of a file. Raises FormatError naming ``name``."""
    with blame(name):
        blocks = open_blocks(data)
        return SSTable(name, blocks.properties, tuple(read_records(blocks)))


def open_blocks(data: bytes) -> Blocks:
    """Verifies and decompresses every block, without reading entries."""
    frame = open_frame(data)
    handles = _index_handles(data, frame.index, frame.limit)
    if frame.is_two_level:
        _check_places(handles)
        handles = [*_part_handles(data, handles, frame.limit)]
    _check_places(handles)
    return Blocks(frame.properties, tuple(_load_all(data, handles, frame.limit)), frame.count)


@dataclass(frozen=True)
class Frame:
    """The properties and block positions of a table. ``limit`` is the offset of the footer."""

    properties: Mapping[bytes, bytes]
    index: Handle
    is_two_level: bool
    count: int
    limit: int


def open_frame(data: bytes) -> Frame:
    """Verifies the footer and the properties. Raises FormatError without a file name."""
    if len(data) < FOOTER_SIZE:
        raise damaged(f"the file has only {len(data)} bytes, which is too few for an SSTable")
    if len(data) > limits.TABLE_BYTES:
        raise damaged(f"the file is larger than the limit of {limits.size_text(limits.TABLE_BYTES)}")
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
            raise damaged(
                f"the blocks are larger than the limit of {limits.size_text(limits.TABLE_BYTES)} in total"
            )
        yield block


def _part_handles(data: bytes, parts: list[Handle], limit: int) -> Iterator[Handle]:
    count = 0
    for part in parts:
        handles = _index_handles(data, part, limit)
        count += len(handles)
        if count > limits.TABLE_RECORDS:
            raise damaged("the index lists more blocks than lakeFS writes to any file")
        yield from handles


def _check_places(handles: list[Handle]) -> None:
    """Checks that blocks follow one another, because an index may name a block many times."""
    for before, after in pairwise(handles):
        if after.offset < before.offset + before.size + TRAILER_SIZE:
            raise damaged("the index lists blocks that overlap")


def read_records(blocks: Blocks) -> list[tuple[bytes, bytes]]:
    """The records of all blocks, with keys, kinds and count checked. Raises FormatError without a name."""
    records: list[tuple[bytes, bytes]] = []
    last: bytes | None = None
    key_bytes = 0
    for block in blocks.data:
        for key, value in read_entries(block):
            user_key = _user_key(key)
            key_bytes += len(key)
            if last is not None and user_key <= last:
                raise damaged("the keys in the file are out of order")
            last = user_key
            records.append((user_key, value))
        if key_bytes > limits.TABLE_KEY_BYTES or len(records) > limits.TABLE_RECORDS:
            raise damaged("the file has more records, or longer keys, than lakeFS writes to any file")
    if len(records) != blocks.count:
        raise damaged(
            f"the file has {count_of(len(records), 'record')}, but its properties state {blocks.count}"
        )
    return records


def _read_footer(footer: bytes) -> tuple[Handle, Handle]:
    if int.from_bytes(footer[45:], "little") != MAGIC:
        raise damaged("the file is not an SSTable: the magic number is missing")
    version = int.from_bytes(footer[41:45], "little")
    if version != FORMAT_VERSION:
        raise damaged(f"the SSTable version is {version}, but lakeFS writes {FORMAT_VERSION}")
    if footer[0] != CHECKSUM_CRC32C:
        raise damaged(f"the checksum type is {footer[0]}, but lakeFS writes {CHECKSUM_CRC32C} (CRC32C)")
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
        # Filters would be harmless. Range deletions would change the content of the table.
        raise damaged(f"the file has a block that lakeFS never writes: {unknown[0]!r}")
    return dict(read_entries(load_block(data, handle_of(meta[PROPERTIES_KEY]), limit)))


def _index_handles(data: bytes, handle: Handle, limit: int) -> list[Handle]:
    return [handle_of(value) for _, value in read_entries(load_block(data, handle, limit))]


def _count(properties: Mapping[bytes, bytes]) -> int:
    count = number_of(properties.get(COUNT, b"").decode("latin-1"))
    if count is None:
        raise damaged("the count property is missing, so this is not a lakeFS file")
    return count


def _user_key(key: bytes) -> bytes:
    if len(key) < KEY_TRAILER_SIZE:
        raise damaged("a key is too short")
    if key[-KEY_TRAILER_SIZE] != KIND_SET:
        raise damaged(
            f"a record has the kind {key[-KEY_TRAILER_SIZE]}, but lakeFS writes only records of the kind SET"
        )
    return key[:-KEY_TRAILER_SIZE]


BLOCK_SIZE = 4096
RESTART_INTERVAL = 16
_UNBOUNDED = 1 << 62
_SET_TRAILER = KIND_SET.to_bytes(KEY_TRAILER_SIZE, "little")
_SEPARATOR_TRAILER = bytes.fromhex("11ffffffffffffff")
"""Kind 17 (separator), the greatest sequence number: sorts before every record with the same key."""
_EMPTY_TRAILER = bytes.fromhex("ff00000000000000")
"""Kind 255 (invalid): is in the index of a table without records."""


@dataclass(frozen=True)
class WrittenTable:
    """A finished table: its id, its file and what the writer counted."""

    id: str
    data: bytes
    facts: TableFacts


def write_sstable(
    records: Iterable[tuple[bytes, bytes]], *, user_properties: Mapping[str, str]
) -> WrittenTable:
    """The table of these records, which are in ascending order of keys. ``user_properties`` (``type``, and
    those of a refs dump) are part of its id. Raises ValueError for keys out of order."""
    writer = SSTableWriter(user_properties)
    for key, value in records:
        writer.add(key, value)
    return writer.finish()


class SSTableWriter:
    """Writes a table record by record, in ascending order of keys."""

    def __init__(self, user_properties: Mapping[str, str]) -> None:
        self._user_properties = dict(user_properties)
        self._id = FileIdHash()
        self._parts: list[bytes] = []
        self._offset = 0
        self._block = BlockBuilder(RESTART_INTERVAL)
        self._index = BlockBuilder(1)
        self._index_parts: list[tuple[bytes, bytes]] = []
        self._last_separator = b""
        self._facts = TableFacts()

    @property
    def estimated_size(self) -> int:
        """The number of bytes written, plus the open data and index blocks before compression."""
        return self._offset + self._block.size + self._index.size

    def add(self, key: bytes, value: bytes) -> None:
        facts = self._facts
        if facts.records and key <= facts.max_key:
            raise ValueError("records are out of order")
        if _is_full(self._block, RESTART_INTERVAL, len(key) + KEY_TRAILER_SIZE, len(value)):
            self._add_to_index(self._finish_block(), _separator(facts.max_key, key))
        if not facts.records:
            facts.min_key = key
        self._block.add(key + _SET_TRAILER, value)
        self._id.add(key, value)
        facts.max_key = key
        facts.key_bytes += len(key) + KEY_TRAILER_SIZE
        facts.value_bytes += len(value)
        facts.records += 1

    def finish(self) -> WrittenTable:
        """The finished file. The writer cannot be used afterwards."""
        facts = self._facts
        facts.estimated_size = self.estimated_size
        self._add_to_index(self._finish_block(), _successor(facts.max_key))
        facts.data_size = self._offset
        index = self._write_index()
        properties = BlockBuilder(_UNBOUNDED)
        for key, value in sorted(engine_properties(facts, self._user_properties).items()):
            properties.add(key, value)
        place = self._write(properties.finish(), compress=False)
        meta = BlockBuilder(1)
        meta.add(PROPERTIES_KEY, place.encode())
        self._parts.append(_footer(self._write(meta.finish(), compress=False), index))
        return WrittenTable(self._id.finish(self._user_properties), b"".join(self._parts), facts)

    def _finish_block(self) -> Handle:
        block = self._block.finish()
        self._block = BlockBuilder(RESTART_INTERVAL)
        return self._write(block, compress=True)

    def _add_to_index(self, block: Handle, separator: bytes) -> None:
        key = separator + (_SEPARATOR_TRAILER if self._facts.records else _EMPTY_TRAILER)
        place = block.encode()
        if _is_full(self._index, 1, len(key), len(place)):
            self._finish_index_part()
        self._index.add(key, place)
        self._last_separator = key
        self._facts.data_blocks += 1

    def _finish_index_part(self) -> None:
        self._index_parts.append((self._last_separator, self._index.finish()))
        self._index = BlockBuilder(1)

    def _write_index(self) -> Handle:
        """Writes one index block of (separator, handle of data block), or several and a top block. Returns
        the handle of the (top) block."""
        if not self._index_parts:
            content = self._index.finish()
            self._facts.index_size = len(content) + TRAILER_SIZE
            return self._write(content, compress=True)
        self._finish_index_part()
        top = BlockBuilder(1)
        for key, content in self._index_parts:
            top.add(key, self._write(content, compress=True).encode())
        content = top.finish()
        self._facts.index_partitions = len(self._index_parts)
        self._facts.top_index_size = len(content)
        parts_size = sum(len(part) for _, part in self._index_parts)
        self._facts.index_size = parts_size + len(content) + TRAILER_SIZE
        return self._write(content, compress=True)

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
    """Whether a block ends before this entry, by pebble's rule: at its size, or from 90% of it if the entry
    would exceed it. The server's files have the same blocks."""
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
