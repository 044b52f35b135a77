"""The scripts beside the workflows: one comment, updated; the plan that was reviewed, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples.conftest import Elsewhere

CI = Path(__file__).parents[2] / "examples/ci"
HEAD, MERGE = "a1" * 20, "b2" * 20
GITHUB = f'python "{CI}/github/pull_request.py"'
GITLAB = f'python "{CI}/gitlab/merge_request.py"'
BODY = "<!-- lakeplan:plan:. -->\nPlan: new\n"


OURS = {"full_name": "org/trees"}
PULL = {
    "number": 7,
    "merged_at": "now",
    "merge_commit_sha": MERGE,
    "head": {"sha": HEAD, "ref": "change", "repo": OURS},
    "base": {"ref": "main"},
}
RUN = {
    "path": ".github/workflows/lakeplan.yml",
    "event": "pull_request",
    "head_sha": HEAD,
    "head_branch": "change",
    "head_repository": OURS,
    "created_at": "2026-03-31T12:00:00Z",
}


@pytest.mark.parametrize(
    ("script", "given", "path"),
    [
        (
            f"{GITHUB} comment comment.md",
            {"GITHUB_REPOSITORY": "org/trees", "GITHUB_TOKEN": "token", "PULL_REQUEST": "7"},
            "/repos/org/trees/issues/7/comments",
        ),
        (
            f"{GITLAB} comment comment.md",
            {"CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7", "REVIEW_TOKEN": "token"},
            "/user",
        ),
    ],
)
def it_gives_no_token_to_where_a_redirect_leads(host, runner, tmp_path, script, given, path):
    (tmp_path / "comment.md").write_text(BODY)
    host.answers["GET", path] = Elsewhere("/elsewhere")
    runner.run(script, tmp_path, GITHUB_API_URL=host.url, CI_API_V4_URL=host.url, **given)
    first, second = host.calls[:2]
    assert "token" in str(first[2])
    assert second[1] == "/elsewhere"
    assert "token" not in str(second[2])


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
            "GITHUB_REF_NAME": "main",
            "GITHUB_WORKFLOW_REF": "org/trees/.github/workflows/lakeplan.yml@refs/heads/main",
            "PULL_REQUEST": "7",
        }
        open_one = {**PULL, "number": 8, "merged_at": None, "head": {**PULL["head"], "sha": "c3" * 20}}
        host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = [PULL, open_one]
        host.answers["GET", f"/repos/org/trees/commits/{HEAD}/pulls"] = [PULL]
        host.answers["GET", "/repos/org/trees/issues/7/timeline"] = [{"event": "committed"}]
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

    @pytest.fixture
    def artifacts(self, host):
        """Puts artifacts of the right name on the host, each of a run that differs from ours in something."""

        def put(*runs, **changes):
            listed = []
            for number, differs in enumerate(runs, 1):
                run_id = 900 + number
                host.answers["GET", f"/repos/org/trees/actions/runs/{run_id}"] = {**RUN, **differs}
                name = f"lakeplan-7-{HEAD}"
                artifact = {"id": number, "name": name, "expired": False, "workflow_run": {"id": run_id}}
                listed.append({**artifact, **changes})
            host.answers["GET", "/repos/org/trees/actions/artifacts"] = {"artifacts": listed}

        return put

    OTHERS = (
        {"path": ".github/workflows/evil.yml"},
        {"path": ".github/workflows/lakeplan.yml/../evil.yml"},
        {"event": "push"},
        {"event": "workflow_dispatch"},
        {"event": "pull_request_target"},
        {"head_sha": "d4" * 20},
        {"head_branch": "other"},
        {"head_repository": {"full_name": "fork/trees"}},
        {"head_repository": None},
    )

    def it_finds_the_newest_plan_of_its_own_runs(self, script, artifacts, tmp_path):
        artifacts({}, {}, *self.OTHERS)
        done = script("find-plan")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "output").read_text() == f"name=lakeplan-7-{HEAD}\nrun-id=902\n"

    def it_takes_the_ref_at_a_path_for_no_other_workflow(self, script, artifacts):
        artifacts({"path": ".github/workflows/lakeplan.yml@refs/pull/7/merge"})
        assert script("find-plan").returncode == 0

    @pytest.mark.parametrize("other", OTHERS, ids=str)
    def it_takes_no_plan_of_another_run(self, script, artifacts, other):
        artifacts(other)
        done = script("find-plan")
        assert done.returncode == 1
        assert "there is no plan" in done.stderr

    @pytest.mark.parametrize("changes", [{"expired": True}, {"name": "lakeplan-70"}])
    def it_takes_no_plan_that_expired_or_has_another_name(self, script, artifacts, changes):
        artifacts({}, **changes)
        assert script("find-plan").returncode == 1

    def it_takes_no_plan_of_a_fork(self, host, script, artifacts):
        artifacts({})
        fork = {**PULL["head"], "repo": {"full_name": "fork/trees"}}
        host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = [{**PULL, "head": fork}]
        assert script("find-plan").returncode == 1

    def it_applies_nothing_that_was_merged_into_another_branch(self, host, script, artifacts):
        artifacts({})
        other = {**PULL, "base": {"ref": "evil"}}
        host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = [other]
        assert "nothing that was reviewed" in script("find-plan").stderr

    def it_refuses_a_head_that_was_proposed_for_another_branch_too(self, host, script, artifacts):
        """Its run has our head and path, and the workflow file of the other branch."""
        artifacts({})
        other = {**PULL, "number": 9, "base": {"ref": "evil"}}
        host.answers["GET", f"/repos/org/trees/commits/{HEAD}/pulls"] = [PULL, other]
        done = script("find-plan")
        assert done.returncode == 1
        assert "evil" in done.stderr

    @pytest.mark.parametrize(("moment", "code"), [("2026-03-31T11:59:59Z", 0), ("2026-03-31T12:30:00Z", 1)])
    def it_takes_no_run_from_before_the_base_was_changed(self, host, script, artifacts, moment, code):
        artifacts({})
        event = {"event": "base_ref_changed", "created_at": moment}
        host.answers["GET", "/repos/org/trees/issues/7/timeline"] = [event]
        assert script("find-plan").returncode == code

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
            "REVIEW_TOKEN": "review",
            "CI_COMMIT_SHA": MERGE,
            "CI_COMMIT_BRANCH": "main",
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": HEAD,
        }
        host.answers["GET", "/user"] = {"id": 42}
        host.answers["GET", f"/projects/3/repository/commits/{MERGE}/merge_requests"] = [
            {
                "iid": 7,
                "state": "merged",
                "sha": HEAD,
                "merge_commit_sha": MERGE,
                "squash_commit_sha": None,
                "target_branch": "main",
                "source_project_id": 3,
                "target_project_id": 3,
            }
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

    @pytest.fixture
    def pipelines(self, host):
        """Puts pipelines of the merge request on the host, the newest last, each with a plan of its own."""

        def put(*pipelines):
            host.answers["GET", "/projects/3/merge_requests/7/pipelines"] = [
                {"id": 50 + n} for n in range(len(pipelines))
            ]
            for n, differs in enumerate(pipelines):
                known = {
                    "source": "merge_request_event",
                    "project_id": 3,
                    "ref": "refs/merge-requests/7/head",
                    "sha": HEAD,
                }
                host.answers["GET", f"/projects/3/pipelines/{50 + n}"] = {**known, **differs}
                jobs = [
                    {"id": 500 + n, "name": "plan", "artifacts": [{}]},
                    {"id": 600 + n, "name": "evil", "artifacts": [{}]},
                    {"id": 700 + n, "name": "plan", "artifacts": []},
                ]
                host.answers["GET", f"/projects/3/pipelines/{50 + n}/jobs"] = jobs
                host.answers["GET", f"/projects/3/jobs/{500 + n}/artifacts/plan.json"] = {"n": n}

        return put

    def found(self, script, tmp_path):
        done = script("find-plan found.json")
        if done.returncode:
            assert "there is no plan" in done.stderr
            return None
        return json.loads((tmp_path / "found.json").read_text())["n"]

    OTHERS = (
        {"source": "push"},
        {"source": "web"},
        {"source": "parent_pipeline"},
        {"project_id": 4},
        {"ref": "refs/merge-requests/70/head"},
        {"ref": "main"},
        {"sha": "d4" * 20},
    )

    def it_finds_the_newest_plan_of_the_merge_requests_own_pipelines(self, host, script, pipelines, tmp_path):
        host.answers["GET", f"/projects/3/repository/commits/{'d4' * 20}"] = {"parent_ids": ["e5" * 20]}
        pipelines({}, {}, *self.OTHERS)
        assert self.found(script, tmp_path) == 1
        assert not (tmp_path / "found.json.objects").exists()

    @pytest.mark.parametrize("other", OTHERS, ids=str)
    def it_takes_no_plan_of_another_pipeline(self, host, script, pipelines, tmp_path, other):
        host.answers["GET", f"/projects/3/repository/commits/{'d4' * 20}"] = {"parent_ids": ["e5" * 20]}
        pipelines(other)
        assert self.found(script, tmp_path) is None

    @pytest.mark.parametrize(("base", "expected"), [("e5" * 20, 0), ("f6" * 20, None)])
    def it_takes_a_merged_results_pipeline_of_the_target_branch(
        self, host, script, pipelines, tmp_path, base, expected
    ):
        """The other parent has to be on the branch that was merged into."""
        merge = "d4" * 20
        host.answers["GET", f"/projects/3/repository/commits/{merge}"] = {"parent_ids": ["e5" * 20, HEAD]}
        host.answers["GET", "/projects/3/repository/merge_base"] = {"id": base}
        pipelines({"sha": merge, "ref": "refs/merge-requests/7/merge"})
        assert self.found(script, tmp_path) == expected

    def it_fetches_the_objects_beside_the_plan(self, host, script, pipelines, tmp_path):
        pipelines({})
        host.answers["GET", "/projects/3/jobs/500/artifacts/plan.json.objects"] = b"records"
        assert self.found(script, tmp_path) == 0
        assert (tmp_path / "found.json.objects").read_bytes() == b"records"

    @pytest.mark.parametrize(
        "change", [{"target_branch": "evil"}, {"source_project_id": 4}, {"target_project_id": 4}]
    )
    def it_applies_nothing_of_a_fork_or_into_another_branch(self, host, script, pipelines, tmp_path, change):
        pipelines({})
        path = f"/projects/3/repository/commits/{MERGE}/merge_requests"
        host.answers["GET", path] = [{**host.answers["GET", path][0], **change}]
        assert "nothing that was reviewed" in script("find-plan found.json").stderr

    def it_applies_nothing_for_a_push_that_was_no_merge_request(self, host, script, tmp_path):
        host.answers["GET", f"/projects/3/repository/commits/{MERGE}/merge_requests"] = []
        assert script("find-plan found.json").returncode == 1
        assert not (tmp_path / "found.json").exists()
