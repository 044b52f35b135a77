"""Blocks by their bytes: what is read, and where each limit lies."""

from __future__ import annotations

import struct
from dataclasses import replace
from fractions import Fraction
from itertools import product, takewhile

import cramjam
import pytest

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.sstable_blocks import (
    TRAILER_SIZE,
    BlockBuilder,
    Handle,
    TableFacts,
    _common_prefix,
    engine_properties,
    load_block,
    masked_crc32c,
    read_entries,
    restart_points,
)
from lakeplan.formats.wire import uvarint

START = b"start"


def stored(raw: bytes, kind: int = 0) -> tuple[bytes, Handle, int]:
    """A file with one block, where the block is, and where it ends with its trailer."""
    body = raw + bytes((kind,))
    data = START + body + masked_crc32c(body).to_bytes(4, "little")
    return data + b"the footer", Handle(len(START), len(raw)), len(data)


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def entry(shared: int, rest: bytes, value: bytes) -> bytes:
    return uvarint(shared) + uvarint(len(rest)) + uvarint(len(value)) + rest + value


def block(*parts: bytes, restarts: tuple[int, ...] = (0,)) -> bytes:
    return b"".join(parts) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


class DescribeAStoredBlock:
    @pytest.mark.parametrize("kind", [0, 1])
    def it_is_read_up_to_where_the_footer_begins(self, kind: int) -> None:
        data, handle, end = stored(snappy(b"abc" * 50) if kind else b"abc" * 50, kind)
        assert load_block(data, handle, end) == b"abc" * 50

    def it_never_lies_in_the_footer(self) -> None:
        data, handle, end = stored(b"abc")
        for limit in (end - 1, end - TRAILER_SIZE, 0):
            with pytest.raises(FormatError, match="a block at 5 of 3 bytes lies outside the file"):
                load_block(data, handle, limit)

    def it_has_the_checksum_of_its_bytes_and_its_kind(self) -> None:
        data, handle, end = stored(b"abc")
        for place in range(len(START), end):
            other = bytearray(data)
            other[place] ^= 1
            with pytest.raises(FormatError, match="the checksum of the block at 5 does not match"):
                load_block(bytes(other), handle, end)

    def it_is_not_larger_than_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for data, handle, end in (stored(bytes(100)), stored(snappy(bytes(100)), 1)):
            monkeypatch.setattr(limits, "BLOCK_BYTES", 100)
            assert load_block(data, handle, end) == bytes(100)
            monkeypatch.setattr(limits, "BLOCK_BYTES", 99)
            with pytest.raises(
                FormatError, match="the block at 5 states a larger size than lakeFS ever writes"
            ):
                load_block(data, handle, end)

    def it_claims_no_more_than_snappy_can_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        raw = snappy(bytes(100))
        data, handle, end = stored(raw, 1)
        monkeypatch.setattr(limits, "SNAPPY_RATIO", Fraction(100, len(raw)))
        assert load_block(data, handle, end) == bytes(100)
        monkeypatch.setattr(limits, "SNAPPY_RATIO", Fraction(99, len(raw)))
        with pytest.raises(
            FormatError,
            match="the block at 5 states more data than Snappy can compress into it",
        ):
            load_block(data, handle, end)

    @pytest.mark.parametrize("raw", [b"\xff" * 6, b"\x05\x10abc"])
    def it_decompresses(self, raw: bytes) -> None:
        with pytest.raises(FormatError, match="the block at 5 cannot be decompressed"):
            load_block(*stored(raw, 1))

    def it_has_a_kind_that_lakefs_writes(self) -> None:
        with pytest.raises(FormatError, match="the block at 5 has the unknown compression 2"):
            load_block(*stored(b"abc", 2))


class DescribeRestartPoints:
    def it_reads_them_and_where_the_entries_end(self) -> None:
        assert restart_points(block()) == ((0,), 0)
        assert restart_points(block(b"12345", restarts=(0, 3, 4))) == ((0, 3, 4), 5)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (bytes(3), "a block is too short"),
            (bytes(4), "do not fit into it"),
            (bytes(8), "do not fit into it"),
            (struct.pack("<I", 1), "do not fit into it"),
            (struct.pack("<2I", 0, 2), "do not fit into it"),
            (block(restarts=(1,)), "are out of order"),
            (block(restarts=(1, 2)), "are out of order"),
            (block(restarts=(0, 2, 2)), "are out of order"),
            (block(restarts=(0, 2, 1)), "are out of order"),
        ],
    )
    def it_refuses_what_lakefs_never_writes(self, data: bytes, message: str) -> None:
        with pytest.raises(FormatError, match=message):
            restart_points(data)

    def it_limits_how_many_there_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "TABLE_RECORDS", 3)
        assert len(restart_points(block(b"abcd", restarts=(0, 1, 2)))[0]) == 3
        with pytest.raises(FormatError, match="the limit of 3 restart points"):
            restart_points(block(b"abcd", restarts=(0, 1, 2, 3)))


