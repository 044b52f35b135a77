"""Branch protection: the one setting with an ETag, and what it does not protect from."""

from __future__ import annotations

import pytest

PROTECTION = "/settings/branch_protection"
WRITE = {"message": "cannot write to protected branch"}


@pytest.fixture
def protected(repo, eventually):
    """main is protected; dev is not."""
    repo.commit_object("main", "a")
    repo.branch("dev")
    repo.commit_object("dev", "b")
    assert repo.put(PROTECTION, [{"pattern": "mai*"}]).status_code == 204
    # A reset of nothing shows whether the server has the new rules yet, and changes nothing meanwhile.
    eventually(lambda: repo.put("/branches/main", {"type": "reset"}).status_code == 403)
    return repo


class DescribeTheSetting:
    def it_is_an_empty_list_with_an_empty_etag_at_first(self, repo):
        answer = repo.get(PROTECTION)
        assert (answer.status_code, answer.json(), answer.headers["ETag"]) == (200, [], "")

    def it_changes_its_etag_with_its_content(self, repo):
        etags = []
        for pattern in ("main", "rel*", "main"):
            assert repo.put(PROTECTION, [{"pattern": pattern}]).status_code == 204
            answer = repo.get(PROTECTION)
            assert answer.json() == [{"pattern": pattern}]
            etags.append(answer.headers["ETag"])
        assert etags[0] == etags[2] != etags[1]

    def it_refuses_another_etag(self, repo):
        assert repo.put(PROTECTION, [{"pattern": "main"}]).status_code == 204
        etag = repo.get(PROTECTION).headers["ETag"]
        body = [{"pattern": "dev"}]
        answer = repo.call("PUT", PROTECTION, json=body, headers={"If-Match": "another"})
        assert (answer.status_code, answer.json()) == (412, {"message": "Precondition failed"})
        assert repo.get(PROTECTION).json() == [{"pattern": "main"}]
        assert repo.call("PUT", PROTECTION, json=body, headers={"If-Match": etag}).status_code == 204
        assert repo.get(PROTECTION).json() == body

    def it_refuses_an_empty_if_match(self, repo):
        answer = repo.call("PUT", PROTECTION, json=[], headers={"If-Match": ""})
        assert answer.status_code == 400

    @pytest.mark.parametrize("body", [{}, [{"pattern": ""}], [{}], ["main"], [{"pattern": 1}]])
    def it_takes_only_a_list_of_patterns(self, repo, body):
        assert repo.put(PROTECTION, body).status_code == 400

    def it_has_a_preflight(self, repo):
        assert repo.get("/branch_protection/set_allowed").status_code == 204


class DescribeAProtectedBranch:
    def it_refuses_writes_and_commits(self, protected):
        body = {"physical_address": "local:///x/y", "checksum": "z", "size_bytes": 1}
        own = protected.get("/refs/dev/objects/stat", path="b").json()["physical_address"]
        copy = protected.post("/branches/main/objects/copy", {"src_path": "a"}, dest_path="c")
        for answer in (
            protected.upload("main", "c"),
            protected.delete("/branches/main/objects", path="a"),
            protected.put("/branches/main", {"type": "reset"}),
            protected.put("/branches/main/objects", body | {"physical_address": own}, path="c"),
            copy,
        ):
            assert (answer.status_code, answer.json()) == (403, WRITE), answer.url
        commit = protected.post("/branches/main/commits", {"message": "x", "allow_empty": True})
        assert (commit.status_code, commit.json()) == (
            403,
            {"message": "cannot commit to protected branch"},
        )
        reset = protected.put("/branches/main/hard_reset", ref="main~1")
        assert (reset.status_code, reset.json()) == (403, {"message": "protected branch"})

    def it_reports_each_path_of_a_bulk_deletion(self, protected):
        answer = protected.post("/branches/main/objects/delete", {"paths": ["a"]})
        assert (answer.status_code, answer.json()) == (
            200,
            {"errors": [{**WRITE, "path": "a", "status_code": 403}]},
        )

    def it_takes_merges_reverts_and_cherry_picks(self, protected):
        assert protected.post("/refs/dev/merge/main", {}).status_code == 200
        body = {"ref": "main", "parent_number": 1}
        assert protected.post("/branches/main/revert", body).status_code == 204
        assert protected.post("/branches/main/cherry-pick", {"ref": "dev"}).status_code == 201

    def it_can_be_deleted(self, protected):
        protected.branch("maiden")
        assert protected.delete("/branches/maiden").status_code == 204
