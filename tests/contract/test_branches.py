"""Branches: lists, hidden ones, deletion, resets."""

from __future__ import annotations

import pytest


def names(repo, **query):
    return [b["id"] for b in repo.get("/branches", **query).json()["results"]]


class DescribeCreation:
    def it_answers_with_the_commit_id_as_text(self, repo):
        answer = repo.post("/branches", {"name": "dev", "source": "main"})
        assert (answer.status_code, answer.text.strip()) == (201, repo.head())
        assert answer.headers["Content-Type"].startswith("text/plain")

    @pytest.mark.parametrize("source", ["main~1", "main@", "v1", "prefix"])
    def it_takes_any_reference_as_source(self, repo, source):
        first = repo.head()
        second = repo.commit_object("main", "a")["id"]
        assert repo.post("/tags", {"id": "v1", "ref": first}).status_code == 201
        expected = {"main~1": first, "main@": second, "v1": first, "prefix": first}[source]
        assert repo.branch("dev", first[:16] if source == "prefix" else source) == expected

    def it_is_read_by_its_name_even_if_a_commit_id_begins_with_it(self, repo):
        """Servers before 0.87 read such a name as the commit."""
        first = repo.head()
        repo.commit_object("main", "a")
        for name in (first[:16], first[:6]):
            repo.branch(name)
            repo.upload(name, "b")
            assert repo.paths(name) == ["a", "b"]
            assert repo.get(f"/commits/{name}").json()["id"] == repo.head()

    def it_refuses_the_id_of_a_commit_as_a_name(self, repo):
        answer = repo.post("/branches", {"name": repo.head(), "source": "main"})
        message = {"message": f"commit ID {repo.head()}: conflict found"}
        assert (answer.status_code, answer.json()) == (409, message)

    def it_refuses_a_name_that_is_taken(self, repo):
        repo.branch("dev")
        answer = repo.post("/branches", {"name": "dev", "source": "main"})
        assert (answer.status_code, answer.json()) == (409, {"message": "branch already exists: not unique"})

    def it_refuses_the_name_of_a_tag(self, repo):
        assert repo.post("/tags", {"id": "v1", "ref": "main"}).status_code == 201
        assert repo.post("/branches", {"name": "v1", "source": "main"}).status_code == 409

    def it_refuses_a_source_that_is_not_there(self, repo):
        answer = repo.post("/branches", {"name": "dev", "source": "nothing"})
        assert (answer.status_code, answer.json()) == (
            404,
            {"message": "source reference 'nothing': not found"},
        )

    @pytest.mark.parametrize("name", ["no good", "-x", "a.b", "a/b", "é"])
    def it_refuses_names_out_of_other_letters(self, repo, name):
        assert repo.post("/branches", {"name": name, "source": "main"}).status_code == 400

    @pytest.mark.parametrize("name", ["__dunder", "1", "_x", "a-b"])
    def it_takes_odd_but_legal_names(self, repo, name):
        repo.branch(name)
        assert (
            repo.get(f"/branches/{name}").json() | {"id": name, "commit_id": repo.head()}
            == repo.get(f"/branches/{name}").json()
        )

    @pytest.mark.parametrize("body", [{"name": "dev"}, {"source": "main"}, {"name": 1, "source": "main"}])
    def it_refuses_a_body_that_is_not_whole(self, repo, body):
        assert repo.post("/branches", body).status_code == 400


