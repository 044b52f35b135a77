"""Storage that another repository shares, under whatever name, is never swept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.errors import (
    FormatError,
    GateRefused,
    LakeplanError,
    ReadOnlyRepository,
    StorageDenied,
    StorageNotFound,
)
from lakeplan.formats.namespace import OWNER_KEY, PROBE_KEY, SWEEPS_PREFIX
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.stores.open import open_sweep_store
from lakeplan.sweep import neighbours
from lakeplan.sweep import run as module
from lakeplan.sweep.neighbours import Probes, check_neighbours, check_site
from lakeplan.sweep.ports import Neighbour, Site
from lakeplan.sweep.records import continue_or_abort
from lakeplan.sweep.run import run_sweep
from lakeplan.values.desired import Override, ServerConfig, Source, StorageConfig
from lakeplan.values.repository import Repository
from lakeplan.values.simulation import Status
from lakeplan.values.sweep import StoreFacts
from tests.sweeping.lake import Lake, LakeRepository
from tests.sweeping.world import SweepWorld

TODAY = date(2026, 11, 22)
OVERRIDE = Override("prod/lake", "unread-neighbours", None, "no data there", TODAY, Source("t.yaml", 1, 1))


READER: Any = None
"""Nobody reads the repository itself here."""


class Bucket(dict[str, bytes]):
    """Everything in one bucket, whatever it is called."""


@dataclass
class Store:
    """A namespace at a prefix of a bucket; ``error`` is what reading it meets."""

    bucket: Bucket
    prefix: str
    url: str
    error: Exception | None = None

    def put(self, key: str, data: bytes) -> None:
        self.bucket[self.prefix + key] = data

    def read(self, key: str) -> bytes:
        if self.error is not None:
            raise self.error
        try:
            return self.bucket[self.prefix + key]
        except KeyError:
            raise StorageNotFound("nothing is there", where=key) from None

    def list_objects(self, prefix: str = "") -> Iterator[str]:
        if self.error is not None:
            raise self.error
        return (key for key in sorted(self.bucket) if key.startswith(self.prefix + prefix))


@dataclass
class Cloud:
    """Endpoints with buckets, and the site of ``s3://bucket/lake`` on server ``prod`` at ``https://one``."""

    buckets: dict[tuple[str | None, str], Bucket] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    listed: list[Repository] = field(default_factory=list)

    def open(self, server: ServerConfig, repository: Repository) -> Any:
        name, _, prefix = repository.storage_namespace.partition("://")[2].partition("/")
        config = server.storages.get(repository.storage_id)
        bucket = self.buckets.setdefault((config.endpoint_url if config else None, name), Bucket())
        namespace = repository.storage_namespace
        error = StorageDenied("access denied", where=namespace) if namespace in self.denied else None
        return Store(bucket, f"{prefix.rstrip('/')}/" if prefix else "", namespace, error)

    def site(self, namespace: str = "s3://bucket/lake", **more: Any) -> Site:
        server, own = at("prod", "https://one"), repository("lake", namespace)
        reader = SimpleNamespace(list_repositories=lambda: iter([own, *self.listed]))
        desired = SimpleNamespace(name="lake", key="prod/lake")
        return Site(desired, server, own, reader, None, self.open(server, own), self.open, **more)  # type: ignore[arg-type]


def at(name: str, endpoint: str) -> ServerConfig:
    return ServerConfig(name, f"https://{name}", storages={"": StorageConfig("s3", endpoint)})


def repository(name: str, namespace: str) -> Repository:
    return Repository(name, namespace, "main")


def neighbour(namespace: str, endpoint: str = "https://two") -> Neighbour:
    return Neighbour(at("dev", endpoint), "dev/copy", repository("copy", namespace), READER)


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


