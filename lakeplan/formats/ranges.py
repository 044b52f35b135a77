"""Reads and writes ranges, their entries, and metaranges."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import lt

import numpy as np

from lakeplan import limits
from lakeplan.errors import WrongContent
from lakeplan.formats import compiled, wire
from lakeplan.formats.lanes import Irregular, Lanes, decode_entries, decode_lanes
from lakeplan.formats.range_arrays import Ints, RangeArrays, arrays_of, joined
from lakeplan.formats.sstable import (
    Blocks,
    Frame,
    SSTable,
    SSTableWriter,
    WrittenTable,
    encode_int64,
    encode_string,
    encode_string_map,
    file_id,
    file_id_of_body,
    open_blocks,
    open_frame,
    read_sstable,
    write_sstable,
)
from lakeplan.formats.sstable_blocks import TRAILER_SIZE, Handle, check_block, load_block, user_properties
from lakeplan.formats.wire import HINT, blame, damaged, join_value, split_value
from lakeplan.values.repository import AddressType, Entry, RangeInfo

_ID = re.compile(rb"[0-9a-f]{64}\Z")


def is_file_id(text: str) -> bool:
    """Whether this can be the id of a range or metarange: 64 hex digits, lower case."""
    return _ID.match(text.encode(errors="replace")) is not None


def decode_entry(path: bytes, message: bytes) -> Entry:
    """The entry at ``path``. Bytes of a path that are not UTF-8 become surrogates (``surrogateescape``).

    A negative size, which servers accept from clients, becomes 0. Raises FormatError, unnamed, for damaged
    protobuf or an unknown address type.
    """
    address = e_tag = content_type = ""
    size = address_type = 0
    modified: list[bytes] = []
    metadata: dict[str, str] = {}
    for number, value in wire.read_fields(message):
        match number:
            case 1:
                address = wire.as_text(value)
            case 2:
                # Repeated occurrences of a message merge, which is the same as joining their bytes.
                modified.append(wire.as_bytes(value))
            case 3:
                size = wire.as_int64(value)
            case 4:
                e_tag = wire.as_text(value)
            case 5:
                key, text = wire.as_text_pair(value)
                metadata[key] = text
            case 6:
                address_type = wire.as_int32(value)
            case 7:
                content_type = wire.as_text(value)
            case _:
                pass
    if not 0 <= address_type <= max(AddressType):
        raise damaged(f"an entry has the unknown address type {address_type}")
    return Entry(
        path=path.decode(errors="surrogateescape"),
        address=address,
        address_type=AddressType(address_type),
        size=max(0, size),
        last_modified_us=wire.timestamp_us(b"".join(modified)),
        e_tag=e_tag,
        content_type=content_type,
        metadata=tuple(sorted(metadata.items())),
    )


def encode_entry(entry: Entry) -> tuple[bytes, bytes]:
    """The (identity, message) of an entry, as the server writes them. The identity (32 bytes) precedes the
    message in a range's value. It does not depend on the object's address or on when it was written."""
    message = b"".join(
        (
            wire.field_text(1, entry.address),
            wire.field_timestamp(2, entry.last_modified_us),
            wire.field_int(3, entry.size),
            wire.field_text(4, entry.e_tag),
            wire.field_text_map(5, entry.metadata),
            wire.field_int(6, int(entry.address_type)),
            wire.field_text(7, entry.content_type),
        )
    )
    identity = encode_int64(entry.size) + encode_string(entry.e_tag) + encode_string_map(dict(entry.metadata))
    if entry.content_type:  # the first versions of lakeFS had none
        identity += encode_string(entry.content_type)
    return hashlib.sha256(identity).digest(), message


def entry_key(entry: Entry) -> bytes:
    """The key of an entry's record: its path's bytes."""
    return entry.path.encode(errors="surrogateescape")


def decode_range(key: bytes, identity: bytes, message: bytes) -> RangeInfo:
    """The range that a metarange's record describes. ``min_key`` defaults to the record's key.

    Raises FormatError, unnamed, also when the key is not the range's own greatest key.
    """
    if not _ID.match(identity):
        raise damaged("a range id is not 64 lowercase hexadecimal digits")
    min_key, max_key = key, key
    estimated_size = count = 0
    for number, value in wire.read_fields(message):
        match number:
            case 1:
                min_key = wire.as_bytes(value)
            case 2:
                max_key = wire.as_bytes(value)
            case 3:
                estimated_size = wire.as_int(value)
            case 4:
                count = wire.as_int64(value)
            case _:
                pass
    if max_key != key or min_key > max_key or count < 0:
        raise damaged("a range has invalid bounds or an invalid count")
    return RangeInfo(identity.decode(), min_key, max_key, estimated_size, count)


def encode_range(info: RangeInfo) -> bytes:
    """The message of a range's record. The key is ``info.max_key``, the identity ``info.id`` as ASCII."""
    return b"".join(
        (
            wire.field_bytes(1, info.min_key) if info.min_key else b"",
            wire.field_bytes(2, info.max_key) if info.max_key else b"",
            wire.field_int(3, info.estimated_size),
            wire.field_int(4, info.count),
        )
    )


