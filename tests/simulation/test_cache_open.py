"""Which cache a word means."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lakeplan.errors import StorageError
from lakeplan.simulation.cache import CACHE_OFF, FolderCache, RangeCache, StoreCache, open_cache


def opened(where: str | None, **environ: str) -> RangeCache | None:
    return open_cache(where, environ=environ)


def it_is_the_users_cache_directory_unless_told(tmp_path: Path) -> None:
    assert repr(opened(None, HOME=str(tmp_path))) == f"FolderCache('{tmp_path}/.cache/lakeplan/ranges')"
    assert repr(opened(None, HOME="/h", XDG_CACHE_HOME="/x")) == "FolderCache('/x/lakeplan/ranges')"


def it_is_none_where_nobody_is_at_home() -> None:
    assert opened(None) is None
    assert opened(None, XDG_CACHE_HOME="relative") is None


def it_is_off_when_told(tmp_path: Path) -> None:
    assert opened(CACHE_OFF, HOME=str(tmp_path)) is None


@pytest.mark.parametrize("url", ["{}/c", "file://{}/c"])
def it_is_a_folder_by_path_or_url(url: str, tmp_path: Path) -> None:
    cache = opened(url.format(tmp_path))
    assert isinstance(cache, FolderCache)
    cache.put("k", b"1")
    assert (tmp_path / "c" / "k").read_bytes() == b"1"


def it_is_an_object_store_by_url() -> None:
    cache = opened("s3://bucket/cache")
    assert isinstance(cache, StoreCache)
    assert repr(pickle.loads(pickle.dumps(cache))) == "StoreCache('s3://bucket/cache')"


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/x", "ftp://host/x"])
def it_refuses_what_it_cannot_open(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        opened(url)
    assert "secret" not in str(caught.value)
