"""Ranges and metaranges: entries of a commit, read and verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import lt

import numpy as np

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats import compiled
from lakeplan.formats.damage import HINT, blame, damaged
from lakeplan.formats.entry import decode_entry
from lakeplan.formats.entry_lanes import EntryLanes, decode_entries
from lakeplan.formats.hashing import Ints, hash_spans
from lakeplan.formats.identity import file_id, file_id_of_body
from lakeplan.formats.lanes import Irregular, Lanes, decode_lanes
from lakeplan.formats.range_arrays import RangeArrays, arrays_of, joined
from lakeplan.formats.range_data import decode_range
from lakeplan.formats.sstable import SSTable, read_sstable
from lakeplan.formats.sstable.block import check_block, load_block
from lakeplan.formats.sstable.layout import TRAILER_SIZE, Handle
from lakeplan.formats.sstable.properties import user_properties
from lakeplan.formats.sstable.reader import Blocks, Frame, open_blocks, open_frame
from lakeplan.formats.value import split_value
from lakeplan.model.objects import Entry, RangeInfo

RANGES, METARANGES = "ranges", "metaranges"
_RECORDS_A_PIECE = 1024


@dataclass(frozen=True)
class RangeColumns:
    """A range as columns of equal length, in ascending order of paths.

    ``addresses`` and ``address_types`` are as stored (``addresses.normalize`` makes them comparable);
    ``sizes`` are bytes, ``last_modified_us`` UTC microseconds.
    """

    paths: list[str]
    addresses: list[str]
    address_types: list[int]
    sizes: list[int]
    last_modified_us: list[int]

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
    """The same as columns, and several times faster. A path that is not UTF-8 shows such bytes as ``\\xNN``.

    e-tags, content types and metadata are not looked into. Raises FormatError naming ``name``.
    """
    with blame(name):
        blocks = open_blocks(data)
        _check_kind(user_properties(blocks.properties), RANGES, name)
        try:
            return _columns(blocks, name, verify_id)
        except Irregular:
            return _columns_one_by_one(data, name, verify_id)


def read_range_arrays(
    data: bytes, *, name: str, verify_id: str | None = None, use_compiled: bool = False
) -> RangeArrays:
    """The same as numbers and places of texts, for those who need few of the texts. ``use_compiled``: with
    compiled loops, for those who read many ranges. Raises FormatError."""
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
            columns = _columns_one_by_one(data, name, verify_id)
            return arrays_of(columns.paths, columns.addresses, columns.address_types, columns.sizes)


def _compiled(data: bytes, name: str, verify_id: str | None) -> RangeArrays | None:
    """None for what the careful decoder has to look at. The id covers all that checksums of blocks do."""
    frame = open_frame(data)
    properties = user_properties(frame.properties)
    _check_kind(properties, RANGES, name)
    blocks = _blocks_of(data, frame)
    if blocks is None:
        return None
    if verify_id is None:
        for offset, size in blocks.tolist():
            check_block(data, Handle(offset, size), frame.limit)
    found = compiled.decode(data, blocks, frame.count)
    if found is None:
        return None
    arrays, body = found
    if verify_id is not None:
        _check_id(file_id_of_body([body], properties), verify_id, name)
    return arrays


def _blocks_of(data: bytes, frame: Frame) -> Ints | None:
    """Offsets and sizes of data blocks, which follow one another; None for what is not regular."""
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
    """None for blocks that do not follow one another inside the file."""
    if blocks is None:
        return None
    ends = blocks[:, 0] + blocks[:, 1] + TRAILER_SIZE
    return None if (ends[:-1] > blocks[1:, 0]).any() or ends[-1] > limit else blocks


def _columns(blocks: Blocks, name: str, verify_id: str | None) -> RangeColumns:
    lanes, keys, entries = _decoded(blocks, name, verify_id)
    buffer = lanes.buffer
    spans = zip(entries.address_start.tolist(), entries.address_end.tolist(), strict=True)
    return RangeColumns(
        paths=[key.decode(errors="backslashreplace") for key in keys],
        addresses=[buffer[start:end].decode() for start, end in spans],
        address_types=entries.address_type.tolist(),
        sizes=entries.size.tolist(),
        last_modified_us=entries.last_modified_us.tolist(),
    )


def _arrays(blocks: Blocks, name: str, verify_id: str | None) -> RangeArrays:
    lanes, keys, entries = _decoded(blocks, name, verify_id)
    start, end = entries.address_start, entries.address_end
    hashes, ascii_only = hash_spans(lanes.array, start, end)
    if not ascii_only:
        raise Irregular  # whether such an address is UTF-8 at all is for the careful decoder
    key_buffer, key_start, key_end = joined(keys)
    path_hashes, plain = hash_spans(key_buffer, key_start, key_end)
    return RangeArrays(
        lanes.array,
        start,
        end,
        entries.address_type,
        entries.size,
        hashes,
        key_buffer,
        key_start,
        key_end,
        path_hashes,
        plain,
    )


def _decoded(blocks: Blocks, name: str, verify_id: str | None) -> tuple[Lanes, list[bytes], EntryLanes]:
    """All blocks as lanes, the keys, and the entries; verified."""
    lanes = decode_lanes(blocks.data)
    entries = decode_entries(lanes)
    buffer = lanes.buffer
    key = b""
    places = zip(lanes.shared.tolist(), lanes.key_start.tolist(), lanes.key_end.tolist(), strict=True)
    keys = [key := key[:shared] + buffer[start:end] for shared, start, end in places]
    if not all(map(lt, keys, islice(keys, 1, None))) or len(keys) != blocks.count:
        raise Irregular
    if verify_id is not None:
        found = file_id_of_body(_body(lanes, keys), user_properties(blocks.properties))
        _check_id(found, verify_id, name)
    return lanes, keys, entries


def _body(lanes: Lanes, keys: list[bytes]) -> Iterator[bytes]:
    """All records as ``FileIdHash.add`` joins them: length, key, ``|``, length, value, ``|``; in pieces that
    stay in the processor's cache."""
    key_sizes = lanes.shared + lanes.key_end - lanes.key_start
    value_sizes = lanes.value_end - lanes.value_start
    # few sizes are distinct, and a list that repeats objects is made faster than one of new ones
    sizes = np.sort(np.array(list({*key_sizes.tolist(), *value_sizes.tolist()}), dtype=np.int64))
    written = np.array([b"|%d" % size for size in sizes.tolist()], dtype=object)
    for at in range(0, len(keys), _RECORDS_A_PIECE):
        rows = slice(at, at + _RECORDS_A_PIECE)
        some = keys[rows]
        pieces = [b""] * (4 * len(some))
        pieces[0::4] = written[np.searchsorted(sizes, key_sizes[rows])].tolist()
        pieces[1::4] = some
        pieces[2::4] = written[np.searchsorted(sizes, value_sizes[rows])].tolist()
        spans = zip(lanes.value_start[rows].tolist(), lanes.value_end[rows].tolist(), strict=True)
        pieces[3::4] = [lanes.buffer[start:end] for start, end in spans]
        if at == 0:
            pieces[0] = pieces[0][1:]
        yield b"".join(pieces)
    yield b"|"


