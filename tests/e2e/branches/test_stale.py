"""Stale branches in plans, compared with the figures of ``lakeplan simulate`` for the same branches."""

from __future__ import annotations

import json

import pytest

from lakeplan.cli.main import run
from tests.openmetrics import samples


@pytest.fixture
def idle(lake):
    """``quiet`` (200 days), ``shared`` (90 days, its file is on main too) and a young branch."""
    api = lake.api
    api.commit("analytics", "main", 300, base=100)
    for branch, age, files in (
        ("quiet", 200, {"own": 4000, "own2": 500}),
        ("shared", 90, {"theirs": 70}),
        ("young", 2, {"fresh": 9}),
    ):
        api.branch("analytics", branch)
        api.commit("analytics", branch, age, **files)
    api.branch("analytics", "copy", "shared")
    api.commit("analytics", "main", 1, main=1)
    api.set_rules("analytics", 30)
    return lake


def only_here(document):
    (repository,) = document["repositories"]
    rows = (repository.get("lifecycle") or repository)["branches"]
    return {b["branch_id"]: b["only_here"] for b in rows if b["only_here"]}


def it_counts_as_a_simulation_of_the_namespace_does(idle, capsys, tmp_path):
    found = only_here(idle.branches("plan").json)
    assert set(found) == {"quiet", "shared", "copy"}
    assert (found["quiet"]["commits"], found["quiet"]["objects"], found["quiet"]["size_bytes"]) == (
        1,
        2,
        4500,
    )
    assert found["copy"]["size_bytes"] == found["shared"]["size_bytes"] == 0
    assert only_here(idle.lakeplan("plan", "--format", "json").json) == found
    rules = tmp_path / "rules.json"
    rules.write_text('{"default_retention_days": 30, "branches": []}')
    namespace = (idle.folder / "sandbox" / "analytics").as_uri()
    arguments = ["simulate", "--namespace", namespace, "--rules", str(rules), "--format", "json"]
    code = run([*arguments, "--no-listing"])
    simulated = json.loads(capsys.readouterr().out)
    assert code == 0
    alone = {b["branch_id"]: b["exclusive_bytes"] for b in simulated["rule_sets"][0]["branches"]}
    assert {name: only["size_bytes"] for name, only in found.items()} == {name: alone[name] for name in found}


def it_says_unknown_where_nothing_was_simulated(idle):
    document = idle.branches("plan", "--no-simulate").json
    assert only_here(document)["quiet"]["size_bytes"] is None
    assert only_here(document)["copy"]["size_bytes"] == 0  # no commit is its own: nothing to read
    shown = idle.lakeplan("branches", "plan", "--no-simulate").out
    row = next(line for line in shown.splitlines() if line.split()[:1] == ["quiet"] and "unknown" in line)
    assert row.split()[2:] == ["1", "unknown", "unknown"]
    found = samples(idle.lakeplan("branches", "plan", "--no-simulate", "--format", "openmetrics").out)
    assert list(found["lakeplan_lifecycle_plan_stale_branches"].values()) == [3.0]
    assert "lakeplan_lifecycle_plan_stale_bytes" not in found


@pytest.mark.parametrize("date", [-62135596801, -253402300799, 253402300800, 1_795_837_059_571])
def it_plans_with_commits_of_years_that_no_calendar_has(lake, date):
    """Whoever may commit chooses the date; one repository of that kind stopped the plan of all."""
    lake.api.branch("analytics", "feature-odd")
    lake.api.upload("analytics", "feature-odd", "x", b"x")
    body = {"message": "odd", "date": date}
    lake.api.call("POST", "/repositories/analytics/branches/feature-odd/commits", json=body)
    lake.policies("{id: quiet, patterns: [feature-*], max_idle_age: 3d}", "{assume_created: head_commit}")
    assert lake.branches("plan", "--no-simulate").code == 0
    assert lake.world.lakeplan("plan", "--no-simulate").code == 0
