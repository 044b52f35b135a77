"""The doctor's tests of a storage, in real stores."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from lakeplan.doctor.doctor import check_facts, probe
from lakeplan.stores.open import open_sweep_store
from lakeplan.values.sweep import Versions
from tests.storage_servers import bucket_url, s3_client


@pytest.mark.parametrize("versions", list(Versions))
@pytest.mark.parametrize("kind", ["s3", "azure", "gcs"])
def it_tries_all_that_a_sweep_does_and_leaves_nothing(
    request: pytest.FixtureRequest, kind: str, versions: Versions
) -> None:
    store = open_sweep_store(f"{bucket_url(request, kind)}/repo")
    found = probe(store, versions, "token", datetime.now(timezone.utc))
    assert [(f.name, f.result, f.message) for f in found if f.result != "ok"] == []
    assert len(found) == 5
    assert not list(store.list_objects())
    assert {f.name for f in check_facts(store, versions)} == {"versions", "soft delete"}


def it_says_that_a_bucket_keeps_versions(s3_bucket: str) -> None:
    client = s3_client()
    client.put_bucket_versioning(Bucket=s3_bucket, VersioningConfiguration={"Status": "Enabled"})
    store = open_sweep_store(f"s3://{s3_bucket}/repo")
    assert next(check_facts(store, Versions.MARKER)).result == "warn"
    assert probe(store, Versions.ALL, "token", datetime.now(timezone.utc))[-1].result == "ok"
    left = client.list_object_versions(Bucket=s3_bucket)
    assert not left.get("Versions")
    assert not left.get("DeleteMarkers")
