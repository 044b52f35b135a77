"""Marks of many repositories as a person runs them: what they cost, and which caches they believe."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakeplan.simulation.foreign import FolderForeignCache

if TYPE_CHECKING:
    from tests.e2e.conftest import World

COUNT = 8


@pytest.fixture
def many(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "user" / name))
    lake = tmp_path / "sandbox"
    world.write(
        "lakeplan.yaml",
        "apiVersion: lakeplan/v1\n"
        f"servers: {{prod: {{endpoint_url: {world.handle.endpoint_url},"
        f" storages: {{'': {{type: local, path: {lake}}}}}}}}}\n"
        "safety: {max_expired_objects_percent: 100}\n"
        "repositories: {'lake-*': {gc: {default_retention_days: 7}}}\n",
    )
    make(world, lake, "lake-0")
    return world


def make(world: World, lake: Path, name: str) -> None:
    """Makes a repository with one expired object."""
    world.api.repository(name)
    world.api.set_rules(name, 7)
    world.api.commit(name, "main", 40, a=10)
    world.api.commit(name, "main", 20, a=11)
    for file in (lake / name / "data").rglob("*"):
        if file.is_file():
            os.utime(file, (time.time() - 5 * 86400,) * 2)


def requests_of(world: World, *words: str) -> int:
    world.handle.faults.forget()
    result = world.lakeplan(("sweep", "mark"), *words)
    assert result.code == 0, result.err
    return len(world.handle.faults.requests)


def test_a_repository_of_many_costs_at_most_twice_one_alone(many: World, tmp_path: Path) -> None:
    alone = requests_of(many)
    for number in range(1, COUNT):
        make(many, tmp_path / "sandbox", f"lake-{number}")
    assert requests_of(many) <= 2 * COUNT * alone
    again = requests_of(many)
    assert again <= 2 * COUNT * alone * 3 / 4, "the others' ranges are known by now"


class DescribeALyingCache:
    """It says that the only importer of an expired object imports nothing."""

    @pytest.fixture
    def lying(self, many: World, tmp_path: Path) -> World:
        make(many, tmp_path / "sandbox", "lake-1")
        (key,) = {
            f"data/{file.parent.name}/{file.name}"
            for file in (tmp_path / "sandbox/lake-0/data").rglob("*")
            if file.is_file() and file.stat().st_size == 10
        }
        body = {"physical_address": f"local://lake-0/{key}", "checksum": "c", "size_bytes": 10}
        many.api.call("PUT", "/repositories/lake-1/branches/main/objects", params={"path": "i"}, json=body)
        many.api.commit("lake-1", "main", 0)
        assert self.goes(many) == 0
        user = tmp_path / "user"
        secret = (user / "XDG_STATE_HOME/lakeplan/keys/foreign.key").read_bytes()
        cache = FolderForeignCache(user / "XDG_CACHE_HOME/lakeplan/foreign", secret)
        facts = cache.load("prod/lake-1")
        facts.metaranges = dict.fromkeys(facts.metaranges, ())
        cache.save("prod/lake-1", facts, needed=())
        return many

    def goes(self, world: World, *words: str) -> int:
        result = world.lakeplan(("sweep", "mark"), "--target", "lake-0", "--format", "json", *words)
        assert result.code == 0, result.err
        (mark,) = result.json["marks"]
        return int(mark["goes"]["objects"])

    def it_is_what_the_users_own_key_signed_and_nothing_else_would_find_out(self, lying: World) -> None:
        assert self.goes(lying) == 1, "else the other tests here prove nothing"

    def it_is_found_out_by_verifying(self, lying: World) -> None:
        result = lying.lakeplan(("sweep", "mark"), "--target", "lake-0", "--verify-cache")
        assert result.code == 1
        assert "differ from those in its storage" in result.out + result.err
        assert not any(line.startswith("Traceback") for line in result.err.splitlines())

    @pytest.mark.parametrize("case", ["CI", "without its key", "shared"])
    def it_changes_nothing_where_another_may_have_written_it(
        self, lying: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
    ) -> None:
        match case:
            case "CI":
                monkeypatch.setenv("CI", "true")
            case "without its key":
                (tmp_path / "user/XDG_STATE_HOME/lakeplan/keys/foreign.key").unlink()
            case _:
                (tmp_path / "user/XDG_CACHE_HOME/lakeplan").chmod(0o777)
        assert self.goes(lying) == 0
