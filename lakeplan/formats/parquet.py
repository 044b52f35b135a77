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
from lakeplan.errors import FormatError, LakeplanError
from lakeplan.formats.parquet_headers import (
    FOOTER_END,
    I32,
    STRUCT,
    Chunk,
    Group,
    Known,
    footer_size,
    of_type,
    read_groups,
    read_struct,
)
from lakeplan.formats.wire import HINT, LIMIT_HINT

_TYPE, _UNPACKED, _PACKED, _COUNT = (1, I32), (2, I32), (3, I32), (1, I32)
_PAGES = {0: ((5, STRUCT), (2, I32)), 3: ((8, STRUCT), (4, I32))}
"""By the type of a page, the field with its header, and in that the field with the encoding of values. Pages
of other types have no rows."""
_PAGE = Known({5: Known(), 8: Known()})
_DELTA_BYTE_ARRAY = 7
"""In this encoding values share prefixes, so a small page can hold texts of any size."""
_BATCH_ROWS = 65_536
_NO_THREAD = "Failed to launch worker thread"
"""Part of pyarrow's text when a limit of processes is reached."""
_TEXT = "BYTE_ARRAY"
_SHAPES = ((0, 0), (1, 0), (1, 1), (1, 2))
"""How deep a column is in lists and in groups. A list has one or two groups, depending on the writer."""
_NUMBERS = frozenset({"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE"})


def open_parquet(data: bytes, *, exact: bool = False) -> pq.ParquetFile:
    """The file, after its sizes and counts in the footer and in each page were checked. Nothing is
    decompressed.

    Texts are read as dictionaries, so that a long text that many rows share is not repeated in memory. If
    ``exact``, the checksums of pages are verified too, and that all counts of rows agree: the footer has no
    checksum. Raises TooLarge, and ArrowException or OSError for anything but a Parquet file.
    """
    limits.check_size(len(data), limits.PARQUET_BYTES)
    if len(data) > FOOTER_END:
        limits.check_size(footer_size(data), limits.PARQUET_FOOTER_BYTES)
    groups = read_groups(data)  # before pyarrow, which makes room for whatever a footer promises
    options = {
        "thrift_string_size_limit": limits.PARQUET_FOOTER_BYTES,
        "thrift_container_size_limit": limits.PARQUET_ROWS,
    }
    metadata = pq.ParquetFile(io.BytesIO(data), **options).metadata
    if metadata.num_rows > limits.PARQUET_ROWS:
        raise limits.TooLarge(f"it has more than {limits.PARQUET_ROWS:,} rows")
    if any(len(group.chunks) != metadata.num_columns for group in groups):
        raise pa.ArrowInvalid("a row group does not have the same number of columns as the file")
    texts = _check_columns(metadata.schema, groups)
    if exact and (
        sum(group.rows for group in groups) != metadata.num_rows
        or any(chunk.values != group.rows for group in groups for chunk in group.chunks)
    ):
        raise pa.ArrowInvalid("the row counts in the footer contradict each other")
    _check_pages(data, [chunk for group in groups for chunk in group.chunks])
    file = pq.ParquetFile(
        io.BytesIO(data),
        read_dictionary=texts,
        page_checksum_verification=exact,
        **options,
    )
    for field in file.schema_arrow:
        _check_type(field.type)
    return file


@contextmanager
def blame_parquet(name: str, message: str) -> Iterator[None]:
    """Raises FormatError that names the file, with ``message`` if it is no Parquet file or lacks a column, or
    saying which limit it exceeds. Raises another LakeplanError if memory is short or no thread can start,
    which says nothing about the file."""
    try:
        yield
    except limits.TooLarge as error:
        raise FormatError(f"the file exceeds a limit: {error}", where=name, hint=LIMIT_HINT) from None
    except (MemoryError, pa.ArrowException, OSError, KeyError, ValueError) as error:
        if isinstance(error, MemoryError) or _NO_THREAD in str(error):
            raise LakeplanError(
                "the file could not be read, because this machine ran out of memory or threads",
                where=name,
                hint="Run the command on a machine with more memory, or raise its limit on processes.",
            ) from error
        raise FormatError(message, where=name, hint=HINT, detail=str(error)) from error


