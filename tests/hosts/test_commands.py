"""Commands in comments: who may give them, what for, and that a comment is a stranger's text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeplan.cli.commands.ci import Pipeline
from lakeplan.hosts.github import (
    APPROVE,
    PLAN,
    GitHub,
    NotAllowed,
    asked_in,
    check_member,
    check_merge,
    plan_again,
)
from lakeplan.hosts.protocols import HostError
from lakeplan.lakefs.transport import RetryPolicy
from tests.examples.fake_github import FakeGitHub, serving

HEAD, MERGE = "a1" * 20, "b2" * 20
MAIN, COMMENTS = ".github/workflows/lakeplan.yml", ".github/workflows/lakeplan-comments.yml"
MARK = "20260331T120000-1a2b3c4d"
TEAM = "org/data-platform"


def event(body: str, login: str = "carl", at: str = "2026-03-31T14:00:00Z", **issue: Any) -> dict[str, Any]:
    return {
        "action": "created",
        "comment": {"id": 99, "body": body, "user": {"login": login, "type": "User"}, "created_at": at},
        "issue": {"number": 7, "pull_request": {}, **issue} | {"pull_request": {"url": "x"}},
    }


@pytest.mark.parametrize(
    "pull", [{"number": 7}, {"number": 7, "head": {"sha": HEAD}}, {"head": []}, [1], "x"]
)
def it_reads_no_fork_from_a_damaged_event(pull: object, tmp_path: Path) -> None:
    """Such an event ended ``ci plan`` with an unexpected KeyError."""
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": pull}))
    environ = {
        "GITHUB_TOKEN": "x",
        "GITHUB_REPOSITORY": "org/trees",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
    }
    with pytest.raises(HostError, match="unexpected response"):
        GitHub.of(environ).is_fork()


@pytest.mark.parametrize("wrong", [{"comment": [1]}, {"issue": "x"}, {}])
def it_reads_no_command_from_a_damaged_event(wrong: Any) -> None:
    """It ended ``ci answer`` with an unexpected AttributeError or KeyError."""
    whole = event("/lakeplan plan")
    del whole["comment"]["created_at"]
    with pytest.raises(HostError, match="unexpected response"):
        asked_in({**whole, **wrong})


class DescribeReading:
    @pytest.mark.parametrize(
        ("body", "name", "mark"),
        [
            ("/lakeplan plan", PLAN, ""),
            ("/lakeplan plan  \n", PLAN, ""),
            ("/lakeplan plan\r\nthank you", PLAN, ""),
            (f"/lakeplan approve {MARK}", APPROVE, MARK),
            (f"/lakeplan  approve  {MARK}\nlooks right", APPROVE, MARK),
        ],
    )
    def it_finds_a_command_on_the_first_line(self, body, name, mark):
        found = asked_in(event(body))
        assert found is not None
        assert (found.name, found.mark, found.login, found.number) == (name, mark, "carl", 7)

    @pytest.mark.parametrize(
        "body",
        [
            "",
            "plan",
            "please /lakeplan plan",
            "> /lakeplan plan",
            "/lakeplan",
            "/lakeplan planet",
            f"/lakeplan plan {MARK}",
            "/lakeplan approve",
            "/lakeplan approve $(curl evil)",
            "/lakeplan approve --allow=x",
            "/lakeplan approve --help",
            "/lakeplan approve ../../state",
            f"/lakeplan approve {MARK} && rm -rf /",
            f"/lakeplan approve {'9' * 65}",
            "/lakeplan approve `id`",
            "/lakeplan plan; id",
            "/lakeplan\nplan",
            "/lakeplan plan\x00",
            None,
            7,
            {"evil": 1},
        ],
    )
    def it_takes_nothing_else_for_one(self, body):
        found = asked_in(event(body))
        assert found is None or found.mark.startswith("--") is False
        assert found is None

    def it_reads_new_comments_of_people_on_pull_requests_only(self):
        whole = event("/lakeplan plan")
        assert asked_in(whole)
        assert asked_in({**whole, "action": "edited"}) is None
        assert asked_in({**whole, "issue": {"number": 7}}) is None
        bot = {**whole["comment"], "user": {"login": "x[bot]", "type": "Bot"}}
        assert asked_in({**whole, "comment": bot}) is None
        assert asked_in({}) is None


@pytest.fixture
def fake() -> Iterator[FakeGitHub]:
    with serving(FakeGitHub()) as made:
        made.people["carl"] = "write"
        made.teams[TEAM] = {"carl", "ann"}
        made.open_pull(7, HEAD, "change", author="ann")
        yield made


@pytest.fixture
def github(fake: FakeGitHub, tmp_path: Path) -> GitHub:
    (tmp_path / "event.json").write_text(json.dumps({}))
    environ = {
        "GITHUB_API_URL": fake.url,
        "GITHUB_REPOSITORY": "org/trees",
        "GITHUB_TOKEN": fake.token({"actions": "write", "contents": "read", "pull-requests": "write"}),
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_WORKFLOW_REF": f"org/trees/{COMMENTS}@refs/heads/main",
    }
    return GitHub.of(environ, RetryPolicy(tries=1))


def ask(body: str, **more: Any) -> Any:
    found = asked_in(event(body, **more))
    assert found is not None
    return found


class DescribePlanAgain:
    def it_starts_the_run_again_that_planned_the_last_commit(self, fake, github):
        old = fake.begin_run(7, path=MAIN, event="pull_request", created="2026-03-31T11:00:00Z")
        newest = fake.begin_run(7, path=MAIN, event="pull_request")
        other = fake.begin_run(7, path=".github/workflows/evil.yml", event="pull_request")
        assert HEAD in plan_again(github, ask("/lakeplan plan"), MAIN)
        assert [fake.runs[n]["attempts"] for n in (old, newest, other)] == [1, 2, 1]

    def refused(self, github, **more):
        with pytest.raises(NotAllowed) as failed:
            plan_again(github, ask("/lakeplan plan", **more), MAIN)
        return failed.value

    @pytest.mark.parametrize("permission", ["read", "none", "triage"])
    def it_is_for_people_who_may_write_and_tells_others_nothing(self, fake, github, permission):
        fake.begin_run(7, path=MAIN, event="pull_request")
        fake.people["carl"] = permission
        error = self.refused(github)
        assert error.silent
        assert "write" in str(error)
        assert fake.runs[1]["attempts"] == 1

    def it_plans_the_commit_that_the_person_saw(self, fake, github):
        """A push after the comment: when a commit was made says nothing, its author writes that."""
        fake.begin_run(7, path=MAIN, event="pull_request", created="2026-03-31T15:00:00Z")
        assert "new commit since the comment" in str(self.refused(github))
        assert "new commit" not in plan_again(github, ask("/lakeplan plan", at="2026-03-31T15:00:00Z"), MAIN)

    def it_has_nothing_to_start_for_a_commit_that_was_not_planned(self, fake, github):
        fake.begin_run(7, path=MAIN, event="pull_request")
        fake.pulls[7]["head"] = {**fake.pulls[7]["head"], "sha": "c3" * 20}
        assert "has no plan for its last commit" in str(self.refused(github))

    def it_plans_no_fork_and_nothing_that_is_closed(self, fake, github):
        fake.begin_run(7, path=MAIN, event="pull_request")
        fake.pulls[7]["state"] = "closed"
        assert "not open" in str(self.refused(github))
        fake.open_pull(7, HEAD, "change", fork=True)
        assert "fork" in str(self.refused(github))

    def it_waits_for_a_plan_that_runs(self, fake, github):
        run = fake.begin_run(7, path=MAIN, event="pull_request")
        fake.runs[run]["status"] = "in_progress"
        assert "already running" in str(self.refused(github))


class DescribeApprovers:
    def member(self, github, login="carl", team=TEAM, token="team-token"):
        check_member(github, ask(f"/lakeplan approve {MARK}", login=login), team, token)

    def it_is_a_member_of_the_team_that_the_tree_names(self, github):
        self.member(github)

    def it_is_nobody_else_who_learns_nothing(self, github):
        with pytest.raises(NotAllowed) as failed:
            self.member(github, login="eve")
        assert failed.value.silent

    @pytest.mark.parametrize("login", ["../carl", "carl/..", "carl?x=1", "carl#"])
    def it_is_no_name_that_the_address_would_read_otherwise(self, github, login):
        with pytest.raises(NotAllowed):
            self.member(github, login=login)

    @pytest.mark.parametrize("team", [None, "", "data-platform", "org/a/b", "../org/x"])
    def it_needs_a_team_in_the_tree(self, github, team):
        with pytest.raises(NotAllowed, match="does not specify a team"):
            self.member(github, team=team)

    def it_needs_a_token_that_may_read_members(self, fake, github):
        with pytest.raises(NotAllowed, match="has no token to read the members"):
            self.member(github, token="")
        with pytest.raises(HostError) as failed:
            self.member(github, token="another-token")
        assert "another-token" not in repr(vars(failed.value))
        assert ("GET", "/orgs/org/teams/data-platform/memberships/carl", "another-token") in fake.calls


class DescribeTheMerge:
    def request(self, github, commit=MERGE, **more):
        return check_merge(github, ask(f"/lakeplan approve {MARK}", **more), commit)

    @pytest.fixture(autouse=True)
    def merged(self, fake):
        fake.merge(7, MERGE)

    def it_is_the_one_that_the_mark_was_made_of(self, github):
        assert self.request(github).number == 7

    @pytest.mark.parametrize("commit", [None, "", "c3" * 20, HEAD, "main", "../x"])
    def it_is_no_other_commit(self, github, commit):
        with pytest.raises(NotAllowed, match="not the merge of a pull request"):
            self.request(github, commit)

    def it_is_not_another_pull_request(self, fake, github):
        fake.open_pull(8, "d4" * 20, "other")
        fake.merge(8, "e5" * 20)
        with pytest.raises(NotAllowed, match="the merge of #8"):
            self.request(github, "e5" * 20)

    def it_is_approved_after_the_merge(self, github):
        with pytest.raises(NotAllowed, match="written before the pull request was merged"):
            self.request(github, at="2026-03-31T12:59:59Z")

    @pytest.mark.parametrize("login", ["ann", "ANN"])
    def it_is_not_approved_by_its_author(self, github, login):
        with pytest.raises(NotAllowed, match="author"):
            self.request(github, login=login)

    def it_is_not_approved_by_its_author_on_another_pull_request_of_the_same_commit(self, fake, github):
        """Whose author is a bot, and which was merged by pushing the commit to its base."""
        fake.open_pull(8, MERGE, "copy", author="github-actions[bot]")
        fake.merge(8, MERGE)
        with pytest.raises(NotAllowed, match="author"):
            self.request(github, login="ann", number=8)
        assert self.request(github, number=8).number == 8


class DescribeStatus:
    def it_is_that_of_all_pull_requests_of_a_push(self, fake, tmp_path, monkeypatch):
        """They share the commit: a later one that was applied hid that an earlier one was not. Other trees
        of the git repository have a status each. Files of the runner that cannot be written stop nothing."""
        for number, branch, commit in ((7, "change", MERGE), (8, "other", "c3" * 20)):
            fake.open_pull(number, HEAD, branch)
            fake.merge(number, commit)
        run = fake.begin_run(8, path=MAIN, event="pull_request")
        fake.upload(f"lakeplan-8-{HEAD}", {"plan.json": b"{}"}, run)
        (tmp_path / "event.json").write_text(json.dumps({"commits": [{"id": MERGE}, {"id": "c3" * 20}]}))
        rights = {"actions": "read", "pull-requests": "write", "statuses": "write"}
        environ = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": fake.url,
            "GITHUB_REPOSITORY": "org/trees",
            "GITHUB_TOKEN": fake.token(rights),
            "GITHUB_SHA": "c3" * 20,
            "GITHUB_REF_NAME": "main",
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_WORKFLOW_REF": f"org/trees/{MAIN}@refs/heads/main",
        }
        environ |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "none/x"), "GITHUB_OUTPUT": str(tmp_path)}
        monkeypatch.chdir(tmp_path)

        def applied(self, *_words: str, **_named: Any) -> int:
            (self.into / "8/result.md").write_text("<!-- lakeplan:apply:retention -->\n")
            (self.into / "8/apply.json").write_text('{"end": "applied"}')
            return 0

        monkeypatch.setattr(Pipeline, "_run", applied)
        assert Pipeline(Path("retention"), tmp_path / "into", environ=environ).apply() == 1
        (status,) = fake.statuses
        assert (status["state"], status["context"]) == ("failure", "lakeplan/apply")
        assert status["description"] == "#7 has no plan, #8 applied"
