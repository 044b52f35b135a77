"""What a sweep opens and selects: servers and a tree in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.errors import (
    LakeplanError,
    PermissionDenied,
    RepositoryNotFound,
    ServerUnreachable,
    UsageError,
)
from lakeplan.review.selection import Selection
from lakeplan.sweep import ports as module
from lakeplan.sweep.ports import (
    Neighbour,
    RefsMemory,
    Site,
    approval_key,
    mark_index_key,
    open_site,
    other_servers,
    recorded_marks,
    select,
    select_one,
    why_hidden,
)
from lakeplan.values.desired import DesiredRepository, ServerConfig
from lakeplan.values.repository import Refs, RefsDumpIds, Repository
from tests.memory import MemoryState
from tests.retention.conftest import draw_refs

LAKE = Repository("lake", "s3://bucket/lake", "main")
COPY = Repository("copy", "s3://bucket/copy", "main")
IDS = RefsDumpIds("c1", "b1", "t1")
DOWN = ServerUnreachable("down")


def desired(server: str, name: str, owner: str | None = None) -> DesiredRepository:
    return DesiredRepository(server, name, name, None, "", {}, {}, owner=owner)


@dataclass
class World:
    """Servers by name with their repositories, or why they do not answer, and a tree that names ``exact``
    repositories and has a glob for each of ``globs``."""

    servers: dict[str, list[Repository] | LakeplanError]
    exact: tuple[DesiredRepository, ...] = ()
    globs: tuple[DesiredRepository, ...] = ()

    def __post_init__(self) -> None:
        configs = {name: ServerConfig(name, f"https://{name}") for name in self.servers}
        self.tree: Any = SimpleNamespace(
            servers=configs, overrides=["override"], resolve=self.resolve, find=self.find, globs=self.of
        )
        self.readers: dict[str, Any] = {name: self.reader_of(name) for name in self.servers}
        self.ports: Any = SimpleNamespace(
            reader=self.readers.__getitem__,
            preparer=lambda name: f"preparer of {name}",
            store=lambda server, repository: (server.name, repository),
            refs=RefsMemory(),
        )

    def of(self, server: str) -> list[DesiredRepository]:
        return [glob for glob in self.globs if glob.server == server]

    def resolve(self, server: str, live: Any) -> list[DesiredRepository]:
        names = [d for d in self.exact if d.server == server]
        return names + [desired(server, id) for id in live if self.of(server)]

    def find(self, server: str, name: str) -> DesiredRepository | None:
        return next((d for d in self.exact if (d.server, d.name) == (server, name)), None)

    def reader_of(self, name: str) -> Any:
        def listed() -> Iterator[Repository]:
            answer = self.servers[name]
            if isinstance(answer, LakeplanError):
                raise answer
            return iter(answer)

        def get(id: str) -> Repository:
            return next(one for one in listed() if one.id == id)

        return SimpleNamespace(list_repositories=listed, get_repository=get)

    def select(self, *targets: str, server: str | None = None) -> tuple[list[str], dict[str, LakeplanError]]:
        wanted, failed = select(self.tree, Selection(targets, None, server), self.ports)
        return [d.key for d in wanted], failed


class DescribeRefs:
    """They are read again only when a dump differs."""

    @pytest.fixture
    def reader(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        reader = SimpleNamespace(ids={"lake": IDS, "copy": IDS}, log=[])

        def metadata_reader(id: str) -> str:
            reader.log.append(f"metadata {id}")
            return f"reader of {id}"

        def read(at: Any, id: str, ids: RefsDumpIds, metadata: Any) -> Refs:
            assert (at, metadata) == (reader, f"reader of {id}")
            reader.log.append(f"{id} {ids.commits_meta_range_id}")
            refs = draw_refs("main -> a 1 b\n b 2 c\n c 3 d\n d 4")
            own = {"d": "", "c": "mr-b", "a": ids.commits_meta_range_id}
            commits = (replace(c, meta_range_id=own.get(c.id, c.meta_range_id)) for c in refs.commits)
            return replace(refs, commits=tuple(commits))

        reader.dump_refs = lambda id: reader.ids[id]
        reader.metadata_reader = metadata_reader
        monkeypatch.setattr(module, "read_dump", read)
        return reader

    def it_reads_a_dump_once_for_its_metaranges(self, reader: Any) -> None:
        memory = RefsMemory()
        for _ in range(2):
            assert memory.metaranges("prod", reader, LAKE) == ("c1", "mr-b")
        assert reader.log == ["metadata lake", "lake c1"]
        reader.ids["lake"] = replace(IDS, commits_meta_range_id="zz")
        assert memory.metaranges("prod", reader, LAKE) == ("mr-b", "zz")
        assert reader.log == ["metadata lake", "lake c1", "lake zz"]

    def it_remembers_what_was_read_for_all_refs(self, reader: Any) -> None:
        memory = RefsMemory()
        assert [c.id for c in memory.read("prod", reader, LAKE).commits] == ["a", "b", "c", "d"]
        assert memory.metaranges("prod", reader, LAKE) == ("c1", "mr-b")
        memory.read("prod", reader, LAKE)
        assert reader.log == ["metadata lake", "lake c1", "lake c1"]

    def it_confuses_neither_repositories_nor_servers_nor_a_new_one_of_the_name(self, reader: Any) -> None:
        memory = RefsMemory()
        memory.metaranges("prod", reader, LAKE)
        memory.metaranges("prod", reader, COPY)
        memory.metaranges("dev", reader, LAKE)
        memory.metadata("prod", reader, replace(LAKE, creation_date=7))
        assert reader.log.count("metadata lake") == 3
        assert reader.log.count("lake c1") == 2
        assert "copy c1" in reader.log


class DescribeOpening:
    def it_opens_a_repository_with_its_neighbours(self) -> None:
        world = World({"prod": [COPY, LAKE], "dev": [COPY], "test": DOWN})
        own = desired("prod", "lake")
        site = open_site(own, world.tree, world.ports)
        prod, dev = world.tree.servers["prod"], world.tree.servers["dev"]
        assert site == Site(
            own,
            prod,
            LAKE,
            world.readers["prod"],
            "preparer of prod",  # type: ignore[arg-type]
            ("prod", LAKE),  # type: ignore[arg-type]
            world.ports.store,
            (Neighbour(dev, "dev/copy", COPY, world.readers["dev"]),),
            ((dev, world.readers["dev"]),),
            {"server test": "down"},
            ("override",),  # type: ignore[arg-type]
        )
        assert (site.refs, site.neighbours[0].reader) == (world.ports.refs, world.readers["dev"])

    def it_takes_the_other_servers_that_its_caller_read(self) -> None:
        world = World({"prod": [LAKE], "dev": [COPY]})
        site = open_site(
            desired("prod", "lake"), world.tree, world.ports, lambda server: ([], {"x": server.name})
        )
        assert (site.neighbours, site.other_servers, site.unread_servers) == ((), (), {"x": "prod"})

    def it_refuses_storage_that_cannot_be_swept(self) -> None:
        world = World({"prod": [replace(LAKE, storage_namespace="mem://bucket/lake")]})
        with pytest.raises(LakeplanError, match="cannot sweep mem:// namespaces") as caught:
            open_site(desired("prod", "lake"), world.tree, world.ports)
        assert caught.value.where == "prod/lake"

    def it_reads_every_other_server_whichever_comes_first(self) -> None:
        world = World({"dev": DOWN, "prod": [LAKE], "test": [LAKE, COPY]})
        answered, unread = other_servers(world.tree.servers["prod"], world.tree, world.ports)
        found = [(server.name, reader, [n.name for n in near]) for server, reader, near in answered]
        assert found == [("test", world.readers["test"], ["test/lake", "test/copy"])]
        assert unread == {"server dev": "down"}

    def it_tells_neighbours_by_server_and_repository(self) -> None:
        server = ServerConfig("dev", "https://dev")
        one, same = (Neighbour(server, name, COPY, reader=None) for name in "ab")  # type: ignore[arg-type]
        assert hash(one) == hash(same)
        assert hash(one) != hash(replace(one, repository=LAKE))
        assert hash(one) != hash(replace(one, server=ServerConfig("test", "https://dev")))


class DescribeSelecting:
    EXACT = (desired("prod", "lake"), desired("dev", "lake"))

    def it_selects_what_entries_name_on_every_server(self) -> None:
        world = World({"prod": [LAKE, COPY], "dev": [LAKE]}, self.EXACT)
        assert world.select() == (["prod/lake", "dev/lake"], {})
        assert world.select(server="dev") == (["dev/lake"], {})
        world.globs = (desired("prod", "*"),)
        assert world.select("copy", "dev/lake") == (["prod/copy", "dev/lake"], {})

    def it_refuses_a_selection_of_nothing(self) -> None:
        with pytest.raises(UsageError, match="the selection matches no repository in the tree"):
            World({"prod": [LAKE]}, self.EXACT).select("other")

    def it_fails_what_entries_name_on_a_server_that_does_not_answer(self) -> None:
        world = World({"dev": DOWN, "prod": [LAKE]}, self.EXACT, (desired("dev", "*"),))
        assert world.select() == (["prod/lake"], {"dev/lake": DOWN})
        assert world.select("dev/lake") == ([], {"dev/lake": DOWN})
        assert world.select("prod/lake") == (["prod/lake"], {})

    def it_fails_the_globs_of_a_server_of_which_nothing_else_is_selected(self) -> None:
        globs = (desired("dev", "team-*"), desired("dev", "x-*"), desired("prod", "*"))
        world = World({"dev": DOWN, "prod": [LAKE]}, self.EXACT[:1], globs)
        assert world.select() == (["prod/lake", "prod/lake"], {"dev/team-*": DOWN, "dev/x-*": DOWN})
        assert world.select("prod/lake", "team-*")[1] == {"dev/team-*": DOWN}

    def it_names_what_failed_on_each_of_several_servers(self) -> None:
        globs, other = (desired("dev", "x-*"), desired("test", "y-*")), ServerUnreachable("no answer")
        exact = (self.EXACT[0], desired("far", "lake"), desired("away", "lake"))
        servers: Any = {"dev": DOWN, "test": other, "far": DOWN, "away": other, "prod": [LAKE]}
        failed = {"far/lake": DOWN, "away/lake": other, "dev/x-*": DOWN, "test/y-*": other}
        assert World(servers, exact, globs).select() == (["prod/lake"], failed)

    def it_fails_with_the_server_where_nothing_else_may_be_selected(self) -> None:
        world = World({"dev": DOWN}, (), (desired("dev", "team-*"),))
        with pytest.raises(ServerUnreachable):
            world.select()

    def it_finds_the_entry_of_a_mark(self) -> None:
        slashed = desired("prod", "a/b")
        world = World({"prod": []}, (*self.EXACT, slashed))
        assert select_one(world.tree, "prod/lake") is self.EXACT[0]
        assert select_one(world.tree, "prod/a/b") is slashed
        for name in ("prod/other", "dev/lake", "lake"):
            with pytest.raises(UsageError, match=f"the mark belongs to {name}, which has no entry"):
                select_one(world.tree, name)


class DescribeRecords:
    def it_lists_marks_newest_first_and_nothing_else(self) -> None:
        state = MemoryState()
        keys = [mark_index_key("m1"), mark_index_key("m2"), "sweep/marks/.hidden.json", approval_key("m3")]
        for key in keys:
            state.write(key, b"", if_version=None)
        assert recorded_marks(state) == ["m2", "m1"]

    def it_names_no_record_by_what_is_no_id(self) -> None:
        assert mark_index_key("m1") == "sweep/marks/m1.json"
        assert approval_key("m1") == "sweep/approvals/m1.json"
        for key in (mark_index_key, approval_key):
            with pytest.raises(UsageError, match="is not a mark id"):
                key("../m1")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (RepositoryNotFound("no repository"), ""),
        (
            PermissionDenied("denied"),
            "the server lists only repositories that these credentials may read (denied)",
        ),
        (None, ""),
    ],
)
def it_asks_for_an_unknown_repository_whether_a_server_hides_some(
    answer: LakeplanError | None, why: str
) -> None:
    asked = []

    def get_repository(id: str) -> None:
        asked.append(id)
        if answer is not None:
            raise answer

    reader: Any = SimpleNamespace(get_repository=get_repository)
    assert [why_hidden(reader), why_hidden(reader)] == [why, why]
    assert len({*asked}) == 2
    assert {len(id) for id in asked} == {32}
