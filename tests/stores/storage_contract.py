"""The behaviour of every reader of a storage namespace. Inherited once per adapter."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import pytest

from lakeplan.errors import StorageError, StorageNotFound
from lakeplan.stores.open import ClassReader, NamespaceReader

Put = Callable[[str, bytes], None]

ODD_KEYS = [
    "data/with space",
    "data/per%20cent",
    "data/pl+us",
    "data/ünïcödé/日本",
    "data/co,mma=x",
    "data/quo'te\"s",
    "data/ha#sh?mark&and",
    "data/!ab/c/d",
    "data/semi;colon",
]


class StorageContract:
    """Subclasses give two fixtures: ``reader`` of an empty namespace, and ``put`` that stores there."""

    def it_reads_what_was_stored(self, reader: NamespaceReader, put: Put) -> None:
        data = bytes(range(256)) * 50_000
        put("_lakefs/abc", data)
        put("empty", b"")
        assert reader.read("_lakefs/abc") == data
        assert reader.read("empty") == b""

    def it_reads_an_object_in_pieces(self, reader: NamespaceReader, put: Put) -> None:
        data = bytes(range(256)) * 40
        put("data/a", data)
        assert reader.read_span("data/a", 0, 100) == data[:100]
        assert reader.read_span("data/a", 100, 10_000) == data[100:10_100]
        assert reader.read_span("data/a", 10_000, 1_000) == data[10_000:]
        with pytest.raises(StorageNotFound):
            reader.read_span("data/none", 0, 1)

    def it_says_by_type_that_an_object_is_missing(self, reader: NamespaceReader, put: Put) -> None:
        put("there", b"1")
        with pytest.raises(StorageNotFound) as caught:
            reader.read("not/there")
        assert caught.value.where == f"{reader.url}/not/there"

    def it_lists_every_object_below_a_prefix(self, reader: NamespaceReader, put: Put) -> None:
        for key in ("data/a/1", "data/a/2", "data/b/1", "dummy", "_lakefs/x"):
            put(key, key.encode())
        assert {o.key for o in reader.list_objects()} == {
            "data/a/1", "data/a/2", "data/b/1", "dummy", "_lakefs/x",
        }  # fmt: skip
        assert {o.key for o in reader.list_objects("data/")} == {"data/a/1", "data/a/2", "data/b/1"}
        assert {o.size for o in reader.list_objects("data/")} == {8}

    def it_takes_a_prefix_as_text_and_not_as_a_folder(self, reader: NamespaceReader, put: Put) -> None:
        for key in ("data/ab/1", "data/abc/1", "data/b/1", "data/ax"):
            put(key, b"")
        assert {o.key for o in reader.list_objects("data/ab")} == {"data/ab/1", "data/abc/1"}

    def it_lists_nothing_where_nothing_is(self, reader: NamespaceReader, put: Put) -> None:
        put("data/a", b"")
        assert list(reader.list_objects("other/")) == []
        assert list(reader.list_objects("data/a/b/")) == []
        assert reader.list_prefixes("other/") == []

    def it_lists_one_level_when_not_recursive(self, reader: NamespaceReader, put: Put) -> None:
        for key in ("_lakefs/m", "_lakefs/run_id=1/a.parquet", "_lakefs/run_id=2/b/c"):
            put(key, b"x")
        assert [o.key for o in reader.list_objects("_lakefs/", recursive=False)] == ["_lakefs/m"]
        assert reader.list_prefixes("_lakefs/") == ["_lakefs/run_id=1/", "_lakefs/run_id=2/"]
        assert reader.list_prefixes("_lakefs/run_id=2") == ["_lakefs/run_id=2/"]

    @pytest.mark.parametrize("key", ODD_KEYS)
    def it_keeps_odd_characters_in_keys(self, reader: NamespaceReader, put: Put, key: str) -> None:
        put(key, key.encode())
        assert [o.key for o in reader.list_objects("data/")] == [key]
        assert [o.key for o in reader.list_objects(key)] == [key]
        assert reader.read(key) == key.encode()

    def it_does_not_list_the_namespace_beside_it(self, reader: NamespaceReader, put: Put) -> None:
        # "repo" and "repo-2" lie in one bucket: "repo" must not see the other's objects.
        put("../" + reader.url.rsplit("/", 1)[1] + "-2/data/x", b"other")
        put("data/x", b"own")
        assert [o.key for o in reader.list_objects()] == ["data/x"]

    def it_has_the_storage_s_own_times_in_microseconds(self, reader: NamespaceReader, put: Put) -> None:
        put("data/now", b"1")
        (found,) = reader.list_objects("data/")
        now = datetime.now(timezone.utc).timestamp() * 1_000_000
        assert abs(now - found.modified_us) < 60_000_000

    def it_does_not_take_a_folder_marker_for_an_object(self, reader: NamespaceReader, put: Put) -> None:
        put("data/folder/", b"")
        put("data/file", b"1")
        assert [o.key for o in reader.list_objects()] == ["data/file"]

    def it_lists_the_class_of_every_current_object(self, reader: NamespaceReader, put: Put) -> None:
        """Folders have none. The figures of a listing, and text for each class."""
        for key, data in (("data/a", b"1"), ("data/ünï+c o", b"333"), ("_lakefs/x", b"22")):
            put(key, data)
        put("data/a", b"4444")
        if not isinstance(reader, ClassReader):
            assert not reader.url.startswith(("s3:", "gs:", "https:"))
            return
        found = sorted(reader.list_classes())
        listed = sorted((one.key, one.size) for one in reader.list_objects())
        assert [(key, size) for key, size, _ in found] == listed
        usual = {"https": "Hot", "http": "Hot"}.get(reader.url.partition(":")[0], "STANDARD")
        # some versions of the emulator of Google's storage name none where none was asked for
        assert {name or usual for _, _, name in found} == {usual}

    def it_survives_pickling_and_works_there(self, reader: NamespaceReader, put: Put) -> None:
        put("a", b"1")
        reader.read("a")
        copy = pickle.loads(pickle.dumps(reader))
        assert copy.read("a") == b"1"
        assert copy.url == reader.url

    def it_reads_from_several_threads(self, reader: NamespaceReader, put: Put) -> None:
        for n in range(20):
            put(f"data/{n}", str(n).encode())
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda n: reader.read(f"data/{n}"), range(20))) == [
                str(n).encode() for n in range(20)
            ]

    def it_says_that_the_namespace_is_not_there(self, missing: NamespaceReader) -> None:
        with pytest.raises(StorageNotFound):
            list(missing.list_objects())
        with pytest.raises(StorageError):
            missing.read("a")

    def it_shows_its_url_and_nothing_secret(self, reader: NamespaceReader) -> None:
        assert reader.url in repr(reader)
        assert not reader.url.endswith("/")
