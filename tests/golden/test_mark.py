"""A mark over the recorded namespaces: what the official collector marked, minus what is at risk."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from lakeplan.simulation.marking import StepMarker
from lakeplan.simulation.runners import LOCAL, Runners
from lakeplan.stores.open import open_sweep_store
from lakeplan.values.simulation import MarkClass
from tests.golden_marks import PREFIX, addresses, mark_request


@pytest.mark.golden(extended=["wide-1"])
def it_marks_what_the_official_collector_deletes_but_what_is_at_risk(golden: Any, tmp_path: Path) -> None:
    collector = golden.case.get("official_collector")
    if collector is None or "deleted" not in collector:
        pytest.skip("the official collector was not run on this case")
    namespace = tmp_path / "namespace"
    shutil.copytree(golden.namespace, namespace)
    store = open_sweep_store(f"file://{namespace}")
    moment = datetime.fromtimestamp(collector["as_of"], tz=timezone.utc)
    marker = StepMarker(Runners(LOCAL).open)
    older_than = moment - timedelta(seconds=collector["min_age_seconds"])
    listing = marker.list_candidates(store, PREFIX, older_than=older_than)
    marked = marker.mark(mark_request(store, golden.case, listing))
    going = addresses(store, marked.going, PREFIX)
    kept = addresses(store, marked.kept, PREFIX)
    at_risk = kept.pop(MarkClass.AT_RISK.value, [])
    assert not kept  # no tags are protected, nothing is held, and the margin is 0
    assert sorted([*at_risk, *(a for of_kind in going.values() for a in of_kind)]) == sorted(
        collector["deleted"]
    )
    if "at_risk" in collector:
        assert at_risk == sorted(collector["at_risk"])
    assert sum(a.objects for a in marked.amounts.values()) == len(collector["deleted"])
