"""A plan with an S3 inventory: it says what is stored of what expires, and gates judge as without it."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone

import pytest

from lakeplan.cli.namespaces import inventory_of
from tests.simulation.inventories import inventory, inventory_file
from tests.storage_servers import s3_client

NOW = datetime.now(timezone.utc).isoformat()


@pytest.fixture
def expiring(world):
    """Two of three objects expire with the 5 days that the tree asks for."""
    world.api.repository("analytics")
    world.api.commit("analytics", "main", 40, a=10)
    world.api.delete("analytics", "main", "a.bin")
    world.api.commit("analytics", "main", 30, b=20)
    world.api.delete("analytics", "main", "b.bin")
    world.api.commit("analytics", "main", 20, c=10)
    world.api.commit("analytics", "main", 1, d=10)
    world.api.set_rules("analytics", 365)
    world.rules("analytics", 5)


def configure(world, storage: str) -> None:
    server = f"endpoint_url: {world.handle.endpoint_url}, storages: {{'': {storage}}}"
    world.write("lakeplan.yaml", f"apiVersion: lakeplan/v1\nservers: {{prod: {{{server}}}}}\n")


def planned(world) -> dict:
    answer = world.lakeplan("plan", "--format", "json", "--runner", "local", "--as-of", NOW)
    assert answer.code in (0, 2, 4), answer.err
    return next(r for r in json.loads(answer.out)["repositories"] if r["name"] == "analytics")


def it_says_what_is_stored_and_lowers_no_figure(world, expiring, s3_bucket, tmp_path, monkeypatch):
    configure(world, "{type: s3}")
    before = planned(world)
    assert before["impact"]["horizons"]["now"]["objects_expire"] == 2
    stored = [path for path in (tmp_path / "sandbox").rglob("*") if path.is_file() and "/data/" in str(path)]
    kept = [str(path) for path in stored if not path.read_bytes().startswith(b"a.")]
    assert len(kept) == len(stored) - 1
    rows = [{"key": f"ns/data/{path.partition('/data/')[2]}", "size": 1} for path in kept]
    client = s3_client()
    data = inventory_file([*rows, {"key": "ns/_lakefs/dummy"}], bucket=s3_bucket)
    made = inventory(
        [data], bucket=s3_bucket, to=s3_bucket, created_ms=int(time.time() - 3600) * 1000, folder="inv"
    )
    for key, file in made.items():
        client.put_object(Bucket=s3_bucket, Key=key, Body=file)
    configure(world, f"{{type: s3, inventory: 's3://{s3_bucket}/inv/manifest.json'}}")
    # The sandbox keeps its namespaces in folders; the server says where one is.
    monkeypatch.setattr(
        "lakeplan.cli.commands.plan.inventory_for",
        lambda session, _: inventory_of(session, "prod", "", f"s3://{s3_bucket}/ns"),
    )
    after = planned(world)
    (text,) = (warning for warning in after["warnings"] if "inventory" in warning)
    assert text.startswith("of 2 objects that expire, 1 (20 bytes) was in storage when the S3 inventory of ")
    assert after["impact"] == before["impact"]
    assert after["gates"] == before["gates"]


def it_plans_without_an_inventory_that_cannot_be_used(world, expiring):
    configure(world, "{type: s3}")
    before = planned(world)
    configure(world, "{type: s3, inventory: 's3://inventories/x/manifest.json'}")
    after = planned(world)
    assert any("an S3 inventory lists an S3 bucket" in warning for warning in after["warnings"])
    assert after["impact"] == before["impact"]