RANGES, METARANGES = "ranges", "metaranges"
_RECORDS_A_PIECE = 1024


@dataclass(frozen=True)
class RangeColumns:
    """A range as columns of equal length, in ascending order of paths. Bytes of paths that are not UTF-8
    become ``\\xNN``. ``addresses`` and ``address_types`` are as stored (``namespace.normalize`` makes them
    comparable). ``sizes`` are bytes."""

    paths: list[str]
    addresses: list[str]
    address_types: list[int]
    sizes: list[int]

    @classmethod
    def of(cls, arrays: RangeArrays) -> RangeColumns:
        rows = np.arange(len(arrays))
        return cls(
            arrays.paths(rows), arrays.addresses(rows), arrays.address_types.tolist(), arrays.sizes.tolist()
        )

    def __len__(self) -> int:
        return len(self.paths)


def read_range(data: bytes, *, name: str, verify_id: str | None = None) -> Iterator[Entry]:
    """The entries of a range in order of their paths. The whole file is verified before the first one.

    With ``verify_id`` the content must have that id. Raises FormatError naming ``name``.
    """
    table = read_table(data, name=name, kind=RANGES, verify_id=verify_id)
    with blame(name):
        for key, value in table:
            yield decode_entry(key, split_value(value)[1])


def read_range_columns(data: bytes, *, name: str, verify_id: str | None = None) -> RangeColumns:
    """The entries as columns, which is several times faster. e-tags, content types and metadata are not read.
    Raises FormatError naming ``name``."""
    return RangeColumns.of(read_range_arrays(data, name=name, verify_id=verify_id))


def read_range_arrays(
    data: bytes, *, name: str, verify_id: str | None = None, use_compiled: bool = False
) -> RangeArrays:
    """The entries as numbers and text positions, for callers that need only some of the texts.
    ``use_compiled`` uses compiled loops, for callers that read many ranges. Raises FormatError."""
    with blame(name):
        if use_compiled:
            arrays = _compiled(data, name, verify_id)
            if arrays is not None:
                return arrays
        blocks = open_blocks(data)
        _check_kind(user_properties(blocks.properties), RANGES, name)
        try:
            return _arrays(blocks, name, verify_id)
        except Irregular:
            return _one_by_one(data, name, verify_id)


def _compiled(data: bytes, name: str, verify_id: str | None) -> RangeArrays | None:
    """The arrays, or None if the careful decoder must read the range. If the id is verified, checksums of
    blocks need not be."""
    frame = open_frame(data)
    properties = user_properties(frame.properties)
    _check_kind(properties, RANGES, name)
    blocks = _blocks_of(data, frame)
    if blocks is None:
        return None
    if verify_id is None:
        for offset, size in blocks.tolist():
            check_block(data, Handle(offset, size), frame.limit)
    decoded = compiled.decode(data, blocks, frame.count)
    if decoded is None:
        return None
    arrays, body = decoded
    if verify_id is not None:
        _check_id(file_id_of_body([body], properties), verify_id, name)
    return arrays


