"""Commands that read Google Cloud Storage, in a process of their own, on an emulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.cli.sweeping import open_store
from lakeplan.errors import CredentialsError, ExitCode, LakeplanError
from lakeplan.stores.open import SweepStore, open_sweep_store
from lakeplan.sweep.spark_submit import storage_access
from lakeplan.values.desired import ServerConfig, StorageConfig
from lakeplan.values.repository import Repository
from tests.simulation.namespaces import History, Snapshot, Stored, entry, write_namespace

HISTORY = History(
    (
        Snapshot("a", 60, (), (entry("x/1", "data/p/1", 1500),)),
        Snapshot("b", 50, ("a",), ()),
        Snapshot("c", 1, ("b",), (entry("x/2", "data/p/2"),)),
    ),
    {"main": "c"},
    {"data/p/1": Stored(1500), "data/p/2": Stored(), "data/p/3": Stored(20)},
    staged=["data/p/9"],
)


class Site:
    """The same namespace in a folder and in a bucket."""

    def __init__(self, folder: Path, bucket: str) -> None:
        self.folder = write_namespace(folder / "ns", HISTORY)
        self.url = f"gs://{bucket}/team a/ns"
        self.cache = f"gs://{bucket}/cache"
        self.rules = folder / "rules.json"
        self.rules.write_text('{"default_retention_days": 7, "branches": null}')
        self.store = open_sweep_store(self.url)
        # Uploads of a test are young: two days from now they are not.
        self.later = (datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=2)).isoformat()
        for path in (folder / "ns").rglob("*"):
            if path.is_file():
                self.store.put(path.relative_to(folder / "ns").as_posix(), path.read_bytes())

    def run(self, command: str, namespace: str, *more: str) -> Any:
        """The document of a command. ``more`` are options, or what to explain."""
        line = [command, "--namespace", namespace, "--rules", str(self.rules), "--as-of", self.later]
        done = subprocess.run(
            [sys.executable, "-m", "lakeplan", *line, "--format", "json", *more],
            capture_output=True,
            text=True,
            env={**os.environ, "LAKEPLAN_MAX_UNCOMMITTED_AGE": "36500d"},
            check=False,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (ExitCode.OK, "")
        return json.loads(done.stdout)


@pytest.fixture
def site(tmp_path: Path, gcs_bucket: str) -> Site:
    return Site(tmp_path, gcs_bucket)


@pytest.mark.parametrize(
    "runner", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.extended])]
)
def it_simulates_as_in_a_folder(site: Site, runner: str) -> None:
    found = site.run("simulate", site.url, "--runner", runner, "--storage-namespace", site.folder)
    objects = found["rule_sets"][0]["objects"]
    assert objects["goes"] == {"objects": 2, "size_bytes": 1520}
    assert objects == site.run("simulate", site.folder, "--runner", "local")["rule_sets"][0]["objects"]


def it_fills_and_uses_a_cache_in_a_bucket(site: Site) -> None:
    more = ("--storage-namespace", site.folder, "--cache", site.cache)
    first = site.run("simulate", site.url, *more)
    kept = [found.key for found in open_sweep_store(site.cache).list_objects()]
    assert kept
    second = site.run("simulate", site.url, *more)
    assert second["rule_sets"] == first["rule_sets"]
    assert [found.key for found in open_sweep_store(site.cache).list_objects()] == kept


def it_draws_a_curve_as_in_a_folder(site: Site) -> None:
    found = site.run("curve", site.url, "--runner", "local", "--storage-namespace", site.folder)
    same = site.run("curve", site.folder, "--runner", "local")
    assert found["curves"] == same["curves"]
    assert found["curves"]


def it_explains_as_in_a_folder(site: Site) -> None:
    found = site.run("explain", site.url, "x/1", "--storage-namespace", site.folder)
    same = site.run("explain", site.folder, "x/1")
    (there,), (here,) = found["subjects"], same["subjects"]
    assert {key for key in there if there[key] != here[key]} == {"stored_at"}  # the copy is younger


SERVER = ServerConfig("prod", "https://lakefs.example.com")
REPOSITORY = Repository("lake", "gs://bucket/lake", "main")


def opened(server: ServerConfig, environ: dict[str, str]) -> SweepStore:
    session: Any = SimpleNamespace(environ=environ, approve=None, timeouts=None)
    return open_store(session, server, REPOSITORY)


def it_opens_the_namespace_of_a_repository_for_a_sweep() -> None:
    assert opened(SERVER, {}).url == "gs://bucket/lake"


def it_sends_nothing_to_an_endpoint_that_is_not_bound() -> None:
    endpoint = "https://storage.example.com"
    server = replace(SERVER, storages={"": StorageConfig("gcs", endpoint_url=endpoint)})
    with pytest.raises(CredentialsError, match="storage of server prod"):
        opened(server, {})
    bound = {"LAKEPLAN_PROD_STORAGE_URL": endpoint}
    assert opened(server, bound).url == "gs://bucket/lake"


def it_says_that_the_tree_describes_another_store() -> None:
    server = replace(SERVER, storages={"": StorageConfig("s3")})
    with pytest.raises(LakeplanError, match="its storage has the type s3 in the tree"):
        opened(server, {})


def it_is_not_the_official_collector_s() -> None:
    with pytest.raises(LakeplanError, match="supports only S3 and Azure"):
        storage_access("gs://bucket/lake", endpoint_url=None, region=None, environ={})
