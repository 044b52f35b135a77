"""Refs dumps, ranges and metaranges: their bytes, and the ids that name them."""

from __future__ import annotations

import json

import pytest
import requests

from lakeplan.formats.ranges import metarange_of, read_metarange, read_range, write_metarange, write_ranges
from lakeplan.formats.refs import compute_commit_id, dump_properties, read_refs, write_refs_dump
from lakeplan.formats.sstable import read_sstable, write_sstable
from lakeplan.values.repository import AddressType, RefsDumpIds

NO_FILE = "0" * 64


@pytest.fixture
def history(repo):
    """Commits, merges, hidden and deleted branches, tags, odd paths and metadata.

    No metadata of two keys: a real server writes these in random order, so that two dumps of the same
    repository, and two commits of the same tree, differ in their ids.
    """
    for path in ("a", "dir/ä ö", "dir/b", "z" * 300):
        repo.upload("main", path, path.encode())
    repo.call(
        "POST",
        "/branches/main/objects",
        params={"path": "typed"},
        data=b"1",
        headers={"Content-Type": "text/csv", "x-lakefs-meta-key": "value"},
    )
    repo.commit("main", "first", date=1_600_000_000, metadata={"k": "ü"})
    repo.branch("dev")
    repo.branch("secret", hidden=True)
    repo.commit_object("dev", "d", date=1_500_000_000)
    repo.commit_object("secret", "s")
    assert repo.delete("/branches/main/objects", path="a").status_code == 204
    repo.commit("main", "without a", date=1_600_000_500)
    assert repo.post("/refs/dev/merge/main", {}).status_code == 200
    repo.branch("gone")
    repo.commit_object("gone", "g")
    assert repo.delete("/branches/gone").status_code == 204
    assert repo.post("/tags", {"id": "v1", "ref": "main~1"}).status_code == 201
    return repo


class DescribeRefsDumps:
    def it_holds_all_commits_branches_and_tags(self, history):
        refs = history.refs()
        shown = history.get("/branches", show_hidden="true").json()["results"]
        assert {(b.id, b.commit_id) for b in refs.branches} == {(b["id"], b["commit_id"]) for b in shown}
        assert {b.id for b in refs.branches} == {"dev", "main", "secret"}
        assert [(t.id, t.commit_id) for t in refs.tags] == [
            ("v1", history.get("/tags/v1").json()["commit_id"])
        ]
        messages = sorted(c.message for c in refs.commits)
        assert messages.count("adds g") == 1
        assert len(messages) == 7

    def it_holds_commits_as_the_api_shows_them(self, history):
        for commit in history.refs().commits:
            body = history.get(f"/commits/{commit.id}").json()
            assert commit.creation_us // 1_000_000 == body["creation_date"]
            assert list(commit.parents) == body["parents"]
            assert commit.meta_range_id == body["meta_range_id"]
            assert (commit.message, commit.committer) == (body["message"], body["committer"])
            assert (commit.generation, commit.version) == (body["generation"], body["version"])
            assert dict(commit.metadata) == body["metadata"]

    def it_has_the_ids_that_its_content_gives(self, history, monkeypatch):
        ids = RefsDumpIds(**history.put("/refs/dump").json())
        refs = read_refs(ids, history.read_metadata)
        theirs = read_sstable(history.read_metadata("meta_range", ids.tags_meta_range_id), name="tags")
        if ", " not in theirs.user_properties["schema_definition"]:  # builds of lakeFS differ in it
            monkeypatch.setattr(
                "lakeplan.formats.refs.dump_properties",
                lambda entity: {k: v.replace(", ", ",") for k, v in dump_properties(entity).items()},
            )
        rewritten, files = write_refs_dump(refs)
        assert rewritten.branches_meta_range_id == ids.branches_meta_range_id
        assert rewritten.tags_meta_range_id == ids.tags_meta_range_id
        for id in (ids.branches_meta_range_id, ids.tags_meta_range_id):
            assert history.read_metadata("meta_range", id) == files[id]

    def it_is_the_same_dump_while_nothing_changes(self, history):
        assert history.put("/refs/dump").json() == history.put("/refs/dump").json()

    def it_is_made_by_a_task_too(self, history, eventually):
        started = history.post("/dump")
        assert started.status_code == 202
        task = started.json()["id"]
        eventually(lambda: history.get("/dump", task_id=task).json()["done"])
        body = history.get("/dump", task_id=task).json()
        assert body["id"] == task
        assert "update_time" in body
        assert body["refs"] == history.put("/refs/dump").json()

    def it_knows_no_other_task(self, repo):
        answer = repo.get("/dump", task_id="nothing")
        assert (answer.status_code, answer.json()) == (404, {"message": "not found"})

    def it_writes_the_manifest_only_when_it_is_no_task(self, repo, server, eventually):
        location = f"{repo.upload('main', 'a').json()['physical_address'].split('/data/')[0]}/_lakefs"
        manifest = f"{location}/refs_manifest.json"
        task = repo.post("/dump").json()["id"]
        eventually(lambda: repo.get("/dump", task_id=task).json()["done"])
        names = location.removeprefix("local://")
        folder = server.folder / names if server.folder else None
        if folder is not None:
            assert not (folder / "refs_manifest.json").exists()
        ids = repo.put("/refs/dump").json()
        assert json.loads(server.read_location(manifest)) == ids


