from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.collector import read_deleted, read_uncommitted, write_uncommitted
from lakeplan.formats.marks import RESULTS, end_of, read_part, write_part
from lakeplan.formats.parquet import open_parquet, read_parquet
from tests.cpu import at_most_cpu_seconds

CHILD = """
import resource, sys
data = sys.stdin.buffer.read()
from lakeplan.errors import FormatError
from lakeplan.formats.marks import read_part
from lakeplan.formats.collector import read_uncommitted
from lakeplan.formats.collector import read_deleted
resource.setrlimit(resource.RLIMIT_AS, (3 << 29,) * 2)
for read in (read_uncommitted, read_deleted, lambda data, name: read_part(data, name=name, sha256=None)):
    try:
        read(data, name="bomb")
    except FormatError as error:
        print(error)
        continue
    sys.exit("it was read")
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("MiB", int(peak.split()[1]) >> 10)
"""


def parquet(table: pa.Table, **options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def a_long_text_that_every_row_shares() -> bytes:
    rows = 1_000_000
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 5_000_000]))
    dates = pa.array([0] * rows, pa.int64())
    names = ["physical_address", "creation_date", "address"]
    return parquet(pa.table([texts, dates, texts], names=names), compression="zstd")


def rows_without_end() -> bytes:
    ones = pa.array(np.zeros(20_000_000, np.int64))
    return parquet(pa.table([ones, ones], names=["creation_date", "address"]), compression="zstd")


def a_long_text_in_lists() -> bytes:
    paths = pa.array(["x" * 50_000]).take(pa.array(np.zeros(11_000, np.int64)))
    lists = pa.ListArray.from_arrays(pa.array([0, 11_000], pa.int32()), paths)
    return parquet(pa.table([lists, lists], names=["physical_address", "address"]), compression="zstd")


def with_types(table: pa.Table, *types: pa.DataType) -> bytes:
    """The table with other types in its metadata."""
    schema = pa.schema(list(zip(table.column_names, types, strict=True)))
    metadata = {"ARROW:schema": base64.b64encode(schema.serialize().to_pybytes())}
    with pq.ParquetWriter(
        out := io.BytesIO(), table.schema, store_schema=False, compression="zstd", write_statistics=False
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
    return out.getvalue()


def a_long_text_in_lists_of_another_type() -> bytes:
    paths = pa.array(["x" * 50_000]).take(pa.array(np.zeros(11_000, np.int64)))
    lists = pa.ListArray.from_arrays(pa.array([0, 11_000], pa.int32()), paths)
    kind = pa.large_list(pa.string())
    return with_types(pa.table([lists, lists], names=["physical_address", "address"]), kind, kind)


def a_long_value_of_fixed_length() -> bytes:
    row = pa.array([b"x" * 50_000], pa.binary(50_000))
    rows = pa.chunked_array([row.take(pa.array(np.zeros(1_100, np.int64)))] * 10)
    table = pa.table([rows, rows], names=["physical_address", "address"])
    return parquet(table, compression="zstd", write_statistics=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bomb", "kind"),
    [
        (a_long_text_that_every_row_shares, ""),
        (rows_without_end, ""),
        (a_long_text_in_lists, "no list is read there"),
        (a_long_text_in_lists_of_another_type, "a kind that is not supported"),
        (a_long_value_of_fixed_length, "a kind that is not supported"),
    ],
)
def it_refuses_a_small_file_that_needs_much_memory(bomb: Callable[[], bytes], kind: str) -> None:
    data = bomb()
    assert len(data) < 1_000_000
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    with at_most_cpu_seconds(10):
        done = subprocess.run(
            [sys.executable, "-c", CHILD], input=data, capture_output=True, timeout=120, check=False, env=env
        )
    assert done.returncode == 0, done.stderr.decode()[-500:]
    said, _, mebibytes = done.stdout.decode().rpartition("MiB")
    assert said.count("bomb: ") == 3
    if not kind:
        assert said.count("bomb: the file exceeds a limit") == 3
    assert int(mebibytes) < 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PARQUET_BYTES", 500),
        ("PARQUET_ROWS", 99),
        ("PARQUET_UNPACKED_BYTES", 900),
        ("PARQUET_FOOTER_BYTES", 9),
        ("PARQUET_COLUMNS", 1),
    ],
)
def it_names_the_limit(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    data = write_uncommitted([f"data/{n}" for n in range(100)], [0] * 100)
    assert len(read_uncommitted(data, name="x")) == 100
    monkeypatch.setattr(limits, name, value)
    with pytest.raises(FormatError, match="x: the file exceeds a limit: it "):
        read_uncommitted(data, name="x")


@pytest.mark.parametrize("rows", [0, 1, 70_000])
def it_gives_the_same_table_as_an_unbounded_reader(rows: int) -> None:
    columns = {
        "address": [f"data/{n}" for n in range(rows)],
        "size_bytes": list(range(rows)),
        "status": ["deleted"] * rows,
        "reason": [""] * rows,
    }
    data, sha256 = write_part(columns, RESULTS.with_metadata({"verified": "3"}))
    expected = pq.read_table(io.BytesIO(data))
    table = read_part(data, name="x", sha256=sha256)
    assert table.equals(expected)
    assert table.schema.equals(expected.schema, check_metadata=True)
    assert end_of("x", data).verified == 3
    assert read_deleted(data, name="x") == columns["address"]


def it_reads_lists_and_nulls_as_they_are() -> None:
    rows = 70_000
    paths = [None if n % 7 == 0 else [f"{n}/{m}" * 40 for m in range(n % 3)] for n in range(rows)]
    table = pa.table({"paths": paths, "id": ["x" if n % 2 else None for n in range(rows)]})
    assert read_parquet(open_parquet(parquet(table))).equals(table)


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_list(pa.string()),
        pa.list_view(pa.string()),
        pa.list_(pa.string(), 2),
        pa.opaque(pa.large_list(pa.string()), "kind", "vendor"),
    ],
    ids=str,
)
def it_refuses_lists_that_repeat_their_texts_in_memory(kind: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match="unsupported type"):
        open_parquet(with_types(pa.table({"paths": [["a", "b"]]}), kind))


