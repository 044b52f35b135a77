from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from azure.storage.blob import (
    BlobServiceClient,
    ContainerClient,
    ContentSettings,
    RetentionPolicy,
    StandardBlobTier,
)

from lakeplan.errors import StorageDenied, StorageError
from lakeplan.stores.azure import AzureStore
from lakeplan.stores.open import AzureLocation, SweepStore, open_sweep_store, parse_location
from lakeplan.values.sweep import Deletion, Versions
from tests.stores.sweep_store_contract import Put, SweepStoreContract, keys_of

BASE = "team/repo/"


@pytest.fixture
def store(azure_container: str) -> SweepStore:
    return open_sweep_store(f"{azure_container}/{BASE}")


@pytest.fixture
def container(azure_container: str) -> Iterator[ContainerClient]:
    account, _, name = azure_container.rpartition("/")
    with ContainerClient(account, name, credential=os.environ["AZURE_STORAGE_KEY"]) as client:
        yield client


@pytest.fixture
def put(container: ContainerClient) -> Put:
    def put(key: str, data: bytes) -> None:
        container.upload_blob(BASE + key, data, overwrite=True)

    return put


class DescribeAzureStore(SweepStoreContract):
    @pytest.fixture
    def missing(self, azure_container: str) -> SweepStore:
        return open_sweep_store(f"{azure_container}-is-not-there/repo")

    def it_pickles_no_credentials(self, store: SweepStore, put: Put) -> None:
        put("x", b"1")
        store.delete(["x"], versions=Versions.MARKER)
        assert os.environ["AZURE_STORAGE_KEY"].encode() not in pickle.dumps(store)

    def it_deletes_snapshots_with_all_versions_only(
        self, store: SweepStore, put: Put, container: ContainerClient
    ) -> None:
        put("data/a", b"1")
        put("data/b", b"1")
        container.get_blob_client(BASE + "data/a").create_snapshot()
        answers = store.delete(["data/a", "data/b"], versions=Versions.MARKER)
        assert "snapshots" in answers[0].reason
        assert not answers[0].transient
        assert answers[1] == Deletion("data/b")
        assert keys_of(store) == {"data/a"}
        assert store.delete(["data/a"], versions=Versions.ALL) == [Deletion("data/a")]
        assert list(container.list_blobs(include=["snapshots"])) == []

    def it_says_that_a_blob_is_leased(self, store: SweepStore, put: Put, container: ContainerClient) -> None:
        for key in ("data/a", "data/b", "data/c"):
            put(key, b"1")
        container.get_blob_client(BASE + "data/b").acquire_lease()
        assert store.delete(["data/a", "data/b", "data/c"], versions=Versions.ALL) == [
            Deletion("data/a"),
            Deletion("data/b", "LeaseIdMissing: the blob is leased"),
            Deletion("data/c"),
        ]

    @pytest.mark.parametrize("key", ["data/../x", "./x", "data/\ud800"])
    def it_names_no_other_blob_than_it_was_given(self, store: SweepStore, put: Put, key: str) -> None:
        put("x", b"1")
        (answer,) = store.delete([key], versions=Versions.MARKER)
        assert not answer.deleted
        with pytest.raises(StorageError):
            store.is_gone(key)
        assert keys_of(store) == {"x"}

    def it_says_that_access_is_refused(
        self, store: SweepStore, put: Put, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put("x", b"1")
        monkeypatch.setenv("AZURE_STORAGE_KEY", "bm90IHRoZSBrZXk=")
        with pytest.raises(StorageDenied):
            store.delete(["x"], versions=Versions.MARKER)
        with pytest.raises(StorageDenied):
            store.is_gone("x")

    def it_says_that_deleted_blobs_stay_for_a_while(
        self, store: SweepStore, azurite: str, azure_container: str
    ) -> None:
        with BlobServiceClient(azurite, credential=os.environ["AZURE_STORAGE_KEY"]) as service:
            service.set_service_properties(delete_retention_policy=RetentionPolicy(enabled=True, days=3))
            try:
                assert store.facts().soft_delete is True
            finally:
                service.set_service_properties(delete_retention_policy=RetentionPolicy(enabled=False))
        assert store.facts().soft_delete is False

    def it_finds_a_key_behind_empty_pages(
        self, store: SweepStore, put: Put, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The service may answer with pages that are empty and not the last."""
        put("data/a", b"1")
        listed = ContainerClient.list_blobs

        def list_blobs(container: ContainerClient, **options: Any) -> SimpleNamespace:
            pages = [[], [], [], list(listed(container, **options))]
            return SimpleNamespace(by_page=lambda: map(iter, pages))

        monkeypatch.setattr(ContainerClient, "list_blobs", list_blobs)
        assert list(store.find(["data/a"])) == ["data/a"]
        assert list(store.find(["data/a", "data/b"])) == ["data/a"]
        assert store.find(["data/b"]) == {}

    def it_copies_what_describes_a_blob(self, store: SweepStore, container: ContainerClient) -> None:
        container.upload_blob(
            BASE + "data/a",
            b"12",
            metadata={"owner": "team"},
            tags={"kind": "raw"},
            standard_blob_tier=StandardBlobTier.COOL,
            content_settings=ContentSettings(content_type="text/csv", cache_control="no-store"),
        )
        assert store.copy("data/a", "q/a").key == "q/a"
        found = container.get_blob_client(BASE + "q/a")
        properties = found.get_blob_properties()
        assert properties.blob_tier == "Cool"
        assert properties.metadata == {"owner": "team"}
        assert properties.content_settings.content_type == "text/csv"
        assert properties.content_settings.cache_control == "no-store"
        assert found.get_blob_tags() == {"kind": "raw"}

    def it_copies_in_several_blocks(
        self, store: SweepStore, put: Put, azure_container: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        location = parse_location(f"{azure_container}/{BASE}")
        assert isinstance(location, AzureLocation)
        data = bytes(range(256)) * 41
        put("data/a", data)
        monkeypatch.setattr("lakeplan.stores.azure.BLOCK", 1000)
        assert AzureStore(location).copy("data/a", "q/a").size == len(data)
        assert store.read("q/a") == data

    def it_copies_nothing_from_the_archive(
        self, store: SweepStore, put: Put, container: ContainerClient
    ) -> None:
        put("data/a", b"1")
        container.set_standard_blob_tier_blobs(StandardBlobTier.ARCHIVE, BASE + "data/a")
        found = store.stat("data/a")
        assert found is not None
        assert not found.readable
        assert not store.is_gone("data/a")
        with pytest.raises(StorageError, match="archived"):
            store.copy("data/a", "q/a")
        assert keys_of(store) == {"data/a"}
