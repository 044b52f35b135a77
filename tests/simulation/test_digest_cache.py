"""What is put into the cache comes out as it was, or not at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakeplan.simulation.digest_cache import TEXTS, DigestCache, _plain_of
from lakeplan.simulation.digests import Digest
from lakeplan.simulation.groups import Group
from tests.simulation.memory_cache import MemoryCache

IDS = ["a" * 64, "b" * 64]


def group_of(rows: int, kinds: int) -> Group:
    held = np.arange(1, kinds + 1, dtype=np.uint64)
    index = np.arange(rows) % max(kinds, 1)
    return Group(np.arange(rows, dtype=np.uint64) << np.uint64(40), np.arange(rows), index, held)


class DescribeDigestCache:
    @pytest.mark.parametrize("rows", [0, 1, 1_000])
    def it_gives_back_a_ranges_rows(self, rows: int) -> None:
        cache = DigestCache(MemoryCache(), "ns")
        given = Digest(
            np.arange(rows, dtype=np.uint64) << np.uint64(55),
            np.arange(rows) * 2**50,
            np.full(rows, 5, np.uint8),
        )
        cache.put_digest(IDS[0], given)
        found = cache.digest(IDS[0])
        assert found is not None
        assert [c.tolist() for c in (found.hashes, found.sizes, found.seen)] == [
            c.tolist() for c in (given.hashes, given.sizes, given.seen)
        ]

    @pytest.mark.parametrize(
        ("rows", "kinds"), [(0, 0), (3, 1), (300, 256), (300, 257), (66_000, 65_536), (66_000, 65_537)]
    )
    def it_gives_back_a_group_whatever_kinds_of_rows_it_has(self, rows: int, kinds: int) -> None:
        cache, given = DigestCache(MemoryCache(), "ns"), group_of(rows, kinds)
        cache.put_group(IDS, given)
        found = cache.group(IDS)
        assert found is not None
        for column in ("hashes", "sizes", "index", "held"):
            assert getattr(found, column).tolist() == getattr(given, column).tolist()

    @pytest.mark.parametrize(
        "rows", [[], [(7, "data/a/ü", "p")], [(1, "", "x"), (2**64 - 1, "data/b", ""), (0, "c", "ü" * 40)]]
    )
    def it_gives_back_texts(self, rows: list[tuple[int, str, str]]) -> None:
        cache = DigestCache(MemoryCache(), "ns")
        given = pa.Table.from_pylist([dict(zip(TEXTS.names, row, strict=True)) for row in rows], schema=TEXTS)
        cache.put_texts(IDS[0], given)
        assert cache.texts(IDS[0]) == given
        several = pa.concat_tables([given, given.slice(1), given.slice(0, 1)])
        cache.put_texts(IDS[0], several)
        assert cache.texts(IDS[0]) == several.combine_chunks()

    def it_takes_no_forged_texts(self) -> None:
        """Whatever number in them is another, there is a valid table or none."""
        cache = DigestCache(MemoryCache(), "ns")
        given = pa.table({"hash": [7, 8], "address": ["abc", "de"], "path": ["p", "q"]}, schema=TEXTS)
        plain = _plain_of(given)
        wrong = [-1, 1, 3, 2**31 - 1, 2**40, 2**63 - 1]
        forged = [
            plain[:at] + w.to_bytes(8, "little", signed=True) + plain[at + 8 :]
            for w in wrong
            for at in (0, 24, 28, 36, 40)
        ]
        for data in (*forged, plain + b"x", plain[:-1], plain[:8], b""):
            packed = np.frombuffer(pa.compress(data, codec="lz4", asbytes=True), np.uint8)
            cache._put(IDS[0], "texts", [np.array([len(data)]), packed])
            found = cache.texts(IDS[0])
            if found is not None:
                found.validate(full=True)
                assert found.num_rows == 2

    def it_takes_no_arrow_stream_whose_buffers_unpack_to_more_than_it_says(self) -> None:
        cache = DigestCache(MemoryCache(), "ns")
        texts = pa.table({"hash": [7], "address": ["x" * 50_000_000], "path": ["p"]}, schema=TEXTS)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, TEXTS, options=options) as stream:
            stream.write_table(texts)
        plain = sink.getvalue()
        assert plain.size < 100_000
        packed = np.frombuffer(pa.compress(plain, codec="lz4"), np.uint8)
        cache._put(IDS[0], "texts", [np.array([plain.size]), packed])
        before = pa.total_allocated_bytes()
        assert cache.texts(IDS[0]) is None
        assert pa.total_allocated_bytes() - before < 1_000_000

    def it_takes_no_texts_that_claim_to_be_huge_or_are_no_table(self) -> None:
        cache = DigestCache(MemoryCache(), "ns")
        packed = pa.compress(bytes(1 << 20), codec="lz4", asbytes=True)
        for size in (2**62, 1 << 30, 1 << 20, 5, -1):
            cache._put(IDS[0], "texts", [np.array([size]), np.frombuffer(packed, np.uint8)])
            assert cache.texts(IDS[0]) is None
        cache._put(IDS[0], "texts", [np.zeros(3, np.uint8)])
        assert cache.texts(IDS[0]) is None
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, pa.schema([("hash", pa.int8())])) as stream:
            stream.write_table(pa.table({"hash": pa.array([1], pa.int8())}))
        plain = sink.getvalue()
        other = np.frombuffer(pa.compress(plain, codec="lz4"), np.uint8)
        cache._put(IDS[0], "texts", [np.array([plain.size]), other])
        assert cache.texts(IDS[0]) is None

    def it_tells_versions_in_another_order_apart(self) -> None:
        cache = DigestCache(MemoryCache(), "ns")
        cache.put_group(IDS, group_of(3, 1))
        assert cache.group(IDS[::-1]) is None
        assert cache.group(IDS[:1]) is None

    def it_tells_namespaces_apart(self) -> None:
        memory = MemoryCache()
        DigestCache(memory, "ns").put_group(IDS, group_of(3, 1))
        assert DigestCache(memory, "other").group(IDS) is None
        memory.files = {name.replace("ns/", "other/"): data for name, data in memory.files.items()}
        assert DigestCache(memory, "other").group(IDS) is None

    @pytest.mark.parametrize("place", [0, 15, 16, 17, 24, 40, -1])
    def it_takes_nothing_that_was_damaged(self, place: int) -> None:
        memory = MemoryCache()
        cache = DigestCache(memory, "ns")
        cache.put_group(IDS, group_of(9, 2))
        ((name, data),) = memory.files.items()
        broken = bytearray(data)
        broken[place] ^= 1
        for wrong in (bytes(broken), data[:place], b""):
            memory.files[name] = wrong
            assert cache.group(IDS) is None
