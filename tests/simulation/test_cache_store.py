"""A cache behind the port of state stores: in a folder, in S3, in Azure, in Google Cloud Storage."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lakeplan.simulation.cache import StoreCache
from tests.storage_servers import bucket_url


@pytest.fixture(params=["folder", "s3", "azure", "gcs"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> StoreCache:
    if request.param == "folder":
        return StoreCache(f"file://{tmp_path}/cache")
    return StoreCache(f"{bucket_url(request, request.param)}/cache")


def it_gives_what_was_put_there(cache: StoreCache) -> None:
    assert cache.get("ns/ab/1.numbers") is None
    cache.put("ns/ab/1.numbers", b"one")
    assert cache.get("ns/ab/1.numbers") == b"one"
    assert pickle.loads(pickle.dumps(cache)).get("ns/ab/1.numbers") == b"one"


def it_replaces_what_was_damaged(cache: StoreCache) -> None:
    cache.put("ns/1", b"damaged")
    cache.put("ns/1", b"whole")
    cache.put("ns/1", b"whole")
    assert cache.get("ns/1") == b"whole"
    cache.trim()
    assert cache.get("ns/1") == b"whole"


def it_is_as_good_as_empty_when_nobody_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = StoreCache(f"file://{tmp_path}/file/cache")
    cache.put("ns/1", b"1")
    assert cache.get("ns/1") is None
