"""Headers of Parquet pages, read before anything is decompressed.

The footer of a file says how large its columns are, but a reader makes room for what each page's own header
claims, up to 2 GiB a page. Headers are Thrift structures in the compact protocol; source: parquet.thrift of
apache/parquet-format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan import limits

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_DEPTH = 8
_UNPACKED, _PACKED = 2, 3
_DATA_HEADERS = {5: 2, 8: 4}
"""Headers of data pages by field, and the field of each that names the encoding of the values."""
_DELTA_BYTE_ARRAY = 7
"""Values share their beginnings, so that a small page holds texts of any size."""


@dataclass(frozen=True)
class _Page:
    unpacked: int
    packed: int
    values: int
    encoding: int | None


def check_pages(data: bytes, metadata: pq.FileMetaData) -> None:
    """Raises TooLarge for pages that need more than the limits allow, and ArrowInvalid for a damaged header.
    What follows the last value of a column is not read by anybody."""
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
                        "its texts are encoded as DELTA_BYTE_ARRAY, whose size has no limit"
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
        except (IndexError, ValueError):
            if values >= column.num_values:
                return
            raise pa.ArrowInvalid("the header of a page is damaged") from None
        values += page.values
        if values > column.num_values:
            raise pa.ArrowInvalid("a page has more values than its column")
        at += page.packed
        yield page


def _page(data: bytes, at: int, end: int) -> tuple[_Page, int]:
    """The header at a place, and where it ends. Raises ValueError or IndexError for a damaged one."""
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
    """Numbers and structures by field; texts are left out."""
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
            number, at = _varint(data, at)
            field = _signed(number)
        if kind in _INTEGERS:
            number, at = _varint(data, at)
            fields[field] = _signed(number)
        elif kind == _STRUCT:
            fields[field], at = _struct(data, at, end, depth - 1)
        elif kind == _BINARY:
            size, at = _varint(data, at)
            at += size
        elif kind in (_BYTE, _DOUBLE):
            at += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):
            raise ValueError
        if at >= end:
            raise ValueError
    return fields, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise ValueError


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
