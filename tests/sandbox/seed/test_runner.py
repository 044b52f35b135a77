"""Seeds made on a sandbox, through its API."""

from __future__ import annotations

import pytest

from lakeplan.errors import AuthenticationFailed, NotFound, ServerUnreachable, UnexpectedAnswer, UsageError
from lakeplan.sandbox.seed import SeedClient, run_seed
from lakeplan.sandbox.seed_document import read_seed

AS_OF = 1_800_000_000
DAY = 86400


@pytest.fixture
def client(sandbox):
    return SeedClient(sandbox.endpoint_url, sandbox.access_key_id, sandbox.secret_access_key)


@pytest.fixture
def run(client):
    def seed(*lines, **options):
        body = "".join(f"      - {line}\n" for line in lines)
        text = f"repositories:\n  - name: one\n    steps:\n{body or '      []'}"
        return run_seed(read_seed(text, "seed.yaml"), client, as_of=AS_OF, **options)

    return seed


def paths(call, ref="main"):
    return [o["path"] for o in call("GET", f"/repositories/one/refs/{ref}/objects/ls").json()["results"]]


def log(call, ref="main"):
    return call("GET", f"/repositories/one/refs/{ref}/commits").json()["results"]


class DescribeSteps:
    def it_commits_at_ages(self, run, call):
        run(
            "upload: {branch: main, path: a, size: 4KB}",
            "commit: {branch: main, message: old, age: 40d, metadata: {k: v}}",
            "commit: {branch: main, message: empty, age: 1d, allow_empty: true}",
        )
        commits = {c["message"]: c for c in log(call)}
        assert commits["old"]["creation_date"] == AS_OF - 40 * DAY
        assert commits["old"]["metadata"] == {"k": "v"}
        assert commits["empty"]["creation_date"] == AS_OF - DAY
        stat = call("GET", "/repositories/one/refs/main/objects/stat", params={"path": "a"}).json()
        assert stat["size_bytes"] == 4000

    def it_uploads_many_that_differ(self, run, call):
        run("upload: {branch: main, path: d/, count: 30, size: 1KB}")
        objects = call("GET", "/repositories/one/refs/main/objects/ls").json()["results"]
        assert [o["path"] for o in objects] == [f"d/{n:05d}" for n in range(30)]
        assert len({o["checksum"] for o in objects}) == 30

    def it_writes_the_same_path_again_as_something_else(self, run, call):
        upload = "upload: {branch: main, path: a, size: 1KB}"
        commit = "commit: {branch: main, message: x}"
        run(upload, commit, upload, commit)
        assert len(log(call)) == 3

    def it_copies_and_deletes(self, run, call):
        run(
            'upload: {branch: main, path: a, content: "one"}',
            "upload: {branch: main, path: d/, count: 3}",
            "commit: {branch: main, message: x}",
            "copy: {branch: main, source: a, destination: b}",
            "copy: {branch: main, source: a, destination: c, ref: main@}",
            "delete: {branch: main, path: d/}",
            "delete: {branch: main, path: a}",
        )
        assert paths(call) == ["b", "c"]
        answer = call("GET", "/repositories/one/refs/main/objects", params={"path": "c"})
        assert answer.content == b"one"

    def it_branches_merges_reverts_and_picks(self, run, call):
        run(
            "branch: {name: dev, source: main}",
            "upload: {branch: dev, path: a}",
            "commit: {branch: dev, message: a}",
            "merge: {source: dev, into: main, message: merged}",
            "revert: {branch: main, ref: main}",
            "upload: {branch: dev, path: b}",
            "commit: {branch: dev, message: b}",
            "cherry_pick: {branch: main, ref: dev}",
        )
        assert [c["message"] for c in log(call)][:3] == ["b", "Revert main", "merged"]
        assert paths(call) == ["b"]

    def it_resets_drops_and_tags(self, run, call):
        run(
            "branch: {name: dev, source: main, hidden: true}",
            "branch: {name: gone, source: main}",
            "upload: {branch: dev, path: a}",
            "commit: {branch: dev, message: a}",
            "tag: {name: v1, ref: dev}",
            "hard_reset: {branch: dev, to: dev~1}",
            "upload: {branch: dev, path: staged}",
            "drop_staged: {branch: dev}",
            "drop_branch: {name: gone}",
        )
        assert paths(call, "v1") == ["a"]
        assert paths(call, "dev") == []
        shown = call("GET", "/repositories/one/branches").json()["results"]
        assert [b["id"] for b in shown] == ["main"]

    def it_sets_rules_and_protection(self, run, call):
        run(
            "gc_rules: {default_retention_days: 21, branches: {main: 28}}",
            "protect: {patterns: [main, rel*]}",
        )
        assert call("GET", "/repositories/one/settings/gc_rules").json() == {
            "default_retention_days": 21,
            "branches": [{"branch_id": "main", "retention_days": 28}],
        }
        protection = call("GET", "/repositories/one/settings/branch_protection").json()
        assert protection == [{"pattern": "main"}, {"pattern": "rel*"}]

    def it_sorts_the_heads_of_two_branches(self, run, call):
        run(
            "upload: {branch: main, path: a}",
            "commit: {branch: main, message: shared, age: 200d}",
            "branch: {name: dev, source: main}",
            "commit: {branch: dev, message: dev, age: 3d, allow_empty: true}",
            "commit: {branch: main, message: main, age: 150d, allow_empty: true}",
            "sort_heads: {first: main, then: dev, age: 150d}",
        )
        heads = [call("GET", f"/repositories/one/branches/{b}").json()["commit_id"] for b in ("main", "dev")]
        assert heads == sorted(heads)
        dates = {c["creation_date"] for c in log(call) if c["message"].startswith("checkpoint")}
        assert dates <= {AS_OF - 150 * DAY}

    def it_sorts_heads_of_which_one_is_among_the_smallest(self, run, call, monkeypatch):
        """No commit of a round sorts before it, so that it gets another id and the same date."""
        monkeypatch.setattr("lakeplan.sandbox.seed._SORTING_COMMITS", 1)
        monkeypatch.setattr("lakeplan.sandbox.seed._MAX_SORTING_ROUNDS", 100)
        run(
            "commit: {branch: main, message: shared, age: 200d, allow_empty: true}",
            "branch: {name: dev, source: main}",
            "commit: {branch: dev, message: dev, age: 3d, allow_empty: true}",
            *[
                "sort_heads: {first: main, then: dev, age: 150d}",
                "sort_heads: {first: dev, then: main, age: 3d}",
            ]
            * 5,
        )
        heads = [call("GET", f"/repositories/one/branches/{b}").json()["commit_id"] for b in ("dev", "main")]
        assert heads == sorted(heads)
        assert "another id" in {c["message"] for b in ("main", "dev") for c in log(call, b)}
        dates = {c["message"]: c["creation_date"] for c in log(call, "dev")}
        assert dates.get("another id", AS_OF - 3 * DAY) == AS_OF - 3 * DAY


