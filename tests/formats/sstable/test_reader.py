from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.sstable import _footer, open_blocks, read_sstable, write_sstable
from lakeplan.formats.sstable_blocks import FOOTER_SIZE, BlockBuilder, Handle, masked_crc32c

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


class File:
    """A file put together block by block, none compressed, with correct checksums and a footer."""

    def __init__(self) -> None:
        self.data = b""

    def put(self, items: list[tuple[bytes, bytes]], gap: int = 0) -> Handle:
        builder = BlockBuilder(16)
        for key, value in items:
            builder.add(key, value)
        body = builder.finish()
        self.data += bytes(gap)
        handle = Handle(len(self.data), len(body))
        body += b"\0"
        self.data += body + masked_crc32c(body).to_bytes(4, "little")
        return handle

    def index(self, *handles: Handle) -> Handle:
        return self.put([(b"%04d" % n + SET, handle.encode()) for n, handle in enumerate(handles)])

    def finish(self, index: Handle, properties: dict[bytes, bytes]) -> bytes:
        place = self.put(sorted(properties.items()))
        meta = self.put([(b"rocksdb.properties", place.encode())])
        return self.data + _footer(meta, index)


def records(*keys: bytes) -> list[tuple[bytes, bytes]]:
    return [(key + SET, b"") for key in keys]


def it_reads_what_was_written() -> None:
    read = read_sstable(GOOD, name="good")
    assert read.name == "good"
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
            (GOOD[:-12] + b"\x03\0\0\0" + GOOD[-8:], "version is 3"),
            (GOOD[:-FOOTER_SIZE] + b"\x02" + GOOD[1 - FOOTER_SIZE :], "checksum type is 2"),
            (GOOD[:10] + bytes((GOOD[10] ^ 1,)) + GOOD[11:], "checksum of the block at 0 "),
            (GOOD[:-FOOTER_SIZE] + _footer(Handle(2**40, 5), Handle(0, 5)), "outside the file"),
            (GOOD[:-FOOTER_SIZE] + _footer(Handle(0, 5), Handle(0, 5))[:20] + GOOD[-33:], "zeros|checksum"),
            (table([(b"b" + SET, b""), (b"a" + SET, b"")]), "out of order"),
            (table([(b"a" + SET, b"1"), (b"a" + SET, b"2")]), "out of order"),
            (table([(b"a" + SET, b"")], count=b"2"), "the file has 1 record, but its properties state 2"),
            (table([(b"a" + SET, b"")], count=b"-1"), "the count property is missing"),
            (table([(b"a" + SET, b"")], count=b""), "the count property is missing"),
            (table([(b"a" + SET, b"")], count=b"9" * 5_000), "the count property is missing"),
            (table([(b"a" + SET, b"")], count="²".encode("latin-1")), "the count property is missing"),
            (bytes(FOOTER_SIZE - 1), "52 bytes, which is too few for an SSTable"),
            (bytes(FOOTER_SIZE), "the magic number is missing"),
            (table([(b"a" + bytes(8), b"")]), "kind 0"),
            (table([(b"short", b"")]), "too short"),
            (table([], kind=1, raw=b"\xff\xff\xff\xff\xff snappy it is not"), "cannot be decompressed"),
            (table([], kind=1, raw=b"\xff\xff\xff\xff\x0f"), "more data than Snappy can compress into it"),
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


class DescribeAnIndex:
    def it_may_have_two_levels(self) -> None:
        file = File()
        one, two, three = (file.put(records(key)) for key in (b"a", b"b", b"c"))
        top = file.index(file.index(one, two), file.index(three))
        properties = {b"count": b"3", b"rocksdb.block.based.table.index.type": b"\x02\0\0\0"}
        assert [key for key, _ in read_sstable(file.finish(top, properties), name="x")] == [b"a", b"b", b"c"]

    @pytest.mark.parametrize("levels", [1, 2])
    def it_names_every_block_once_and_in_order(self, levels: int) -> None:
        for order in ((1, 0), (0, 0)):
            file = File()
            blocks = [file.put(records(b"a")), file.put(records(b"b"))]
            properties = {b"count": b"2"}
            if levels == 2:
                parts = [file.index(blocks[0]), file.index(blocks[1])]
                index = file.index(*(parts[n] for n in order))
                properties[b"rocksdb.block.based.table.index.type"] = b"\x02\0\0\0"
            else:
                index = file.index(*(blocks[n] for n in order))
            with pytest.raises(FormatError, match="the index lists blocks that overlap"):
                read_sstable(file.finish(index, properties), name="x")

    def it_names_blocks_that_follow_each_other_with_their_trailers(self) -> None:
        file = File()
        before = file.put(records(b"a"))
        after = file.put(records(b"b"))
        assert after.offset == before.offset + before.size + 5
        assert len(read_sstable(file.finish(file.index(before, after), {b"count": b"2"}), name="x")) == 2
        file = File()
        before, after = file.put(records(b"a")), file.put(records(b"b"), gap=1)
        assert len(read_sstable(file.finish(file.index(before, after), {b"count": b"2"}), name="x")) == 2
        file = File()
        before, after = file.put(records(b"a")), file.put(records(b"b"))
        index = file.index(before._replace(size=before.size + 1), after)
        with pytest.raises(FormatError, match="overlap"):
            read_sstable(file.finish(index, {b"count": b"2"}), name="x")

    def it_is_read_in_order_from_block_to_block(self) -> None:
        for second in (b"a", b"b"):
            file = File()
            index = file.index(file.put(records(b"b")), file.put(records(second)))
            with pytest.raises(FormatError, match="the keys in the file are out of order"):
                read_sstable(file.finish(index, {b"count": b"2"}), name="x")


