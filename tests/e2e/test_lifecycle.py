"""Branch lifecycle as a user runs it, on the sandbox: sentences of branch-lifecycle.md that need a server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from lakeplan.cli.main import run

ROOT = Path(__file__).parents[2]
LEDGER = ".lakeplan/branches/prod/analytics.json"
DAY = 86400


@pytest.fixture
def lake(world):
    """The engine is lakeplan, a policy takes quiet feature branches after three days."""
    world.api.repository("analytics")
    root = (world.tree / "lakeplan.yaml").read_text()
    world.write("lakeplan.yaml", root.replace("}}", ", branch_lifecycle: {engine: lakeplan}}}", 1))
    policies(world, "{id: quiet, patterns: [feature-*], max_idle_age: 3d}")
    return world


def policies(world, text: str, lifecycle: str = "") -> None:
    settings = f"    lifecycle: {lifecycle}\n" if lifecycle else ""
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n"
        f"    branch_lifecycle: {{policies: [{text}]}}\n{settings}",
    )


def lifecycle(world, command: str, *arguments: str) -> Any:
    """One command, JSON out, checked against its schema."""
    result = world.lakeplan("lifecycle", command, "--format", "json", *arguments)
    if result.out:
        check(result.json)
    return result


def check(document: Any) -> None:
    schema = json.loads((ROOT / "schemas" / "lifecycle.v1.json").read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)


def grow_older(world, days: float) -> None:
    """Everything in the ledger was seen so many days earlier."""
    path = world.tree / LEDGER
    ledger = json.loads(path.read_text())
    shift = int(days * DAY)
    for key in ("began", "at"):
        ledger[key] -= shift
    for record in ledger["branches"].values():
        for key in ("first", "moved"):
            if key in record:
                record[key] -= shift
    path.write_text(json.dumps(ledger))


def observed(world, *branches: str, days: float = 4) -> None:
    """Branches, seen for so long."""
    for branch in branches:
        world.api.branch("analytics", branch)
    assert lifecycle(world, "run").code == 0
    grow_older(world, days)


def verdicts(world, *arguments: str) -> dict[str, tuple[str, str]]:
    (repository,) = lifecycle(world, "plan", "--no-simulate", *arguments).json["repositories"]
    return {b["branch_id"]: (b["verdict"], b["reason"]) for b in repository["branches"]}


def live(world) -> set[str]:
    answer = world.api.call(
        "GET", "/repositories/analytics/branches", params={"show_hidden": "true", "amount": 1000}
    )
    return {b["id"] for b in answer["results"]}


GO = {"feature-1": ("delete", "policy"), "main": ("keep", "default_branch")}
STAY = {"feature-1": ("keep", "not_crossed"), "main": ("keep", "default_branch")}


class DescribeWrites:
    """ "Writes that reset the idle clock": each of them, between two looks."""

    def it_is_idle_without_any(self, lake):
        observed(lake, "feature-1")
        assert verdicts(lake) == GO

    def it_is_reset_by_a_commit(self, lake):
        observed(lake, "feature-1")
        lake.api.commit("analytics", "feature-1", 100, data=3)
        assert verdicts(lake) == STAY

    def it_is_reset_by_a_merge(self, lake):
        lake.api.commit("analytics", "main", 100, data=10)
        observed(lake, "feature-1")
        lake.api.commit("analytics", "main", 100, data=11)
        lake.api.call("POST", "/repositories/analytics/refs/main/merge/feature-1", json={})
        assert verdicts(lake) == STAY

    def it_is_reset_by_a_revert_and_a_cherry_pick(self, lake):
        commit = lake.api.commit("analytics", "main", 100, data=10)
        for action, body in (("revert", {"ref": commit, "parent_number": 0}), ("cherry-pick", None)):
            observed(lake, "feature-1")
            if body is None:
                body = {"ref": lake.api.commit("analytics", "main", 90, other=9)}
            lake.api.call("POST", f"/repositories/analytics/branches/feature-1/{action}", json=body)
            assert verdicts(lake) == STAY, action
            lake.api.call("DELETE", "/repositories/analytics/branches/feature-1")
            lifecycle(lake, "run")

    def it_is_reset_by_a_retarget(self, lake):
        commit = lake.api.commit("analytics", "main", 100, data=10)
        lake.api.commit("analytics", "main", 99, data=11)
        observed(lake, "feature-1")
        lake.api.call("PUT", "/repositories/analytics/branches/feature-1/hard_reset", params={"ref": commit})
        assert verdicts(lake) == STAY

    @pytest.mark.parametrize("kind", ["create", "update", "delete"])
    def it_is_reset_by_staging(self, lake, kind):
        lake.api.commit("analytics", "main", 100, data=10)
        policies(
            lake, "{id: quiet, patterns: [feature-*], max_idle_age: 3d}", "{keep_with_uncommitted: false}"
        )
        observed(lake, "feature-1")
        if kind == "delete":
            lake.api.delete("analytics", "feature-1", "data.bin")
        else:
            lake.api.upload("analytics", "feature-1", "new" if kind == "create" else "data.bin", b"x")
        assert verdicts(lake) == STAY

    def it_is_reset_by_a_reset_of_staged_changes(self, lake):
        lake.api.branch("analytics", "feature-1")
        lake.api.upload("analytics", "feature-1", "new", b"x")
        observed(lake)
        lifecycle(lake, "run")  # looks at what is staged, because the branch would go
        grow_older(lake, 4)
        assert verdicts(lake)["feature-1"] == ("keep", "uncommitted")
        lake.api.call("PUT", "/repositories/analytics/branches/feature-1", json={"type": "reset"})
        assert verdicts(lake) == STAY

    def it_is_not_reset_by_reads(self, lake):
        lake.api.commit("analytics", "main", 100, data=10)
        observed(lake, "feature-1")
        for path in ("refs/feature-1/objects?path=data.bin", "branches/feature-1", "refs/feature-1/commits"):
            lake.api.call("GET", f"/repositories/analytics/{path}")
        assert verdicts(lake) == GO

    def it_is_not_reset_by_an_everest_mount_and_the_plan_says_so(self, lake):
        observed(lake, "feature-1")
        document = lifecycle(lake, "plan", "--no-simulate").json
        assert any("Everest" in c for c in document["caveats"])


class DescribeDeletion:
    def it_takes_the_standard_path_so_a_pre_hook_that_refuses_keeps_the_branch(self, lake):
        observed(lake, "feature-1", "feature-2")
        lake.handle.faults.deny(
            "DELETE .*/branches/feature-1", status=412, message="pre-delete-branch hook failed: no"
        )
        result = lifecycle(lake, "run")
        assert result.code == 0
        ends = {b["branch_id"]: b for b in result.json["repositories"][0]["branches"]}
        assert ends["feature-1"]["outcome"] == "hook_refused"
        assert "pre-delete-branch hook failed" in ends["feature-1"]["message"]
        assert live(lake) == {"main", "feature-1"}

    def it_loses_uncommitted_changes_and_says_how_many(self, lake):
        policies(lake, "{id: quiet, patterns: [feature-*], max_age: 3d}", "{keep_with_uncommitted: false}")
        lake.api.branch("analytics", "feature-1")
        for n in range(3):
            lake.api.upload("analytics", "feature-1", f"new{n}", b"x")
        observed(lake)
        (branch,) = [
            b
            for b in lifecycle(lake, "plan", "--no-simulate").json["repositories"][0]["branches"]
            if b["branch_id"] == "feature-1"
        ]
        assert (branch["verdict"], branch["uncommitted"]) == ("delete", 3)
        assert lifecycle(lake, "run").json["summary"]["deleted"] == 1
        (back,) = lifecycle(lake, "undo").json["repositories"][0]["branches"]
        assert back["uncommitted_lost"] == 3
        assert "cannot come back" in back["warnings"][0]

    def it_leaves_tags_and_commits_untouched(self, lake):
        lake.api.branch("analytics", "feature-1")
        head = lake.api.commit("analytics", "feature-1", 0, data=3)
        lake.api.tag("analytics", "v1", "feature-1")
        observed(lake)
        (branch,) = [
            b
            for b in lifecycle(lake, "plan", "--no-simulate").json["repositories"][0]["branches"]
            if b["verdict"] == "delete"
        ]
        assert branch["tags"] == ["v1"]
        assert lifecycle(lake, "run").json["summary"]["deleted"] == 1
        assert lake.api.call("GET", "/repositories/analytics/tags/v1")["commit_id"] == head
        assert lake.api.call("GET", f"/repositories/analytics/commits/{head}")["id"] == head

    def it_keeps_branches_with_open_pull_requests(self, lake):
        observed(lake, "feature-1", "feature-2")
        body = {"source_branch": "feature-1", "destination_branch": "main", "title": "mine"}
        lake.api.call("POST", "/repositories/analytics/pulls", json=body)
        assert verdicts(lake)["feature-1"] == ("keep", "open_pull_request")
        assert verdicts(lake)["feature-2"] == ("delete", "policy")

    def it_refuses_policies_that_match_the_default_branch(self, lake):
        policies(lake, '{id: all, patterns: ["m*"], max_age: 1d}')
        result = lifecycle(lake, "run")
        assert result.code == 1
        failure = result.json["repositories"][0]["failure"]
        assert "'m*' matches the default branch 'main'" in failure["message"]
        assert "repositories/analytics.yaml" in failure["where"]

    def it_leaves_read_only_repositories_alone(self, lake):
        body = {"name": "frozen", "storage_namespace": "local://frozen", "read_only": True}
        lake.api.call("POST", "/repositories", json=body)
        lake.write(
            "repositories/analytics.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  frozen:\n    branch_lifecycle:\n"
            "      policies: [{patterns: [feature-*], max_age: 1s}]\n",
        )
        document = lifecycle(lake, "plan", "--no-simulate", "--read-only").json
        assert document["repositories"][0]["read_only"] is True
        assert document["summary"]["delete"] == 0


class DescribeRoundTrips:
    def it_plans_runs_and_undoes_hidden_branches_too(self, lake):
        body = {"name": "feature-2", "source": "main", "hidden": True}
        lake.api.call("POST", "/repositories/analytics/branches", json=body)
        observed(lake, "feature-1")
        assert lifecycle(lake, "plan", "--no-simulate", "--detailed-exitcode").code == 2
        assert lifecycle(lake, "run").json["summary"]["deleted"] == 2
        assert live(lake) == {"main"}
        assert lifecycle(lake, "undo").json["summary"]["restored"] == 2
        assert live(lake) == {"main", "feature-1", "feature-2"}
        shown = lake.api.call("GET", "/repositories/analytics/branches")["results"]
        assert {b["id"] for b in shown} == {"main", "feature-1"}
        assert lifecycle(lake, "run").json["summary"]["deleted"] == 0

    def it_deletes_only_what_the_reviewed_plan_has_and_as_it_was(self, lake):
        policies(lake, "{id: old, patterns: [feature-*], max_age: 3d}")
        observed(lake, "feature-1", "feature-2", "feature-3")
        path = lake.folder / "lifecycle.json"
        lake.lakeplan("lifecycle", "plan", "--no-simulate", "--format", "json", "--out", path, "-q")
        document = json.loads(path.read_text())
        branches = document["repositories"][0]["branches"]
        document["repositories"][0]["branches"] = [b for b in branches if b["branch_id"] != "feature-3"]
        path.write_text(json.dumps(document))
        lake.api.commit("analytics", "feature-2", 0, data=3)  # between plan and run
        ends = lifecycle(lake, "run", str(path)).json["repositories"][0]["branches"]
        assert {b["branch_id"]: b["outcome"] for b in ends} == {
            "feature-1": "deleted",
            "feature-2": "moved",
            "feature-3": "not_reviewed",
        }

    def it_writes_nothing_while_planning(self, lake):
        observed(lake, "feature-1")
        before = {p: p.read_bytes() for p in lake.tree.rglob("*") if p.is_file()}
        lake.handle.faults.forget()
        lifecycle(lake, "plan", "--no-simulate")
        writes = [r for r in lake.handle.faults.requests if r.method != "GET"]
        assert [(r.method, r.path) for r in writes] == [("PUT", "/api/v1/repositories/analytics/refs/dump")]
        assert {p: p.read_bytes() for p in lake.tree.rglob("*") if p.is_file()} == before
        lake.handle.faults.forget()
        lifecycle(lake, "plan", "--no-simulate", "--read-only")
        assert {r.method for r in lake.handle.faults.requests} == {"GET"}

    def it_shows_people_what_goes_and_what_stays(self, lake):
        observed(lake, "feature-1", "other")
        result = lake.lakeplan("lifecycle", "plan", "--no-simulate", "--no-progress")
        assert result.code == 0, result.err
        for text in ("feature-1", "quiet", "the default branch", "no policy matches", "1 to delete"):
            assert text in result.out
        ran = lake.lakeplan("lifecycle", "run", "--no-progress")
        assert "deleted" in ran.out
        undone = lake.lakeplan("lifecycle", "undo", "--no-progress")
        assert "restored" in undone.out

    @pytest.mark.spark
    def it_says_what_follows_to_the_byte(self, lake):
        lake.api.commit("analytics", "main", 60, shared=1000)
        lake.api.branch("analytics", "feature-1")
        lake.api.commit("analytics", "feature-1", 50, mine=200)
        lake.api.set_rules("analytics", 21)
        observed(lake)
        (repository,) = lifecycle(lake, "plan").json["repositories"]
        (branch,) = [b for b in repository["branches"] if b["verdict"] == "delete"]
        assert branch["follows"] == {"commits": 1, "objects": 1, "size_bytes": 200}
        assert repository["totals"]["now"]["objects"] == 1
        assert repository["totals"]["now"]["size_bytes"] == 200


class DescribeEngines:
    def it_refuses_to_run_where_the_server_deletes(self, lake):
        root = (lake.tree / "lakeplan.yaml").read_text()
        lake.write("lakeplan.yaml", root.replace("engine: lakeplan", "engine: server"))
        result = lake.lakeplan("lifecycle", "run")
        assert result.code == 64
        assert "engine is lakeplan" in result.err

    def it_does_not_load_policies_without_an_engine(self, lake):
        root = (lake.tree / "lakeplan.yaml").read_text()
        lake.write("lakeplan.yaml", root.replace("engine: lakeplan", "engine: none"))
        result = lake.lakeplan("lifecycle", "run")
        assert result.code == 1
        assert "nobody would enforce this" in result.err

    def it_refuses_a_state_that_vanishes_with_the_runner(self, lake, monkeypatch):
        monkeypatch.setenv("CI", "true")
        result = lake.lakeplan("lifecycle", "run")
        assert result.code == 64
        assert "vanish" in result.err

    def it_refuses_bad_schedules_and_odd_pairs_of_options(self, lake):
        assert lake.lakeplan("lifecycle", "run", "--every", "often").code == 64
        assert lake.lakeplan("lifecycle", "run", "plan.json", "--every", "0 * * * *").code == 64
        assert lake.lakeplan("lifecycle", "run", "--allow", "deleted-branches").code == 64

    def it_stops_at_the_gate(self, lake):
        root = (lake.tree / "lakeplan.yaml").read_text()
        lake.write("lakeplan.yaml", root.replace("safety: {", "safety: {max_deleted_branches: 1, "))
        observed(lake, "feature-1", "feature-2")
        assert lifecycle(lake, "plan", "--no-simulate").code == 4
        assert lifecycle(lake, "run").code == 4
        assert live(lake) == {"main", "feature-1", "feature-2"}


class DescribeProcesses:
    def start(self, lake, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "lakeplan", "lifecycle", "run", "-C", str(lake.tree), *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def it_deletes_each_branch_once_when_two_run_at_once(self, lake):
        observed(lake, *(f"feature-{n}" for n in range(8)))
        lake.handle.faults.forget()
        both = [self.start(lake, "--format", "json", "-q") for _ in range(2)]
        done = [(p.communicate(timeout=120), p.returncode) for p in both]
        assert all(code in (0, 5) for _, code in done), done
        deletes = [r.path for r in lake.handle.faults.requests if r.method == "DELETE" and r.status == 204]
        assert len(deletes) == len(set(deletes)) == 8
        assert set(json.loads((lake.tree / LEDGER).read_text())["branches"]) == {"main"}

    def it_stops_cleanly_when_it_serves(self, lake):
        lake.api.branch("analytics", "feature-1")
        process = self.start(lake, "--every", "*/1 * * * *", "--no-progress")
        wait_until_it_listens(process)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, (out, err)
        assert not list((lake.tree / ".lakeplan").glob("leases/**/*.json"))


def wait_until_it_listens(process: subprocess.Popen[str]) -> None:
    """Until the process handles SIGTERM itself, however busy the machine is (or has ended, or a minute)."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) & 1 << (signal.SIGTERM - 1):
            return
        time.sleep(0.05)


class DescribeExamples:
    FOLDER = ROOT / "examples" / "lifecycle"

    def it_ships_a_tree_that_validates(self, lake):
        assert run(["validate", "-C", str(self.FOLDER)]) == 0

    @pytest.mark.parametrize("name", ["kubernetes.yaml", "github-actions.yaml"])
    def it_ships_schedules_that_are_yaml_and_call_what_there_is(self, name):
        text = (self.FOLDER / name).read_text()
        assert yaml.safe_load(text)
        assert "lifecycle" in text

    def it_names_only_commands_that_there_are(self, lake):
        for word in ("plan", "run", "undo"):
            assert f"lakeplan lifecycle {word}" in (self.FOLDER / "README.md").read_text()
            assert run(["lifecycle", word, "--help"]) == 0