class DescribeRepositoriesThatExist:
    def it_writes_nothing_when_one_does(self, run, sandbox):
        run()
        sandbox.faults.forget()
        with pytest.raises(UsageError, match="these repositories already exist: one"):
            run("upload: {branch: main, path: a}")
        assert {r.method for r in sandbox.faults.requests} == {"GET"}

    def it_leaves_it_as_it_is_when_told_to(self, run, call):
        assert run() == ["one"]
        assert run("upload: {branch: main, path: a}", skip_existing=True) == []
        assert paths(call) == []

    def it_reports_what_it_made(self, run):
        lines = []
        run("tag: {name: v1, ref: main}", report=lines.append)
        assert lines == ["one: 1 step"]


class DescribeFailures:
    def it_names_the_place_in_the_file(self, run):
        with pytest.raises(NotFound) as caught:
            run("tag: {name: v1, ref: main}", "tag: {name: v2, ref: nothing}")
        assert str(caught.value).startswith("seed.yaml:5:9: POST /repositories/one/tags: not found")

    def it_shows_what_the_server_says(self, run):
        with pytest.raises(UnexpectedAnswer, match="400 commit: no changes") as caught:
            run("commit: {branch: main, message: nothing}")
        assert caught.value.status == 400

    def it_says_when_the_credentials_are_refused(self, sandbox):
        client = SeedClient(sandbox.endpoint_url, "sandbox", "not-this-secret")
        with pytest.raises(AuthenticationFailed) as caught:
            client.exists("one")
        assert "not-this-secret" not in f"{caught.value} {caught.value.hint} {caught.value.detail}"

    @pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "127.0.0.1:8000", "http://"])
    def it_says_when_nobody_answers(self, endpoint):
        client = SeedClient(endpoint, "sandbox", "not-this-secret")
        with pytest.raises(ServerUnreachable) as caught:
            client.exists("one")
        assert "sandbox up" in caught.value.hint
        assert "not-this-secret" not in repr(caught.value.__dict__)

    def it_takes_an_endpoint_with_the_api_in_it(self, sandbox):
        client = SeedClient(f"{sandbox.endpoint_url}/api/v1/", "sandbox", sandbox.secret_access_key)
        assert client.exists("one") is False
