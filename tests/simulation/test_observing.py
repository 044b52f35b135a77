from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from lakeplan import limits
from lakeplan.errors import FormatError, SimulationFailed, StorageError
from lakeplan.formats.collector import write_uncommitted
from lakeplan.formats.marks import LISTING, write_part
from lakeplan.formats.namespace import Addresses
from lakeplan.formats.range_arrays import hash_texts, pack_odd
from lakeplan.formats.ranges import write_range
from lakeplan.simulation import listings
from lakeplan.simulation.local import Packet, PacketKind
from lakeplan.simulation.marking import list_into_parts
from lakeplan.simulation.observing import Sightings, Source, fetch, observe, where_of
from lakeplan.simulation.runners import Kind, WorkItem, pack
from lakeplan.simulation.steps import leaves_of
from lakeplan.simulation.table import Code
from lakeplan.values.repository import AddressType, Entry, StoredObject
from tests.simulation.worlds import URL, Files, Range, World, alias, inside, items_of, relative


@dataclass
class Store:
    """Lists ``objects``; of prefixes under ``data/wait`` only when two are listed at the same time."""

    objects: list[StoredObject]
    url: str = "memory://x"
    listed: int = 0
    both: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=10))
    created: dict[str, bytes] = field(default_factory=dict)

    def read(self, key: str) -> bytes:
        return self.created[key]

    def create(self, key: str, data: bytes) -> None:
        self.created[key] = data

    def list_prefixes(self, prefix: str = "") -> list[str]:
        return []

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        if prefix.startswith("data/wait"):
            self.both.wait()
        for one in self.objects:
            rest = one.key.removeprefix(prefix)
            if one.key.startswith(prefix) and (recursive or "/" not in rest):
                self.listed += 1
                yield one


def source_of(store: Store, young_from_us: int = 100) -> Source:
    return Source("r", None, Addresses((store.url,)), store, young_from_us)  # type: ignore[arg-type]


def rows_of(store: Store, item: WorkItem) -> list[tuple[str, int, int]]:
    source, found = source_of(store), []
    for seen in observe(source, item, fetch(source, item)):
        keys = seen.texts(pa.array(range(seen.sizes.size)).to_numpy())[0].to_pylist()
        found += list(
            zip(keys, (seen.sizes & (listings.AT_ONCE - 1)).tolist(), seen.codes.tolist(), strict=True)
        )
    return found


def it_sees_candidates_and_which_are_too_young() -> None:
    store = Store([
        StoredObject("data/p/old", 1, 99),
        StoredObject("data/p/young", 2, 100),
        StoredObject("data/p/\udcff", 3, 1),
        StoredObject("data/p/../q", 4, 1),
    ])  # fmt: skip
    found = rows_of(store, WorkItem(Kind.LISTING, 0, "data/"))
    assert found == [("data/p/old", 1, 1), ("data/p/young", 2, 0), ("data/p/\\xff", 3, 1)]


def it_refuses_a_part_of_a_listing_without_versions() -> None:
    data, digest = write_part({"address": ["data/a"], "size_bytes": [1]}, pa.schema(list(LISTING)[:2]))
    store = Store([], created={"part": data})
    with pytest.raises(FormatError, match="column modified_us is missing"):
        rows_of(store, WorkItem(Kind.LISTED, 0, "part", sort_key=bytes.fromhex(digest)))


def it_lists_the_root_and_what_is_directly_in_data() -> None:
    store = Store([StoredObject(key, 1, 1) for key in ("a", "dummy", "b/c", "data/d", "data/p/e")])
    found = rows_of(store, WorkItem(Kind.ROOT_LISTING, 0, ""))
    assert [key for key, _, _ in found] == ["a", "data/d"]


def it_lists_ahead_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "AT_ONCE", 10)
    monkeypatch.setattr(listings, "LISTED_AHEAD", 20)
    store = Store([StoredObject(f"data/p/{n:03}", 1, 1) for n in range(100)])
    source, item = source_of(store), WorkItem(Kind.LISTING, 0, "data/p/")
    fetched = fetch(source, item)
    assert store.listed == 20
    assert sum(seen.sizes.size for seen in observe(source, item, fetched)) == 100


def listed_parts(store: Store, *prefixes: str) -> list[Packet]:
    (bin_,) = pack([WorkItem(Kind.LISTING, 0, prefix) for prefix in prefixes], 1)
    bins = [Packet(0, 0, 0, PacketKind.BIN, bin_)]
    return list(list_into_parts(bins, leaves_of(()), source=source_of(store), prefix="mark/"))


def it_lists_several_prefixes_of_a_mark_at_the_same_time() -> None:
    store = Store([StoredObject("data/wait1/a", 1, 1), StoredObject("data/wait2/b", 1, 1)])
    (packet,) = listed_parts(store, "data/wait1/", "data/wait2/")
    assert packet.of != PacketKind.ERROR
    assert len(store.created) == 1


