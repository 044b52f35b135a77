"""The story of a pull request, told by the workflows that ``lakeplan init --ci`` writes, on a repository, the
sandbox and the API of the host: every step of every job, in order."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from tests.examples.fake_github import FakeGitHub, serving
from tests.examples.hosted import GitHub, GitLab
from tests.sandboxes import start_sandbox

ROOT = Path(__file__).parents[2]
DAY = 86_400
MAIN, NIGHTLY = ".github/workflows/lakeplan.yml", ".github/workflows/lakeplan-nightly.yml"


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
    """The checkout, and who works in it. ``folder`` is the tree's in the repository."""

    def __init__(self, place: Path, runner: Any, handle: Any, *init: str, folder: str = ".") -> None:
        self.top, self.runner, self.folder = place / "checkout", runner, folder
        self.tree = self.top / folder
        shutil.copytree(ROOT / "examples/single", self.tree)
        (self.tree / "tests").mkdir()
        (self.tree / "tests/retention.yaml").write_text(POLICY_TEST)
        (self.top / ".gitignore").write_text(".lakeplan/\nlakeplan-results/\n*.xml\n")
        self.edit("https://lakefs.example.com", handle.endpoint_url)
        self.edit("max_expired_objects_percent: 30", "max_expired_objects_percent: 90")
        self.sh("git init -q -b main . && git config user.name a && git config user.email a@b.example")
        self.sh(f"lakeplan init -C {folder} {' '.join(init)}")
        self.sh("git add -A && git commit -qm base")

    def edit(self, old: str, new: str) -> None:
        path = self.tree / "lakeplan.yaml"
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
        shutil.rmtree(self.top.parent / "runner", ignore_errors=True)


