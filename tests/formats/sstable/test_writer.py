from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.formats.entry import file_id
from lakeplan.formats.sstable import _separator, _successor, read_sstable, write_sstable
from lakeplan.formats.sstable_blocks import INDEX_TYPE_KEY

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
