"""The bytes of lakeFS and of lakeplan: SSTables, ranges, refs dumps, runs of a collector, marks, Parquet."""

__all__ = [
    "collector",
    "compiled",
    "inventory",
    "marks",
    "namespace",
    "range_arrays",
    "ranges",
    "refs",
    "wire",
]
