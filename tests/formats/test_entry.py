from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats import wire
from lakeplan.formats.ranges import decode_entry, encode_entry, entry_key
from lakeplan.formats.wire import join_value, split_value
from lakeplan.values.repository import AddressType, Entry

# a record of a real server
IDENTITY = bytes.fromhex("6b4d857cc47cd38a4e1a2f02ead6fd4034817a00cb3356c4108b4f2aa6d8d49e")
ENTRY = Entry(
    path="shared/10",
    address="data/ft6vq71ksdu8jkn64tqg/dc0gjbhksdu8jkn65hg0",
    address_type=AddressType.RELATIVE,
    size=20,
    last_modified_us=1795230126_482230,
    e_tag="0efb371310f39d01e7ccad54f9c0fd72",
    content_type="application/octet-stream",
)
MESSAGE = (
    b"\n.data/ft6vq71ksdu8jkn64tqg/dc0gjbhksdu8jkn65hg0\x12\x0c\x08\xae\x93\x84\xd8\x06\x10\xf7\x83\xf9\xe5\x01"
    b'\x18\x14" 0efb371310f39d01e7ccad54f9c0fd720\x01:\x18application/octet-stream'
)


def it_reads_a_real_record() -> None:
    identity, message = split_value(b"\x40" + IDENTITY + b"\xfc\x01" + MESSAGE)
    assert identity == IDENTITY
    assert decode_entry(b"shared/10", message) == ENTRY


def it_writes_a_real_record_but_for_its_nanoseconds() -> None:
    identity, message = encode_entry(ENTRY)
    assert identity == IDENTITY
    assert message == MESSAGE.replace(
        b"\xf7\x83\xf9\xe5\x01", b"\xf0\xfd\xf8\xe5\x01"
    )  # 482230519 → 482230000


def it_passes_over_fields_of_later_versions() -> None:
    later = b"\x42\x03new" + MESSAGE + wire.field_int(99, 7)
    assert decode_entry(b"shared/10", later) == ENTRY


def it_gives_an_empty_message_its_defaults() -> None:
    assert decode_entry(b"p", b"") == Entry("p", "", AddressType.BY_PREFIX, 0)


@given(st.binary(min_size=1, max_size=8))
def it_keeps_paths_that_are_not_utf8(path: bytes) -> None:
    assert entry_key(decode_entry(path, MESSAGE)) == path


@pytest.mark.parametrize(
    "message",
    [
        wire.field_int(6, 3),
        wire.field_int(6, -1),
        b"\x0a\x01\xff",
        b"\x08\x01",
        MESSAGE[:-1],
    ],
)
def it_refuses_what_cannot_be_an_entry(message: bytes) -> None:
    with pytest.raises(FormatError):
        decode_entry(b"p", message)


def it_reads_a_negative_size_as_none() -> None:
    """Clients choose sizes. One such entry made the whole range unreadable."""
    assert decode_entry(b"p", wire.field_int(3, -5)).size == 0


@given(st.binary(max_size=300), st.binary(max_size=300))
def it_splits_what_it_joins(identity: bytes, message: bytes) -> None:
    assert split_value(join_value(identity, message)) == (identity, message)


@pytest.mark.parametrize(
    "value", [b"", b"\x02", b"\x01a\x00", b"\x02a", b"\x00\x04a", b"\x00\x00a", b"\x00\x03ab"]
)
def it_refuses_lengths_that_do_not_fit(value: bytes) -> None:
    with pytest.raises(FormatError):
        split_value(value)
