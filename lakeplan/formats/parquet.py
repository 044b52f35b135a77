"""Reads small Parquet files from strangers. Page headers are checked before anything is decompressed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.wire import HINT, LIMIT_HINT, read_uvarint

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_DEPTH = 8
_UNPACKED, _PACKED = 2, 3
_DATA_HEADERS = {5: 2, 8: 4}
"""Headers of data pages by field, with the field of each that has the encoding of values."""
_DELTA_BYTE_ARRAY = 7
"""In this encoding values share prefixes, so a small page can hold texts of any size."""


@dataclass(frozen=True)
class _Page:
    unpacked: int
    packed: int
    values: int
    encoding: int | None


def check_pages(data: bytes, metadata: pq.FileMetaData) -> None:
    """Raises TooLarge for pages over the limits, and ArrowInvalid for a damaged header. Readers ignore bytes
    after the last value of a column."""
    unpacked = pages = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            for page in _pages(data, column):
                pages += 1
                unpacked += page.unpacked
                limits.check_size(unpacked, limits.PARQUET_UNPACKED_BYTES)
                if pages > limits.PARQUET_PAGES:
                    raise limits.TooLarge(f"it has more than {limits.PARQUET_PAGES:,} pages")
                if page.encoding == _DELTA_BYTE_ARRAY:
                    raise limits.TooLarge(
                        "its strings are encoded as DELTA_BYTE_ARRAY, whose size has no limit"
                    )


def _pages(data: bytes, column: pq.ColumnChunkMetaData) -> Iterator[_Page]:
    at = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = column.dictionary_page_offset
    end = at + column.total_compressed_size
    if not 0 <= at <= end <= len(data):
        raise pa.ArrowInvalid("a column is outside of its file")
    values = 0
    while at < end:
        try:
            page, at = _page(data, at, end)
        except (IndexError, ValueError, FormatError):
            if values >= column.num_values:
                return
            raise pa.ArrowInvalid("the header of a page is damaged") from None
        values += page.values
        if values > column.num_values:
            raise pa.ArrowInvalid("a page has more values than its column")
        at += page.packed
        yield page


def _page(data: bytes, at: int, end: int) -> tuple[_Page, int]:
    """The header at a position, and where it ends. Raises ValueError, IndexError or FormatError."""
    fields, after = _struct(data, at, end, _DEPTH)
    unpacked, packed = fields.get(_UNPACKED), fields.get(_PACKED)
    if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
        raise ValueError
    if after + packed > end:
        raise ValueError
    for field, encoding in _DATA_HEADERS.items():
        header = fields.get(field)
        if isinstance(header, dict):
            count, encoded = header.get(1), header.get(encoding)
            if not isinstance(count, int) or not isinstance(encoded, int) or count < 0:
                raise ValueError
            return _Page(unpacked, packed, count, encoded), after
    return _Page(unpacked, packed, 0, None), after


_Struct = dict[int, object]


def _struct(data: bytes, at: int, end: int, depth: int) -> tuple[_Struct, int]:
    """Numbers and structures by field, without texts, and the position after them."""
    if not depth:
        raise ValueError
    fields: _Struct = {}
    field = 0
    while (head := data[at]) != _STOP:
        at += 1
        kind, step = head & 15, head >> 4
        if step:
            field += step
        else:
            number, at = read_uvarint(data, at, end)
            field = _signed(number)
        if kind in _INTEGERS:
            number, at = read_uvarint(data, at, end)
            fields[field] = _signed(number)
        elif kind == _STRUCT:
            fields[field], at = _struct(data, at, end, depth - 1)
        elif kind == _BINARY:
            size, at = read_uvarint(data, at, end)
            at += size
        elif kind in (_BYTE, _DOUBLE):
            at += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):
            raise ValueError
        if at >= end:
            raise ValueError
    return fields, at + 1


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


_BATCH_ROWS = 65_536
_FOOTER = 8
"""The footer's length in 4 bytes, and the magic number, end a file."""
_TEXT = "BYTE_ARRAY"
_SHAPES = ((0, 0), (1, 0), (1, 1), (1, 2))
"""How deep a column is in lists and in groups. A list has one or two groups, depending on the writer."""
_NUMBERS = frozenset({"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE"})


