"""The scripts beside the workflows: one comment, updated; the plan that was reviewed, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / "examples/ci"
HEAD, MERGE = "a1" * 20, "b2" * 20
GITHUB = f'python "{CI}/github/pull_request.py"'
GITLAB = f'python "{CI}/gitlab/merge_request.py"'
BODY = "<!-- lakeplan:plan:. -->\nPlan: new\n"


def artifact(number, **changes):
    run = {"id": 900 + number, "head_sha": HEAD, "repository_id": 1, "head_repository_id": 1}
    run.update(changes.pop("run", {}))
    return {"id": number, "name": f"lakeplan-7-{HEAD}", "expired": False, "workflow_run": run, **changes}


class DescribeGitHub:
    @pytest.fixture
    def script(self, host, runner, tmp_path):
        (tmp_path / "comment.md").write_text(BODY)
        environment = {
            "GITHUB_API_URL": host.url,
            "GITHUB_REPOSITORY": "org/trees",
            "GITHUB_TOKEN": "token",
            "GITHUB_SHA": MERGE,
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "PULL_REQUEST": "7",
        }
        host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = [
            {"number": 7, "merged_at": "now", "merge_commit_sha": MERGE, "head": {"sha": HEAD}},
            {"number": 8, "merged_at": None, "merge_commit_sha": MERGE, "head": {"sha": "c3" * 20}},
        ]
        return lambda arguments: runner.run(f"{GITHUB} {arguments}", tmp_path, **environment)

    def it_makes_a_comment_when_there_is_none_of_ours(self, host, script):
        host.answers["GET", "/repos/org/trees/issues/7/comments"] = [
            {"id": 1, "user": {"type": "User"}, "body": BODY, "html_url": "u"}
        ]
        host.answers["POST", "/repos/org/trees/issues/7/comments"] = {"html_url": "https://x/1"}
        done = script("comment comment.md")
        assert done.returncode == 0, done.stderr
        assert host.asked("POST") == [("/repos/org/trees/issues/7/comments", {"body": BODY})]
        assert host.calls[0][2]["Authorization"] == "Bearer token"

    def it_updates_our_comment_however_far_back_it_is(self, host, script):
        others = [{"id": i, "user": {"type": "Bot"}, "body": "x", "html_url": "u"} for i in range(130)]
        mine = {"id": 500, "user": {"type": "Bot"}, "body": BODY.replace("new", "old"), "html_url": "u"}
        host.answers["GET", "/repos/org/trees/issues/7/comments"] = [*others, mine]
        host.answers["PATCH", "/repos/org/trees/issues/comments/500"] = {}
        done = script("comment comment.md")
        assert done.returncode == 0, done.stderr
        assert host.asked("PATCH") == [("/repos/org/trees/issues/comments/500", {"body": BODY})]

    def it_finds_the_newest_plan_of_the_merged_head(self, host, script, tmp_path):
        path = "/repos/org/trees/actions/artifacts"
        host.answers["GET", path] = {
            "artifacts": [
                artifact(1),
                artifact(3),
                artifact(4, expired=True),
                artifact(5, run={"head_sha": "d4" * 20}),
                artifact(6, run={"head_repository_id": 2}),
            ]
        }
        done = script("find-plan")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "output").read_text() == f"name=lakeplan-7-{HEAD}\nrun-id=903\n"
        assert any(f"name=lakeplan-7-{HEAD}" in p for _, p, _, _ in host.calls)

    def it_takes_no_plan_of_a_fork(self, host, script):
        host.answers["GET", "/repos/org/trees/actions/artifacts"] = {
            "artifacts": [artifact(6, run={"head_repository_id": 2})]
        }
        done = script("find-plan")
        assert done.returncode == 1
        assert "there is no plan" in done.stderr

    def it_applies_nothing_for_a_push_that_was_no_pull_request(self, host, script):
        host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = []
        done = script("find-plan")
        assert done.returncode == 1
        assert "nothing that was reviewed" in done.stderr

    def it_says_what_the_host_refused(self, script):
        done = script("comment comment.md")
        assert done.returncode == 1
        assert "404" in done.stderr
        assert "Traceback" not in done.stderr


class DescribeTheLinkToThePage:
    @pytest.mark.parametrize(("folder", "name"), [("github", "pull_request"), ("gitlab", "merge_request")])
    def it_stays_within_the_limit_of_a_comment(self, runner, tmp_path, folder, name):
        code = f"import {name} as s; print(len(s.with_page('x' * {{}}).encode()))"
        linked, full = (
            runner.run(
                f'python -c "{code.format(size)}"',
                tmp_path,
                PYTHONPATH=str(CI / folder),
                PAGE_URL="https://host.example/page",
            ).stdout
            for size in (10, 65_530)
        )
        assert int(linked) == 10 + len("\n[Report page](https://host.example/page)\n")
        assert int(full) == 65_530


class DescribeGitLab:
    @pytest.fixture
    def script(self, host, runner, tmp_path):
        (tmp_path / "comment.md").write_text(BODY)
        (tmp_path / "plan.json").write_text("{}")
        environment = {
            "CI_API_V4_URL": host.url,
            "CI_PROJECT_ID": "3",
            "CI_JOB_TOKEN": "job",
            "REVIEW_TOKEN": "review",
            "CI_COMMIT_SHA": MERGE,
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": HEAD,
        }
        host.answers["GET", "/user"] = {"id": 42}
        host.answers["GET", f"/projects/3/repository/commits/{MERGE}/merge_requests"] = [
            {"iid": 7, "state": "merged", "sha": HEAD, "merge_commit_sha": MERGE, "squash_commit_sha": None}
        ]
        return lambda arguments: runner.run(f"{GITLAB} {arguments}", tmp_path, **environment)

    def it_updates_its_own_note_and_nobody_elses(self, host, script):
        host.answers["GET", "/projects/3/merge_requests/7/notes"] = [
            {"id": 1, "author": {"id": 9}, "body": BODY},
            {"id": 2, "author": {"id": 42}, "body": BODY.replace("new", "old")},
        ]
        host.answers["PUT", "/projects/3/merge_requests/7/notes/2"] = {}
        done = script("comment comment.md")
        assert done.returncode == 0, done.stderr
        assert host.asked("PUT") == [("/projects/3/merge_requests/7/notes/2", {"body": BODY})]

    def it_makes_a_note_when_it_has_none(self, host, script):
        host.answers["GET", "/projects/3/merge_requests/7/notes"] = []
        host.answers["POST", "/projects/3/merge_requests/7/notes"] = {}
        assert script("comment comment.md").returncode == 0
        assert host.asked("POST") == [("/projects/3/merge_requests/7/notes", {"body": BODY})]

    def it_keeps_a_plan_and_finds_it_by_merge_request_and_head(self, host, script, tmp_path):
        path = f"/projects/3/packages/generic/lakeplan/7-{HEAD}/plan.json"
        host.answers["PUT", path] = {}
        assert script("publish plan.json").returncode == 0
        method, _, headers, body = host.calls[-1]
        # urllib writes the names of headers in its own case
        assert (method, {k.lower(): v for k, v in headers.items()}["job-token"]) == ("PUT", "job")
        host.answers["GET", path] = body
        done = script("find-plan found.json")
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / "found.json").read_text()) == {}

    def it_applies_nothing_for_a_push_that_was_no_merge_request(self, host, script, tmp_path):
        host.answers["GET", f"/projects/3/repository/commits/{MERGE}/merge_requests"] = []
        assert script("find-plan found.json").returncode == 1
        assert not (tmp_path / "found.json").exists()
