"""Objects: upload, read, stat, copy, delete, lists."""

from __future__ import annotations

import hashlib

import pytest

OBJECT = {"path": "a/b.txt", "path_type": "object", "size_bytes": 5, "metadata": {}}


class DescribeUploads:
    def it_takes_raw_bytes(self, repo):
        answer = repo.upload("main", "a/b.txt", b"hello")
        assert answer.status_code == 201
        body = answer.json()
        assert body | OBJECT == body
        assert body["checksum"] == hashlib.md5(b"hello", usedforsecurity=False).hexdigest()
        assert body["content_type"] == "application/octet-stream"
        assert f"/data/{body['physical_address'].split('/data/')[1]}" in body["physical_address"]
        assert repo.read("main", "a/b.txt") == b"hello"

    def it_takes_a_form(self, repo):
        data = b"\r\n--multi\x00part\r\n"
        answer = repo.call(
            "POST", "/branches/main/objects", params={"path": "f"}, files={"content": ("name.bin", data)}
        )
        assert (answer.status_code, answer.json()["size_bytes"]) == (201, len(data))
        assert repo.read("main", "f") == data

    def it_keeps_content_type_and_metadata(self, repo):
        headers = {"Content-Type": "text/csv", "x-lakefs-meta-foo": "bar"}
        answer = repo.call("POST", "/branches/main/objects", params={"path": "a"}, data=b"1", headers=headers)
        assert (answer.json()["content_type"], answer.json()["metadata"]) == ("text/csv", {"foo": "bar"})

    def it_gives_every_upload_its_own_address(self, repo):
        first = repo.upload("main", "a", b"same").json()
        second = repo.upload("main", "a", b"same").json()
        assert first["checksum"] == second["checksum"]
        assert first["physical_address"] != second["physical_address"]

    def it_refuses_to_overwrite_with_if_none_match(self, repo):
        headers = {"Content-Type": "text/plain", "If-None-Match": "*"}

        def upload():
            return repo.call(
                "POST", "/branches/main/objects", params={"path": "a"}, data=b"1", headers=headers
            )

        assert upload().status_code == 201
        answer = upload()
        assert (answer.status_code, answer.json()) == (412, {"message": "path already exists"})

    def it_needs_a_branch_and_a_path(self, repo):
        answer = repo.upload("nothing", "a")
        assert (answer.status_code, answer.json()) == (404, {"message": "branch 'nothing' not found"})
        assert repo.upload("main", "").status_code == 400


class DescribeReads:
    def it_reads_staged_and_committed_objects(self, repo):
        repo.commit_object("main", "a", b"1")
        repo.upload("main", "a", b"2")
        assert repo.read("main", "a") == b"2"
        assert repo.read("main@", "a") == b"1"

    def it_tells_etag_and_size(self, repo):
        body = repo.upload("main", "a", b"hello").json()
        get = repo.get("/refs/main/objects", path="a")
        head = repo.call("HEAD", "/refs/main/objects", params={"path": "a"})
        for answer in (get, head):
            assert answer.status_code == 200
            assert answer.headers["ETag"] == f'"{body["checksum"]}"'
            assert answer.headers["Content-Length"] == "5"
            assert answer.headers["Content-Type"] == "application/octet-stream"

    def it_reads_a_part(self, repo):
        repo.upload("main", "a", b"hello")
        answer = repo.call("GET", "/refs/main/objects", params={"path": "a"}, headers={"Range": "bytes=1-2"})
        assert (answer.status_code, answer.content) == (206, b"el")
        assert answer.headers["Content-Range"] == "bytes 1-2/5"

    def it_stats(self, repo):
        body = repo.upload("main", "a/b.txt", b"hello").json()
        assert repo.get("/refs/main/objects/stat", path="a/b.txt").json() == body

    @pytest.mark.parametrize("ref", ["main", "nothing"])
    def it_says_when_there_is_none(self, repo, ref):
        for path in ("objects", "objects/stat"):
            answer = repo.get(f"/refs/{ref}/{path}", path="a")
            assert (answer.status_code, answer.json()) == (404, {"message": "not found"})
        assert repo.call("HEAD", f"/refs/{ref}/objects", params={"path": "a"}).status_code == 404


class DescribeDataThatIsGone:
    """A direct upload that was linked and never made looks exactly like a collected object."""

    @pytest.fixture
    def hollow(self, repo):
        handed = repo.get("/branches/main/staging/backing", path="a").json()
        body = {"staging": handed, "checksum": "abc", "size_bytes": 3}
        assert repo.put("/branches/main/staging/backing", body, path="a").status_code == 200
        return repo

    def it_answers_410_to_a_get_only(self, hollow):
        answer = hollow.get("/refs/main/objects", path="a")
        assert (answer.status_code, answer.json()) == (410, {"message": "No data"})
        assert hollow.call("HEAD", "/refs/main/objects", params={"path": "a"}).status_code == 200
        assert hollow.get("/refs/main/objects/stat", path="a").status_code == 200

    def it_does_so_for_committed_objects_too(self, hollow):
        hollow.commit()
        assert hollow.get("/refs/main@/objects", path="a").status_code == 410


