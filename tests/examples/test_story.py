"""The story of a pull request, told by the steps of the GitHub workflow on a repository and the sandbox."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from lakeplan.sandbox import start_sandbox

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples/ci"
DAY = 86_400
MINE = "lakeplan:plan:."


def step(file: str, job: str, word: str) -> dict[str, Any]:
    """The step of a job whose command contains ``word``."""
    steps = yaml.safe_load((CI / file).read_text())["jobs"][job]["steps"]
    (found,) = [s for s in steps if word in s.get("run", "")]
    return found


class Lake:
    """A server with one repository: five commits, each with data that the next replaces."""

    def __init__(self, endpoint: str) -> None:
        self.rules_url = f"{endpoint}/api/v1/repositories/analytics/settings/gc_rules"
        self.session = requests.Session()
        self.session.auth = ("sandbox", "sandbox-secret")
        root = f"{endpoint}/api/v1/repositories"
        body = {"name": "analytics", "storage_namespace": "local://analytics", "default_branch": "main"}
        self.session.post(root, json=body, timeout=30).raise_for_status()
        branch = f"{root}/analytics/branches/main"
        for age in (60, 50, 40, 20, 1):
            data = str(age).encode()
            put = self.session.post(f"{branch}/objects", params={"path": "data"}, data=data, timeout=30)
            put.raise_for_status()
            commit = {"message": f"{age} days ago", "date": int(time.time() - age * DAY)}
            self.session.post(f"{branch}/commits", json=commit, timeout=30).raise_for_status()

    @property
    def rules(self) -> dict[str, int]:
        body = self.session.get(self.rules_url, timeout=30).json()
        return {
            "*": body["default_retention_days"],
            **{b["branch_id"]: b["retention_days"] for b in body["branches"] or []},
        }

    @rules.setter
    def rules(self, days: dict[str, int]) -> None:
        branches = [{"branch_id": b, "retention_days": d} for b, d in days.items() if b != "*"]
        body = {"default_retention_days": days["*"], "branches": branches}
        self.session.put(self.rules_url, json=body, timeout=30).raise_for_status()


class Work:
    """The checkout, and the steps of the workflow run in it."""

    def __init__(self, folder: Path, runner: Any, host: Any, handle: Any) -> None:
        self.top, self.runner, self.host = folder / "checkout", runner, host
        shutil.copytree(ROOT / "examples/single", self.top)
        (self.top / ".github/lakeplan").mkdir(parents=True)
        shutil.copy(CI / "github/pull_request.py", self.top / ".github/lakeplan")
        (self.top / ".gitignore").write_text(".lakeplan/\n*.json\n*.md\n*.xml\n")
        self.edit("https://lakefs.example.com", handle.endpoint_url)
        self.edit("max_expired_objects_percent: 30", "max_expired_objects_percent: 90")
        self.host_values = {
            "vars.LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
            "vars.LAKEPLAN_STATE_URL": "",
            "secrets.LAKEPLAN_PROD_ACCESS_KEY_ID": handle.access_key_id,
            "secrets.LAKEPLAN_PROD_SECRET_ACCESS_KEY": handle.secret_access_key,
            "github.token": "token",
            "github.event.pull_request.number": "7",
        }
        self.sh("git init -q -b main . && git config user.name a && git config user.email a@b.example")
        self.sh("git add -A && git commit -qm base")

    def edit(self, old: str, new: str) -> None:
        path = self.top / "lakeplan.yaml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def sh(self, script: str, code: int = 0, **environment: str) -> str:
        done = self.runner.run(script, self.top, **environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def step(self, job: str, word: str, code: int = 0, file: str = "github/lakeplan.yml") -> str:
        """Runs a step as the host would: its command, its environment, expressions filled in."""
        found = step(file, job, word)
        filled = {
            name: re.sub(r"\$\{\{ (\S+) \}\}", lambda m: self.host_values[m[1]], str(value))
            for name, value in found.get("env", {}).items()
        }
        given = {
            "GITHUB_API_URL": self.host.url,
            "GITHUB_REPOSITORY": "org/trees",
            "GITHUB_SHA": self.sh("git rev-parse HEAD").strip(),
            "GITHUB_OUTPUT": str(self.top / ".git/output"),
        }
        return self.sh(found["run"], code, **given, **filled)


@pytest.mark.spark
def it_plans_on_the_pull_request_applies_on_merge_and_notices_a_hand_on_the_server(tmp_path, runner, host):
    with start_sandbox(tmp_path / "sandbox") as handle:
        lake = Lake(handle.endpoint_url)
        lake.rules = {"*": 365, "main": 365}
        work = Work(tmp_path, runner, host, handle)

        # A branch edits the tree; the host checks out the merge commit and the workflow plans it.
        work.sh("git checkout -qb shorter")
        work.edit("branch_id: main, retention_days: 28", "branch_id: main, retention_days: 30")
        work.edit("max_expired_bytes: 1TB", "max_expired_bytes: 2TB")
        work.sh("git commit -qam shorter")
        head = work.sh("git rev-parse HEAD").strip()
        work.sh("git checkout -q main && git merge -q --no-ff -m merge shorter")
        merge = work.sh("git rev-parse HEAD").strip()
        shown = work.step("plan", "lakeplan plan")
        assert "::warning file=lakeplan.yaml,line=8,col=3,title=lakeplan%3A loosened::" in shown
        comment = (work.top / "comment.md").read_text()
        assert f"<!-- {MINE} -->" in comment
        assert "Plan: 0 to add, 1 to change, 0 to clear" in comment
        assert "Impact: 2 objects, 4 B" in comment
        assert lake.rules == {"*": 365, "main": 365}
        plan = json.loads((work.top / "plan.json").read_text())
        assert (plan["tree_commit"], plan["base"]) == (merge, work.sh("git rev-parse HEAD^1").strip())

        # It becomes a comment, and an artifact named after the pull request and its head.
        host.answers["GET", "/repos/org/trees/issues/7/comments"] = []
        host.answers["POST", "/repos/org/trees/issues/7/comments"] = {"html_url": "https://x/1"}
        work.step("plan", "pull_request.py comment")
        assert host.asked("POST") == [("/repos/org/trees/issues/7/comments", {"body": comment})]
        kept = tmp_path / f"lakeplan-7-{head}.json"
        (work.top / "plan.json").rename(kept)

        # On merge that plan is found and applied.
        run = {"id": 90, "head_sha": head, "repository_id": 1, "head_repository_id": 1}
        host.answers["GET", f"/repos/org/trees/commits/{merge}/pulls"] = [
            {"number": 7, "merged_at": "now", "merge_commit_sha": merge, "head": {"sha": head}}
        ]
        host.answers["GET", "/repos/org/trees/actions/artifacts"] = {
            "artifacts": [{"id": 1, "name": kept.stem, "expired": False, "workflow_run": run}]
        }
        work.step("apply", "find-plan")
        assert f"name={kept.stem}\n" in (work.top / ".git/output").read_text()
        shutil.copy(kept, work.top / "plan.json")
        work.step("apply", "lakeplan apply")
        assert lake.rules == {"*": 21, "main": 30}

        # Somebody edits the server by hand: drift says so, and the old plan is stale.
        assert "server-edited" not in work.step("drift", "lakeplan drift", file="github/nightly.yml")
        lake.rules = {"*": 7}
        assert "server-edited" in work.step("drift", "lakeplan drift", 2, file="github/nightly.yml")
        assert "the plan is stale" in work.step("apply", "lakeplan apply", 5)
        assert lake.rules == {"*": 7}

        # A new plan, of a new pull request, goes through.
        work.step("plan", "lakeplan plan")
        work.step("apply", "lakeplan apply")
        assert lake.rules == {"*": 21, "main": 30}
        work.step("drift", "lakeplan drift", file="github/nightly.yml")
