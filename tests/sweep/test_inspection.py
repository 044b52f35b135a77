"""What an inspection reads, in which order, and when it is refused: a server and a store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from lakeplan.branches.pins import newest_kept
from lakeplan.errors import (
    GateRefused,
    LakeplanError,
    NotFound,
    PermissionDenied,
    RepositoryNotFound,
    ServerUnreachable,
    StalePlan,
)
from lakeplan.formats.namespace import metadata_key
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import Keep, KeepRules
from lakeplan.simulation.requests import Facts, ForeignRanges
from lakeplan.sweep import inspection as module
from lakeplan.sweep.inspection import (
    Inspection,
    Others,
    all_others,
    inspect_repository,
    marked_on_branches,
    only_new,
    read_others,
    recheck_request,
)
from lakeplan.sweep.ports import HIDDEN, Site
from lakeplan.sweep.records import KNOWN_NOTHING, KnownAtMark
from lakeplan.values import progress
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import BranchRule, Cleared, DesiredRepository, GcDesired, ServerConfig, Source
from lakeplan.values.pins import Kept, pin_name
from lakeplan.values.repository import Branch, Refs, Repository, StoredObject, Tag
from lakeplan.values.rules import NO_RULES, GcRules
from lakeplan.values.simulation import Part, UncommittedRun
from lakeplan.values.sweep import HeldCommit, Hold, SweepSettings
from tests.retention.conftest import draw_refs

NOW = datetime(2022, 3, 31, 12, tzinfo=timezone.utc)
RULES = GcRules(7, {"main": 3})
LAKE = Repository("lake", "s3://bucket/lake", "main")
PICTURE = "main -> a 1 b\n b 2 c\n c 30 d\n d 40"
RUN = UncommittedRun("run", "s3://bucket/lake/_lakefs/run/")
EMPTY = UncommittedRun("run", "")
DESIRED = DesiredRepository("prod", "lake", "lake", None, "", {}, {}, sweep=SweepSettings(margin_seconds=60))


class Store(dict[str, bytes]):
    """A namespace that lakeplan reads under another URL than the server."""

    url = "https://store/lake"

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        return (StoredObject(key, 1, 0) for key in sorted(self, reverse=True) if key.startswith(prefix))

    def stat(self, key: str) -> StoredObject | None:
        return StoredObject(key, 1, 0) if key in self else None


@dataclass
class Server:
    """Reader, preparer and refs of the repository ``lake``. ``rules`` and ``runs`` are answered in turn, the
    last of them for ever. ``errors``: what questions about a branch raise."""

    refs: Refs = field(default_factory=lambda: draw_refs(PICTURE))
    rules: list[GcRules | None] = field(default_factory=lambda: [RULES])
    runs: list[tuple[UncommittedRun, ...]] = field(default_factory=lambda: [(RUN,)])
    pins: tuple[LiveBranch, ...] = ()
    staged: dict[tuple[str, str], str | None] = field(default_factory=dict)
    addresses: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, LakeplanError] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    store: Store = field(default_factory=lambda: Store({"_lakefs/run/b": b"", "_lakefs/run/a": b""}))

    def __post_init__(self) -> None:
        self.store |= {metadata_key(commit.meta_range_id): b"" for commit in self.refs.commits}

    def site(self, **more: Any) -> Site:
        own: Any = {
            "desired": DESIRED,
            "server": ServerConfig("prod", "https://prod", time_zone="Europe/Berlin"),
            "repository": LAKE,
            "reader": self,
            "preparer": self,
            "store": self.store,
            "open_store": None,
            "refs": SimpleNamespace(read=self.read),
        }
        return Site(**(own | more))

    def inspect(self, site: Site | None = None, **more: Any) -> Inspection:
        return inspect_repository(site or self.site(), RULES, now=NOW, **({"before": None} | more))

    def _say(self, call: str, repository: str, branch: str = "") -> None:
        assert repository == "lake"
        self.log.append(f"{call} {branch}".strip())
        if branch in self.errors:
            raise self.errors[branch]

    def read(self, server: str, reader: Any, repository: Repository) -> Refs:
        assert (server, reader, repository) == ("prod", self, LAKE)
        self._say("refs", repository.id)
        return self.refs

    def metadata(self, repository: str) -> dict[str, str]:
        self._say("metadata", repository)
        return self.claims

    def get_gc_rules(self, repository: str) -> GcRules | None:
        self._say("rules", repository)
        return self.rules.pop(0) if len(self.rules) > 1 else self.rules[0]

    def prepare_uncommitted(self, repository: str) -> tuple[UncommittedRun, ...]:
        self._say("prepare", repository)
        return self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]

    def list_branches(self, repository: str) -> list[Branch]:
        self._say("branches", repository)
        return list(self.refs.branches)

    def list_pins(self, repository: str) -> tuple[LiveBranch, ...]:
        self._say("pins", repository)
        return self.pins

    def list_uncommitted(self, repository: str, branch: str) -> Iterator[str]:
        self._say("uncommitted", repository, branch)
        return (path for at, path in self.staged if at == branch)

    def physical_address(self, repository: str, branch: str, path: str) -> str | None:
        assert repository == "lake"
        return self.staged[branch, path]

    def list_addresses(self, repository: str, branch: str) -> list[str]:
        self._say("addresses", repository, branch)
        return self.addresses.get(branch, [])

    def metadata_reader(self, repository: str) -> str:
        return f"reader of {repository}"


def refused(server: Server, kind: type[LakeplanError], match: str, site: Site | None = None) -> LakeplanError:
    with pytest.raises(kind, match=match) as caught:
        server.inspect(site)
    assert type(caught.value) is kind
    return caught.value


def branches(**heads: str) -> Refs:
    return replace(draw_refs(PICTURE), branches=tuple(Branch(*pair) for pair in sorted(heads.items())))


class DescribeFigures:
    """A revert: ``a`` lists the metarange of ``c``. ``d`` lists none."""

    @pytest.fixture
    def found(self) -> Inspection:
        refs = draw_refs(PICTURE)
        own = {"a": "mr-c", "d": ""}
        commits = tuple(replace(c, meta_range_id=own.get(c.id, c.meta_range_id)) for c in refs.commits)
        refs = replace(refs, commits=commits, tags=(Tag("v1", "c"), Tag("v2", "d")))
        rules = KeepRules(RULES, NOW, timezone.utc, 0, protected_tags=("v*",))
        masks = [int(Keep.SERVER), int(Keep.BEFORE), int(Keep.PROTECTED), int(Keep.PROTECTED)]
        return Inspection(rules, (), refs, CommitGraph.from_refs(refs), masks)

    def it_joins_the_commits_of_a_metarange(self, found: Inspection) -> None:
        assert found.metaranges() == {"mr-c": Facts(1 | 16, 3), "mr-b": Facts(32, 2)}

    def it_names_what_keeps_them(self, found: Inspection) -> None:
        facts = {"mr-c": Facts(1 | 16 | 1 << 8, 3), "mr-b": Facts(32, 2)}
        assert found.named_metaranges() == (facts, ("tag v1", "tag v2"))

    def it_counts_only_what_keeps(self, found: Inspection) -> None:
        assert found.kept_metaranges() == {"mr-c"}

    def it_knows_commits_by_their_age(self, found: Inspection) -> None:
        assert found.last_commits() == {0: "d", 1: "c", 2: "b", 3: "a"}
        created = {commit.id: commit.creation_us for commit in found.refs.commits}
        assert found.last_commits_us() == {0: created["d"], 1: created["c"], 2: created["b"], 3: created["a"]}

    def it_joins_prefixes_of_holds_and_of_records(self, found: Inspection) -> None:
        holds = (Hold("prefix", "z/"), Hold("prefix", "old/", until=date(2022, 3, 30)), Hold("branch", "b/"))
        recorded = (HeldCommit("prefix", "a/", ""), HeldCommit("tag", "t/", "c"))
        rules = replace(found.rules, holds=holds, recorded=recorded)
        assert replace(found, rules=rules).held_prefixes == ("a/", "z/")


def it_reads_uncommitted_data_first_then_branches_then_refs_then_the_rules_again() -> None:
    server = Server(addresses={"main": ["data/m", "s3://bucket/lake/data/n", "https://store/lake/data/o"]})
    server.addresses["secret"] = ["data/s"]
    server.pins = (LiveBranch("secret", "c", hidden=True),)
    found = server.inspect(collects=True)
    order = ["metadata", "prepare", "branches", "pins", "addresses main", "addresses secret", "refs", "rules"]
    assert server.log[:4] + sorted(server.log[4:6]) + server.log[6:] == order
    assert found.uncommitted == ("_lakefs/run/a", "_lakefs/run/b")
    assert found.on_branches == {"data/m", "data/n", "data/o", "data/s"}
    assert (found.refs, found.graph.ids) == (server.refs, ["a", "b", "c", "d"])
    tags = DESIRED.safety.protected_tags
    assert found.rules == KeepRules(RULES, NOW, ZoneInfo("Europe/Berlin"), 60, protected_tags=tags)
    assert [bool(mask & Keep.SERVER) for mask in found.masks] == [True, True, True, False]


def it_lists_no_branch_unless_something_never_committed_may_be_deleted() -> None:
    server = Server()
    assert server.inspect().on_branches == frozenset()
    assert server.log == ["metadata", "prepare", "refs", "rules"]


class DescribeRefusals:
    def it_needs_rules(self) -> None:
        error = refused(Server(rules=[None]), LakeplanError, "no GC rules are set")
        assert error.where == "prod/lake"

    def it_needs_the_rules_that_were_read_before(self) -> None:
        error = refused(Server(rules=[GcRules(6, {"main": 3})]), StalePlan, "the GC rules changed")
        assert error.where == "prod/lake"

    def it_reads_nothing_where_the_tree_removes_the_rules(self) -> None:
        server = Server()
        site = server.site(desired=replace(DESIRED, gc=Cleared.CLEAR))
        error = refused(server, GateRefused, "the tree removes the GC rules", site)
        assert (error.where, server.log) == ("prod/lake", [])

    def it_leaves_a_repository_to_the_tree_that_claims_it(self) -> None:
        server = Server(claims={"lakeplan.tree.ours": "", "lakeplan.tree.theirs": ""})
        site = server.site(desired=replace(DESIRED, tree="ours"))
        error = refused(server, GateRefused, "another tree manages this repository: 'theirs'", site)
        assert (error.where, server.log) == ("prod/lake", ["metadata"])
        server.claims = {"lakeplan.tree.ours": ""}
        server.inspect(site)

    def it_says_where_there_are_no_branches(self) -> None:
        server = Server(refs=replace(draw_refs(PICTURE), branches=()))
        assert refused(server, LakeplanError, "no branches").where == "prod/lake"

    def it_keeps_the_place_that_an_error_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def damaged(*args: object) -> None:
            raise LakeplanError("damaged", where="a file")

        monkeypatch.setattr(module, "keep_held", damaged)
        assert refused(Server(), LakeplanError, "damaged").where == "a file"

    def it_needs_every_commit_that_a_tag_names(self) -> None:
        tags = (Tag("v1", "c"), Tag("v2", "new"))
        server = Server(refs=replace(draw_refs(PICTURE), tags=tags))
        error = refused(server, StalePlan, "tag v2 references commit new, which is missing")
        assert error.where == "prod/lake"

    def it_needs_the_metarange_of_a_head_in_the_storage(self) -> None:
        server = Server(refs=branches(dev="b", main="a"))
        server.inspect()
        del server.store[metadata_key("mr-a")]
        error = refused(
            server, LakeplanError, "metarange mr-a of a branch's HEAD is not in this storage location"
        )
        assert error.where == "prod/lake: https://store/lake"

    def it_looks_for_none_where_no_head_has_one(self) -> None:
        refs = draw_refs("main -> a 1")
        server = Server(refs=replace(refs, commits=(replace(refs.commits[0], meta_range_id=""),)))
        server.store.pop(metadata_key(""), None)
        assert server.inspect().kept_metaranges() == set()


class DescribeRunsOfUncommittedData:
    def it_knows_their_files_by_either_url(self) -> None:
        server = Server(runs=[(RUN, UncommittedRun("other", "https://store/lake/x//"))])
        server.store["x/c"] = b""
        assert server.inspect().uncommitted == ("_lakefs/run/a", "_lakefs/run/b", "x/c")

    @pytest.mark.parametrize("namespace", ["s3://bucket/lake", "s3://bucket/lake/", "s3://bucket/X"])
    def it_knows_their_folder_whatever_the_namespace_is_called(self, namespace: str) -> None:
        lake = replace(LAKE, storage_namespace=namespace)
        server = Server(runs=[(UncommittedRun("run", f"{namespace.rstrip('/')}/runs/X"),)])
        server.store |= {"runs/X/a": b"", "runs/Y/b": b""}
        refs = SimpleNamespace(read=lambda *args: server.refs)
        assert server.inspect(server.site(repository=lake, refs=refs)).uncommitted == ("runs/X/a",)

    @pytest.mark.parametrize("location", ["s3://bucket/lakes/run/", "s3://bucket/run/"])
    def it_refuses_a_folder_outside_the_namespace(self, location: str) -> None:
        server = Server(runs=[(UncommittedRun("run", location),)])
        error = refused(server, LakeplanError, f"outside the repository's namespace \\({location}\\)")
        assert error.where == "prod/lake: s3://bucket/lake"

    def it_refuses_a_folder_without_files(self) -> None:
        server = Server(store=Store({"other": b""}))
        error = refused(
            server, LakeplanError, "to s3://bucket/lake/_lakefs/run/, but .* that folder is empty"
        )
        assert error.where == "prod/lake: https://store/lake"

    def it_refuses_a_run_with_fewer_files_than_pages(self) -> None:
        assert Server(runs=[(RUN, RUN)]).inspect().uncommitted == ("_lakefs/run/a", "_lakefs/run/b")
        refused(Server(runs=[(RUN, RUN, RUN)]), LakeplanError, "wrote 3 files .* lists only 2 of them")

    @pytest.mark.parametrize("name", ["_SUCCESS", ".part", "inner/"])
    def it_refuses_a_folder_with_anything_else(self, name: str) -> None:
        server = Server()
        server.store[f"_lakefs/run/{name}"] = b""
        refused(server, LakeplanError, f"that folder contains _lakefs/run/{name}")


class DescribeAnAnswerThatListsNothing:
    """It counts only if nothing is uncommitted where it looked."""

    def it_counts_where_nothing_is_uncommitted(self) -> None:
        server = Server(runs=[(EMPTY,)], refs=branches(dev="b", main="a"))
        assert server.inspect().uncommitted == ()
        asked = ["prepare", "branches", "pins", "uncommitted dev", "uncommitted main"]
        assert sorted(server.log[1:6]) == sorted(asked)
        assert server.log[6:] == ["refs", "rules"]

    def it_asks_again_and_gives_up(self) -> None:
        server = Server(runs=[(EMPTY,), (EMPTY,), (RUN,)], staged={("main", "x"): "s3://bucket/lake/data/x"})
        assert server.inspect().uncommitted == ("_lakefs/run/a", "_lakefs/run/b")
        server.runs, server.log = [(RUN, EMPTY)], []
        error = refused(server, StalePlan, "although branch main has uncommitted changes")
        assert error.where == "prod/lake"
        assert server.log.count("prepare") == module.EMPTY_TRIES
        assert "refs" not in server.log

    @pytest.mark.parametrize(
        ("first", "end", "listed", "counts"),
        [
            (("main", "x"), None, True, False),
            (("main", "y"), None, True, True),
            (("n", ""), None, False, True),
            (("", ""), ("main", "x"), True, True),
            (("", ""), ("main", "y"), True, False),
            (("", ""), ("l", ""), False, True),
            (("a", ""), ("z", ""), True, False),
        ],
    )
    def it_counts_for_what_it_covers(
        self, first: tuple[str, str], end: tuple[str, str] | None, listed: bool, counts: bool
    ) -> None:
        other = UncommittedRun("other", "", ("zz", ""))
        runs = (RUN, UncommittedRun("run", "", first, end), other)
        server = Server(runs=[runs], staged={("main", "x"): "s3://bucket/lake/data/x"})
        if counts:
            server.inspect()
        else:
            refused(server, StalePlan, "branch main")
        assert ("uncommitted main" in server.log) is listed

    @pytest.mark.parametrize("address", [None, "s3://bucket/other/x", "s3://bucket"])
    def it_goes_by_addresses_in_the_namespace(self, address: str | None) -> None:
        server = Server(runs=[(EMPTY,)], staged={("main", "x"): address})
        server.inspect()
        server.staged["main", "y"] = "s3://bucket/lake/data/y"
        refused(server, StalePlan, "branch main")

    def it_does_not_count_where_something_is_uncommitted_on_a_pin(self) -> None:
        server = Server(runs=[(EMPTY,)], staged={("pin", "x"): "s3://bucket/lake/data/x"})
        server.pins = (LiveBranch("pin", "c", hidden=True),)
        refused(server, StalePlan, "branch pin")

    def it_goes_on_after_a_path_that_it_does_not_cover(self) -> None:
        inside = "s3://bucket/lake/data/x"
        staged: dict[tuple[str, str], str | None] = {("main", "a"): inside, ("main", "m"): inside}
        server = Server(runs=[(UncommittedRun("run", "", ("main", "b")),)], staged=staged)
        refused(server, StalePlan, "branch main")

    def it_counts_where_the_branch_was_deleted_meanwhile(self) -> None:
        Server(runs=[(EMPTY,)], errors={"main": NotFound("no branch")}).inspect()

    def it_does_not_count_where_the_branch_may_not_be_read(self) -> None:
        server = Server(runs=[(EMPTY,)], errors={"main": PermissionDenied("denied")})
        refused(server, StalePlan, "branch main")

    def it_fails_with_the_repository(self) -> None:
        server = Server(runs=[(EMPTY,)], errors={"main": RepositoryNotFound("gone")})
        refused(server, RepositoryNotFound, "gone")


class DescribeObjectsOnBranches:
    def it_forgets_a_branch_that_was_deleted_meanwhile(self) -> None:
        server = Server(refs=branches(dev="b", main="a"), addresses={"main": ["data/m"]})
        server.errors["dev"] = NotFound("no branch")
        assert server.inspect(collects=True).on_branches == {"data/m"}

    @pytest.mark.parametrize("error", [RepositoryNotFound("gone"), ServerUnreachable("no answer")])
    def it_reports_why_they_are_unknown(self, error: LakeplanError) -> None:
        assert Server(errors={"main": error}).inspect(collects=True).on_branches is error

    def it_stops_where_branches_have_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_ON_BRANCHES", 3)
        server = Server(refs=branches(dev="b", main="a"), addresses={"main": ["data/a", "data/b"]})
        server.addresses["dev"] = ["data/a"]
        assert server.inspect(collects=True).on_branches == {"data/a", "data/b"}
        server.addresses["dev"] *= 2
        found = server.inspect(collects=True).on_branches
        assert isinstance(found, LakeplanError)
        assert found.message == "in total, the branches contain more objects than the limit of 3"


class DescribeRules:
    PIN = pin_name("0123456789abcdef")

    def server(self, hidden: bool) -> Server:
        refs = draw_refs("main -> a 1 0123456789abcdef\n 0123456789abcdef 30")
        refs = replace(refs, branches=(Branch(self.PIN, "0123456789abcdef"), *refs.branches))
        return Server(refs=refs, pins=(LiveBranch(self.PIN, "0123456789abcdef", hidden=hidden),))

    def rules_of(self, server: Server, before: Any) -> KeepRules:
        source = Source("t.yaml", 1, 1)
        gc = GcDesired(9, (BranchRule("*", True, 20, source, Kept("*", commits=2)),), source)
        stored = GcRules(7, {"main": 3, self.PIN: 50})
        server.rules = [stored]
        safety = replace(DESIRED.safety, protected_tags=("v*",))
        holds = (Hold("branch", "main"),)
        site = server.site(desired=replace(DESIRED, gc=gc, safety=safety, holds=holds))
        held = (HeldCommit("branch", "main", "a"),)
        zones: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "keep_held", lambda *args: held if args == (site, server.refs, NOW) else ())
            patch.setattr(module, "newest_kept", lambda *args: zones.append(args[1]) or newest_kept(*args))
            found = inspect_repository(site, stored, now=NOW, before=before).rules
        assert {*zones} == {ZoneInfo("Europe/Berlin")}
        assert (found.stored, found.holds, found.recorded) == (stored, holds, held)
        assert found.protected_tags == ("v*",)
        assert len(found.newest["main"]) == 2
        assert (self.PIN in found.newest) != (self.PIN in found.pins)
        return found

    def it_leaves_pins_their_entries_in_every_set_of_rules(self) -> None:
        found = self.rules_of(self.server(hidden=True), GcRules(2, {"main": 1}))
        assert found.pins == {self.PIN}
        assert found.expanded == GcRules(9, {"main": 20, self.PIN: 50})
        assert found.before == GcRules(2, {"main": 1, self.PIN: 50})

    def it_takes_no_visible_branch_for_a_pin(self) -> None:
        found = self.rules_of(self.server(hidden=False), NO_RULES)
        assert (found.pins, found.before) == (frozenset(), NO_RULES)
        assert found.expanded == GcRules(9, {"main": 20, self.PIN: 20})

    def it_asks_for_pins_only_if_a_branch_has_the_name_of_one(self) -> None:
        server = Server()
        assert server.inspect().rules.pins == frozenset()
        assert "pins" not in server.log


@dataclass
class World:
    """Servers by name with their repositories, and the metaranges of each; a text or an error instead of one
    is why it cannot be read."""

    servers: dict[str, dict[Repository, Any] | LakeplanError]
    hides: tuple[str, ...] = ()
    log: list[str] = field(default_factory=list)

    def reader(self, name: str) -> Any:
        def list_repositories() -> Iterator[Repository]:
            self.log.append(name)
            answer = self.servers[name]
            if isinstance(answer, LakeplanError):
                raise answer
            return iter(answer)

        def get_repository(id: str) -> None:
            raise PermissionDenied("denied") if name in self.hides else RepositoryNotFound("none")

        return SimpleNamespace(name=name, list_repositories=list_repositories, get_repository=get_repository)

    def metaranges(self, server: str, reader: Any, repository: Repository) -> tuple[str, ...]:
        assert reader.name == server
        self.log.append(f"{server}/{repository.id}")
        answer = self.servers[server][repository]  # type: ignore[index]
        if isinstance(answer, LakeplanError):
            raise answer
        return tuple(answer)

    def metadata(self, server: str, reader: Any, repository: Repository) -> str:
        assert reader.name == server
        return f"reader of {server}/{repository.id}"

    def site(self, name: str = "lake", others: tuple[str, ...] = ("dev",), server: str = "prod") -> Site:
        return Server().site(
            desired=replace(DESIRED, name=name),
            server=ServerConfig(server, ""),
            reader=self.reader(server),
            refs=self,
            other_servers=tuple((ServerConfig(other, ""), self.reader(other)) for other in others),
        )


def ranges(name: str, *ids: str) -> ForeignRanges:
    return ForeignRanges(name, f"reader of {name}", ids)  # type: ignore[arg-type]


COPY = Repository("copy", "s3://bucket/copy", "main")
BARE = Repository("bare", "s3://bucket/bare", "main")
AZURE = Repository("azure", "https://account.blob.core.windows.net/box/azure", "main")


class DescribeOtherRepositories:
    def it_reads_those_of_its_server_and_those_elsewhere_on_the_same_kind_of_storage(self) -> None:
        own = {LAKE: ["m0"], COPY: ["m1", "m2"], BARE: [], AZURE: ["m3"]}
        theirs = replace(LAKE, storage_namespace="s3://theirs/lake")
        world = World({"prod": own, "dev": {AZURE: ["m4"], theirs: ["m5"], BARE: []}})
        kept: list[int] = []
        found = all_others(world.site(), keep=lambda: kept.append(1))
        expected = (ranges("prod/copy", "m1", "m2"), ranges("prod/azure", "m3"), ranges("dev/lake", "m5"))
        assert found == expected
        assert sorted(world.log) == sorted(
            [*("dev", "prod") * 2, "prod/copy", "prod/bare", "prod/azure", "dev/lake", "dev/bare"]
        )
        assert len(kept) == 5

    def it_refuses_a_repository_on_the_same_storage(self) -> None:
        world = World({"prod": {}, "dev": {LAKE: []}})
        with pytest.raises(LakeplanError, match="repository dev/lake has the same storage namespace"):
            all_others(world.site(), keep=lambda: None)

    def it_names_those_that_cannot_be_read(self) -> None:
        bad = PermissionDenied("denied", where="anywhere")
        world = World({"prod": {COPY: bad, BARE: ["m1"]}, "dev": {COPY: bad, LAKE: ["m2"]}})
        (found,) = read_others([world.site()])
        foreign = (ranges("prod/bare", "m1"), ranges("dev/lake", "m2"))
        assert found == Others(foreign, {"copy": "denied", "dev/copy": "denied"})

    def it_refuses_while_one_cannot_be_read(self) -> None:
        world = World({"prod": {COPY: PermissionDenied("denied")}})
        with pytest.raises(GateRefused, match=r"repository copy cannot be read, .*: denied") as caught:
            all_others(world.site(others=()), keep=lambda: None)
        assert caught.value.where == "prod/lake"

    def it_names_servers_that_do_not_answer_and_those_that_may_hide_some(self) -> None:
        servers: Any = {"prod": {LAKE: []}, "dev": ServerUnreachable("down"), "test": {COPY: ["m1"]}}
        world = World(servers, hides=("prod", "test"))
        (found,) = read_others([world.site(others=("dev", "test"))])
        assert isinstance(found, Others)
        assert found.foreign == (ranges("test/copy", "m1"),)
        assert set(found.unreadable) == {"of server dev", HIDDEN, f"{HIDDEN} of server test"}
        assert found.unreadable["of server dev"] == "down"
        assert "denied" in found.unreadable[HIDDEN]

    def it_fails_with_its_own_server(self) -> None:
        error = ServerUnreachable("down")
        with pytest.raises(ServerUnreachable):
            all_others(World({"prod": error, "dev": {}}).site(), keep=lambda: None)

    def it_reads_each_once_for_all_and_gives_everyone_its_own(self) -> None:
        servers: Any = {"prod": {LAKE: ["m0"], COPY: ["m1"]}, "dev": {BARE: ["m2"]}, "test": {}}
        servers["test"] = ServerUnreachable("down")
        world = World(servers, hides=("dev",))
        first, second, third = read_others(
            [world.site("copy", ()), world.site(others=("dev",)), world.site(others=("test",))]
        )
        assert first == Others((ranges("prod/lake", "m0"),), {})
        assert isinstance(second, Others)
        assert second.foreign == (ranges("prod/copy", "m1"), ranges("dev/bare", "m2"))
        assert list(second.unreadable) == [f"{HIDDEN} of server dev"]
        assert third == Others((ranges("prod/copy", "m1"),), {"of server test": "down"})
        assert sorted(world.log) == sorted(["dev", "prod", "test", "prod/copy", "prod/lake", "dev/bare"])


def it_works_with_as_many_threads_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    real, workers = module.ThreadPoolExecutor, list[int]()

    def pool(most: int) -> Any:
        workers.append(most)
        return real(most)

    for place in (module, progress):
        monkeypatch.setattr(place, "ThreadPoolExecutor", pool)
    Server(runs=[(EMPTY,)]).inspect(collects=True)
    read_others([World({"prod": {COPY: ["m1"]}}).site(others=())])
    assert workers == [module.BRANCHES_AT_ONCE] * 2 + [module.REPOSITORIES_AT_ONCE]


def it_leaves_out_what_a_mark_read_of_other_repositories() -> None:
    foreign = (ranges("prod/a", "m1", "m2"), ranges("prod/b", "m1"), ranges("prod/c", "m1"))
    seen = {"prod/a": frozenset({"m1"}), "prod/b": frozenset({"m1"})}
    assert only_new(foreign, seen) == (ranges("prod/a", "m2"), ranges("prod/c", "m1"))


class DescribeRequests:
    """The commits ``a`` to ``c`` are kept, ``d`` is not. The mark read ``a`` and ``d``."""

    SEEN = KnownAtMark(frozenset({"mr-a"}), {"prod/copy": frozenset({"m1"})}, frozenset({"mr-d"}))
    PART = Part("going/part-0.parquet", 1, 1, "0" * 64)

    def request(self, seen: KnownAtMark, marked: tuple[str, ...] = (), *held: str) -> Any:
        server = Server()
        look = server.inspect()
        rules = replace(look.rules, holds=tuple(Hold("prefix", prefix) for prefix in held))
        mark: Any = SimpleNamespace(mark_id="m1", held_prefixes=marked)
        look = replace(look, rules=rules, masks=[1, 1, 1, 0])
        foreign = (ranges("prod/copy", "m1", "m2"),)
        return recheck_request(server.site(), mark, (self.PART,), look, foreign, seen)

    def it_leaves_out_what_the_mark_read(self) -> None:
        found = self.request(self.SEEN)
        assert (found.metaranges, found.other_metaranges) == (("mr-b", "mr-c"), ())
        assert found.foreign == (ranges("prod/copy", "m2"),)
        assert (found.metadata, found.uncommitted) == ("reader of lake", ("_lakefs/run/a", "_lakefs/run/b"))

    def it_reads_everything_for_a_mark_that_may_be_forged(self) -> None:
        found = self.request(KNOWN_NOTHING, (), "legal/")
        assert (found.metaranges, found.other_metaranges) == (("mr-a", "mr-b", "mr-c"), ("mr-d",))
        assert found.held_prefixes == ("legal/",)

    def it_reads_again_what_no_commit_keeps_for_a_prefix_that_is_held_since(self) -> None:
        assert self.request(self.SEEN, ("legal/",), "legal/").other_metaranges == ()
        assert self.request(self.SEEN, ("legal/", "more/"), "legal/").other_metaranges == ()
        assert self.request(self.SEEN, ("legal/",), "legal/", "new/").other_metaranges == ("mr-d",)


class DescribeMarkedObjectsOnBranches:
    def found(self, on_branches: Any, monkeypatch: pytest.MonkeyPatch) -> frozenset[str]:
        site, mark = Server().site(), SimpleNamespace(mark_id="m1", collects=True)
        parts: Any = ["p1", "p2"]
        tables = {"p1": ["data/a", "data/b"], "p2": ["data/c"]}

        def read(store: Any, mark_id: str, part: str) -> pa.Table:
            assert (store, mark_id) == (site.store, "m1")
            return pa.table({"address": tables[part]})

        monkeypatch.setattr(module, "read_marked", read)
        look: Any = SimpleNamespace(on_branches=on_branches)
        return marked_on_branches(site, mark, parts, look)  # type: ignore[arg-type]

    def it_names_those_of_its_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.found(frozenset({"data/a", "data/c", "data/z"}), monkeypatch) == {"data/a", "data/c"}
        assert self.found(frozenset(), monkeypatch) == frozenset()

    @pytest.mark.parametrize(("where", "named"), [(None, "prod/lake"), ("there", "there")])
    def it_fails_where_branches_could_not_be_listed(
        self, monkeypatch: pytest.MonkeyPatch, where: str | None, named: str
    ) -> None:
        with pytest.raises(LakeplanError, match="denied") as caught:
            self.found(LakeplanError("denied", where=where), monkeypatch)
        assert caught.value.where == named


def it_keeps_the_newest_commits_of_each_branch_in_the_zone_of_the_server_but_none_for_a_pin() -> None:
    # b and c: 23:02 and 00:28 UTC, both 30 March in New York
    refs = draw_refs("""
                 -> a 3
                 -> b 0.54 a
        pin main -> c 0.48 b
    """)
    graph, at = CommitGraph.from_refs(refs), Source("lake.yaml", 1, 1)
    rules = tuple(BranchRule("*", True, 9, at, kept) for kept in (Kept("*", commits=2), Kept("*", daily=2)))
    desired = DesiredRepository("prod", "lake", "lake", GcDesired(9, rules, at), "5f", {}, {})
    for zone, expected in (("UTC", "bc"), ("America/New_York", "abc")):
        found = newest_kept(desired, ZoneInfo(zone), graph, frozenset({"pin"}))
        assert {name: "".join(sorted(graph.ids[n] for n in ns)) for name, ns in found.items()} == {
            "main": expected
        }


@pytest.mark.parametrize("may_lack", [True, False])
def it_does_without_metadata_of_other_repositories_only_if_the_tree_says_so(
    monkeypatch: pytest.MonkeyPatch, may_lack: bool
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "may_lack_metadata", lambda *args: asked.append(args) or may_lack)
    site: Any = object()
    inspection: Any = SimpleNamespace(
        rules=SimpleNamespace(as_of=datetime(2026, 3, 2, 12, tzinfo=timezone.utc))
    )
    reader: Any = object()
    foreign = tuple(ForeignRanges(f"prod/{n}", reader, (n,)) for n in "ab")
    found = module.as_overridden(site, foreign, inspection)
    assert found == tuple(replace(other, may_lack=may_lack) for other in foreign)
    assert asked == [(site, date(2026, 3, 2))]
