"""``--inventory``, as a person gives it, against a store that speaks S3."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from lakeplan.cli.main import run
from lakeplan.cli.namespaces import inventory_of
from lakeplan.errors import CredentialsError, ExitCode, LakeplanError
from lakeplan.values.desired import ServerConfig, StorageConfig
from tests.simulation.inventories import inventory, inventory_file
from tests.simulation.namespaces import NOW, History, Snapshot, Stored, entry, write_namespace
from tests.storage_servers import s3_client

SCHEMAS = Path(__file__).parents[2] / "schemas"
NOW_MS = int(NOW.timestamp()) * 1000
DAY_MS = 86_400_000


@pytest.fixture
def site(s3_bucket: str, tmp_path: Path) -> str:
    """A namespace in a bucket, whose inventory has the stored ages that a copy cannot have."""
    history = History(
        (
            Snapshot("a", 60, (), (entry("x/1", "data/p/1", 1500),)),
            Snapshot("b", 50, ("a",), ()),
            Snapshot("c", 1, ("b",), (entry("x/2", "data/p/2"),)),
        ),
        {"main": "c"},
        {"data/p/1": Stored(1500), "data/p/2": Stored(), "data/p/3": Stored(20)},
        staged=["data/p/9"],
    )
    root = tmp_path / "ns"
    write_namespace(root, history)
    client = s3_client()
    for path in root.rglob("*"):
        if path.is_file():
            client.put_object(Bucket=s3_bucket, Key=f"ns/{path.relative_to(root)}", Body=path.read_bytes())
    old = {"last_modified_date": NOW_MS - 10 * DAY_MS}
    rows = [
        {"key": "ns/_lakefs/dummy", **old},
        {"key": "ns/data/p/1", "size": 1500, **old},
        {"key": "ns/data/p/3", "size": 20, **old},
        {"key": "ns/data/p/young", "last_modified_date": NOW_MS},
        {"key": "ns/data/p/gone", "is_delete_marker": True, "size": None, **old},
        {"key": "ns/data/p/3", "version_id": "0", "is_latest": False, "size": 999, **old},
    ]
    file = inventory_file(rows, bucket=s3_bucket, versions=True)
    created = NOW_MS - DAY_MS
    for key, data in inventory(
        [file], bucket=s3_bucket, to=s3_bucket, created_ms=created, folder="inv/1"
    ).items():
        client.put_object(Bucket=s3_bucket, Key=key, Body=data)
    return s3_bucket


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    path.write_text('{"default_retention_days": 7, "branches": null}')
    return path


def arguments(command: str, bucket: str, rules: Path, *more: str) -> list[str]:
    line = [command, "--namespace", f"s3://{bucket}/ns", "--rules", str(rules), "--as-of", NOW.isoformat()]
    return [*line, "--runner", "local", "--inventory", f"s3://{bucket}/inv/1/manifest.json", *more]


def it_simulates_what_was_stored_at_that_date(
    site: str, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments("simulate", site, rules, "--format", "json")) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json.loads((SCHEMAS / "simulate.v1.json").read_text()))
    objects = found["rule_sets"][0]["objects"]
    assert objects["goes"] == {"objects": 2, "size_bytes": 1520}
    assert found["inventory"] == {
        "url": f"s3://{site}/inv/1/manifest.json",
        "created": "2026-03-30T12:00:00Z",
        "age_seconds": 86_400,
    }
    assert any("2026-03-30T12:00:00Z" in warning for warning in found["warnings"])


def it_lists_nothing_then(
    site: str, rules: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakeplan.simulation.run.listing_items", lambda _: pytest.fail("it listed"))
    assert run(arguments("simulate", site, rules)) == ExitCode.OK
    assert "2026-03-30T12:00:00Z" in " ".join(capsys.readouterr().out.split())


def it_draws_a_curve_of_what_was_stored_at_that_date(
    site: str, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments("curve", site, rules, "--format", "json")) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json.loads((SCHEMAS / "curve.v1.json").read_text()))
    assert found["inventory"]["age_seconds"] == 86_400
    assert any("2026-03-30T12:00:00Z" in warning for warning in found["warnings"])


@pytest.mark.parametrize("command", ["simulate", "curve"])
def it_refuses_one_that_is_too_old(
    site: str, rules: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments(command, site, rules, "--max-inventory-age", "23h")) == ExitCode.ERROR
    assert "1 day, 0:00:00 old" in " ".join(capsys.readouterr().err.split())


def it_refuses_one_that_it_would_not_use(site: str, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments("simulate", site, rules, "--no-listing")) == ExitCode.USAGE
    assert "cannot be combined" in capsys.readouterr().err


class DescribeTheTree:
    @pytest.fixture
    def session(self, s3_endpoint: str) -> Any:
        storage = StorageConfig("s3", endpoint_url=s3_endpoint, region="us-east-1")
        server = ServerConfig("prod", "http://lakefs", storages={"": storage})
        bound = {"LAKEPLAN_PROD_STORAGE_URL": s3_endpoint}
        return SimpleNamespace(
            tree=SimpleNamespace(servers={"prod": server}), environ=bound, approve=None, as_of=NOW
        )

    def configure(self, session: Any, **changed: Any) -> None:
        server = session.tree.servers["prod"]
        storage = replace(server.storages[""], **changed)
        session.tree.servers["prod"] = replace(server, storages={"": storage})

    def it_names_the_inventory_of_a_storage(self, session: Any, site: str) -> None:
        assert inventory_of(session, "prod", "", f"s3://{site}/ns") is None
        self.configure(session, inventory=f"s3://{site}/inv/1/manifest.json")
        found = inventory_of(session, "prod", "", f"s3://{site}/ns")
        assert found is not None
        assert (found.bucket, found.base, found.age_seconds) == (site, "ns/", 86_400)

    def it_limits_its_age(self, session: Any, site: str) -> None:
        where = f"s3://{site}/inv/1/manifest.json"
        self.configure(session, inventory=where, inventory_max_age_seconds=3600)
        with pytest.raises(LakeplanError, match="1 day, 0:00:00 old"):
            inventory_of(session, "prod", "", f"s3://{site}/ns")

    def it_sends_credentials_only_where_they_are_bound(self, session: Any, site: str) -> None:
        self.configure(session, inventory=f"s3://{site}/inv/1/manifest.json")
        session.environ = {"LAKEPLAN_PROD_STORAGE_URL": "https://elsewhere.example"}
        with pytest.raises(CredentialsError):
            inventory_of(session, "prod", "", f"s3://{site}/ns")
