"""Segments: what they say again, what is no segment, and which of them a run uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeplan.formats.namespace import Addresses
from lakeplan.lakefs.protocols import MetadataKind
from lakeplan.simulation import observing, segments
from lakeplan.simulation.documents import SimulateRequest
from lakeplan.simulation.engine import Asking, CountsOnly, ask
from lakeplan.simulation.local import LocalRunner
from lakeplan.simulation.observing import Source
from lakeplan.simulation.run import simulate
from lakeplan.simulation.runners import LOCAL, Kind, Runners, WorkItem
from lakeplan.simulation.segments import (
    Manifest,
    Segment,
    from_bytes,
    item_of,
    read_segment,
    segment_of,
    to_bytes,
    write_segment,
)
from lakeplan.simulation.table import Rows, Sets
from lakeplan.simulation.verdicts import RULES, RuleSet
from lakeplan.stores.open import open_namespace
from lakeplan.values.progress import Silent
from lakeplan.values.rules import GcRules
from tests.simulation.leaves import leaves_in
from tests.simulation.memory_cache import MemoryCache
from tests.simulation.namespaces import NOW, History, Snapshot, entry, write_namespace
from tests.simulation.worlds import URL, Files, Range, World, items_of, relative

RANGES = ["ab", "cd"]


class NoMetadata:
    def read_metadata(self, kind: MetadataKind, id: str) -> bytes:
        raise AssertionError("nothing is read here")


def source(cache: MemoryCache | None, name: str = "one") -> Source:
    return Source(name, NoMetadata(), Addresses(("s3://bucket/ns",)), cache=cache)


def some_rows() -> tuple[Rows, Sets, list[pa.Array]]:
    sets = Sets()
    first = sets.add(0, 1)
    both = sets.add(first, 9)
    rows = Rows(
        np.array([3, 5, 5], np.uint64),
        np.array([10, 20, 30], np.int64),
        np.array([first, both, both], np.int64),
    )
    return rows, sets, [pa.array(["data/a", "data/ü", ""]), pa.array(["p/a", "p/b", "p/ü"])]


def segment_bytes() -> bytes:
    rows, sets, texts = some_rows()
    data = to_bytes(RANGES, rows, sets, texts)
    assert data is not None
    return data


class DescribeASegment:
    def it_says_again_what_it_was_given(self) -> None:
        rows, sets, texts = some_rows()
        opened = from_bytes(segment_bytes(), RANGES)
        assert opened.rows.hashes.tolist() == rows.hashes.tolist()
        assert opened.rows.sizes.tolist() == rows.sizes.tolist()
        leaves = [leaves_in(opened.sets, of) for of in opened.rows.sets.tolist()]
        assert leaves == [leaves_in(sets, of) for of in rows.sets.tolist()]
        chosen = np.array([True, False, True])
        assert [t.to_pylist() for t in opened.texts(chosen)] == [
            t.filter(pa.array(chosen)).to_pylist() for t in texts
        ]

    def it_has_slices_of_arrays(self) -> None:
        rows, sets, texts = some_rows()
        part = to_bytes(RANGES, rows.part(slice(1, 3)), sets, [text.slice(1) for text in texts])
        assert part is not None
        opened = from_bytes(part, RANGES)
        assert opened.texts(np.ones(2, np.bool_))[1].to_pylist() == ["p/b", "p/ü"]

    def it_may_be_empty(self) -> None:
        nothing = np.zeros(0, np.int64)
        rows = Rows(nothing.astype(np.uint64), nothing, nothing)
        data = to_bytes(RANGES, rows, Sets(), [pa.array([], pa.string())] * 2)
        assert data is not None
        opened = from_bytes(data, RANGES)
        assert len(opened.rows) == 0
        assert len(opened.texts(np.zeros(0, np.bool_))[0]) == 0

    def it_is_not_read_with_any_other_byte_or_length(self) -> None:
        rows, sets, texts = some_rows()
        cache = MemoryCache()
        segment = write_segment(source(cache), RANGES, rows, sets, texts)
        assert segment is not None
        assert read_segment(source(cache), segment) is not None
        ((key, data),) = cache.files.items()
        for at in range(len(data)):
            for other in (
                data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :],
                data[:at],
                data + bytes(at + 1),
            ):
                cache.files[key] = other
                assert read_segment(source(cache), segment) is None
        del cache.files[key]
        assert read_segment(source(cache), segment) is None

    def it_is_no_segment_when_it_is_cut_or_longer(self) -> None:
        """Whatever its checksum is."""
        data = segment_bytes()
        for at in range(len(data)):
            with pytest.raises(ValueError):
                from_bytes(data[:at], RANGES)
        with pytest.raises(ValueError):
            from_bytes(data + b"\0", RANGES)

    def it_is_not_read_for_other_ranges(self) -> None:
        with pytest.raises(ValueError, match="belongs to a different set of ranges"):
            from_bytes(segment_bytes(), ["cd", "ab"])

    @pytest.mark.parametrize("leaf", [16, 17])
    def it_has_no_leaf_of_a_range_that_it_does_not_name(self, leaf: int) -> None:
        """Right in its checksum, and wrong."""
        sets = Sets()
        rows = Rows(np.zeros(1, np.uint64), np.zeros(1, np.int64), np.array([sets.add(0, leaf)]))
        data = to_bytes(RANGES, rows, sets, [pa.array(["a"])] * 2)
        assert data is not None
        with pytest.raises(ValueError, match="does not list"):
            from_bytes(data, RANGES)

    def it_gives_no_texts_that_are_none(self) -> None:
        rows, sets, texts = some_rows()
        broken = pa.StringArray.from_buffers(3, texts[0].buffers()[1], pa.py_buffer(b"data/adata/\xff\xff"))
        data = to_bytes(RANGES, rows, sets, [broken, texts[1]])
        assert data is not None
        with pytest.raises(ValueError, match="UTF8"):
            from_bytes(data, RANGES)

    def it_is_not_made_of_more_text_than_places_can_tell(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows, sets, texts = some_rows()
        monkeypatch.setattr(segments, "_MAX_TEXT", 20)
        assert to_bytes(RANGES, rows, sets, texts) is None

    def it_travels_as_a_work_item(self) -> None:
        segment = Segment("aa", ("x", "y"), 7, 9)
        item = item_of(segment, 3, {"y": 12})
        assert (item.kind, item.source, item.weight) == (Kind.SEGMENT, 3, 7 * segments.ROW_WEIGHT)
        assert segment_of(item) == (segment, [-1, 12])


class DescribeAManifest:
    def it_is_read_as_it_was_written(self) -> None:
        cache = MemoryCache()
        manifest = Manifest((Segment("aa", ("x",), 7, 9), Segment("bb", (), 0, 9)))
        manifest.write(source(cache))
        assert Manifest.read(source(cache)) == manifest
        assert Manifest.read(source(cache, "another")) == Manifest()
        assert Manifest.read(source(None)) == Manifest()

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\xff",
            b"[]",
            b"{}",
            b'{"version": 9, "segments": []}',
            b'{"version": 2, "segments": 5}',
            b'{"version": 2, "segments": [["a", ["x"], 1]]}',
            b'{"version": 2, "segments": [["a", ["x"], "many", 9]]}',
            b'{"version": 2, "segments": [["a", ["x"], -1, 9]]}',
            b'{"version": 2, "segments": [["a", ["x"], 1%s, 9]]}' % (b"0" * 400),
            b'{"version": 2, "segments": [["../a", ["x"], 1, 9]]}',
        ],
    )
    def it_is_empty_when_it_is_damaged(self, content: bytes) -> None:
        cache = MemoryCache()
        Manifest((Segment("aa", ("x",), 7, 9),)).write(source(cache))
        cache.files = dict.fromkeys(cache.files, content)
        assert Manifest.read(source(cache)) == Manifest()

    def it_uses_no_range_twice(self) -> None:
        large, small = Segment("aa", ("x", "y"), 7, 9), Segment("bb", ("y", "z"), 5, 9)
        assert Manifest((small, large)).useful({"x": 0, "y": 1, "z": 2}) == (large,)

    def it_leaves_out_segments_of_which_most_is_gone(self) -> None:
        one, other = Segment("aa", ("x", "y"), 7, 9), Segment("bb", ("z", "q", "r"), 5, 9)
        assert Manifest((one, other)).useful({"x": 0, "z": 1}) == (one,)

    def it_leaves_out_small_ones_when_there_are_many(self) -> None:
        large = Segment("aa", ("x",), 1000, 9)
        small = [Segment(f"b{n}", (f"y{n}",), 2, 9) for n in range(segments.MAX_SMALL + 1)]
        numbers = {id: 0 for one in (large, *small) for id in one.ranges}
        assert Manifest((large, *small)).useful(numbers) == (large,)
        assert set(Manifest((large, *small[1:])).useful(numbers)) == {large, *small[1:]}

    def it_forgets_what_had_to_be_read_again(self) -> None:
        used, damaged = Segment("aa", ("x",), 1, 9), Segment("bb", ("y",), 1, 9)
        again = Segment("cc", ("y",), 1, 9)
        assert Manifest.after([used, damaged], [again]) == Manifest((used, again))


class DescribeARun:
    """Simulations of a history of three commits, each of which adds a range."""

    @pytest.fixture
    def read(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Ranges that were read."""
        found: list[str] = []
        read = observing.read_range_arrays

        def spy(data: bytes, *, name: str, **options: Any) -> object:
            found.append(name.rpartition(" ")[2])
            return read(data, name=name, **options)

        monkeypatch.setattr(observing, "read_range_arrays", spy)
        return found

    def simulate(self, root: Path, cache: MemoryCache | None, commits: int = 2, days: int = 7) -> object:
        snapshots = []
        for n in range(commits):
            entries = tuple(entry(f"{letter}/x", f"data/{letter}", 5) for letter in "abc"[: n + 1])
            snapshots.append(Snapshot(f"c{n}", 30 - n, (f"c{n - 1}",) if n else (), entries))
        history = History(snapshots, {"main": f"c{commits - 1}"})
        # at the same URL each time
        folder = root / f"{commits}"
        url = f"file://{folder}" if folder.exists() else write_namespace(folder, history)
        here = root / "ns"
        here.unlink(missing_ok=True)
        here.symlink_to(folder)
        request = SimulateRequest(
            (RuleSet(RULES, GcRules(days)),), as_of=NOW, listing=False, storage_namespace="s3://b/n"
        )
        document = simulate(request, open_namespace(url), Runners(LOCAL), Silent(), cache)
        return json.loads(json.dumps(document["rule_sets"]))

    def it_reads_ranges_once_whatever_the_rules_are(self, tmp_path: Path, read: list[str]) -> None:
        cache = MemoryCache()
        self.simulate(tmp_path, cache)
        assert len(read) == len(set(read)) == 2
        read.clear()
        assert self.simulate(tmp_path, cache, days=1) == self.simulate(tmp_path, None, days=1)
        assert len(read) == 2, "only the run without a cache"

    def it_reads_again_what_is_damaged_and_mends_the_cache(self, tmp_path: Path, read: list[str]) -> None:
        cache = MemoryCache()
        self.simulate(tmp_path, cache)
        for key, data in cache.files.items():
            if not key.endswith("manifest"):
                cache.files[key] = data[:-1]
        read.clear()
        expected = self.simulate(tmp_path, None)
        read.clear()
        assert self.simulate(tmp_path, cache) == expected
        assert len(read) == 2
        read.clear()
        assert self.simulate(tmp_path, cache) == expected
        assert read == []

    def it_takes_no_size_from_a_range_that_nobody_asks_about(self) -> None:
        """Entries of one address may disagree about its size."""
        sizes = (10, 20)
        world = World([Range(0, n, -1, (relative("a", "data/x", size),)) for n, size in enumerate(sizes)])
        files, cache = Files(), MemoryCache()
        items, _ = items_of(world, files)

        def asked(items: list[WorkItem], cache: MemoryCache | None) -> list[int]:
            source = Source("repo", files, Addresses((URL,)), cache=cache)
            (end,) = ask(LocalRunner(1), [Asking(source, CountsOnly(), items, 1)])
            return [each.amount.size_bytes for each in end.classes]

        assert asked(items, cache) == [20]
        read = len(files.names)
        assert [asked([item], cache) for item in items] == [[10], [20]]
        assert len(files.names) == read, "both are in the cache"
        assert [asked([item], None) for item in items] == [[10], [20]]


def test_full_addresses_are_kept_apart_by_the_names_of_a_namespace() -> None:
    """What an address means hangs on where the namespace is known to be."""
    cache = MemoryCache()
    Manifest((Segment("aa", ("x",), 7, 9),)).write(source(cache))
    other = Source("one", NoMetadata(), Addresses(("s3://bucket/other",)), cache=cache)
    assert Manifest.read(other) == Manifest()
