"""Entries a second of the range decoders, on one core, in CPU time.

    .venv/bin/python bench/decode.py [--repeat N] [RANGE_FILE …]

Without files it writes a range of 100,000 entries first. Bars (issue 14): compiled code decodes 2.5 million
entries a second with the checksums of blocks, 2 million with the SHA-256 of the id.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lakeplan.formats.compiled import kernels
from lakeplan.formats.ranges import read_range, read_range_arrays, read_range_columns, write_range
from lakeplan.formats.sstable import file_id, read_sstable
from lakeplan.values.repository import AddressType, Entry

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


def measure(label: str, work: Callable[[], int], repeat: int) -> None:
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        count = work()
        best = min(best, time.process_time() - start)
    print(f"  {label:42} {best * 1000:8.1f} ms {count / best:12,.0f} entries/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("files", nargs="*", type=Path)
    chosen = parser.parse_args()
    start = time.perf_counter()
    kernels()
    print(f"compiled code at hand after {time.perf_counter() - start:.2f} s; load {os.getloadavg()[0]:.1f}")
    files = {path.name: path.read_bytes() for path in chosen.files} or {"made": made_range()}
    for name, data in files.items():
        table = read_sstable(data, name=name)
        id = file_id(table, table.user_properties)
        print(f"{name[:16]}: {len(data):,} bytes, {len(table):,} entries")

        def columns(data: bytes = data) -> int:
            return len(read_range_columns(data, name="r"))

        def entries(data: bytes = data) -> int:
            return sum(1 for _ in read_range(data, name="r"))

        def arrays(*, use_compiled: bool, verify_id: str | None, data: bytes = data) -> int:
            return len(read_range_arrays(data, name="r", use_compiled=use_compiled, verify_id=verify_id))

        ways: dict[str, Callable[[], int]] = {
            "compiled, checksums of blocks": partial(arrays, use_compiled=True, verify_id=None),
            "compiled, SHA-256 of the id": partial(arrays, use_compiled=True, verify_id=id),
            "numpy, checksums of blocks": partial(arrays, use_compiled=False, verify_id=None),
            "numpy, both": partial(arrays, use_compiled=False, verify_id=id),
            "columns of Python values": columns,
            "entries one by one": entries,
        }
        for label, work in ways.items():
            measure(label, work, chosen.repeat)


if __name__ == "__main__":
    main()
