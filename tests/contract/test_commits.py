"""Commits and the log."""

from __future__ import annotations

import pytest


class DescribeCommits:
    def it_answers_with_the_commit(self, repo):
        first = repo.head()
        repo.upload("main", "a")
        body = repo.commit("main", "hello", metadata={"k": "v"}, date=1_700_000_000)
        assert body["id"] == repo.head()
        assert body["parents"] == [first]
        assert body["message"] == "hello"
        assert body["metadata"] == {"k": "v"}
        assert body["creation_date"] == 1_700_000_000
        assert (body["generation"], body["version"]) == (2, 1)
        assert len(body["meta_range_id"]) == 64
        assert repo.get(f"/commits/{body['id']}").json() == body

    @pytest.mark.parametrize("date", [-5, 0, 2_000_000_000])
    def it_takes_any_date(self, repo, date):
        assert repo.commit("main", "odd", date=date, allow_empty=True)["creation_date"] == date

    @pytest.mark.parametrize("date", [1_795_837_059_571, -1_795_837_059_571])
    def it_takes_milliseconds_for_seconds(self, repo, date):
        """Nothing checks a date, so it may be in no year of a calendar."""
        made = repo.commit("main", "odd", date=date, allow_empty=True)
        assert made["creation_date"] == date
        assert made["id"] in [commit.id for commit in repo.refs().commits]

    def it_takes_an_empty_message(self, repo):
        assert repo.commit("main", "", allow_empty=True)["message"] == ""

    def it_refuses_an_empty_commit(self, repo):
        answer = repo.post("/branches/main/commits", {"message": "nothing"})
        assert (answer.status_code, answer.json()) == (400, {"message": "commit: no changes"})

    def it_makes_an_empty_commit_when_told_to(self, repo):
        first = repo.commit_object("main", "a")
        second = repo.commit("main", "nothing", allow_empty=True)
        assert second["meta_range_id"] == first["meta_range_id"]
        assert second["parents"] == [first["id"]]

    def it_sees_no_change_in_the_same_object_uploaded_again(self, repo):
        repo.commit_object("main", "a", b"same")
        repo.upload("main", "a", b"same")
        answer = repo.post("/branches/main/commits", {"message": "again"})
        assert (answer.status_code, answer.json()) == (400, {"message": "commit: no changes"})

    def it_needs_a_message_and_a_branch(self, repo):
        assert repo.post("/branches/main/commits", {}).status_code == 400
        assert repo.post("/branches/nothing/commits", {"message": "x"}).status_code == 404


class DescribeGettingACommit:
    def it_finds_it_by_prefix_branch_and_tag(self, repo):
        commit = repo.commit_object("main", "a")
        assert repo.post("/tags", {"id": "v1", "ref": "main"}).status_code == 201
        for ref in (commit["id"], commit["id"][:16], "main", "v1"):
            assert repo.get(f"/commits/{ref}").json()["id"] == commit["id"]

    def it_says_when_there_is_none(self, repo):
        answer = repo.get(f"/commits/{'0' * 64}")
        assert (answer.status_code, answer.json()) == (404, {"message": "commit not found"})


class DescribeTheLog:
    @pytest.fixture
    def merged(self, repo):
        """base ← a ← merge ← c on main, with b from dev merged in."""
        repo.commit_object("main", "a", date=1_600_000_000)
        repo.branch("dev")
        repo.commit_object("dev", "b", date=1_600_000_100)
        repo.commit_object("main", "c", date=1_600_000_200)
        assert repo.post("/refs/dev/merge/main", {"message": "merge"}).status_code == 200
        return repo

    def it_follows_every_parent_newest_first(self, merged):
        messages = [c["message"] for c in merged.log()]
        assert messages[0] == "merge"
        assert sorted(messages[1:]) == sorted(["adds c", "adds b", "adds a", "Repository created"])
        assert messages.index("adds c") < messages.index("adds b") < messages.index("adds a")

    def it_follows_first_parents_when_asked(self, merged):
        messages = [c["message"] for c in merged.log(first_parent="true")]
        assert messages == ["merge", "adds c", "adds a", "Repository created"]

    def it_pages(self, merged):
        page = merged.get("/refs/main/commits", amount=2).json()
        assert page["pagination"]["has_more"] is True
        assert page["pagination"]["next_offset"] == page["results"][-1]["id"]
        rest = merged.log(after=page["pagination"]["next_offset"])
        assert [c["id"] for c in page["results"] + rest] == [c["id"] for c in merged.log()]

    def it_stops_after_the_amount_with_limit(self, merged):
        page = merged.get("/refs/main/commits", amount=1, limit="true").json()
        assert len(page["results"]) == 1
        assert page["pagination"]["has_more"] is False

    def it_starts_anywhere(self, merged):
        assert next(c["message"] for c in merged.log("main~1")) == "adds c"
        assert next(c["message"] for c in merged.log("main^2")) == "adds b"

    @pytest.mark.parametrize(("ref", "status"), [("nothing", 404), ("main~9", 404), ("main^9", 400)])
    def it_says_when_there_is_no_such_reference(self, repo, ref, status):
        answer = repo.get(f"/refs/{ref}/commits")
        assert answer.status_code == status
        assert answer.json()["message"].startswith("ref: ")

    def it_does_not_list_what_no_reference_reaches(self, repo):
        repo.branch("dev")
        lost = repo.commit_object("dev", "a")["id"]
        assert repo.put("/branches/dev/hard_reset", ref="main").status_code == 204
        assert lost not in {c["id"] for c in repo.log("dev")}
