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
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    unpacked = sum(g.column(i).total_uncompressed_size for g in groups for i in range(g.num_columns))
    limits.check_size(unpacked, limits.PARQUET_UNPACKED_BYTES)
    check_pages(data, metadata)
    texts = [
        metadata.schema.column(i).path
        for i in range(metadata.num_columns)
        if metadata.schema.column(i).physical_type == "BYTE_ARRAY"
        and metadata.schema.column(i).max_repetition_level == 0
    ]
    return pq.ParquetFile(
        io.BytesIO(data),
        read_dictionary=texts,
        page_checksum_verification=page_checksum_verification,
        **options,
    )


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
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def _plain_bytes(column: pa.Array) -> int:
    """What the column takes without a dictionary."""
    if not isinstance(column, pa.DictionaryArray):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return int(pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0) + 4 * len(column)
