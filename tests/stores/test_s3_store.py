from __future__ import annotations

import os
import pickle
from datetime import timedelta

import pytest

from lakeplan.errors import StorageDenied, StorageError, StoreBusy
from lakeplan.stores.open import SweepStore, open_state, open_sweep_store
from lakeplan.values.sweep import Deletion, Versions
from tests.storage_servers import put_at_once, s3_client
from tests.stores.sweep_store_contract import Put, SweepStoreContract, keys_of

BASE = "team-a/repo/"


@pytest.fixture
def store(s3_bucket: str) -> SweepStore:
    return open_sweep_store(f"s3://{s3_bucket}/{BASE}")


@pytest.fixture
def put(s3_bucket: str) -> Put:
    def put(key: str, data: bytes) -> None:
        put_at_once(s3_bucket, [(BASE + key, data, "STANDARD")])

    return put


class DescribeS3Store(SweepStoreContract):
    @pytest.fixture
    def missing(self, s3_bucket: str) -> SweepStore:
        return open_sweep_store(f"s3://{s3_bucket}-is-not-there/repo")

    def it_pickles_no_credentials(self, store: SweepStore, put: Put) -> None:
        put("x", b"1")
        store.delete(["x"], versions=Versions.MARKER)
        dumped = pickle.dumps(store)
        assert os.environ["AWS_SECRET_ACCESS_KEY"].encode() not in dumped
        assert os.environ["AWS_ACCESS_KEY_ID"].encode() not in dumped


