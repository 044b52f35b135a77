"""A cache in a folder: whole files or none, bounded, never in the way."""

from __future__ import annotations

import os
import pickle
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from lakeplan.simulation.cache import LEFTOVER, LEFTOVER_SECONDS, FolderCache


@pytest.fixture
def cache(tmp_path: Path) -> FolderCache:
    return FolderCache(str(tmp_path / "cache"), 1000)


def used(tmp_path: Path, key: str, seconds_ago: float) -> None:
    path, then = tmp_path / "cache" / key, time.time() - seconds_ago
    os.utime(path, (then, then))


def it_gives_what_was_put_there(cache: FolderCache) -> None:
    assert cache.get("ns/ab/1.numbers") is None
    cache.put("ns/ab/1.numbers", b"one")
    cache.put("ns/ab/1.numbers", b"two")
    assert cache.get("ns/ab/1.numbers") == b"two"
    assert pickle.loads(pickle.dumps(cache)).get("ns/ab/1.numbers") == b"two"


def it_lets_what_was_used_longest_ago_go(cache: FolderCache, tmp_path: Path) -> None:
    larger = FolderCache(str(tmp_path / "cache"), 100_000)
    for n in range(12):
        larger.put(f"ns/{n}", bytes(100))
        used(tmp_path, f"ns/{n}", 10_000 - n)
    cache.get("ns/0")  # used now
    cache.trim()
    left = {n for n in range(12) if cache.get(f"ns/{n}") is not None}
    assert left == {0, 4, 5, 6, 7, 8, 9, 10, 11}


def it_keeps_everything_within_its_size(cache: FolderCache) -> None:
    for n in range(10):
        cache.put(f"ns/{n}", bytes(100))
    cache.trim()
    assert all(cache.get(f"ns/{n}") for n in range(10))


def it_does_not_outgrow_its_size_before_somebody_trims_it(cache: FolderCache, tmp_path: Path) -> None:
    for n in range(100):
        cache.put(f"ns/{n}", bytes(100))
        used(tmp_path, f"ns/{n}", 10_000 - n)
        size = sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*") if file.is_file())
        assert size <= 1_000 * 1.2
    assert cache.get("ns/99") is not None


def it_clears_what_killed_processes_left_and_nothing_that_is_being_written(
    cache: FolderCache, tmp_path: Path
) -> None:
    cache.put("ns/1", b"1")
    old, new = (tmp_path / "cache" / "ns" / (LEFTOVER + name) for name in ("old", "new"))
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    used(tmp_path, f"ns/{LEFTOVER}old", LEFTOVER_SECONDS + 60)
    cache.trim()
    assert not old.exists()
    assert new.exists()


def it_is_as_good_as_empty_when_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = FolderCache(str(tmp_path / "file" / "cache"), 1000)
    cache.put("ns/1", b"1")
    assert cache.get("ns/1") is None
    cache.trim()


def it_shows_nobody_else_what_it_holds(cache: FolderCache, tmp_path: Path) -> None:
    cache.put("ns/1", b"1")
    assert (tmp_path / "cache" / "ns").stat().st_mode & 0o077 == 0


def _put_and_get(root: str, number: int) -> bool:
    cache = FolderCache(root, 10_000)
    whole = True
    for turn in range(200):
        cache.put("ns/same", bytes((number,)) * 5000)
        data = cache.get("ns/same")
        whole &= data is None or (len(data) == 5000 and len(set(data)) == 1)
        if turn % 50 == 0:
            cache.trim()
    return whole


def it_is_safe_with_several_processes(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        assert all(pool.map(_put_and_get, [str(tmp_path / "cache")] * 3, range(3)))
