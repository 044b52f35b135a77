from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeplan.errors import StorageError
from lakeplan.stores.open import SweepStore, open_sweep_store
from lakeplan.values.sweep import Deletion, Versions
from tests.stores.sweep_store_contract import Put, SweepStoreContract, keys_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "a namespace"
    folder.mkdir()
    return folder


@pytest.fixture
def store(root: Path) -> SweepStore:
    return open_sweep_store(root.as_uri())


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder next to the namespace, with one file."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_bytes(b"precious")
    return folder


def delete(store: SweepStore, *keys: str) -> list[Deletion]:
    return store.delete(keys, versions=Versions.MARKER)


class DescribeFolderStore(SweepStoreContract):
    @pytest.fixture
    def missing(self, tmp_path: Path) -> SweepStore:
        return open_sweep_store((tmp_path / "nowhere").as_uri())

    @pytest.fixture
    def put(self, root: Path) -> Put:
        def store(key: str, data: bytes) -> None:
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        return store

    def it_leaves_folders_alone_that_it_emptied_or_was_given(self, root: Path, store: SweepStore) -> None:
        (root / "data/empty").mkdir(parents=True)
        (root / "data/full").mkdir()
        (root / "data/full/x").write_bytes(b"1")
        assert all(answer.deleted for answer in delete(store, "data/empty", "data/full/x", "data"))
        assert (root / "data/empty").is_dir()
        assert (root / "data/full").is_dir()

    def it_never_deletes_through_links_out_of_the_folder(
        self, root: Path, outside: Path, store: SweepStore
    ) -> None:
        (root / "to-folder").symlink_to(outside)
        (root / "to-file").symlink_to(outside / "precious")
        answers = delete(
            store, "to-folder/precious", "to-file", "../outside/precious", "x/../../outside/precious"
        )
        assert not any(answer.deleted for answer in answers)
        assert all(answer.reason and not answer.transient for answer in answers)
        assert (outside / "precious").read_bytes() == b"precious"
        assert (root / "to-file").is_symlink()

    def it_never_deletes_another_key_s_object_through_a_linked_folder(
        self, root: Path, store: SweepStore
    ) -> None:
        (root / "data").mkdir()
        (root / "data/x").write_bytes(b"1")
        (root / "again").symlink_to(root)
        (root / "data/same").symlink_to(root / "data")
        answers = delete(store, "again/data/x", "data/same/x")
        assert not any(answer.deleted for answer in answers)
        assert (root / "data/x").read_bytes() == b"1"

    def it_forgets_where_it_was_when_a_folder_is_missing(self, root: Path, store: SweepStore) -> None:
        for key in ("x", "a/x", "a/b/x"):
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            (root / key).write_bytes(b"1")
        keys = ("a/b/no/x", "x", "a/no/x", "a/b/file/x/x")
        assert delete(store, *keys) == [Deletion(key) for key in keys]
        assert sorted(found.key for found in store.list_objects()) == ["a/b/x", "a/x"]

    @settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        there=st.sets(st.text("ab/", min_size=1, max_size=6)),
        asked=st.lists(st.text("ab/.", max_size=6), max_size=8),
    )
    def it_deletes_what_it_says_and_keeps_the_rest(
        self, tmp_path: Path, there: set[str], asked: list[str]
    ) -> None:
        root = tmp_path / uuid.uuid4().hex
        root.mkdir()
        for key in there:
            with contextlib.suppress(OSError):  # a file where a folder should be, or the other way round
                place = Path(f"{root}/{key}")  # a key may begin with a slash
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
        store = open_sweep_store(root.as_uri())
        before = {found.key for found in store.list_objects()}
        answers = delete(store, *asked)
        assert {found.key for found in store.list_objects()} == before - set(asked)
        assert [answer.key for answer in answers] == asked
        assert all(answer.deleted for answer in answers if answer.key in before)
        assert all(store.is_gone(answer.key) for answer in answers if answer.deleted)

    def it_removes_a_link_and_keeps_what_it_leads_to(self, root: Path, store: SweepStore) -> None:
        (root / "data").mkdir()
        (root / "data/x").write_bytes(b"1")
        (root / "data/link").symlink_to(root / "data/x")
        assert delete(store, "data/link") == [Deletion("data/link")]
        assert sorted(os.listdir(root / "data")) == ["x"]

    def it_deletes_below_a_root_that_is_a_link(self, root: Path, tmp_path: Path) -> None:
        (root / "x").write_bytes(b"1")
        (tmp_path / "link").symlink_to(root)
        assert delete(open_sweep_store(str(tmp_path / "link")), "x") == [Deletion("x")]
        assert os.listdir(root) == []

    def it_leaves_pipes_alone(self, root: Path, store: SweepStore) -> None:
        os.mkfifo(root / "pipe")
        assert store.is_gone("pipe")
        delete(store, "pipe")
        assert (root / "pipe").exists()

    @pytest.mark.parametrize(
        "key", ["/etc/passwd", "/y", "data//x", "./data/x", "data/", "a\0b", "data/\ud800"]
    )
    def it_says_that_no_file_can_have_a_key(self, root: Path, store: SweepStore, key: str) -> None:
        (root / "data").mkdir()
        (root / "data/x").write_bytes(b"1")
        (root / "y").write_bytes(b"1")
        (answer,) = delete(store, key)
        assert answer == Deletion(key, "this key cannot be used as the name of a file")
        assert keys_of(store) == {"data/x", "y"}

    def it_deletes_names_of_several_lines(self, root: Path, store: SweepStore) -> None:
        (root / "new\nline").write_bytes(b"1")
        assert delete(store, "new\nline") == [Deletion("new\nline")]
        assert os.listdir(root) == []

    def it_deletes_names_that_are_not_utf_8(self, root: Path, store: SweepStore) -> None:
        (root / "data").mkdir()
        with open(os.fsencode(root) + b"/data/\xff\xfe", "wb"):
            pass
        (found,) = store.list_objects()
        assert delete(store, found.key) == [Deletion(found.key)]
        assert os.listdir(root / "data") == []

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may delete everything")
    def it_says_that_deleting_is_not_allowed(self, root: Path, store: SweepStore) -> None:
        (root / "data").mkdir()
        (root / "data/x").write_bytes(b"1")
        (root / "y").write_bytes(b"1")
        (root / "data").chmod(0o500)
        try:
            assert delete(store, "data/x", "y") == [Deletion("data/x", "Permission denied"), Deletion("y")]
        finally:
            (root / "data").chmod(0o700)

    def it_goes_on_after_a_key_that_the_system_refuses(
        self, root: Path, store: SweepStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in "abc":
            (root / name).write_bytes(b"1")
        unlink = os.unlink

        def refuse(path: str, *, dir_fd: int | None = None) -> None:
            if path == "b":
                raise OSError(16, "Device or resource busy")
            unlink(path, dir_fd=dir_fd)

        monkeypatch.setattr("os.unlink", refuse)
        answers = delete(store, "a", "b", "c")
        assert answers == [
            Deletion("a"),
            Deletion("b", "Device or resource busy", transient=True),
            Deletion("c"),
        ]

    def it_leaves_no_handle_open(self, root: Path, store: SweepStore) -> None:
        def handles() -> int:
            return len(os.listdir("/proc/self/fd"))

        if not os.path.isdir("/proc/self/fd"):
            pytest.skip("this system does not list handles")
        before = handles()
        delete(store, "a/b/c", "a/x", "d", "a\0", "no/such")
        (root / "folder").mkdir()
        assert store.is_gone("a")
        assert store.is_gone("folder")
        assert handles() == before

    def it_writes_no_record_through_a_linked_folder(
        self, root: Path, outside: Path, store: SweepStore
    ) -> None:
        (root / "data").mkdir()
        (root / "_lakeplan").symlink_to(outside)
        (root / "inner").symlink_to(root / "data")
        for key in ("_lakeplan/x", "inner/x"):
            with pytest.raises(StorageError):
                store.put(key, b"1")
            with pytest.raises(StorageError):
                store.create(key, b"1")
        assert os.listdir(outside) == ["precious"]
        assert os.listdir(root / "data") == []

    def it_takes_no_copy_that_does_not_equal_its_source(
        self, root: Path, store: SweepStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "a").write_bytes(b"12")
        (root / "b").write_bytes(b"before")
        # A disk that loses what was written.
        monkeypatch.setattr("os.fsync", lambda handle: os.pwrite(handle, b"X", 0))
        with pytest.raises(StorageError, match="differed from the original"):
            store.copy("a", "b")
        assert (root / "b").read_bytes() == b"before"
        assert sorted(os.listdir(root)) == ["a", "b"]

    def it_keeps_the_rights_of_a_copied_file(self, root: Path, store: SweepStore) -> None:
        (root / "a").write_bytes(b"12")
        (root / "a").chmod(0o640)
        store.copy("a", "q/a")
        assert (root / "q/a").stat().st_mode & 0o777 == 0o640

    def it_copies_nothing_from_outside_or_to_it(self, root: Path, outside: Path, store: SweepStore) -> None:
        (root / "a").write_bytes(b"12")
        (root / "to-file").symlink_to(outside / "precious")
        (root / "to-folder").symlink_to(outside)
        for source, target in (("to-file", "b"), ("a", "to-folder/b"), ("a", "../outside/b"), ("a", "b//c")):
            with pytest.raises(StorageError):
                store.copy(source, target)
        assert os.listdir(outside) == ["precious"]
        assert not (root / "b").exists()

    def it_shows_no_record_that_a_killed_writer_left(self, root: Path, store: SweepStore) -> None:
        (root / "_lakeplan").mkdir()
        (root / "_lakeplan/.lakeplan-unfinished-0").write_bytes(b"hal")
        store.put("_lakeplan/whole", b"whole")
        assert [found.key for found in store.list_objects()] == ["_lakeplan/whole"]

    def it_leaves_nothing_of_a_record_when_the_disk_is_full(
        self, root: Path, store: SweepStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.put("_lakeplan/x", b"before")

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(StorageError, match="No space left"):
            store.put("_lakeplan/x", b"after")
        with pytest.raises(StorageError, match="No space left"):
            store.create("_lakeplan/y", b"after")
        assert os.listdir(root / "_lakeplan") == ["x"]
        assert store.read("_lakeplan/x") == b"before"


def it_refuses_other_kinds_of_storage_by_name() -> None:
    with pytest.raises(StorageError, match=r"oss://"):
        open_sweep_store("oss://bucket/x")