class DescribeProperties:
    def it_has_some_and_nothing_else(self) -> None:
        file = File()
        index = file.index(file.put(records(b"a")))
        place = file.put([(b"count", b"1")])
        for names, message in (
            ([b"rocksdb.other"], "the properties are missing"),
            ([b"a.filter", b"rocksdb.properties", b"rocksdb.range_del"], "never writes: b'a.filter'"),
        ):
            meta = file.put([(name, place.encode()) for name in names])
            with pytest.raises(FormatError, match=message):
                read_sstable(file.data + _footer(meta, index), name="x")

    def it_says_how_many_records_there_are(self) -> None:
        file = File()
        index = file.index(file.put(records(b"a")))
        with pytest.raises(FormatError, match="the count property is missing"):
            read_sstable(file.finish(index, {b"type": b"ranges"}), name="x")

    def it_may_say_that_there_is_none(self) -> None:
        file = File()
        assert len(read_sstable(file.finish(file.index(), {b"count": b"0"}), name="x")) == 0


class DescribeLimits:
    """Each lies exactly where it says."""

    @pytest.fixture
    def data(self) -> bytes:
        file = File()
        blocks = [file.put([(b"%d%d" % (n, k) + SET, b"") for k in range(3)]) for n in range(2)]
        return file.finish(file.index(*blocks), {b"count": b"6"})

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("TABLE_RECORDS", 6, "more records, or longer keys"),
            ("TABLE_KEY_BYTES", 6 * 10, "more records, or longer keys"),
        ],
    )
    def it_reads_up_to_them(
        self, data: bytes, monkeypatch: pytest.MonkeyPatch, name: str, value: int, message: str
    ) -> None:
        monkeypatch.setattr(limits, name, value)
        assert len(read_sstable(data, name="x")) == 6
        monkeypatch.setattr(limits, name, value - 1)
        with pytest.raises(FormatError, match=message):
            read_sstable(data, name="x")

    def it_reads_indexes_of_so_many_blocks_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        file = File()
        blocks = [file.put(records(b"%d" % n)) for n in range(4)]
        top = file.index(file.index(*blocks[:2]), file.index(*blocks[2:]))
        properties = {b"count": b"4", b"rocksdb.block.based.table.index.type": b"\x02\0\0\0"}
        data = file.finish(top, properties)
        monkeypatch.setattr(limits, "TABLE_RECORDS", 4)
        assert len(read_sstable(data, name="x")) == 4
        monkeypatch.setattr(limits, "TABLE_RECORDS", 3)
        with pytest.raises(FormatError, match="the index lists more blocks"):
            read_sstable(data, name="x")

    def it_reads_files_up_to_a_size(self, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "TABLE_BYTES", len(data))
        assert len(read_sstable(data, name="x")) == 6
        monkeypatch.setattr(limits, "TABLE_BYTES", len(data) - 1)
        with pytest.raises(FormatError, match="the file is larger than"):
            read_sstable(data, name="x")

    def it_reads_blocks_up_to_a_size_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = [(b"key-%04d" % n, bytes(1_000)) for n in range(100)]
        data = write_sstable(rows, user_properties={}).data
        total = sum(map(len, open_blocks(data).data))
        assert total > 2 * len(data)
        monkeypatch.setattr(limits, "TABLE_BYTES", total)
        assert len(read_sstable(data, name="x")) == 100
        monkeypatch.setattr(limits, "TABLE_BYTES", total - 1)
        with pytest.raises(FormatError, match="the blocks are larger than"):
            read_sstable(data, name="x")


def it_refuses_a_footer_of_another_kind() -> None:
    footer = GOOD[-FOOTER_SIZE:]
    for place, value, message in (
        (0, 0, r"checksum type is 0, but lakeFS writes 1 \(CRC32C\)"),
        (41, 3, "SSTable version is 3, but lakeFS writes 2"),
        (44, 1, "SSTable version is 16777218, but lakeFS writes 2"),
        (40, 1, "the footer is not padded with zeros"),
        (45, 0, "the magic number is missing"),
        (52, 0, "the magic number is missing"),
    ):
        other = bytearray(footer)
        other[place] = value
        with pytest.raises(FormatError, match=message):
            read_sstable(GOOD[:-FOOTER_SIZE] + other, name="x")


def it_reads_a_key_that_is_empty_but_for_its_trailer() -> None:
    assert list(read_sstable(table([(SET, b"1")]), name="x")) == [(b"", b"1")]
