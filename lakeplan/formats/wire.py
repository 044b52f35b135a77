"""Reads and writes protobuf and varints within limits. Decoders raise FormatError without a file name, which
the caller adds with ``blame``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.values.records import nearest_us

HINT = "Check the file. It is damaged, or it is not a lakeFS file. Nothing in it was used."


def damaged(message: str) -> FormatError:
    """A FormatError without a file name, which ``blame`` adds."""
    return FormatError(message, hint=HINT)


LIMIT_HINT = "See docs/limits.md for the limits. Nothing in the file was used."


@contextmanager
def blame(name: str) -> Iterator[None]:
    """Adds the file's name to every FormatError raised inside. Reads past the end of a buffer (IndexError)
    and bytes that are not UTF-8 also become a FormatError."""
    try:
        yield
    except FormatError as error:
        raise error.replaced(where=error.where or name) from error
    except IndexError as error:
        raise FormatError("the file ends in the middle of a value", where=name, hint=HINT) from error
    except UnicodeDecodeError as error:
        raise FormatError(
            "the file contains text that is not UTF-8", where=name, hint=HINT, detail=str(error)
        ) from error


MAX_UINT64 = 2**64 - 1


def read_uvarint(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    """The unsigned number at ``position`` and the position after it. Never reads at or past ``end``.

    Raises FormatError for a number that runs past ``end`` or does not fit into 64 bits.
    """
    if position >= end:
        raise damaged("a number runs past the end of its block")
    value = buffer[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    shift = 7
    while True:
        if position >= end:
            raise damaged("a number runs past the end of its block")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise damaged("a number is longer than 64 bits")
    if value > MAX_UINT64:
        raise damaged("a number is longer than 64 bits")
    return value, position


def uvarint(value: int) -> bytes:
    """The varint of a number from 0 to 2⁶⁴-1."""
    if not 0 <= value <= MAX_UINT64:
        raise ValueError(f"{value} is not an unsigned 64-bit number")
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value: int) -> int:
    """The signed value of a protobuf int32 or int64: negative numbers are 64-bit complements."""
    return value - 2**64 if value >= 2**63 else value


def unsigned(value: int) -> int:
    """The 64-bit complement of a number from -2⁶³ to 2⁶³-1: the inverse of ``signed``."""
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} is not a 64-bit number")
    return value % 2**64


def zigzag(value: int) -> bytes:
    """The varint that Go's ``binary.PutVarint`` writes: 0, -1, 1, -2 … as 0, 1, 2, 3 …"""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def split_value(value: bytes) -> tuple[bytes, bytes]:
    """The (identity, message) of a record's value. Raises FormatError if the lengths do not fit."""
    end = len(value)
    length, position = read_uvarint(value, 0, end)
    middle = position + (length >> 1)
    if length & 1 or middle > end:
        raise damaged("the identity of a record extends beyond the record")
    size, start = read_uvarint(value, middle, end)
    if size & 1 or start + (size >> 1) != end:
        raise damaged("the message of a record extends beyond the record")
    return value[position:middle], value[start:]


def join_value(identity: bytes, message: bytes) -> bytes:
    return zigzag(len(identity)) + identity + zigzag(len(message)) + message


VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (field number, value) in order: an int for a varint, bytes for any other type.

    Raises FormatError for anything but protobuf. That includes groups, which proto3 does not have.
    """
    position, end, fields = 0, len(data), 0
    while position < end:
        fields += 1
        if fields > limits.MESSAGE_FIELDS:
            raise damaged(f"a protobuf message exceeds the limit of {limits.MESSAGE_FIELDS:,} fields")
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
            raise damaged(f"a protobuf field has the unsupported wire type {kind}")
        if position + size > end:
            raise damaged("a protobuf field runs past the end of its message")
        yield number, data[position : position + size]
        position += size


def as_int(value: int | bytes) -> int:
    """The number in a varint field. Raises FormatError if the field has another type."""
    if isinstance(value, bytes):
        raise damaged("a protobuf field must be a number, but has another type")
    return value


def as_int64(value: int | bytes) -> int:
    return signed(as_int(value))


def as_int32(value: int | bytes) -> int:
    """The lowest 32 bits of a varint field as a signed number, as protobuf reads an int32."""
    number = as_int(value) & 0xFFFFFFFF
    return number - 2**32 if number >= 2**31 else number


def as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise damaged("a protobuf field must be text or bytes, but is a number")
    return value


def as_text(value: int | bytes) -> str:
    try:
        return as_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise damaged("a protobuf text is not UTF-8") from error


def as_text_pair(value: int | bytes) -> tuple[str, str]:
    """The (key, value) of one item of a map<string, string>. A missing part is ""."""
    key: int | bytes = b""
    item: int | bytes = b""
    for number, part in read_fields(as_bytes(value)):
        if number == 1:
            key = as_bytes(part)
        elif number == 2:
            item = part
    return as_text(key), as_text(item)


def timestamp_us(message: bytes) -> int:
    """A ``google.protobuf.Timestamp`` as UTC microseconds, rounded down, as ``nearest_us`` changes it."""
    seconds = nanos = 0
    for number, value in read_fields(message):
        if number == 1:
            seconds = as_int64(value)
        elif number == 2:
            nanos = as_int32(value)
    if not 0 <= nanos < 10**9:
        raise damaged("a time has more than 999,999,999 nanoseconds")
    return nearest_us(seconds * 1_000_000 + nanos // 1000)


def field_int(number: int, value: int, *, explicit: bool = False) -> bytes:
    """A varint field, or b"" for 0 (which proto3 omits) unless ``explicit``."""
    if value == 0 and not explicit:
        return b""
    return uvarint(number << 3 | VARINT) + uvarint(unsigned(value))


def field_bytes(number: int, value: bytes) -> bytes:
    """A length-delimited field, even for an empty value."""
    return uvarint(number << 3 | LENGTH) + uvarint(len(value)) + value


def field_text(number: int, value: str) -> bytes:
    """A string field, or b"" for "", which proto3 omits."""
    return field_bytes(number, value.encode()) if value else b""


def field_texts(number: int, values: Iterable[str]) -> bytes:
    return b"".join(field_bytes(number, value.encode()) for value in values)


def field_text_map(number: int, values: Mapping[str, str] | Iterable[tuple[str, str]]) -> bytes:
    """A map<string, string> in the order of its keys' bytes. Items have both fields, as in Go."""
    items = dict(values)
    return b"".join(
        field_bytes(number, field_bytes(1, key.encode()) + field_bytes(2, items[key].encode()))
        for key in sorted(items, key=str.encode)
    )


def field_timestamp(number: int, us: int) -> bytes:
    """A Timestamp field of UTC microseconds, or b"" for 0."""
    if us == 0:
        return b""
    seconds, rest = divmod(us, 1_000_000)
    return field_bytes(number, field_int(1, seconds) + field_int(2, rest * 1000))
