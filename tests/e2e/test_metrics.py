"""``--format openmetrics`` of the commands that write and read rules."""

from __future__ import annotations

import pytest

from tests.openmetrics import samples

KEY = ("prod", "analytics", "data-platform")


@pytest.fixture
def owned(world):
    """``analytics`` of data-platform with an old and a new commit; no rules yet."""
    world.api.repository("analytics")
    world.api.commit("analytics", "main", 40, a=10)
    world.api.commit("analytics", "main", 1, b=20)
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    owner: data-platform\n"
        "    gc: {default_retention_days: 21}\n",
    )
    return world


def metrics(world, command, *more, code=0):
    result = world.lakeplan(command, "--format", "openmetrics", *more)
    assert result.code == code, result.err
    return samples(result.out)


def it_follows_a_change_from_plan_to_history(owned):
    plan = owned.folder / "plan.json"
    owned.override("unknown-impact")
    beside = ("--no-simulate", "--format", "json", "--out", plan)
    result = owned.lakeplan("plan", *beside, "--format", "openmetrics")
    assert result.code == 0, result.err
    planned = samples(result.out)
    assert planned["lakeplan_plan_pending"] == {KEY: 1.0}
    assert planned["lakeplan_plan_impact_known"] == {KEY: 0.0}
    assert "lakeplan_plan_expiring_bytes" not in planned
    shown = owned.lakeplan("show", plan, "--format", "openmetrics")
    assert samples(shown.out) == planned
    done = metrics(owned, "apply", plan, "--no-simulate")
    assert done["lakeplan_apply_result"] == {(*KEY, "gc", "applied"): 1.0}
    assert metrics(owned, "plan")["lakeplan_plan_pending"] == {KEY: 0.0}
    (last,) = metrics(owned, ("history", "list"))["lakeplan_history_last_timestamp_seconds"]
    assert last == (*KEY, "apply", "applied")
    assert metrics(owned, ("history", "show"), "last")["lakeplan_history_damaged"] == {(): 0.0}


def it_names_the_owner_of_what_drift_could_not_read(owned):
    owned.handle.stop()
    found = metrics(owned, "drift", code=1)
    assert found["lakeplan_drift_failure"] == {KEY: 1.0}


def it_tells_refused_gates_and_failures(owned):
    owned.rules("gone", 7)
    found = metrics(owned, "plan", "--no-simulate", code=3)
    assert found["lakeplan_plan_gates_refused"] == {(*KEY, "unknown-impact"): 1.0}
    assert found["lakeplan_plan_failure"] == {KEY: 0.0, ("prod", "gone", ""): 1.0}


def it_counts_branches_by_verdict_and_outcome(owned):
    owned.api.branch("analytics", "feature-1")
    text = (owned.tree / "lakeplan.yaml").read_text()
    owned.write(
        "lakeplan.yaml",
        text.replace("servers: {prod: {", "servers: {prod: {branch_lifecycle: {engine: lakeplan}, "),
    )
    owned.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    owner: data-platform\n"
        "    branch_lifecycle: {policies: [{id: old, patterns: [feature-*], max_age: 1d}]}\n",
    )
    planned = metrics(owned, ("branches", "plan"), "--no-simulate")
    assert planned["lakeplan_lifecycle_plan_branches"] == {(*KEY, "delete"): 0.0, (*KEY, "keep"): 2.0}
    assert planned["lakeplan_lifecycle_plan_failure"] == {KEY: 0.0}
    done = metrics(owned, ("branches", "run"))
    assert done["lakeplan_lifecycle_run_branches"] == {(*KEY, "kept"): 2.0}


def it_says_where_a_metrics_file_could_not_be_written(owned):
    result = owned.lakeplan("drift", "--format", "openmetrics", "--out", owned.folder / "no" / "x.prom")
    assert result.code == 1
    assert "x.prom: cannot write" in result.err.replace("\n", "")
    assert ".x.prom." not in result.err


def it_refuses_the_format_where_there_are_no_figures(owned):
    for command in (("validate",), ("sweep", "list", "--collector-runs")):
        assert owned.lakeplan(command, "--format", "openmetrics").code == 64
