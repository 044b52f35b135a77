"""Merges, reverts and cherry-picks."""

from __future__ import annotations

import pytest


@pytest.fixture
def diverged(repo):
    """main and dev changed different paths since they parted."""
    repo.commit_object("main", "base")
    repo.branch("dev")
    repo.commit_object("dev", "d")
    repo.commit_object("main", "m")
    return repo


@pytest.fixture
def conflicting(repo):
    """main and dev wrote the same path."""
    repo.branch("dev")
    repo.commit_object("dev", "x", b"theirs")
    repo.commit_object("main", "x", b"ours")
    return repo


class DescribeMerges:
    def it_brings_both_sides_together(self, diverged):
        heads = [diverged.head("main"), diverged.head("dev")]
        answer = diverged.post("/refs/dev/merge/main", {})
        assert (answer.status_code, answer.json()) == (200, {"reference": diverged.head()})
        commit = diverged.get("/commits/main").json()
        assert commit["parents"] == heads
        assert commit["message"] == "Merge 'dev' into 'main'"
        assert commit["metadata"] == {".lakefs.merge.strategy": "default"}
        assert diverged.paths() == ["base", "d", "m"]

    def it_takes_deletions_along(self, diverged):
        assert diverged.delete("/branches/dev/objects", path="base").status_code == 204
        diverged.commit("dev", "away")
        assert diverged.post("/refs/dev/merge/main", {}).status_code == 200
        assert diverged.paths() == ["d", "m"]

    def it_squashes_when_told_to(self, diverged):
        head = diverged.head()
        assert diverged.post("/refs/dev/merge/main", {"squash_merge": True}).status_code == 200
        assert diverged.get("/commits/main").json()["parents"] == [head]

    def it_reports_a_conflict_without_a_reference(self, conflicting):
        answer = conflicting.post("/refs/dev/merge/main", {})
        assert (answer.status_code, answer.json()) == (409, {"reference": ""})

    @pytest.mark.parametrize(("strategy", "data"), [("source-wins", b"theirs"), ("dest-wins", b"ours")])
    def it_lets_a_strategy_decide(self, conflicting, strategy, data):
        answer = conflicting.post("/refs/dev/merge/main", {"strategy": strategy})
        assert answer.status_code == 200
        assert conflicting.read("main", "x") == data
        metadata = conflicting.get("/commits/main").json()["metadata"]
        assert metadata == {".lakefs.merge.strategy": strategy}

    def it_refuses_another_strategy(self, conflicting):
        assert conflicting.post("/refs/dev/merge/main", {"strategy": "mine"}).status_code == 400

    def it_refuses_when_there_is_nothing_to_merge(self, repo):
        repo.branch("dev")
        answer = repo.post("/refs/dev/merge/main", {})
        assert (answer.status_code, answer.json()) == (400, {"message": "update branch main: no changes"})
        assert repo.post("/refs/dev/merge/main", {"allow_empty": True}).status_code == 200

    def it_refuses_a_branch_with_staged_changes(self, diverged):
        diverged.upload("main", "dirt")
        answer = diverged.post("/refs/dev/merge/main", {})
        assert (answer.status_code, answer.json()) == (400, {"message": "uncommitted changes (dirty branch)"})

    def it_says_what_is_not_there(self, repo):
        assert repo.post("/refs/nothing/merge/main", {}).status_code == 404
        assert repo.post("/refs/main/merge/nothing", {}).status_code == 404


class DescribeReverts:
    def it_takes_a_commit_back(self, repo):
        repo.commit_object("main", "a", b"1")
        repo.commit_object("main", "b", b"1")
        assert repo.post("/branches/main/revert", {"ref": "main~1", "parent_number": 0}).status_code == 204
        assert repo.paths() == ["b"]
        assert repo.get("/commits/main").json()["message"] == "Revert main~1"

    def it_wants_a_parent_number_for_a_merge(self, diverged):
        assert diverged.post("/refs/dev/merge/main", {}).status_code == 200
        answer = diverged.post("/branches/main/revert", {"ref": "main", "parent_number": 0})
        assert answer.status_code == 409
        assert diverged.post("/branches/main/revert", {"ref": "main", "parent_number": 1}).status_code == 204
        assert diverged.paths() == ["base", "m"]

    def it_refuses_a_parent_that_is_not_there(self, diverged):
        answer = diverged.post("/branches/main/revert", {"ref": "main", "parent_number": 3})
        assert answer.status_code == 400

    def it_reports_a_conflict(self, repo):
        repo.commit_object("main", "a", b"1")
        repo.commit_object("main", "a", b"2")
        answer = repo.post("/branches/main/revert", {"ref": "main~1", "parent_number": 0})
        assert answer.status_code == 409

    def it_says_what_is_not_there(self, repo):
        answer = repo.post("/branches/main/revert", {"ref": "nothing", "parent_number": 0})
        assert answer.status_code == 404

    def it_refuses_to_take_back_what_the_branch_does_not_have(self, diverged):
        head = diverged.head("main")
        answer = diverged.post("/branches/main/revert", {"ref": "dev", "parent_number": 0})
        assert (answer.status_code, answer.json()["message"]) == (400, "update branch: no changes")
        assert diverged.head("main") == head

    def it_knows_no_parent_of_the_first_commit(self, repo):
        first = repo.head()
        repo.commit_object("main", "a")
        answer = repo.post("/branches/main/revert", {"ref": first, "parent_number": 1})
        assert answer.status_code == 400
        assert "parent number" in answer.json()["message"]


class DescribeCherryPicks:
    def it_brings_one_commit(self, repo):
        repo.branch("dev")
        repo.commit_object("dev", "a")
        picked = repo.commit_object("dev", "b", b"2", metadata={"k": "v"})
        answer = repo.post("/branches/main/cherry-pick", {"ref": "dev"})
        assert answer.status_code == 201
        assert repo.paths() == ["b"]
        body = answer.json()
        assert body["message"] == picked["message"]
        assert body["metadata"] == {
            "k": "v",
            "cherry-pick-origin": picked["id"],
            "cherry-pick-committer": picked["committer"],
        }

    def it_leaves_its_source_as_it_is_in_branches_and_dumps(self, diverged):
        """By its id, real servers may not find it for a while (lakefs/api.md)."""
        picked = diverged.commit_object("dev", "b", metadata={"k": "v"})
        assert diverged.post("/branches/main/cherry-pick", {"ref": "dev"}).status_code == 201
        assert diverged.log("dev")[0]["id"] == picked["id"]
        assert diverged.paths("dev") == ["b", "base", "d"]
        dumped = {commit.id: commit for commit in diverged.refs().commits}
        assert dumped[picked["id"]].metadata == (("k", "v"),)

    def it_reports_a_conflict(self, conflicting):
        conflicting.commit_object("dev", "x", b"theirs again")
        assert conflicting.post("/branches/main/cherry-pick", {"ref": "dev"}).status_code == 409

    def it_knows_no_parent_of_the_first_commit(self, repo):
        answer = repo.post("/branches/main/cherry-pick", {"ref": repo.head()})
        assert answer.status_code == 400
        assert "parent number" in answer.json()["message"]

    def it_looks_for_the_parent_before_it_looks_at_the_branch(self, repo):
        repo.upload("main", "a")
        answer = repo.post("/branches/main/cherry-pick", {"ref": repo.head()})
        assert answer.status_code == 400
        assert "parent number" in answer.json()["message"]
