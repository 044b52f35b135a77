"""The story of a pull request, told by the workflows of GitHub and of GitLab on a repository and the sandbox:
every step of every job, in order."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from lakeplan.sandbox.server import start_sandbox
from tests.examples.hosted import CI, GitHub, GitLab

ROOT = Path(__file__).parents[2]
DAY = 86_400
MINE = "lakeplan:plan:."


POLICY_TEST = """\
apiVersion: lakeplan/v1
tests:
  - name: a release keeps its data for a quarter
    repository: analytics
    commits:
      first: {age: 80d, objects: [raw/q1.csv]}
      second: {age: 60d, parents: [first], removes: [raw/q1.csv]}
    branches: {main: second, release-1: second}
    survives: {objects: [raw/q1.csv@first]}
"""


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
    """The checkout, and who works in it."""

    def __init__(self, folder: Path, runner: Any, handle: Any, scripts: dict[str, str]) -> None:
        self.top, self.runner = folder / "checkout", runner
        shutil.copytree(ROOT / "examples/single", self.top)
        for source, place in scripts.items():
            (self.top / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CI / source, self.top / place)
        (self.top / "tests").mkdir()
        (self.top / "tests/retention.yaml").write_text(POLICY_TEST)
        (self.top / ".gitignore").write_text(".lakeplan/\n*.json\n*.md\n*.xml\n*.html\n")
        self.edit("https://lakefs.example.com", handle.endpoint_url)
        self.edit("max_expired_objects_percent: 30", "max_expired_objects_percent: 90")
        self.sh("git init -q -b main . && git config user.name a && git config user.email a@b.example")
        self.sh("git add -A && git commit -qm base")

    def edit(self, old: str, new: str) -> None:
        path = self.top / "lakeplan.yaml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def sh(self, script: str) -> str:
        done = self.runner.run(script, self.top)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout).strip()

    def merge(self, branch: str) -> tuple[str, str]:
        """Commits the edits on a branch and checks out its merge: (head, merge commit)."""
        self.sh(f"git checkout -qb {branch} && git commit -q --allow-empty -am {branch}")
        head = self.sh("git rev-parse HEAD")
        self.sh(f"git checkout -q main && git merge -q --no-ff -m merge {branch}")
        return head, self.sh("git rev-parse HEAD")

    def fresh(self) -> None:
        """Another runner: nothing is left of the last job but the state, which lies elsewhere in life."""
        self.sh("git clean -xdfq -e .lakeplan")


def make_github(work: Work, host: Any, handle: Any) -> GitHub:
    values = {
        "vars.LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
        "vars.LAKEPLAN_STATE_URL": "",
        "secrets.LAKEPLAN_PROD_ACCESS_KEY_ID": handle.access_key_id,
        "secrets.LAKEPLAN_PROD_SECRET_ACCESS_KEY": handle.secret_access_key,
        "github.token": "token",
    }
    return GitHub(
        work.top,
        work.runner,
        values,
        {
            "GITHUB_API_URL": host.url,
            "GITHUB_REPOSITORY": "org/trees",
            "GITHUB_REF_NAME": "main",
            "GITHUB_WORKFLOW_REF": "org/trees/.github/workflows/lakeplan.yml@refs/heads/main",
        },
    )


def is_merged(github: GitHub, host: Any, number: int, head: str, merge: str) -> str:
    """The host knows a pull request, its merge commit and the artifact of its plan: its name."""
    github.values["github.event.pull_request.number"] = str(number)
    github.values["github.event.pull_request.head.sha"] = head
    github.given["GITHUB_SHA"] = merge
    name = f"lakeplan-{number}-{head}"
    ours = {"full_name": "org/trees"}
    run = {
        "id": 90,
        "path": ".github/workflows/lakeplan.yml",
        "event": "pull_request",
        "head_sha": head,
        "head_branch": "change",
        "head_repository": ours,
        "created_at": "2026-03-31T12:00:00Z",
    }
    pull = {
        "number": number,
        "merged_at": "now",
        "merge_commit_sha": merge,
        "head": {"sha": head, "ref": "change", "repo": ours},
        "base": {"ref": "main"},
    }
    host.answers["GET", f"/repos/org/trees/commits/{merge}/pulls"] = [pull]
    host.answers["GET", f"/repos/org/trees/commits/{head}/pulls"] = [pull]
    host.answers["GET", f"/repos/org/trees/issues/{number}/timeline"] = []
    host.answers["GET", "/repos/org/trees/actions/runs/90"] = run
    host.answers["GET", "/repos/org/trees/actions/artifacts"] = {
        "artifacts": [{"id": 1, "name": name, "expired": False, "workflow_run": {"id": 90}}]
    }
    host.answers["GET", f"/repos/org/trees/issues/{number}/comments"] = []
    host.answers["POST", f"/repos/org/trees/issues/{number}/comments"] = {"html_url": "https://x/1"}
    return name


def it_plans_on_the_pull_request_applies_on_merge_and_notices_a_hand_on_the_server(tmp_path, runner, host):
    main, nightly = "github/lakeplan.yml", "github/nightly.yml"
    with start_sandbox(tmp_path / "sandbox") as handle:
        lake = Lake(handle.endpoint_url)
        lake.rules = {"*": 365, "main": 365}
        work = Work(tmp_path, runner, handle, {"github/pull_request.py": ".github/lakeplan/pull_request.py"})
        github = make_github(work, host, handle)

        # A branch edits the tree; the host checks out the merge commit.
        work.edit("branch_id: main, retention_days: 28", "branch_id: main, retention_days: 30")
        work.edit("max_expired_bytes: 1TB", "max_expired_bytes: 2TB")
        head, merge = work.merge("shorter")
        name = is_merged(github, host, 7, head, merge)
        validated = github.run(main, "validate")
        assert validated.code == 0, validated.output
        assert "lakeplan test" in validated.ran

        # The plan writes the comment, the plan file and the page, and nothing on the server.
        planned = github.run(main, "plan")
        assert planned.code == 0, planned.output
        assert "::warning file=lakeplan.yaml,line=8,col=3,title=lakeplan%3A loosened::" in planned.output
        comment = (work.top / "comment.md").read_text()
        assert f"<!-- {MINE} -->" in comment
        assert "Plan: 0 to add, 1 to change, 0 to clear" in comment
        assert "Impact: 2 objects, 4 B" in comment
        linked = f"{comment}\n[Report page](https://host.example/artifacts/lakeplan-page-7)\n"
        assert host.asked("POST") == [("/repos/org/trees/issues/7/comments", {"body": linked})]
        assert github.summary.read_text() == comment
        assert planned.kept == [name, "lakeplan-page-7"]
        assert "<!doctype html>" in (github.artifacts / "lakeplan-page-7/plan.html").read_text().lower()
        plan = json.loads((github.artifacts / name / "plan.json").read_text())
        assert (plan["tree_commit"], plan["base"]) == (merge, work.sh("git rev-parse HEAD^1"))
        assert lake.rules == {"*": 365, "main": 365}

        # On merge that file is found by pull request and head commit, and applied.
        work.fresh()
        applied = github.run(main, "apply")
        assert applied.code == 0, applied.output
        assert lake.rules == {"*": 21, "main": 30}
        assert "server-edited" not in github.run(nightly, "drift").output

        # Somebody edits the server by hand, and drift says so.
        lake.rules = {"*": 7}
        drifted = github.run(nightly, "drift")
        assert drifted.code == 2
        assert "server-edited" in drifted.output

        # The old plan is refused.
        refused = github.run(main, "apply")
        assert refused.code == 5
        assert "the plan is stale" in refused.output
        assert lake.rules == {"*": 7}

        # A new plan, of a new pull request, goes through.
        work.fresh()
        is_merged(github, host, 8, *work.merge("again"))
        for job in ("validate", "plan", "apply"):
            end = github.run(main, job)
            assert end.code == 0, end.output
        assert lake.rules == {"*": 21, "main": 30}
        assert github.run(nightly, "drift").code == 0


def it_tells_the_same_story_on_gitlab(tmp_path, runner, host):
    with start_sandbox(tmp_path / "sandbox") as handle:
        lake = Lake(handle.endpoint_url)
        lake.rules = {"*": 365, "main": 365}
        work = Work(tmp_path, runner, handle, {"gitlab/merge_request.py": "ci/merge_request.py"})
        work.edit("branch_id: main, retention_days: 28", "branch_id: main, retention_days: 30")
        head, merge = work.merge("shorter")
        gitlab = GitLab(
            work.top,
            runner,
            {
                "LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
                "LAKEPLAN_PROD_ACCESS_KEY_ID": handle.access_key_id,
                "LAKEPLAN_PROD_SECRET_ACCESS_KEY": handle.secret_access_key,
                "CI_API_V4_URL": host.url,
                "CI_PROJECT_ID": "3",
                "CI_JOB_TOKEN": "job",
                "CI_JOB_URL": "https://host.example/jobs/5",
                "REVIEW_TOKEN": "review",
                "CI_COMMIT_SHA": merge,
                "CI_COMMIT_BRANCH": "main",
            },
        )
        mine = {
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": head,
            "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": work.sh("git rev-parse HEAD^1"),
        }
        notes = "/projects/3/merge_requests/7/notes"
        host.answers |= {
            ("GET", "/user"): {"id": 42},
            ("GET", notes): [],
            ("POST", notes): {},
            ("GET", f"/projects/3/repository/commits/{merge}/merge_requests"): [
                {
                    "iid": 7,
                    "state": "merged",
                    "sha": head,
                    "merge_commit_sha": merge,
                    "squash_commit_sha": None,
                    "target_branch": "main",
                    "source_project_id": 3,
                    "target_project_id": 3,
                }
            ],
            ("GET", "/projects/3/merge_requests/7/pipelines"): [{"id": 50}],
            ("GET", "/projects/3/pipelines/50"): {
                "source": "merge_request_event",
                "project_id": 3,
                "ref": "refs/merge-requests/7/head",
                "sha": head,
            },
            ("GET", "/projects/3/pipelines/50/jobs"): [{"id": 5, "name": "plan", "artifacts": [{}]}],
        }
        validated = gitlab.run("validate", **mine)
        assert validated.code == 0, validated.output
        assert (work.top / "tests.xml").exists()

        planned = gitlab.run("plan", **mine)
        assert planned.code == 0, planned.output
        assert planned.kept == ["plan.json", "plan.html"]
        (note,) = [json.loads(body)["body"] for method, path, _, body in host.calls if method == "POST"]
        assert note.endswith("\n[Report page](https://host.example/jobs/5/artifacts/file/plan.html)\n")
        kept = (work.top / "plan.json").read_bytes()
        host.answers["GET", "/projects/3/jobs/5/artifacts/plan.json"] = kept

        work.fresh()
        applied = gitlab.run("apply")
        assert applied.code == 0, applied.output
        assert lake.rules == {"*": 21, "main": 30}
        assert gitlab.run("drift").code == 0
        lake.rules = {"*": 7}
        drifted = gitlab.run("drift")
        assert (drifted.code, "server-edited" in drifted.output) == (2, True)
        assert gitlab.run("apply").code == 5
        assert lake.rules == {"*": 7}


def it_comments_and_keeps_the_plan_also_when_a_gate_refuses(tmp_path, runner, host):
    with start_sandbox(tmp_path / "sandbox") as handle:
        lake = Lake(handle.endpoint_url)
        lake.rules = {"*": 365, "main": 365}
        work = Work(tmp_path, runner, handle, {"github/pull_request.py": ".github/lakeplan/pull_request.py"})
        github = make_github(work, host, handle)
        work.edit("max_expired_objects_percent: 90", "max_expired_objects_percent: 1")
        is_merged(github, host, 7, *work.merge("strict"))
        planned = github.run("github/lakeplan.yml", "plan")
        assert planned.code == 4, planned.output
        assert "BLOCKED" in host.asked("POST")[0][1]["body"]
        assert len(planned.kept) == 2


class DescribeFilesOfTheCheckout:
    """A change brings a plan and a comment of its own, and makes the plan fail before it writes any."""

    @pytest.fixture
    def secret(self, tmp_path):
        file = tmp_path / "environ"
        file.write_text("<!-- lakeplan:plan:. -->\nSECRET=1\n")
        return file

    @pytest.fixture
    def put(self, tmp_path, runner, secret):
        def work(scripts):
            server = SimpleNamespace(
                endpoint_url="http://127.0.0.1:9", access_key_id="a", secret_access_key="b"
            )
            found = Work(tmp_path, runner, server, scripts)
            (found.top / "plan.json").write_text("{}")
            (found.top / "plan.json.objects").write_text("forged")
            (found.top / "comment.md").symlink_to(secret)
            found.sh("git add -f plan.json plan.json.objects comment.md")
            return found, server

        return work

    def it_neither_keeps_nor_comments_them_on_github(self, put, host):
        work, server = put({"github/pull_request.py": ".github/lakeplan/pull_request.py"})
        github = make_github(work, host, server)
        work.edit("apiVersion: ", "apiVersion: x")
        is_merged(github, host, 7, *work.merge("forged"))
        planned = github.run("github/lakeplan.yml", "plan")
        assert "apiVersion" in planned.output
        assert (planned.code, planned.kept, host.calls) == (1, [], [])
        assert not github.summary.exists()

    def it_applies_only_what_the_artifact_brings_on_github(self, put, host, tmp_path):
        work, server = put({"github/pull_request.py": ".github/lakeplan/pull_request.py"})
        github = make_github(work, host, server)
        name = is_merged(github, host, 7, *work.merge("forged"))
        (tmp_path / "artifacts" / name).mkdir(parents=True)
        (tmp_path / "artifacts" / name / "junit.xml").write_text("<x/>")
        (tmp_path / "artifacts" / name / "lakeplan.yaml").write_text("nobody reviewed it")
        reviewed = (work.top / "lakeplan.yaml").read_text()
        applied = github.run("github/lakeplan.yml", "apply")
        assert "No such file" in applied.output
        assert (work.top / "lakeplan.yaml").read_text() == reviewed

    def it_neither_keeps_nor_comments_them_on_gitlab(self, put, host, runner):
        work, _ = put({"gitlab/merge_request.py": "ci/merge_request.py"})
        work.edit("apiVersion: ", "apiVersion: x")
        work.merge("forged")
        given = {"LAKEPLAN_PROD_ENDPOINT_URL": "http://127.0.0.1:10", "CI_API_V4_URL": host.url}
        given |= {"LAKEPLAN_PROD_ACCESS_KEY_ID": "a", "LAKEPLAN_PROD_SECRET_ACCESS_KEY": "b"}
        given |= {"CI_PROJECT_ID": "3", "REVIEW_TOKEN": "review", "CI_MERGE_REQUEST_IID": "7"}
        base = work.sh("git rev-parse HEAD^1")
        planned = GitLab(work.top, runner, given).run("plan", CI_MERGE_REQUEST_TARGET_BRANCH_SHA=base)
        assert "apiVersion" in planned.output
        assert (planned.code, planned.kept, host.calls) == (1, [], [])
