"""What is known of a repository before it is read, and what that may cost."""

from __future__ import annotations

import numpy as np
import pytest

from lakeplan.model.objects import AddressType, Entry
from lakeplan.simulation import sharing
from lakeplan.simulation.addresses import Addresses
from lakeplan.simulation.counting import TOO_MANY
from lakeplan.simulation.reading import Source
from lakeplan.simulation.sharing import Memory, suspects_of
from lakeplan.simulation.work import Kind, WorkItem
from tests.simulation.memory_cache import MemoryCache
from tests.simulation.test_counting import Files, Held, items_of


def held(*names: str) -> list[Held]:
    return [Held(2, 0, 0, (Entry(name, f"data/p/{name}", AddressType.RELATIVE, 1),)) for name in names]


def memory(
    files: Files, cache: MemoryCache | None, items: list[WorkItem], url: str = "s3://bucket/ns"
) -> Memory:
    return Memory(Source("repo", files, Addresses((url,))), (), items, cache)


def told(*hashes: int) -> list[bytes]:
    return [np.array(hashes, "<u8").tobytes()]


class DescribeMemory:
    def it_suspects_what_was_shared_and_what_is_new(self) -> None:
        files, cache = Files(), MemoryCache()
        old = items_of(files, held("a", "b"))
        memory(files, cache, old).remember(told(7, 5))
        (known,) = suspects_of([memory(files, cache, old)])
        assert known is not None
        assert known.tolist() == [5, 7]
        assert files.read == []
        (more,) = suspects_of([memory(files, cache, items_of(files, held("a", "b", "c")))])
        assert more is not None
        assert len(more) == 3
        assert len(files.read) == 1

    @pytest.mark.parametrize("kind", [Kind.LISTING, Kind.ROOT_LISTING, Kind.UNCOMMITTED])
    def it_knows_nothing_where_something_else_than_ranges_has_rows(self, kind: Kind) -> None:
        files, cache = Files(), MemoryCache()
        items = items_of(files, held("a"))
        memory(files, cache, items).remember(told())
        beside = memory(files, cache, [*items, WorkItem(kind, 0, "data/")])
        assert suspects_of([beside]) == (None,)
        before = dict(cache.files)
        beside.remember(told(1))
        assert cache.files == before

    def it_knows_nothing_without_a_cache_or_a_run_before(self) -> None:
        files = Files()
        items = items_of(files, held("a"))
        assert suspects_of([memory(files, None, items), memory(files, MemoryCache(), items)]) == (None, None)

    def it_keeps_nothing_when_too_much_is_shared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        files, cache = Files(), MemoryCache()
        items = items_of(files, held("a"))
        memory(files, cache, items).remember([*told(1), TOO_MANY])
        monkeypatch.setattr(sharing, "MAX_SHARED", 1)
        memory(files, cache, items).remember(told(1, 2))
        assert cache.files == {}

    def it_leaves_what_cannot_be_read_to_the_workers(self) -> None:
        files, cache = Files(), MemoryCache()
        memory(files, cache, items_of(files, held("a"))).remember(told())
        items = items_of(files, held("a", "b"))
        files.files.clear()
        assert suspects_of([memory(files, cache, items)]) == (None,)

    def it_reads_so_much_beforehand_for_all_repositories_together(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files, cache = Files(), MemoryCache()
        memories = []
        for n, new in enumerate(("abc", "ab", "a")):
            url = f"s3://bucket/{n}"
            memory(files, cache, items_of(files, held("x")), url).remember(told())
            memories.append(memory(files, cache, items_of(files, held("x", *new)), url))
        monkeypatch.setattr(sharing, "MAX_CHANGED_BYTES", 3)  # an item of these tests weighs 1
        known = suspects_of(memories)
        assert [None if of_one is None else len(of_one) for of_one in known] == [None, 2, 1]

    def it_tells_how_many_groups_a_region_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        files = Files()
        assert memory(files, MemoryCache(), items_of(files, held("a", "b"))).groups_of_a_region == 1
        versions = [WorkItem(Kind.RANGE, 0, str(n), sort_key=b"a") for n in range(100)]
        assert memory(files, MemoryCache(), versions).groups_of_a_region >= 4
