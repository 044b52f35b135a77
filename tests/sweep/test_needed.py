"""Which objects of a mark are needed now: the request, and when it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lakeplan.errors import GateRefused, LakeplanError
from lakeplan.simulation.requests import Facts, ForeignRanges, RecheckRequest
from lakeplan.sweep import inspection as module
from lakeplan.sweep.inspection import Needed, Others, needed_now
from lakeplan.values.simulation import Marked, Part
from tests.memory import MemoryState

NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
SAFEST = NOW - timedelta(minutes=3)
PART = Part("going/part-0.parquet", 1, 1, "0" * 64)
OTHER = Part("going/part-1.parquet", 1, 1, "1" * 64)
MARK: Any = SimpleNamespace(
    mark_id="m1", lists_branches=False, held_prefixes=(), marked=Marked((PART,), (), {})
)
FOREIGN: Any = (ForeignRanges("prod/other", None, ("f1",)),)  # type: ignore[arg-type]


@dataclass
class World:
    """A repository with commits of the metaranges ``m1`` to ``m4``. ``m2`` and ``m4`` are kept."""

    prefixes: tuple[str, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict)
    held: frozenset[str] = frozenset({"data/a"})
    order: list[str] = field(default_factory=list)
    requests: list[tuple[RecheckRequest, int]] = field(default_factory=list)
    on_branches: frozenset[str] = frozenset()
    at: datetime = NOW

    def __post_init__(self) -> None:
        reader = SimpleNamespace(metadata_reader=lambda name: ("reader of", name))
        self.site: Any = SimpleNamespace(
            key="prod/lake",
            desired=SimpleNamespace(name="lake", key="prod/lake"),
            overrides=(),
            repository=SimpleNamespace(storage_namespace="s3://bucket/lake"),
            reader=reader,
            store="store",
        )
        self.ports: Any = SimpleNamespace(now=lambda: self.at, marker=self, state=MemoryState())

    def read_others(self, sites: Any, *, keep: Any) -> Any:
        assert sites == [self.site]
        keep()
        self.order.append("others")
        self.at += timedelta(minutes=1)
        return [Others(FOREIGN, self.unreadable)]

    def read_rules(self, site: Any) -> str:
        assert site is self.site
        return "rules"

    def inspect_repository(
        self, site: Any, stored: str, *, now: datetime, before: Any, collects: bool
    ) -> Any:
        assert (site, stored, now, before) == (self.site, "rules", SAFEST, None)
        assert collects is MARK.lists_branches
        self.order.append("inspect")
        self.at += timedelta(minutes=1)
        facts = dict.fromkeys(("m4", "m3", "m2", "m1"), Facts(0))
        return SimpleNamespace(
            rules=SimpleNamespace(as_of=SAFEST),
            uncommitted=("u1",),
            on_branches=self.on_branches,
            held_prefixes=self.prefixes,
            kept_metaranges=lambda: {"m4", "m2"},
            metaranges=lambda: facts,
        )

    def held_again(self, request: RecheckRequest, *, limit: int) -> frozenset[str]:
        self.order.append("read")
        self.requests.append((request, limit))
        return self.held

    def read_marked(self, store: Any, mark_id: str, part: Part) -> pa.Table:
        assert (store, mark_id) == ("store", "m1")
        return pa.table({"address": {PART: ["data/b", "data/c"], OTHER: ["data/d"]}[part]})

    def check_pins(self, reader: Any, state: Any, repository: str) -> None:
        assert (reader, state, repository) == (self.site.reader, self.ports.state, "prod/lake")
        self.order.append("pins")

    def needed(self, **more: Any) -> Needed:
        keep = lambda: self.order.append("keep")  # noqa: E731
        return needed_now(self.site, MARK, self.ports, now=SAFEST, keep=keep, **more)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(world: World) -> World:
        for name in ("check_pins", "read_others", "read_rules", "inspect_repository", "read_marked"):
            monkeypatch.setattr(module, name, getattr(world, name))
        monkeypatch.setattr(module, "check_new", lambda site: None)
        return world

    return use


def request(**more: Any) -> RecheckRequest:
    return RecheckRequest(
        store="store",  # type: ignore[arg-type]
        parts=(PART,),
        prefix="_lakeplan/marks/m1/",
        storage_namespace="s3://bucket/lake",
        metadata=("reader of", "lake"),  # type: ignore[arg-type]
        uncommitted=("u1",),
        metaranges=("m2", "m4"),
        foreign=FOREIGN,
        **more,
    )


def it_asks_for_the_whole_mark_after_the_other_repositories(use: Any) -> None:
    world = use(World())
    assert world.needed() == Needed(frozenset({"data/a"}), NOW + timedelta(minutes=1))
    assert world.order == ["pins", "keep", "others", "inspect", "keep", "read"]
    assert world.requests == [(request(), module.MOST_NEEDED)]


def it_asks_for_some_parts_and_adds_what_reading_a_branch_needs_of_them(use: Any) -> None:
    world = use(World(on_branches=frozenset({"data/c", "data/d"})))
    assert world.needed().addresses == {"data/a", "data/c"}
    assert world.needed(parts=(OTHER,)).addresses == {"data/a", "data/d"}
    assert [asked.parts for asked, _ in world.requests] == [(PART,), (OTHER,)]


def it_asks_for_the_copies_of_objects_too(use: Any) -> None:
    world = use(World(on_branches=frozenset({"data/b", "copies/data/c", "copies/data/d", "data/d"})))
    assert world.needed(copies="copies/").addresses == {"data/a", "data/b", "copies/data/c"}
    assert world.requests == [(request(copies="copies/"), module.MOST_NEEDED)]


def it_reads_what_nothing_keeps_for_prefixes_that_a_hold_names(use: Any) -> None:
    world = use(World(prefixes=("legal/", "today/")))
    world.needed()
    more = {"held_prefixes": ("legal/", "today/"), "other_metaranges": ("m1", "m3")}
    assert world.requests == [(request(**more), module.MOST_NEEDED)]


def it_refuses_while_another_repository_cannot_be_read(use: Any) -> None:
    world = use(World(unreadable={"other": "no permission", "third": "no network"}))
    with pytest.raises(GateRefused) as caught:
        world.needed()
    assert caught.value.message == (
        "repository other cannot be read, and it may refer to objects in this repository: no permission"
    )
    assert (caught.value.where, bool(caught.value.hint)) == ("prod/lake", True)
    assert world.order == ["pins", "keep", "others"]


def it_refuses_when_more_is_needed_than_one_answer_names(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NEEDED", 2)
    assert use(World(held=frozenset("ab"))).needed().addresses == {"a", "b"}
    with pytest.raises(LakeplanError) as caught:
        use(World(held=frozenset("abc"))).needed()
    assert caught.value.message == "more than 2 marked objects are needed again"
    assert caught.value.where == "prod/lake: mark m1"
    assert caught.value.hint == "Run `lakeplan sweep restore m1 --path PATH` for one path at a time."