def _columns_one_by_one(data: bytes, name: str, verify_id: str | None) -> RangeColumns:
    columns = RangeColumns([], [], [], [], [])
    for entry in read_range(data, name=name, verify_id=verify_id):
        columns.paths.append(entry.path.encode(errors="surrogateescape").decode(errors="backslashreplace"))
        columns.addresses.append(entry.address)
        columns.address_types.append(int(entry.address_type))
        columns.sizes.append(entry.size)
        columns.last_modified_us.append(entry.last_modified_us)
    return columns


KnownRanges = dict[tuple[bytes, bytes], RangeInfo]
"""By a metarange's record: key and value."""


def read_metarange(
    data: bytes, *, name: str, verify_id: str | None = None, known: KnownRanges | None = None
) -> list[RangeInfo]:
    """The ranges of a metarange in ascending order; they never overlap. Raises FormatError.

    ``known`` has what other metaranges' records said, and gets what this one's do: those of one repository
    list mostly the same ranges.
    """
    return metarange_of(read_table(data, name=name, kind=METARANGES, verify_id=verify_id), known)


def metarange_of(table: SSTable, known: KnownRanges | None = None) -> list[RangeInfo]:
    """The ranges that a metarange's table names."""
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
                raise damaged("its ranges overlap")
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
        raise FormatError(f"holds {stored or 'something else'}, not {kind}", where=name, hint=HINT)


def _check_id(found: str, wanted: str, name: str) -> None:
    if found != wanted:
        raise FormatError(f"its content has the id {found}, not {wanted}", where=name, hint=HINT)
