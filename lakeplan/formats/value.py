"""The value of a record: an identity and a protobuf message, each with a zigzag length in front.

Go's ``binary.Varint`` lengths; bytes after the message are ignored by the server, and here refused.
"""

from __future__ import annotations

from lakeplan.formats.damage import damaged
from lakeplan.formats.varint import read_uvarint, zigzag


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
