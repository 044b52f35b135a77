from __future__ import annotations

import json

import pytest
import requests

from lakeplan.stores.gcs import GcsState, GcsStore
from lakeplan.stores.gcs_client import Answer, read_page
from lakeplan.stores.open import GcsLocation, NamespaceReader, SweepStore
from tests.stores.documents_contract import Open, StateContract, count_winners
from tests.stores.storage_contract import Put, StorageContract
from tests.stores.sweep_store_contract import SweepStoreContract

PREFIX = "team a/repo"


@pytest.fixture
def put(gcs_bucket: str, gcs_endpoint: str) -> Put:
    def put(key: str, data: bytes) -> None:
        name = f"team a/{key[3:]}" if key.startswith("../") else f"{PREFIX}/{key}"
        url = f"{gcs_endpoint}/upload/storage/v1/b/{gcs_bucket}/o"
        params = {"uploadType": "media", "name": name}
        requests.post(url, params=params, data=data, timeout=30).raise_for_status()

    return put


class DescribeGcsReader(StorageContract):
    @pytest.fixture
    def reader(self, gcs_bucket: str) -> NamespaceReader:
        return GcsStore(GcsLocation(gcs_bucket, PREFIX))

    @pytest.fixture
    def missing(self, gcs_bucket: str) -> NamespaceReader:
        return GcsStore(GcsLocation(f"{gcs_bucket}-is-not-there", "repo"))


class DescribeGcsStore(SweepStoreContract):
    @pytest.fixture
    def store(self, gcs_bucket: str) -> SweepStore:
        return GcsStore(GcsLocation(gcs_bucket, PREFIX))

    @pytest.fixture
    def missing(self, gcs_bucket: str) -> SweepStore:
        return GcsStore(GcsLocation(f"{gcs_bucket}-is-not-there", "repo"))


class DescribeGcsState(StateContract):
    @pytest.fixture
    def open_again(self, gcs_bucket: str) -> Open:
        return lambda: GcsState(GcsStore(GcsLocation(gcs_bucket, "ops/lakeplan")))

    def it_lets_one_of_several_threads_win(self, open_again: Open) -> None:
        assert count_winners(open_again, rounds=10) == [1] * 10


def it_names_the_class_of_each_object() -> None:
    item = {"size": "3", "updated": "2026-01-01T00:00:00Z", "generation": "1"}
    items = [
        {"name": "a/data/x", "storageClass": "NEARLINE", **item},
        {"name": "a/data/y", **item},
        {"name": "a/data/z", "storageClass": "ARCHIVE", **item},
    ]
    body = json.dumps({"kind": "storage#objects", "items": items}).encode()
    page = read_page(Answer(200, {}, body), "a/", "a/", "gs://b/a")
    assert [(one.key, name) for one, name in zip(page.objects, page.classes, strict=True)] == [
        ("data/x", "NEARLINE"),
        ("data/y", ""),
        ("data/z", "ARCHIVE"),
    ]