class Org:
    """A repository on GitHub, its runner and its pull requests."""

    def __init__(self, work: Work, handle: Any, fake: FakeGitHub) -> None:
        self.work, self.fake = work, fake
        self.github = GitHub(work.top, work.runner, fake, {})
        self.github.vars = {"LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url}
        keys = {
            "LAKEPLAN_PROD_ACCESS_KEY_ID": handle.access_key_id,
            "LAKEPLAN_PROD_SECRET_ACCESS_KEY": handle.secret_access_key,
        }
        self.github.secrets = keys
        self.github.environments = {"production": {"secrets": keys}}
        self.merges: dict[int, str] = {}

    def propose(self, number: int, branch: str, **more: Any) -> Any:
        """A pull request of the edits; the host checks out its merge commit. Its plan has run."""
        head, merge = self.work.merge(branch)
        self.fake.open_pull(number, head, branch, **more)
        self.merges[number] = merge
        return self.plan(number)

    def plan(self, number: int) -> Any:
        pull = self.fake.pulls[number]
        self.github.run_id = self.fake.begin_run(number, path=MAIN, event="pull_request")
        return self.github.run(
            MAIN, "plan", "pull_request", {"pull_request": pull}, sha=self.merges[number], ref_name="7/merge"
        )

    def merge(self, number: int) -> Any:
        """The pull request is merged, and the job that applies it runs on another machine."""
        self.fake.merge(number, self.merges[number])
        self.work.fresh()
        return self.apply(number)

    def apply(self, *numbers: int) -> Any:
        commits = [{"id": self.merges[number]} for number in numbers]
        last = self.merges[numbers[-1]]
        return self.github.run(MAIN, "apply", "push", {"commits": commits}, sha=last, ref_name="main")

    def drift(self) -> Any:
        return self.github.run(NIGHTLY, "drift", "schedule", {}, sha="", ref_name="main")


@pytest.fixture
def fake() -> Iterator[FakeGitHub]:
    with serving(FakeGitHub()) as made:
        yield made


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[Any]:
    with start_sandbox(tmp_path / "sandbox") as made:
        yield made


@pytest.fixture
def lake(handle: Any) -> Lake:
    made = Lake(handle.endpoint_url)
    made.rules = {"*": 365, "main": 365}
    return made


@pytest.fixture
def org(tmp_path: Path, runner: Any, handle: Any, fake: FakeGitHub) -> Org:
    return Org(Work(tmp_path, runner, handle, "--ci github"), handle, fake)


def shorten(work: Work) -> None:
    work.edit("branch_id: main, retention_days: 28", "branch_id: main, retention_days: 30")


@pytest.mark.parametrize("folder", [".", pytest.param("retention", marks=pytest.mark.extended)])
def it_plans_on_the_pull_request_applies_on_merge_and_notices_a_hand_on_the_server(
    tmp_path, runner, handle, fake, lake, folder
):
    org = Org(Work(tmp_path, runner, handle, "--ci github", folder=folder), handle, fake)
    work, mine = org.work, f"lakeplan:plan:{folder}"
    assert {p.name for p in (work.top / ".github/workflows").iterdir()} >= {
        "lakeplan.yml",
        "lakeplan-nightly.yml",
    }

    # A branch edits the tree. The plan writes a comment, the plan file and the page; nothing on the server.
    shorten(work)
    work.edit("max_expired_bytes: 1TB", "max_expired_bytes: 2TB")
    planned = org.propose(7, "shorter")
    assert planned.code == 0, planned.output
    file = "lakeplan.yaml" if folder == "." else f"{folder}/lakeplan.yaml"
    assert f"::warning file={file},line=8,col=3,title=lakeplan%3A weakened::" in planned.output
    assert "a release keeps its data for a quarter" in planned.output
    (comment,) = fake.bodies(7)
    assert comment.startswith(f"<!-- {mine} -->")
    assert "Plan: 0 to add, 1 to change, 0 to clear" in comment
    assert "Impact: 2 objects, 4 B" in comment
    assert "\n[Report page](https://host.example/artifacts/lakeplan-page-7)\n" in comment
    assert "<!-- lakeplan:changes prod/analytics -->" in comment
    head, merge = fake.pulls[7]["head"]["sha"], org.merges[7]
    assert planned.kept == [f"lakeplan-7-{head}", "lakeplan-page-7"]
    assert planned.outputs["exit-code"] == "0"
    assert "1 to change" in planned.outputs["summary"]
    plan = json.loads(Path(planned.outputs["plan"]).read_text())
    assert (plan["tree_commit"], plan["base"]) == (merge, work.sh("git rev-parse HEAD^1"))
    (status,) = fake.statuses
    assert (status["commit"], status["state"], status["context"]) == (head, "success", "lakeplan")
    assert lake.rules == {"*": 365, "main": 365}

    # On merge that file is found by pull request and head commit, and applied; the result comes back.
    fake.reviews[7] = [
        {"user": {"login": login}, "state": state, "commit_id": commit}
        for login, state, commit in (
            ("ada", "APPROVED", head),
            ("grace", "APPROVED", head),
            ("grace", "COMMENTED", head),
            ("joan", "APPROVED", head),
            ("joan", "CHANGES_REQUESTED", head),
            ("early", "APPROVED", "0" * 40),
        )
    ]
    applied = org.merge(7)
    assert applied.code == 0, applied.output
    assert lake.rules == {"*": 21, "main": 30}
    record = json.loads(max((work.top / folder / ".lakeplan/history").iterdir()).read_text())
    assert record["ci"]["pull_request"].endswith("org/trees/pull/7")
    assert record["ci"]["merged_at"] == "2026-03-31T13:00:00Z"
    assert record["approver"] == {"by": "ada, grace"}
    assert record["tree_commit"] == merge
    result = fake.bodies(7)[1]
    assert result.startswith(f"<!-- lakeplan:apply:{folder} -->")
    assert ":white_check_mark: applied (1 applied)" in result
    assert fake.statuses[-1]["context"] == "lakeplan/apply"
    assert "applied" in fake.statuses[-1]["description"]
    assert "server-edited" not in org.drift().output

    # Somebody edits the server by hand, and drift says so.
    lake.rules = {"*": 7}
    drifted = org.drift()
    assert (drifted.code, drifted.outputs["exit-code"]) == (2, "2")
    assert "server-edited" in drifted.output

    # The old plan is stale. Run again it would delete what nobody reviewed, or nothing; here nothing.
    again = org.apply(7)
    assert again.code == 0, again.output
    assert len(fake.bodies(7)) == 2
    assert "Planned again, because the servers have changed since the review" in fake.bodies(7)[1]
    assert lake.rules == {"*": 21, "main": 30}
    assert fake.refused == []
    # No token of a job went to where artifacts are kept.
    assert not [call for call in fake.calls if call[1].startswith("/store/") and call[2]]


def it_comments_and_keeps_the_plan_also_when_a_gate_refuses(org, lake, fake):
    org.work.edit("max_expired_objects_percent: 90", "max_expired_objects_percent: 1")
    planned = org.propose(7, "strict")
    assert planned.code == 4, planned.output
    assert planned.outputs["exit-code"] == "4"
    assert "BLOCKED" in fake.bodies(7)[0]
    assert len(planned.kept) == 2
    assert fake.statuses[0]["state"] == "failure"


@pytest.mark.extended
def it_plans_what_a_merge_queue_tries_and_comments_nothing(org, lake, fake):
    shorten(org.work)
    org.propose(7, "shorter")
    before = fake.bodies(7)
    base = org.work.sh("git rev-parse HEAD^1")
    group = {"merge_group": {"base_sha": base, "head_sha": org.merges[7]}}
    queued = org.github.run(MAIN, "plan", "merge_group", group, sha=org.merges[7], ref_name="queue")
    assert queued.code == 0, queued.output
    assert json.loads(Path(queued.outputs["plan"]).read_text())["base"] == base
    assert (queued.kept, fake.bodies(7)) == ([], before)


def it_gives_a_fork_the_checks_alone_and_no_secret(org, lake, fake):
    shorten(org.work)
    org.github.secrets = {}
    planned = org.propose(7, "strange", fork=True)
    assert planned.code == 0, planned.output
    assert "ci run" in planned.ran[-1]
    assert len(planned.ran) == 2  # install and validate
    assert (fake.bodies(7), planned.kept) == ([], [])


@pytest.mark.extended
def it_applies_every_pull_request_that_a_queue_merged_at_once(org, lake, fake):
    shorten(org.work)
    org.propose(7, "shorter")
    org.propose(8, "empty")
    for number in (7, 8):
        fake.merge(number, org.merges[number])
    org.work.fresh()
    applied = org.apply(7, 8)
    assert applied.code == 0, applied.output
    assert lake.rules == {"*": 21, "main": 30}
    assert "applied (1 applied)" in fake.bodies(7)[1]
    assert applied.outputs["summary"].startswith("#7 applied, #8 ")


@pytest.mark.extended
def it_says_in_the_pull_request_that_nothing_was_applied_and_why(org, lake, fake):
    shorten(org.work)
    org.propose(7, "shorter")
    fake.artifacts[0]["expired"] = True
    applied = org.merge(7)
    assert applied.code == 1
    assert ":x: **not applied**" in fake.bodies(7)[1]
    assert "no plan of pull request 7" in fake.bodies(7)[1]
    assert lake.rules == {"*": 365, "main": 365}


@pytest.mark.extended
def it_asks_on_the_pull_request_when_more_would_be_deleted_than_was_reviewed(org, lake, fake):
    lake.rules = {"*": 45, "main": 45}
    shorten(org.work)
    org.propose(7, "shorter")
    lake.rules = {"*": 365, "main": 365}  # somebody keeps more, after the review
    applied = org.merge(7)
    assert applied.code == 5, applied.output
    assert ":no_entry: **stale**, nothing was written" in fake.bodies(7)[1]
    assert "not reviewed would expire" in fake.bodies(7)[1]
    assert "**What to do:** Open a new pull request" in fake.bodies(7)[1]
    assert fake.statuses[-1]["state"] == "failure"
    assert lake.rules == {"*": 365, "main": 365}


@pytest.mark.extended
def it_says_in_both_comments_that_two_pull_requests_change_the_same_repository(org, lake, fake):
    shorten(org.work)
    org.propose(7, "shorter")
    assert "Other open pull requests" not in fake.bodies(7)[0]
    org.propose(8, "also")
    assert "- #7 changes `prod/analytics`" in fake.bodies(8)[0]
    assert "- #8 changes `prod/analytics`" in fake.bodies(7)[0]
    # Once one is merged, the other's comment no longer names it, and nothing is there twice.
    org.merge(7)
    assert "Other open pull requests" not in fake.bodies(8)[0]
    assert fake.bodies(8)[0].count("lakeplan:changes") == 1


@pytest.mark.extended
def it_forgets_a_pull_request_that_was_closed_without_a_merge(org, lake, fake):
    shorten(org.work)
    org.propose(7, "shorter")
    org.propose(8, "also")
    org.propose(9, "too")
    assert "- #8 changes `prod/analytics`" in fake.bodies(7)[0]
    fake.pulls[8]["state"] = "closed"
    org.plan(7)
    assert "#8" not in fake.bodies(7)[0]
    assert "- #9 changes `prod/analytics`" in fake.bodies(7)[0]
    # The others' comments are put right by the same plan.
    assert "#8" not in fake.bodies(9)[0]
    fake.pulls[9]["state"] = "closed"
    org.plan(7)
    assert "Other open pull requests" not in fake.bodies(7)[0]


def comment(number: int, body: str, login: str = "carl") -> dict[str, Any]:
    person = {"login": login, "type": "User"}
    said = {"id": 99, "body": body, "user": person, "created_at": "2026-03-31T14:00:00Z"}
    issue = {"number": number, "pull_request": {"url": "https://host.example/7"}}
    return {"action": "created", "comment": said, "issue": issue}


COMMENTS = ".github/workflows/lakeplan-comments.yml"


def it_plans_again_for_a_comment_and_says_no_to_strangers(org, lake, fake):
    shorten(org.work)
    org.propose(7, "shorter")
    run = max(fake.runs)
    fake.people = {"carl": "write", "eve": "read"}
    org.work.fresh()

    def answer(body: str, login: str, job: str = "plan", now: str | None = None) -> Any:
        payload = comment(7, body, login)
        fake.said[99] = {**payload["comment"], "body": body if now is None else now}
        return org.github.run(COMMENTS, job, "issue_comment", payload, sha="", ref_name="main")

    planned = answer("/lakeplan plan", "carl")
    assert planned.code == 0, planned.output
    assert (fake.runs[run]["attempts"], fake.reactions[99]) == (2, ["+1"])
    stranger = answer("/lakeplan plan", "eve")
    assert (stranger.code, fake.runs[run]["attempts"], fake.reactions[99][-1]) == (4, 2, "-1")
    edited = answer("/lakeplan plan", "carl", now="/lakeplan plan later")
    assert (edited.code, fake.runs[run]["attempts"], len(fake.reactions[99])) == (4, 2, 2)
    hostile = answer("/lakeplan plan $(touch evil); `touch evil`", "carl")
    assert (hostile.code, fake.runs[run]["attempts"]) == (0, 2)
    assert not list(org.work.top.parent.rglob("evil"))
    assert answer("/lakeplan plan", "carl", job="approve").skipped
    assert len(fake.bodies(7)) == 1
    assert fake.refused == []


@pytest.mark.extended
def it_approves_a_mark_for_a_member_of_the_team_who_is_not_its_author(tmp_path, runner, handle, fake):
    lake = Lake(handle.endpoint_url)
    lake.rules = {"*": 30, "main": 30}
    work = Work(tmp_path, runner, handle, "--ci github")
    url = handle.endpoint_url
    work.edit(
        f"{{endpoint_url: {url}}}",
        f"{{endpoint_url: {url}, storages: {{'': {{type: local, path: ../sandbox}}}}}}",
    )
    override = "{repository: analytics, gate: min-age, reason: new data, expires: 2099-01-01}"
    work.edit("safety:", f"approvers: org/data-platform\noverrides: [{override}]\nsafety:")
    org = Org(work, handle, fake)
    shorten(work)
    org.propose(7, "shorter", author="ann")
    applied = org.merge(7)
    assert applied.code == 0, applied.output
    given = {**org.github.vars, **org.github.secrets}
    marked = work.runner.run(
        "lakeplan sweep mark --no-progress --min-age 1s --format json --out ../mark.json", work.top, **given
    )
    assert marked.returncode == 0, marked.stdout + marked.stderr
    mark = json.loads((work.top.parent / "mark.json").read_text())["marks"][0]["mark_id"]
    fake.teams["org/data-platform"] = {"ann", "carl"}
    org.github.environments["production"]["secrets"] |= {"LAKEPLAN_TEAM_TOKEN": fake.team_token}

    def approve(login: str, withdrawn: dict[int, Any] | None = None) -> Any:
        payload = comment(7, f"/lakeplan approve {mark}", login)
        if withdrawn is not None:
            fake.said = withdrawn
        else:
            fake.said[99] = payload["comment"]
        return org.github.run(
            COMMENTS, "approve", "issue_comment", payload, sha="", ref_name="main", actor=login
        )

    before = len(fake.bodies(7))
    author = approve("ann")
    assert author.code == 4, author.output
    assert "the author of the comment is also the author" in fake.bodies(7)[-1]
    stranger = approve("eve")
    assert (stranger.code, len(fake.bodies(7))) == (4, before + 1)
    for changed in ({}, {99: {"body": f"not yet: {mark}"}}):
        withdrawn = approve("carl", changed)
        assert (withdrawn.code, len(fake.bodies(7))) == (4, before + 1)
        assert "The comment was edited or deleted" in withdrawn.output
    approved = approve("carl")
    assert approved.code == 0, approved.output
    assert f"<code>{mark}</code> was approved by <code>carl</code>" in fake.bodies(7)[-1]
    assert work.sh("grep -rl 'comment 99 by carl on pull request 7' .lakeplan")


@pytest.mark.extended
@pytest.mark.parametrize("folder", [".", "retention"])
def it_tells_the_same_story_on_gitlab(tmp_path, runner, host, handle, lake, folder):
    work = Work(tmp_path, runner, handle, "--ci gitlab", folder=folder)
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
        ("GET", "/projects/3/merge_requests"): [],
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
                "merged_at": "2026-03-31T13:00:00.000Z",
            }
        ],
        ("GET", "/projects/3/merge_requests/7/approvals"): {"approved_by": [{"user": {"username": "ada"}}]},
        ("GET", "/projects/3/merge_requests/7/versions"): [
            {"id": 1, "head_commit_sha": head, "base_commit_sha": work.sh("git rev-parse HEAD^1")}
        ],
        ("GET", "/projects/3/merge_requests/7/pipelines"): [{"id": 50}],
        ("GET", "/projects/3/pipelines/50"): {
            "source": "merge_request_event",
            "project_id": 3,
            "ref": "refs/merge-requests/7/head",
            "sha": head,
        },
        ("GET", "/projects/3/pipelines/50/jobs"): [
            {"id": 5, "name": "plan", "artifacts": [{}], "finished_at": "2026-03-31T12:30:00.000Z"}
        ],
    }
    validated = gitlab.run("validate", **mine)
    assert validated.code == 0, validated.output
    assert (work.top / "tests.xml").exists()

    planned = gitlab.run("plan", **mine)
    assert planned.code == 0, planned.output
    assert planned.kept == ["lakeplan-results/plan.json", "lakeplan-results/plan.html"]
    (note,) = [json.loads(body)["body"] for method, path, _, body in host.calls if method == "POST"]
    assert "\n[Report page](https://host.example/jobs/5/artifacts/file/lakeplan-results/plan.html)\n" in note
    kept = (work.top / "lakeplan-results/plan.json").read_bytes()
    host.answers["GET", "/projects/3/jobs/5/artifacts/lakeplan-results/plan.json"] = kept

    work.fresh()
    applied = gitlab.run("apply")
    assert applied.code == 0, applied.output
    assert lake.rules == {"*": 21, "main": 30}
    assert gitlab.run("drift").code == 0
    lake.rules = {"*": 7}
    drifted = gitlab.run("drift")
    assert (drifted.code, "server-edited" in drifted.output) == (2, True)
    assert gitlab.run("apply").code == 0
    assert lake.rules == {"*": 21, "main": 30}
    results = [json.loads(body)["body"] for method, path, _, body in host.calls if method == "POST"][1:]
    assert ":white_check_mark: applied (1 applied)" in results[0]
    assert "Planned again" in results[1]


