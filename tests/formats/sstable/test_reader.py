from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats.sstable import read_sstable, write_sstable
from lakeplan.formats.sstable.block import BlockBuilder
from lakeplan.formats.sstable.checksum import masked_crc32c
from lakeplan.formats.sstable.layout import FOOTER_SIZE, Handle
from lakeplan.formats.sstable.writer import _footer

RECORDS = [(f"key-{i:04}".encode(), f"value {i}".encode() * 3) for i in range(400)]
GOOD = write_sstable(RECORDS, user_properties={"type": "ranges"}).data
SET = b"\x01" + bytes(7)


def table(
    entries: list[tuple[bytes, bytes]], *, count: bytes | None = None, kind: int = 0, raw: bytes | None = None
) -> bytes:
    """A table of one data block, with correct checksums around whatever stands in it."""
    data = b""

    def put(block: bytes, compression: int = 0) -> Handle:
        nonlocal data
        handle = Handle(len(data), len(block))
        body = block + bytes((compression,))
        data += body + masked_crc32c(body).to_bytes(4, "little")
        return handle

    def block(items: list[tuple[bytes, bytes]]) -> bytes:
        builder = BlockBuilder(16)
        for key, value in items:
            builder.add(key, value)
        return builder.finish()

    place = put(block(entries) if raw is None else raw, kind)
    index = put(block([(b"z" + SET, place.encode())]))
    number = str(len(entries)).encode() if count is None else count
    properties = put(block([(b"count", number), (b"type", b"ranges")]))
    meta = put(block([(b"rocksdb.properties", properties.encode())]))
    return data + _footer(meta, index)


def it_reads_what_was_written() -> None:
    read = read_sstable(GOOD, name="good")
    assert list(read) == RECORDS
    assert len(read) == len(RECORDS)
    assert read.user_properties == {"type": "ranges"}


def it_reads_a_hand_made_table() -> None:
    assert list(read_sstable(table([(b"a" + SET, b"1"), (b"b" + SET, b"")]), name="x")) == [
        (b"a", b"1"),
        (b"b", b""),
    ]


class DescribeDamage:
    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"", "too few"),
            (GOOD[:-1], "magic"),
            (GOOD[1:], "checksum|outside"),
            (GOOD[:-8] + bytes(8), "magic"),
            (GOOD[:-12] + b"\x03\0\0\0" + GOOD[-8:], "version 3"),
            (GOOD[:-FOOTER_SIZE] + b"\x02" + GOOD[1 - FOOTER_SIZE :], "checksum type 2"),
            (GOOD[:10] + bytes((GOOD[10] ^ 1,)) + GOOD[11:], "checksum of the block at 0 "),
            (GOOD[:-FOOTER_SIZE] + _footer(Handle(2**40, 5), Handle(0, 5)), "outside the file"),
            (GOOD[:-FOOTER_SIZE] + _footer(Handle(0, 5), Handle(0, 5))[:20] + GOOD[-33:], "zeros|checksum"),
            (table([(b"b" + SET, b""), (b"a" + SET, b"")]), "out of order"),
            (table([(b"a" + SET, b"1"), (b"a" + SET, b"2")]), "out of order"),
            (table([(b"a" + SET, b"")], count=b"2"), "holds 1 records, and its properties say 2"),
            (table([(b"a" + SET, b"")], count=b"-1"), "count"),
            (table([(b"a" + bytes(8), b"")]), "kind 0"),
            (table([(b"short", b"")]), "too short"),
            (table([], kind=1, raw=b"\xff\xff\xff\xff\xff snappy it is not"), "does not decompress"),
            (table([], kind=1, raw=b"\xff\xff\xff\xff\x0f"), "more bytes than snappy can hold"),
            (table([], kind=7, raw=bytes(8)), "unknown compression 7"),
            (table([], raw=b"abc"), "too short"),
            (table([], raw=bytes(8)), "restart points"),
            (table([], raw=struct.pack("<2I", 0, 9)), "restart points"),
            (table([], raw=struct.pack("<3I", 4, 0, 2)), "restart points"),
            (table([], raw=b"\x00\xff\xff" + struct.pack("<2I", 0, 1)), "past the end"),
            (table([], raw=b"\x00\x7f\x00a" + struct.pack("<2I", 0, 1)), "past the end of its block"),
            (table([], raw=b"\x05\x01\x00a" + struct.pack("<2I", 0, 1)), "restart point"),
            (table([], raw=b"\x00" + b"\xff" * 10 + b"\x01" + struct.pack("<2I", 0, 1)), "64 bits"),
        ],
    )
    def it_is_named_and_refused(self, data: bytes, words: str) -> None:
        with pytest.raises(FormatError, match=words) as caught:
            read_sstable(data, name="_lakefs/abc")
        assert caught.value.where == "_lakefs/abc"

    def it_refuses_an_entry_that_leans_on_more_than_there_is(self) -> None:
        raw = b"\x00\x09\x00a" + SET + b"\x0f\x01\x00b" + struct.pack("<2I", 0, 1)
        with pytest.raises(FormatError, match="shares more"):
            read_sstable(table([], raw=raw, count=b"2"), name="x")

    @given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(1, 255)), min_size=1, max_size=4))
    def it_never_gives_other_records_for_flipped_bytes(self, flips: list[tuple[int, int]]) -> None:
        damaged = bytearray(GOOD)
        for position, mask in flips:
            damaged[position] ^= mask
        self._same_or_refused(bytes(damaged))

    @given(st.integers(0, len(GOOD)), st.integers(0, 80))
    def it_never_gives_other_records_for_missing_bytes(self, position: int, size: int) -> None:
        self._same_or_refused(GOOD[:position] + GOOD[position + size :])

    @given(st.binary(max_size=200), st.sampled_from([0, 1]))
    def it_never_fails_otherwise_on_a_block_of_anything(self, raw: bytes, kind: int) -> None:
        with pytest.raises(FormatError):
            read_sstable(table([], raw=raw, kind=kind, count=b"77"), name="x")

    @staticmethod
    def _same_or_refused(data: bytes) -> None:
        try:
            read = read_sstable(data, name="x")
        except FormatError:
            return
        assert list(read) == RECORDS
