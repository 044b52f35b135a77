"""Addresses that clients bring: staged ones, and ones handed out for a direct upload."""

from __future__ import annotations

import pytest

from lakeplan.formats.xid import is_xid


class DescribeHandedOutAddresses:
    def it_is_under_data_with_a_signature_behind(self, repo):
        body = repo.get("/branches/main/staging/backing", path="a").json()
        partition, _, name = body["physical_address"].rpartition("/data/")[2].partition("/")
        object_id, comma, signature = name.partition(",")
        assert (is_xid(partition), is_xid(object_id), comma) == (True, True, ",")
        assert len(signature) == 43
        assert body["presigned_url"] is None

    def it_can_be_linked_more_than_once(self, repo):
        handed = repo.get("/branches/main/staging/backing", path="a").json()
        body = {"staging": handed, "checksum": "abc", "size_bytes": 3}
        for path in ("a", "b"):
            answer = repo.put("/branches/main/staging/backing", body, path=path)
            assert answer.status_code == 200
            assert answer.json()["physical_address"] == handed["physical_address"]
            assert (answer.json()["checksum"], answer.json()["size_bytes"]) == ("abc", 3)

    def it_is_linked_to_a_branch_that_is_there(self, repo):
        handed = repo.get("/branches/main/staging/backing", path="a").json()
        body = {"staging": handed, "checksum": "abc", "size_bytes": 3}
        assert repo.put("/branches/nothing/staging/backing", body, path="a").status_code == 404


class DescribeStagedAddresses:
    def it_takes_an_address_of_the_repository_itself(self, repo):
        own = repo.upload("main", "a", b"hello").json()
        body = {"physical_address": own["physical_address"], "checksum": "zzz", "size_bytes": 5}
        answer = repo.put("/branches/main/objects", body, path="b")
        assert (answer.status_code, answer.json()["checksum"]) == (201, "zzz")
        assert repo.paths() == ["a", "b"]

    def it_keeps_what_the_client_says_about_it(self, repo):
        own = repo.upload("main", "a", b"hello").json()
        body = {
            "physical_address": own["physical_address"],
            "checksum": "zzz",
            "size_bytes": 7,
            "mtime": 1_600_000_000,
            "content_type": "text/x",
            "metadata": {"k": "v"},
        }
        assert repo.put("/branches/main/objects", body, path="b").status_code == 201
        stat = repo.get("/refs/main/objects/stat", path="b").json()
        assert (stat["mtime"], stat["content_type"], stat["size_bytes"]) == (1_600_000_000, "text/x", 7)
        assert stat["metadata"] == {"k": "v"}

    def it_refuses_other_storage(self, repo):
        body = {"physical_address": "gs://elsewhere/x", "checksum": "zzz", "size_bytes": 1}
        answer = repo.put("/branches/main/objects", body, path="a")
        assert answer.status_code == 400
        assert "physical address is not valid for block adapter" in answer.json()["message"]

    @pytest.mark.parametrize("missing", ["physical_address", "checksum", "size_bytes"])
    def it_needs_address_checksum_and_size(self, repo, missing):
        body = {"physical_address": "local:///x/y", "checksum": "zzz", "size_bytes": 1}
        del body[missing]
        assert repo.put("/branches/main/objects", body, path="a").status_code == 400
