"""Reads the footer of Parquet files, and any structure of Thrift's compact protocol in them.

pyarrow ends the process when it is asked for a damaged column of a row group, and makes room for whatever a
footer promises. These readers raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.wire import read_uvarint

_, _TRUE, _FALSE, _BYTE, _I16, I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _, STRUCT = range(13)
_LONG_LIST = 15
_DEPTH = 10
_MAX_FIELD = 2**15 - 1
_LIMITS = {_I16: 2**15, I32: 2**31, _I64: 2**63}
_SIZES = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}
_T = TypeVar("_T")
FOOTER_END = 8
"""The footer's length in 4 bytes, and the magic number, end a file."""
_GROUPS, _COLUMNS, _ROWS = (4, _LIST), (1, _LIST), (3, _I64)
_METADATA, _ENCRYPTION = (3, STRUCT), (8, STRUCT)
_VALUES, _SIZE, _PACKED_SIZE, _DATA_OFFSET, _DICTIONARY_OFFSET = ((id, _I64) for id in (5, 6, 7, 9, 11))

Struct = dict[tuple[int, int], object]
"""Values by field and type, because readers of the protocol ignore a field that has another type than they
expect. Only numbers, and what ``known`` has, have a value other than None."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column of a row group. Its pages are the bytes from ``start`` to ``end``."""

    values: int
    unpacked: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Group:
    rows: int
    chunks: list[Chunk]


def footer_size(data: bytes) -> int:
    """The bytes of the footer, as the end of the file states them."""
    return int.from_bytes(data[-FOOTER_END:-4], "little")


def read_groups(data: bytes) -> list[Group]:
    """All row groups by the footer. Raises ArrowInvalid for a damaged footer, and TooLarge."""
    end = len(data) - FOOTER_END
    start = end - footer_size(data)
    try:
        footer, _ = read_struct(data, start, end, _FOOTER)
        groups = [of_type(Group, group) for group in of_type(list, footer[_GROUPS])]
        if start < 0 or any(chunk.end > start for group in groups for chunk in group.chunks):
            raise ValueError
        return groups
    except limits.TooLarge:
        raise
    except (IndexError, KeyError, ValueError, FormatError):
        raise pa.ArrowInvalid("the footer is damaged") from None


def _group(fields: Struct) -> Group:
    return Group(of_type(int, fields[_ROWS]), of_type(list, fields[_COLUMNS]))


def _chunk(column: Struct) -> Chunk:
    fields = of_type(dict, column[_METADATA])
    values, unpacked, packed = (of_type(int, fields[each]) for each in (_VALUES, _SIZE, _PACKED_SIZE))
    start = of_type(int, fields[_DATA_OFFSET])
    dictionary = of_type(int, fields.get(_DICTIONARY_OFFSET, 0))
    if 0 < dictionary < start:
        start = dictionary
    if _ENCRYPTION in column or min(values, unpacked, packed, start) < 0:
        raise ValueError
    return Chunk(values, unpacked, start, start + packed)


