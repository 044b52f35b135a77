"""Repositories, and the key-value map on one."""

from __future__ import annotations

READ_ONLY = {"message": "read-only repository"}


class DescribeCreation:
    def it_answers_with_the_repository(self, make_repo):
        repo = make_repo()
        body = repo.get().json()
        assert body["id"] == repo.name
        assert body["default_branch"] == "main"
        assert body["read_only"] is False
        assert body["storage_namespace"].endswith(repo.name)
        assert body["storage_id"] == ""
        assert isinstance(body["creation_date"], int)

    def it_takes_another_default_branch(self, make_repo):
        repo = make_repo(default_branch="trunk")
        assert repo.get().json()["default_branch"] == "trunk"
        assert repo.get("/branches/trunk").status_code == 200

    def it_starts_with_a_commit_that_holds_nothing(self, repo):
        (commit,) = repo.log()
        assert commit["meta_range_id"] == ""
        assert commit["parents"] == []
        assert commit["message"] == "Repository created"
        assert commit["committer"] == ""
        assert (commit["generation"], commit["version"]) == (1, 1)

    def it_refuses_a_name_that_is_taken(self, server, repo):
        body = {"name": repo.name, "storage_namespace": f"{server.namespace_prefix}{repo.name}-else"}
        answer = server.call("POST", "/repositories", json=body)
        assert (answer.status_code, answer.json()["message"]) == (
            409,
            "error creating repository: not unique",
        )

    def it_refuses_a_namespace_that_is_in_use(self, server, repo):
        body = {"name": f"{repo.name}-x", "storage_namespace": repo.get().json()["storage_namespace"]}
        answer = server.call("POST", "/repositories", json=body)
        assert answer.status_code == 400
        assert "storage namespace already in use" in answer.json()["message"]

    def it_refuses_a_name_out_of_other_letters(self, server):
        for name in ("Bad_Name", "Upper", "x", "-a-b", "a" * 64):
            body = {"name": name, "storage_namespace": f"{server.namespace_prefix}bad-name"}
            answer = server.call("POST", "/repositories", json=body)
            assert answer.status_code == 400
            # The schema is checked before the handler is asked.
            assert answer.json()["message"].startswith("request body has an error: doesn't match schema")
            assert (
                'Error at "/name": string doesn\'t match the regular expression' in answer.json()["message"]
            )

    def it_refuses_storage_it_does_not_have(self, server):
        body = {"name": "foreign-storage", "storage_namespace": "gs://somewhere/else"}
        answer = server.call("POST", "/repositories", json=body)
        assert answer.status_code == 400
        assert "invalid namespace" in answer.json()["message"]

    def it_makes_a_bare_one_without_a_branch(self, server, repo):
        name = f"{repo.name}-bare"
        body = {"name": name, "storage_namespace": f"{server.namespace_prefix}{name}"}
        assert server.call("POST", "/repositories", json=body, params={"bare": "true"}).status_code == 201
        assert server.call("GET", f"/repositories/{name}/branches").json()["results"] == []
        assert server.call("DELETE", f"/repositories/{name}").status_code == 204


class DescribeMissingRepositories:
    def it_says_repository_not_found(self, server):
        for path in ("", "/branches", "/settings/gc_rules", "/metadata", "/tags", "/refs/main/commits"):
            answer = server.call("GET", f"/repositories/not-there{path}")
            assert (answer.status_code, answer.json()) == (404, {"message": "repository not found"}), path

    def it_says_so_when_one_is_deleted(self, server):
        answer = server.call("DELETE", "/repositories/not-there")
        assert (answer.status_code, answer.json()) == (404, {"message": "repository not found"})

    def it_refuses_what_cannot_be_a_name(self, server):
        assert server.call("GET", "/repositories/N").status_code == 400

    def it_forgets_a_deleted_one(self, repo, eventually):
        assert repo.delete().status_code == 204
        eventually(lambda: repo.get().status_code in (404, 410))


class DescribeLists:
    def it_pages_by_prefix_amount_and_after(self, server, repo):
        def page(**query):
            return server.call("GET", "/repositories", params={"prefix": repo.name, **query}).json()

        second = f"{repo.name}-second"
        body = {"name": second, "storage_namespace": f"{server.namespace_prefix}{second}"}
        assert server.call("POST", "/repositories", json=body).status_code == 201
        first = page(amount=1)
        assert [r["id"] for r in first["results"]] == [repo.name]
        assert first["pagination"] == {
            "has_more": True,
            "max_per_page": 1000,
            "next_offset": repo.name,
            "results": 1,
        }
        rest = page(amount=1, after=first["pagination"]["next_offset"])
        assert [r["id"] for r in rest["results"]] == [second]
        assert rest["pagination"]["has_more"] is False
        assert rest["pagination"]["next_offset"] == ""
        assert server.call("DELETE", f"/repositories/{second}").status_code == 204

    def it_takes_amounts_up_to_1000(self, server):
        def status(amount):
            return server.call("GET", "/repositories", params={"amount": amount}).status_code

        assert [status(a) for a in (0, 1000, 1001, -5, "x")] == [200, 200, 400, 400, 400]


class DescribeReadOnlyRepositories:
    def it_refuses_writes_and_answers_reads(self, make_repo):
        repo = make_repo(read_only=True)
        assert repo.get().json()["read_only"] is True
        rules = {"default_retention_days": 1, "branches": []}
        for answer in (
            repo.put("/settings/gc_rules", rules),
            repo.post("/branches", {"name": "x", "source": "main"}),
            repo.post("/gc/prepare_commits"),
            repo.post("/gc/prepare_uncommited", {}),
            repo.delete(),
        ):
            assert (answer.status_code, answer.json()) == (403, READ_ONLY), answer.url
        assert repo.get("/settings/gc_rules").json() == {"message": "not found"}
        assert repo.get("/branches").status_code == 200

    def it_dumps_their_refs(self, make_repo):
        assert make_repo(read_only=True).put("/refs/dump").status_code == 201


class DescribeTheKeyValueMap:
    def it_adds_and_removes_keys(self, repo):
        assert repo.get("/metadata").json() == {}
        assert repo.post("/metadata", {"metadata": {"a": "1"}}).status_code == 204
        assert repo.post("/metadata", {"metadata": {"b": "2"}}).status_code == 204
        assert repo.get("/metadata").json() == {"a": "1", "b": "2"}
        answer = repo.call("DELETE", "/metadata", json={"keys": ["a", "not there"]})
        assert answer.status_code == 204
        assert repo.get("/metadata").json() == {"b": "2"}
