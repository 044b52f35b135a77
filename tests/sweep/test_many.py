"""Marks of many repositories of one server cost as many times one, and lose nothing by sharing reads."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakeplan.errors import DataGone, SimulationFailed
from lakeplan.simulation.foreign import FolderForeignCache
from lakeplan.simulation.marking import StepMarker
from lakeplan.simulation.runners import Runners
from lakeplan.sweep import mark as module
from lakeplan.values.progress import Silent
from tests.sweeping.lake import Lake, LakeRepository
from tests.sweeping.world import SweepWorld

KEY = b"k" * 32


class Counted:
    """A store that counts its calls."""

    def __init__(self, store: Any, calls: Counter[str]) -> None:
        self._store, self._calls = store, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*args: Any, **more: Any) -> Any:
            self._calls[name] += 1
            return found(*args, **more)

        return call


@pytest.fixture
def cache(tmp_path: Path) -> FolderForeignCache:
    (tmp_path / "facts").mkdir(mode=0o700)
    return FolderForeignCache(tmp_path / "facts", KEY)


@pytest.fixture
def make(world: SweepWorld, cache: FolderForeignCache) -> Callable[[int], list[LakeRepository]]:
    """Makes this many repositories with something to delete, and uses the product's engine in threads."""

    def make(count: int) -> list[LakeRepository]:
        found = [world.lake.repository(f"repo{number}") for number in range(count)]
        for repository in found:
            repository.set_rules(7)
            repository.commit(40, a=f"{repository.name} 1".encode())
            repository.commit(1, a=f"{repository.name} 2".encode())
        world.lake.clock.advance(days=9)
        for repository in found:
            repository.commit(0, b=b"recent")
        world.lake.clock.advance(days=2)
        return found

    return make


@pytest.fixture(autouse=True)
def engine(world: SweepWorld, cache: FolderForeignCache) -> None:
    use(world, cache)


def use(world: SweepWorld, cache: FolderForeignCache | None, *, verify: bool = False) -> None:
    """Gives the world a new marker with this cache, as a new command would."""
    world.marker = StepMarker(Runners("local").open, Silent(), cache, verify_cache=verify)  # type: ignore[assignment]


def marked(world: SweepWorld, count: int) -> tuple[Counter[str], Counter[str]]:
    """Requests to the server, and calls of stores, of one command that marks so many."""
    calls: Counter[str] = Counter()
    world.wrap = lambda store: Counted(store, calls)
    world.lake.handle.faults.forget()
    report = world.mark_all()
    assert not report.failed, report.failed
    assert len(report.marks) == count
    world.wrap = lambda store: store
    asked = Counter(_kind(one.path) for one in world.lake.handle.faults.requests)
    return asked, calls


def _kind(path: str) -> str:
    for kind in ("metadata/object/range", "metadata/object/meta_range", "refs/dump", "gc_rules"):
        if f"/{kind}" in path:
            return kind
    return "other"


class DescribeCosts:
    @pytest.mark.parametrize("is_cached", [True, False])
    def it_asks_twice_as_much_a_repository_at_most_as_for_one_alone(
        self, world: SweepWorld, make: Any, tmp_path: Path, cache: FolderForeignCache, is_cached: bool
    ) -> None:
        alone, alone_calls = self._alone(tmp_path, world)
        use(world, cache if is_cached else None)
        make(16)
        asked, calls = marked(world, 16)
        assert asked.total() <= 2 * 16 * alone.total(), asked
        assert asked["refs/dump"] == 32, "once itself, once for the others"
        assert calls.total() <= 2 * 16 * alone_calls.total(), calls

    def _alone(self, tmp_path: Path, world: SweepWorld) -> tuple[Counter[str], Counter[str]]:
        with other_lake(tmp_path, world) as alone:
            use(alone, None)
            repository = alone.lake.repository("repo0")
            repository.set_rules(7)
            repository.commit(40, a=b"1")
            repository.commit(1, a=b"2")
            alone.lake.clock.advance(days=9)
            repository.commit(0, b=b"recent")
            alone.lake.clock.advance(days=2)
            return marked(alone, 1)

    def it_reads_no_range_twice_and_after_a_commit_only_what_is_new(
        self, world: SweepWorld, make: Any, cache: FolderForeignCache
    ) -> None:
        repositories = make(4)
        first = marked(world, 4)[0]["metadata/object/range"]
        use(world, cache)
        second = marked(world, 4)[0]["metadata/object/range"]
        assert first - second == 12, "three of each that others asked for"
        repositories[0].commit(0, c=b"new")
        use(world, cache)
        assert marked(world, 4)[0]["metadata/object/range"] <= second + 3

    def it_reads_nothing_of_a_repository_where_nothing_is_old_enough(
        self, world: SweepWorld, make: Any
    ) -> None:
        young = world.lake.repository("repo9")
        young.set_rules(7)
        make(0)
        young.upload("a.bin", b"young")
        world.lake.handle.faults.forget()
        report = world.mark_all()
        assert report.skipped == {"prod/repo9": "no object is older than 1d"}
        assert report.exit_code == 0
        paths = [one.path for one in world.lake.handle.faults.requests]
        assert not [path for path in paths if "dump" in path or "metadata" in path or "/gc/" in path]
        assert not list((young.folder / "_lakeplan").glob("marks/*/listing/*"))

    def it_inspects_one_that_has_a_hold_to_write_down_what_it_keeps(self, world: SweepWorld) -> None:
        young = world.lake.repository("repo9")
        young.set_rules(7)
        young.commit(0, a=b"young")
        world.holds = [{"branch": "main", "until": "2030-01-01", "reason": "legal"}]
        assert len(world.mark_all().marks) == 1
        assert list((young.folder / "_lakeplan").glob("holds/*/*.json"))


