from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.formats.collector import write_gc_rules
from lakeplan.values.rules import GcRules

REAL = (
    b"\x08\x15\x12\x08\n\x04main\x10\x1c\x12\x10\n\x03dev\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    b"\x12\x08\n\x04zero\x10\x00"
)
"""A real server's file, byte for byte. Go writes a map in any order: that of the entries says nothing."""

DAYS = st.integers(-(2**31), 2**31 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def varint(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    for position, byte in enumerate(data, start=1):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, data[position:]
    raise AssertionError("the number does not end")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message by the protobuf specification: numbers, and texts with their length."""
    while data:
        tag, data = varint(data)
        value, data = varint(data)
        if tag & 7 == 2:
            assert value <= len(data)
            yield tag >> 3, data[:value]
            data = data[value:]
        else:
            assert tag & 7 == 0
            yield tag >> 3, value - 2**64 if value >= 2**63 else value


def read(data: bytes) -> tuple[int, dict[str, int]]:
    """Default and branches as any reader of protobuf takes them: what is left out is zero."""
    default, branches = 0, {}
    for number, value in fields(data):
        if number == 1:
            assert isinstance(value, int)
            default = value
        else:
            assert number == 2
            assert isinstance(value, bytes)
            entry = dict(fields(value))
            name, days = entry.pop(1, b""), entry.pop(2, 0)
            assert isinstance(name, bytes)
            assert isinstance(days, int)
            assert not entry
            branches[name.decode()] = days
    return default, branches


def it_writes_the_fields_of_a_real_servers_file_nonsense_included() -> None:
    assert read(REAL) == (21, {"main": 28, "dev": -1, "zero": 0})
    written = write_gc_rules(GcRules(*read(REAL)))
    assert sorted(fields(written), key=repr) == sorted(fields(REAL), key=repr)
    assert len(written) == len(REAL)


@given(DAYS, st.dictionaries(NAMES, DAYS, max_size=4))
def it_writes_what_any_reader_of_protobuf_takes_for_the_same_rules(
    default: int, branches: dict[str, int]
) -> None:
    assert read(write_gc_rules(GcRules(default, branches))) == (default, branches)


def it_writes_an_empty_file_for_no_rules_only() -> None:
    assert write_gc_rules(None) == b""
    assert write_gc_rules(GcRules(0, {})) == b"\x08\x00"
