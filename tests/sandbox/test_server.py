"""The server as a process part: where it listens, what it keeps, how it ends."""

from __future__ import annotations

import socket
import threading
from datetime import datetime, timedelta, timezone

import pytest
import requests

from lakeplan.errors import UsageError
from lakeplan.formats.collector import read_uncommitted
from lakeplan.formats.namespace import GC_RULES_KEY, metadata_key
from lakeplan.sandbox.service import Options
from tests.sandboxes import start_sandbox


class DescribeListening:
    def it_listens_on_the_loopback_only(self, sandbox):
        assert sandbox.endpoint_url == f"http://127.0.0.1:{sandbox.port}"
        with pytest.raises(OSError), socket.create_connection(("127.0.0.2", sandbox.port), timeout=2):
            pass

    @pytest.mark.parametrize("length", ["x", "-1"])
    def it_refuses_a_length_that_is_none(self, sandbox, length):
        with socket.create_connection(("127.0.0.1", sandbox.port), timeout=60) as connection:
            connection.sendall(f"POST /x HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
            assert b" 400 " in connection.makefile("rb").readline()

    def it_frees_its_port_when_stopped(self, tmp_path):
        handle = start_sandbox(tmp_path)
        handle.stop()
        handle.stop()
        with pytest.raises(requests.ConnectionError):
            requests.get(handle.endpoint_url, timeout=60)

    def it_ends_connections_that_clients_keep_alive(self, tmp_path):
        handle = start_sandbox(tmp_path)
        with requests.Session() as session:
            assert session.get(f"{handle.endpoint_url}/api/v1/healthcheck", timeout=60).status_code == 204
            handle.stop()
            with pytest.raises(requests.ConnectionError):
                session.get(f"{handle.endpoint_url}/api/v1/healthcheck", timeout=60)

    def it_refuses_a_port_that_is_taken(self, sandbox, tmp_path):
        with pytest.raises(UsageError, match="cannot listen on port"):
            start_sandbox(tmp_path / "other", port=sandbox.port)

    def it_refuses_a_folder_that_another_one_uses(self, sandbox, tmp_path):
        with pytest.raises(UsageError, match="cannot use the sandbox's data"):
            start_sandbox(tmp_path / "sandbox")

    def it_refuses_a_state_that_is_damaged(self, tmp_path):
        (tmp_path / ".sandbox").mkdir()
        (tmp_path / ".sandbox" / "state.db").write_bytes(b"no database" * 100)
        with pytest.raises(UsageError, match="not a database"):
            start_sandbox(tmp_path)

    def it_answers_many_at_once(self, call, repository):
        statuses = []

        def upload(number):
            path = f"{repository}/branches/main/objects"
            answer = call("POST", path, params={"path": f"p{number}"}, data=b"x")
            statuses.append(answer.status_code)

        threads = [threading.Thread(target=upload, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [201] * 16
        assert len(call("GET", f"{repository}/refs/main/objects/ls").json()["results"]) == 16

    def it_takes_a_body_in_chunks(self, call, repository):
        answer = call(
            "POST",
            f"{repository}/branches/main/objects",
            params={"path": "a"},
            data=iter([b"ab", b"", b"cd"]),
        )
        assert (answer.status_code, answer.json()["size_bytes"]) == (201, 4)


class DescribeRestarts:
    def it_finds_everything_again(self, tmp_path, caller):
        def everything(call):
            r = "/repositories/repo"
            paths = (
                "",
                "/branches?show_hidden=true",
                "/tags",
                "/refs/main/commits",
                "/refs/main/objects/ls",
                "/refs/main/objects?path=staged",
                "/settings/gc_rules",
                "/settings/branch_protection",
                "/metadata",
                "/pulls",
                "/branches/main/diff",
            )
            return [call("GET", r + path).content for path in paths]

        with start_sandbox(tmp_path) as handle:
            call = caller(handle)
            body = {"name": "repo", "storage_namespace": "local://repo"}
            assert call("POST", "/repositories", json=body).status_code == 201
            r = "/repositories/repo"
            rules = {"default_retention_days": 7, "branches": [{"branch_id": "main", "retention_days": 9}]}
            for method, path, parts in (
                ("POST", "/branches/main/objects?path=a", {"data": b"1"}),
                ("POST", "/branches/main/commits", {"json": {"message": "x", "metadata": {"k": "v"}}}),
                ("POST", "/branches", {"json": {"name": "dev", "source": "main", "hidden": True}}),
                ("POST", "/tags", {"json": {"id": "v1", "ref": "main"}}),
                ("POST", "/branches/main/objects?path=staged", {"data": b"22"}),
                ("PUT", "/settings/gc_rules", {"json": rules}),
                ("PUT", "/settings/branch_protection", {"json": [{"pattern": "rel*"}]}),
                ("POST", "/metadata", {"json": {"metadata": {"a": "b"}}}),
                (
                    "POST",
                    "/pulls",
                    {"json": {"title": "t", "source_branch": "dev", "destination_branch": "main"}},
                ),
            ):
                assert call(method, r + path, **parts).status_code < 300, path
            before = everything(call)
            dump = call("PUT", f"{r}/refs/dump").json()
        with start_sandbox(tmp_path) as handle:
            call = caller(handle)
            assert everything(call) == before
            assert call("PUT", f"{r}/refs/dump").json() == dump

    def it_leaves_the_namespace_as_a_server_would(self, call, repository, sandbox):
        folder = sandbox.namespace_folder("repo")
        assert (folder / "_lakefs/dummy").is_file()
        rules = {"default_retention_days": 7, "branches": []}
        assert call("PUT", f"{repository}/settings/gc_rules", json=rules).status_code == 204
        assert (folder / GC_RULES_KEY).read_bytes() == b"\x08\x07"
        assert call("DELETE", f"{repository}/settings/gc_rules").status_code == 204
        assert (folder / GC_RULES_KEY).read_bytes() == b""
        call("POST", f"{repository}/branches/main/objects", params={"path": "a"}, data=b"hello")
        commit = call("POST", f"{repository}/branches/main/commits", json={"message": "x"}).json()
        assert (folder / metadata_key(commit["meta_range_id"])).is_file()
        (object_file,) = (folder / "data").rglob("*/*")
        assert object_file.read_bytes() == b"hello"
        assert not list(folder.rglob("*.unfinished"))


class DescribeClockAndStorage:
    def it_says_410_once_the_collector_took_the_object(self, call, repository, sandbox):
        call("POST", f"{repository}/branches/main/objects", params={"path": "a"}, data=b"hello")
        for file in (sandbox.namespace_folder("repo") / "data").rglob("*/*"):
            file.unlink()
        path = f"{repository}/refs/main/objects"
        assert call("GET", path, params={"path": "a"}).status_code == 410
        assert call("HEAD", path, params={"path": "a"}).status_code == 200

    def it_says_500_for_a_damaged_range(self, tmp_path, caller):
        with start_sandbox(tmp_path) as handle:
            call = caller(handle)
            body = {"name": "repo", "storage_namespace": "local://repo"}
            assert call("POST", "/repositories", json=body).status_code == 201
            call("POST", "/repositories/repo/branches/main/objects", params={"path": "a"}, data=b"x")
            commit = call("POST", "/repositories/repo/branches/main/commits", json={"message": "x"}).json()
            file = handle.namespace_folder("repo") / metadata_key(commit["meta_range_id"])
            file.write_bytes(b"rubbish" * 20)
        with start_sandbox(tmp_path) as handle:
            answer = caller(handle)("GET", "/repositories/repo/refs/main/objects/ls")
            assert answer.status_code == 500
            assert commit["meta_range_id"] in answer.json()["message"]

    def it_hands_out_links_that_end(self, tmp_path, caller):
        now = [datetime(2026, 1, 1, tzinfo=timezone.utc)]
        options = Options(clock=lambda: now[0], presigned_seconds=60)
        with start_sandbox(tmp_path, options=options) as handle:
            call = caller(handle)
            body = {"name": "repo", "storage_namespace": "local://repo"}
            assert call("POST", "/repositories", json=body).status_code == 201
            id = call("PUT", "/repositories/repo/refs/dump").json()["tags_meta_range_id"]
            path = f"/repositories/repo/metadata/object/range/{id}"
            link = call("GET", path, params={"presign": "true"}).headers["Location"]
            assert requests.get(link, timeout=60).content == call("GET", path).content
            assert requests.get(link.replace(id, "0" * 64), timeout=60).status_code == 403
            assert requests.put(link, timeout=60).status_code == 403
            now[0] += timedelta(seconds=61)
            assert requests.get(link, timeout=60).status_code == 403

    def it_takes_linked_uploads_for_a_day(self, tmp_path, caller):
        now = [datetime(2026, 1, 1, tzinfo=timezone.utc)]
        with start_sandbox(tmp_path, options=Options(clock=lambda: now[0])) as handle:
            call = caller(handle)
            body = {"name": "repo", "storage_namespace": "local://repo"}
            assert call("POST", "/repositories", json=body).status_code == 201
            path, query = "/repositories/repo/branches/main/staging/backing", {"path": "a"}
            handed = call("GET", path, params=query).json()
            body = {"staging": handed, "checksum": "abc", "size_bytes": 3}
            now[0] += timedelta(hours=24)
            assert call("PUT", path, params=query, json=body).status_code == 200
            now[0] += timedelta(seconds=1)
            answer = call("PUT", path, params=query, json=body)
            assert (answer.status_code, answer.json()) == (400, {"message": "link address expired"})

    def it_dates_commits_by_its_clock_and_judges_by_it(self, tmp_path, caller):
        now = [datetime(2026, 1, 1, tzinfo=timezone.utc)]
        with start_sandbox(tmp_path, options=Options(clock=lambda: now[0])) as handle:
            call = caller(handle)
            body = {"name": "repo", "storage_namespace": "local://repo"}
            assert call("POST", "/repositories", json=body).status_code == 201
            r = "/repositories/repo"
            ids = []
            for _ in range(3):
                now[0] += timedelta(days=10)
                commit = {"message": "x", "allow_empty": True}
                ids.append(call("POST", f"{r}/branches/main/commits", json=commit).json()["id"])
            rules = {"default_retention_days": 15, "branches": []}
            assert call("PUT", f"{r}/settings/gc_rules", json=rules).status_code == 204
            link = call("POST", f"{r}/gc/prepare_commits").json()["gc_commits_presigned_url"]
            rows = requests.get(link, timeout=60).text.splitlines()[1:]
            # The HEAD is of today, the one before of 10 days ago, the first was HEAD 15 days ago.
            assert {row.split(",")[0] for row in rows} == set(ids)

    def it_hands_out_uncommitted_addresses_in_several_files(self, tmp_path, caller):
        with start_sandbox(tmp_path, options=Options(max_uncommitted_per_file=2)) as handle:
            call = caller(handle)
            body = {"name": "repo", "storage_namespace": "local://repo"}
            assert call("POST", "/repositories", json=body).status_code == 201
            r = "/repositories/repo"
            assert call("POST", f"{r}/branches", json={"name": "b", "source": "main"}).status_code == 201
            for branch in ("b", "main"):
                for path in ("x", "y", "z"):
                    call("POST", f"{r}/branches/{branch}/objects", params={"path": path}, data=b"1")
            answers = [call("POST", f"{r}/gc/prepare_uncommited", json={}).json()]
            while token := answers[-1].get("continuation_token"):
                assert len(answers) < 10
                body = {"continuation_token": token}
                answers.append(call("POST", f"{r}/gc/prepare_uncommited", json=body).json())
            assert (len(answers), len({a["run_id"] for a in answers})) == (3, 1)
            files = list(
                (handle.namespace_folder("repo") / "_lakefs/retention/gc/uncommitted").rglob("*/*/*")
            )
            found = [a for f in files for a in read_uncommitted(f.read_bytes(), name=f.name)]
            assert len(files) == 3
            assert len(set(found)) == len(found) == 6

    def it_can_be_told_to_have_no_links(self, tmp_path, caller):
        with start_sandbox(tmp_path, options=Options(presign=False)) as handle:
            call = caller(handle)
            body = {"name": "repo", "storage_namespace": "local://repo"}
            assert call("POST", "/repositories", json=body).status_code == 201
            assert call("GET", "/config").json()["storage_config"]["pre_sign_support"] is False
            path = f"/repositories/repo/metadata/object/range/{'0' * 64}"
            assert call("GET", path, params={"presign": "true"}).status_code == 400


def it_never_shows_its_secret(sandbox):
    options = Options(secret_access_key="very-secret-indeed")
    assert "very-secret-indeed" not in repr(options)
    assert sandbox.secret_access_key not in repr(sandbox)