@contextmanager
def other_lake(tmp_path: Path, world: SweepWorld) -> Iterator[SweepWorld]:
    (tmp_path / "alone").mkdir()
    lake = Lake(tmp_path / "alone" / "lake")
    try:
        yield SweepWorld(tmp_path / "alone", lake)
    finally:
        lake.close()


class DescribeWhatIsImportedMeanwhile:
    """The first repository's object is imported elsewhere while the other repositories are inspected."""

    @pytest.mark.parametrize("importer", [1, 2, 3])
    @pytest.mark.parametrize("at", [1, 2, 3])
    def it_is_kept_whoever_imports_it_and_whenever(
        self, world: SweepWorld, make: Any, importer: int, at: int
    ) -> None:
        repositories = make(3)
        away = world.lake.repository("elsewhere")
        target = repositories[0]
        (expired,) = world.going(world.mark("repo0"))
        inspected = 0

        def import_it() -> None:
            nonlocal inspected
            inspected += 1
            if inspected == at:
                into = away if importer == 3 else repositories[importer]
                into.stage("imported.bin", f"local://{target.name}/{expired}")
                into.commit()

        world.between = import_it
        report = world.mark_all()
        by_name = {mark.repository: mark for mark in report.marks}
        world.between = lambda: None
        assert expired not in world.going(by_name["repo0"])

    def it_is_kept_at_the_next_group(
        self, world: SweepWorld, make: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every group has the others dumped anew."""
        monkeypatch.setattr(module, "GROUP_COMMITS", 0)
        repositories = make(3)
        (expired,) = world.going(world.mark("repo2"))
        inspected = 0

        def import_it() -> None:
            nonlocal inspected
            inspected += 1
            if inspected == 3:
                repositories[0].stage("imported.bin", f"local://repo2/{expired}")
                repositories[0].commit()

        world.between = import_it
        marks = {mark.repository: mark for mark in world.mark_all().marks}
        world.between = lambda: None
        assert world.kept(marks["repo2"])[expired] == "protected"


class DescribeOneStorageForTwo:
    def it_refuses_both_when_both_are_marked(self, world: SweepWorld, make: Any) -> None:
        """Each overwrites the probe of the other."""
        repositories = make(3)
        folder = repositories[2].folder
        shutil.copytree(folder, repositories[0].folder, dirs_exist_ok=True)
        folder.rename(folder.with_name("gone"))
        folder.symlink_to(repositories[0].folder)
        report = world.mark_all()
        assert [mark.repository for mark in report.marks] == ["repo1"]
        assert set(report.failed) == {"prod/repo0", "prod/repo2"}


class DescribeTheCache:
    @pytest.fixture
    def imported(self, world: SweepWorld, make: Any) -> tuple[LakeRepository, str]:
        """A repository that holds the expired object of another by its full address."""
        target, other = make(2)
        (expired,) = world.going(world.mark("repo0"))
        other.stage("imported.bin", f"local://repo0/{expired}")
        other.commit()
        return target, expired

    def it_keeps_the_same_from_an_empty_a_full_and_a_damaged_cache(
        self,
        world: SweepWorld,
        cache: FolderForeignCache,
        imported: tuple[LakeRepository, str],
        tmp_path: Path,
    ) -> None:
        _, expired = imported
        for state in ("empty", "full", "damaged", "rebuilt"):
            if state == "damaged":
                for path in (tmp_path / "facts").glob("*.facts"):
                    data = bytearray(path.read_bytes())
                    data[-5] ^= 1
                    path.write_bytes(data)
            use(world, cache)
            world.lake.handle.faults.forget()
            assert world.kept(world.mark("repo0")) == {expired: "protected"}, state

    def it_takes_nothing_from_a_file_that_another_key_signed(
        self,
        world: SweepWorld,
        cache: FolderForeignCache,
        imported: tuple[LakeRepository, str],
        tmp_path: Path,
    ) -> None:
        """As a CI's cache, or an archive, brings one back."""
        _, expired = imported
        use(world, cache)
        world.mark("repo0")
        facts = cache.load("prod/repo1")
        stranger = FolderForeignCache(tmp_path / "facts", b"s" * 32)
        facts.ranges = dict.fromkeys(facts.ranges, b"")
        facts.metaranges = dict.fromkeys(facts.metaranges, ())
        for path in (tmp_path / "facts").glob("*.facts"):
            path.unlink()
        stranger.save("prod/repo1", facts, needed=())
        assert stranger.load("prod/repo1").ranges
        use(world, cache)
        assert expired not in world.going(world.mark("repo0"))

    @pytest.mark.parametrize("wrong", ["nothing in ranges", "nothing in metaranges", "other entries"])
    def it_is_found_out_when_it_lies(
        self, world: SweepWorld, cache: FolderForeignCache, imported: tuple[LakeRepository, str], wrong: str
    ) -> None:
        use(world, cache)
        world.mark("repo0")
        facts = cache.load("prod/repo1")
        if wrong == "nothing in metaranges":
            facts.metaranges = dict.fromkeys(facts.metaranges, ())
        elif wrong == "nothing in ranges":
            facts.ranges = dict.fromkeys(facts.ranges, b"")
        else:
            facts.ranges = {id: packed and b"other" for id, packed in facts.ranges.items()}
        cache.save("prod/repo1", facts, needed=())
        use(world, cache, verify=True)
        with pytest.raises(SimulationFailed, match="the cached addresses"):
            world.mark("repo0")

    def it_verifies_a_cache_that_is_right(
        self, world: SweepWorld, cache: FolderForeignCache, imported: tuple[LakeRepository, str]
    ) -> None:
        use(world, cache)
        world.mark("repo0")
        use(world, cache, verify=True)
        world.lake.handle.faults.forget()
        assert world.kept(world.mark("repo0")) == {imported[1]: "protected"}
        assert any("metadata/object/range" in one.path for one in world.lake.handle.faults.requests)

    def it_verifies_what_the_cache_says_of_the_repository_that_is_marked_first(
        self, world: SweepWorld, cache: FolderForeignCache, make: Any
    ) -> None:
        """The first mark asks about the others, and those that follow about it."""
        first = make(3)[0]
        first.stage("imported.bin", "local://repo1/data/x")
        first.commit()
        use(world, cache)
        assert not world.mark_all().failed
        facts = cache.load("prod/repo0")
        facts.metaranges = dict.fromkeys(facts.metaranges, ())
        cache.save("prod/repo0", facts, needed=())
        use(world, cache, verify=True)
        failed = world.mark_all().failed
        assert len(failed) == 2
        assert all("the cached addresses" in str(error) for error in failed.values())

    def it_fails_every_mark_that_needs_a_range_that_cannot_be_read(
        self, world: SweepWorld, cache: FolderForeignCache, make: Any
    ) -> None:
        repositories = make(3)
        known = {path for path in (repositories[2].folder / "_lakefs").iterdir() if path.is_file()}
        repositories[2].stage("imported.bin", "local://repo0/data/x")
        repositories[2].commit()
        for path in (repositories[2].folder / "_lakefs").iterdir():
            if path.is_file() and path not in known and path.name != "refs_manifest.json":
                path.write_bytes(path.read_bytes()[:-1] + b"!")
        report = world.mark_all()
        assert not report.marks
        assert len(report.failed) == 3
        assert cache.load("prod/repo2").metaranges == {}


def it_sweeps_beside_a_commit_without_metadata_only_while_the_tree_accepts_that(
    world: SweepWorld, make: Any, cache: FolderForeignCache
) -> None:
    """The sweep reads the file if it is there again. The repository of that commit stays blocked."""
    target, other = make(2)
    (expired,) = world.going(world.mark("repo0"))
    other.stage("imported.bin", f"local://repo0/{expired}")
    commit = other.commit()
    path = other.folder / "_lakefs" / other.call("GET", f"/commits/{commit}").json()["meta_range_id"]
    data = path.read_bytes()
    path.unlink()
    other.delete("imported.bin")
    other.commit()
    use(world, cache)
    report = world.mark_all()
    assert {*report.failed} == {"prod/repo0", "prod/repo1"}
    assert "override missing-metadata" in report.failed["prod/repo0"].hint
    accepted = {"reason": "a lost test", "expires": "2024-04-01"}

    def accepting(gate: str) -> list[dict[str, str]]:
        return [{"repository": name, "gate": gate, **accepted} for name in ("repo0", "repo1")]

    world.overrides = accepting("unread-neighbours")  # reviewed for another reason
    assert {*world.mark_all().failed} == {"prod/repo0", "prod/repo1"}
    world.overrides = overrides = accepting("missing-metadata")
    report = world.mark_all()
    assert {*report.failed} == {"prod/repo1"}
    assert path.name in report.failed["prod/repo1"].where
    (mark,) = report.marks
    assert expired in world.going(mark)
    world.approve(mark)
    world.overrides = []
    with pytest.raises(DataGone):
        world.run(mark)
    world.overrides = overrides
    path.write_bytes(data)
    assert world.finish(world.run(mark))["saved"]["objects"] == 1
    assert expired in target.stored()
