"""Differences: of what is staged, and between references."""

from __future__ import annotations

import pytest


def listed(answer):
    assert answer.status_code == 200, answer.text
    return [(d["path"], d["type"], d.get("size_bytes")) for d in answer.json()["results"]]


class DescribeUncommittedChanges:
    @pytest.fixture
    def changed(self, repo):
        for path in ("gone", "kept", "other"):
            repo.upload("main", path, b"1")
        repo.commit()
        assert repo.delete("/branches/main/objects", path="gone").status_code == 204
        repo.upload("main", "new", b"12")
        repo.upload("main", "other", b"123")
        return repo

    def it_lists_them_by_path(self, changed):
        assert listed(changed.get("/branches/main/diff")) == [
            ("gone", "removed", 0),
            ("new", "added", 2),
            ("other", "changed", 3),
        ]

    def it_tells_neither_address_nor_time(self, changed):
        for change in changed.get("/branches/main/diff").json()["results"]:
            assert change.keys() == {"path", "path_type", "size_bytes", "type"}

    def it_pages(self, changed):
        page = changed.get("/branches/main/diff", amount=1).json()
        assert page["pagination"] == {
            "has_more": True,
            "max_per_page": 1000,
            "next_offset": "gone",
            "results": 1,
        }
        assert [p for p, _, _ in listed(changed.get("/branches/main/diff", after="gone"))] == ["new", "other"]

    def it_does_not_list_the_same_object_uploaded_again(self, changed):
        changed.upload("main", "kept", b"1")
        assert "kept" not in [p for p, _, _ in listed(changed.get("/branches/main/diff"))]

    def it_folds_at_a_delimiter(self, repo):
        for path in ("a/1", "a/2", "b"):
            repo.upload("main", path)
        body = repo.get("/branches/main/diff", delimiter="/").json()
        assert [(d["path"], d["path_type"], d["type"]) for d in body["results"]] == [
            ("a/", "common_prefix", "prefix_changed"),
            ("b", "object", "added"),
        ]

    def it_needs_a_branch(self, repo):
        answer = repo.get("/branches/nothing/diff")
        assert (answer.status_code, answer.json()) == (404, {"message": "branch not found"})


class DescribeDifferencesOfReferences:
    @pytest.fixture
    def diverged(self, repo):
        repo.commit_object("main", "base", b"1")
        repo.branch("dev")
        repo.commit_object("dev", "d", b"12")
        repo.commit_object("main", "m", b"123")
        return repo

    def it_shows_what_the_right_side_brought(self, diverged):
        assert listed(diverged.get("/refs/main/diff/dev")) == [("d", "added", 2)]
        assert listed(diverged.get("/refs/dev/diff/main")) == [("m", "added", 3)]

    def it_compares_the_two_sides_when_asked(self, diverged):
        answer = diverged.get("/refs/main/diff/dev", type="two_dot")
        assert listed(answer) == [("d", "added", 2), ("m", "removed", 3)]

    def it_shows_conflicts(self, diverged):
        diverged.commit_object("main", "x", b"1")
        diverged.commit_object("dev", "x", b"22")
        assert ("x", "conflict", 2) in listed(diverged.get("/refs/main/diff/dev"))

    def it_shows_nothing_between_equals(self, repo):
        assert listed(repo.get("/refs/main/diff/main")) == []

    def it_refuses_what_is_not_there(self, repo):
        assert repo.get("/refs/main/diff/nothing").status_code == 404
        assert repo.get("/refs/main/diff/main", type="one_dot").status_code == 400
