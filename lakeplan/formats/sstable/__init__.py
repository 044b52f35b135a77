"""lakeFS SSTables: pebble's RocksDB v2 block-based tables (shared/lakefs/format.md)."""

from lakeplan.formats.sstable.reader import SSTable, read_sstable

__all__ = ["SSTable", "read_sstable"]
