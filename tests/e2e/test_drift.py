"""Drift, as a nightly job meets it."""

from __future__ import annotations

from datetime import datetime, timedelta

import jsonschema
import pytest

from lakeplan.tree.schemas import load_schema
from tests.openmetrics import samples


@pytest.fixture
def applied(world):
    """``analytics`` with rules for main and a pattern, applied."""
    world.api.repository("analytics")
    world.api.branch("analytics", "release-1")
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    gc:\n      default_retention_days: 21\n"
        "      branches:\n        - {branch_id: main, retention_days: 28}\n"
        "        - {pattern: 'release-*', retention_days: 90}\n",
    )
    result = world.lakeplan("apply", "--auto-approve", "-q")
    assert result.code == 0, result.err
    return world


def classes(world, *more):
    result = world.lakeplan("drift", "--format", "json", *more)
    assert result.code in (0, 2), result.err
    jsonschema.Draft202012Validator(load_schema("drift")).validate(result.json)
    return {r["repository"]: r["classes"] for r in result.json["repositories"]}


def it_says_none_after_an_apply(applied):
    result = applied.lakeplan("drift", "--fail-on", "any")
    assert result.code == 0
    assert "Drift: none. 1 repository compared." in result.out


def it_asks_with_get_only_and_writes_nothing(applied):
    def state():
        return {p: p.read_bytes() for p in (applied.tree / ".lakeplan").rglob("*") if p.is_file()}

    before = state()
    applied.api.set_rules("analytics", 3)
    applied.handle.faults.forget()
    assert classes(applied) == {"prod/analytics": ["server-edited"]}
    assert {r.method for r in applied.handle.faults.requests} == {"GET"}
    assert state() == before


def it_fails_only_on_the_classes_that_are_named(applied):
    applied.api.set_rules("analytics", 3)
    assert applied.lakeplan("drift").code == 0
    assert applied.lakeplan("drift", "--fail-on", "tree-ahead").code == 0
    assert applied.lakeplan("drift", "--fail-on", "tree-ahead", "--fail-on", "server-edited").code == 2


def it_tells_new_branches_from_an_edited_tree(applied):
    applied.api.branch("analytics", "release-2")
    assert classes(applied) == {"prod/analytics": ["patterns-stale"]}
    applied.rules("analytics", 30, main=28)
    assert classes(applied) == {"prod/analytics": ["tree-ahead"]}


def it_finds_what_the_tree_let_go_and_what_came_without_an_entry(applied):
    (applied.tree / "repositories/analytics.yaml").unlink()
    found = classes(applied)
    assert found == {"prod/analytics": ["released"]}
    applied.api.repository("newcomer")
    assert "prod/newcomer" not in classes(applied, "--target", "analytics")


def it_counts_every_repository_without_an_entry_before_the_first_apply(world):
    world.api.repository("newcomer")
    assert classes(world) == {"prod/newcomer": ["unmanaged-new"]}
    text = (world.tree / "lakeplan.yaml").read_text()
    world.write("lakeplan.yaml", text + "unmanaged: ignore\n")
    assert classes(world) == {}


def it_does_not_take_a_repository_it_could_not_read_for_one_without_drift(applied):
    applied.rules("gone", 3)
    result = applied.lakeplan("drift", "--fail-on", "any")
    assert result.code == 3
    assert "prod/gone" in result.out
    applied.handle.stop()
    assert applied.lakeplan("drift").code == 1


def it_does_not_take_a_damaged_record_for_none(applied):
    (applied.tree / ".lakeplan/applied/prod/analytics.json").write_text('{"body": 3}')
    result = applied.lakeplan("drift")
    assert result.code == 1
    assert "damaged" in result.out


def it_writes_metrics_with_the_last_apply(applied):
    applied.api.set_rules("analytics", 3)
    path = applied.folder / "drift.prom"
    result = applied.lakeplan("drift", "--format", "openmetrics", "--out", path, "-q")
    assert (result.code, result.out) == (0, "")
    found = samples(path.read_text())
    assert found["lakeplan_drift"] == {("prod", "analytics", "", "server-edited"): 1.0}
    assert found["lakeplan_drift_failure"] == {("prod", "analytics", ""): 0.0}
    ((labels, at),) = found["lakeplan_last_apply_timestamp_seconds"].items()
    assert labels == ("prod", "analytics", "")
    newest = applied.lakeplan("history", "--format", "json").json["runs"][0]["started_at"]
    assert at == pytest.approx(datetime.fromisoformat(newest.replace("Z", "+00:00")).timestamp(), abs=60)
    assert [p.name for p in path.parent.iterdir() if "prom" in p.name] == ["drift.prom"]


def it_tells_the_last_apply_of_a_server_that_does_not_answer(applied):
    applied.handle.stop()
    result = applied.lakeplan("drift", "--format", "openmetrics")
    found = samples(result.out)
    assert found["lakeplan_drift_failure"] == {("prod", "analytics", ""): 1.0}
    assert list(found["lakeplan_last_apply_timestamp_seconds"]) == [("prod", "analytics", "")]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (["--fail-on", "edited"], 64),
        (["--format", "markdown"], 64),
        (["--server", "nowhere"], 64),
        (["--out", "a.json", "--out", "b.json", "--format", "json"], 64),
        (["extra"], 64),
        (["-C", "/nowhere"], 1),
    ],
)
def it_explains_wrong_use(world, wrong, code):
    result = world.lakeplan("drift", *wrong)
    assert result.code == code
    assert result.err
    assert "Traceback" not in result.err


