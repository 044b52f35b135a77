"""Marks on either runner: what must not be deleted whatever others commit or stage."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lakeplan.errors import FormatError
from lakeplan.formats.marks import read_part
from lakeplan.formats.namespace import GC_UNCOMMITTED_PREFIX, metadata_key
from lakeplan.formats.range_arrays import hash_texts
from lakeplan.formats.ranges import read_metarange
from lakeplan.retention.keep import Keep
from lakeplan.simulation.inputs import NamespaceMetadata, read_history
from lakeplan.simulation.local import LocalRunner
from lakeplan.simulation.marking import StepMarker
from lakeplan.simulation.requests import Facts, MarkRequest, RecheckRequest
from lakeplan.simulation.runners import LOCAL, Runners
from lakeplan.simulation.segments import Manifest
from lakeplan.simulation.table import pairs_of
from lakeplan.values.simulation import RunnerChoice
from tests.simulation.namespaces import (
    NOW,
    SERVER_URL,
    History,
    Snapshot,
    Stored,
    commit_id,
    entry,
    full,
    write_namespace,
)
from tests.sweeping.stores import folder_store

PREFIX = "_lakeplan/marks/one/"
WORD = 1 << 64
SEED, FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9


def unturned(value: int, factor: int) -> int:
    return value * pow(factor, -1, WORD) % WORD


def path_with_hash(target: int) -> str:
    """A path of 16 characters that has this hash: ``range_arrays.hash_spans`` backwards."""
    target ^= target >> 32
    target = unturned(target, SEED)
    target ^= target >> 32
    target = unturned(target, FACTOR)
    draw = random.Random(1)
    while True:
        first = bytes(draw.choices(b"abcdefgh", k=8))
        state = (SEED ^ 16) * FACTOR % WORD
        state = (state ^ int.from_bytes(first, "little")) * FACTOR % WORD
        state ^= state >> 32
        path = first + (state ^ target).to_bytes(8, "little")
        if path.isascii() and path.decode().isprintable() and b"/" not in path:
            return path.decode()


def path_of_the_same_pair(address: str, victim: str, victims_path: str) -> str:
    """A path that gives ``address`` the pair that the victim has at its own path."""
    mine, theirs, path = (int(n) for n in hash_texts([address, victim, victims_path]))
    return path_with_hash(unturned(mine ^ theirs ^ path * SEED % WORD, SEED))


class Site:
    """A namespace in a folder; commits named ``kept…`` are kept for the server, others by nobody."""

    def __init__(self, folder: Path, history: History) -> None:
        write_namespace(folder / "ns", history)
        self.store = folder_store(folder / "ns")
        self.metadata = NamespaceMetadata(self.store)
        graph = read_history(self.store).graph
        names = {bytes.fromhex(id.rstrip("0")).decode(): id for id in graph.ids}
        kept = {id for name, id in names.items() if name.startswith("kept")}
        self.facts = {
            meta: Facts(int(Keep.SERVER) if id in kept else 0, n)
            for n, (id, meta) in enumerate(zip(graph.ids, graph.meta_range_ids, strict=True))
        }
        self.last = dict(enumerate(graph.ids))
        self.staged = tuple(sorted(o.key for o in self.store.list_objects(GC_UNCOMMITTED_PREFIX)))

    def mark(self, marker: StepMarker, *, staged: bool = True) -> Any:
        listing = marker.list_candidates(self.store, PREFIX, older_than=NOW - timedelta(days=1))
        request = MarkRequest(
            self.store,
            PREFIX,
            SERVER_URL,
            self.metadata,
            listing,
            self.staged if staged else (),
            self.facts,
            self.last,
            collect_never_committed=True,
        )
        return marker.mark(request)

    def going(self, marked: Any) -> list[str]:
        parts = [(self.store.read(PREFIX + part.name), part) for part in marked.going]
        tables = [read_part(data, name=part.name, sha256=part.sha256) for data, part in parts]
        return sorted(address for table in tables for address in table["address"].to_pylist())


@pytest.mark.parametrize("attacker_first", [True, False])
def it_keeps_an_object_beside_a_path_that_was_made_to_look_like_its_own(
    runners: Runners, tmp_path: Path, attacker_first: bool
) -> None:
    """Hashes are quick, so a path with a given one is easily made. What a commit that nobody keeps holds at
    such a path must not draw to itself what holds another object."""
    victim, path, mine = "data/p/victim", "tables/part-1", "data/p/mine"
    made = path_of_the_same_pair(mine, victim, path)
    pairs = pairs_of(hash_texts([mine, victim]), hash_texts([made, path]), np.ones(2, np.int64))
    assert pairs[0] == pairs[1]
    old = Snapshot("old", 40, (), (entry(made, mine),))
    kept = Snapshot("kept", 1, ("old",), (entry(path, victim),))
    if not attacker_first:
        old, kept = Snapshot("old", 0.5, ("kept",), old.entries), Snapshot("kept", 1, (), kept.entries)
    stored = {victim: Stored(), mine: Stored(), "data/p/stray": Stored()}
    site = Site(tmp_path, History([old, kept], {"main": "kept", "dev": "old"}, stored, staged=[]))
    marked = site.mark(StepMarker(runners.open))
    assert site.going(marked) == [mine, "data/p/stray"]


@pytest.mark.parametrize("threads", [1, 2])
def it_names_what_was_staged_since_the_mark(threads: int, tmp_path: Path) -> None:
    """What is in a mark has no path, and what is staged has none: read together, they are one row."""
    stored = {f"data/p/{n}": Stored() for n in range(3)}
    commits = [Snapshot("kept", 1, (), (entry("a", "data/p/0"),))]
    site = Site(tmp_path, History(commits, {"main": "kept"}, stored, staged=["data/p/2", "data/p/9"]))
    marker = StepMarker(lambda *_: nullcontext((LocalRunner(threads), RunnerChoice(LOCAL, "requested"))))
    marked = site.mark(marker, staged=False)
    assert site.going(marked) == ["data/p/1", "data/p/2"]
    again = RecheckRequest(site.store, marked.going, PREFIX, SERVER_URL, site.metadata, site.staged, ())
    assert marker.held_again(again, limit=10) == {"data/p/2"}


@pytest.mark.parametrize("threads", [1, 2])
def it_names_copies_that_are_held_by_their_own_address(threads: int, tmp_path: Path) -> None:
    copies = "_lakeplan/quarantine/m/"
    held = (entry("a", f"{copies}data/p/1"), full("b", f"{SERVER_URL}/{copies}data/p/2"))
    stored = {f"data/p/{n}": Stored() for n in range(5)}
    staged = [f"{copies}data/p/3"]
    site = Site(tmp_path, History([Snapshot("kept", 1, (), held)], {"main": "kept"}, stored, staged=staged))
    marker = StepMarker(lambda *_: nullcontext((LocalRunner(threads), RunnerChoice(LOCAL, "requested"))))
    marked = site.mark(marker)
    metaranges = tuple(site.facts)
    again = RecheckRequest(
        site.store, marked.going, PREFIX, SERVER_URL, site.metadata, site.staged, metaranges, copies=copies
    )
    assert marker.held_again(again, limit=10) == {f"{copies}data/p/{n}" for n in (1, 2, 3)}
    assert marker.held_again(replace(again, copies=""), limit=10) == set()


class DescribeAMarkByWhatWasRead:
    @pytest.fixture
    def site(self, tmp_path: Path) -> Site:
        stored = {f"data/p/{n}": Stored() for n in range(3)}
        old = Snapshot("old", 40, (), (entry("a", "data/p/0"),))
        kept = Snapshot("kept", 1, ("old",), (entry("b", "data/p/1"),))
        return Site(tmp_path, History([old, kept], {"main": "kept"}, stored, staged=[]))

    def it_reads_no_segment(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        def never(*args: object) -> object:
            raise AssertionError("a mark reads ranges themselves")

        for name in ("read", "write", "useful"):
            monkeypatch.setattr(Manifest, name, never)
        assert site.going(site.mark(StepMarker(Runners(LOCAL).open))) == ["data/p/0", "data/p/2"]

    def it_refuses_a_range_under_the_name_of_another(self, site: Site, tmp_path: Path) -> None:
        """All checksums of blocks match, but it would let an object of HEAD expire."""
        ranges = [
            info.id
            for id in site.facts
            for info in read_metarange(site.metadata.read_metadata("meta_range", id), name="m")
        ]
        first, second = (tmp_path / "ns" / metadata_key(id) for id in ranges)
        second.write_bytes(first.read_bytes())
        with pytest.raises(FormatError, match="id"):
            site.mark(StepMarker(Runners(LOCAL).open))


@pytest.mark.parametrize("hidden_by", ["what is staged", "an entry without a path's hash"])
def it_names_what_is_held_again_beside_an_address_of_the_same_hash(hidden_by: str, tmp_path: Path) -> None:
    """Whoever may stage objects can make addresses with the hash of another. Such a one has no path either:
    its text must not be all that is read of that hash."""
    victim = "data/p/victim"
    mine = path_with_hash(int(hash_texts([victim])[0]))
    assert hash_texts([mine])[0] == hash_texts([victim])[0]
    old = Snapshot("old", 40, (), (entry("a", victim),))
    entries = (entry("t/1", victim),)
    staged = [mine]
    if hidden_by != "what is staged":
        entries, staged = (*entries, entry(path_with_hash(0), mine)), []
    new = Snapshot("new", 1, ("old",), tuple(sorted(entries, key=lambda one: one.path)))
    site = Site(tmp_path, History([old, new], {"main": "new"}, {victim: Stored()}, staged=staged))
    newest = [id for id, facts in site.facts.items() if site.last[facts.last] == commit_id("new")]
    site.facts = {id: facts for id, facts in site.facts.items() if id not in newest}
    marker = StepMarker(lambda *_: nullcontext((LocalRunner(1), RunnerChoice(LOCAL, "requested"))))
    marked = site.mark(marker, staged=False)
    assert site.going(marked) == [victim]
    again = RecheckRequest(
        site.store, marked.going, PREFIX, SERVER_URL, site.metadata, site.staged, tuple(newest)
    )
    assert victim in marker.held_again(again, limit=10)


def it_says_which_version_was_listed_of_an_object_at_a_path_without_a_hash(tmp_path: Path) -> None:
    """Its entry and what is listed are one pair: a sweep would take the object for a changed one."""
    old = Snapshot("old", 40, (), (entry(path_with_hash(0), "data/p/0"),))
    new = Snapshot("kept", 1, ("old",))
    site = Site(tmp_path, History([old, new], {"main": "kept"}, {"data/p/0": Stored()}, staged=[]))
    marker = StepMarker(lambda *_: nullcontext((LocalRunner(1), RunnerChoice(LOCAL, "requested"))))
    [part] = site.mark(marker).going
    table = read_part(site.store.read(PREFIX + part.name), name=part.name, sha256=part.sha256)
    [stored] = site.store.find(["data/p/0"]).values()
    assert table["version"].to_pylist() == [stored.version]


def it_says_how_large_an_object_is_stored_whatever_its_entry_says(tmp_path: Path) -> None:
    old = Snapshot("old", 40, (), (entry("a", "data/p/0", (1 << 63) - 1),))
    new = Snapshot("kept", 1, ("old",))
    site = Site(tmp_path, History([old, new], {"main": "kept"}, {"data/p/0": Stored(7)}, staged=[]))
    marker = StepMarker(lambda *_: nullcontext((LocalRunner(1), RunnerChoice(LOCAL, "requested"))))
    assert [part.size_bytes for part in site.mark(marker).going] == [7]
