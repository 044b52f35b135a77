"""The protobuf ``RangeData``: one range in its metarange."""

from __future__ import annotations

import re

from lakeplan.formats import wire
from lakeplan.formats.damage import damaged
from lakeplan.model.objects import RangeInfo

_ID = re.compile(rb"[0-9a-f]{64}\Z")


def is_file_id(text: str) -> bool:
    """Whether this can be the id of a range or metarange: 64 hex digits, lower case."""
    return _ID.match(text.encode(errors="replace")) is not None


def decode_range(key: bytes, identity: bytes, message: bytes) -> RangeInfo:
    """A metarange's record. A missing ``min_key`` is the record's key, which is the range's greatest.

    Raises FormatError, unnamed, also when the key is not the range's own greatest key.
    """
    if not _ID.match(identity):
        raise damaged("a range has an identity that is no id")
    min_key, max_key = key, key
    estimated_size = count = 0
    for number, value in wire.read_fields(message):
        match number:
            case 1:
                min_key = wire.as_bytes(value)
            case 2:
                max_key = wire.as_bytes(value)
            case 3:
                estimated_size = wire.as_int(value)
            case 4:
                count = wire.as_int64(value)
            case _:
                pass
    if max_key != key or min_key > max_key or count < 0:
        raise damaged("a range's bounds or count are impossible")
    return RangeInfo(identity.decode(), min_key, max_key, estimated_size, count)


def encode_range(info: RangeInfo) -> bytes:
    """The message of a range's record; the key is ``info.max_key``, the identity ``info.id`` as ASCII."""
    return b"".join(
        (
            wire.field_bytes(1, info.min_key) if info.min_key else b"",
            wire.field_bytes(2, info.max_key) if info.max_key else b"",
            wire.field_int(3, info.estimated_size),
            wire.field_int(4, info.count),
        )
    )