class DescribeLists:
    def it_lists_by_name(self, repo):
        for name in ("b", "a", "__c"):
            repo.branch(name)
        assert names(repo) == ["__c", "a", "b", "main"]

    def it_hides_hidden_ones_unless_asked(self, repo):
        repo.branch("secret", hidden=True)
        assert names(repo) == ["main"]
        assert names(repo, show_hidden="true") == ["main", "secret"]

    def it_shows_no_flag_for_hidden_ones(self, repo):
        repo.branch("secret", hidden=True)
        shown = {b["id"]: b for b in repo.get("/branches", show_hidden="true").json()["results"]}
        assert shown["secret"].keys() == shown["main"].keys()
        assert repo.get("/branches/secret").status_code == 200

    def it_pages(self, repo):
        for name in ("a1", "a2", "a3"):
            repo.branch(name)
        page = repo.get("/branches", prefix="a", amount=2).json()
        assert [b["id"] for b in page["results"]] == ["a1", "a2"]
        assert page["pagination"]["has_more"] is True
        assert names(repo, prefix="a", amount=2, after=page["pagination"]["next_offset"]) == ["a3"]


class DescribeDeletion:
    def it_removes_the_branch(self, repo):
        repo.branch("dev")
        assert repo.delete("/branches/dev").status_code == 204
        answer = repo.get("/branches/dev")
        assert (answer.status_code, answer.json()) == (404, {"message": "branch not found"})

    def it_refuses_the_default_branch(self, repo):
        answer = repo.delete("/branches/main")
        assert (answer.status_code, answer.json()) == (
            403,
            {"message": "cannot delete repository default branch"},
        )

    def it_says_when_there_is_none(self, repo):
        answer = repo.delete("/branches/nothing")
        assert (answer.status_code, answer.json()) == (404, {"message": "branch not found"})

    def it_leaves_the_commits_in_the_repository(self, repo):
        repo.branch("dev")
        commit = repo.commit_object("dev", "a")["id"]
        assert repo.delete("/branches/dev").status_code == 204
        assert repo.get(f"/commits/{commit}").status_code == 200
        assert commit in {c.id for c in repo.refs().commits}
        assert commit not in {c["id"] for c in repo.log()}

    def it_takes_staged_data_with_it(self, repo):
        repo.branch("dev")
        repo.upload("dev", "a")
        assert repo.delete("/branches/dev").status_code == 204
        repo.branch("dev")
        assert repo.paths("dev") == []


class DescribeResets:
    def it_forgets_what_is_staged(self, repo):
        for path in ("a/1", "a/2", "b", "c"):
            repo.upload("main", path)
        assert repo.put("/branches/main", {"type": "object", "path": "c"}).status_code == 204
        assert repo.paths() == ["a/1", "a/2", "b"]
        assert repo.put("/branches/main", {"type": "common_prefix", "path": "a/"}).status_code == 204
        assert repo.paths() == ["b"]
        assert repo.put("/branches/main", {"type": "reset"}).status_code == 204
        assert repo.paths() == []

    def it_brings_a_deleted_object_back(self, repo):
        repo.commit_object("main", "a")
        assert repo.delete("/branches/main/objects", path="a").status_code == 204
        assert repo.paths() == []
        assert repo.put("/branches/main", {"type": "reset"}).status_code == 204
        assert repo.paths() == ["a"]

    def it_refuses_another_type(self, repo):
        assert repo.put("/branches/main", {"type": "all"}).status_code == 400

    def it_refuses_a_branch_that_is_not_there(self, repo):
        assert repo.put("/branches/nothing", {"type": "reset"}).status_code == 404


class DescribeHardResets:
    def it_moves_the_branch(self, repo):
        first = repo.commit_object("main", "a")["id"]
        repo.commit_object("main", "b")
        assert repo.put("/branches/main/hard_reset", ref="main~1").status_code == 204
        assert repo.head() == first
        assert repo.paths() == ["a"]

    def it_keeps_what_is_staged(self, repo):
        repo.commit_object("main", "a")
        repo.upload("main", "b")
        assert repo.put("/branches/main/hard_reset", ref="main~1").status_code == 204
        assert repo.paths() == ["b"]

    def it_needs_a_reference_that_is_there(self, repo):
        assert repo.put("/branches/main/hard_reset").status_code == 400
        assert repo.put("/branches/main/hard_reset", ref="nothing").status_code == 404
        assert repo.put("/branches/nothing/hard_reset", ref="main").status_code == 404
