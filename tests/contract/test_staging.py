"""Addresses that clients bring: staged ones, and ones handed out for a direct upload."""

from __future__ import annotations

import pytest

from lakeplan.formats.namespace import is_xid
from lakeplan.values.repository import AddressType

BACKING = "/branches/main/staging/backing"
OTHER_SPELLING = "this server's storage spells its own addresses in another way than its namespaces"


def handed_out(repo, branch, path):
    """What a link has to say, with an address of the server's in it."""
    staging = repo.get(f"/branches/{branch}/staging/backing", path=path).json()
    return {"staging": staging, "checksum": "abc", "size_bytes": 3}


def within(repo, address):
    """Whether the server takes the address for one in the namespace (a local disk's does not)."""
    return address.startswith(repo.get().json()["storage_namespace"] + "/")


class DescribeHandedOutAddresses:
    def it_is_under_data_with_a_signature_behind(self, repo):
        body = repo.get("/branches/main/staging/backing", path="a").json()
        partition, _, name = body["physical_address"].rpartition("/data/")[2].partition("/")
        object_id, comma, signature = name.partition(",")
        assert (is_xid(partition), is_xid(object_id), comma) == (True, True, ",")
        assert len(signature) == 43
        assert body["presigned_url"] is None

    def it_can_be_linked_more_than_once(self, repo):
        body = handed_out(repo, "main", "a")
        for _ in range(2):
            answer = repo.put(BACKING, body, path="a")
            assert answer.status_code == 200
            assert answer.json()["physical_address"] == body["staging"]["physical_address"]
            assert (answer.json()["checksum"], answer.json()["size_bytes"]) == ("abc", 3)

    def it_is_good_for_its_own_path_and_branch_only(self, repo):
        body = handed_out(repo, "main", "a")
        if not within(repo, body["staging"]["physical_address"]):
            pytest.skip(OTHER_SPELLING)
        repo.branch("dev")
        for branch, path in (("main", "b"), ("dev", "a")):
            answer = repo.put(f"/branches/{branch}/staging/backing", body, path=path)
            assert answer.status_code == 400
            assert answer.json() == {"message": "invalid address signature: invalid address"}
        assert repo.put(BACKING, body, path="a").status_code == 200

    def it_cannot_be_made_up(self, repo):
        own = repo.upload("main", "own").json()["physical_address"]
        if not within(repo, own):
            pytest.skip(OTHER_SPELLING)
        for address, message in (
            (own, "address is not signed: link address invalid"),
            (f"{own},abc", "invalid address signature: invalid address"),
        ):
            body = {"staging": {"physical_address": address}, "checksum": "abc", "size_bytes": 3}
            answer = repo.put(BACKING, body, path="a")
            assert (answer.status_code, answer.json()) == (400, {"message": message})

    def it_is_linked_to_a_branch_that_is_there(self, repo):
        body = handed_out(repo, "nothing", "a")
        assert repo.put("/branches/nothing/staging/backing", body, path="a").status_code == 404


class DescribeStagedAddresses:
    def it_takes_an_address_of_the_repository_itself(self, repo):
        own = repo.upload("main", "a", b"hello").json()
        body = {"physical_address": own["physical_address"], "checksum": "zzz", "size_bytes": 5}
        answer = repo.put("/branches/main/objects", body, path="b")
        assert (answer.status_code, answer.json()["checksum"]) == (201, "zzz")
        assert repo.paths() == ["a", "b"]

    def it_stores_it_as_relative(self, repo):
        own = repo.upload("main", "a", b"hello").json()["physical_address"]
        if not within(repo, own):
            pytest.skip(OTHER_SPELLING)
        body = {"physical_address": own, "checksum": "zzz", "size_bytes": 5}
        assert repo.put("/branches/main/objects", body, path="b").status_code == 201
        first, second = repo.entries(repo.commit()["meta_range_id"])
        assert (first.address_type, second.address_type) == (AddressType.RELATIVE, AddressType.RELATIVE)
        assert first.address == second.address

    def it_stores_an_address_elsewhere_as_it_is(self, repo):
        namespace = repo.get().json()["storage_namespace"]
        if not within(repo, repo.upload("main", "a").json()["physical_address"]):
            pytest.skip(OTHER_SPELLING)
        address = f"{namespace}-other/data/x"
        body = {"physical_address": address, "checksum": "zzz", "size_bytes": 5}
        assert repo.put("/branches/main/objects", body, path="b").status_code == 201
        entry = repo.entries(repo.commit()["meta_range_id"])[1]
        assert (entry.address_type, entry.address) == (AddressType.FULL, address)

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

    @pytest.mark.parametrize("mtime", [1_795_837_059_571, 1_795_837_059_571_000_000, -1_795_837_059_571])
    def it_takes_milliseconds_for_seconds(self, repo, mtime):
        address = repo.upload("main", "a", b"hello").json()["physical_address"]
        body = {"physical_address": address, "checksum": "zzz", "size_bytes": 5, "mtime": mtime}
        assert repo.put("/branches/main/objects", body, path="b").status_code == 201
        assert repo.get("/refs/main/objects/stat", path="b").json()["mtime"] == mtime
        assert [entry.path for entry in repo.entries(repo.commit()["meta_range_id"])] == ["a", "b"]

    def it_takes_a_negative_size(self, repo):
        address = repo.upload("main", "a", b"hello").json()["physical_address"]
        body = {"physical_address": address, "checksum": "zzz", "size_bytes": -1}
        assert repo.put("/branches/main/objects", body, path="b").status_code == 201
        assert [entry.size for entry in repo.entries(repo.commit()["meta_range_id"])] == [5, 0]

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
