"""Entries a second of the range decoders, on one core.

    .venv/bin/python bench/decode.py [RANGE_FILE …]

Without files it writes a range of 100,000 entries first.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lakeplan.formats.range_writer import write_range
from lakeplan.formats.ranges import read_range, read_range_columns
from lakeplan.formats.sstable.reader import open_blocks
from lakeplan.model.objects import AddressType, Entry

ENTRIES = 100_000


def made_range() -> bytes:
    def entry(i: int) -> Entry:
        digest = hashlib.md5(str(i).encode(), usedforsecurity=False).hexdigest()
        return Entry(
            path=f"tables/t{i // 10_000:02}/year=2026/month={i // 1000 % 10:02}/part-{i:08}.parquet",
            address=f"data/ft6vq71ksdu8jkn64tqg/{digest[:20]}",
            address_type=AddressType.RELATIVE,
            size=int(digest[:6], 16),
            last_modified_us=1_790_000_000_000_000 + i,
            e_tag=digest,
            content_type="application/octet-stream",
        )

    return write_range(map(entry, range(ENTRIES)))[1]


def measure(label: str, work: Callable[[], int]) -> None:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        count = work()
        best = min(best, time.perf_counter() - start)
    print(f"  {label:42} {best * 1000:8.1f} ms {count / best:12,.0f} entries/s")


def main() -> None:
    files = {Path(p).name: Path(p).read_bytes() for p in sys.argv[1:]} or {"made": made_range()}
    for name, data in files.items():
        table_id = name if len(name) == 64 else None
        count = len(read_range_columns(data, name=name))
        print(f"{name[:16]}: {len(data):,} bytes, {count:,} entries")
        measure("blocks alone (checksums, snappy)", lambda d=data, c=count: len(open_blocks(d).data) and c)
        measure("columns", lambda d=data, n=name: len(read_range_columns(d, name=n)))
        if table_id:
            verify = lambda d=data, n=name: len(read_range_columns(d, name=n, verify_id=n))  # noqa: E731
            measure("columns, content id verified", verify)
        measure("entries one by one", lambda d=data, n=name: sum(1 for _ in read_range(d, name=n)))


if __name__ == "__main__":
    main()
