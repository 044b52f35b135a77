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

from lakeplan.errors import FormatError, StorageDenied
from lakeplan.formats.marks import read_part
from lakeplan.formats.namespace import GC_UNCOMMITTED_PREFIX, metadata_key
from lakeplan.formats.range_arrays import hash_texts
from lakeplan.formats.ranges import read_metarange
from lakeplan.retention.keep import FIRST_BIT, Keep
from lakeplan.simulation import marking
from lakeplan.simulation.inputs import NamespaceMetadata, read_history
from lakeplan.simulation.local import LocalRunner
from lakeplan.simulation.marking import HeldAgain, Marks, StepMarker, mark_class
from lakeplan.simulation.requests import Facts, ForeignRanges, MarkRequest, RecheckRequest
from lakeplan.simulation.runners import LOCAL, Runners
from lakeplan.simulation.segments import Manifest
from lakeplan.simulation.table import Class, pairs_of
from lakeplan.simulation.verdicts import Sighting
from lakeplan.values.simulation import Amount, MarkClass, RunnerChoice
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

    def mark(self, marker: StepMarker, *, staged: bool = True, **more: Any) -> Any:
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
        return marker.mark(replace(request, **more))

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


def it_deletes_neither_of_two_objects_whose_addresses_share_a_hash(tmp_path: Path) -> None:
    """What keeps one of them would be taken for the other's."""
    one = "data/p/one"
    other = path_with_hash(int(hash_texts([one])[0]))
    commits = [Snapshot("kept", 1, (), (entry("k", "data/p/k"),))]
    stored = {key: Stored() for key in (one, other, "data/p/k", "data/p/stray")}
    site = Site(tmp_path, History(commits, {"main": "kept"}, stored, staged=[]))
    marker = StepMarker(lambda *_: nullcontext((LocalRunner(1), RunnerChoice(LOCAL, "requested"))))
    assert site.going(site.mark(marker)) == ["data/p/stray"]


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


OLD, ENTRY, ALIAS = Sighting.OLD, Sighting.ENTRY, Sighting.ALIAS


@pytest.mark.parametrize(
    ("flags", "mask", "expected"),
    [
        (OLD, 0, MarkClass.NEVER_COMMITTED),
        (OLD | Sighting.LISTED | Sighting.CANDIDATE, Keep.BEFORE, MarkClass.NEVER_COMMITTED),
        (OLD | ENTRY, 0, MarkClass.BACKLOG),
        (OLD | ENTRY, Keep.BEFORE, MarkClass.NEWLY_EXPIRED),
        (OLD | ENTRY, Keep.MARGIN | Keep.BEFORE, MarkClass.NEAR_LIMIT),
        (OLD | ENTRY, Keep.EXPANDED, MarkClass.NEAR_LIMIT),
        (OLD | ENTRY | ALIAS, Keep.MARGIN, MarkClass.UNCERTAIN_ADDRESS),
        (OLD | ALIAS, 0, MarkClass.UNCERTAIN_ADDRESS),
        (OLD | ALIAS | Sighting.HELD, 0, MarkClass.PROTECTED),
        (OLD | ENTRY | Sighting.FOREIGN, Keep.MARGIN, MarkClass.PROTECTED),
        (OLD | ENTRY | ALIAS, Keep.PROTECTED, MarkClass.PROTECTED),
        (OLD | ENTRY | Sighting.HELD, Keep.DOCUMENTED | Keep.PROTECTED, MarkClass.AT_RISK),
        (OLD | ENTRY, Keep.SERVER | Keep.DOCUMENTED, None),
        (OLD | ENTRY | Sighting.UNCOMMITTED, 0, None),
        (Sighting.LISTED | Sighting.CANDIDATE, 0, None),
        (ENTRY | ALIAS | Sighting.HELD, Keep.DOCUMENTED, None),
    ],
)
def it_classifies_by_the_first_of_the_reasons_to_keep(flags: int, mask: int, expected: object) -> None:
    assert mark_class(flags, mask) is expected


KEPT_NOW = [Sighting.HELD, Sighting.ALIAS, Sighting.UNCOMMITTED, Sighting.FOREIGN]