class DescribeFilesOfTheCheckout:
    """A change brings a plan and its own comment, and makes the plan fail before it writes any."""

    @pytest.fixture
    def secret(self, tmp_path):
        file = tmp_path / "environ"
        file.write_text("<!-- lakeplan:plan:. -->\nSECRET=1\n")
        return file

    @pytest.fixture
    def put(self, tmp_path, runner, secret):
        def work(init):
            server = SimpleNamespace(
                endpoint_url="http://127.0.0.1:9", access_key_id="a", secret_access_key="b"
            )
            found = Work(tmp_path, runner, server, init)
            results = found.top / "lakeplan-results"
            results.mkdir()
            (results / "plan.json").write_text("{}")
            (results / "plan.json.objects").write_text("forged")
            (results / "comment.md").symlink_to(secret)
            found.sh("git add -f lakeplan-results")
            return found, server

        return work

    @pytest.mark.extended
    def it_neither_keeps_nor_comments_them_on_github(self, put, fake):
        work, server = put("--ci github")
        work.edit("apiVersion: ", "apiVersion: x")
        org = Org(work, server, fake)
        planned = org.propose(7, "forged")
        assert "apiVersion" in planned.output
        assert (planned.code, planned.kept, fake.bodies(7)) == (1, [], [])
        assert not org.github.summary.exists()

    def it_applies_only_what_the_artifact_brings_on_github(self, put, fake):
        work, server = put("--ci github")
        org = Org(work, server, fake)
        head, org.merges[7] = work.merge("forged")
        fake.open_pull(7, head, "forged")
        run = fake.begin_run(7, path=MAIN, event="pull_request")
        files = {"junit.xml": b"<x/>", "lakeplan.yaml": b"nobody reviewed it", "../../evil": b"x"}
        fake.upload(f"lakeplan-7-{head}", files, run)
        reviewed = (work.top / "lakeplan.yaml").read_text()
        applied = org.merge(7)
        assert applied.code == 1
        assert "no plan of pull request 7" in applied.output
        assert (work.top / "lakeplan.yaml").read_text() == reviewed
        assert not list(work.top.parent.rglob("evil"))

    @pytest.mark.extended
    def it_neither_keeps_nor_comments_them_on_gitlab(self, put, host, runner):
        work, _ = put("--ci gitlab")
        work.edit("apiVersion: ", "apiVersion: x")
        work.merge("forged")
        given = {"LAKEPLAN_PROD_ENDPOINT_URL": "http://127.0.0.1:10", "CI_API_V4_URL": host.url}
        given |= {"LAKEPLAN_PROD_ACCESS_KEY_ID": "a", "LAKEPLAN_PROD_SECRET_ACCESS_KEY": "b"}
        given |= {"CI_PROJECT_ID": "3", "REVIEW_TOKEN": "review", "CI_MERGE_REQUEST_IID": "7"}
        base = work.sh("git rev-parse HEAD^1")
        planned = GitLab(work.top, runner, given).run("plan", CI_MERGE_REQUEST_TARGET_BRANCH_SHA=base)
        assert "apiVersion" in planned.output
        assert (planned.code, planned.kept, host.calls) == (1, [], [])