def open_parquet(data: bytes, *, page_checksum_verification: bool = False) -> pq.ParquetFile:
    """The file, after its sizes and counts in the footer and in each page were checked. Nothing is
    decompressed.

    Texts are read as dictionaries, so that a long text that many rows share is not repeated in memory. Raises
    TooLarge, and ArrowException or OSError for anything but a Parquet file.
    """
    limits.check_size(len(data), limits.PARQUET_BYTES)
    if len(data) > _FOOTER:
        limits.check_size(int.from_bytes(data[-8:-4], "little"), limits.PARQUET_FOOTER_BYTES)
    options = {
        "thrift_string_size_limit": limits.PARQUET_FOOTER_BYTES,
        "thrift_container_size_limit": limits.PARQUET_ROWS,
    }
    metadata = pq.ParquetFile(io.BytesIO(data), **options).metadata
    if metadata.num_rows > limits.PARQUET_ROWS:
        raise limits.TooLarge(f"it has more than {limits.PARQUET_ROWS:,} rows")
    texts = _check_columns(metadata)
    check_pages(data, metadata)
    return pq.ParquetFile(
        io.BytesIO(data),
        read_dictionary=texts,
        page_checksum_verification=page_checksum_verification,
        **options,
    )


@contextmanager
def blame_parquet(name: str, message: str) -> Iterator[None]:
    """Raises FormatError that names the file, with ``message`` if it is no Parquet file or lacks a column, or
    saying which limit it exceeds."""
    try:
        yield
    except limits.TooLarge as error:
        raise FormatError(f"exceeds a limit: {error}", where=name, hint=LIMIT_HINT) from None
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise FormatError(message, where=name, hint=HINT, detail=str(error)) from error


def _check_columns(metadata: pq.FileMetaData) -> list[str]:
    """The columns that are texts, which are read as dictionaries. Raises TooLarge, and ArrowInvalid for other
    types, structs and lists of lists, which nobody writes."""
    if metadata.num_columns > limits.PARQUET_COLUMNS:
        raise limits.TooLarge(f"it has more than {limits.PARQUET_COLUMNS} columns")
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
    for column in columns:
        depth = column.path.count(".")
        if (
            column.physical_type not in (_TEXT, *_NUMBERS)
            or (column.max_repetition_level, depth) not in _SHAPES
        ):
            raise pa.ArrowInvalid(f"a column has the unsupported type {column.physical_type}")
    lists = [i for i, column in enumerate(columns) if column.max_repetition_level]
    if sum(group.column(i).num_values for group in groups for i in lists) > limits.PARQUET_LISTED:
        raise limits.TooLarge(f"its lists have more than {limits.PARQUET_LISTED:,} values")
    unpacked = sum(g.column(i).total_uncompressed_size for g in groups for i in range(g.num_columns))
    limits.check_size(unpacked, limits.PARQUET_UNPACKED_BYTES)
    return [column.path for column in columns if column.physical_type == _TEXT]


def read_parquet(file: pq.ParquetFile) -> pa.Table:
    """All rows, with plain columns. Raises TooLarge before more than ``PARQUET_UNPACKED_BYTES`` are used,
    and ArrowException or OSError for a damaged file."""
    batches: list[pa.RecordBatch] = []
    size = rows = 0
    stored = file.schema_arrow
    schema = pa.schema([_plain_field(field) for field in stored], stored.metadata)
    # Use one Arrow thread, because Spark's workers read several files at the same time.
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        size += sum(_plain_bytes(column) for column in batch.columns)
        rows += batch.num_rows
        limits.check_size(size, limits.PARQUET_UNPACKED_BYTES)
        if rows > limits.PARQUET_ROWS:
            raise limits.TooLarge(f"it has more than {limits.PARQUET_ROWS:,} rows")
        batches.append(pa.RecordBatch.from_arrays([_plain(c) for c in batch.columns], schema=schema))
    return pa.Table.from_batches(batches, schema)


def _plain(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        return column.dictionary_decode()
    if not isinstance(column, pa.ListArray):
        return column
    kind = _plain_type(column.type)
    return pa.ListArray.from_arrays(
        column.offsets, _plain(column.values), type=kind, mask=column.is_null() if column.null_count else None
    )


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.list_(_plain_field(kind.value_field)) if pa.types.is_list(kind) else kind


def _plain_bytes(column: pa.Array) -> int:
    """The bytes of the column without a dictionary."""
    if isinstance(column, pa.ListArray):
        return 4 * len(column) + _plain_bytes(column.values)
    if not isinstance(column, pa.DictionaryArray):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return int(pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0) + 4 * len(column)
