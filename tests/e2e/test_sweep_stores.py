"""A sweep by the command line over real stores: a sandbox's namespace in S3, Azure and Google Cloud
Storage, its state beside it.

The sandbox keeps its own namespace in a folder. What it writes there is carried to the store, as a server
with that store would write it; lakeplan sees the store alone.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from lakeplan.lakefs.writers import LakeFSPreparer
from lakeplan.sandbox.service import Options
from lakeplan.stores.open import open_sweep_store
from lakeplan.values.sweep import Versions
from tests.sandboxes import start_sandbox
from tests.storage_servers import bucket_url, give_workers_the_environment

if TYPE_CHECKING:
    from lakeplan.stores.open import SweepStore
    from tests.e2e.conftest import World

pytestmark = pytest.mark.extended
"""tests/e2e/test_sweep.py has the same in a folder, tests/stores/test_sweep_on_s3.py sweeps in a bucket."""

LAKEFS_SECRET = "6Xhq-lakefs-secret-of-this-test"
S3_SECRET = "9Wvk-store-secret-of-this-test"
S3_TOKEN = "3Bnt-session-token-of-this-test"


class StoreSite:
    """A repository whose namespace lies in a store."""

    def __init__(self, world: World, folder: Path, root: str, mode: str) -> None:
        self.world = world
        self.folder = folder
        self.root = root
        self.store: SweepStore = open_sweep_store(f"{root}/lake")
        self.state: SweepStore = open_sweep_store(f"{root}/state")
        world.write(
            "lakeplan.yaml",
            "apiVersion: lakeplan/v1\n"
            f"servers: {{prod: {{endpoint_url: {world.handle.endpoint_url}, storages: {{"
            f'"": {{type: local, path: {folder.parent}}}}}}}}}\n'
            f"state: {{url: {root}/state}}\n"
            "safety: {max_expired_objects_percent: 100}\n"
            "overrides: [{repository: lake, gate: min-age, reason: uploads of a test are new,"
            " expires: 2099-12-31}]\n"
            "repositories: {lake: {gc: {default_retention_days: 7}, "
            f"sweep: {{min_age: 0s, settle: 0s, margin: 0s, verify: all, mode: {mode},"
            " quarantine_age: 0s}}}\n",
        )
        api = world.api
        api.session.auth = (world.handle.access_key_id, LAKEFS_SECRET)
        api.repository("lake")
        api.commit("lake", "main", 40, a=10, b=20)
        api.commit("lake", "main", 30, a=11)
        api.commit("lake", "main", 20, a=12)
        api.commit("lake", "main", 1, c=5)
        api.upload("lake", "main", "staged.bin", b"staged")
        api.set_rules("lake", 7)
        self.carry()
        # A minimum age of nothing takes what is older than the mark's first second.
        time.sleep(1.1)
        self.before = self.data()

    def carry(self, below: str = "") -> None:
        for path in (self.folder / below).rglob("*"):
            if path.is_file():
                self.store.put(str(path.relative_to(self.folder)), path.read_bytes())

    def data(self) -> dict[str, bytes]:
        return {found.key: self.store.read(found.key) for found in self.store.list_objects("data/")}

    def run(self, *words: str) -> Any:
        result = self.world.lakeplan(("sweep", words[0]), *words[1:], "--format", "json")
        assert result.code == 0, result.err
        return result.json

    def sweep(self) -> tuple[str, Any]:
        mark_id = self.run("mark")["marks"][0]["mark_id"]
        assert self.data() == self.before
        self.run("approve", mark_id, "--reason", "a test")
        return mark_id, self.run("run", mark_id)

    def written(self) -> dict[str, bytes]:
        """Everything that lakeplan wrote: records in the namespace, reports, the state."""
        stores = ((self.store, "_lakeplan/"), (self.store, "_lakefs/retention/gc/unified/"), (self.state, ""))
        return {
            f"{store.url}/{found.key}": store.read(found.key)
            for store, prefix in stores
            for found in store.list_objects(prefix)
        }


@pytest.fixture(params=["s3", "azure", "gcs"])
def root(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    url = bucket_url(request, request.param)
    if request.param == "s3":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET)
        monkeypatch.setenv("AWS_SESSION_TOKEN", S3_TOKEN)
    return url


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def runner(request: pytest.FixtureRequest, root: str, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark")
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        assert session is not None
        give_workers_the_environment(session, monkeypatch)
    return str(request.param)


@pytest.fixture
def make_site(
    root: str,
    runner: str,
    tmp_path: Path,
    make_world: Callable[..., World],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[str], StoreSite]]:
    monkeypatch.setenv("LAKEPLAN_STATE_URL", f"{root}/state")
    sites: list[StoreSite] = []
    prepare = LakeFSPreparer.prepare_uncommitted

    def prepared(self: LakeFSPreparer, repository: str) -> tuple[str, ...]:
        runs = prepare(self, repository)
        sites[0].carry("_lakefs")
        return runs

    monkeypatch.setattr(LakeFSPreparer, "prepare_uncommitted", prepared)
    monkeypatch.setattr(
        "lakeplan.cli.sweeping.open_sweep_store", lambda folder: open_sweep_store(f"{root}/lake")
    )
    options = Options(secret_access_key=LAKEFS_SECRET)
    with start_sandbox(tmp_path / "sandbox", options=options) as handle:

        def make(mode: str) -> StoreSite:
            sites.append(StoreSite(make_world(handle), tmp_path / "sandbox" / "lake", root, mode))
            sites[0].world.append("lakeplan.yaml", f"simulation: {{runner: {runner}}}\n")
            return sites[0]

        yield make


def it_deletes_what_was_approved_and_leaves_records_and_the_report(make_site: Any) -> None:
    site = make_site("delete")
    mark_id, document = site.sweep()
    assert document["finished"]
    assert document["deleted"]["objects"] == document["verified"] == 2
    after = site.data()
    gone = site.before.keys() - after.keys()
    assert sorted(site.before[key].rstrip(b".") for key in gone) == [b"a", b"a"]
    assert all(site.store.is_gone(key) for key in gone)
    assert after == {key: data for key, data in site.before.items() if key not in gone}
    written = site.written()
    report = f"{site.store.url}/_lakefs/retention/gc/unified/{document['official_run_id']}"
    assert json.loads(written[f"{report}/summary.json"])["num_deleted_objects"] == 2
    assert set(written[f"{report}/deleted.text/part-00000.txt"].decode().split()) == gone
    sweep = f"{site.store.url}/_lakeplan/sweeps/{mark_id}"
    assert json.loads(written[f"{sweep}/summary.json"])["deleted"] == document["deleted"]
    assert any(key.startswith(f"{sweep}/results/") for key in written)
    assert any(key.startswith(f"{sweep}/begun/") for key in written)
    runs = site.world.lakeplan("history", "--format", "json").json["runs"]
    assert [run["command"] for run in runs] == ["sweep run"]


def it_brings_back_from_quarantine_byte_for_byte_and_writes_no_secret(make_site: Any) -> None:
    site = make_site("quarantine")
    mark_id, document = site.sweep()
    assert document["deleted"]["objects"] == len(site.before) - len(site.data()) == 2
    assert site.run("restore", mark_id)["restored"] == 2
    assert site.data() == site.before
    has_no_secret(site, mark_id)
    time.sleep(1.1)
    site.run("purge", "--older-than", "0s", "--auto-approve")
    assert not list(site.store.list_objects("_lakeplan/quarantine/"))
    assert site.data() == site.before


def has_no_secret(site: StoreSite, mark_id: str) -> None:
    written = site.written()
    for place in (f"marks/{mark_id}/", f"sweeps/{mark_id}/", f"quarantine/{mark_id}/", "/state/history/"):
        assert any(place in key for key in written), place
    if site.root.startswith("gs://"):
        return  # the emulator takes requests without a secret
    secrets = [LAKEFS_SECRET, *(os.environ[name] for name in os.environ if name in SECRET_VARIABLES)]
    assert len(secrets) > 1
    # Parquet compresses: what its tables say in plain counts too.
    for key, data in written.items():
        texts = [data, _plain(data)] if key.endswith(".parquet") else [data]
        for secret in secrets:
            assert not any(secret.encode() in text for text in texts), key


SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AZURE_STORAGE_KEY")


def _plain(data: bytes) -> bytes:
    table = pq.read_table(io.BytesIO(data))
    return f"{table.to_pylist()} {table.schema.metadata}".encode()


@pytest.mark.parametrize("runner", ["local"], indirect=True)
def it_checks_a_repository_around_its_sweep(make_site: Any) -> None:
    """Also with data read: what is there, what is missing, what is cut, what has other bytes. Checks on Spark
    are in tests/simulation/test_checking.py, and Spark reads each store in the other tests here."""
    site = make_site("quarantine")
    mark_id = site.run("mark")["marks"][0]["mark_id"]
    site.run("approve", mark_id, "--reason", "a test")
    document = site.run("run", mark_id, "--check")
    assert document["deleted"]["objects"] == 2
    assert document["checks"]["before"]["complete"]
    assert document["checks"]["after"]["complete"]

    def check(code: int) -> Any:
        result = site.world.lakeplan("check", "--read-data", "100%", "--format", "json")
        assert result.code == code, result.err
        (row,) = result.json["repositories"]
        return row

    row = check(0)
    assert (row["named"]["objects"], row["read"]["matched"]) == (3, 3)
    assert [one["present"]["objects"] for one in row["quarantine"]] == [2]
    kept = sorted(site.data(), key=lambda key: len(site.store.read(key)))
    (short, middle, _), gone = kept[:3], [key for key in kept if site.store.read(key)[:1] == b"b"]
    damaged = [key for key in (short, middle) if key not in gone]
    site.store.delete(gone, versions=Versions.MARKER)
    data = site.store.read(damaged[0])
    site.store.put(damaged[0], data[:-1])
    row = check(3)
    problems = {(one["problem"], one["address"], one["stored_bytes"]) for one in row["findings"]}
    assert problems == {("missing", gone[0], None), ("size", damaged[0], len(data) - 1)}
    site.store.put(damaged[0], data[::-1][:-1] + b"?")
    row = check(3)
    assert {one["problem"] for one in row["findings"]} == {"missing", "checksum"}
