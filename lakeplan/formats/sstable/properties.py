"""The properties of a table: which are part of its id, and the set that a lakeFS server writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakeplan.formats.sstable.layout import FORMAT_VERSION, INDEX_TYPE_KEY, TWO_LEVEL_INDEX
from lakeplan.formats.varint import uvarint

COUNT = b"count"
ESTIMATED_SIZE = b"estimated_size_bytes"
MIN_KEY = b"min_key"
MAX_KEY = b"max_key"
_ADDED_AT_CLOSE = frozenset({COUNT, ESTIMATED_SIZE, MIN_KEY, MAX_KEY})
_ENGINE_PREFIXES = (b"rocksdb.", b"pebble.")


def user_properties(properties: Mapping[bytes, bytes]) -> dict[str, str]:
    """What the writer had set before it added bounds, count and size: the part that the file's id covers.

    Raises UnicodeDecodeError for text that is not UTF-8 (``damage.blame`` turns it into a FormatError).
    """
    return {
        key.decode(): value.decode()
        for key, value in properties.items()
        if key not in _ADDED_AT_CLOSE and not key.startswith(_ENGINE_PREFIXES)
    }


@dataclass(frozen=True)
class TableFacts:
    """What a writer knows of a finished table. Sizes are bytes; ``index_partitions`` is 0 and
    ``top_index_size`` unused for a single-level index."""

    min_key: bytes
    max_key: bytes
    records: int
    estimated_size: int
    data_size: int
    data_blocks: int
    key_bytes: int
    value_bytes: int
    index_size: int
    index_partitions: int
    top_index_size: int


def engine_properties(facts: TableFacts, user: Mapping[str, str]) -> dict[bytes, bytes]:
    """Every property of the file: the same names, and values of the same kind, as a real server's files."""
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
