"""A server that does not answer, of which the tree has globs only: nothing there is inspected."""

from __future__ import annotations

import json

import pytest

from lakeplan.cli import main
from lakeplan.lakefs.transport import RetryPolicy

POLICIES = "branch_lifecycle: {policies: [{id: f, patterns: ['feature-*'], max_age: 7d}]}"
FAILS = "lake/team-*"


@pytest.fixture
def two(world, monkeypatch: pytest.MonkeyPatch):
    """A repository of ``prod``, and globs of the server ``lake``, which is down."""
    down = "http://127.0.0.1:9"
    # Each command tries four times; a second between them shows nothing.
    monkeypatch.setattr(RetryPolicy, "wait", lambda *arguments: 0.01)
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


def it_syncs_the_pins_of_servers_that_answer(two) -> None:
    two.api.tag("analytics", "v1", two.api.commit("analytics", "main", 200, b=10))
    two.api.commit("analytics", "main", 0, c=10)
    entries = "  prod/analytics: {gc: {default_retention_days: 30}, pins: {tags: ['v*']}}\n"
    entries += "  lake/named: {gc: {default_retention_days: 9}, pins: {tags: ['v*']}}\n"
    two.write("repositories/all.yaml", f"apiVersion: lakeplan/v1\nrepositories:\n{entries}")
    result = two.lakeplan(("pins", "sync"), "--format", "json")
    assert result.code == 3, result.out + result.err
    found = {row["repository"]: (row["outcome"], row["setting"]) for row in result.json["results"]}
    assert found == {"prod/analytics": ("applied", "pins"), "lake/named": ("failed", "pins")}


def it_deletes_no_pin_and_adopts_none_where_the_server_did_not_answer(two) -> None:
    two.write(
        "repositories/all.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n"
        "  prod/analytics: {gc: {default_retention_days: 30}, pins: {tags: ['v*']}}\n",
    )
    record = two.tree / ".lakeplan/pins/lake/gone.json"
    record.parent.mkdir(parents=True)
    pins = {"a" * 64: {"retention_days": 0, "holds": []}}
    body = {
        "repository": "lake/gone",
        "run_id": "r",
        "at": "2026-01-01T00:00:00Z",
        "config_hash": "",
        "pins": pins,
    }
    record.write_text(json.dumps(body))
    two.append("repositories/all.yaml", "  lake/go*: {gc: {default_retention_days: 9}}\n")
    before = record.read_bytes()
    result = two.lakeplan(("pins", "sync"), "--adopt", "--format", "json")
    assert result.code == 3, result.out + result.err
    failed = {row["repository"] for row in result.json["results"] if row["outcome"] == "failed"}
    assert failed == {"lake/gone", "lake/go*"}
    assert record.read_bytes() == before


def it_fails_a_sync_of_pins_if_no_server_answers(two) -> None:
    result = two.lakeplan(("pins", "sync"), "--server", "lake")
    assert (result.code, result.out) == (1, "")
    assert "server lake" in result.err


def it_adopts_on_servers_that_answer(two) -> None:
    two.api.repository("web-1")
    two.append("repositories/all.yaml", "  prod/web-*: {gc: {default_retention_days: 9}}\n")
    result = two.lakeplan("adopt")
    assert result.code == 3, result.out + result.err
    assert "prod/web-1" in (two.tree / "repositories/adopted.yaml").read_text()
    assert "server lake" in result.err
    assert two.lakeplan("adopt", "--server", "lake").code == 1
    assert two.lakeplan("adopt", "--target", "prod/*").code == 0


class DescribeFleet:
    """Commands that need no tree."""

    @pytest.fixture
    def run(self, two, tmp_path, capsys):
        servers = ["--endpoint", f"prod={two.handle.endpoint_url}", "--endpoint", "lake=http://127.0.0.1:9"]

        def run(command: str, *more: str, servers=servers):
            code = main.run([command, *servers, "--format", "json", *more])
            shown = capsys.readouterr()
            return code, json.loads(shown.out or "null"), shown.err

        return run

    @pytest.mark.parametrize("command", ["audit", "storage"])
    def it_reports_the_servers_that_answer(self, run, command) -> None:
        code, found, _ = run(command)
        assert code == 3
        assert [row["repository"] for row in found["repositories"]] == ["prod/analytics"]
        assert list(found["failed"]) == ["lake/*"]
        assert "server lake" in found["failed"]["lake/*"]["where"]
        lost = ["--endpoint", "lake=http://127.0.0.1:9"]
        code, found, err = run(command, servers=lost)
        assert (code, found) == (1, None)
        assert "server lake" in err

    def it_keeps_what_an_earlier_audit_knows_of_the_other(self, run, tmp_path) -> None:
        _, found, _ = run("audit")
        (row,) = found["repositories"]
        earlier = {**found, "repositories": [row, {**row, "repository": "lake/team-1"}]}
        (tmp_path / "earlier.json").write_text(json.dumps(earlier))
        code, found, _ = run("audit", "--resume", str(tmp_path / "earlier.json"))
        assert code == 3
        assert [row["repository"] for row in found["repositories"]] == ["lake/team-1", "prod/analytics"]
        assert list(found["failed"]) == ["lake/*"]

    def it_writes_a_tree_that_says_what_was_not_read(self, run, tmp_path) -> None:
        code, _, _ = run("audit", "--write", str(tmp_path / "made"))
        assert code == 3
        assert "lake/*" in (tmp_path / "made/lakeplan.yaml").read_text()

    def it_does_not_say_that_a_branch_is_nowhere(self, run) -> None:
        code, found, _ = run("storage", "--compare", "main", "elsewhere")
        assert (code, [row["compared"] for row in found["repositories"]]) == (3, [None])
