"""Parquet files of strangers, read within the limits of size, rows and ratio."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeplan import limits
from lakeplan.formats.parquet_pages import check_pages

_BATCH_ROWS = 65_536
_FOOTER = 8
"""The footer's length in 4 bytes, and the magic number, end a file."""
_TEXT = "BYTE_ARRAY"
_SHAPES = ((0, 0), (1, 0), (1, 1), (1, 2))
"""How deep a column is in lists, and in groups: a list has one or two of them, by who wrote it."""
_NUMBERS = frozenset({"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE"})


def open_parquet(data: bytes, *, page_checksum_verification: bool = False) -> pq.ParquetFile:
    """The file, its sizes and counts checked as the footer and each page state them; nothing is decompressed.

    Texts come as dictionaries, so that one long text that many rows share is not repeated in memory.
    Raises TooLarge, and ArrowException or OSError for what is no Parquet file.
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


def _check_columns(metadata: pq.FileMetaData) -> list[str]:
    """The columns that are texts. Texts in dictionaries are short however often they are repeated; what
    cannot be read as a dictionary, and structs and lists of lists, which nobody writes, are refused."""
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
            raise pa.ArrowInvalid(f"a column is of a kind that is not read: {column.physical_type}")
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
    # One Arrow thread: workers of Spark read several files side by side.
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
    """What the column takes without a dictionary."""
    if isinstance(column, pa.ListArray):
        return 4 * len(column) + _plain_bytes(column.values)
    if not isinstance(column, pa.DictionaryArray):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return int(pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0) + 4 * len(column)
