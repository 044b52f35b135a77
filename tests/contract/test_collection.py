"""Preparation of a garbage collection."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest
import requests

from lakeplan.formats.collector import read_uncommitted
from lakeplan.formats.namespace import is_xid, time_of_descending
from tests.commits_csv import read_commits_csv

PREPARE = "/gc/prepare_commits"
NO_RULES = {"message": "get gc rules: not found"}


@pytest.fixture
def prepare(eventually):
    """Prepares by a task; the result."""

    def run(repo):
        task = repo.post(f"{PREPARE}/async")
        assert task.status_code == 202
        id = task.json()["id"]
        eventually(lambda: repo.get(f"{PREPARE}/status", id=id).json()["completed"])
        return repo.get(f"{PREPARE}/status", id=id).json()

    return run


class DescribeCommits:
    def it_needs_rules(self, repo, prepare):
        answer = repo.post(PREPARE)
        assert (answer.status_code, answer.json()) == (404, NO_RULES)
        assert prepare(repo)["error"] == NO_RULES

    def it_writes_the_active_commits(self, repo, server, prepare):
        commit = repo.commit_object("main", "a")
        repo.set_rules(1)
        result = prepare(repo)["result"]
        active = read_commits_csv(server.read_location(result["gc_commits_location"]))
        first = commit["parents"][0]
        assert active == {commit["id"]: commit["meta_range_id"], first: ""}

    def it_tells_where(self, repo, prepare):
        repo.set_rules(1)
        status = prepare(repo)
        result = status["result"]
        run = result["run_id"]
        assert is_xid(run)
        expected = f"/_lakefs/retention/gc/commits/run_id={run}/commits.csv"
        assert result["gc_commits_location"].endswith(expected)
        # With a slash behind it on an object store, without one on a local disk.
        addresses = result["gc_addresses_location"].rstrip("/")
        assert addresses.endswith("/_lakefs/retention/gc/addresses")
        assert {"task_id", "update_time", "completed"} <= status.keys()

    def it_answers_at_once_where_links_work(self, repo, server):
        repo.set_rules(1)
        answer = repo.post(PREPARE)
        if not server.presigns:
            assert answer.status_code == 400
            return
        assert answer.status_code == 201
        link = requests.get(answer.json()["gc_commits_presigned_url"], timeout=60)
        assert link.status_code == 200
        assert set(read_commits_csv(link.content)) == {repo.head()}

    def it_names_runs_so_that_the_newest_is_the_smallest(self, repo, prepare):
        repo.set_rules(1)
        first, second = (prepare(repo)["result"]["run_id"] for _ in range(2))
        assert time_of_descending(second) >= time_of_descending(first)
        assert second[:7] <= first[:7]

    def it_knows_no_other_task(self, repo):
        assert repo.get(f"{PREPARE}/status", id="nothing").status_code == 404
        assert repo.get(f"{PREPARE}/status").status_code == 400


class DescribeUncommittedAddresses:
    def prepare(self, repo, server):
        """(addresses, run id) over all files of a run."""
        token, run_id, location = "", "", ""
        while True:
            answer = repo.post("/gc/prepare_uncommited", {"continuation_token": token} if token else {})
            assert answer.status_code == 201, answer.text
            body = answer.json()
            assert run_id in ("", body["run_id"])
            run_id, location = body["run_id"], body["gc_uncommitted_location"] or location
            token = body.get("continuation_token", "")
            if not token:
                break
        files = server.read_location(location) if location else []
        assert isinstance(files, list)
        return sorted(a for f in files for a in read_uncommitted(f, name="run")), run_id

    def it_writes_no_file_for_nothing(self, repo):
        for parts in ({"json": {}}, {}):
            answer = repo.call("POST", "/gc/prepare_uncommited", **parts)
            assert answer.status_code == 201
            assert answer.json().keys() == {"gc_uncommitted_location", "run_id"}
            assert answer.json()["gc_uncommitted_location"] == ""
            assert is_xid(answer.json()["run_id"])

    def it_lists_relative_addresses_of_every_branch(self, repo, server):
        repo.branch("secret", hidden=True)
        addresses = []
        for branch in ("main", "secret"):
            body = repo.upload(branch, "a").json()
            addresses.append("data/" + body["physical_address"].split("/data/")[1])
        found, run_id = self.prepare(repo, server)
        assert found == sorted(addresses)
        assert is_xid(run_id)

    def it_tells_when_they_were_written(self, repo, server):
        stat = repo.upload("main", "a").json()
        location = repo.post("/gc/prepare_uncommited", {}).json()["gc_uncommitted_location"]
        (file,) = server.read_location(location)
        assert pq.read_table(io.BytesIO(file))["creation_date"].to_pylist() == [stat["mtime"]]

    def it_leaves_out_what_is_committed_dropped_or_overwritten(self, repo, server):
        repo.commit_object("main", "committed")
        repo.upload("main", "dropped")
        assert repo.put("/branches/main", {"type": "reset"}).status_code == 204
        repo.upload("main", "over", b"1")
        last = repo.upload("main", "over", b"2").json()["physical_address"]
        found, _ = self.prepare(repo, server)
        assert found == ["data/" + last.split("/data/")[1]]

    def it_omits_what_equals_the_head_although_the_branch_reads_it(self, repo, server):
        """Why a sweep lists branches before it collects what was never committed."""
        repo.commit_object("main", "a", b"same")
        (committed,) = repo.get("/refs/main/objects/ls").json()["results"]
        again = repo.upload("main", "a", b"same").json()["physical_address"]
        assert again != committed["physical_address"]
        assert self.prepare(repo, server)[0] == []
        (listed,) = repo.get("/refs/main/objects/ls").json()["results"]
        assert listed["physical_address"] == again

    def it_lists_nothing_for_a_deletion(self, repo, server):
        repo.commit_object("main", "a")
        assert repo.delete("/branches/main/objects", path="a").status_code == 204
        assert self.prepare(repo, server)[0] == []

    def it_lists_the_address_of_a_linked_upload(self, repo, server):
        handed = repo.get("/branches/main/staging/backing", path="a").json()
        if not handed["physical_address"].startswith(repo.get().json()["storage_namespace"] + "/"):
            pytest.skip("this server's storage spells its own addresses in another way than its namespaces")
        body = {"staging": handed, "checksum": "abc", "size_bytes": 3}
        assert repo.put("/branches/main/staging/backing", body, path="a").status_code == 200
        expected = "data/" + handed["physical_address"].split("/data/")[1]
        assert self.prepare(repo, server)[0] == [expected]

    def it_refuses_a_token_that_is_none(self, repo):
        answer = repo.post("/gc/prepare_uncommited", {"continuation_token": "bad"})
        assert (answer.status_code, answer.json()) == (400, {"message": "invalid continuation token"})