def it_marks_no_listing_that_breaks_off() -> None:
    class Broken(Store):
        def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
            yield StoredObject("data/p/a", 1, 1)
            raise StorageError("the listing broke off")

    (packet,) = listed_parts(Broken([]), "data/p/")
    assert packet.of == PacketKind.ERROR


def it_marks_nothing_young_and_nothing_that_it_cannot_write_down() -> None:
    import io

    import pyarrow.parquet as pq

    store = Store([
        StoredObject("data/p/old", 1, 99, '"e"'),
        StoredObject("data/p/young", 2, 100),
        StoredObject("data/p/\udcff", 3, 1),
        StoredObject("data/./q", 4, 1),
    ])  # fmt: skip
    (packet,) = listed_parts(store, "data/")
    assert packet.of != PacketKind.ERROR
    (data,) = store.created.values()
    assert pq.read_table(io.BytesIO(data)).to_pylist() == [
        {"address": "data/p/old", "size_bytes": 1, "version": store.objects[0].version, "modified_us": 99}
    ]


def it_marks_nothing_where_another_repository_is_inside() -> None:
    store = Store([StoredObject("data/p/old", 1, 1), StoredObject("data/other/_lakefs/x", 1, 1)])
    (packet,) = listed_parts(store, "data/")
    assert packet.of == PacketKind.ERROR
    assert store.created == {}


# Ranges: what the codes mean is in ``test_steps`` ------------------------------------------------------


def repository(files: Files, **more: object) -> Source:
    return Source("repo", files, Addresses((URL,)), **more)  # type: ignore[arg-type]


def entries_of(seen: Sightings) -> set[tuple[str, str | None, int, int]]:
    addresses, paths = seen.texts(np.arange(seen.hashes.size))
    assert seen.hashes.tolist() == hash_texts(addresses.to_pylist()).tolist()
    columns = (addresses.to_pylist(), paths.to_pylist(), seen.sizes.tolist(), seen.codes.tolist())
    return set(zip(*columns, strict=True))


def it_gives_a_row_for_each_entry_and_for_each_object_that_one_may_mean() -> None:
    entries = (
        relative("a", "data/1", 1),
        relative("b/x", "other/place", 2),
        inside("b/y", "data/2", 3),
        alias("c", "data/3", 4),
    )
    files = Files()
    (item,), _ = items_of(World([Range(0, 0, -1, entries)]), files)
    held = repository(files, held_prefixes=("b/",))
    (seen,) = observe(held, item, files.files[item.name])
    assert entries_of(seen) == {
        ("data/1", "a", 1, Code.CANDIDATE),
        ("other/place", "b/x", 2, Code.HELD),
        ("data/2", "b/y", 3, Code.HELD_CANDIDATE),
        ("data/3", "c", 4, Code.ALIAS),
    }


def it_takes_nothing_of_a_foreign_range_but_full_addresses_into_the_namespace() -> None:
    entries = (relative("a", "data/1", 1), inside("b", "data/2", 3), alias("c", "data/3", 4))
    files = Files()
    _, (item,) = items_of(World([Range(0, 0, -1, entries, foreign=True)]), files)
    (seen,) = observe(repository(files, target=0), item, item.body)
    assert entries_of(seen) == {("data/2", None, 0, Code.FOREIGN), ("data/3", None, 0, Code.ALIAS)}


def it_says_where_it_reads() -> None:
    source = Source("repo", Files(), Addresses((URL,)))  # type: ignore[arg-type]
    assert where_of(source, WorkItem(Kind.RANGE, 0, "abc")) == "repo: range abc"
    assert where_of(source, WorkItem(Kind.LISTING, 0, "data/p/")) == "repo/data/p/"
    with pytest.raises(SimulationFailed, match="no namespace"):
        source.opened()


def it_refuses_addresses_that_may_mean_far_more_objects_than_they_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A range of 300 KB took 5 GB of memory, and every sweep of the server reads it."""
    monkeypatch.setattr(limits, "ADDRESS_BYTES", 1_000)
    crafted, usual = f"s3://any/{'data/' * 60}x", "s3://any/where/data/p/x"
    source = Source("r", None, Addresses((URL,)), verify_ids=False)  # type: ignore[arg-type]

    def observed(address: str, kind: Kind) -> list[Sightings]:
        entry = Entry("a", address, AddressType.FULL, 1)
        data = {
            Kind.RANGE: lambda: write_range([entry])[1],
            Kind.FOREIGN_RANGE: lambda: pack_odd([(address, AddressType.FULL)]),
            Kind.UNCOMMITTED: lambda: write_uncommitted([address], [0]),
        }[kind]()
        return list(observe(source, WorkItem(kind, 0, "prod/repo2"), data))

    for kind in (Kind.RANGE, Kind.FOREIGN_RANGE, Kind.UNCOMMITTED):
        assert sum(seen.hashes.size for seen in observed(usual, kind)) == 1
        with pytest.raises(FormatError, match="more objects than the limit"):
            observed(crafted, kind)
