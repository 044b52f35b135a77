"""Writes ranges and metaranges, split where lakeFS splits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lakeplan.formats.entry import encode_entry, entry_key
from lakeplan.formats.range_data import encode_range
from lakeplan.formats.ranges import METARANGES, RANGES
from lakeplan.formats.sstable import SSTableWriter, WrittenTable, write_sstable
from lakeplan.formats.value import join_value
from lakeplan.model.objects import Entry, RangeInfo

MAX_RANGE_BYTES = 20 << 20
RAGGEDNESS = 50_000
"""On average a range ends after this many keys: whether it does hangs on the key alone, so ranges of two
commits end at the same keys and unchanged ones are the same files. lakeFS's defaults."""
_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
Record = tuple[bytes, bytes]


def write_range(entries: Iterable[Entry]) -> tuple[RangeInfo, bytes]:
    """One range of all entries, in ascending order of their paths' bytes. Raises ValueError otherwise."""
    table = write_sstable(map(_entry_record, entries), user_properties={"type": RANGES})
    return _info(table), table.data


def write_ranges(entries: Iterable[Entry]) -> Iterator[tuple[RangeInfo, bytes]]:
    """Entries split into ranges as a lakeFS server splits them; none for no entries."""
    return write_record_ranges(map(_entry_record, entries), {})


def write_record_ranges(
    records: Iterable[Record], extra_properties: Mapping[str, str]
) -> Iterator[tuple[RangeInfo, bytes]]:
    """``write_ranges`` for finished records; ``extra_properties`` go beside ``type``, as in refs dumps."""
    properties = {**extra_properties, "type": RANGES}
    writer: SSTableWriter | None = None
    for key, value in records:
        writer = writer or SSTableWriter(properties)
        writer.add(key, value)
        if writer.estimated_size >= MAX_RANGE_BYTES or fnv1a(key) % RAGGEDNESS == 0:
            table, writer = writer.finish(), None
            yield _info(table), table.data
    if writer is not None:
        table = writer.finish()
        yield _info(table), table.data


def write_metarange(
    ranges: Iterable[RangeInfo], *, extra_properties: Mapping[str, str] | None = None
) -> tuple[str, bytes]:
    """(id, file) of the metarange of these ranges, in ascending order. No ranges: an empty metarange."""
    properties = {**(extra_properties or {}), "type": METARANGES}
    records = ((r.max_key, join_value(r.id.encode(), encode_range(r))) for r in ranges)
    table = write_sstable(records, user_properties=properties)
    return table.id, table.data


def fnv1a(key: bytes) -> int:
    """64-bit FNV-1a."""
    value = _FNV_OFFSET
    for byte in key:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return value


def _entry_record(entry: Entry) -> Record:
    return entry_key(entry), join_value(*encode_entry(entry))


def _info(table: WrittenTable) -> RangeInfo:
    return RangeInfo(table.id, table.min_key, table.max_key, table.estimated_size, table.count)
