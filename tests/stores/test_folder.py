from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakeplan.errors import StorageDenied, StorageError, StorageNotFound
from lakeplan.stores.open import NamespaceReader, open_namespace
from tests.stores.storage_contract import Put, StorageContract


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "a namespace"
    folder.mkdir()
    return folder


class DescribeFolderReader(StorageContract):
    @pytest.fixture
    def reader(self, root: Path) -> NamespaceReader:
        return open_namespace(root.as_uri())

    @pytest.fixture
    def missing(self, tmp_path: Path) -> NamespaceReader:
        return open_namespace((tmp_path / "nowhere").as_uri())

    @pytest.fixture
    def put(self, root: Path) -> Put:
        def store(key: str, data: bytes) -> None:
            path = Path(os.path.normpath(root)) / key
            if key.startswith("../"):
                path = root.parent / "a namespace-2/data/x"
            if key.endswith("/"):
                path.mkdir(parents=True)
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        return store

    def it_takes_an_absolute_path_and_localhost(self, root: Path) -> None:
        (root / "x").write_bytes(b"1")
        assert open_namespace(str(root)).read("x") == b"1"
        assert open_namespace(f"file://localhost{root.as_uri()[7:]}/").read("x") == b"1"
        assert open_namespace(str(root) + "/").url == root.as_uri()

    def it_keeps_modification_times_to_the_microsecond(self, root: Path, reader: NamespaceReader) -> None:
        (root / "x").write_bytes(b"1")
        os.utime(root / "x", ns=(0, 1_648_000_000_123_456_789))
        (found,) = reader.list_objects()
        assert found.modified_us == 1_648_000_000_123_456

    def it_does_not_follow_links_out_of_the_folder(
        self, root: Path, tmp_path: Path, reader: NamespaceReader
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret").write_bytes(b"secret")
        (root / "to-folder").symlink_to(outside)
        (root / "to-file").symlink_to(outside / "secret")
        (root / "to-nothing").symlink_to(outside / "nothing")
        assert list(reader.list_objects()) == []
        assert list(reader.list_objects("to-folder/")) == []
        assert reader.list_prefixes() == []
        for key in ("to-folder/secret", "to-file", "to-nothing"):
            with pytest.raises(StorageNotFound):
                reader.read(key)

    def it_ends_a_listing_that_links_in_a_circle(self, root: Path, reader: NamespaceReader) -> None:
        (root / "data").mkdir()
        (root / "data/x").write_bytes(b"1")
        (root / "data/again").symlink_to(root)
        (root / "data/same").symlink_to(root / "data/x")
        assert sorted(o.key for o in reader.list_objects()) == ["data/same", "data/x"]

    def it_gives_up_folders_that_no_server_makes(
        self, root: Path, reader: NamespaceReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "data/a").mkdir(parents=True)
        monkeypatch.chdir(root / "data/a")
        for _ in range(300):
            os.mkdir("a")
            os.chdir("a")
        with pytest.raises(StorageError, match="nested more deeply than the limit of 256 levels"):
            list(reader.list_objects())

    def it_works_below_a_root_that_is_a_link(self, root: Path, tmp_path: Path) -> None:
        (root / "x").write_bytes(b"1")
        (tmp_path / "link").symlink_to(root)
        reader = open_namespace(str(tmp_path / "link"))
        assert reader.read("x") == b"1"
        assert [o.key for o in reader.list_objects()] == ["x"]

    @pytest.mark.parametrize("key", ["../x", "data/../../x", "..", "a\0b"])
    def it_refuses_keys_that_lead_out(self, root: Path, reader: NamespaceReader, key: str) -> None:
        (root.parent / "x").write_bytes(b"1")
        with pytest.raises(StorageError, match="outside the namespace"):
            reader.read(key)

    @pytest.mark.parametrize("key", ["", "/etc/passwd", "data//x", "./x", "data"])
    def it_has_no_object_under_a_key_that_is_no_file(
        self, root: Path, reader: NamespaceReader, key: str
    ) -> None:
        (root / "data").mkdir()
        (root / "data/x").write_bytes(b"1")
        (root / "x").write_bytes(b"1")
        with pytest.raises(StorageNotFound):
            reader.read(key)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def it_says_that_reading_is_not_allowed(self, root: Path, reader: NamespaceReader) -> None:
        (root / "x").write_bytes(b"1")
        (root / "x").chmod(0)
        with pytest.raises(StorageDenied):
            reader.read("x")

    def it_does_not_wait_for_a_pipe(self, root: Path, reader: NamespaceReader) -> None:
        os.mkfifo(root / "pipe")
        assert list(reader.list_objects()) == []
        with pytest.raises(StorageNotFound):
            reader.read("pipe")
