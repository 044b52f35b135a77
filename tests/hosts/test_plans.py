"""One comment is updated, and only the reviewed plan is applied."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.hosts.github import GitHub, unpacked
from lakeplan.hosts.gitlab import GitLab
from lakeplan.hosts.protocols import HostError, NoPlan, put_comment
from lakeplan.lakefs.transport import RetryPolicy
from tests.examples.conftest import Elsewhere, Host, host

__all__ = ["host"]

HEAD, MERGE = "a1" * 20, "b2" * 20
BODY = "<!-- lakeplan:plan:. -->\nPlan: new\n"
ONCE = RetryPolicy(tries=1)


OURS = {"full_name": "org/trees"}
PULL = {
    "number": 7,
    "created_at": "2026-03-31T11:00:00Z",
    "closed_at": "2026-03-31T13:00:00Z",
    "merged_at": "2026-03-31T13:00:00Z",
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


def zipped(**files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_", "."), content)
    return data.getvalue()


@pytest.fixture
def github(host: Host, tmp_path: Path) -> GitHub:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"commits": [{"id": MERGE}]}))
    open_one = {**PULL, "number": 8, "merged_at": None, "head": {**PULL["head"], "sha": "c3" * 20}}
    host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = [PULL, open_one]
    host.answers["GET", "/repos/org/trees/pulls"] = [PULL]
    host.answers["GET", "/repos/org/trees/issues/7/timeline"] = [{"event": "committed"}]
    environ = {
        "GITHUB_API_URL": host.url,
        "GITHUB_REPOSITORY": "org/trees",
        "GITHUB_TOKEN": "token",
        "GITHUB_SHA": MERGE,
        "GITHUB_REF_NAME": "main",
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_WORKFLOW_REF": "org/trees/.github/workflows/lakeplan.yml@refs/heads/main",
    }
    return GitHub.of(environ, ONCE)


class DescribeGitHub:
    def it_makes_a_comment_when_there_is_none_of_ours(self, host, github):
        host.answers["GET", "/repos/org/trees/issues/7/comments"] = [
            {"id": 1, "user": {"type": "User"}, "body": BODY, "html_url": "u"}
        ]
        host.answers["POST", "/repos/org/trees/issues/7/comments"] = {"html_url": "https://x/1"}
        put_comment(github, 7, BODY)
        assert host.asked("POST") == [("/repos/org/trees/issues/7/comments", {"body": BODY})]
        assert host.calls[0][2]["Authorization"] == "Bearer token"

    def it_updates_our_comment_however_far_back_it_is(self, host, github):
        others = [{"id": i, "user": {"type": "Bot"}, "body": "x", "html_url": "u"} for i in range(130)]
        mine = {"id": 500, "user": {"type": "Bot"}, "body": BODY.replace("new", "old"), "html_url": "u"}
        host.answers["GET", "/repos/org/trees/issues/7/comments"] = [*others, mine]
        host.answers["PATCH", "/repos/org/trees/issues/comments/500"] = {}
        put_comment(github, 7, BODY)
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
                listed.append({**artifact, "created_at": "2026-03-31T12:30:00Z", **changes})
                path = f"/repos/org/trees/actions/artifacts/{number}/zip"
                host.answers["GET", path] = Elsewhere(f"{host.url}/store/{number}")
                host.answers["GET", f"/store/{number}"] = zipped(plan_json=str(number).encode())
            host.answers["GET", "/repos/org/trees/actions/artifacts"] = {"artifacts": listed}

        return put

    @pytest.fixture
    def find(self, github, tmp_path):
        def found() -> str:
            (request,) = github.merged()
            folder = tmp_path / "into"
            folder.mkdir()
            return github.fetch_plan(request, folder).read_text()

        return found

    OTHERS = (
        {"path": ".github/workflows/evil.yml"},
        {"path": ".github/workflows/lakeplan.yml/../evil.yml"},
        {"path": ".github/workflows/lakeplan.yml@evil.yml"},
        {"path": ".github/workflows/lakeplan.yml@evil.yaml@refs/pull/7/merge"},
        {"event": "push"},
        {"event": "workflow_dispatch"},
        {"event": "pull_request_target"},
        {"head_sha": "d4" * 20},
        {"head_branch": "other"},
        {"head_repository": {"full_name": "fork/trees"}},
        {"head_repository": None},
    )

    def it_finds_the_newest_plan_of_its_own_runs(self, find, artifacts):
        artifacts({}, {}, *self.OTHERS)
        assert find() == "2"

    def it_takes_the_ref_at_a_path_for_no_other_workflow(self, find, artifacts):
        artifacts({"path": ".github/workflows/lakeplan.yml@refs/pull/7/merge"})
        assert find() == "1"

    @pytest.mark.parametrize("other", OTHERS, ids=str)
    def it_takes_no_plan_of_another_run(self, find, artifacts, other):
        artifacts(other)
        with pytest.raises(NoPlan, match="no plan of pull request"):
            find()

    @pytest.mark.parametrize("changes", [{"expired": True}, {"name": "lakeplan-70"}])
    def it_takes_no_plan_that_expired_or_has_another_name(self, find, artifacts, changes):
        artifacts({}, **changes)
        with pytest.raises(NoPlan):
            find()

    def it_takes_no_plan_of_a_fork(self, host, find, artifacts):
        artifacts({})
        fork = {**PULL["head"], "repo": {"full_name": "fork/trees"}}
        host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = [{**PULL, "head": fork}]
        with pytest.raises(NoPlan):
            find()

    def it_applies_nothing_that_was_merged_into_another_branch(self, host, github):
        other = {**PULL, "base": {"ref": "evil"}}
        host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = [other]
        assert github.merged() == []

    def it_refuses_a_head_that_was_proposed_for_another_branch_too(self, host, find, artifacts):
        """Its run has our head and path, and the workflow file of the other branch. Once ours is merged, only
        the list of the branch has the other one."""
        artifacts({})
        other = {**PULL, "number": 9, "base": {"ref": "evil"}, "merged_at": None, "state": "closed"}
        host.answers["GET", f"/repos/org/trees/commits/{HEAD}/pulls"] = [PULL]
        host.answers["GET", "/repos/org/trees/pulls"] = [PULL, other]
        with pytest.raises(NoPlan, match="evil"):
            find()
        (asked,) = [path for _, path, *_ in host.calls if path.startswith("/repos/org/trees/pulls")]
        assert "state=all" in asked
        assert "head=org%3Achange" in asked

    def it_takes_no_run_of_an_earlier_pull_request_whose_base_was_changed(self, host, find, artifacts):
        artifacts({})
        host.answers["GET", "/repos/org/trees/pulls"] = [PULL, {**PULL, "number": 6, "merged_at": None}]
        event = {"event": "base_ref_changed", "created_at": "2026-03-31T12:30:00Z"}
        host.answers["GET", "/repos/org/trees/issues/6/timeline"] = [event]
        with pytest.raises(NoPlan):
            find()

    @pytest.mark.parametrize(
        ("began", "closed", "refused"),
        [
            ("11:30", "12:30", True),
            ("11:30", "11:59", True),  # a run begins with a delay
            ("11:30", None, True),
            ("11:30", "11:50", False),
            ("12:01", "12:30", False),
        ],
    )
    @pytest.mark.parametrize("base", ["evil", "main"])
    def it_takes_no_run_of_another_pull_request_that_has_another_commit_now(
        self, host, find, artifacts, began, closed, refused, base
    ):
        """It proposed our commit to another branch, got one more commit, and was closed. Its run can upload a
        plan under our name, also later, when somebody runs it again."""
        artifacts({})
        other = {
            **PULL,
            "number": 6,
            "merged_at": None,
            "created_at": f"2026-03-31T{began}:00Z",
            "closed_at": closed and f"2026-03-31T{closed}:00Z",
            "head": {**PULL["head"], "sha": "c3" * 20},
            "base": {"ref": base},
        }
        host.answers["GET", "/repos/org/trees/pulls"] = [PULL, other]
        moved = [{"event": "base_ref_changed", "created_at": "2026-03-31T12:20:00Z"}] * (base == "main")
        host.answers["GET", "/repos/org/trees/issues/6/timeline"] = moved
        if refused:
            with pytest.raises(NoPlan, match="no plan of pull request"):
                find()
        else:
            assert find() == "1"

    @pytest.mark.parametrize(("second", "refused"), [("13:00:00", False), ("13:00:01", True)])
    def it_takes_no_plan_that_was_made_after_the_merge(self, find, artifacts, second, refused):
        """Somebody ran the plan's job again, and the new plan lists more deletions than the review saw."""
        artifacts({}, created_at=f"2026-03-31T{second}Z")
        if refused:
            with pytest.raises(NoPlan, match="was created before the merge"):
                find()
        else:
            assert find() == "1"

    def it_reads_all_pages_even_if_one_is_not_full(self, host, find, artifacts):
        """A host leaves out what is hidden, such as what a suspended user wrote."""
        artifacts({})
        event = {"event": "base_ref_changed", "created_at": "2026-03-31T12:30:00Z"}
        host.short["/repos/org/trees/issues/7/timeline"] = [[{"event": "committed"}], [], [event]]
        with pytest.raises(NoPlan):
            find()

    def it_stops_reading_pages_that_do_not_end(self, host, github):
        host.short["/repos/org/trees/issues/7/comments"] = [[]] * 101
        with pytest.raises(HostError, match="the limit"):
            github.own_comment(7, BODY)

    @pytest.mark.parametrize(
        ("moment", "refused"), [("2026-03-31T11:59:59Z", False), ("2026-03-31T12:30:00Z", True)]
    )
    @pytest.mark.parametrize("name", ["base_ref_changed", "automatic_base_change_succeeded"])
    def it_takes_no_run_from_before_the_base_was_changed(self, host, find, artifacts, name, moment, refused):
        artifacts({})
        event = {"event": name, "created_at": moment}
        host.answers["GET", "/repos/org/trees/issues/7/timeline"] = [event]
        if refused:
            with pytest.raises(NoPlan):
                find()
        else:
            assert find() == "1"

    def it_compares_with_the_target_branch_whatever_is_checked_out(self, github):
        """HEAD^1 of the last commit of a pull request is another commit of it."""
        assert github.base_ref() == f"{MERGE}^1"

    def it_applies_nothing_for_a_push_that_was_no_pull_request(self, host, github):
        host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = []
        assert github.merged() == []

    def it_finds_every_pull_request_of_a_push_in_the_order_of_its_commits(self, host, github):
        second = {**PULL, "number": 9, "merge_commit_sha": "e5" * 20}
        host.answers["GET", f"/repos/org/trees/commits/{'e5' * 20}/pulls"] = [second]
        github.event = {"commits": [{"id": "e5" * 20}, {"id": MERGE}, {"id": "$(evil)"}, "evil"]}
        assert [request.number for request in github.merged()] == [9, 7]

    def it_finds_those_of_the_first_commits_of_a_large_push(self, host, github, monkeypatch):
        monkeypatch.setattr("lakeplan.limits.HOST_COMMITS", 3)
        first, other = "e5" * 20, "e6" * 20
        merged = [
            {**PULL, "number": 4, "merge_commit_sha": other},
            {**PULL, "number": 5, "merge_commit_sha": first},
        ]
        closed = {**PULL, "number": 6, "merge_commit_sha": first, "merged_at": None}
        host.answers["GET", "/repos/org/trees/pulls"] = [merged[0], closed, merged[1]]
        for n in range(2):
            host.answers["GET", f"/repos/org/trees/commits/{f'f{n}' * 20}/pulls"] = []
        github.event = {"commits": [{"id": id} for id in (first, other, "f0" * 20, "f1" * 20, MERGE)]}
        assert [request.number for request in github.merged()] == [5, 4, 7]

    def it_says_what_the_host_refused_without_the_token(self, github):
        with pytest.raises(HostError) as failed:
            put_comment(github, 7, BODY)
        assert "404" in str(failed.value)
        assert failed.value.hint
        assert "token" not in repr(vars(failed.value)).replace("job's token", "")
        assert "token" not in repr(github.client)

    def it_gives_no_token_to_where_a_redirect_leads(self, host, find, artifacts):
        artifacts({})
        assert find() == "1"
        to_store = [headers for _, path, headers, _ in host.calls if path.startswith("/store/")]
        assert to_store
        assert not any("Authorization" in headers for headers in to_store)

    def it_follows_no_redirect_of_an_answer_and_none_to_a_file(self, host, github, find, artifacts):
        artifacts({})
        host.answers["GET", "/repos/org/trees/actions/artifacts/1/zip"] = Elsewhere("file:///etc/passwd")
        with pytest.raises(HostError, match="not http or https"):
            find()
        host.answers["GET", "/repos/org/trees/issues/7/comments"] = Elsewhere(f"{host.url}/elsewhere")
        with pytest.raises(HostError, match="302"):
            github.own_comment(7, "x")
        assert not [path for _, path, _, _ in host.calls if path == "/elsewhere"]

    @pytest.mark.parametrize(
        "data", [b"", b"no archive", zipped(plan_json=b"x")[:40]], ids=["empty", "no archive", "cut"]
    )
    def it_refuses_a_damaged_artifact(self, host, find, artifacts, data):
        artifacts({})
        host.answers["GET", "/store/1"] = data
        with pytest.raises(LakeplanError):
            find()

    @pytest.mark.parametrize("packed", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def it_refuses_an_artifact_whose_content_is_damaged(self, packed):
        """Whichever byte it is: an apply goes on with the next pull request."""
        with zipfile.ZipFile(made := io.BytesIO(), "w", packed) as archive:
            archive.writestr("plan.json", b'{"a": 1}' * 50)
        whole = made.getvalue()
        damaged = 0
        for at in range(len(whole)):
            try:
                unpacked(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            except HostError:
                damaged += 1
        assert damaged > 30

    def it_needs_no_memory_for_the_files_of_an_artifact_with_too_many(self):
        directory = (b"PK\x01\x02" + bytes(42)) * 20_000
        end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 20_000, 20_000, len(directory), 0, 0)
        tracemalloc.start()
        try:
            with pytest.raises(HostError, match="the limit of 100 files"):
                unpacked(directory + end)
            assert tracemalloc.get_traced_memory()[1] < 3 * len(directory)
        finally:
            tracemalloc.stop()

    def it_takes_a_plan_out_of_an_artifact_and_nothing_else(self, host, find, artifacts, tmp_path):
        artifacts({})
        with zipfile.ZipFile(data := io.BytesIO(), "w") as archive:
            for name in ("plan.json", "plan.json.objects", "../evil", "lakeplan.yaml", "/tmp/evil"):
                archive.writestr(name, name)
        host.answers["GET", "/store/1"] = data.getvalue()
        assert find() == "plan.json"
        assert sorted(p.name for p in (tmp_path / "into").iterdir()) == ["plan.json", "plan.json.objects"]

    @pytest.mark.parametrize(
        "answer", [[{}], [None], ["x"], [7], [{"number": "x", "merged_at": 1}], {"a": 1}, 7]
    )
    def it_refuses_answers_that_are_not_as_documented(self, host, github, answer):
        host.answers["GET", f"/repos/org/trees/commits/{MERGE}/pulls"] = answer
        host.answers["GET", "/repos/org/trees/issues/7/comments"] = answer
        host.answers["GET", "/repos/org/trees/pulls"] = answer
        with pytest.raises(HostError):
            github.merged()
        if answer != [{}] and answer != [{"number": "x", "merged_at": 1}]:
            with pytest.raises(HostError):
                github.own_comment(7, BODY)
        with pytest.raises(HostError):
            github.open_requests()

    @pytest.mark.parametrize("missing", ["GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_EVENT_PATH"])
    def it_explains_what_the_environment_lacks(self, host, tmp_path, missing):
        (tmp_path / "event.json").write_text("{}")
        environ = {"GITHUB_TOKEN": "token", "GITHUB_REPOSITORY": "org/trees"}
        environ |= {"GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "GITHUB_API_URL": host.url}
        GitHub.of(environ)
        del environ[missing]
        with pytest.raises(UsageError) as failed:
            GitHub.of(environ)
        assert failed.value.hint
        assert "token" not in str(failed.value).replace("TOKEN", "")


VERSION = {
    "id": 1,
    "head_commit_sha": HEAD,
    "base_commit_sha": "b0" * 20,
    "created_at": "2026-03-31T11:00Z",
}
"""Of a merge request, as GitLab compares its last commit with the target branch."""


class DescribeGitLab:
    @pytest.fixture
    def gitlab(self, host):
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
                "merged_at": "2026-03-31T13:00:00.000Z",
            }
        ]
        return GitLab.of(environment, ONCE)

    def it_updates_its_own_note_and_nobody_elses(self, host, gitlab):
        host.answers["GET", "/projects/3/merge_requests/7/notes"] = [
            {"id": 1, "author": {"id": 9}, "body": BODY},
            {"id": 2, "author": {"id": 42}, "body": BODY.replace("new", "old")},
        ]
        host.answers["PUT", "/projects/3/merge_requests/7/notes/2"] = {}
        put_comment(gitlab, 7, BODY)
        assert host.asked("PUT") == [("/projects/3/merge_requests/7/notes/2", {"body": BODY})]

    def it_knows_who_approved(self, host, gitlab):
        (request,) = gitlab.merged()
        path = "/projects/3/merge_requests/7/approvals"
        host.answers["GET", path] = {"approved_by": [{"user": {"username": "ada"}}]}
        assert gitlab.approvers(request) == ["ada"]
        for wrong in ({"approved_by": [{}]}, {"approved_by": [3]}, ["x"]):
            host.answers["GET", path] = wrong
            with pytest.raises(HostError):
                gitlab.approvers(request)

    def it_makes_a_note_when_it_has_none(self, host, gitlab):
        host.answers["GET", "/projects/3/merge_requests/7/notes"] = []
        host.answers["POST", "/projects/3/merge_requests/7/notes"] = {}
        put_comment(gitlab, 7, BODY)
        assert host.asked("POST") == [("/projects/3/merge_requests/7/notes", {"body": BODY})]

    @pytest.fixture
    def pipelines(self, host):
        """Puts pipelines of the merge request on the host, the newest last, each with a separate plan."""

        def put(*pipelines):
            host.answers["GET", "/projects/3/merge_requests/7/versions"] = [VERSION]
            host.answers["GET", "/projects/3/merge_requests/7/pipelines"] = [
                {"id": 50 + n} for n in range(len(pipelines))
            ]
            for n, differs in enumerate(pipelines):
                known = {
                    "source": "merge_request_event",
                    "project_id": 3,
                    "ref": "refs/merge-requests/7/head",
                    "sha": HEAD,
                    "created_at": "2026-03-31T12:00:00.000Z",
                }
                host.answers["GET", f"/projects/3/pipelines/{50 + n}"] = {**known, **differs}
                jobs = [
                    {"id": 500 + n, "name": "plan", "artifacts": [{}]},
                    {"id": 600 + n, "name": "evil", "artifacts": [{}]},
                    {"id": 700 + n, "name": "plan", "artifacts": []},
                ]
                jobs = [{**job, "finished_at": "2026-03-31T12:30:00.000Z"} for job in jobs]
                host.answers["GET", f"/projects/3/pipelines/{50 + n}/jobs"] = jobs
                host.answers["GET", f"/projects/3/jobs/{500 + n}/artifacts/lakeplan-results/plan.json"] = {
                    "n": n
                }

        return put

    def found(self, gitlab, tmp_path):
        (request,) = gitlab.merged()
        (tmp_path / "found").mkdir()
        try:
            return json.loads(gitlab.fetch_plan(request, tmp_path / "found").read_text())["n"]
        except NoPlan:
            return None

    OTHERS = (
        {"source": "push"},
        {"source": "web"},
        {"source": "parent_pipeline"},
        {"project_id": 4},
        {"ref": "refs/merge-requests/70/head"},
        {"ref": "main"},
        {"sha": "d4" * 20},
    )

    def it_finds_the_newest_plan_of_the_merge_requests_own_pipelines(self, host, gitlab, pipelines, tmp_path):
        host.answers["GET", f"/projects/3/repository/commits/{'d4' * 20}"] = {"parent_ids": ["e5" * 20]}
        pipelines({}, {}, *self.OTHERS)
        assert self.found(gitlab, tmp_path) == 1
        assert not (tmp_path / "found/plan.json.objects").exists()

    @pytest.mark.parametrize("other", OTHERS, ids=str)
    def it_takes_no_plan_of_another_pipeline(self, host, gitlab, pipelines, tmp_path, other):
        host.answers["GET", f"/projects/3/repository/commits/{'d4' * 20}"] = {"parent_ids": ["e5" * 20]}
        pipelines(other)
        assert self.found(gitlab, tmp_path) is None

    @pytest.mark.parametrize(("base", "expected"), [("e5" * 20, 0), ("f6" * 20, None)])
    def it_takes_a_merged_results_pipeline_of_the_target_branch(
        self, host, gitlab, pipelines, tmp_path, base, expected
    ):
        """The other parent has to be on the branch that was merged into."""
        merge = "d4" * 20
        host.answers["GET", f"/projects/3/repository/commits/{merge}"] = {"parent_ids": ["e5" * 20, HEAD]}
        host.answers["GET", "/projects/3/repository/merge_base"] = {"id": base}
        pipelines({"sha": merge, "ref": "refs/merge-requests/7/merge"})
        assert self.found(gitlab, tmp_path) == expected

    @pytest.mark.parametrize(("at", "expected"), [("11:59:59.999", 0), ("12:00:00.001", None)])
    @pytest.mark.parametrize("between", [(), ({"id": 2, "head_commit_sha": "c3" * 20},)])
    def it_takes_no_pipeline_from_before_the_target_branch_was_changed(
        self, host, gitlab, pipelines, tmp_path, at, expected, between
    ):
        """Its plan was compared with the other branch, which may have had weaker safety settings."""
        pipelines({})
        now = {**VERSION, "id": 3, "base_commit_sha": "b1" * 20, "created_at": f"2026-03-31T{at}Z"}
        later = {**now, "id": 4, "created_at": "2026-03-31T13:00:00.000Z"}
        listed = [later, now, *({**VERSION, **one} for one in between), VERSION]
        host.answers["GET", "/projects/3/merge_requests/7/versions"] = listed
        assert self.found(gitlab, tmp_path) == expected

    @pytest.mark.parametrize("versions", [[], [{**VERSION, "head_commit_sha": "c3" * 20}]])
    def it_takes_no_plan_of_a_commit_that_was_compared_with_nothing(
        self, host, gitlab, pipelines, tmp_path, versions
    ):
        pipelines({})
        host.answers["GET", "/projects/3/merge_requests/7/versions"] = versions
        assert self.found(gitlab, tmp_path) is None

    @pytest.mark.parametrize("finished", [None, "2026-03-31T13:00:00.001Z"])
    def it_takes_no_plan_that_was_made_after_the_merge(self, host, gitlab, pipelines, tmp_path, finished):
        pipelines({})
        again = {"id": 800, "name": "plan", "artifacts": [{}], "finished_at": finished}
        jobs = host.answers["GET", "/projects/3/pipelines/50/jobs"]
        host.answers["GET", "/projects/3/pipelines/50/jobs"] = [again, *jobs]
        assert self.found(gitlab, tmp_path) == 0
        # Without this, GitLab lists only the new job.
        (asked,) = [path for _, path, *_ in host.calls if "/pipelines/50/jobs" in path]
        assert "include_retried=true" in asked

    def it_fetches_the_objects_beside_the_plan(self, host, gitlab, pipelines, tmp_path):
        pipelines({})
        host.answers["GET", "/projects/3/jobs/500/artifacts/lakeplan-results/plan.json.objects"] = b"records"
        assert self.found(gitlab, tmp_path) == 0
        assert (tmp_path / "found/plan.json.objects").read_bytes() == b"records"

    @pytest.mark.parametrize(
        "change", [{"target_branch": "evil"}, {"source_project_id": 4}, {"target_project_id": 4}]
    )
    def it_applies_nothing_of_a_fork_or_into_another_branch(self, host, gitlab, change):
        path = f"/projects/3/repository/commits/{MERGE}/merge_requests"
        assert [request.number for request in gitlab.merged()] == [7]
        host.answers["GET", path] = [{**host.answers["GET", path][0], **change}]
        assert gitlab.merged() == []

    def it_applies_nothing_for_a_push_that_was_no_merge_request(self, host, gitlab):
        host.answers["GET", f"/projects/3/repository/commits/{MERGE}/merge_requests"] = []
        assert gitlab.merged() == []

    def it_gives_no_token_to_where_a_redirect_leads(self, host, gitlab, pipelines, tmp_path):
        pipelines({})
        kept = "/projects/3/jobs/500/artifacts/lakeplan-results/plan.json"
        host.answers["GET", kept] = Elsewhere(f"{host.url}/store")
        host.answers["GET", "/store"] = {"n": 4}
        assert self.found(gitlab, tmp_path) == 4
        assert "review" in str(host.calls[0][2])
        (to_store,) = [headers for _, path, headers, _ in host.calls if path == "/store"]
        assert "review" not in str(to_store)