def _check_columns(schema: pq.ParquetSchema, groups: list[Group]) -> list[str]:
    """The columns that are texts, which are read as dictionaries. Raises TooLarge, and ArrowInvalid for other
    types, structs and lists of lists, which nobody writes."""
    if len(schema) > limits.PARQUET_COLUMNS:
        raise limits.TooLarge(f"it has more than {limits.PARQUET_COLUMNS} columns")
    columns = [schema.column(i) for i in range(len(schema))]
    for column in columns:
        depth = column.path.count(".")
        if (
            column.physical_type not in (_TEXT, *_NUMBERS)
            or (column.max_repetition_level, depth) not in _SHAPES
        ):
            raise pa.ArrowInvalid(f"a column has the unsupported type {column.physical_type}")
    lists = [i for i, column in enumerate(columns) if column.max_repetition_level]
    if sum(group.chunks[i].values for group in groups for i in lists) > limits.PARQUET_LISTED:
        raise limits.TooLarge(f"its lists have more than {limits.PARQUET_LISTED:,} values")
    unpacked = sum(chunk.unpacked for group in groups for chunk in group.chunks)
    limits.check_size(unpacked, limits.PARQUET_UNPACKED_BYTES)
    return [column.path for column in columns if column.physical_type == _TEXT]


def _check_type(kind: pa.DataType) -> None:
    """Raises ArrowInvalid for a type in which texts would be repeated in memory. The metadata of a file can
    give a column another type than its own."""
    item = kind.value_type if pa.types.is_list(kind) else kind
    if pa.types.is_dictionary(item):
        return
    if item.num_fields or not (
        pa.types.is_primitive(item) or pa.types.is_decimal(item) or pa.types.is_null(item)
    ):
        raise pa.ArrowInvalid(f"a column has the unsupported type {kind}")


def _check_pages(data: bytes, chunks: list[Chunk]) -> None:
    """Raises TooLarge for pages over the limits, and ArrowInvalid for a damaged header. Readers ignore bytes
    after the last value of a column."""
    unpacked = 0
    every = (page for chunk in chunks for page in read_pages(data, chunk))
    for pages, page in enumerate(every, start=1):
        unpacked += page.unpacked
        limits.check_size(unpacked, limits.PARQUET_UNPACKED_BYTES)
        if pages > limits.PARQUET_PAGES:
            raise limits.TooLarge(f"it has more than {limits.PARQUET_PAGES:,} pages")
        if page.encoding == _DELTA_BYTE_ARRAY:
            raise limits.TooLarge(
                "its strings are encoded as DELTA_BYTE_ARRAY, whose decoded size cannot be limited"
            )


@dataclass(frozen=True)
class Page:
    unpacked: int
    packed: int
    values: int
    encoding: int | None


def read_pages(data: bytes, chunk: Chunk) -> Iterator[Page]:
    """The pages of a column by their headers. Raises ArrowInvalid for a damaged header."""
    at, end, values = chunk.start, chunk.end, 0
    while at < end:
        try:
            page, at = _page(data, at, end)
        except (IndexError, ValueError, FormatError):
            if values >= chunk.values:
                return
            raise pa.ArrowInvalid("the header of a page is damaged") from None
        values += page.values
        if values > chunk.values:
            raise pa.ArrowInvalid("a page has more values than its column")
        at += page.packed
        yield page


def _page(data: bytes, at: int, end: int) -> tuple[Page, int]:
    """The header at a position, and where it ends. Raises ValueError, IndexError or FormatError."""
    fields, after = read_struct(data, at, end, _PAGE)
    kind, unpacked, packed = (of_type(int, fields.get(each)) for each in (_TYPE, _UNPACKED, _PACKED))
    if min(unpacked, packed) < 0 or after + packed > end:
        raise ValueError
    if kind not in _PAGES:
        return Page(unpacked, packed, 0, None), after
    field, encoding = _PAGES[kind]
    header = of_type(dict, fields.get(field))
    count, encoded = of_type(int, header.get(_COUNT)), of_type(int, header.get(encoding))
    if count < 0:
        raise ValueError
    return Page(unpacked, packed, count, encoded), after


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
