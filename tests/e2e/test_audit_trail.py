"""The audit trail: who, from which tree, with whose approval, and everything that was deleted."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lakeplan.tree.schemas import load_schema
from tests.e2e.branches.conftest import Lake
from tests.e2e.test_sweep import Site
from tests.sandboxes import start_sandbox


def runs(world: Any, *more: str) -> list[dict[str, Any]]:
    result = world.lakeplan("history", "--format", "json", *more)
    assert result.code == 0, result.err
    jsonschema.Draft202012Validator(load_schema("history")).validate(result.json)
    found: list[dict[str, Any]] = result.json["runs"]
    return found


def apply(world: Any, days: int) -> None:
    world.rules("analytics", days)
    result = world.lakeplan("apply", "--auto-approve", "--no-simulate", "-q")
    assert result.code == 0, result.err


@pytest.fixture
def committed(world: Any) -> Any:
    """A tree in git, with everything committed."""
    world.api.repository("analytics")
    world.rules("analytics", 30)
    world.override("adoption", "unknown-impact")
    world.write(".gitignore", ".lakeplan/\n")
    world.git("init", "-q")
    world.git("add", "-A")
    world.git("commit", "-qm", "one")
    return world


def head(world: Any) -> str:
    ref = (world.tree / ".git/HEAD").read_text().removeprefix("ref: ").strip()
    return str((world.tree / ".git" / ref).read_text().strip())


class DescribeTheTree:
    def it_is_recorded_by_its_commit(self, committed: Any) -> None:
        apply(committed, 30)
        (run,) = runs(committed)
        assert run["tree_commit"] == head(committed)
        assert run["tree_dirty"] is False
        text = committed.lakeplan(("history", "show"), "last").out
        assert head(committed) in text
        assert "not committed" not in text

    def it_is_dirty_with_a_change_that_was_not_committed(self, committed: Any) -> None:
        apply(committed, 30)
        apply(committed, 14)
        new, old = runs(committed)
        assert (new["tree_dirty"], old["tree_dirty"]) == (True, False)
        assert new["tree_commit"] == old["tree_commit"]
        assert new["tree_digest"] != old["tree_digest"]
        assert "with uncommitted changes" in " ".join(
            committed.lakeplan(("history", "show"), "last").out.split()
        )

    @pytest.mark.parametrize("change", ["added", "gone"])
    def it_is_dirty_with_files_that_came_or_went(self, committed: Any, change: str) -> None:
        if change == "added":
            committed.write("repositories/more.yaml", "apiVersion: lakeplan/v1\nrepositories: {}\n")
        else:
            (committed.tree / "repositories/overrides.yaml").unlink()
            committed.write("README.md", "no part of the tree")
        committed.api.set_rules("analytics", 30)
        assert committed.lakeplan("apply", "--auto-approve", "-q").code == 0
        assert [run["tree_dirty"] for run in runs(committed)] == [True]

    def it_is_clean_whatever_else_lies_beside_it(self, committed: Any) -> None:
        committed.write("notes.txt", "no part of the tree")
        apply(committed, 30)
        assert [run["tree_dirty"] for run in runs(committed)] == [False]

    def it_has_no_commit_outside_git(self, world: Any) -> None:
        world.api.repository("analytics")
        world.override("adoption", "unknown-impact")
        apply(world, 30)
        (run,) = runs(world)
        assert (run["tree_commit"], run["tree_dirty"]) == (None, None)
        assert len(run["tree_digest"]) == 64


class DescribeThePeople:
    def it_says_who_started_the_job_on_github(self, committed: Any, monkeypatch: Any) -> None:
        for name, value in {
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTOR": "ada",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": "org/retention",
            "GITHUB_RUN_ID": "7",
            "GITHUB_REF": "refs/heads/main",
            "LAKEPLAN_PULL_REQUEST": "12",
            "LAKEPLAN_APPROVED_BY": "grace",
        }.items():
            monkeypatch.setenv(name, value)
        apply(committed, 30)
        (run,) = runs(committed)
        assert run["ci"] == {
            "actor": "ada",
            "run_url": "https://github.example/org/retention/actions/runs/7",
            "pull_request": "https://github.example/org/retention/pull/12",
        }
        assert run["approver"] == {"by": "grace"}
        text = committed.lakeplan(("history", "show"), "last").out
        assert "by grace" in text
        assert "ada" in committed.lakeplan("history").out

    def it_says_who_started_the_job_on_gitlab(self, committed: Any, monkeypatch: Any) -> None:
        for name, value in {
            "GITLAB_CI": "true",
            "GITLAB_USER_LOGIN": "ada\x1b[31m",
            "CI_JOB_URL": "https://gitlab.example/org/retention/-/jobs/7",
            "CI_PROJECT_URL": "https://gitlab.example/org/retention",
            "CI_MERGE_REQUEST_IID": "12",
        }.items():
            monkeypatch.setenv(name, value)
        apply(committed, 30)
        (run,) = runs(committed)
        assert run["ci"] == {
            "actor": "ada[31m",
            "run_url": "https://gitlab.example/org/retention/-/jobs/7",
            "pull_request": "https://gitlab.example/org/retention/-/merge_requests/12",
        }
        assert run["approver"] == {}


class DescribeDeletions:
    def it_has_deleted_branches_and_those_that_came_back(self, lake: Any) -> None:
        lake.policies('{patterns: ["feature-*"], max_age: 3d}', "{assume_created: never}")
        lake.observed("feature-1", "feature-2")
        assert runs(lake) == []  # that run only looked
        done = lake.branches("run")
        assert done.code == 0, done.err
        (run,) = runs(lake)
        assert (run["command"], run["finished_at"] is not None) == ("branches run", True)
        (step,) = run["repositories"]
        assert (step["repository"], step["status"]) == ("prod/analytics", "applied")
        assert step["counts"] == {"deleted": 2}
        assert [b["branch_id"] for b in step["branches"]] == ["feature-1", "feature-2"]
        assert lake.branches("undo").code == 0
        assert [r["command"] for r in runs(lake)] == ["branches undo", "branches run"]
        assert runs(lake)[0]["repositories"][0]["counts"] == {"restored": 2}
        text = lake.lakeplan(("history", "show"), "last").out
        assert "feature-1" in text
        assert "2 restored" in text

    def it_has_sweeps_with_their_approval_restores_and_purges(self, quarantining: Any) -> None:
        site, world = quarantining, quarantining.world
        mark_id = site.mark()["mark_id"]
        site.sweep(mark_id)
        (run,) = runs(world)
        (step,) = run["repositories"]
        assert (run["command"], step["status"], step["mark_id"]) == ("sweep run", "applied", mark_id)
        assert step["counts"] == {"deleted": 2, "failed": 0, "saved": 0, "pending": 0}
        assert run["approver"]["reason"] == "a test"
        assert run["approver"]["by"]
        assert run["finished_at"] is not None
        site.age()
        assert world.lakeplan(("sweep", "restore"), mark_id).code == 0
        assert world.lakeplan(("sweep", "purge"), "--older-than", "0", "--auto-approve").code == 0
        purged, restored, _ = runs(world)
        assert (purged["command"], restored["command"]) == ("sweep purge", "sweep restore")
        assert restored["repositories"][0]["counts"]["restored"] == 2
        assert purged["repositories"][0]["mark_id"] == mark_id
        assert sum(purged["repositories"][0]["counts"].values()) == 2
        assert [r["command"] for r in runs(world, "--kind", "sweep", "--limit", "1")] == ["sweep purge"]

    def it_names_who_approved_by_a_comment(self, quarantining: Any, monkeypatch: Any) -> None:
        monkeypatch.setenv("LAKEPLAN_APPROVED_BY", "grace")
        mark_id = quarantining.mark()["mark_id"]
        quarantining.sweep(mark_id)
        (run,) = runs(quarantining.world)
        assert (run["approver"]["by"], run["approver"]["reason"]) == ("grace", "a test")

    def it_has_a_sweep_that_was_killed_in_the_middle(self, quarantining: Any, monkeypatch: Any) -> None:
        site, world = quarantining, quarantining.world
        mark_id = site.mark()["mark_id"]
        assert world.lakeplan(("sweep", "approve"), mark_id, "--reason", "a test").code == 0

        class Killed(BaseException):
            pass

        def kill(*arguments: Any, **more: Any) -> None:
            raise Killed

        monkeypatch.setattr("lakeplan.sweep.rounds.PartSweeper.delete", kill)
        with pytest.raises(Killed):
            world.lakeplan(("sweep", "run"), mark_id)
        (run,) = runs(world)
        assert run["finished_at"] is None
        assert run["repositories"][0]["status"] == "pending"
        assert run["approver"]["reason"] == "a test"


@pytest.fixture
def quarantining(tmp_path: Path, make_world: Any) -> Any:
    with start_sandbox(tmp_path / "sandbox") as handle:
        settings = "{settle: 0s, margin: 0s, mode: quarantine, quarantine_age: 0s}"
        yield Site(make_world(handle), tmp_path / "sandbox", settings)


@pytest.fixture
def lake(world: Any) -> Lake:
    """``analytics`` on a server whose branches lakeplan deletes."""
    world.api.repository("analytics")
    world.age_repository("analytics")
    world.write(
        "lakeplan.yaml",
        "apiVersion: lakeplan/v1\n"
        f"servers: {{prod: {{endpoint_url: {world.handle.endpoint_url},"
        " branch_lifecycle: {engine: lakeplan}}}\n",
    )
    return Lake(world)


class DescribeAsking:
    @pytest.fixture
    def two(self, committed: Any) -> Any:
        apply(committed, 30)
        apply(committed, 14)
        return committed

    def it_filters_by_time_kind_and_repository(self, two: Any) -> None:
        newest = runs(two)[0]["started_at"]
        assert len(runs(two, "--since", newest)) == 1
        assert len(runs(two, "--since", "1h")) == 2
        assert runs(two, "--since", "2099-01-01") == []
        assert runs(two, "--kind", "sweep") == []
        assert len(runs(two, "--kind", "sweep", "--kind", "apply")) == 2
        assert runs(two, "--repository", "other") == []

    def it_refuses_a_kind_and_a_time_that_are_none(self, two: Any) -> None:
        for arguments in (("--kind", "mark"), ("--since", "yesterday")):
            assert two.lakeplan("history", *arguments).code == 64

    def it_writes_csv_with_a_line_for_each_repository(self, two: Any) -> None:
        out = two.lakeplan("history", "--format", "csv").out
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [row["repository"] for row in rows] == ["prod/analytics", "prod/analytics"]
        assert rows[0]["changes"] == "default_retention_days 30 to 14"
        assert rows[0]["tree_dirty"] == "true"
        assert rows[0]["tree_commit"] == head(two)

    def it_gives_a_spreadsheet_no_formula(self, two: Any) -> None:
        path = max((two.tree / ".lakeplan/history").iterdir())
        record = json.loads(path.read_text())
        record["by"]["user"], record["ci"] = '=HYPERLINK("x")', {"actor": "@SUM(1)\n\x1b"}
        record["by"]["host"] = "\uff1dSUM(1)"
        path.write_text(json.dumps(record))
        row = next(csv.DictReader(io.StringIO(two.lakeplan("history", "--format", "csv").out)))
        assert row["user"].startswith("'=")
        assert row["actor"].startswith("'@")
        assert row["host"] == "'\uff1dSUM(1)"
        assert "\x1b" not in row["actor"]

    def it_still_reads_records_of_earlier_releases(self, two: Any) -> None:
        path = max((two.tree / ".lakeplan/history").iterdir())
        record = json.loads(path.read_text())
        for name in ("tree_dirty", "tree_digest", "ci", "approver"):
            del record[name]
        path.write_text(json.dumps(record))
        new = runs(two)[0]
        assert (new["tree_dirty"], new["tree_digest"], new["ci"], new["approver"]) == (None, None, {}, {})
        assert two.lakeplan(("history", "show"), "last").code == 0
        assert two.lakeplan(("history", "rollback"), "last").code == 5

    def it_has_the_import_too(self, world: Any) -> None:
        world.api.repository("analytics")
        world.api.set_rules("analytics", 21)
        (world.tree / "lakeplan.yaml").unlink()
        assert world.lakeplan("import", "--endpoint", f"prod={world.handle.endpoint_url}").code == 0
        (run,) = runs(world)
        assert (run["command"], run["plan_digest"], run["plan_as_of"]) == ("import", "", None)
        assert [(r["repository"], r["status"]) for r in run["repositories"]] == [("prod/analytics", "seen")]
        assert world.lakeplan(("history", "show"), "last").code == 0