@pytest.fixture
def imported(world):
    """``analytics`` and ``events`` with rules that an import wrote into a tree; nothing was ever applied."""
    for name in ("analytics", "events"):
        world.api.repository(name)
        world.api.set_rules(name, 21, main=28)
    (world.tree / "lakeplan.yaml").unlink()
    result = world.lakeplan("import", "--endpoint", f"prod={world.handle.endpoint_url}", "-q")
    assert (result.code, result.err) == (0, "")
    return world


def it_sees_an_edit_right_after_an_import(imported):
    assert classes(imported) == {}
    imported.api.set_rules("analytics", 21, main=9)
    assert classes(imported) == {"prod/analytics": ["server-edited"]}
    found = imported.lakeplan("drift", "--fail-on", "server-edited")
    assert found.code == 2
    assert "imported 2" in found.out
    assert "last applied" not in found.out


def it_calls_what_was_imported_and_left_the_tree_released(imported):
    next(imported.tree.glob("repositories/events.yaml")).unlink()
    assert classes(imported) == {"prod/events": ["released"]}


def it_has_no_last_apply_of_what_was_only_imported(imported):
    result = imported.lakeplan("drift", "--format", "json")
    assert {r["repository"]: r["last_apply"] for r in result.json["recorded"]} == {
        "prod/analytics": None,
        "prod/events": None,
    }


@pytest.mark.parametrize("plan_file", [True, False])
def it_sees_edits_of_what_an_apply_did_not_have_to_write(world, plan_file):
    for name in ("analytics", "events"):
        world.api.repository(name)
        world.api.set_rules(name, 21)
        world.rules(name, 21)
    if plan_file:
        world.rules("events", 30)
        plan = world.folder / "plan.json"
        assert world.lakeplan("plan", "--out", plan, "-q").code == 0
        assert world.lakeplan("apply", plan, "-q").code == 0
    else:
        assert world.lakeplan("apply", "--auto-approve", "-q").code == 0
    assert classes(world) == {}
    world.api.set_rules("analytics", 5)
    world.api.set_rules("events", 5)
    assert classes(world) == {"prod/analytics": ["server-edited"], "prod/events": ["server-edited"]}


def it_accepts_an_edit_once_the_tree_has_it_and_an_apply_found_it(imported):
    imported.rules("analytics", 14)
    imported.api.set_rules("analytics", 14)
    assert classes(imported) == {"prod/analytics": ["server-edited"]}
    assert imported.lakeplan("apply", "--auto-approve", "-q").code == 0
    assert classes(imported) == {}
    imported.api.set_rules("analytics", 21, main=28)
    assert classes(imported) == {"prod/analytics": ["server-edited"]}


def it_takes_a_write_after_a_look_for_what_was_applied(imported):
    imported.rules("analytics", 30)
    assert imported.lakeplan("apply", "--auto-approve", "-q").code == 0
    assert classes(imported) == {}
    imported.api.set_rules("analytics", 21, main=28)  # what the import saw is not what counts any more
    assert classes(imported) == {"prod/analytics": ["server-edited"]}


def it_still_adopts_what_a_glob_names_though_it_was_seen_unchanged(world):
    world.api.repository("analytics")
    world.api.set_rules("analytics", 21)
    world.write("repositories/a.yaml", TEAM.format(21))
    assert world.lakeplan("apply", "--auto-approve", "-q").code == 0
    assert (world.tree / ".lakeplan/baselines/prod/analytics.json").is_file()
    world.write("repositories/a.yaml", TEAM.format(7))
    plan = world.lakeplan("plan", "--format", "json").json
    assert [r["adopted"] for r in plan["repositories"]] == [True]


TEAM = 'apiVersion: lakeplan/v1\nrepositories:\n  "ana*":\n    gc: {{default_retention_days: {}}}\n'


def it_says_when_the_baseline_cannot_be_recorded_and_applies_all_the_same(world):
    for name in ("analytics", "events"):
        world.api.repository(name)
        world.api.set_rules(name, 21)
        world.rules(name, 21)
    world.rules("events", 30)
    world.write(".lakeplan/baselines/prod/analytics.json", "{")
    result = world.lakeplan("apply", "--auto-approve")
    assert result.code == 0
    assert "drift may miss edits to prod/analytics" in " ".join(result.out.split())
    assert world.api.rules("events") == {"*": 30}


def it_records_no_baseline_while_the_clock_is_wrong(world, monkeypatch):
    """A time in the future would make every later observation count as older."""

    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=800)

    world.api.repository("analytics")
    world.api.set_rules("analytics", 21)
    world.rules("analytics", 21)
    with monkeypatch.context() as patch:
        patch.setattr("lakeplan.cli.process.datetime", Ahead)
        result = world.lakeplan("apply", "--auto-approve")
        assert "drift may miss edits to prod/analytics" in " ".join(result.err.split())
    world.rules("analytics", 30)
    assert world.lakeplan("apply", "--auto-approve").code == 0
    assert classes(world) == {}