def it_looks_at_every_object_of_which_a_mark_or_an_inspection_needs_to_know() -> None:
    asked, again = Marks({}), HeldAgain()
    for kept in (Class(OLD | ENTRY, Keep.SERVER), Class(OLD | ENTRY | Sighting.UNCOMMITTED)):
        assert not asked.wants(kept)
        assert not asked.takes(kept)
    assert asked.wants(Class(OLD))
    assert asked.takes(Class(OLD))
    assert not asked.takes(Class(ENTRY))
    marked = Class(Sighting.MARKED | ENTRY, Keep.MARGIN)
    assert again.wants(marked)
    assert not again.takes(marked)
    assert not again.wants(Class(ENTRY, Keep.SERVER))
    assert again.takes(Class(Sighting.MARKED, Keep.SERVER))
    assert not again.takes(Class(OLD, Keep.SERVER))
    for flag in KEPT_NOW:
        assert again.takes(Class(Sighting.MARKED | flag))
        assert not again.takes(Class(flag))
    assert again.wants(Class(Sighting.UNCOMMITTED))


class DescribeTheParts:
    @pytest.fixture
    def marker(self) -> StepMarker:
        return StepMarker(lambda *_: nullcontext((LocalRunner(1), RunnerChoice(LOCAL, "requested"))))

    @pytest.fixture
    def site(self, tmp_path: Path) -> Site:
        """``a`` and ``b`` expired, ``n`` is in no commit, and ``k`` is kept."""
        old = Snapshot("old", 40, (), (entry("raw/a", "data/p/a", 2), entry("raw/b", "data/p/b", 3)))
        kept = Snapshot("kept", 1, ("old",), (entry("k", "data/p/k"),))
        stored = {"data/p/a": Stored(2), "data/p/b": Stored(3), "data/p/k": Stored(4), "data/p/n": Stored(5)}
        return Site(tmp_path, History([old, kept], {"main": "kept"}, stored, staged=[]))

    def rows(self, site: Site, parts: Any) -> list[dict[str, Any]]:
        parts = [(site.store.read(PREFIX + part.name), part) for part in parts]
        tables = [read_part(data, name=part.name, sha256=part.sha256) for data, part in parts]
        return [row for table in tables for row in table.to_pylist()]

    def it_lists_what_is_older_than_the_limit(self, site: Site, marker: StepMarker) -> None:
        older = NOW - timedelta(days=10)
        assert marker.list_candidates(site.store, PREFIX, older_than=older) == ()
        (part,) = marker.list_candidates(site.store, PREFIX, older_than=older + timedelta(microseconds=1))
        assert part.name.startswith(f"{PREFIX}listing/part-")
        assert (part.rows, part.size_bytes) == (4, 14)

    @pytest.mark.parametrize("folder", ["listing", "going"])
    def it_fails_if_one_cannot_be_written(
        self, site: Site, marker: StepMarker, folder: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create = site.store.create

        def fail(key: str, data: bytes) -> None:
            if f"/{folder}/" in key:
                raise StorageDenied("no permission")
            create(key, data)

        monkeypatch.setattr(site.store, "create", fail)
        with pytest.raises(StorageDenied, match="no permission") as caught:
            site.mark(marker)
        assert caught.value.where == {"listing": site.store.url, "going": PREFIX}[folder]

    def it_says_what_is_known_of_each_object(self, site: Site, marker: StepMarker) -> None:
        marked = site.mark(marker)
        assert {part.name.partition("/")[0] for part in marked.going} == {"going"}
        assert sum(part.size_bytes for part in marked.going) == 10
        assert marked.kept == ()
        assert marked.amounts == {
            MarkClass.BACKLOG: Amount(2, 5),
            MarkClass.NEVER_COMMITTED: Amount(1, 5),
        }
        assert marked.runner == RunnerChoice(LOCAL, "requested")
        stored = site.store.find([f"data/p/{name}" for name in "abn"])
        a, b, n = sorted(self.rows(site, marked.going), key=lambda row: str(row["address"]))
        assert a == {
            "address": "data/p/a",
            "size_bytes": 2,
            "version": stored["data/p/a"].version,
            "modified_us": stored["data/p/a"].modified_us,
            "paths": ["raw/a"],
            "last_commit_id": commit_id("old"),
            "reason": "expired",
            "class": "backlog",
            "last_commit_us": None,
            "kept_by": [],
        }
        assert (b["address"], b["paths"], b["class"]) == ("data/p/b", ["raw/b"], "backlog")
        assert (n["reason"], n["class"], n["paths"], n["last_commit_id"]) == (
            ("never_committed", "never_committed", [], None)
        )

    def it_keeps_what_was_never_committed_unless_it_is_to_be_collected(
        self, site: Site, marker: StepMarker
    ) -> None:
        marked = site.mark(marker, collect_never_committed=False)
        assert site.going(marked) == ["data/p/a", "data/p/b"]
        assert [(row["address"], row["class"]) for row in self.rows(site, marked.kept)] == [
            ("data/p/n", "never_committed")
        ]

    def it_says_when_the_last_commit_was_made_and_what_keeps_an_object(
        self, site: Site, marker: StepMarker
    ) -> None:
        at = next(n for n, id in site.last.items() if id == commit_id("old"))
        site.facts = {
            id: Facts(facts.mask or int(Keep.PROTECTED) | 2 << FIRST_BIT, facts.last)
            for id, facts in site.facts.items()
        }
        marked = site.mark(
            marker,
            last_commits_us={at: 123},
            protectors=("branch b", "tag t"),
            held_prefixes=("raw/b", "no/"),
        )
        kept = {row["address"]: row for row in self.rows(site, marked.kept)}
        assert {key: row["class"] for key, row in kept.items()} == dict.fromkeys(
            ["data/p/a", "data/p/b"], "protected"
        )
        assert kept["data/p/a"]["last_commit_us"] == 123
        assert kept["data/p/a"]["kept_by"] == ["tag t"]
        assert kept["data/p/b"]["kept_by"] == ["hold prefix raw/b", "tag t"]
        assert site.going(marked) == ["data/p/n"]

    def it_has_only_so_many_objects_in_each(
        self, site: Site, marker: StepMarker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(marking, "PART_ROWS", 2)
        monkeypatch.setattr(marking, "PLACES_A_MARK", 1)
        marked = site.mark(marker)
        assert sorted(part.rows for part in marked.going) == [1, 2]
        assert site.going(marked) == ["data/p/a", "data/p/b", "data/p/n"]
        assert [part.name for part in marked.going] == sorted(part.name for part in marked.going)

    def it_has_the_same_objects_however_many_packets_they_came_in(
        self,
        site: Site,
        marker: StepMarker,
        others: tuple[ForeignRanges, ...],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        at = next(n for n, id in site.last.items() if id == commit_id("old"))
        every = {"foreign": others[1:], "last_commits_us": {at: 123}}
        wanted = [self.rows(site, parts) for parts in self.parts_of(site.mark(marker, **every))]
        monkeypatch.setattr(marking, "ROWS_A_PIECE", 1)
        monkeypatch.setattr(marking, "PLACES_A_MARK", 1)
        found = [self.rows(site, parts) for parts in self.parts_of(site.mark(marker, **every))]
        assert [sorted(map(str, rows)) for rows in found] == [sorted(map(str, rows)) for rows in wanted]
        assert [len(rows) for rows in found] == [2, 1]

    def parts_of(self, marked: Any) -> tuple[Any, Any]:
        return marked.going, marked.kept

    def it_names_only_some_paths_of_an_object(
        self, tmp_path: Path, marker: StepMarker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(marking, "MAX_NAMES", 2)
        old = Snapshot("old", 40, (), tuple(entry(f"p{n}", "data/p/a") for n in (3, 1, 2)))
        commits = [old, Snapshot("kept", 1, ("old",))]
        site = Site(tmp_path, History(commits, {"main": "kept"}, {"data/p/a": Stored()}, staged=[]))
        (row,) = self.rows(site, site.mark(marker).going)
        assert row["paths"] == ["p1", "p2"]

    def it_names_only_as_many_as_an_inspection_wants_to_know(self, site: Site, marker: StepMarker) -> None:
        marked = site.mark(marker)
        every = tuple(site.facts)
        again = RecheckRequest(site.store, marked.going, PREFIX, SERVER_URL, site.metadata, (), every)
        assert marker.held_again(again, limit=0) == {"data/p/a"}
        assert marker.held_again(again, limit=1) == {"data/p/a", "data/p/b"}
        assert marker.held_again(again, limit=5) == {"data/p/a", "data/p/b"}
        below = replace(again, metaranges=(), other_metaranges=every, held_prefixes=("raw/b",))
        assert marker.held_again(below, limit=5) == {"data/p/b"}
        assert marker.held_again(replace(below, held_prefixes=()), limit=5) == set()

    def it_reads_nothing_where_there_is_nothing_to_compare(
        self, site: Site, marker: StepMarker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        marked = site.mark(marker)
        every = tuple(site.facts)
        again = RecheckRequest(site.store, marked.going, PREFIX, SERVER_URL, site.metadata, (), every)

        def never(*_: object, **more: object) -> None:
            raise AssertionError("it runs a job")

        monkeypatch.setattr(marking, "_ask", never)
        assert marker.held_again(replace(again, metaranges=()), limit=5) == set()
        assert marker.held_again(replace(again, parts=()), limit=5) == set()

    @pytest.fixture
    def others(self, tmp_path: Path) -> tuple[ForeignRanges, ...]:
        """Two repositories: ``x`` imported ``a`` and an object that may be ``n``, ``y`` imported ``b``."""
        made = []
        for name, entries in (
            ("x", (full("m", f"{SERVER_URL}/data/p/a"), full("n", "s3://elsewhere/data/p/n"))),
            ("y", (full("o", f"{SERVER_URL}/data/p/b"),)),
        ):
            there = Site(tmp_path / name, History([Snapshot("c", 1, (), entries)], {"main": "c"}))
            made.append(ForeignRanges(f"prod/{name}", there.metadata, tuple(there.facts)))
        return tuple(made)

    def it_keeps_what_other_repositories_hold(
        self, site: Site, marker: StepMarker, others: tuple[ForeignRanges, ...]
    ) -> None:
        marked = site.mark(marker, foreign=others, protectors=("tag t",))
        kept = {row["address"]: row for row in self.rows(site, marked.kept)}
        assert {key: (row["class"], row["kept_by"]) for key, row in kept.items()} == {
            "data/p/a": ("protected", ["repository prod/x"]),
            "data/p/b": ("protected", ["repository prod/y"]),
            "data/p/n": ("uncertain_address", ["repository prod/x"]),
        }
        again = RecheckRequest(
            site.store, site.mark(marker).going, PREFIX, SERVER_URL, site.metadata, (), (), others[:1]
        )
        assert marker.held_again(again, limit=5) == {"data/p/a", "data/p/n"}

    def it_names_every_repository_that_has_the_same_range(
        self, site: Site, marker: StepMarker, others: tuple[ForeignRanges, ...]
    ) -> None:
        marked = site.mark(marker, foreign=(others[1], replace(others[1], name="prod/z")))
        (row,) = self.rows(site, marked.kept)
        assert row["kept_by"] == ["repository prod/y", "repository prod/z"]

    def it_names_only_as_many_repositories_as_there_are_bits(
        self,
        site: Site,
        marker: StepMarker,
        others: tuple[ForeignRanges, ...],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(marking, "MAX_VERDICT_BITS", FIRST_BIT + 3)
        for protectors, names in (("p", ("x", "y")), ("pq", ("(others)", "(others)"))):
            marked = site.mark(marker, foreign=others, protectors=tuple(protectors))
            kept = {row["address"]: row["kept_by"] for row in self.rows(site, marked.kept)}
            shown = [f"repository {'prod/' * (len(name) == 1)}{name}" for name in names]
            assert [kept["data/p/a"], kept["data/p/b"]] == [[name] for name in shown]

    def it_hands_what_it_was_given_to_the_reader_of_other_repositories(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given: list[Any] = []
        monkeypatch.setattr(marking, "ForeignReader", lambda *args, verify: given.append((*args, verify)))
        runner, progress, cache = object(), object(), object()
        StepMarker(runner, progress, cache, verify_cache=True)  # type: ignore[arg-type]
        StepMarker(runner, progress)  # type: ignore[arg-type]
        assert given == [(runner, progress, cache, True), (runner, progress, None, False)]

    def it_chooses_a_runner_by_the_rows_that_it_reads(self, site: Site) -> None:
        rows: list[int] = []

        def open_runner(count: int) -> Any:
            rows.append(count)
            return nullcontext((LocalRunner(1), RunnerChoice(LOCAL, "requested")))

        marker = StepMarker(open_runner)
        marked = site.mark(marker)
        again = RecheckRequest(
            site.store, marked.going, PREFIX, SERVER_URL, site.metadata, (), tuple(site.facts)
        )
        marker.held_again(again, limit=5)
        marker.held_again(replace(again, metaranges=(), uncommitted=site.staged), limit=5)
        assert rows == [0, 4 + 3, 3 + 3, 3]
