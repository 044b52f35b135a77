"""A server that does not answer, of which the tree has globs only: nothing there is inspected."""

from __future__ import annotations

import pytest

POLICIES = "branch_lifecycle: {policies: [{id: f, patterns: ['feature-*'], max_age: 7d}]}"
FAILS = "lake/team-*"


@pytest.fixture
def two(world, monkeypatch: pytest.MonkeyPatch):
    """A repository of ``prod``, and globs of the server ``lake``, which is down."""
    down = "http://127.0.0.1:9"
    monkeypatch.setenv("LAKEPLAN_LAKE_ENDPOINT_URL", down)
    monkeypatch.setenv("LAKEPLAN_LAKE_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("LAKEPLAN_LAKE_SECRET_ACCESS_KEY", "b")
    world.api.repository("analytics")
    world.api.commit("analytics", "main", 1, a=10)
    world.api.set_rules("analytics", 30)
    engine = "branch_lifecycle: {engine: lakeplan}"
    world.write(
        "lakeplan.yaml",
        "apiVersion: lakeplan/v1\nservers:\n"
        f"  prod: {{endpoint_url: {world.handle.endpoint_url}, {engine}}}\n"
        f"  lake: {{endpoint_url: {down}, {engine}}}\n",
    )
    world.write(
        "repositories/all.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n"
        f"  prod/analytics: {{owner: data, gc: {{default_retention_days: 30}}, {POLICIES}}}\n"
        f"  lake/team-*: {{owner: team, gc: {{default_retention_days: 9}}, {POLICIES}}}\n"
        # rules that are whole by the next one only, which names all that this one does
        "  lake/team-*-raw: {gc: {branches: [{branch_id: main, retention_days: 20}]}}\n",
    )
    return world


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "--detailed-exitcode"),
        ("apply", "--auto-approve"),
        ("branches", "plan"),
        ("branches", "run"),
        ("check", "--format", "json"),
        (("sweep", "list"), "--collector-runs"),
    ],
    ids=str,
)
def it_does_not_end_as_if_everything_was_inspected(two, command) -> None:
    result = two.lakeplan(*command)
    assert result.code == 3, result.out + result.err
    assert FAILS in result.out + result.err


def it_fails_a_purge_that_would_leave_a_server_out(two) -> None:
    result = two.lakeplan(("sweep", "purge"), "--older-than", "1d", "--auto-approve")
    assert result.code == 1, result.out + result.err
    assert "server lake" in result.err


def it_says_so_of_a_change_that_is_planned_against_a_base(two) -> None:
    two.git("init")
    two.git("add", "-A")
    two.git("commit", "-m", "first")
    result = two.lakeplan("plan", "--base", "HEAD", "--format", "json")
    assert result.code == 3, result.out + result.err
    assert [r["name"] for r in result.json["repositories"] if r["failure"]] == ["team-*", "team-*-raw"]
    assert result.json["loosenings"] == []


def it_applies_the_rest_of_a_plan(two) -> None:
    two.api.set_rules("analytics", 20)
    plan = two.folder / "plan.json"
    assert two.lakeplan("plan", "--format", "json", "--out", plan).code == 3
    result = two.lakeplan("apply", plan)
    assert result.code == 0, result.out + result.err
    assert two.api.rules("analytics") == {"*": 30}


@pytest.mark.parametrize(
    "selected",
    [("--server", "prod"), ("--owner", "data"), ("--target", "analytics"), ("--target", "prod/*")],
    ids=" ".join,
)
def it_says_nothing_of_globs_that_are_not_selected(two, selected) -> None:
    result = two.lakeplan("plan", *selected)
    assert result.code == 0, result.out + result.err
    assert FAILS not in result.out


@pytest.mark.parametrize("glob", ["team-a", "lake/*raw", "*"])
def it_fails_for_those_that_are(two, glob) -> None:
    result = two.lakeplan("plan", "--target", "prod/analytics", "--target", glob)
    assert result.code == 3, result.out + result.err
