"""Reads the footer and the page headers of Parquet files, which are structures of Thrift's compact protocol.

pyarrow ends the process when it is asked for a damaged column of a row group. These readers raise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.wire import read_uvarint

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _, _STRUCT = range(13)
_LONG_LIST = 15
_DEPTH = 10
_MAX_FIELD = 2**15 - 1
_LISTS = {
    (2,): _STRUCT,
    (4,): _STRUCT,
    (4, 1): _STRUCT,
    (4, 1, 3, 2): _I32,
    (4, 1, 3, 3): _BINARY,
    (4, 1, 3, 8): _STRUCT,
    (4, 1, 3, 13): _STRUCT,
    (4, 1, 3, 16, 2): _I64,
    (4, 1, 3, 16, 3): _I64,
    (4, 1, 3, 17, 2): _I32,
    (4, 1, 8, 2, 1): _BINARY,
    (4, 4): _STRUCT,
    (5,): _STRUCT,
    (7,): _STRUCT,
}
"""The types of the items of a footer's lists, by the fields that lead there. pyarrow reads items of these
types whatever type a list gives, so a list of another type would make the two read different fields."""

_T = TypeVar("_T")
FOOTER_END = 8
"""The footer's length in 4 bytes, and the magic number, end a file."""
_GROUPS, _COLUMNS, _ROWS = (4, _LIST), (1, _LIST), (3, _I64)
_METADATA, _ENCRYPTION = (3, _STRUCT), (8, _STRUCT)
_VALUES, _SIZE, _PACKED_SIZE, _DATA_OFFSET, _DICTIONARY_OFFSET = ((field, _I64) for field in (5, 6, 7, 9, 11))
_UNPACKED, _PACKED, _COUNT = (2, _I32), (3, _I32), (1, _I32)
_DATA_HEADERS = {(5, _STRUCT): (2, _I32), (8, _STRUCT): (4, _I32)}
"""Headers of data pages by field, with the field of each that has the encoding of values."""


_Struct = dict[tuple[int, int], object]
"""Values by field and type, because readers of the protocol ignore a field that has another type than they
expect. Only numbers, structures and lists have a value other than None."""

_Path = tuple[int, ...]
_Lists = Mapping[_Path, int]


@dataclass(frozen=True)
class Chunk:
    """A column of a row group. Its pages are the bytes from ``start`` to ``end``."""

    column: int
    rows: int
    """Of its row group."""
    values: int
    unpacked: int
    start: int
    end: int


@dataclass(frozen=True)
class Page:
    unpacked: int
    packed: int
    values: int
    encoding: int | None


def footer_size(data: bytes) -> int:
    """The bytes of the footer, as the end of the file states them."""
    return int.from_bytes(data[-FOOTER_END:-4], "little")


def read_chunks(data: bytes, columns: int) -> list[Chunk]:
    """All columns of all row groups by the footer. Raises ArrowInvalid for a damaged footer, and TooLarge."""
    end = len(data) - FOOTER_END
    start = end - footer_size(data)
    try:
        footer, _ = _struct(data, start, end, _LISTS)
        return [
            _chunk(i, _of(int, group[_ROWS]), _of(dict, column), start)
            for group in (_of(dict, each) for each in _of(list, footer[_GROUPS]))
            for i, column in enumerate(_of_size(columns, group[_COLUMNS]))
        ]
    except limits.TooLarge:
        raise
    except (IndexError, KeyError, ValueError, FormatError):
        raise pa.ArrowInvalid("the footer is damaged") from None


def _chunk(index: int, rows: int, column: _Struct, end: int) -> Chunk:
    """One column of a row group. Its pages end at ``end`` or before."""
    fields = _of(dict, column[_METADATA])
    values, unpacked, packed = (_of(int, fields[each]) for each in (_VALUES, _SIZE, _PACKED_SIZE))
    start = _of(int, fields[_DATA_OFFSET])
    dictionary = _of(int, fields.get(_DICTIONARY_OFFSET, 0))
    if 0 < dictionary < start:
        start = dictionary
    if _ENCRYPTION in column or min(values, unpacked, packed, start) < 0 or start + packed > end:
        raise ValueError
    return Chunk(index, rows, values, unpacked, start, start + packed)


