"""lakeFS SSTables: pebble's RocksDB v2 block-based tables (shared/lakefs/format.md)."""

from lakeplan.formats.sstable.reader import SSTable, read_sstable
from lakeplan.formats.sstable.writer import SSTableWriter, WrittenTable, write_sstable

__all__ = ["SSTable", "SSTableWriter", "WrittenTable", "read_sstable", "write_sstable"]
