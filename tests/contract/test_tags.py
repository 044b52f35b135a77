"""Tags."""

from __future__ import annotations

import pytest


class DescribeTags:
    def it_names_a_commit(self, repo):
        commit = repo.commit_object("main", "a")["id"]
        answer = repo.post("/tags", {"id": "v1", "ref": "main"})
        assert (answer.status_code, answer.json()) == (201, {"id": "v1", "commit_id": commit})
        repo.commit_object("main", "b")
        assert repo.get("/tags/v1").json() == {"id": "v1", "commit_id": commit}
        assert repo.paths("v1") == ["a"]

    def it_lists_by_name_in_pages(self, repo):
        for name in ("v2", "v1", "w1"):
            assert repo.post("/tags", {"id": name, "ref": "main"}).status_code == 201
        page = repo.get("/tags", amount=2).json()
        assert [t["id"] for t in page["results"]] == ["v1", "v2"]
        rest = repo.get("/tags", amount=2, after=page["pagination"]["next_offset"]).json()
        assert [t["id"] for t in rest["results"]] == ["w1"]
        assert [t["id"] for t in repo.get("/tags", prefix="w").json()["results"]] == ["w1"]

    def it_refuses_a_name_that_is_taken(self, repo):
        assert repo.post("/tags", {"id": "v1", "ref": "main"}).status_code == 201
        answer = repo.post("/tags", {"id": "v1", "ref": "main"})
        assert (answer.status_code, answer.json()) == (409, {"message": "tag already exists: not unique"})
        assert repo.post("/tags", {"id": "main", "ref": "main"}).status_code == 409

    def it_refuses_what_is_not_there(self, repo):
        answer = repo.post("/tags", {"id": "v1", "ref": "nothing"})
        assert (answer.status_code, answer.json()) == (404, {"message": "not found"})
        for answer in (repo.get("/tags/v1"), repo.delete("/tags/v1")):
            assert (answer.status_code, answer.json()) == (404, {"message": "tag not found"})

    @pytest.mark.parametrize("name", ["a b", "a..b", "a/b", "a.lock", "@", "a@{b"])
    def it_refuses_names_that_git_would(self, repo, name):
        answer = repo.post("/tags", {"id": name, "ref": "main"})
        assert answer.status_code == 400
        assert answer.json()["message"] == "argument tagID: tag id: invalid value: validation error"

    @pytest.mark.parametrize("name", ["v1.0", "-a", "a@b", "a{"])
    def it_takes_odd_but_legal_names(self, repo, name):
        assert repo.post("/tags", {"id": name, "ref": "main"}).status_code == 201

    def it_is_deleted(self, repo):
        assert repo.post("/tags", {"id": "v1", "ref": "main"}).status_code == 201
        assert repo.delete("/tags/v1").status_code == 204
        assert repo.get("/tags/v1").status_code == 404
