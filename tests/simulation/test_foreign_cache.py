"""A fact that permits a deletion is read only from a cache that only this user can have written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakeplan.simulation import foreign as module
from lakeplan.simulation.foreign import FolderForeignCache, ForeignFacts, open_foreign_cache

RANGE, OTHER, META = "a" * 64, "b" * 64, "c" * 64
FACTS = ForeignFacts({RANGE: b"packed", OTHER: b""}, {META: (RANGE,)})
REPOSITORY = "prod/lake"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    return {"HOME": str(home / "user")}


@pytest.fixture
def tree(home: Path) -> Path:
    (home / "work" / "tree").mkdir(parents=True)
    return home / "work" / "tree"


@pytest.fixture
def opened(environ: Mapping[str, str], tree: Path) -> FolderForeignCache:
    found = open_foreign_cache(environ, tree)
    assert found is not None
    return found


def file_of(cache: FolderForeignCache) -> Path:
    (path,) = Path(cache.where).glob("*.facts")
    return path


class DescribeAFolderOfTheUsersOwn:
    def it_gives_back_what_was_stored_to_the_next_command(
        self, opened: FolderForeignCache, environ: Mapping[str, str], tree: Path
    ) -> None:
        opened.save(REPOSITORY, FACTS, needed=())
        again = open_foreign_cache(environ, tree)
        assert again is not None
        assert again.load(REPOSITORY) == FACTS
        assert again.load("prod/other") == ForeignFacts()
        assert file_of(again).stat().st_mode & 0o777 == 0o600

    def it_does_not_wait_forever_for_a_process_that_was_stopped_while_it_saved(
        self, opened: FolderForeignCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakeplan.values.own_files.LOCK_SECONDS", 0.1)
        with (Path(opened.where) / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            opened.save(REPOSITORY, FACTS, needed=())
        assert opened.load(REPOSITORY) == ForeignFacts()
        opened.save(REPOSITORY, FACTS, needed=())
        assert opened.load(REPOSITORY) == FACTS

    def it_adds_to_what_others_stored_meanwhile(self, opened: FolderForeignCache) -> None:
        def save(number: int) -> None:
            opened.save(REPOSITORY, ForeignFacts({f"{number:064}": b""}, {}), needed=())

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(save, range(20)))
        assert len(opened.load(REPOSITORY).ranges) == 20

    def it_keeps_what_is_needed_today_when_there_is_too_much(
        self, opened: FolderForeignCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "FILE_BYTES", 2_000)
        many = ForeignFacts({os.urandom(32).hex(): b"" for _ in range(100)}, {})
        many.update(FACTS)
        opened.save(REPOSITORY, many, needed=(META,))
        assert opened.load(REPOSITORY) == ForeignFacts({RANGE: b"packed"}, {META: (RANGE,)})
        assert file_of(opened).stat().st_size < 2_000

    def it_forgets_the_repositories_of_longest_ago(
        self, opened: FolderForeignCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened.save("prod/old", FACTS, needed=())
        os.utime(file_of(opened), (0, 0))
        monkeypatch.setattr(module, "TOTAL_BYTES", file_of(opened).stat().st_size * 3 // 2)
        opened.save("prod/new", FACTS, needed=())
        assert opened.load("prod/old") == ForeignFacts()
        assert opened.load("prod/new") == FACTS

    def it_does_without_where_nothing_can_be_written(
        self, opened: FolderForeignCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*args: object, **named: object) -> None:
            raise OSError(28, "no space left on device")

        monkeypatch.setattr("lakeplan.simulation.cache.new_file", full)
        opened.save(REPOSITORY, FACTS, needed=())
        assert opened.load(REPOSITORY) == ForeignFacts()


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def readable(path: Path) -> None:
    path.chmod(0o640)


def linked(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


class DescribeWhatIsNotTaken:
    @pytest.mark.parametrize("change", [flipped, cut, emptied, readable, linked, a_folder])
    def it_is_a_file_that_is_not_as_it_was_written(
        self, opened: FolderForeignCache, change: Callable[[Path], None]
    ) -> None:
        opened.save(REPOSITORY, FACTS, needed=())
        change(file_of(opened))
        assert opened.load(REPOSITORY) == ForeignFacts()

    def it_is_the_file_of_another_repository(self, opened: FolderForeignCache) -> None:
        opened.save(REPOSITORY, FACTS, needed=())
        path = file_of(opened)
        opened.save("prod/other", FACTS, needed=())
        (other,) = set(path.parent.glob("*.facts")) - {path}
        path.replace(other)
        assert opened.load("prod/other") == ForeignFacts()

    def it_is_what_another_machine_wrote(
        self, opened: FolderForeignCache, environ: dict[str, str], home: Path, tree: Path
    ) -> None:
        """A cache folder that was brought back without the key."""
        opened.save(REPOSITORY, FACTS, needed=())
        environ["XDG_STATE_HOME"] = str(home / "another")
        again = open_foreign_cache(environ, tree)
        assert again is not None
        assert again.where == opened.where
        assert again.load(REPOSITORY) == ForeignFacts()

    def it_is_what_another_version_wrote(
        self, opened: FolderForeignCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened.save(REPOSITORY, FACTS, needed=())
        monkeypatch.setattr(module, "_MAGIC", module._MAGIC.replace(b"0", b"9"))
        assert opened.load(REPOSITORY) == ForeignFacts()


class DescribeWhereThereIsNone:
    def it_is_in_ci(self, environ: dict[str, str], tree: Path) -> None:
        assert open_foreign_cache({**environ, "CI": "true"}, tree) is None

    @pytest.mark.parametrize("name", ["XDG_CACHE_HOME", "XDG_STATE_HOME"])
    @pytest.mark.parametrize("inside", ["work/tree/.cache", "work/.cache"])
    def it_is_inside_a_checkout(
        self, environ: dict[str, str], home: Path, tree: Path, name: str, inside: str
    ) -> None:
        (home / "work" / ".git").mkdir()
        assert open_foreign_cache(environ, tree) is not None
        assert open_foreign_cache({**environ, name: str(home / inside)}, tree) is None

    @pytest.mark.parametrize("folder", ["user/.cache", "user/.cache/lakeplan/foreign", "user/.local/state"])
    @pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
    def it_is_below_a_folder_that_others_can_change(
        self, environ: dict[str, str], home: Path, tree: Path, folder: str, mode: int
    ) -> None:
        assert open_foreign_cache(environ, tree) is not None
        (home / folder).chmod(mode)
        if mode == 0o1777 and folder != "user/.cache/lakeplan/foreign":
            return  # nobody can replace what is ours there
        assert open_foreign_cache(environ, tree) is None

    def it_is_behind_a_link(self, environ: dict[str, str], home: Path, tree: Path) -> None:
        (home / "user").mkdir()
        (home / "away").mkdir(mode=0o700)
        (home / "user" / ".cache").symlink_to(home / "away")
        assert open_foreign_cache(environ, tree) is None

    def it_has_no_home(self, tree: Path) -> None:
        assert open_foreign_cache({}, tree) is None

    def it_has_a_key_that_is_no_key(
        self, opened: FolderForeignCache, environ: dict[str, str], home: Path, tree: Path
    ) -> None:
        (home / "user/.local/state/lakeplan/keys/foreign.key").write_bytes(b"short")
        assert open_foreign_cache(environ, tree) is None