def _of(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        raise ValueError
    return value


def _of_size(size: int, value: object) -> list[object]:
    values = _of(list, value)
    if len(values) != size:
        raise ValueError
    return values


def read_pages(data: bytes, chunk: Chunk) -> Iterator[Page]:
    """The pages of a column by their headers. Raises ArrowInvalid for a damaged header, and TooLarge."""
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
    fields, after = _struct(data, at, end, {})
    unpacked, packed = _of(int, fields.get(_UNPACKED)), _of(int, fields.get(_PACKED))
    if min(unpacked, packed) < 0 or after + packed > end:
        raise ValueError
    for field, encoding in _DATA_HEADERS.items():
        header = fields.get(field)
        if isinstance(header, dict):
            count, encoded = _of(int, header.get(_COUNT)), _of(int, header.get(encoding))
            if count < 0:
                raise ValueError
            return Page(unpacked, packed, count, encoded), after
    return Page(unpacked, packed, 0, None), after


def _struct(data: bytes, at: int, end: int, lists: _Lists) -> tuple[_Struct, int]:
    """The structure at a position, and the position after it. Never reads at or past ``end``. Without
    ``lists``, it may have no list.

    Raises TooLarge for more than ``THRIFT_VALUES`` values, and ValueError, IndexError or FormatError for what
    is no structure, gives a field twice, or is nested deeper than any in Parquet.
    """
    reader = _Reader(data, at, end, lists)
    return reader.struct(()), reader.at


class _Reader:
    def __init__(self, data: bytes, at: int, end: int, lists: _Lists) -> None:
        self.data, self.at, self.end = data, at, end
        self.lists = lists
        self.values = 0

    def struct(self, path: _Path) -> _Struct:
        fields: _Struct = {}
        seen: set[int] = set()
        field = 0
        while (head := self._byte()) != _STOP:
            kind, step = head & 15, head >> 4
            field = field + step if step else self._signed()
            if field in seen or not 0 <= field <= _MAX_FIELD:
                raise ValueError
            seen.add(field)
            fields[field, kind] = self._value(kind, (*path, field))
        return fields

    def _value(self, kind: int, path: _Path) -> object:
        self.values += 1
        if self.values > limits.THRIFT_VALUES:
            raise limits.TooLarge(f"a structure in it has more than {limits.THRIFT_VALUES:,} values")
        if kind in (_I16, _I32, _I64):
            return self._signed()
        if kind in (_STRUCT, _LIST, _SET):
            if len(path) > _DEPTH:
                raise ValueError
            return self.struct(path) if kind == _STRUCT else self._list(path)
        if kind == _BINARY:
            size = self._unsigned()
            self.at += size
        elif kind in (_BYTE, _DOUBLE):
            self.at += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):
            raise ValueError
        return None

    def _list(self, path: _Path) -> list[object]:
        head = self._byte()
        kind, size = head & 15, head >> 4
        if size == _LONG_LIST:
            size = self._unsigned()
        if not self.lists or size > self.end - self.at or (size and self.lists.get(path, kind) != kind):
            raise ValueError
        if kind in (_TRUE, _FALSE):
            kind = _BYTE  # in a list, unlike in a structure, a truth value is a byte of its own
        inner = (*path, 0) if kind in (_LIST, _SET) else path
        return [self._value(kind, inner) for _ in range(size)]

    def _byte(self) -> int:
        if self.at >= self.end:
            raise ValueError
        self.at += 1
        return self.data[self.at - 1]

    def _unsigned(self) -> int:
        number, self.at = read_uvarint(self.data, self.at, self.end)
        return number

    def _signed(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)