def of_type(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        raise ValueError
    return value


@dataclass(frozen=True)
class Known:
    """Fields of a structure, or of the structures in a list, that are structures or lists themselves and that
    pyarrow knows.

    ``items`` is the type of a list's items. pyarrow reads items of these types whatever type a list gives, so
    a list of another type would make the two read different fields. ``make`` makes a value of an item, and
    counts it, because pyarrow needs much memory for each.
    """

    fields: Mapping[int, Known] = field(default_factory=dict)
    items: int = 0
    make: Callable[[Struct], object] | None = None


_NUMBERS, _LONG_NUMBERS, _TEXTS, _STRUCTS = (Known(items=kind) for kind in (I32, _I64, _BINARY, STRUCT))
_COLUMN = Known(
    {
        2: _NUMBERS,
        3: _TEXTS,
        8: _STRUCTS,
        13: _STRUCTS,
        16: Known({2: _LONG_NUMBERS, 3: _LONG_NUMBERS}),
        17: Known({2: _NUMBERS}),
    }
)
_CHUNKS = Known({3: _COLUMN, 8: Known({2: Known({1: _TEXTS})})}, STRUCT, _chunk)
_FOOTER = Known(
    {
        2: Known(items=STRUCT, make=bool),
        4: Known({1: _CHUNKS, 4: _STRUCTS}, STRUCT, _group),
        5: _STRUCTS,
        7: _STRUCTS,
    }
)


def read_struct(data: bytes, at: int, end: int, known: Known) -> tuple[Struct, int]:
    """The structure at a position, and the position after it, which is at most ``end``.

    Raises TooLarge for more than the limits, and ValueError, IndexError or FormatError for what is no
    structure, has a known one with a field twice, is nested deeper than any in Parquet, or is the header of a
    page with a list.
    """
    reader = _Reader(data, at, known is _FOOTER)
    fields = reader.struct(known, 0)
    if reader.at > end:
        raise ValueError
    return fields, reader.at


class _Reader:
    def __init__(self, data: bytes, at: int, is_footer: bool) -> None:
        self.data, self.at, self.is_footer = data, at, is_footer
        self.most = limits.THRIFT_VALUES if is_footer else limits.PAGE_HEADER_VALUES
        self.values = self.made = 0

    def struct(self, known: Known, depth: int) -> Struct:
        fields: Struct = {}
        seen: set[int] = set()
        number = 0
        while head := self.data[self.at]:
            self.at += 1
            kind, step = head & 15, head >> 4
            number = number + step if step else self._number(_I16)
            if number in seen or not 0 <= number <= _MAX_FIELD:
                raise ValueError
            seen.add(number)
            if kind in _LIMITS:
                fields[number, kind] = self._number(kind)
            else:
                fields[number, kind] = self._value(kind, known.fields.get(number), depth + 1)
        self.at += 1
        self._count(len(fields))
        return fields

    def _value(self, kind: int, known: Known | None, depth: int) -> object:
        if known and kind == (_LIST if known.items else STRUCT):
            return self._list(known, depth) if known.items else self.struct(known, depth)
        self.at = self._skip(kind, self.at, depth)
        return None

    def _number(self, kind: int) -> int:
        number = self.data[self.at]
        if number < 128:
            self.at += 1
        else:
            number, self.at = read_uvarint(self.data, self.at, len(self.data))
        number = (number >> 1) ^ -(number & 1)
        if not -_LIMITS[kind] <= number < _LIMITS[kind]:
            raise ValueError  # pyarrow would drop the bits beyond
        return number

    def _list(self, known: Known, depth: int) -> list[object]:
        kind, size, self.at = self._list_head(self.at)
        if size and kind != known.items:
            raise ValueError
        if known.make is not None:
            self.made += size
            if self.made > limits.PARQUET_CHUNKS:
                most = f"{limits.PARQUET_CHUNKS:,}"
                raise limits.TooLarge(f"it has more than {most} row groups, columns and schema elements")
            return [known.make(self.struct(known, depth)) for _ in range(size)]
        for _ in range(size):
            self.at = self._skip(kind, self.at, depth)
        return []

    def _list_head(self, at: int) -> tuple[int, int, int]:
        """The type and number of a list's items, and where these begin."""
        kind, size = self.data[at] & 15, self.data[at] >> 4
        at += 1
        if size == _LONG_LIST:
            size, at = read_uvarint(self.data, at, len(self.data))
        if not self.is_footer or size > len(self.data) - at:
            raise ValueError
        self._count(size)
        return kind, size, at

    def _count(self, values: int) -> None:
        self.values += values
        if self.values > self.most:
            raise limits.TooLarge(f"a structure in its metadata has more than {self.most:,} values")

    def _skip(self, kind: int, at: int, depth: int) -> int:
        """The position after the value at a position."""
        if kind in _LIMITS:
            return at + 1 if self.data[at] < 128 else read_uvarint(self.data, at, len(self.data))[1]
        if kind == _BINARY:
            size, at = read_uvarint(self.data, at, len(self.data))
            return at + size
        if kind in _SIZES:
            return at + _SIZES[kind]
        if depth > _DEPTH or kind not in (STRUCT, _LIST, _SET):
            raise ValueError
        return self._skip_struct(at, depth) if kind == STRUCT else self._skip_list(at, depth)

    def _skip_struct(self, at: int, depth: int) -> int:
        values = 0
        while head := self.data[at]:
            at = self._skip(head & 15, at + 1 if head > 15 else self._skip(_I16, at + 1, depth), depth + 1)
            values += 1
            if values > self.most:
                break
        self._count(values)
        return at + 1

    def _skip_list(self, at: int, depth: int) -> int:
        kind, size, at = self._list_head(at)
        if kind in (_TRUE, _FALSE):
            kind = _BYTE  # in a list, unlike in a structure, a truth value is a byte of its own
        for _ in range(size):
            at = self._skip(kind, at, depth + 1)
        return at
