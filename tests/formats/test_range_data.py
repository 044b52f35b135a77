from __future__ import annotations

import pytest

from lakeplan.errors import FormatError
from lakeplan.formats import wire
from lakeplan.formats.ranges import decode_range, encode_range, is_file_id
from lakeplan.values.repository import RangeInfo

ID = "0f" * 32


def it_reads_what_it_writes() -> None:
    info = RangeInfo(ID, b"a", b"m\xff", 1 << 40, 7)
    assert decode_range(b"m\xff", ID.encode(), encode_range(info)) == info


def it_takes_bounds_that_are_missing_from_the_key() -> None:
    assert decode_range(b"k", ID.encode(), wire.field_int(4, 1)) == RangeInfo(ID, b"k", b"k", 0, 1)


@pytest.mark.parametrize(
    ("key", "identity", "message"),
    [
        (b"k", b"", b""),
        (b"k", ID.upper().encode(), b""),
        (b"k", ID.encode() + b"\n", b""),
        (b"k", ID.encode(), wire.field_bytes(2, b"other")),
        (b"k", ID.encode(), wire.field_bytes(1, b"l")),
        (b"k", ID.encode(), wire.field_int(4, -1)),
        (b"k", ID.encode(), b"\x0a\x05"),
    ],
)
def it_refuses_what_cannot_be_a_range(key: bytes, identity: bytes, message: bytes) -> None:
    with pytest.raises(FormatError):
        decode_range(key, identity, message)


def it_knows_an_id() -> None:
    assert is_file_id(ID)
    assert not any(map(is_file_id, ["", "dummy", ID[1:], ID + "0", ID[:-1] + "g", "é" * 64]))
