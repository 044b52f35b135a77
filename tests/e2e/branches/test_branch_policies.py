"""Branch policies as a user runs them, on the sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from lakeplan.cli.main import run

ROOT = Path(__file__).parents[3]


class DescribeRoundTrips:
    def it_plans_runs_and_undoes_hidden_branches_too(self, lake):
        body = {"name": "feature-2", "source": "main", "hidden": True}
        lake.api.call("POST", "/repositories/analytics/branches", json=body)
        lake.observed("feature-1")
        assert lake.branches("plan", "--no-simulate", "--detailed-exitcode").code == 2
        assert lake.branches("run").json["summary"]["deleted"] == 2
        assert lake.live() == {"main"}
        assert lake.branches("undo").json["summary"]["restored"] == 2
        assert lake.live() == {"main", "feature-1", "feature-2"}
        shown = lake.api.call("GET", "/repositories/analytics/branches")["results"]
        assert {b["id"] for b in shown} == {"main", "feature-1"}
        assert lake.branches("run").json["summary"]["deleted"] == 0

    def it_deletes_only_what_the_reviewed_plan_has_and_as_it_was(self, lake):
        lake.policies("{id: old, patterns: [feature-*], max_age: 3d}")
        lake.observed("feature-1", "feature-2", "feature-3")
        path = lake.folder / "branches.json"
        lake.lakeplan("branches", "plan", "--no-simulate", "--format", "json", "--out", path, "-q")
        document = json.loads(path.read_text())
        branches = document["repositories"][0]["branches"]
        document["repositories"][0]["branches"] = [b for b in branches if b["branch_id"] != "feature-3"]
        path.write_text(json.dumps(document))
        lake.api.commit("analytics", "feature-2", 0, data=3)  # between plan and run
        ends = lake.branches("run", str(path)).json["repositories"][0]["branches"]
        assert {b["branch_id"]: b["outcome"] for b in ends} == {
            "feature-1": "deleted",
            "feature-2": "moved",
            "feature-3": "not_reviewed",
        }

    def it_writes_nothing_while_planning(self, lake):
        lake.observed("feature-1")
        before = {p: p.read_bytes() for p in lake.tree.rglob("*") if p.is_file()}
        lake.handle.faults.forget()
        lake.branches("plan", "--no-simulate")
        writes = [r for r in lake.handle.faults.requests if r.method != "GET"]
        assert [(r.method, r.path) for r in writes] == [("PUT", "/api/v1/repositories/analytics/refs/dump")]
        assert {p: p.read_bytes() for p in lake.tree.rglob("*") if p.is_file()} == before
        lake.handle.faults.forget()
        lake.branches("plan", "--no-simulate", "--read-only")
        assert {r.method for r in lake.handle.faults.requests} == {"GET"}

    def it_shows_people_what_goes_and_what_stays(self, lake):
        lake.observed("feature-1", "other")
        result = lake.lakeplan("branches", "plan", "--no-simulate", "--no-progress")
        assert result.code == 0, result.err
        for text in ("feature-1", "quiet", "the default branch", "no policy matches", "1 to delete"):
            assert text in result.out
        ran = lake.lakeplan("branches", "run", "--no-progress")
        assert "deleted" in ran.out
        undone = lake.lakeplan("branches", "undo", "--no-progress")
        assert "restored" in undone.out

    def it_says_what_follows_to_the_byte(self, lake):
        lake.api.commit("analytics", "main", 60, shared=1000)
        lake.api.branch("analytics", "feature-1")
        lake.api.commit("analytics", "feature-1", 50, mine=200)
        lake.api.set_rules("analytics", 21)
        lake.observed()
        (repository,) = lake.branches("plan").json["repositories"]
        (branch,) = [b for b in repository["branches"] if b["verdict"] == "delete"]
        assert branch["follows"] == {"commits": 1, "objects": 1, "size_bytes": 200, "tags": []}
        assert repository["totals"]["now"]["objects"] == 1
        assert repository["totals"]["now"]["size_bytes"] == 200


class DescribeEngines:
    def it_refuses_to_run_where_the_server_deletes(self, lake):
        root = (lake.tree / "lakeplan.yaml").read_text()
        lake.write("lakeplan.yaml", root.replace("engine: lakeplan", "engine: server"))
        result = lake.lakeplan("branches", "run")
        assert result.code == 64
        assert "branch_lifecycle.engine: lakeplan" in result.err

    def it_does_not_load_policies_without_an_engine(self, lake):
        root = (lake.tree / "lakeplan.yaml").read_text()
        lake.write("lakeplan.yaml", root.replace("engine: lakeplan", "engine: none"))
        result = lake.lakeplan("branches", "run")
        assert result.code == 1
        assert "nothing would enforce this" in result.err

    def it_refuses_a_state_that_vanishes_with_the_runner(self, lake, monkeypatch):
        monkeypatch.setenv("CI", "true")
        result = lake.lakeplan("branches", "run")
        assert result.code == 64
        assert "would be lost when the job ends" in result.err

    def it_refuses_bad_schedules_and_odd_pairs_of_options(self, lake):
        assert lake.lakeplan("branches", "run", "--every", "often").code == 64
        assert lake.lakeplan("branches", "run", "plan.json", "--every", "0 * * * *").code == 64
        assert lake.lakeplan("branches", "run", "--allow", "deleted-branches").code == 64

    def it_stops_at_the_gate(self, lake):
        root = (lake.tree / "lakeplan.yaml").read_text()
        lake.write("lakeplan.yaml", root.replace("safety: {", "safety: {max_deleted_branches: 1, "))
        lake.observed("feature-1", "feature-2")
        assert lake.branches("plan", "--no-simulate").code == 4
        assert lake.branches("run").code == 4
        assert lake.live() == {"main", "feature-1", "feature-2"}


class DescribeProcesses:
    def start(self, lake, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "lakeplan", "branches", "run", "-C", str(lake.tree), *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def it_deletes_each_branch_once_when_two_run_at_once(self, lake):
        lake.observed(*(f"feature-{n}" for n in range(8)))
        lake.handle.faults.forget()
        both = [self.start(lake, "--format", "json", "-q") for _ in range(2)]
        done = [(p.communicate(timeout=120), p.returncode) for p in both]
        assert all(code in (0, 5) for _, code in done), done
        deletes = [r.path for r in lake.handle.faults.requests if r.method == "DELETE" and r.status == 204]
        assert len(deletes) == len(set(deletes)) == 8
        assert set(json.loads(lake.ledger.read_text())["branches"]) == {"main"}

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
    FOLDER = ROOT / "examples" / "branches"

    def it_ships_a_tree_that_validates(self, lake):
        assert run(["validate", "-C", str(self.FOLDER)]) == 0

    @pytest.mark.parametrize("name", ["kubernetes.yaml", "github-actions.yaml"])
    def it_ships_schedules_that_are_yaml_and_call_what_there_is(self, name):
        text = (self.FOLDER / name).read_text()
        assert yaml.safe_load(text)
        assert "branches" in text

    def it_names_only_commands_that_there_are(self, lake):
        for word in ("plan", "run", "undo"):
            assert f"lakeplan branches {word}" in (self.FOLDER / "README.md").read_text()
            assert run(["branches", word, "--help"]) == 0