class DescribeServersThatDoNotAnswer:
    def it_refuses_until_an_override_of_the_tree_says_so(self, cloud: Cloud) -> None:
        down = {"server dev": "connection refused"}
        with pytest.raises(GateRefused, match=r"unread-neighbours: .* server dev .*: connection refused"):
            check_neighbours(cloud.site(unread_servers=down), TODAY)
        check_neighbours(cloud.site(unread_servers=down, overrides=(OVERRIDE,)), TODAY)

    @pytest.mark.parametrize("change", [{"repository": "prod/other"}, {"gate": "min-age"}, {"max": 1}])
    def it_takes_no_other_override(self, cloud: Cloud, change: dict[str, Any]) -> None:
        down = {"server dev": "down", "server test": "down"}
        site = cloud.site(unread_servers=down, overrides=(replace(OVERRIDE, **change),))
        with pytest.raises(GateRefused):
            check_neighbours(site, TODAY)

    def it_takes_none_that_has_expired(self, cloud: Cloud) -> None:
        old = replace(OVERRIDE, expires=date(2026, 11, 21))
        with pytest.raises(GateRefused):
            check_neighbours(cloud.site(unread_servers={"server dev": "down"}, overrides=(old,)), TODAY)

    def it_is_what_open_site_finds(self, world: SweepWorld, repo: LakeRepository) -> None:
        world.servers["dev"] = {"endpoint_url": "http://127.0.0.1:9"}
        world.lost = frozenset({"dev"})
        with pytest.raises(GateRefused, match="server dev"):
            world.mark()
        note = {
            "repository": "prod/repo1",
            "gate": "unread-neighbours",
            "reason": "r",
            "expires": "2025-01-01",
        }
        world.overrides = [note]
        world.mark()


class DescribeTheSameBucketByAnotherEndpoint:
    @pytest.mark.parametrize("namespace", ["s3://bucket/lake", "s3a://bucket/lake", "s3://bucket"])
    def it_is_recognised_by_what_is_written_there(self, cloud: Cloud, namespace: str) -> None:
        cloud.buckets["https://one", "bucket"] = cloud.buckets["https://two", "bucket"] = Bucket()
        with pytest.raises(LakeplanError, match=r"dev/copy .*another name") as refused:
            check_neighbours(cloud.site(neighbours=(neighbour(namespace),)), TODAY)
        assert not isinstance(refused.value, GateRefused)

    def it_is_recognised_when_it_is_nested(self, cloud: Cloud) -> None:
        shared = cloud.buckets["https://one", "bucket"] = cloud.buckets["https://two", "bucket"] = Bucket()
        inside = neighbour("s3://bucket/lake/data/inner")
        check_neighbours(cloud.site(neighbours=(inside,)), TODAY)
        shared["lake/data/inner/_lakefs/dummy"] = b""
        with pytest.raises(LakeplanError, match="dev/copy has its storage namespace inside"):
            check_neighbours(cloud.site(neighbours=(inside,)), TODAY)

    def it_is_another_bucket_where_nothing_is_found(self, cloud: Cloud) -> None:
        check_neighbours(cloud.site(neighbours=(neighbour("s3://bucket/lake"),)), TODAY)

    def it_is_not_known_where_it_cannot_be_read(self, cloud: Cloud) -> None:
        other = neighbour("s3://bucket/lake/")
        cloud.denied.add("s3://bucket/lake/")
        with pytest.raises(GateRefused, match="dev/copy has data in this storage: access denied"):
            check_neighbours(cloud.site(neighbours=(other,)), TODAY)
        check_neighbours(cloud.site(neighbours=(other,), overrides=(OVERRIDE,)), TODAY)

    @pytest.mark.parametrize(
        ("own", "other"),
        [
            ("s3://bucket/lake", "s3://bucket/lake/"),
            ("https://one.blob.core.windows.net/c/lake", "https://two.blob.core.windows.net/c/lake"),
        ],
    )
    def it_is_not_known_either_if_both_repositories_have_the_same_name(
        self, cloud: Cloud, own: str, other: str
    ) -> None:
        """Nor if only the account differs, which may be the same storage too."""
        cloud.denied.add(other)
        there = Neighbour(at("dev", "https://two"), "dev/lake", repository("lake", other), READER)
        with pytest.raises(GateRefused, match="dev/lake has data in this storage: access denied"):
            check_neighbours(cloud.site(own, neighbours=(there,)), TODAY)

    def it_is_certain_also_if_both_repositories_have_the_same_name(self, cloud: Cloud) -> None:
        there = repository("lake", "s3://bucket/lake")
        other = Neighbour(at("dev", "https://one"), "dev/lake", there, READER)
        with pytest.raises(LakeplanError, match="dev/lake has the same storage namespace"):
            check_neighbours(cloud.site(neighbours=(other,), overrides=(OVERRIDE,)), TODAY)

    def it_is_certain_where_the_endpoint_is_the_same(self, cloud: Cloud) -> None:
        other = neighbour("s3://bucket/lake/x", "https://one")
        with pytest.raises(LakeplanError, match="dev/copy has its storage namespace inside"):
            check_neighbours(cloud.site(neighbours=(other,), overrides=(OVERRIDE,)), TODAY)

    def it_is_recognised_under_any_name_when_one_command_marks_both(self, cloud: Cloud) -> None:
        """Neither expects the other there, but what was written into the second is in the first."""
        cloud.buckets["https://one", "bucket"] = cloud.buckets["https://two", "alias"] = Bucket()
        other = neighbour("s3://alias/lake")
        first, probes = cloud.site(neighbours=(other,)), Probes()
        second = replace(
            first,
            desired=SimpleNamespace(name="copy", key="dev/copy"),  # type: ignore[arg-type]
            server=other.server,
            repository=other.repository,
            store=cloud.open(other.server, other.repository),
            neighbours=(),
        )
        for site in (first, second):
            probes.write(site)
        with pytest.raises(LakeplanError, match="dev/copy shares this storage under another name"):
            check_neighbours(first, TODAY, probes=probes)

    def it_is_recognised_when_what_was_there_before_was_read_already(self, cloud: Cloud) -> None:
        """The first mark of the command read the place of the second before the second could write there."""
        cloud.listed = [repository("copy", "s3://alias/lake"), repository("first", "s3://first/lake")]
        cloud.buckets["https://one", "bucket"] = cloud.buckets["https://one", "alias"] = Bucket()
        site, probes = cloud.site(), Probes()
        own = cloud.listed[1]
        first = replace(
            site,
            desired=SimpleNamespace(name="first", key="prod/first"),  # type: ignore[arg-type]
            repository=own,
            store=cloud.open(site.server, own),
        )
        check_neighbours(first, TODAY, probes=probes)
        with pytest.raises(LakeplanError, match="copy shares this storage under another name"):
            check_neighbours(site, TODAY, probes=probes)

    def it_does_not_ask_places_that_cannot_be_the_same(self, cloud: Cloud) -> None:
        cloud.denied.add("s3://other/lake")
        check_neighbours(cloud.site(neighbours=(neighbour("s3://other/lake"),)), TODAY)