class DescribeVersions:
    """A bucket that keeps versions."""

    @pytest.fixture(autouse=True)
    def versioned(self, s3_bucket: str) -> None:
        s3_client().put_bucket_versioning(Bucket=s3_bucket, VersioningConfiguration={"Status": "Enabled"})

    def it_says_that_versions_are_kept(self, store: SweepStore, s3_bucket: str) -> None:
        assert store.facts().versioned is True
        s3_client().put_bucket_versioning(Bucket=s3_bucket, VersioningConfiguration={"Status": "Suspended"})
        assert store.facts().versioned is True

    def it_deletes_the_current_version_only(self, store: SweepStore, put: Put, s3_bucket: str) -> None:
        put("data/a", b"1")
        put("data/a", b"2")
        assert store.delete(["data/a"], versions=Versions.MARKER) == [Deletion("data/a")]
        assert store.is_gone("data/a")
        assert store.stat("data/a") is None
        assert versions_of(s3_bucket) == {("data/a", False): 2, ("data/a", True): 1}

    def it_deletes_every_version_and_marker_of_exactly_that_key(
        self, store: SweepStore, put: Put, s3_bucket: str
    ) -> None:
        for key in ("data/a", "data/a", "data/ab", "data/a.b", "data/b", "data/c\t", "data/c\t"):
            put(key, key.encode())
        store.delete(["data/a"], versions=Versions.MARKER)
        put("data/a", b"again")
        keys = ["data/c\t", "data/a", "data/nothing"]
        assert store.delete(keys, versions=Versions.ALL) == [Deletion(key) for key in keys]
        assert versions_of(s3_bucket) == {
            ("data/ab", False): 1, ("data/a.b", False): 1, ("data/b", False): 1,
        }  # fmt: skip

    def it_deletes_no_version_of_a_key_that_was_written_again(
        self, store: SweepStore, put: Put, s3_bucket: str
    ) -> None:
        for key in ("data/a", "data/a", "data/b", "data/c", "data/c"):
            put(key, b"old")
        expected = store.find(["data/a", "data/b", "data/c"])
        put("data/a", b"newer")
        put("data/b", b"newer")
        store.delete(["data/b"], versions=Versions.MARKER)
        answers = store.delete(sorted(expected), versions=Versions.ALL, expected=expected)
        assert [(answer.key, answer.changed) for answer in answers] == [
            ("data/a", True),
            ("data/b", True),
            ("data/c", False),
        ]
        assert versions_of(s3_bucket) == {
            ("data/a", False): 3, ("data/b", False): 2, ("data/b", True): 1,
        }  # fmt: skip

    def it_reports_no_object_as_deleted_that_the_listing_of_versions_omits(
        self, store: SweepStore, put: Put, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put("data/ab", b"1")
        (longer,) = s3_client().list_object_versions(Bucket=s3_bucket)["Versions"]
        put("data/a", b"1")
        for page in ({}, {"Versions": [longer]}):
            monkeypatch.setattr(type(store), "_pages", lambda *_, page=page, **__: iter([page]))
            answers = store.delete(["data/a", "data/nothing"], versions=Versions.ALL)
            assert [(one.key, one.deleted) for one in answers] == [("data/a", False), ("data/nothing", True)]
        assert versions_of(s3_bucket) == {("data/a", False): 1, ("data/ab", False): 1}

    def it_does_not_delete_only_older_versions_where_the_listing_omits_the_expected_one(
        self, store: SweepStore, put: Put, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put("data/a", b"1")
        (older,) = s3_client().list_object_versions(Bucket=s3_bucket)["Versions"]
        put("data/a", b"22")
        expected = store.find(["data/a"])
        older |= {"IsLatest": False, "LastModified": older["LastModified"] - timedelta(hours=1)}
        monkeypatch.setattr(type(store), "_pages", lambda *_, **__: iter([{"Versions": [older]}]))
        (answer,) = store.delete(["data/a"], versions=Versions.ALL, expected=expected)
        assert "missing from the listing of its versions" in answer.reason
        assert versions_of(s3_bucket) == {("data/a", False): 2}

    @pytest.mark.parametrize("error", [StoreBusy("overloaded"), StorageDenied("access denied")])
    def it_fails_one_key_alone_if_the_store_does_not_say_whether_its_object_exists(
        self, store: SweepStore, put: Put, monkeypatch: pytest.MonkeyPatch, error: StorageError
    ) -> None:
        def stat(self: object, key: str) -> None:
            raise error

        put("data/a", b"1")
        monkeypatch.setattr(type(store), "stat", stat)
        failed, deleted = store.delete(["data/nothing", "data/a"], versions=Versions.ALL)
        assert failed == Deletion("data/nothing", error.message, transient=isinstance(error, StoreBusy))
        assert deleted == Deletion("data/a")

    @pytest.mark.extended
    def it_deletes_more_versions_than_one_request_may_name(
        self, store: SweepStore, put: Put, s3_bucket: str
    ) -> None:
        put_at_once(s3_bucket, ((f"{BASE}data/a", str(n).encode(), "STANDARD") for n in range(1005)))
        put("data/b", b"1")
        assert store.delete(["data/a"], versions=Versions.ALL) == [Deletion("data/a")]
        assert versions_of(s3_bucket) == {("data/b", False): 1}

    def it_deletes_old_versions_of_a_bucket_that_keeps_none_any_more(
        self, store: SweepStore, put: Put, s3_bucket: str
    ) -> None:
        put("data/a", b"1")
        s3_client().put_bucket_versioning(Bucket=s3_bucket, VersioningConfiguration={"Status": "Suspended"})
        put("data/a", b"2")
        assert store.delete(["data/a"], versions=Versions.ALL) == [Deletion("data/a")]
        assert versions_of(s3_bucket) == {}

    def it_says_that_an_object_is_locked(self, s3_bucket: str) -> None:
        client = s3_client()
        bucket = f"{s3_bucket}-locked"
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        client.put_object(Bucket=bucket, Key="data/a", Body=b"1")
        client.put_object(Bucket=bucket, Key="data/b", Body=b"1")
        client.put_object_legal_hold(Bucket=bucket, Key="data/a", LegalHold={"Status": "ON"})
        store = open_sweep_store(f"s3://{bucket}")
        locked, free = store.delete(["data/a", "data/b"], versions=Versions.ALL)
        assert locked == Deletion("data/a", "AccessDenied: the object is locked")
        assert free == Deletion("data/b")
        assert keys_of(store) == {"data/a"}

    def it_keeps_the_current_version_while_an_older_one_is_locked(self, s3_bucket: str) -> None:
        """The object was no longer listed, so nothing tried again to delete the older version."""
        client = s3_client()
        bucket = f"{s3_bucket}-locked"
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        for body in (b"1", b"2", b"3"):
            client.put_object(Bucket=bucket, Key="data/a", Body=body)
            if body == b"1":
                client.put_object_legal_hold(Bucket=bucket, Key="data/a", LegalHold={"Status": "ON"})
        store = open_sweep_store(f"s3://{bucket}")
        (locked,) = store.delete(["data/a"], versions=Versions.ALL)
        assert locked == Deletion(
            "data/a", "2 of 3 versions were not deleted: AccessDenied: the object is locked"
        )
        assert store.read("data/a") == b"3"
        listed = client.list_object_versions(Bucket=bucket)
        assert (len(listed["Versions"]), "DeleteMarkers" in listed) == (2, False)

    def it_writes_records_where_every_object_gets_a_retention_period(self, s3_bucket: str) -> None:
        """Such a bucket refuses uploads without a checksum, which stores outside AWS are not sent."""
        client = s3_client()
        bucket = f"{s3_bucket}-retained"
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
        client.put_object_lock_configuration(
            Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
        )
        store = open_sweep_store(f"s3://{bucket}")
        store.put("_lakeplan/a", b"1")
        assert store.read("_lakeplan/a") == b"1"
        state = open_state(f"s3://{bucket}/state")
        version = state.write("a.json", b"1", if_version=None)
        state.write("a.json", b"2", if_version=version)
        assert state.list_keys() == ["a.json"]


def versions_of(bucket: str) -> dict[tuple[str, bool], int]:
    """How many versions (False) and delete markers (True) each key has."""
    counts: dict[tuple[str, bool], int] = {}
    client = s3_client()
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for name, marker in (("Versions", False), ("DeleteMarkers", True)):
            for item in page.get(name, ()):
                key = (item["Key"][len(BASE) :], marker)
                counts[key] = counts.get(key, 0) + 1
    return counts
