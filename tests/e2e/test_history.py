"""Who applied what, and taking it back."""

from __future__ import annotations

import json

import jsonschema
import pytest

from lakeplan.cli.commands import history as history_module
from lakeplan.errors import ServerError
from lakeplan.tree.schemas import load_schema


def apply(world):
    world.override("adoption", "unknown-impact")
    plan = world.plan_file("reviewed.json", "--no-simulate")
    result = world.lakeplan("apply", plan, "--no-simulate")
    assert result.code == 0, result.err


def history(world, *arguments):
    """``lakeplan history show RUN -C tree``: the tree is an option of the word after ``history``."""
    word, *rest = arguments
    return world.lakeplan(("history", word), *rest)


@pytest.fixture
def changed(world):
    """Two runs: 21 and 28 days set first, then 7 days for everything."""
    world.api.repository("analytics")
    world.rules("analytics", 21, main=28)
    apply(world)
    world.rules("analytics", 7)
    apply(world)
    return world


def runs(world, *more):
    result = world.lakeplan("history", "--format", "json", *more)
    assert result.code == 0, result.err
    jsonschema.Draft202012Validator(load_schema("history")).validate(result.json)
    return result.json["runs"]


def it_lists_the_newest_first(changed):
    newest, oldest = runs(changed)
    assert newest["run_id"] >= oldest["run_id"]
    assert newest["repositories"][0]["changes"] == [
        {"path": "default_retention_days", "before": 21, "after": 7},
        {"path": "branches/main", "before": 28, "after": None},
    ]
    assert oldest["repositories"][0]["before"] is None
    text = changed.lakeplan("history").out
    assert text.index(newest["run_id"]) < text.index(oldest["run_id"])
    assert "1 applied" in text


def it_lists_less_on_request(changed):
    assert len(runs(changed, "--limit", "1")) == 1
    assert runs(changed, "--repository", "other") == []
    assert len(runs(changed, "--repository", "prod/analytics")) == 2


def it_says_when_there_is_none(world):
    assert "No runs are recorded" in world.lakeplan("history").out


def it_names_a_damaged_record_and_lists_the_others(changed):
    (changed.tree / ".lakeplan/history/20250101T000000Z-00.json").write_text("{}")
    result = changed.lakeplan("history")
    assert result.code == 3
    assert "20250101T000000Z-00.json is damaged" in result.out
    assert "1 applied" in result.out


@pytest.mark.parametrize(
    "policy",
    [
        {"id": 7},
        {"name_patterns": [{}]},
        {"name_patterns": "x"},
        {"max_age": {}},
        {"max_age": -1},
        {"description": []},
    ],
)
def it_lists_the_others_when_a_policy_in_a_record_is_damaged(changed, policy):
    body = [{"id": "p", "name_patterns": ["x-*"], "max_age": 86400, **policy}]
    step = {"status": "applied", "before": body, "after": []}
    record = {"command": "apply", "by": {}, "started_at": "2025-01-01T00:00:00Z"}
    record["repositories"] = {"prod/analytics": {"branch_lifecycle": step}}
    (changed.tree / ".lakeplan/history/20250101T000000Z-00.json").write_text(json.dumps(record))
    result = changed.lakeplan("history")
    assert result.code == 3
    assert "20250101T000000Z-00.json is damaged" in result.out
    assert "1 applied" in result.out


def it_shows_one_run(changed):
    run = runs(changed)[0]["run_id"]
    result = history(changed, "show", run)
    assert result.code == 0, result.err
    assert run in result.out
    assert "28 days" in result.out
    assert history(changed, "show", "last").out == result.out


def it_asks_for_the_edits_before_it_makes_a_plan(changed):
    before = (changed.tree / "repositories/analytics.yaml").read_text()
    out = changed.folder / "back.json"
    result = history(changed, "rollback", "last", "--format", "json", "--out", str(out))
    assert result.code == 5
    assert "default_retention_days: 21" in result.err
    assert "repositories/analytics.yaml:3" in result.err
    assert not out.exists()
    assert (changed.tree / "repositories/analytics.yaml").read_text() == before


def it_rolls_the_last_change_back_after_runs_that_changed_nothing(changed, tmp_path):
    apply(changed)
    assert runs(changed)[0]["repositories"] == []
    out = tmp_path / "back.json"
    result = history(changed, "rollback", "last", "--edit-tree", "--format", "json", "--out", str(out), "-q")
    assert result.code in (0, 4), result.err
    (repository,) = json.loads(out.read_text())["repositories"]
    assert repository["after"]["default_retention_days"] == 21


def it_makes_a_plan_that_apply_takes_and_writes_nothing_to_the_server(changed):
    out = changed.folder / "back.json"
    changed.handle.faults.forget()
    result = history(changed, "rollback", "last", "--edit-tree", "--format", "json", "--out", str(out), "-q")
    assert result.code == 0, [g for r in json.loads(out.read_text())["repositories"] for g in r["gates"]]
    writes = {(r.method, r.path.rsplit("/", 1)[-1]) for r in changed.handle.faults.requests} - {("GET", "")}
    assert {w for w in writes if w[0] != "GET"} <= {("PUT", "dump")}
    assert changed.api.rules("analytics") == {"*": 7}
    assert any("rolls the repositories back" in w for w in json.loads(out.read_text())["warnings"])
    applied = changed.lakeplan("apply", out)
    assert applied.code == 0, applied.err
    assert changed.api.rules("analytics") == {"*": 21, "main": 28}
    assert changed.lakeplan("drift", "--fail-on", "any").code == 0


