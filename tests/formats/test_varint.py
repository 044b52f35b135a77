from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats.wire import MAX_UINT64, read_uvarint, signed, unsigned, uvarint, zigzag


@given(st.integers(0, MAX_UINT64), st.binary(max_size=3))
def it_reads_what_it_writes(value: int, rest: bytes) -> None:
    data = uvarint(value)
    assert read_uvarint(data + rest, 0, len(data)) == (value, len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def it_keeps_negative_numbers(value: int) -> None:
    assert signed(unsigned(value)) == value


@pytest.mark.parametrize(
    ("value", "data"), [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (32, b"\x40"), (-65, b"\x81\1")]
)
def it_zigzags_as_go_does(value: int, data: bytes) -> None:
    assert zigzag(value) == data


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff", b"\x80" * 10 + b"\1", b"\xff" * 9 + b"\x02"])
def it_refuses_numbers_that_do_not_end_or_fit(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_uvarint(data, 0, len(data))


def it_never_reads_past_the_end_it_is_given() -> None:
    with pytest.raises(FormatError, match="past the end"):
        read_uvarint(b"\x80\x01", 0, 1)


@pytest.mark.parametrize("value", [-1, MAX_UINT64 + 1])
def it_refuses_to_write_what_does_not_fit(value: int) -> None:
    with pytest.raises(ValueError):
        uvarint(value)
