from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
import requests

from lakeplan.errors import NotFound, RepositoryNotFound, UnexpectedAnswer
from lakeplan.lakefs.answers import date_of
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials
from lakeplan.values.repository import Branch, Commit, Repository, Tag
from lakeplan.values.rules import GcRules
from tests.lakefs.conftest import Answer, FakeClock, Scripted

REPOSITORY = {
    "id": "repo",
    "creation_date": 1700000000,
    "default_branch": "main",
    "storage_namespace": "s3://bucket/repo",
}
COMMIT = {
    "id": "c2",
    "parents": ["c1", "c0"],
    "creation_date": 1647302400,
    "meta_range_id": "",
    "committer": "me",
    "message": "text",
    "metadata": None,
    "version": 0,
    "generation": 7,
}


def page(*results: object, more: str = "") -> Answer:
    pagination = {"has_more": bool(more), "next_offset": more, "results": len(results), "max_per_page": 1000}
    return Answer(200, {"pagination": pagination, "results": list(results)})


@pytest.fixture
def server(scripted: Scripted, credentials: Credentials, fake_clock: FakeClock) -> LakeFSServer:
    return LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock())


class DescribeRepositories:
    def it_reads_one(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [Answer(200, {**REPOSITORY, "storage_id": "eu", "read_only": True})]
        assert server.get_repository("repo") == Repository(
            "repo", "s3://bucket/repo", "main", 1700000000, "eu", True
        )

    def it_refuses_an_answer_about_another_one(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [Answer(200, {**REPOSITORY, "id": "other"})]
        with pytest.raises(UnexpectedAnswer, match="the response describes 'other', not '"):
            server.get_repository("repo")

    def it_reads_the_server_s_clock(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [Answer(200, REPOSITORY)]
        moment = server.server_time("repo")
        assert moment is not None
        assert abs(moment - datetime.now(timezone.utc)) < timedelta(minutes=1)

    def it_takes_storage_and_read_only_as_absent(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [page(REPOSITORY)]
        assert list(server.list_repositories("re")) == [
            Repository("repo", "s3://bucket/repo", "main", 1700000000)
        ]
        assert scripted.seen[0].query == {"prefix": "re", "amount": "1000"}

    @pytest.mark.parametrize("message", ["repository not found", "not found"])
    def it_says_that_one_is_missing(self, scripted: Scripted, server: LakeFSServer, message: str) -> None:
        scripted.script = [Answer(404, {"message": message})]
        with pytest.raises(RepositoryNotFound):
            server.get_repository("repo")


class DescribeRules:
    def it_reads_them_as_they_are(self, scripted: Scripted, server: LakeFSServer) -> None:
        stored = [
            {"branch_id": "no branch", "retention_days": -7},
            {"branch_id": "main", "retention_days": 0},
            {"branch_id": "main", "retention_days": 705032704},
        ]
        scripted.script = [Answer(200, {"default_retention_days": -1, "branches": stored})]
        assert server.get_gc_rules("repo") == GcRules(-1, {"no branch": -7, "main": 705032704})

    def it_takes_null_branches_for_none(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [Answer(200, {"default_retention_days": 21, "branches": None})]
        assert server.get_gc_rules("repo") == GcRules(21)

    def it_tells_unset_from_a_missing_repository(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [Answer(404, {"message": "not found"})]
        assert server.get_gc_rules("repo") is None
        scripted.script = [Answer(404, {"message": "repository not found"})]
        with pytest.raises(RepositoryNotFound):
            server.get_gc_rules("repo")
        scripted.script = [Answer(404, {"message": "something else not found"})]
        with pytest.raises(NotFound):
            server.get_gc_rules("repo")


class DescribeRefs:
    def it_asks_for_hidden_branches_page_by_page(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [
            page({"id": "__hidden", "commit_id": "c1"}, more="__hidden"),
            page({"id": "main", "commit_id": "c2"}),
        ]
        assert list(server.list_branches("repo", "")) == [Branch("__hidden", "c1"), Branch("main", "c2")]
        assert [seen.query for seen in scripted.seen] == [
            {"amount": "1000", "show_hidden": "true"},
            {"amount": "1000", "show_hidden": "true", "after": "__hidden"},
        ]

    def it_reads_tags(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [page({"id": "v1", "commit_id": "c1"})]
        assert list(server.list_tags("repo")) == [Tag("v1", "c1")]

    def it_reads_a_commit(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [Answer(200, COMMIT)]
        commit = server.get_commit("repo", "c2")
        assert commit == Commit("c2", 1647302400_000_000, "", ("c1", "c0"), 0, 7, "text", "me")
        assert commit.main_parent == "c0"

    def it_reads_a_log(self, scripted: Scripted, server: LakeFSServer) -> None:
        first = {**COMMIT, "id": "c0", "parents": None}
        scripted.script = [page(COMMIT, more="c2"), page(first)]
        assert [commit.id for commit in server.log_commits("repo", "main")] == ["c2", "c0"]
        assert scripted.seen[0].path == "/api/v1/repositories/repo/refs/main/commits"

    def it_does_not_guess_the_version_of_a_merge(self, scripted: Scripted, server: LakeFSServer) -> None:
        without = {key: value for key, value in COMMIT.items() if key != "version"}
        scripted.script = [Answer(200, without)]
        with pytest.raises(UnexpectedAnswer, match="no `version`"):
            server.get_commit("repo", "c2")
        scripted.script = [Answer(200, {**without, "parents": ["c1"]})]
        assert server.get_commit("repo", "c2").main_parent == "c1"


HTML = Answer(200, b"<!doctype html><title>lakeFS</title>", {"Content-Type": "text/html"})
READS: list[Callable[[LakeFSServer], object]] = [
    lambda s: s.identify(),
    lambda s: list(s.list_repositories()),
    lambda s: s.get_repository("repo"),
    lambda s: s.get_gc_rules("repo"),
    lambda s: list(s.list_branches("repo")),
    lambda s: list(s.list_tags("repo")),
    lambda s: s.get_commit("repo", "c"),
    lambda s: list(s.log_commits("repo", "main")),
    lambda s: s.dump_refs("repo"),
]


class DescribeOddAnswers:
    @pytest.mark.parametrize("read", READS)
    @pytest.mark.parametrize(
        "answer",
        [
            HTML,
            *(Answer(200, body) for body in (b"", b"{", [], "text", None, {}, {"id": 1}, {"results": []})),
        ],
    )
    def it_takes_no_answer_for_another(
        self, scripted: Scripted, server: LakeFSServer, read: Callable[[LakeFSServer], object], answer: Answer
    ) -> None:
        scripted.script = [answer]
        with pytest.raises(UnexpectedAnswer, match="cannot ") as caught:
            read(server)
        assert scripted.url in caught.value.where
        assert caught.value.status == 200

    @pytest.mark.parametrize(
        "rules",
        [
            {"default_retention_days": 7},
            {"default_retention_days": "7", "branches": []},
            {"default_retention_days": True, "branches": []},
            {"default_retention_days": 7.5, "branches": []},
            {"branches": []},
            {"default_retention_days": 7, "branches": {}},
            {"default_retention_days": 7, "branches": [None]},
            {"default_retention_days": 7, "branches": [{"branch_id": "main"}]},
            {"default_retention_days": 7, "branches": [{"branch_id": 1, "retention_days": 1}]},
        ],
    )
    def it_takes_no_other_shape_for_rules(
        self, scripted: Scripted, server: LakeFSServer, rules: object
    ) -> None:
        scripted.script = [Answer(200, rules)]
        with pytest.raises(UnexpectedAnswer, match="cannot read the GC rules"):
            server.get_gc_rules("repo")

    @pytest.mark.parametrize(
        "pagination",
        [
            {"has_more": False, "next_offset": "", "results": 2, "max_per_page": 1000},
            {"has_more": True, "next_offset": "", "results": 1, "max_per_page": 1000},
            {"has_more": "no", "next_offset": "", "results": 1, "max_per_page": 1000},
            {"next_offset": "", "results": 1},
            None,
        ],
    )
    def it_does_not_lose_branches_of_a_broken_listing(
        self, scripted: Scripted, server: LakeFSServer, pagination: object
    ) -> None:
        results = [{"id": "main", "commit_id": "c"}]
        scripted.script = [Answer(200, {"pagination": pagination, "results": results})]
        with pytest.raises(UnexpectedAnswer):
            list(server.list_branches("repo"))

    def it_does_not_turn_in_circles(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [page({"id": "main", "commit_id": "c"}, more="main")]
        with pytest.raises(UnexpectedAnswer, match="referred back to an earlier page"):
            list(server.list_branches("repo"))

    @pytest.mark.parametrize(
        "ref", [{"id": "main"}, {"id": "", "commit_id": "c"}, {"id": "b", "commit_id": ""}]
    )
    def it_takes_no_branch_without_a_commit(
        self, scripted: Scripted, server: LakeFSServer, ref: dict[str, str]
    ) -> None:
        scripted.script = [page(ref)]
        with pytest.raises(UnexpectedAnswer):
            list(server.list_branches("repo"))


@pytest.mark.parametrize(
    "date",
    [
        "",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2020 00:00:00 +99999999999999999",
        "Fri, 31 Dec 9999 23:59:59 -2300",
    ],
)
def it_knows_no_clock_by_a_date_that_cannot_be_held(date: str) -> None:
    response = requests.Response()
    response.headers["Date"] = date
    assert date_of(response) is None