def _blocks_of(data: bytes, frame: Frame) -> Ints | None:
    """Offsets and sizes of consecutive data blocks, or None if the index is irregular."""
    blocks = compiled.handles_of(load_block(data, frame.index, frame.limit))
    if blocks is None or not frame.is_two_level:
        return _in_order(blocks, frame.limit)
    if _in_order(blocks, frame.limit) is None:
        return None
    parts: list[Ints] = []
    for place in blocks.tolist():
        part = compiled.handles_of(load_block(data, Handle(*place), frame.limit))
        if part is None or sum(map(len, parts)) + len(part) > limits.TABLE_RECORDS:
            return None
        parts.append(part)
    return _in_order(np.concatenate(parts), frame.limit)


def _in_order(blocks: Ints | None, limit: int) -> Ints | None:
    """The blocks, or None if they are not consecutive inside the file."""
    if blocks is None:
        return None
    ends = blocks[:, 0] + blocks[:, 1] + TRAILER_SIZE
    return None if (ends[:-1] > blocks[1:, 0]).any() or ends[-1] > limit else blocks


def _arrays(blocks: Blocks, name: str, verify_id: str | None) -> RangeArrays:
    lanes = decode_lanes(blocks.data)
    start, end, types, sizes = decode_entries(lanes)
    buffer = lanes.buffer
    key = b""
    places = zip(lanes.shared.tolist(), lanes.key_start.tolist(), lanes.key_end.tolist(), strict=True)
    keys = [key := key[:shared] + buffer[first:last] for shared, first, last in places]
    if not all(map(lt, keys, islice(keys, 1, None))) or len(keys) != blocks.count:
        raise Irregular
    if verify_id is not None:
        id = file_id_of_body(_body(lanes, keys), user_properties(blocks.properties))
        _check_id(id, verify_id, name)
    arrays, ascii_only = arrays_of(keys, (lanes.array, start, end), types, sizes)
    if not ascii_only:
        raise Irregular  # the careful decoder checks whether such an address is UTF-8
    return arrays


def _body(lanes: Lanes, keys: list[bytes]) -> Iterator[bytes]:
    """All records as ``FileIdHash.add`` joins them (length, key, ``|``, length, value, ``|``), in chunks that
    fit into the processor's cache."""
    key_sizes = lanes.shared + lanes.key_end - lanes.key_start
    value_sizes = lanes.value_end - lanes.value_start
    # Few sizes are distinct, and repeating objects is faster than making new ones.
    sizes = np.sort(np.array(list({*key_sizes.tolist(), *value_sizes.tolist()}), dtype=np.int64))
    written = np.array([b"|%d" % size for size in sizes.tolist()], dtype=object)
    for at in range(0, len(keys), _RECORDS_A_PIECE):
        rows = slice(at, at + _RECORDS_A_PIECE)
        some = keys[rows]
        chunks = [b""] * (4 * len(some))
        chunks[0::4] = written[np.searchsorted(sizes, key_sizes[rows])].tolist()
        chunks[1::4] = some
        chunks[2::4] = written[np.searchsorted(sizes, value_sizes[rows])].tolist()
        spans = zip(lanes.value_start[rows].tolist(), lanes.value_end[rows].tolist(), strict=True)
        chunks[3::4] = [lanes.buffer[start:end] for start, end in spans]
        if at == 0:
            chunks[0] = chunks[0][1:]
        yield b"".join(chunks)
    yield b"|"


def _one_by_one(data: bytes, name: str, verify_id: str | None) -> RangeArrays:
    keys: list[bytes] = []
    addresses: list[bytes] = []
    types: list[int] = []
    sizes: list[int] = []
    for entry in read_range(data, name=name, verify_id=verify_id):
        keys.append(entry_key(entry))
        addresses.append(entry.address.encode())
        types.append(entry.address_type)
        sizes.append(entry.size)
    return arrays_of(keys, joined(addresses), np.array(types, np.int64), np.array(sizes, np.int64))[0]


KnownRanges = dict[tuple[bytes, bytes], RangeInfo]
"""By a metarange's record: key and value."""


def read_metarange(
    data: bytes, *, name: str, verify_id: str | None = None, known: KnownRanges | None = None
) -> list[RangeInfo]:
    """The ranges of a metarange in ascending order. They never overlap. Raises FormatError.

    ``known`` has the ranges of records in other metaranges, and gets those of this one. Metaranges of one
    repository list mostly the same ranges.
    """
    return metarange_of(read_table(data, name=name, kind=METARANGES, verify_id=verify_id), known)


