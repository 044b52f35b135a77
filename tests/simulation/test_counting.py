"""The two steps of counting against dictionaries, without Spark: split as finely as can be."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeplan.errors import StorageNotFound
from lakeplan.formats import range_arrays, ranges
from lakeplan.formats.range_writer import write_range
from lakeplan.model.objects import AddressType, Entry
from lakeplan.ports.range_cache import RangeCache
from lakeplan.simulation import counting, digests, listed, sharing, work
from lakeplan.simulation.addresses import Addresses
from lakeplan.simulation.blocks import Question
from lakeplan.simulation.counting import Bins, Counting, count_objects, fold_bins, unpack_objects
from lakeplan.simulation.pieces import from_bytes
from lakeplan.simulation.reading import Source
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.sharing import Memory, suspects_of
from lakeplan.simulation.work import Kind, WorkItem, pack, unpack
from tests.simulation.memory_cache import MemoryCache

URL = "s3://bucket/ns"
CANDIDATE = int(Seen.ENTRY | Seen.CANDIDATE)


class Files:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.read: list[str] = []

    def read_metadata(self, kind: str, id: str) -> bytes:
        self.read.append(id)
        if id not in self.files:
            raise StorageNotFound("is not there", where=id)
        return self.files[id]


@dataclass(frozen=True)
class Held:
    """A range: what lists it, and what it holds."""

    mask: int
    last: int
    holders: int
    entries: tuple[Entry, ...]


@dataclass
class Found:
    """Per address, where it was seen, its verdicts, holders, last commit, greatest size and paths."""

    seen: int = 0
    mask: int = 0
    last: int = -1
    size: int = 0
    holders: frozenset[int] = frozenset()
    paths: frozenset[str] = frozenset()


def items_of(files: Files, held: Sequence[Held]) -> list[WorkItem]:
    items = []
    for each in held:
        info, data = write_range(sorted(each.entries, key=lambda e: e.path.encode()))
        files.files[info.id] = data
        items.append(
            WorkItem(Kind.RANGE, 0, info.id, 1, each.mask, each.last, each.holders, sort_key=info.min_key)
        )
    return items


def expected(held: Sequence[Held], name: Callable[[str], object] = str) -> dict[object, Found]:
    found: dict[object, Found] = defaultdict(Found)
    for each in held:
        for entry in each.entries:
            one = found[name(entry.address)]
            one.seen |= CANDIDATE
            one.mask |= each.mask
            one.last = max(one.last, each.last)
            one.size = max(one.size, entry.size)
            one.paths |= {entry.path}
            if each.holders >= 0:
                one.holders |= {each.holders}
    return found


def run(
    files: Files,
    bins: Sequence[bytes],
    *questions: Question,
    partitions: int = 1,
    cache: RangeCache | None = None,
) -> tuple[dict[tuple[object, ...], tuple[int, int]], list[dict[str, object]]]:
    """Amounts by class, and the rows of what goes."""
    source = Source("repo", files, Addresses((URL,)))
    places = tuple(range(partitions))
    memory = Memory(source, questions, [item for packed in bins for item in unpack(packed)], cache)
    suspects = suspects_of([memory])
    told: list[bytes] = []
    asked = Counting(
        (source,), (tuple(questions),), False, (partitions,), places, cache, tell_shared=memory.is_kept
    )
    numbers = pa.RecordBatch.from_arrays([pa.array(range(len(bins)), pa.int64())], ["id"])
    pieces = list(fold_bins([numbers], Bins(tuple(bins), suspects), asked))
    classes: dict[tuple[object, ...], tuple[int, int]] = defaultdict(lambda: (0, 0))
    going: list[dict[str, object]] = []
    for place in places:
        mine = [piece for piece in pieces if piece["partition"][0].as_py() == place]
        for batch in count_objects(mine, asked):
            for row in batch.to_pylist():
                if row["shared"] is not None:
                    told.append(row["shared"])
                if row["counts"] is None:
                    going += from_bytes(row["objects"]).to_pylist()
                    continue
                for *each, holders, objects, size in json.loads(row["counts"])["classes"]:
                    key = (*each, tuple(holders))
                    before = classes[key]
                    classes[key] = (before[0] + objects, before[1] + size)
    memory.remember(told)
    return dict(classes), going


def amounts(found: dict[object, Found]) -> dict[tuple[object, ...], tuple[int, int]]:
    classes: dict[tuple[object, ...], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for one in found.values():
        key = (one.seen, one.mask, 0, tuple(sorted(one.holders)))
        classes[key] = (classes[key][0] + 1, classes[key][1] + one.size)
    return dict(classes)


held_entries = st.lists(
    st.builds(
        Entry,
        st.sampled_from(["a/1", "a/2", "b/x/3", "c", "d/ü"]),
        st.sampled_from([f"data/p/{n}" for n in range(9)]),
        st.just(AddressType.RELATIVE),
        st.integers(0, 2**40),
    ),
    unique_by=lambda e: e.path,
    max_size=5,
)
held_ranges = st.lists(
    st.builds(Held, st.integers(0, 7), st.integers(-1, 5), st.integers(-1, 3), held_entries.map(tuple)),
    min_size=1,
    max_size=9,
    unique_by=lambda h: tuple(sorted((e.path, e.address, e.size) for e in h.entries)),
)
QUESTIONS = st.lists(st.builds(Question, st.sampled_from([0, 1]), st.sampled_from([2, 4, 6])), max_size=2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(held_ranges, QUESTIONS, st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_every_object_is_counted_once_and_what_goes_has_its_texts(
    monkeypatch: pytest.MonkeyPatch,
    held: list[Held],
    questions: list[Question],
    partitions: int,
    parallelism: int,
    finely: bool,
) -> None:
    if finely:
        monkeypatch.setattr(counting, "MAX_ROWS", 3)
        monkeypatch.setattr(counting, "ROWS_A_PIECE", 2)
        monkeypatch.setattr(work, "GROUP_RANGES", 2)
    files, cache, found = Files(), MemoryCache(), expected(held)
    bins = pack(items_of(files, held), parallelism)
    for turn in ("no cache", "empty cache", "full cache", "damaged cache"):
        if turn == "damaged cache":
            cache.damage()
        files.read.clear()
        classes, going = run(
            files, bins, *questions, partitions=partitions, cache=None if turn == "no cache" else cache
        )
        assert classes == amounts(found), turn
        expired = {str(a): f for a, f in found.items() if any(q.goes(f.mask) for q in questions)}
        assert {row["address"] for row in going} == set(expired), turn
        assert len(going) == len(expired)
        for row in going:
            one = expired[str(row["address"])]
            assert (row["seen"], row["mask"], row["size"]) == (one.seen, one.mask, one.size)
            assert row["last"] == (one.last if one.last >= 0 else None)
            assert frozenset(row["paths"]) == one.paths
            assert len(row["paths"]) == len(one.paths)
        if turn == "full cache":
            assert files.read == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data(), held_ranges, QUESTIONS, st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_a_history_that_changes_is_counted_as_if_nothing_had_been_known(
    monkeypatch: pytest.MonkeyPatch,
    data: st.DataObject,
    held: list[Held],
    questions: list[Question],
    partitions: int,
    parallelism: int,
    finely: bool,
) -> None:
    """Ranges come and go, and verdicts change, from run to run over one cache."""
    monkeypatch.setattr(counting, "MAX_SHARED", data.draw(st.sampled_from([0, 3, 1_000])))
    monkeypatch.setattr(sharing, "MAX_SHARED", counting.MAX_SHARED)
    monkeypatch.setattr(sharing, "MAX_CHANGED_BYTES", data.draw(st.sampled_from([0, 2, 1_000])))
    if finely:
        monkeypatch.setattr(counting, "MAX_ROWS", 3)
        monkeypatch.setattr(work, "GROUP_RANGES", 2)
    files, cache = Files(), MemoryCache()
    for _ in range(3):
        there = data.draw(st.lists(st.sampled_from(held), min_size=1, unique_by=id))
        now = [replace(one, mask=data.draw(st.integers(0, 7))) for one in there]
        found = expected(now)
        bins = pack(items_of(files, now), parallelism)
        classes, going = run(files, bins, *questions, partitions=partitions, cache=cache)
        assert classes == amounts(found)
        expired = {str(a) for a, f in found.items() if any(q.goes(f.mask) for q in questions)}
        assert sorted(str(row["address"]) for row in going) == sorted(expired)


def it_sends_nothing_on_that_stands_in_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    files, cache = Files(), MemoryCache()
    held = [
        Held(2 * (n % 2), n, 0, (Entry(p, f"data/p/{n}{p}", AddressType.RELATIVE, 1), SHARED[p]))
        for n, p in enumerate("ababc")
    ]
    bins = pack(items_of(files, held), 2)
    classes, going = run(files, bins, Question(0, 2), cache=cache)
    sent: list[int] = []
    real = counting.pack_rows
    monkeypatch.setattr(counting, "pack_rows", lambda rows, of: sent.append(len(rows)) or real(rows, of))
    again, going_again = run(files, bins, Question(0, 2), cache=cache)
    assert again == classes
    assert sorted(map(str, going_again)) == sorted(map(str, going))
    # what "a" and "b" both hold, once for each
    assert sum(sent) == 2


SHARED = {
    "a": Entry("az", "data/p/both", AddressType.RELATIVE, 1),
    "b": Entry("bz", "data/p/both", AddressType.RELATIVE, 1),
    "c": Entry("cz", "data/p/c alone", AddressType.RELATIVE, 1),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(held_ranges, st.integers(1, 3), st.integers(1, 4))
def test_addresses_with_one_hash_may_keep_each_other_and_delete_nothing(
    monkeypatch: pytest.MonkeyPatch, held: list[Held], partitions: int, parallelism: int
) -> None:
    whole_spans, whole_texts = ranges.hash_spans, digests.hash_texts

    def spans(*arguments):  # type: ignore[no-untyped-def]
        hashes, plain = whole_spans(*arguments)
        return hashes & 0xC000000000000000, plain

    monkeypatch.setattr(ranges, "hash_spans", spans)
    monkeypatch.setattr(range_arrays, "hash_spans", spans)
    for module in (listed, digests):
        monkeypatch.setattr(module, "hash_texts", lambda texts: whole_texts(texts) & 0xC000000000000000)
    files, question = Files(), Question(0, 2)
    bins = pack(items_of(files, held), parallelism)
    cache = MemoryCache()
    _, first = run(files, bins, question, partitions=partitions, cache=cache)
    _, going = run(files, bins, question, partitions=partitions, cache=cache)
    assert sorted(str(row["address"]) for row in first) == sorted(str(row["address"]) for row in going)
    merged = expected(held, lambda address: int(whole_texts([address])[0]) >> 62)
    for row in going:
        address = str(row["address"])
        assert question.goes(merged[int(whole_texts([address])[0]) >> 62].mask)
        assert question.goes(expected(held)[address].mask)
    kept = {a for a, f in expected(held).items() if not question.goes(f.mask)}
    assert kept.isdisjoint({row["address"] for row in going})


def it_reads_only_new_ranges_when_a_commit_was_added() -> None:
    files, cache = Files(), MemoryCache()
    first = Held(2, 0, 0, (Entry("a", "data/p/1", AddressType.RELATIVE, 1),))
    run(files, pack(items_of(files, [first]), 2), Question(0, 2), cache=cache)
    more = Held(2, 1, 0, (Entry("b", "data/p/2", AddressType.RELATIVE, 1),))
    items = items_of(files, [first, more])
    files.read.clear()
    run(files, pack(items, 2), Question(0, 2), cache=cache)
    assert files.read == [items[1].name]


def it_takes_regions_that_did_not_change_whole_from_the_cache() -> None:
    files, cache = Files(), MemoryCache()
    versions = [
        Held(2, n, 0, (Entry(first, f"data/p/{first}{n}", AddressType.RELATIVE, 1),))
        for first in "ab"
        for n in range(3)
    ]
    run(files, pack(items_of(files, versions), 2), Question(0, 2), cache=cache)
    more = Held(2, 3, 0, (Entry("b", "data/p/b3", AddressType.RELATIVE, 1),))
    items = items_of(files, [*versions, more])
    cache.got.clear()
    classes, _ = run(files, pack(items, 2), Question(0, 2), cache=cache)
    assert classes == amounts(expected([*versions, more]))
    got = {name.rsplit("/")[-1] for name in cache.got}
    assert not got & {f"{item.name}.numbers" for item in items[:3]}
    assert got >= {f"{item.name}.numbers" for item in items[3:]}


def it_reads_a_range_again_when_other_rows_of_it_go() -> None:
    files, cache = Files(), MemoryCache()
    one, two = (Entry(p, f"data/p/{p}", AddressType.RELATIVE, 1) for p in "ab")
    old, new = Held(0, 0, -1, (one, two)), Held(2, 1, -1, (two,))
    items = items_of(files, [old, new])
    _, going = run(files, pack(items, 1), Question(0, 2), cache=cache)
    assert [row["address"] for row in going] == ["data/p/a"]
    gone = [items[0], replace_mask(items[1])]
    _, going = run(files, pack(gone, 1), Question(0, 2), cache=cache)
    assert sorted(str(row["address"]) for row in going) == ["data/p/a", "data/p/b"]


def replace_mask(item: WorkItem) -> WorkItem:
    return item._replace(mask=0)


def it_answers_with_the_error_of_what_cannot_be_read() -> None:
    files = Files()
    items = items_of(files, [Held(0, 0, -1, (Entry("a", "data/p/1", AddressType.RELATIVE, 1),))])
    files.files.clear()
    source = Source("repo", files, Addresses((URL,)))
    asked = Counting((source,), ((),), False, (1,), (0,))
    batch = pa.RecordBatch.from_arrays([pa.array([0], pa.int64())], ["id"])
    (row,) = [
        r
        for b in count_objects(fold_bins([batch], Bins(tuple(pack(items, 1)), (None,)), asked), asked)
        for r in b.to_pylist()
    ]
    assert "is not there" in json.loads(row["counts"])["error"]


def it_never_takes_one_namespaces_digest_for_anothers() -> None:
    """The same file in three namespaces: its full address is an object of one of them only."""
    files, cache = Files(), MemoryCache()
    entry = Entry("a", f"{URL}/data/p/1", AddressType.FULL, 7)
    items = items_of(files, [Held(0, 0, -1, (entry,))])
    found = {}
    for url in (URL, "s3://bucket/other", "s3://bucket/third"):
        for _ in range(2):
            source = replace(Source("repo", files, Addresses((URL,))), addresses=Addresses((url,)))
            asked = Counting((source,), ((Question(0, 2),),), False, (1,), (0,), cache)
            batch = pa.RecordBatch.from_arrays([pa.array([0], pa.int64())], ["id"])
            counted = list(
                count_objects(fold_bins([batch], Bins(tuple(pack(items, 1)), (None,)), asked), asked)
            )
            going = unpack_objects(b for b in counted if b["objects"][0].is_valid)
            found[url] = [row["address"] for b in going for row in b.to_pylist()]
    assert found == {URL: ["data/p/1"], "s3://bucket/other": [], "s3://bucket/third": []}
