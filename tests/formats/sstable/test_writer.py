from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.formats.sstable import (
    _read_footer,
    _separator,
    _successor,
    file_id,
    open_frame,
    read_sstable,
    write_sstable,
)
from lakeplan.formats.sstable_blocks import (
    FOOTER_SIZE,
    INDEX_TYPE_KEY,
    Handle,
    TableFacts,
    handle_of,
    load_block,
    read_entries,
    restart_points,
)

KEYS = st.binary(max_size=12)


def properties_of(data: bytes) -> dict[bytes, bytes]:
    return dict(read_sstable(data, name="x").properties)


@given(st.dictionaries(KEYS, st.binary(max_size=40), max_size=80))
def it_writes_what_the_reader_reads(records: dict[bytes, bytes]) -> None:
    rows = sorted(records.items())
    written = write_sstable(rows, user_properties={"type": "ranges", "entity": "tag"})
    read = read_sstable(written.data, name="x")
    assert list(read) == rows
    assert read.user_properties == {"type": "ranges", "entity": "tag"}
    assert written.id == file_id(rows, {"type": "ranges", "entity": "tag"})
    assert written.facts.records == len(rows)


@settings(max_examples=10)
@given(st.integers(1, 3000), st.integers(0, 300))
def it_survives_any_number_of_blocks(count: int, width: int) -> None:
    rows = [(b"%08d" % i, bytes(width)) for i in range(count)]
    assert list(read_sstable(write_sstable(rows, user_properties={}).data, name="x")) == rows


def it_has_one_index_block_while_it_fits_and_two_levels_beyond() -> None:
    def table(count: int) -> dict[bytes, bytes]:
        # incompressible enough that every block has its own entry in the index
        rows = [(b"key-%06d" % i, b"%d" % i * 20) for i in range(count)]
        return properties_of(write_sstable(rows, user_properties={"type": "ranges"}).data)

    small, large = table(100), table(40_000)
    assert small[INDEX_TYPE_KEY] == bytes(4)
    assert b"rocksdb.index.partitions" not in small
    assert large[INDEX_TYPE_KEY] == b"\x02\0\0\0"
    assert large[b"rocksdb.index.partitions"] > b"\x01"


def it_notes_bounds_count_and_size() -> None:
    properties = properties_of(
        write_sstable([(b"a", b"1"), (b"b", b"2")], user_properties={"type": "ranges"}).data
    )
    assert properties[b"min_key"] == b"a"
    assert properties[b"max_key"] == b"b"
    assert properties[b"count"] == b"2"
    # one open block: two entries (3 bytes of lengths, key, trailer, value; the second shares nothing), a
    # restart offset and their count, and 4 for an index without entries
    assert properties[b"estimated_size_bytes"] == str(2 * (3 + 1 + 8 + 1) + 4 + 4 + 4).encode()


def it_does_not_count_the_size_in_the_id() -> None:
    rows = [(b"a", b"1")]
    written = write_sstable(rows, user_properties={"type": "ranges"})
    assert written.id != write_sstable(rows, user_properties={"type": "metaranges"}).id
    assert written.id == file_id(read_sstable(written.data, name="x"), {"type": "ranges"})


def it_refuses_records_out_of_order() -> None:
    for keys in ([b"b", b"a"], [b"a", b"a"]):
        with pytest.raises(ValueError, match="order"):
            write_sstable([(key, b"") for key in keys], user_properties={})


@given(KEYS, KEYS)
def it_separates_two_keys(one: bytes, other: bytes) -> None:
    if one == other:
        return
    last, following = sorted((one, other))
    assert last <= _separator(last, following) < following
    assert last <= _successor(last)


@pytest.mark.parametrize(
    ("last", "following", "between"),
    [
        (b"abc", b"abf", b"abd"),
        (b"abc", b"abdx", b"abd"),
        (b"abc", b"abd", b"abc"),
        (b"abcd", b"abd", b"abce"),
        (b"abc\xff", b"abd", b"abc\xff"),
        (b"abc\xffa", b"abd", b"abc\xffb"),
        (b"abc\xfe", b"abd", b"abc\xff"),
        (b"abc", b"abcx", b"abc"),
        (b"a", b"c", b"b"),
        (b"a", b"b", b"a"),
        (b"az", b"b", b"a{"),
        (b"", b"a", b""),
        (b"aa", b"ab\0", b"ab"),
    ],
)
def it_separates_keys_as_the_server_does(last: bytes, following: bytes, between: bytes) -> None:
    assert _separator(last, following) == between


@pytest.mark.parametrize(
    ("last", "after"),
    [(b"", b""), (b"abc", b"b"), (b"\xfe", b"\xff"), (b"\xffab", b"\xffb"), (b"\xff\xff", b"\xff\xff")],
)
def it_ends_with_a_short_key_after_the_last(last: bytes, after: bytes) -> None:
    assert _successor(last) == after


