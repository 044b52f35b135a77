"""The behaviour of every store that a sweep uses. Inherited once per adapter."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import pytest

from lakeplan.errors import StorageError, StorageNotFound, WriteConflict
from lakeplan.stores.open import SweepStore
from lakeplan.values.sweep import Deletion, Versions
from tests.stores.storage_contract import ODD_KEYS

Put = Callable[[str, bytes], None]


def keys_of(store: SweepStore, prefix: str = "") -> set[str]:
    return {found.key for found in store.list_objects(prefix)}


class SweepStoreContract:
    """Subclasses give three fixtures: ``store`` of an empty namespace, ``put`` that stores there by other
    means, and ``missing``, a store whose bucket, container or folder is not there."""

    @pytest.mark.parametrize("versions", Versions)
    def it_deletes_what_it_was_given_and_nothing_else(
        self, store: SweepStore, put: Put, versions: Versions
    ) -> None:
        for key in ("data/a", "data/ab", "data/b/1", "data/b/2", "other"):
            put(key, b"1")
        answers = store.delete(["data/b/1", "data/a"], versions=versions)
        assert answers == [Deletion("data/b/1"), Deletion("data/a")]
        assert keys_of(store) == {"data/ab", "data/b/2", "other"}

    @pytest.mark.parametrize("versions", Versions)
    def it_counts_a_key_where_nothing_is_as_deleted(
        self, store: SweepStore, put: Put, versions: Versions
    ) -> None:
        put("data/b", b"1")
        keys = ["data/a", "data/b", "no/such/folder/x", "data/b/below-a-file"]
        assert store.delete(keys, versions=versions) == [Deletion(key) for key in keys]
        assert keys_of(store) == set()
        assert store.delete(keys, versions=versions) == [Deletion(key) for key in keys]

    @pytest.mark.parametrize("folders", [1, 40])
    def it_finds_keys_as_a_listing_describes_them(self, store: SweepStore, put: Put, folders: int) -> None:
        for n in range(120):
            put(f"data/{n % folders:02}/{n:03}", b"1" * (n % 3))
        listed = {found.key: found for found in store.list_objects("data/")}
        wanted = sorted([*list(listed)[::3], "data/", "data/00/0", "data/00/0000", "data/zz", "e"])
        assert store.find(wanted) == {key: listed[key] for key in wanted if key in listed}
        assert store.find([]) == {}

    @pytest.mark.parametrize("key", [*ODD_KEYS, "data/<a>&amp;", "data/ab "])
    def it_finds_keys_of_odd_characters(self, store: SweepStore, put: Put, key: str) -> None:
        put(key, b"12")
        assert store.find([key])[key].size == 2

    @pytest.mark.parametrize("versions", Versions)
    def it_deletes_what_is_still_the_expected_object(
        self, store: SweepStore, put: Put, versions: Versions
    ) -> None:
        put("data/a", b"1")
        expected = store.find(["data/a", "data/b"])
        answers = store.delete(["data/a", "data/b"], versions=versions, expected=expected)
        assert answers == [Deletion("data/a"), Deletion("data/b")]
        assert keys_of(store) == set()

    def it_gives_another_object_another_version(self, store: SweepStore, put: Put) -> None:
        put("data/a", b"1")
        before = store.find(["data/a"])["data/a"]
        put("data/a", b"2")
        assert store.find(["data/a"])["data/a"].version != before.version

    def it_copies_only_to_where_nothing_is_when_it_is_told_so(self, store: SweepStore, put: Put) -> None:
        put("data/a", b"old")
        put("data/b", b"new")
        with pytest.raises(WriteConflict):
            store.copy("data/a", "data/b", create=True)
        assert store.read("data/b") == b"new"
        store.copy("data/a", "data/c", create=True)
        assert store.read("data/c") == b"old"
        assert keys_of(store) == {"data/a", "data/b", "data/c"}

    def it_answers_every_key_of_a_batch_in_its_order(self, store: SweepStore, put: Put) -> None:
        keys = [f"data/{n % 7}/{n:04}" for n in range(store.batch_size)]
        for key in keys[::10]:
            put(key, b"")
        put("data/0/kept", b"")
        assert [answer.key for answer in store.delete(keys, versions=Versions.MARKER)] == keys
        assert keys_of(store) == {"data/0/kept"}

    def it_answers_a_key_that_is_named_twice_twice(self, store: SweepStore, put: Put) -> None:
        put("data/a", b"1")
        answers = store.delete(["data/a", "data/b", "data/a"], versions=Versions.MARKER)
        assert answers == [Deletion("data/a"), Deletion("data/b"), Deletion("data/a")]

    def it_deletes_nothing_when_it_is_given_nothing(self, store: SweepStore, put: Put) -> None:
        put("data/a", b"1")
        for versions in Versions:
            assert store.delete([], versions=versions) == []
        assert keys_of(store) == {"data/a"}

    def it_refuses_more_than_a_batch(self, store: SweepStore, put: Put) -> None:
        put("data/0", b"1")
        with pytest.raises(StorageError, match="a batch has"):
            store.delete([f"data/{n}" for n in range(store.batch_size + 1)], versions=Versions.MARKER)
        assert keys_of(store) == {"data/0"}

    def it_never_takes_an_empty_key_for_the_namespace(self, store: SweepStore, put: Put) -> None:
        put("data/a", b"1")
        for versions in Versions:
            (answer,) = store.delete([""], versions=versions)
            assert not answer.deleted
        assert keys_of(store) == {"data/a"}

    @pytest.mark.parametrize("versions", Versions)
    @pytest.mark.parametrize("key", [*ODD_KEYS, "data/<a>&amp;", "data/ab ", "data/c/ d"])
    def it_deletes_keys_of_odd_characters(
        self, store: SweepStore, put: Put, key: str, versions: Versions
    ) -> None:
        put(key, b"1")
        put("data/neighbour", b"1")
        assert not store.is_gone(key)
        assert store.delete([key], versions=versions) == [Deletion(key)]
        assert keys_of(store) == {"data/neighbour"}
        assert store.is_gone(key)

    @pytest.mark.parametrize("key", ["data/re\rturn", "data/ta\tb", "data/\x01\x1f"])
    def it_deletes_keys_of_control_characters(self, store: SweepStore, put: Put, key: str) -> None:
        put(key, b"1")
        put("data/neighbour", b"1")
        keys = [key, "data/nothing"]
        assert store.delete(keys, versions=Versions.MARKER) == [Deletion(key) for key in keys]
        assert keys_of(store) == {"data/neighbour"}

    def it_says_what_is_at_a_key(self, store: SweepStore, put: Put) -> None:
        put("data/a", b"12345")
        found = store.stat("data/a")
        assert found is not None
        assert (found.key, found.size, found.readable) == ("data/a", 5, True)
        now = datetime.now(timezone.utc).timestamp() * 1_000_000
        assert abs(now - found.modified_us) < 60_000_000
        assert store.stat("data/b") is None
        assert store.stat("data") is None

    def it_knows_gone_from_empty(self, store: SweepStore, put: Put) -> None:
        put("data/empty", b"")
        put("data/full", b"1" * 100_000)
        assert not store.is_gone("data/empty")
        assert not store.is_gone("data/full")
        assert store.is_gone("data/other")
        assert store.is_gone("data")

    def it_never_takes_a_missing_store_for_a_missing_object(self, missing: SweepStore) -> None:
        with pytest.raises(StorageNotFound):
            missing.is_gone("data/a")
        with pytest.raises(StorageNotFound):
            missing.stat("data/a")
        for versions in Versions:
            with pytest.raises(StorageNotFound):
                missing.delete(["data/a"], versions=versions)
        with pytest.raises(StorageError):
            missing.put("_lakeplan/x", b"1")

    def it_says_what_the_store_does_with_deleted_data(self, store: SweepStore) -> None:
        assert not store.facts().versioned
        assert not store.facts().soft_delete

    @pytest.mark.parametrize("size", [0, 1, 300_000])
    def it_copies_an_object_and_says_what_the_copy_is(self, store: SweepStore, put: Put, size: int) -> None:
        put("data/a", b"1" * size)
        copied = store.copy("data/a", "_lakeplan/quarantine/run 1/data/a")
        assert (copied.key, copied.size) == ("_lakeplan/quarantine/run 1/data/a", size)
        assert copied == store.stat("_lakeplan/quarantine/run 1/data/a")
        assert store.read("_lakeplan/quarantine/run 1/data/a") == store.read("data/a") == b"1" * size

    @pytest.mark.parametrize("key", [*ODD_KEYS, "data/ab ", "data/<a>&amp;"])
    def it_copies_keys_of_odd_characters(self, store: SweepStore, put: Put, key: str) -> None:
        put(key, b"12")
        store.copy(key, "q/" + key)
        assert store.read("q/" + key) == b"12"
        assert keys_of(store) == {key, "q/" + key}

    def it_replaces_what_is_at_the_target(self, store: SweepStore, put: Put) -> None:
        put("data/a", b"new")
        put("data/b", b"before")
        assert store.copy("data/a", "data/b").size == 3
        assert store.read("data/b") == b"new"
        assert keys_of(store) == {"data/a", "data/b"}

    def it_says_that_there_is_nothing_to_copy(self, store: SweepStore, put: Put) -> None:
        put("data/b", b"1")
        with pytest.raises(StorageNotFound):
            store.copy("data/a", "data/b")
        assert store.read("data/b") == b"1"

    def it_never_copies_an_object_over_itself(self, store: SweepStore, put: Put) -> None:
        put("data/a", b"1")
        with pytest.raises(StorageError, match="onto itself"):
            store.copy("data/a", "data/a")
        assert store.read("data/a") == b"1"

    def it_replaces_records_by_put(self, store: SweepStore) -> None:
        store.put("_lakeplan/marks/1/part-0", b"one")
        store.put("_lakeplan/marks/1/part-0", b"two")
        store.put("_lakeplan/marks/1/empty", b"")
        assert store.read("_lakeplan/marks/1/part-0") == b"two"
        assert keys_of(store) == {"_lakeplan/marks/1/part-0", "_lakeplan/marks/1/empty"}

    def it_creates_a_record_once(self, store: SweepStore) -> None:
        store.create("_lakeplan/approval", b"one")
        with pytest.raises(WriteConflict):
            store.create("_lakeplan/approval", b"two")
        with pytest.raises(WriteConflict):
            store.create("_lakeplan/approval", b"one")
        assert store.read("_lakeplan/approval") == b"one"

    def it_lets_one_of_many_create(self, store: SweepStore) -> None:
        def create(n: int) -> bool:
            try:
                store.create("_lakeplan/one", str(n).encode())
            except WriteConflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = [n for n, first in enumerate(pool.map(create, range(16))) if first]
        assert len(won) == 1
        assert store.read("_lakeplan/one") == str(won[0]).encode()

    def it_survives_pickling_and_works_there(self, store: SweepStore, put: Put) -> None:
        put("data/a", b"1")
        put("data/b", b"1")
        store.delete(["data/a"], versions=Versions.MARKER)
        there = pickle.loads(pickle.dumps(store))
        assert there.url == store.url
        assert there.stat("data/b") is not None
        assert there.delete(["data/b"], versions=Versions.ALL) == [Deletion("data/b")]
        assert keys_of(store) == set()

    def it_deletes_from_several_threads(self, store: SweepStore, put: Put) -> None:
        keys = [f"data/{n % 3}/{n}" for n in range(80)]
        for key in keys:
            put(key, b"1")
        with ThreadPoolExecutor(8) as pool:
            batches = [keys[n : n + 10] for n in range(0, 80, 10)]
            answers = list(pool.map(lambda batch: store.delete(batch, versions=Versions.MARKER), batches))
        assert [answer for batch in answers for answer in batch] == [Deletion(key) for key in keys]
        assert keys_of(store) == set()

    def it_shows_its_url_and_nothing_secret(self, store: SweepStore) -> None:
        assert repr(store) == f"{type(store).__name__}({store.url!r})"