def metarange_of(table: SSTable, known: KnownRanges | None = None) -> list[RangeInfo]:
    """The ranges that a metarange's table lists."""
    known = {} if known is None else known
    infos = []
    with blame(table.name):
        for record in table:
            info = known.get(record)
            if info is None:
                key, value = record
                info = known[record] = decode_range(key, *split_value(value))
            infos.append(info)
        for before, after in pairwise(infos):
            if after.min_key <= before.max_key:
                raise damaged("the ranges overlap")
    return infos


def read_table(data: bytes, *, name: str, kind: str, verify_id: str | None) -> SSTable:
    """A table whose ``type`` is ``kind``, and whose id is ``verify_id`` when given. Raises FormatError."""
    table = read_sstable(data, name=name)
    with blame(name):
        properties = table.user_properties
    _check_kind(properties, kind, name)
    if verify_id is not None:
        _check_id(file_id(table, properties), verify_id, name)
    return table


def _check_kind(properties: Mapping[str, str], kind: str, name: str) -> None:
    stored = properties.get("type")
    if stored != kind:
        raise WrongContent(
            f"the file contains {stored or 'different data'}, not {kind}", where=name, hint=HINT
        )


def _check_id(actual: str, wanted: str, name: str) -> None:
    if actual != wanted:
        raise WrongContent(
            f"the id computed from the content is {actual}, but {wanted} was expected", where=name, hint=HINT
        )


MAX_RANGE_BYTES = 20 << 20
RAGGEDNESS = 50_000
"""On average a range ends after this many keys (lakeFS's default). The key alone decides, so ranges of two
commits end at the same keys, and unchanged ranges are the same files."""
_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
Record = tuple[bytes, bytes]


def write_range(entries: Iterable[Entry]) -> tuple[RangeInfo, bytes]:
    """One range of all entries, which must be in ascending order of their paths' bytes. Raises ValueError if
    not."""
    table = write_sstable(map(_entry_record, entries), user_properties={"type": RANGES})
    return info_of(table), table.data


def write_ranges(entries: Iterable[Entry]) -> Iterator[tuple[RangeInfo, bytes]]:
    """The ranges of these entries, split as a lakeFS server splits them. No entries give no ranges."""
    return write_record_ranges(map(_entry_record, entries), {})


def write_record_ranges(
    records: Iterable[Record], extra_properties: Mapping[str, str]
) -> Iterator[tuple[RangeInfo, bytes]]:
    """The ranges (as by ``write_ranges``) of finished records. ``extra_properties`` are added to ``type``, as
    in refs dumps."""
    properties = {**extra_properties, "type": RANGES}
    writer: SSTableWriter | None = None
    for key, value in records:
        writer = writer or SSTableWriter(properties)
        writer.add(key, value)
        if writer.estimated_size >= MAX_RANGE_BYTES or fnv1a(key) % RAGGEDNESS == 0:
            table, writer = writer.finish(), None
            yield info_of(table), table.data
    if writer is not None:
        table = writer.finish()
        yield info_of(table), table.data


def write_metarange(
    ranges: Iterable[RangeInfo], *, extra_properties: Mapping[str, str] | None = None
) -> tuple[str, bytes]:
    """The (id, file) of the metarange of these ranges (none, for an empty one), in ascending order."""
    properties = {**(extra_properties or {}), "type": METARANGES}
    records = ((r.max_key, join_value(r.id.encode(), encode_range(r))) for r in ranges)
    table = write_sstable(records, user_properties=properties)
    return table.id, table.data


def fnv1a(key: bytes) -> int:
    """The 64-bit FNV-1a hash of the bytes."""
    value = _FNV_OFFSET
    for byte in key:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return value


def _entry_record(entry: Entry) -> Record:
    return entry_key(entry), join_value(*encode_entry(entry))


def info_of(table: WrittenTable) -> RangeInfo:
    facts = table.facts
    return RangeInfo(table.id, facts.min_key, facts.max_key, facts.estimated_size, facts.records)
