"""The bytes of lakeFS and of lakeplan: SSTables, ranges, refs dumps, runs of a collector, marks, Parquet."""

__all__ = [
    "collector",
    "compiled",
    "marks",
    "namespace",
    "parquet",
    "range_arrays",
    "ranges",
    "refs",
    "wire",
]