class DescribeCopies:
    def it_copies_to_an_address_of_its_own(self, repo):
        source = repo.upload("main", "a", b"hello").json()
        answer = repo.post("/branches/main/objects/copy", {"src_path": "a"}, dest_path="b")
        assert answer.status_code == 201
        assert answer.json()["checksum"] == source["checksum"]
        assert answer.json()["physical_address"] != source["physical_address"]
        assert repo.read("main", "b") == b"hello"

    def it_copies_from_any_reference(self, repo):
        repo.commit_object("main", "a", b"old")
        repo.commit_object("main", "a", b"new")
        body = {"src_path": "a", "src_ref": "main~1"}
        assert repo.post("/branches/main/objects/copy", body, dest_path="b").status_code == 201
        assert repo.read("main", "b") == b"old"

    def it_says_what_is_not_there(self, repo):
        repo.upload("main", "a")
        copy = "/branches/main/objects/copy"
        assert repo.post(copy, {"src_path": "b"}, dest_path="c").status_code == 404
        assert repo.post(copy, {"src_path": "a", "src_ref": "x"}, dest_path="c").status_code == 404
        elsewhere = repo.post("/branches/nothing/objects/copy", {"src_path": "a"}, dest_path="c")
        assert elsewhere.status_code == 404

    def it_makes_no_shallow_copies(self, repo):
        repo.upload("main", "a")
        body = {"src_path": "a", "shallow": True}
        answer = repo.post("/branches/main/objects/copy", body, dest_path="b")
        assert answer.status_code == 501


class DescribeDeletions:
    def it_deletes_staged_and_committed_objects(self, repo):
        repo.commit_object("main", "a")
        repo.upload("main", "b")
        for path in ("a", "b"):
            assert repo.delete("/branches/main/objects", path=path).status_code == 204
        assert repo.paths() == []
        assert repo.paths("main@") == ["a"]

    def it_does_not_mind_when_there_is_none(self, repo):
        assert repo.delete("/branches/main/objects", path="a").status_code == 204

    def it_minds_a_missing_branch(self, repo):
        assert repo.delete("/branches/nothing/objects", path="a").status_code == 404

    def it_deletes_several(self, repo):
        repo.commit_object("main", "a")
        repo.upload("main", "b")
        answer = repo.post("/branches/main/objects/delete", {"paths": ["a", "b", "c"]})
        assert (answer.status_code, answer.json()) == (200, {"errors": []})
        assert repo.paths() == []

    def it_deletes_at_most_1000_at_once(self, repo):
        answer = repo.post("/branches/main/objects/delete", {"paths": [str(i) for i in range(1001)]})
        assert answer.status_code == 400


class DescribeLists:
    @pytest.fixture
    def filled(self, repo):
        for path in ("a/1", "a/2", "b", "c/d/e"):
            repo.upload("main", path)
        return repo

    def it_lists_by_path(self, filled):
        body = filled.get("/refs/main/objects/ls").json()
        assert [o["path"] for o in body["results"]] == ["a/1", "a/2", "b", "c/d/e"]
        assert body["results"][0].keys() >= {"checksum", "mtime", "physical_address", "size_bytes"}

    def it_folds_at_a_delimiter(self, filled):
        body = filled.get("/refs/main/objects/ls", delimiter="/").json()
        assert [(o["path"], o["path_type"]) for o in body["results"]] == [
            ("a/", "common_prefix"),
            ("b", "object"),
            ("c/", "common_prefix"),
        ]

    def it_pages_over_folded_names(self, filled):
        page = filled.get("/refs/main/objects/ls", delimiter="/", amount=1).json()
        assert page["pagination"]["next_offset"] == "a/"
        rest = filled.get("/refs/main/objects/ls", delimiter="/", after="a/").json()
        assert [o["path"] for o in rest["results"]] == ["b", "c/"]

    def it_filters_by_prefix(self, filled):
        body = filled.get("/refs/main/objects/ls", prefix="a/", after="a/1").json()
        assert [o["path"] for o in body["results"]] == ["a/2"]

    def it_says_when_there_is_no_such_reference(self, repo):
        answer = repo.get("/refs/nothing/objects/ls")
        assert (answer.status_code, answer.json()) == (404, {"message": "not found"})
