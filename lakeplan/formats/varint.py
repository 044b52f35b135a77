"""Variable-length integers of protobuf and SSTables (7 bits a byte, the lowest first)."""

from __future__ import annotations

from lakeplan.formats.damage import damaged

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