@pytest.mark.parametrize("values", [[1], [["a"]], [b"a"], ["a", None]], ids=str)
def it_refuses_addresses_that_are_not_texts(values: list[object]) -> None:
    with pytest.raises(FormatError, match="is not a report of deleted addresses"):
        read_deleted(parquet(pa.table({"address": values})), name="x")
    data = parquet(pa.table({"address": ["data/a"]})).replace(b"data/a", b"data/\xff")
    with pytest.raises(FormatError, match="is not a report of deleted addresses"):
        read_deleted(data, name="x")


def it_names_the_limit_of_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARQUET_LISTED", 2)
    with pytest.raises(FormatError, match="its lists have more than 2 values"):
        read_part(parquet(pa.table({"paths": [["a", "b", "c"]]})), name="x", sha256=None)


def with_smaller_footer(data: bytes, column: int = 0) -> bytes:
    """The file, with a footer that says that the column is of 1,000 bytes when it is unpacked."""
    claimed = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(column).total_uncompressed_size
    told = varint(claimed * 2)
    forged = data.replace(told, padded_varint(2_000, len(told)))
    read = pq.ParquetFile(io.BytesIO(forged)).metadata.row_group(0).column(column)
    assert read.total_uncompressed_size == 1_000
    return forged


def varint(number: int) -> bytes:
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def padded_varint(number: int, size: int) -> bytes:
    return bytes([*((number >> 7 * i & 127) | 128 for i in range(size - 1)), number >> 7 * (size - 1)])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip"])
def it_believes_the_headers_of_pages_rather_than_the_footer(
    monkeypatch: pytest.MonkeyPatch, version: str, compression: str
) -> None:
    table = pa.table({"a": pa.array([bytes(5_000_000)])})
    options = {"use_dictionary": False, "data_page_version": version, "write_statistics": False}
    forged = with_smaller_footer(parquet(table, compression=compression, **options))
    assert read_parquet(open_parquet(forged)).num_rows == 1
    monkeypatch.setattr(limits, "PARQUET_UNPACKED_BYTES", 4 * limits.MIB)
    with pytest.raises(limits.TooLarge, match="larger than the limit of 4 MiB"):
        open_parquet(forged)


def it_refuses_pages_of_more_values_than_the_footer_says() -> None:
    """Values of a list belong to few rows: nothing else bounds them."""
    data = parquet(pa.table({"a": [[1] * 100_000]}), write_statistics=False)
    at = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0).data_page_offset
    told = varint(200_000)
    place = data.index(told, at, at + 30)
    changed = data[:place] + varint(400_000) + data[place + len(told) :]
    with pytest.raises(pa.ArrowInvalid, match="more values than its column"):
        open_parquet(changed)


def it_bounds_the_pages_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet(pa.table({"a": list(range(5_000))}), data_page_size=1, write_batch_size=100)
    monkeypatch.setattr(limits, "PARQUET_PAGES", 20)
    with pytest.raises(limits.TooLarge, match="more than 20 pages"):
        open_parquet(data)


def it_refuses_texts_that_share_beginnings_without_end() -> None:
    texts = pa.table({"a": ["p" * 100_000] * 100})
    data = parquet(texts, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})
    with pytest.raises(limits.TooLarge, match="DELTA_BYTE_ARRAY"):
        open_parquet(data)


def it_refuses_damaged_headers_of_pages() -> None:
    data = parquet(pa.table({"a": list(range(100))}), use_dictionary=False)
    at = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0).data_page_offset
    for damage in (b"\xff" * 12, b"\x00", b"\x1c" * 12, b"\x15\x00\x15\xff\xff\xff\xff\x0f"):
        with pytest.raises(pa.ArrowInvalid, match="header of a page"):
            open_parquet(data[:at] + damage + data[at + len(damage) :])


@pytest.mark.parametrize("compression", ["snappy", "none", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def it_reads_every_kind_of_page(compression: str, version: str) -> None:
    table = pa.table(
        {
            "text": [f"x{i % 50}" for i in range(3_000)],
            "number": list(range(3_000)),
            "perhaps": [None if i % 3 else "y" for i in range(3_000)],
            "list": [[1, 2]] * 3_000,
        }
    )
    for crc in (True, False):
        options = {"data_page_version": version, "write_page_checksum": crc, "data_page_size": 1_000}
        data = parquet(table, compression=compression, **options)
        assert read_parquet(open_parquet(data)).equals(table)