class Layout:
    """The blocks of a written table."""

    def __init__(self, rows: list[tuple[bytes, bytes]]) -> None:
        self.written = write_sstable(rows, user_properties={"type": "ranges"})
        self.data = self.written.data
        self.limit = len(self.data) - FOOTER_SIZE
        self.meta, self.index = _read_footer(self.data[self.limit :])
        (self.properties,) = self.named_by(self.meta)
        self.parts = self.named_by(self.index) if open_frame(self.data).is_two_level else [self.index]
        self.blocks = [block for part in self.parts for block in self.named_by(part)]

    def load(self, handle: Handle) -> bytes:
        return load_block(self.data, handle, self.limit)

    def named_by(self, handle: Handle) -> list[Handle]:
        return [handle_of(value) for _, value in read_entries(self.load(handle))]

    def is_compressed(self, handle: Handle) -> bool:
        return self.data[handle.offset + handle.size] == 1

    def restarts(self, handle: Handle) -> int:
        return len(restart_points(self.load(handle))[0])


def rows_of(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"key-%06d" % i, b"%d" % i * 20) for i in range(count)]


@pytest.fixture(scope="module")
def small() -> Layout:
    return Layout(rows_of(3000))


@pytest.fixture(scope="module")
def large() -> Layout:
    """A table whose index has several parts."""
    return Layout(rows_of(40_000))


class DescribeTheFile:
    def it_counts_what_it_wrote(self, small: Layout) -> None:
        rows = rows_of(3000)
        assert len(small.blocks) > 2
        assert small.written.facts == TableFacts(
            min_key=rows[0][0],
            max_key=rows[-1][0],
            records=3000,
            estimated_size=small.written.facts.estimated_size,
            data_size=small.blocks[-1].offset + small.blocks[-1].size + 5,
            data_blocks=len(small.blocks),
            key_bytes=sum(len(key) + 8 for key, _ in rows),
            value_bytes=sum(len(value) for _, value in rows),
            index_size=len(small.load(small.index)) + 5,
        )

    def it_counts_the_parts_of_a_large_index(self, large: Layout) -> None:
        facts, top = large.written.facts, len(large.load(large.index))
        assert len(large.parts) > 3
        assert (facts.data_blocks, facts.index_partitions) == (len(large.blocks), len(large.parts))
        assert facts.top_index_size == top
        assert facts.index_size == sum(len(large.load(part)) for part in large.parts) + top + 5

    def it_compresses_data_and_index_but_not_properties(self, small: Layout, large: Layout) -> None:
        for table in (small, large):
            assert all(map(table.is_compressed, (table.index, *table.parts, *table.blocks)))
            assert not table.is_compressed(table.meta)
            assert not table.is_compressed(table.properties)

    def it_stores_as_it_is_what_compression_does_not_make_smaller(self) -> None:
        noise = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(100))
        (block,) = (table := Layout([(b"a", noise)])).blocks
        assert not table.is_compressed(block)

    def it_has_a_restart_point_for_every_entry_of_an_index(self, small: Layout, large: Layout) -> None:
        assert small.restarts(small.index) == len(small.blocks)
        assert large.restarts(large.index) == len(large.parts)
        for part in large.parts:
            assert large.restarts(part) == len(large.named_by(part))

    def it_has_one_restart_point_in_its_properties(self, small: Layout) -> None:
        assert small.restarts(small.properties) == 1

    def it_ends_the_keys_of_its_index_as_the_server_does(self, small: Layout) -> None:
        def endings(table: Layout) -> set[str]:
            return {key[-8:].hex() for key, _ in read_entries(table.load(table.index))}

        assert endings(small) == {"11ffffffffffffff"}
        assert endings(Layout([])) == {"ff00000000000000"}

    @pytest.mark.parametrize(
        ("before", "size", "blocks"),
        [
            ([3700], 359, 1),  # with keys, lengths and restart points exactly 4,096 bytes
            ([3700], 360, 2),
            ([3665], 5000, 1),  # 3,686 bytes before, which is 90 %
            ([3666], 5000, 2),
            ([4074], 0, 2),
            ([220] * 15 + [219], 341, 1),  # a new restart point is part of it
            ([220] * 15 + [219], 342, 2),
        ],
    )
    def it_ends_a_block_where_the_next_record_would_not_fit(
        self, before: list[int], size: int, blocks: int
    ) -> None:
        rows = [(bytes((97 + n,)), bytes(width)) for n, width in enumerate([*before, size])]
        assert len(Layout(rows).blocks) == blocks
