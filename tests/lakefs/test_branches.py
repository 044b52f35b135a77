"""Branches over HTTP, against the sandbox."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
import requests

from lakeplan.errors import (
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    RepositoryNotFound,
    UnexpectedAnswer,
)
from lakeplan.lakefs.client import LakeFSBranchReader
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.lakefs.transport import RetryPolicy, of_repository
from lakeplan.lakefs.writers import LakeFSBranchWriter
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import ServerConfig
from tests.lakefs.conftest import Answer, Scripted
from tests.old_servers import resolve_like_old_servers
from tests.sandboxes import start_sandbox


class Lake:
    """A sandbox with one repository, and the two adapters under test."""

    def __init__(self, handle) -> None:
        self.handle = handle
        server = ServerConfig("prod", handle.endpoint_url)
        credentials = Credentials(Secret(handle.access_key_id), Secret(handle.secret_access_key))
        once = RetryPolicy(tries=1)
        self.reader = LakeFSBranchReader.connect(server, credentials, retries=once)
        self.writer = LakeFSBranchWriter.connect(server, credentials, retries=once)
        self.call("POST", "", json={"name": "analytics", "storage_namespace": "local://a"})

    def call(self, method: str, path: str, **more):
        root = f"{self.handle.endpoint_url}/api/v1/repositories"
        url = f"{root}/analytics{path}" if path else root
        auth = (self.handle.access_key_id, self.handle.secret_access_key)
        answer = requests.request(method, url, auth=auth, timeout=30, **more)
        answer.raise_for_status()
        return answer

    def upload(self, branch: str, path: str) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        self.call("POST", f"/branches/{branch}/objects", params={"path": path}, data=b"x", headers=headers)

    def head(self, branch: str = "main") -> str:
        found = self.reader.find_branch("analytics", branch)
        assert found is not None
        return found


@pytest.fixture
def lake(tmp_path):
    with start_sandbox(tmp_path) as handle:
        yield Lake(handle)


class DescribeReading:
    def it_lists_branches_with_the_hidden_flag_that_no_answer_carries(self, lake):
        head = lake.head()
        lake.writer.create_branch("analytics", LiveBranch("b", head, hidden=True))
        lake.writer.create_branch("analytics", LiveBranch("a", head))
        assert lake.reader.list_live("analytics") == [
            LiveBranch("a", head),
            LiveBranch("b", head, hidden=True),
            LiveBranch("main", head),
        ]

    def it_tells_a_missing_branch_from_a_missing_repository(self, lake):
        assert lake.reader.find_branch("analytics", "nope") is None
        with pytest.raises(RepositoryNotFound):
            lake.reader.find_branch("nothing", "nope")

    def it_refuses_an_answer_about_another_branch(self, scripted: Scripted, credentials: Credentials) -> None:
        reader = LakeFSBranchReader.connect(scripted.config(), credentials)
        scripted.script = [Answer(body={"id": "other", "commit_id": "c"})]
        with pytest.raises(UnexpectedAnswer, match="the response describes 'other', not '"):
            reader.find_branch("analytics", "main")

    def it_reads_what_is_staged_and_when_it_was_written(self, lake):
        assert not lake.reader.staged("analytics", "main").changes
        lake.upload("main", "a")
        staged = lake.reader.staged("analytics", "main")
        assert [(c.path, c.kind, c.size) for c in staged.changes] == [("a", "added", 1)]
        assert staged.more is False
        written = lake.reader.written_at("analytics", "main", "a")
        assert abs(written - datetime.now(timezone.utc)) < timedelta(minutes=1)
        assert lake.reader.written_at("analytics", "main", "b") is None

    def it_reads_no_commit_in_place_of_a_branch(self, lake, monkeypatch):
        """The path may be in that commit too, which is older. Names that begin no id or several are fine."""
        resolve_like_old_servers(monkeypatch)
        head = lake.reader.find_branch("analytics", "main")
        for name in (head[:6], "e" * 12, "fab_"):
            lake.call("POST", "/branches", json={"name": name, "source": "main"})
            lake.upload(name, "a")
        for name in ("e" * 12, "fab_"):
            assert lake.reader.written_at("analytics", name, "a") is not None
        with pytest.raises(
            UnexpectedAnswer, match=f"may read the branch name {head[:6]} as the id of commit {head[:16]}"
        ):
            lake.reader.written_at("analytics", head[:6], "a")

    def it_does_not_take_an_incomplete_page_for_nothing_staged(
        self, scripted: Scripted, credentials: Credentials
    ) -> None:
        reader = LakeFSBranchReader.connect(scripted.config(), credentials)
        scripted.script = [Answer(body={"results": None, "pagination": {"has_more": False, "results": 1}})]
        with pytest.raises(UnexpectedAnswer, match="0 results, but its pagination states 1"):
            reader.staged("analytics", "main")
        with pytest.raises(UnexpectedAnswer, match="0 results, but its pagination states 1"):
            reader.readable_sample("analytics", "c", 10)

    def it_says_when_more_is_staged_than_it_lists(self, lake, monkeypatch):
        monkeypatch.setattr("lakeplan.lakefs.client.PAGE", 1)
        lake.upload("main", "a")
        lake.upload("main", "b")
        staged = lake.reader.staged("analytics", "main")
        assert (len(staged.changes), staged.more) == (1, True)

    def it_lists_open_pull_requests(self, lake):
        lake.writer.create_branch("analytics", LiveBranch("a", lake.head()))
        body = {"source_branch": "a", "destination_branch": "main", "title": "t"}
        lake.call("POST", "/pulls", json=body)
        (pull,) = lake.reader.open_pulls("analytics")
        assert (pull.source_branch, pull.destination_branch, pull.title) == ("a", "main", "t")

    def it_lists_the_patterns_of_branch_protection_rules(self, lake):
        assert list(lake.reader.protected_patterns("analytics")) == []
        lake.call("PUT", "/settings/branch_protection", json=[{"pattern": "main"}, {"pattern": "rel*"}])
        assert sorted(lake.reader.protected_patterns("analytics")) == ["main", "rel*"]

    def it_does_not_take_a_missing_permission_for_no_protection(self, lake):
        lake.handle.faults.deny("GET .*/branch_protection")
        with pytest.raises(PermissionDenied, match="branches:GetBranchProtectionRules"):
            lake.reader.protected_patterns("analytics")

    def it_takes_a_server_from_before_pull_requests_to_have_none(self, lake):
        lake.handle.faults.deny("GET .*/pulls", status=404, message="invalid API endpoint")
        assert list(lake.reader.open_pulls("analytics")) == []

    def it_does_not_take_a_missing_permission_for_no_pull_requests(self, lake):
        lake.handle.faults.deny("GET .*/pulls")
        with pytest.raises(PermissionDenied, match="pr:ListPullRequests"):
            list(lake.reader.open_pulls("analytics"))

    def it_reads_objects_to_see_whether_they_are_there(self, lake):
        lake.upload("main", "a")
        lake.upload("main", "b")
        lake.call("POST", "/branches/main/commits", json={"message": "m"})
        head = lake.head()
        assert lake.reader.readable_sample("analytics", head, 10) == (2, 0)
        lake.handle.faults.fail_next(1, 410, "GET .*/objects$", "No data")
        assert lake.reader.readable_sample("analytics", head, 10) == (2, 1)

    def it_can_only_read(self, lake):
        with pytest.raises(AssertionError, match="may not send DELETE"):
            lake.reader._transport.request(
                of_repository("DELETE", "analytics", "branches", "a", operation="delete a branch")
            )


class DescribeWriting:
    def it_makes_and_deletes_branches(self, lake):
        lake.writer.create_branch("analytics", LiveBranch("a", lake.head()))
        assert lake.reader.find_branch("analytics", "a") == lake.head()
        lake.writer.delete_branch("analytics", "a")
        assert lake.reader.find_branch("analytics", "a") is None
        with pytest.raises(NotFound):
            lake.writer.delete_branch("analytics", "a")

    def it_cannot_delete_the_default_branch(self, lake):
        with pytest.raises(PermissionDenied):
            lake.writer.delete_branch("analytics", "main")

    def it_passes_a_hook_s_refusal_on(self, lake):
        lake.writer.create_branch("analytics", LiveBranch("a", lake.head()))
        lake.handle.faults.fail_next(1, 412, "DELETE", "pre-delete-branch hook aborted")
        with pytest.raises(PreconditionFailed, match="pre-delete-branch hook aborted"):
            lake.writer.delete_branch("analytics", "a")

    def it_can_do_nothing_else(self, lake):
        for method, path in (("PUT", "branches/a"), ("DELETE", "x"), ("GET", "branches/a")):
            with pytest.raises(AssertionError, match="may not"):
                lake.writer._transport.request(
                    of_repository(method, "analytics", *path.split("/"), operation="x")
                )

    def it_shows_no_credentials(self, lake):
        assert "secret" not in f"{lake.reader!r}{lake.writer!r}"


def it_refuses_an_answer_that_is_not_what_the_api_says(lake, monkeypatch):
    class Odd:
        status_code = 200
        headers = ()
        content = b'{"results": [{"path": "a"}], "pagination": {"has_more": false}}'

    monkeypatch.setattr(lake.reader._transport, "request", lambda *a, **k: Odd())
    with pytest.raises(UnexpectedAnswer, match="type"):
        lake.reader.staged("analytics", "main")


@pytest.mark.parametrize("seconds", [2**62, -(2**62), 253402300800])
def it_takes_no_moment_that_is_none(scripted, credentials, seconds) -> None:
    scripted.script = [Answer(200, {"mtime": seconds})]
    reader = LakeFSBranchReader.connect(ServerConfig("prod", scripted.url), credentials)
    with pytest.raises(UnexpectedAnswer, match=r"mtime is .*, which is not a valid time in seconds"):
        reader.written_at("analytics", "main", "x")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, {"message": "commit not found"}),
        Answer(200, {"id": "f" * 64, "creation_date": 1, "meta_range_id": "", "parents": []}),
    ],
    ids=["not found", "another"],
)
def it_makes_no_branch_at_a_commit_that_the_server_mistakes_for_another(
    answer: Answer, scripted: Scripted, credentials: Credentials
) -> None:
    """As after a cherry-pick. The server would create it at a commit that does not exist (lakefs/api.md)."""
    scripted.script = [answer]
    writer = LakeFSBranchWriter.connect(scripted.config(), credentials)
    with pytest.raises(NotFound, match="cannot read a commit") as raised:
        writer.create_branch("r", LiveBranch("again", "a" * 64))
    assert "after a cherry-pick" in raised.value.hint
    assert [seen.method for seen in scripted.seen] == ["GET"]
