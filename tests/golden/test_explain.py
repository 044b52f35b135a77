"""``lakeplan explain`` over recorded cases: of every object it says what the simulation says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest

from lakeplan.cli.commands.explain import NamespaceOptions
from lakeplan.explain.explain import Question, World, explain
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.simulation.documents import SimulateRequest
from lakeplan.simulation.inputs import parse_rules
from lakeplan.simulation.run import simulate
from lakeplan.simulation.runners import LOCAL, Runners
from lakeplan.simulation.verdicts import RuleSet
from lakeplan.stores.open import open_namespace
from lakeplan.values.progress import Silent
from tests.conftest import GoldenCase
from tests.explain.asking import explain_addresses

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "explain.v1.json").read_text())
GOES = {"expired", "at_risk", "never_committed"}


def world_of(golden: GoldenCase, asked: Mapping[str, Any], folder: Path, min_age: int = 1) -> World:
    rules = folder / "rules.json"
    rules.write_text(json.dumps(asked["rules"]))
    options = NamespaceOptions(rules=rules, min_age=f"{min_age}s", max_uncommitted_age="3650d")
    as_of = datetime.fromtimestamp(asked["as_of"], timezone.utc)
    return options.world(f"file://{golden.namespace}", as_of)


def candidates(golden: GoldenCase) -> list[str]:
    listing: list[dict[str, Any]] = golden.case["listing"]  # type: ignore[assignment]
    return sorted(item["key"] for item in listing if is_candidate_key(item["key"]))


@pytest.mark.golden
def test_it_agrees_with_the_official_collector_for_every_object(golden: GoldenCase, tmp_path: Path) -> None:
    collector: dict[str, Any] | None = golden.case.get("official_collector")  # type: ignore[assignment]
    if collector is None:
        pytest.skip("the official collector was not run on this case")
    world = world_of(golden, collector, tmp_path, collector["min_age_seconds"])
    status = {
        subject["address"]: subject["verdicts"][0]["status"]
        for subject in explain_addresses(world, candidates(golden))
    }
    assert len(status) == len(candidates(golden))
    assert sorted(a for a, said in status.items() if said in GOES) == sorted(collector["deleted"])
    if "at_risk" in collector:
        assert sorted(a for a, said in status.items() if said == "at_risk") == sorted(collector["at_risk"])


@pytest.mark.golden(extended=["wide-1", "history-3", "history-4"])
def test_it_agrees_with_the_simulation_for_every_object(golden: GoldenCase, tmp_path: Path) -> None:
    # Two rule sets each: the collector's answer is compared apart.
    for n, asked in enumerate(golden.case["expected"][:2]):  # type: ignore[index]
        folder = tmp_path / str(n)
        folder.mkdir()
        world = world_of(golden, asked, folder)
        said = explain_addresses(world, candidates(golden))
        request = SimulateRequest(
            (RuleSet("rules", parse_rules(json.dumps(asked["rules"]).encode(), name="case.json")),),
            world.as_of,
            min_age_seconds=1,
            max_uncommitted_age_seconds=3650 * 86400,
            output=folder / "out",
        )
        simulate(request, open_namespace(f"file://{golden.namespace}"), Runners(LOCAL), Silent())
        rows = {row["address"]: row for row in pq.read_table(folder / "out" / "objects").to_pylist()}
        for subject in said:
            status, row = subject["verdicts"][0]["status"], rows.get(subject["address"])
            if row is None:
                assert status not in GOES, subject
                continue
            expected = "at_risk" if row["at_risk"] else row["reason"]
            assert (status, subject["size_bytes"], subject["paths"]) == (
                expected,
                row["size_bytes"],
                row["paths"],
            )
            last = subject["last_commit"]
            assert (last and last["commit_id"]) == row["last_commit_id"]


@pytest.mark.golden
def test_it_agrees_with_the_server_for_every_commit_and_with_the_rule_until_when(
    golden: GoldenCase, tmp_path: Path
) -> None:
    for asked in golden.case["expected"]:  # type: ignore[attr-defined]
        world = world_of(golden, asked, tmp_path)
        for commit in world.graph.ids:
            made = explain(world, Question(commit, kind="commit"), Silent())
            verdict = made["subjects"][0]["verdicts"][0]
            assert verdict["server"] == (commit in asked["active_commits"])
            assert verdict["server"] <= verdict["documented"] == (verdict["gone_since"] is None)
            marks = any(p["outcome"] in ("head", "young", "marks") for p in verdict["walk"] or ())
            assert marks == verdict["server"] or verdict["walk_count"] > len(verdict["walk"])
        jsonschema.validate(made, SCHEMA)


@pytest.mark.golden(extended=["wide-1", "history-3", "history-4"])
def test_a_path_gives_the_same_answer_as_the_address_that_it_holds(
    golden: GoldenCase, tmp_path: Path
) -> None:
    world = world_of(golden, golden.case["expected"][0], tmp_path)  # type: ignore[index]
    by_address = explain_addresses(world, candidates(golden))
    for subject in [s for s in by_address if s["paths"]][:12]:
        made = explain(world, Question(subject["paths"][0], kind="path"), Silent())
        found = next((s for s in made["subjects"] if s["address"] == subject["address"]), None)
        if found is None:
            assert made["subject_count"] > len(made["subjects"])
            continue
        assert found["verdicts"][0]["status"] == subject["verdicts"][0]["status"]
        jsonschema.validate(made, SCHEMA)
