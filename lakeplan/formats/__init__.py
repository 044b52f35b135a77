"""The bytes of lakeFS and of lakeplan: SSTables, ranges, refs dumps, runs of a collector, marks, Parquet."""
