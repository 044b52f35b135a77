"""``lakeplan simulate`` over recorded cases: the server's commits and the collector's objects, exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest

from lakeplan.simulation.documents import SimulateRequest, simulate_commits
from lakeplan.simulation.inputs import parse_rules
from lakeplan.simulation.run import simulate
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.verdicts import RuleSet
from lakeplan.stores.open import open_namespace
from lakeplan.values.progress import Silent
from lakeplan.values.rules import GcRules
from tests.conftest import GoldenCase

SCHEMA = Path(__file__).parents[2] / "schemas" / "simulate.v1.json"


def rules_of(body: Mapping[str, Any]) -> GcRules:
    return parse_rules(json.dumps(body).encode(), name="case.json")


def request(expected: Mapping[str, Any], output: Path, *, min_age_seconds: int = 86_400) -> SimulateRequest:
    return SimulateRequest(
        (RuleSet("rules", rules_of(expected["rules"])),),
        datetime.fromtimestamp(expected["as_of"], timezone.utc),
        min_age_seconds=min_age_seconds,
        output=output,
    )


@pytest.mark.golden
def test_active_commits_are_the_servers_for_every_rule_set(golden: GoldenCase, tmp_path: Path) -> None:
    namespace = open_namespace(f"file://{golden.namespace}")
    expected: list[dict[str, Any]] = golden.case["expected"]  # type: ignore[assignment]
    for n, each in enumerate(expected):
        output = tmp_path / str(n)
        summary = simulate_commits(request(each, output), namespace)
        rows = pq.read_table(output / "commits").to_pylist()
        assert {row["commit_id"] for row in rows if row["active"]} == set(each["active_commits"])
        assert len(rows) == summary["refs"]["commits"]  # type: ignore[index]
        assert not [r for r in rows if r["active"] and not r["active_documented"]]


@pytest.mark.golden
def test_objects_are_those_that_the_official_collector_marked(
    golden: GoldenCase, tmp_path: Path, runners: Runners
) -> None:
    collector: dict[str, Any] | None = golden.case.get("official_collector")  # type: ignore[assignment]
    if collector is None:
        pytest.skip("the official collector was not run on this case")
    output = tmp_path / "out"
    asked = request(collector, output, min_age_seconds=collector["min_age_seconds"])
    summary = simulate(asked, open_namespace(f"file://{golden.namespace}"), runners, Silent())
    rows = pq.read_table(output / "objects").to_pylist()
    assert sorted(row["address"] for row in rows) == sorted(collector["deleted"])
    if "at_risk" in collector:
        assert sorted(r["address"] for r in rows if r["at_risk"]) == sorted(collector["at_risk"])
    sizes = {f["key"]: f["size"] for f in golden.case["listing"]}  # type: ignore[attr-defined]
    assert all(row["size_bytes"] == sizes[row["address"]] for row in rows)
    jsonschema.validate(summary, json.loads(SCHEMA.read_text()))
