from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeplan import limits
from lakeplan.formats.parquet import open_parquet, read_pages
from lakeplan.formats.parquet_headers import Chunk, Group, read_groups

TABLE = pa.table(
    {
        "address": [f"data/{i % 7}" for i in range(60)],
        "size": list(range(60)),
        "paths": [["a", "b"][: i % 3] for i in range(60)],
    }
)
I32, I64, BINARY, LIST, SET, MAP, STRUCT = 5, 6, 8, 9, 10, 11, 12
Fields = Sequence[tuple[int, int, Any]]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False, "version": "1.0", "compression": "gzip"},
        {"data_page_version": "2.0", "row_group_size": 20, "compression": "zstd"},
        {"write_page_index": True, "write_page_checksum": True, "data_page_size": 64},
        {"write_statistics": False, "compression": "none", "row_group_size": 7},
    ],
)
def it_reads_the_columns_that_pyarrow_reads(options: dict[str, Any]) -> None:
    out = io.BytesIO()
    pq.write_table(TABLE, out, **options)
    data = out.getvalue()
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    expected: list[Group] = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        expected.append(Group(group.num_rows, []))
        for column in map(group.column, range(group.num_columns)):
            first = column.dictionary_page_offset or column.data_page_offset
            end = first + column.total_compressed_size
            values, unpacked = column.num_values, column.total_uncompressed_size
            expected[-1].chunks.append(Chunk(values, unpacked, first, end))
    assert read_groups(data) == expected
    for chunk in (chunk for group in expected for chunk in group.chunks):
        assert sum(page.values for page in read_pages(data, chunk)) == chunk.values


def uvarint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def value(kind: int, content: Any) -> bytes:
    if kind in (I32, I64):
        return uvarint(content << 1)
    if kind == STRUCT:
        return struct(content)
    if kind == BINARY:
        return uvarint(len(content)) + bytes(content)
    if kind == MAP:
        return bytes(content)
    inner, items = content
    return bytes([15 << 4 | inner]) + uvarint(len(items)) + b"".join(value(inner, each) for each in items)


def struct(fields: Fields) -> bytes:
    """Every field has its number in full, so that any order and any number can be written."""
    return (
        b"".join(
            bytes([kind]) + uvarint(field << 1) + value(kind, content) for field, kind, content in fields
        )
        + b"\0"
    )


def file_of(footer: bytes) -> bytes:
    return b"PAR1" + bytes(96) + footer + len(footer).to_bytes(4, "little") + b"PAR1"


REQUIRED: Fields = [(1, I32, 6), (2, LIST, (I32, [0])), (3, LIST, (BINARY, [b"a"])), (4, I32, 0)]
METADATA: Fields = [(5, I64, 3), (6, I64, 50), (7, I64, 40), (9, I64, 20)]


SCHEMA = [[(4, BINARY, b"schema"), (5, I32, 1)], [(1, I32, 6), (3, I32, 0), (4, BINARY, b"a")]]


def one_column(metadata: Fields = METADATA, column: Fields = (), columns: int = 1) -> bytes:
    chunk = [(3, STRUCT, metadata), *column]
    group = [(1, LIST, (STRUCT, [chunk] * columns)), (2, I64, 50), (3, I64, 3)]
    return file_of(
        struct([(1, I32, 1), (2, LIST, (STRUCT, SCHEMA)), (3, I64, 3), (4, LIST, (STRUCT, [group]))])
    )


def it_reads_a_column() -> None:
    assert read_groups(one_column()) == [Group(3, [Chunk(3, 50, 20, 60)])]
    assert read_groups(one_column([*METADATA, (11, I64, 10)])) == [Group(3, [Chunk(3, 50, 10, 50)])]


def it_ignores_an_offset_of_another_type_as_pyarrow_does() -> None:
    assert read_groups(one_column([*METADATA, (11, I32, 10)])) == [Group(3, [Chunk(3, 50, 20, 60)])]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(one_column([*METADATA, (11, I64, 10), (11, I64, 0)]), id="a field twice"),
        pytest.param(one_column([*METADATA, (11, I64, 10), (11, I32, 0)]), id="a field twice, of two types"),
        pytest.param(one_column([*METADATA, (65536 + 11, I64, 10)]), id="a field beyond 16 bits"),
        pytest.param(one_column(METADATA[1:]), id="no number of values"),
        pytest.param(one_column(column=[(8, STRUCT, [])]), id="an encrypted column"),
        pytest.param(one_column([*METADATA[:2], (7, I64, 90), METADATA[3]]), id="pages in the footer"),
        pytest.param(
            one_column([(3, LIST, (I32, [1])), *METADATA]), id="a list whose items have another type"
        ),
        pytest.param(file_of(b"\x19\xf3\xff\xff\xff\x07\0"), id="a list longer than the file"),
        pytest.param(one_column([*METADATA, (10, I32, 2**31)]), id="a number beyond its type"),
        pytest.param(one_column([*METADATA, (40, STRUCT, [(1, MAP, b"")])]), id="a map"),
        pytest.param(one_column([*METADATA, (40, SET, (9, []))])[:-8] + b"\xff" * 8, id="another length"),
        pytest.param(file_of(b"\0"), id="no row groups"),
        pytest.param(file_of(b""), id="no footer"),
        pytest.param(b"PAR1\xff\0\0\0PAR1", id="a footer longer than the file"),
        pytest.param(file_of(b"\x19\x99" * 20), id="lists in lists"),
    ],
)
def it_refuses(data: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid, match="the footer is damaged"):
        read_groups(data)