def it_is_refused_by_apply_when_the_tree_went_on(changed):
    out = changed.folder / "back.json"
    history(changed, "rollback", "last", "--edit-tree", "--format", "json", "--out", str(out), "-q")
    changed.rules("analytics", 7)
    assert changed.lakeplan("apply", out).code == 5
    assert changed.api.rules("analytics") == {"*": 7}


def it_removes_rules_again_only_through_the_gate(changed):
    first = runs(changed)[1]["run_id"]
    refused = history(changed, "rollback", first, "--edit-tree", "--no-simulate")
    assert refused.code == 4
    assert "gc: clear" in (changed.tree / "repositories/analytics.yaml").read_text()
    assert "changed again after run" in refused.out
    assert history(changed, "rollback", first, "--no-simulate", "--allow", "clear").code == 0


def it_takes_inherited_rules_out_by_name(world):
    world.api.repository("team-a")
    world.api.branch("team-a", "more")
    world.api.set_rules("team-a", 30, main=40)
    world.write(
        "repositories/glob.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  'team-*':\n    gc:\n      default_retention_days: 9\n"
        "      branches: [{pattern: 'm*', retention_days: 9}]\n",
    )
    apply(world)
    result = history(world, "rollback", "last", "--edit-tree", "--no-simulate")
    assert result.code == 0, result.err
    assert '{pattern: "m*", remove: true}' in (world.tree / "lakeplan.yaml").read_text()
    assert "1 to change" in result.out


def it_leaves_the_tree_as_it_was_when_it_cannot_say_the_old_rules(world):
    world.api.repository("analytics")
    world.api.set_rules("analytics", -3)
    world.rules("analytics", 21)
    apply(world)
    before = {p: p.read_text() for p in world.tree.rglob("*.yaml")}
    result = history(world, "rollback", "last", "--edit-tree")
    assert result.code == 5
    assert "-3" in result.err
    assert {p: p.read_text() for p in world.tree.rglob("*.yaml")} == before


def it_says_why_it_cannot_edit_an_entry(changed):
    text = "{gc: {default_retention_days: 28}}"
    file = changed.tree / "repositories/analytics.yaml"
    file.write_text(f"apiVersion: lakeplan/v1\nrepositories:\n  analytics: {text}\n")
    result = history(changed, "rollback", "last", "--edit-tree")
    assert result.code == 5, result.err
    assert "written in a way that lakeplan cannot edit" in result.err
    assert text in file.read_text()


def it_keeps_what_a_person_saved_while_the_plan_was_made(changed, monkeypatch):
    file = changed.tree / "repositories/analytics.yaml"
    mine = file.read_text().replace("    gc:", "    owner: data\n    gc:")

    plan_against = history_module.plan_against

    def save(*arguments):
        file.write_text(mine)
        return plan_against(*arguments)

    monkeypatch.setattr(history_module, "plan_against", save)
    result = history(changed, "rollback", "last", "--edit-tree", "--no-simulate")
    assert result.code == 1
    assert file.read_text() == mine
    assert "was changed while the command was running" in result.err


def it_leaves_the_tree_as_it_is_until_the_plan_is_made(changed, monkeypatch):
    file = changed.tree / "repositories/analytics.yaml"
    before, seen = file.read_text(), []

    def fail(*arguments):
        seen.append(file.read_text())  # a kill now leaves no edit
        raise ServerError("the server does not answer")

    monkeypatch.setattr(history_module, "plan_against", fail)
    assert history(changed, "rollback", "last", "--edit-tree", "--no-simulate").code == 1
    assert [*seen, file.read_text()] == [before, before]


def it_restores_nothing_a_run_did_not_replace(changed):
    assert history(changed, "rollback", "last", "--target", "other").code == 64


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (["show"], 64),
        (["show", "20010101"], 64),
        (["show", "2"], 64),
        (["rollback", "nothing"], 64),
        (["rollback", "last", "--allow", "everything"], 64),
        (["list", "--limit", "0"], 64),
        (["list", "--format", "markdown"], 64),
        (["forget"], 64),
    ],
)
def it_explains_wrong_use(changed, wrong, code):
    result = history(changed, *wrong)
    assert result.code == code
    assert result.err
    assert "Traceback" not in result.err


def it_restores_after_a_retry_what_the_interrupted_run_had_replaced(world):
    for name in ("analytics", "events"):
        world.api.repository(name)
        world.api.set_rules(name, 21)
        world.rules(name, 7)
    world.override("unknown-impact")
    plan = world.plan_file("reviewed.json", "--no-simulate")
    assert world.lakeplan("apply", plan, "--no-simulate", "--target", "analytics").code == 0
    world.rules("logs", 5)  # another run in between, of another plan
    world.api.repository("logs")
    assert world.lakeplan("apply", "--auto-approve", "--no-simulate", "--target", "logs").code == 0
    assert world.lakeplan("apply", plan, "--no-simulate").code == 0
    statuses = {r["repository"]: r["status"] for r in runs(world)[0]["repositories"]}
    assert statuses == {"prod/analytics": "already", "prod/events": "applied"}
    out = world.folder / "back.json"
    result = history(world, "rollback", "last", "--edit-tree", "--no-simulate", "--out", str(out), "-q")
    assert result.code in (0, 4), result.err
    planned = {r["name"]: r["after"] for r in json.loads(out.read_text())["repositories"]}
    assert {name: body["default_retention_days"] for name, body in planned.items()} == {
        "analytics": 21,
        "events": 21,
    }
