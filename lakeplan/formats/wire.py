"""The protobuf wire format, as much of it as lakeFS messages need. Skipping fields is the caller's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lakeplan import limits
from lakeplan.formats.damage import damaged
from lakeplan.formats.varint import read_uvarint, signed, unsigned, uvarint

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_LAST_SECOND = 253402300799
"""The end of the year 9999."""
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) in the order of the message: an int for varints, bytes for everything else.

    Raises FormatError for what is no protobuf (groups, which proto3 has not, among it).
    """
    position, end = 0, len(data)
    fields = 0
    while position < end:
        fields += 1
        if fields > limits.MESSAGE_FIELDS:
            raise damaged(f"a protobuf message has more than {limits.MESSAGE_FIELDS:,} fields")
        tag = data[position]
        position += 1
        if tag >= 0x80:
            tag, position = read_uvarint(data, position - 1, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise damaged("a protobuf field has the number 0")
        if kind == VARINT:
            value, position = read_uvarint(data, position, end)
            yield number, value
            continue
        if kind == LENGTH:
            size, position = read_uvarint(data, position, end)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise damaged(f"a protobuf field has the wire type {kind}")
        if position + size > end:
            raise damaged("a protobuf field runs past its message")
        yield number, data[position : position + size]
        position += size


def as_int(value: int | bytes) -> int:
    """A varint field. Raises FormatError when the field is of another type."""
    if isinstance(value, bytes):
        raise damaged("a protobuf field that must be a number is none")
    return value


def as_int64(value: int | bytes) -> int:
    return signed(as_int(value))


def as_int32(value: int | bytes) -> int:
    """Takes the lowest 32 bits, as protobuf does."""
    number = as_int(value) & 0xFFFFFFFF
    return number - 2**32 if number >= 2**31 else number


def as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise damaged("a protobuf field that must be text or bytes is a number")
    return value


def as_text(value: int | bytes) -> str:
    try:
        return as_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise damaged("a protobuf text is not UTF-8") from error


def as_pair(value: int | bytes) -> tuple[bytes, int | bytes | None]:
    """One item of a map: its key's bytes, and its value (None when it has the default)."""
    key, item = b"", None
    for number, part in read_fields(as_bytes(value)):
        if number == 1:
            key = as_bytes(part)
        elif number == 2:
            item = part
    return key, item


def as_text_pair(value: int | bytes) -> tuple[str, str]:
    key, item = as_pair(value)
    return as_text(key), "" if item is None else as_text(item)


def timestamp_us(message: bytes) -> int:
    """``google.protobuf.Timestamp`` as UTC microseconds; what is finer is cut off."""
    seconds = nanos = 0
    for number, value in read_fields(message):
        if number == 1:
            seconds = as_int64(value)
        elif number == 2:
            nanos = as_int32(value)
    if not -_LAST_SECOND <= seconds <= _LAST_SECOND:
        raise damaged("a time is no time of the calendar")
    if not 0 <= nanos < 10**9:
        raise damaged("a time has more than a second of nanoseconds")
    return seconds * 1_000_000 + nanos // 1000


def field_int(number: int, value: int, *, explicit: bool = False) -> bytes:
    """A varint field; nothing for 0, as proto3 writes it, unless ``explicit``."""
    if value == 0 and not explicit:
        return b""
    return uvarint(number << 3 | VARINT) + uvarint(unsigned(value))


def field_bytes(number: int, value: bytes) -> bytes:
    """A length-delimited field, empty values included."""
    return uvarint(number << 3 | LENGTH) + uvarint(len(value)) + value


def field_text(number: int, value: str) -> bytes:
    """A string field; nothing for "", as proto3 writes it."""
    return field_bytes(number, value.encode()) if value else b""


def field_texts(number: int, values: Iterable[str]) -> bytes:
    return b"".join(field_bytes(number, value.encode()) for value in values)


def field_text_map(number: int, values: Mapping[str, str] | Iterable[tuple[str, str]]) -> bytes:
    """A map<string, string> in the order of its keys' bytes; items always have both fields, as Go writes."""
    items = dict(values)
    return b"".join(
        field_bytes(number, field_bytes(1, key.encode()) + field_bytes(2, items[key].encode()))
        for key in sorted(items, key=str.encode)
    )


def field_timestamp(number: int, us: int) -> bytes:
    """Microseconds as a Timestamp; nothing for 0."""
    if us == 0:
        return b""
    seconds, rest = divmod(us, 1_000_000)
    return field_bytes(number, field_int(1, seconds) + field_int(2, rest * 1000))