class DescribeIds:
    def it_names_every_commit_by_its_content(self, history):
        commits = history.refs().commits
        assert [compute_commit_id(c) for c in commits] == [c.id for c in commits]

    def it_names_every_file_by_its_content(self, history):
        """The writer of ``formats`` makes the same file, byte for byte, out of the same records."""
        refs = history.refs()
        ids = {c.meta_range_id for c in refs.commits} | set(history.put("/refs/dump").json().values())
        for id in ids - {""}:
            data = history.read_metadata("meta_range", id)
            for name in (id, *(r.id for r in metarange_of(read_sstable(data, name=id)))):
                table = read_sstable(history.read_metadata("range", name), name=name)
                written = write_sstable(table, user_properties=table.user_properties)
                assert written.id == name
                assert written.data == history.read_metadata("range", name)

    def it_names_a_tree_by_its_objects(self, repo):
        """Whole seconds only: a real server writes nanoseconds, and ``Entry`` has microseconds."""
        own = repo.upload("main", "upload").json()
        for number in range(40):
            body = {
                "physical_address": own["physical_address"],
                "checksum": f"checksum {number}",
                "size_bytes": number,
                "mtime": 1_600_000_000 + number,
                "metadata": {"number": str(number)},
            }
            path = f"dir-{number % 7}/ö{number}"
            assert repo.put("/branches/main/objects", body, path=path).status_code == 201
        assert repo.delete("/branches/main/objects", path="upload").status_code == 204
        id = repo.commit()["meta_range_id"]
        ranges = read_metarange(repo.read_metadata("meta_range", id), name=id, verify_id=id)
        entries = []
        for info in ranges:
            entries.extend(read_range(repo.read_metadata("range", info.id), name=info.id, verify_id=info.id))
        assert [e.path for e in entries] == repo.paths()
        rewritten = [info for info, _ in write_ranges(entries)]
        assert rewritten == ranges
        assert write_metarange(rewritten)[0] == id

    def it_stores_own_objects_by_relative_address(self, history):
        id = history.get("/commits/main").json()["meta_range_id"]
        (info,) = read_metarange(history.read_metadata("meta_range", id), name=id)
        entries = list(read_range(history.read_metadata("range", info.id), name=info.id))
        assert [e.path for e in entries] == history.paths()
        assert {e.address_type for e in entries} == {AddressType.RELATIVE}
        assert all(e.address.startswith("data/") for e in entries)
        typed = next(e for e in entries if e.path == "typed")
        assert (typed.content_type, typed.size) == ("text/csv", 1)
        assert typed.metadata == (("key", "value"),)

    def it_gives_an_empty_tree_the_same_id_everywhere(self, repo):
        commit = repo.commit("main", "nothing", allow_empty=True)
        assert commit["meta_range_id"] == write_metarange([])[0]


class DescribeMetadataObjects:
    def it_does_not_tell_kinds_apart(self, repo):
        id = repo.put("/refs/dump").json()["commits_meta_range_id"]
        assert repo.read_metadata("range", id) == repo.read_metadata("meta_range", id)

    def it_answers_410_for_what_is_not_there(self, repo):
        answer = repo.get(f"/metadata/object/range/{NO_FILE}")
        assert (answer.status_code, answer.json()) == (410, {"message": "No data"})

    def it_knows_two_kinds(self, repo):
        assert repo.get(f"/metadata/object/commit/{NO_FILE}").status_code == 400

    def it_redirects_to_a_link_without_credentials(self, repo, server):
        id = repo.put("/refs/dump").json()["commits_meta_range_id"]
        answer = repo.get(f"/metadata/object/meta_range/{id}", presign="true")
        if not server.presigns:
            assert answer.status_code == 400
            assert "operation not supported" in answer.json()["message"]
            return
        assert answer.status_code == 302
        link = requests.get(answer.headers["Location"], timeout=60)
        assert (link.status_code, link.content) == (200, repo.read_metadata("meta_range", id))

    def it_redirects_for_what_is_not_there_and_then_fails(self, repo, server):
        if not server.presigns:
            pytest.skip("this server's storage has no presigned links")
        answer = repo.get(f"/metadata/object/range/{NO_FILE}", presign="true")
        assert answer.status_code == 302
        assert requests.get(answer.headers["Location"], timeout=60).status_code in (403, 404)

    @pytest.mark.parametrize("kind", ["range", "meta_range"])
    def it_tells_a_location_without_looking(self, repo, kind):
        answer = repo.get(f"/metadata/{kind}/{NO_FILE}")
        assert (answer.status_code, answer.json()) == (200, {"location": f"_lakefs/{NO_FILE}"})
        assert answer.headers["Location"] == f"_lakefs/{NO_FILE}"