class DescribeEntries:
    def it_reads_keys_that_share_their_beginnings(self) -> None:
        parts = entry(0, b"abc", b"1"), entry(3, b"d", b""), entry(1, b"x", b"22")
        expected = [(b"abc", b"1"), (b"abcd", b""), (b"ax", b"22")]
        assert read_entries(block(*parts)) == expected
        again = entry(0, b"b", b"3")
        place = sum(map(len, parts))
        assert read_entries(block(*parts, again, restarts=(0, place))) == [*expected, (b"b", b"3")]

    def it_reads_an_empty_block(self) -> None:
        assert read_entries(block()) == []

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (block(entry(0, b"a", b"1")[:-1]), "runs past the end of its block"),
            (block(b"\x00\x02\x00a"), "runs past the end of its block"),
            (block(b"\x00\x01"), "a number runs past the end"),
            (
                block(entry(0, b"a", b"1"), entry(2, b"b", b"")),
                "shares more bytes with the key before it than that key contains",
            ),
            (block(entry(1, b"a", b"")), "an entry at a restart point shares bytes with the key before it"),
            (
                block(entry(0, b"a", b"1"), entry(1, b"b", b""), restarts=(0, 5)),
                "an entry at a restart point shares bytes with the key before it",
            ),
            (
                block(entry(0, b"a", b"1"), entry(0, b"b", b""), restarts=(0, 4)),
                "a restart point is not the start of an entry",
            ),
        ],
    )
    def it_refuses_damage(self, data: bytes, message: str) -> None:
        with pytest.raises(FormatError, match=message):
            read_entries(data)

    def it_limits_the_length_of_a_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "KEY_BYTES", 10)
        for parts in ((entry(0, b"k" * 10, b""),), (entry(0, b"k" * 6, b""), entry(6, b"k" * 4, b""))):
            assert len(read_entries(block(*parts))[-1][0]) == 10
        for parts in ((entry(0, b"k" * 11, b""),), (entry(0, b"k" * 6, b""), entry(6, b"k" * 5, b""))):
            with pytest.raises(FormatError, match="a key is longer than the limit of 10 bytes"):
                read_entries(block(*parts))

    def it_limits_the_length_of_all_keys_by_the_block_s(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "KEY_RATIO", 1)
        many = [entry(0, b"k" * 9, b""), *(entry(9, bytes((n,)), b"") for n in range(9))]
        data = block(*many)
        spare = 9 + 9 * 10 - len(data)
        monkeypatch.setattr(limits, "KEY_BYTES", spare)
        assert len(read_entries(data)) == 10
        monkeypatch.setattr(limits, "KEY_BYTES", spare - 1)
        with pytest.raises(
            FormatError, match="a block has more keys, or longer keys, than lakeFS writes to any block"
        ):
            read_entries(data)
        monkeypatch.setattr(limits, "KEY_RATIO", 2)
        assert len(read_entries(data)) == 10

    def it_limits_how_many_there_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = block(*(entry(0, bytes((n,)), b"") for n in range(3)))
        monkeypatch.setattr(limits, "TABLE_RECORDS", 3)
        assert len(read_entries(data)) == 3
        monkeypatch.setattr(limits, "TABLE_RECORDS", 2)
        with pytest.raises(
            FormatError, match="a block has more keys, or longer keys, than lakeFS writes to any block"
        ):
            read_entries(data)


class DescribeABuilder:
    def it_writes_whole_keys_at_restart_points_only(self) -> None:
        builder = BlockBuilder(2)
        sizes = [builder.size]
        for key, value in ((b"aa", b"1"), (b"ab", b"22"), (b"ac", b""), (b"acd", b"4")):
            builder.add(key, value)
            sizes.append(builder.size)
        parts = entry(0, b"aa", b"1"), entry(1, b"b", b"22"), entry(0, b"ac", b""), entry(2, b"d", b"4")
        assert builder.finish() == block(*parts, restarts=(0, len(parts[0] + parts[1])))
        assert (builder.count, builder.entry_bytes) == (4, sum(map(len, parts)))
        assert sizes == [4, 14, 20, 29, 34]
        assert sizes[-1] == len(builder.finish())

    def it_writes_one_restart_point_for_nothing(self) -> None:
        assert BlockBuilder(16).finish() == block()


def it_finds_what_two_keys_have_in_common() -> None:
    words = [bytes(word) for length in range(5) for word in product(b"ab", repeat=length)]
    for one, other in product(words, repeat=2):
        same = [*takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]
        assert _common_prefix(one, other) == len(same)


class DescribeProperties:
    FACTS = TableFacts(b"a", b"z", 300, 400, 500, 600, 700, 800, 900)

    def it_has_every_figure_under_the_name_that_the_server_gives_it(self) -> None:
        properties = engine_properties(self.FACTS, {"type": "ranges"})
        names = {
            b"rocksdb.num.entries": uvarint(300),
            b"rocksdb.data.size": uvarint(500),
            b"rocksdb.num.data.blocks": uvarint(600),
            b"rocksdb.raw.key.size": uvarint(700),
            b"rocksdb.raw.value.size": uvarint(800),
            b"rocksdb.index.size": uvarint(900),
            b"rocksdb.block.based.table.index.type": b"\0\0\0\0",
            b"count": b"300",
            b"estimated_size_bytes": b"400",
            b"min_key": b"a",
            b"max_key": b"z",
            b"type": b"ranges",
        }
        assert {name: properties.get(name) for name in names} == names

    def it_has_figures_of_a_two_level_index_for_one_only(self) -> None:
        added = {
            b"rocksdb.block.based.table.index.type": b"\2\0\0\0",
            b"rocksdb.index.partitions": uvarint(1),
            b"rocksdb.top-level.index.size": uvarint(1000),
        }
        one = engine_properties(self.FACTS, {})
        two = engine_properties(replace(self.FACTS, index_partitions=1, top_index_size=1000), {})
        assert two == one | added
        assert len(two) == len(one) + 2