PROMISES = """
import resource, sys
from lakeplan.formats.collector import read_uncommitted
from lakeplan.errors import FormatError
footers = (bytes.fromhex(text) for text in sys.argv[1:])
for footer in footers:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        read_uncommitted(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1", name="x")
    except FormatError:
        pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000, footer
"""


def it_needs_no_memory_for_items_that_a_footer_only_promises() -> None:
    """pyarrow makes room for them before it reads the first."""
    promise = b"\x19\xfc" + uvarint(4_000_000)
    start = struct([(1, I32, 1), (2, LIST, (STRUCT, SCHEMA)), (3, I64, 3)])[:-1]
    footers = (start + b"\x09\x08\x1c" + promise, start + b"\x09\x08" + promise[1:], b"\x15\x02" + promise)
    done = subprocess.run(
        [sys.executable, "-c", PROMISES, *map(bytes.hex, footers)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def it_refuses_another_number_of_columns_than_the_schema() -> None:
    with pytest.raises(pa.ArrowInvalid, match="the same number of columns"):
        open_parquet(one_column([*REQUIRED, *METADATA], [(2, I64, 0)], columns=2))


def it_refuses_lists_in_the_headers_of_pages() -> None:
    """Reading them again in each of many columns would take hours."""
    data = struct([(2, I32, 1), (3, I32, 0), (9, LIST, (I32, [1] * 20))])
    with pytest.raises(pa.ArrowInvalid, match="header of a page"):
        list(read_pages(data, Chunk(1, 1, 0, len(data))))


def it_limits_the_values_of_a_page_header() -> None:
    data = struct([(1, I32, 1), (2, I32, 1), (3, I32, 0), (9, STRUCT, [(i, I32, 1) for i in range(1, 100)])])
    with pytest.raises(pa.ArrowInvalid, match="header of a page"):
        list(read_pages(data, Chunk(1, 1, 0, len(data))))


V1, V2 = (5, STRUCT, [(1, I32, 1), (2, I32, 0)]), (8, STRUCT, [(1, I32, 1), (4, I32, 7)])


@pytest.mark.parametrize(("kind", "encoding"), [(0, 0), (3, 7), (1, None), (2, None)])
def it_reads_the_header_that_the_type_of_a_page_names(kind: int, encoding: int | None) -> None:
    data = struct([(1, I32, kind), (2, I32, 1), (3, I32, 0), V1, V2])
    (page,) = read_pages(data, Chunk(1, 1, 0, len(data)))
    assert page.encoding == encoding


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([(1, I32, 3), V1], id="the header of another type"),
        pytest.param([V1], id="no type"),
        pytest.param([(1, I32, 0), (5, STRUCT, [(1, I32, 1), (2, I32, 2**32 + 7)])], id="a large encoding"),
        pytest.param([(1, I32, 2**32), V1], id="a large type"),
    ],
)
def it_refuses_pages_whose_encoding_is_unclear(fields: Fields) -> None:
    data = struct([*fields, (2, I32, 1), (3, I32, 0)])
    with pytest.raises(pa.ArrowInvalid, match="header of a page"):
        list(read_pages(data, Chunk(1, 1, 0, len(data))))


def it_limits_the_values_of_a_footer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "THRIFT_VALUES", 100)
    data = file_of(struct([(5, LIST, (STRUCT, [[]] * 101))]))
    with pytest.raises(limits.TooLarge, match="more than 100 values"):
        read_groups(data)


def it_limits_the_columns_of_all_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARQUET_CHUNKS", 100)
    with pytest.raises(limits.TooLarge, match="more than 100 row groups, columns and schema elements"):
        read_groups(one_column(columns=98))


FLIPS = """
import sys
from lakeplan.errors import FormatError
from lakeplan.formats.collector import read_uncommitted, write_uncommitted
expected = [f"data/p/{i}" for i in range(50)]
sample = write_uncommitted(expected, list(range(50)))
for position in range(len(sample) - 8 - int.from_bytes(sample[-8:-4], "little"), len(sample)):
    for mask in (1, 2, 4, 8, 16, 32, 42, 64, 128):
        damaged = bytearray(sample)
        damaged[position] ^= mask
        try:
            read = read_uncommitted(bytes(damaged), name="x")
        except FormatError:
            continue
        assert read == expected, (position, mask)
"""


@pytest.mark.slow
def it_ends_no_process_over_a_damaged_footer() -> None:
    """pyarrow would, at some of these bytes. Hence another process."""
    done = subprocess.run([sys.executable, "-c", FLIPS], capture_output=True, text=True, timeout=900)
    assert (done.returncode, done.stderr) == (0, "")