class DescribeTheSameServer:
    def it_is_inspected_by_one_run_at_a_time(self, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
        site, probes = cloud.site(), Probes()
        put = site.store.put

        def replaced(key: str, data: bytes) -> None:
            put(key, b"of another run")

        monkeypatch.setattr(site.store, "put", replaced)
        with pytest.raises(LakeplanError, match="another run is inspecting this namespace") as caught:
            check_neighbours(site, TODAY, probes=probes)
        assert caught.value.where == "prod/lake: s3://bucket/lake"

    def it_is_listed_once_for_all_repositories(self, cloud: Cloud) -> None:
        cloud.listed = [repository("inner", "s3://bucket/lake/inner")]
        check_neighbours(cloud.site(), TODAY, listed=[])
        with pytest.raises(LakeplanError, match="inner has its storage namespace inside"):
            check_neighbours(cloud.site(), TODAY)
        with pytest.raises(LakeplanError, match="inner has its storage namespace inside"):
            check_neighbours(cloud.site(), TODAY, listed=iter(cloud.listed))

    def it_recognises_a_bucket_by_its_second_name(self, cloud: Cloud) -> None:
        cloud.buckets["https://one", "bucket"] = cloud.buckets["https://one", "bucket-alias"] = Bucket()
        cloud.listed = [repository("copy", "s3://bucket-alias/lake")]
        with pytest.raises(LakeplanError, match="repository copy shares this storage under another name"):
            check_neighbours(cloud.site(), TODAY)

    def it_reads_a_fresh_file_not_one_that_was_copied_with_the_bucket(self, cloud: Cloud) -> None:
        cloud.listed = [repository("copy", "s3://replica/lake")]
        site = cloud.site()
        check_neighbours(site, TODAY)
        cloud.buckets["https://one", "replica"].update(cloud.buckets["https://one", "bucket"])
        assert f"lake/{PROBE_KEY}" in cloud.buckets["https://one", "replica"]
        check_neighbours(site, TODAY)

    def it_refuses_a_lakefs_folder_at_any_ancestor(self, cloud: Cloud) -> None:
        site = cloud.site("s3://bucket/a/b/lake")
        check_neighbours(site, TODAY)
        cloud.buckets["https://one", "bucket"]["a/_lakefs/dummy"] = b""
        with pytest.raises(LakeplanError, match="namespace at s3://bucket/a, which contains"):
            check_neighbours(site, TODAY)
        cloud.denied.add("s3://bucket/a")
        check_neighbours(site, TODAY)


def folders(root: Path) -> Callable[[ServerConfig, Repository], Any]:
    def opened(server: ServerConfig, repository: Repository) -> Any:
        return open_sweep_store(str(root / repository.storage_namespace.removeprefix("local://")))

    return opened


@pytest.mark.parametrize(
    ("link", "target", "how"),
    [
        ("alias", "lake", "has the same folder under another path"),
        ("alias", "lake/data", "has its folder inside this repository's folder"),
        ("alias", ".", "has a folder that contains this repository's folder"),
        ("alias", "other", ""),
    ],
)
@pytest.mark.parametrize("same_server", [True, False])
def it_resolves_links_of_folders(tmp_path: Path, link: str, target: str, how: str, same_server: bool) -> None:
    for name in ("lake/data", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / link).symlink_to(tmp_path / target)
    cloud, opened = Cloud(), folders(tmp_path)
    other = repository("copy", f"local://{link}")
    cloud.listed = [other] if same_server else []
    site = cloud.site(
        "local://lake", neighbours=() if same_server else (Neighbour(at("dev", ""), "copy", other, READER),)
    )
    site = replace(site, open_store=opened, store=opened(site.server, site.repository))
    if not how:
        check_neighbours(site, TODAY)
        return
    with pytest.raises(LakeplanError, match=how):
        check_neighbours(site, TODAY)


@pytest.mark.parametrize("inner", ["data/inner", "data/a/b", "data"])
def it_refuses_a_namespace_below_its_data_that_nobody_lists(
    world: SweepWorld, repo: LakeRepository, inner: str
) -> None:
    folder = repo.folder / inner / "_lakefs"
    folder.mkdir(parents=True)
    (folder / "dummy").write_bytes(b"")
    with pytest.raises(FormatError, match=f"inside that of this repository, at {inner}"):
        world.mark()


@pytest.mark.parametrize("linked", [True, False])
def it_refuses_a_folder_inside_a_namespace_that_no_url_shows(
    world: SweepWorld, repo: LakeRepository, tmp_path: Path, linked: bool
) -> None:
    """Either the namespace is a link that leads into it, or the storage's own path is."""
    outer = tmp_path / "outer" if linked else world.lake.folder.parent
    (outer / "_lakefs").mkdir(parents=True)
    if linked:
        repo.folder.rename(outer / "inner")
        repo.folder.symlink_to(outer / "inner")
    world.mark()  # an empty folder is no namespace
    (outer / "_lakefs" / "dummy").write_bytes(b"")
    with pytest.raises(LakeplanError, match=f"namespace at {outer}, which contains this repository's"):
        world.mark()


class DescribeRepositoriesOfOtherServers:
    """Their imports may hold full addresses into the namespace that is swept."""

    @pytest.fixture
    def elsewhere(self, world: SweepWorld, repo: LakeRepository, tmp_path: Path) -> Iterator[LakeRepository]:
        lake = Lake(tmp_path / "elsewhere", world.lake.clock)
        credentials = Credentials(Secret(lake.handle.access_key_id), Secret(lake.handle.secret_access_key))
        server = {"endpoint_url": lake.handle.endpoint_url}
        world.servers["dev"] = server
        world.readers["dev"] = LakeFSServer.connect(
            ServerConfig("dev", lake.handle.endpoint_url), credentials
        )
        yield lake.repository("copies")
        lake.close()

    def it_keeps_what_they_hold(
        self, world: SweepWorld, repo: LakeRepository, elsewhere: LakeRepository
    ) -> None:
        first, second = sorted(world.going(world.mark()))
        elsewhere.stage("a.bin", f"local://repo1/{first}")
        elsewhere.commit()
        mark = world.mark()
        assert world.kept(mark) == {first: "protected"}
        elsewhere.stage("b.bin", f"local://repo1/{second}")
        elsewhere.commit()
        world.sweep_of(mark)
        assert {first, second} <= repo.stored()

    def it_keeps_what_one_holds_that_is_made_while_the_sweep_runs(
        self, world: SweepWorld, repo: LakeRepository, elsewhere: LakeRepository
    ) -> None:
        world.marker.rows = 1
        mark = world.mark()
        world.approve(mark)
        world.sweeper.parts_a_round = 1

        def import_the_rest(number: int) -> None:
            if number == 1:
                newer = elsewhere.lake.repository("newer")
                for address in repo.stored() & world.going(mark).keys():
                    newer.stage("a.bin", f"local://repo1/{address}")
                    newer.commit()

        world.sweeper.after_round = import_the_rest
        end = world.run(mark)
        assert (end.amount(Status.DELETED).objects, end.amount(Status.SAVED).objects) == (1, 1)

    @pytest.mark.parametrize("before_round", [True, False])
    def it_stops_when_one_is_created_in_the_namespace_while_the_sweep_runs(
        self, world: SweepWorld, repo: LakeRepository, before_round: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.marker.rows = 1
        mark = world.mark()
        world.approve(mark)
        world.sweeper.parts_a_round = 1
        shared = "repository restored has its storage namespace inside this repository's namespace"
        if before_round:
            check = module.check_site

            def restore_meanwhile(site: Site, today: date) -> None:
                check(site, today)
                world.lake.repository("restored", "local://repo1/data/x")

            monkeypatch.setattr(module, "check_site", restore_meanwhile)
            with pytest.raises(LakeplanError, match=shared):
                world.run(mark)
            assert {*world.going(mark)} <= repo.stored()
            return
        world.sweeper.after_round = lambda number: world.lake.repository("restored", "local://repo1/data/x")
        end = world.run(mark)
        assert (end.amount(Status.DELETED).objects, end.pending.objects) == (1, 1)
        assert shared in end.problem

    def it_stops_when_one_of_their_servers_does_not_answer_any_more(
        self, world: SweepWorld, repo: LakeRepository, elsewhere: LakeRepository
    ) -> None:
        mark = world.mark()
        world.approve(mark)
        site, stored = world.site(), world.stored(mark)
        elsewhere.lake.close()
        with pytest.raises(GateRefused, match="repository of server dev cannot be read"):
            run_sweep(site, stored, world.ports(), world.run_of())
        assert set(world.going(mark)) <= repo.stored()


class DescribeRepositoriesThatAreCreatedDuringARun:
    def site(self, cloud: Cloud, endpoint: str, *namespaces: str) -> Site:
        made = [repository("lake", namespace) for namespace in namespaces]
        reader: Any = SimpleNamespace(list_repositories=lambda: iter(made))
        return cloud.site(other_servers=((at("dev", endpoint), reader),))

    def it_refuses_one_in_the_same_storage(self, cloud: Cloud) -> None:
        neighbours.check_new(self.site(cloud, "https://one", "s3://bucket/other", "s3://elsewhere/lake"))
        with pytest.raises(LakeplanError, match="repository dev/lake has the same storage namespace"):
            neighbours.check_new(self.site(cloud, "https://one", "s3://bucket/other", "s3://bucket/lake"))

    def it_leaves_one_at_another_endpoint_to_the_next_sweep(self, cloud: Cloud) -> None:
        neighbours.check_new(self.site(cloud, "https://two", "s3://bucket/lake"))

    def it_refuses_one_of_its_own_server(self, cloud: Cloud) -> None:
        cloud.listed = [repository("inner", "s3://bucket/lake/inner")]
        with pytest.raises(LakeplanError, match="repository inner has its storage namespace inside"):
            neighbours.check_new(cloud.site())


class DescribeWhatIsCheckedOfASite:
    """By a store in a folder; ``asked`` are the calls for its neighbours."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        calls: list[Any] = []
        monkeypatch.setattr(
            neighbours,
            "check_neighbours",
            lambda *args, listed, probes: calls.append((*args, listed, probes)),
        )
        return calls

    @pytest.fixture
    def site(self, tmp_path: Path) -> Any:
        return SimpleNamespace(
            key="prod/lake",
            repository=SimpleNamespace(read_only=False),
            server=SimpleNamespace(endpoint_url="https://prod"),
            desired=SimpleNamespace(name="lake"),
            store=open_sweep_store(str(tmp_path)),
        )

    def owner(self, site: Any) -> Any:
        return json.loads(site.store.read(OWNER_KEY))

    def it_is_its_neighbours_and_its_owner(self, site: Any, asked: list[Any]) -> None:
        listed, probes = object(), object()
        check_site(site, TODAY, listed=listed, probes=probes)  # type: ignore[arg-type]
        check_site(site, TODAY)
        assert asked == [(site, TODAY, listed, probes), (site, TODAY, None, None)]
        assert self.owner(site) == {"server": "https://prod", "repository": "lake"}

    def it_is_whether_anything_may_be_deleted(self, site: Any, asked: list[Any]) -> None:
        site.repository.read_only = True
        with pytest.raises(ReadOnlyRepository) as caught:
            check_site(site, TODAY)
        assert (caught.value.where, asked) == ("prod/lake", [])

    def it_is_whether_the_store_keeps_what_is_deleted(
        self, site: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        facts = StoreFacts(versioned=False, soft_delete=True)
        monkeypatch.setattr(site.store, "facts", lambda: facts)
        with pytest.raises(LakeplanError, match="soft delete is on") as caught:
            check_site(site, TODAY)
        assert caught.value.where == site.store.url
        assert site.store.is_gone(OWNER_KEY)

    @pytest.mark.parametrize("change", [{"server": "https://copy"}, {"repository": "other"}])
    def it_is_that_no_other_repository_was_there_first(
        self, site: Any, asked: list[Any], change: dict[str, str]
    ) -> None:
        first = {"server": "https://prod", "repository": "lake", **change}
        site.store.put(OWNER_KEY, json.dumps(first).encode())
        with pytest.raises(LakeplanError, match="this namespace belongs to") as caught:
            check_site(site, TODAY)
        named = f"repository {first['repository']} on the server {first['server']}, not to prod/lake"
        assert caught.value.message.endswith(named)
        assert caught.value.where == f"{site.store.url}/{OWNER_KEY}"
        assert self.owner(site) == first

    @pytest.mark.parametrize("data", [b"damaged", b"[]", b"{}", b'{"server": 1, "repository": "lake"}'])
    def it_is_not_known_to_be_its_own_by_a_damaged_record(
        self, site: Any, asked: list[Any], data: bytes
    ) -> None:
        site.store.put(OWNER_KEY, data)
        with pytest.raises(LakeplanError, match="owner cannot be read") as caught:
            check_site(site, TODAY)
        assert caught.value.where == f"{site.store.url}/{OWNER_KEY}"

    def it_has_begun_sweeps_and_refuses_unfinished_ones(
        self, site: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for key in ("m2/begun/part", "m1/begun/part", "m3/results/part", "m3/clock.json"):
            site.store.put(f"{SWEEPS_PREFIX}{key}", b"x")
        assert neighbours.begun_sweeps(site) == ["m1", "m2"]
        summaries: dict[str, Any] = {"m1": "over", "m2": "over"}
        monkeypatch.setattr(neighbours, "read_summary", lambda store, id: summaries[id])
        monkeypatch.setattr(neighbours, "is_over", lambda summary: summary == "over")
        neighbours.check_no_open_sweep(site)
        for unfinished in (None, "running"):
            summaries["m2"] = unfinished
            with pytest.raises(LakeplanError, match="the sweep of mark m2 is not finished") as caught:
                neighbours.check_no_open_sweep(site)
            assert (caught.value.where, caught.value.hint) == ("prod/lake", continue_or_abort("m2"))

    def it_may_have_neighbours_without_metadata_only_by_that_override(self, cloud: Cloud) -> None:
        lacking = replace(OVERRIDE, gate="missing-metadata")
        assert neighbours.may_lack_metadata(cloud.site(overrides=(lacking,)), TODAY)
        assert not neighbours.may_lack_metadata(cloud.site(overrides=(OVERRIDE,)), TODAY)
        assert not neighbours.may_lack_metadata(cloud.site(overrides=(lacking,)), date(2026, 11, 23))


@pytest.mark.parametrize(
    ("namespace", "above"),
    [
        ("s3://bucket/a/b/", ["s3://bucket", "s3://bucket/a"]),
        ("https://account/container/a/b", ["https://account/container", "https://account/container/a"]),
        ("local://a/b", ["local://", "local://a"]),
        ("gs://bucket", []),
    ],
)
def it_looks_at_every_folder_above_that_may_be_a_namespace(namespace: str, above: list[str]) -> None:
    asked: list[str] = []
    empty = SimpleNamespace(list_objects=lambda prefix: iter(()))
    site: Any = SimpleNamespace(
        repository=repository("lake", namespace),
        server=None,
        store=SimpleNamespace(url="s3://x"),
        open_store=lambda _, there: asked.append(there.storage_namespace) or empty,
    )
    neighbours._check_ancestors(site)
    assert asked == above
