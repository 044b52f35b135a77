"""Protobuf and varints, bounded, and how decoders speak of damage: small parts raise without a name, the
outermost one adds the file's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.values.rules import GcRules

HINT = "The file is damaged or is not a lakeFS file; nothing was taken from it."


def damaged(message: str) -> FormatError:
    """A FormatError that does not know its file yet; ``blame`` adds the name."""
    return FormatError(message, hint=HINT)


LIMIT_HINT = "See docs/limits.md. Nothing was taken from the file."


@contextmanager
def blame(name: str) -> Iterator[None]:
    """Names the file in every FormatError raised inside, and turns a read past the end of a buffer
    (IndexError) or bytes that are not UTF-8 into one."""
    try:
        yield
    except FormatError as error:
        raise error.replaced(where=error.where or name) from error
    except IndexError as error:
        raise FormatError("ends in the middle of a value", where=name, hint=HINT) from error
    except UnicodeDecodeError as error:
        raise FormatError("text that is not UTF-8", where=name, hint=HINT, detail=str(error)) from error


MAX_UINT64 = 2**64 - 1


def read_uvarint(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    """The unsigned number at ``position`` and the position after it. Never reads at or past ``end``.

    Raises FormatError for a number that runs past ``end`` or does not fit 64 bits.
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
    """Encodes 0 … 2⁶⁴-1."""
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
    """A protobuf int32 or int64 as it was meant: negative ones travel as their 64-bit complement."""
    return value - 2**64 if value >= 2**63 else value


def unsigned(value: int) -> int:
    """The opposite of ``signed``, for -2⁶³ … 2⁶³-1."""
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} is not a 64-bit number")
    return value % 2**64


def zigzag(value: int) -> bytes:
    """Go's ``binary.PutVarint``: 0, -1, 1, -2 … as 0, 1, 2, 3 …"""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def split_value(value: bytes) -> tuple[bytes, bytes]:
    """(identity, message). Raises FormatError when the lengths do not fit."""
    end = len(value)
    length, position = read_uvarint(value, 0, end)
    middle = position + (length >> 1)
    if length & 1 or middle > end:
        raise damaged("the identity of a record does not fit in its value")
    size, start = read_uvarint(value, middle, end)
    if size & 1 or start + (size >> 1) != end:
        raise damaged("the message of a record does not fit in its value")
    return value[position:middle], value[start:]


def join_value(identity: bytes, message: bytes) -> bytes:
    return zigzag(len(identity)) + identity + zigzag(len(message)) + message


VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
LAST_SECOND = 253402300799
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


def as_text_pair(value: int | bytes) -> tuple[str, str]:
    """One item of a map<string, string>; what it lacks is ""."""
    key: int | bytes = b""
    item: int | bytes = b""
    for number, part in read_fields(as_bytes(value)):
        if number == 1:
            key = as_bytes(part)
        elif number == 2:
            item = part
    return as_text(key), as_text(item)


def timestamp_us(message: bytes) -> int:
    """``google.protobuf.Timestamp`` as UTC microseconds; what is finer is cut off."""
    seconds = nanos = 0
    for number, value in read_fields(message):
        if number == 1:
            seconds = as_int64(value)
        elif number == 2:
            nanos = as_int32(value)
    if not -LAST_SECOND <= seconds <= LAST_SECOND:
        raise damaged("a timestamp is outside the calendar")
    if not 0 <= nanos < 10**9:
        raise damaged("a time has more than 999,999,999 nanoseconds")
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


def write_gc_rules(rules: GcRules | None) -> bytes:
    """The file of ``rules``; the empty file for None. Rules that hold only zeros are written as an explicit
    zero, which protobuf allows: an empty file would mean no rules."""
    if rules is None:
        return b""
    body = field_int(1, rules.default_retention_days) + b"".join(
        field_bytes(2, field_bytes(1, branch.encode()) + field_int(2, days, explicit=True))
        for branch, days in rules.branches.items()
    )
    return body or field_int(1, 0, explicit=True)
