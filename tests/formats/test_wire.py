from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats import wire
from lakeplan.values import records


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",  # longer than the message
        b"\x0b",  # a group
        b"\x0f",  # wire type 7
        b"\x00\x00",  # field 0
        b"\x09\x01\x02",  # 64 bits cut short
        b"\x08",  # no value
    ],
)
def it_refuses_what_is_no_protobuf(data: bytes) -> None:
    with pytest.raises(FormatError):
        list(wire.read_fields(data))


def it_gives_fields_it_does_not_know() -> None:
    data = b"\x08\x96\x01" + b"\x11" + bytes(8) + b"\x1a\x01x" + b"\x25" + bytes(4)
    assert list(wire.read_fields(data)) == [(1, 150), (2, bytes(8)), (3, b"x"), (4, bytes(4))]


@given(st.binary(max_size=60))
def it_fails_with_format_errors_only(data: bytes) -> None:
    try:
        rebuilt = list(wire.read_fields(data))
    except FormatError:
        return
    assert all(number > 0 for number, _ in rebuilt)


@given(st.integers(-(2**31), 2**31 - 1))
def it_keeps_negative_int32(value: int) -> None:
    [(_, read)] = wire.read_fields(wire.field_int(1, value, explicit=True))
    assert wire.as_int32(read) == value


@given(st.integers(-(2**50), 2**50))
def it_keeps_times_before_and_after_1970(us: int) -> None:
    fields = list(wire.read_fields(wire.field_timestamp(4, us)))
    assert wire.timestamp_us(b"".join(wire.as_bytes(v) for _, v in fields)) == us


def it_cuts_times_to_microseconds() -> None:
    assert wire.timestamp_us(wire.field_int(1, 7) + wire.field_int(2, 1999)) == 7_000_001


@pytest.mark.parametrize("nanos", [-1, 10**9])
def it_refuses_impossible_nanoseconds(nanos: int) -> None:
    with pytest.raises(FormatError, match="nanoseconds"):
        wire.timestamp_us(wire.field_int(2, nanos))


def it_refuses_a_field_of_another_type() -> None:
    for read, value in ((wire.as_int, b"x"), (wire.as_bytes, 1), (wire.as_text, b"\xff")):
        with pytest.raises(FormatError):
            read(value)  # type: ignore[operator]


def it_sorts_maps_by_their_keys_bytes() -> None:
    assert wire.field_text_map(5, {"b": "", "a": "x"}) == b"\x2a\x06\n\x01a\x12\x01x\x2a\x05\n\x01b\x12\x00"


MILLISECONDS = 1_795_837_059_571
"""A date that a client gave in milliseconds. Servers store it."""


@pytest.mark.parametrize(
    ("seconds", "read"),
    [
        (records.LAST_SECOND, records.LAST_SECOND),
        (records.LAST_SECOND + 1, records.LAST_SECOND),
        (MILLISECONDS, records.LAST_SECOND),
        (-MILLISECONDS, -records.LAST_SECOND),
        (MILLISECONDS * 1_000_000, MILLISECONDS * 1_000_000),  # it overflows in servers: nobody may use it
        (-MILLISECONDS * 1_000_000, -MILLISECONDS * 1_000_000),
    ],
)
def it_reads_the_nearest_time_of_the_calendar(seconds: int, read: int) -> None:
    assert wire.timestamp_us(wire.field_int(1, seconds)) == read * 1_000_000
