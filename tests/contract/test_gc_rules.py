"""GC rules, as they are: nothing is validated and there is no ETag."""

from __future__ import annotations

import pytest

RULES = "/settings/gc_rules"


def put(repo, default, branches=()):
    body = {"default_retention_days": default, "branches": [dict(b) for b in branches]}
    answer = repo.put(RULES, body)
    assert (answer.status_code, answer.content) == (204, b"")


def rule(branch_id, retention_days):
    return {"branch_id": branch_id, "retention_days": retention_days}


def stored(repo):
    answer = repo.get(RULES)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return body["default_retention_days"], {
        b["branch_id"]: b["retention_days"] for b in body["branches"] or []
    }


class DescribeStoredRules:
    def it_reads_back_what_was_set(self, repo):
        put(repo, 21, [rule("main", 28), rule("dev", 7)])
        assert stored(repo) == (21, {"main": 28, "dev": 7})

    def it_replaces_all_of_them(self, repo):
        put(repo, 21, [rule("main", 28)])
        put(repo, 7, [rule("dev", 3)])
        assert stored(repo) == (7, {"dev": 3})

    def it_has_null_for_no_branches(self, repo):
        put(repo, 7)
        assert repo.get(RULES).json() == {"branches": None, "default_retention_days": 7}

    def it_has_no_etag(self, repo):
        put(repo, 7)
        assert "ETag" not in repo.get(RULES).headers

    def it_ignores_if_match(self, repo):
        put(repo, 7)
        body = {"default_retention_days": 8, "branches": []}
        answer = repo.call("PUT", RULES, json=body, headers={"If-Match": "something else"})
        assert answer.status_code == 204
        assert stored(repo) == (8, {})

    def it_promises_no_order_of_branches(self, repo):
        names = [f"b{i:02}" for i in range(20)]
        put(repo, 7, [rule(n, 1) for n in names])
        orders = {tuple(b["branch_id"] for b in repo.get(RULES).json()["branches"]) for _ in range(20)}
        assert {tuple(sorted(o)) for o in orders} == {tuple(names)}
        assert len(orders) > 1


class DescribeNonsense:
    @pytest.mark.parametrize(
        ("sent", "kept"),
        [
            (-7, -7),
            (2**31 - 1, 2**31 - 1),
            (2**31, -(2**31)),
            (5_000_000_000, 705_032_704),
            (-5_000_000_000, -705_032_704),
            (2**32 + 3, 3),
        ],
    )
    def it_is_stored_cut_to_32_bits(self, repo, sent, kept):
        put(repo, sent, [rule("main", sent)])
        assert stored(repo) == (kept, {"main": kept})

    @pytest.mark.parametrize("name", ["no branch", "", "ünknown", "a/b", "not-there"])
    def it_takes_any_text_for_a_branch(self, repo, name):
        put(repo, 1, [rule(name, 2)])
        assert stored(repo) == (1, {name: 2})

    def it_keeps_the_last_of_two_entries(self, repo):
        put(repo, 1, [rule("a", 5), rule("b", 1), rule("a", 3)])
        assert stored(repo) == (1, {"a": 3, "b": 1})

    def it_reads_zero_and_nothing_else_as_unset(self, repo):
        put(repo, 0)
        answer = repo.get(RULES)
        assert (answer.status_code, answer.json()) == (404, {"message": "not found"})

    @pytest.mark.parametrize("sent", [2**32, -(2**32)])
    def it_reads_what_is_cut_to_zero_as_unset_too(self, repo, sent):
        put(repo, sent)
        assert repo.get(RULES).status_code == 404

    def it_keeps_zero_beside_a_branch(self, repo):
        put(repo, 0, [rule("main", 0)])
        assert stored(repo) == (0, {"main": 0})

    def it_ignores_unknown_keys(self, repo):
        body = {"default_retention_days": 7, "branches": [], "extra": 1}
        assert repo.put(RULES, body).status_code == 204
        assert stored(repo) == (7, {})


class DescribeRefusals:
    @pytest.mark.parametrize(
        "body",
        [
            {},
            [],
            {"default_retention_days": 7},
            {"branches": []},
            {"default_retention_days": 7, "branches": None},
            {"default_retention_days": None, "branches": []},
            {"default_retention_days": "7", "branches": []},
            {"default_retention_days": 7.5, "branches": []},
            {"default_retention_days": True, "branches": []},
            {"default_retention_days": 10**20, "branches": []},
            {"default_retention_days": 7, "branches": [{"branch_id": "a"}]},
            {"default_retention_days": 7, "branches": [{"retention_days": 1}]},
            {"default_retention_days": 7, "branches": [{"branch_id": 1, "retention_days": 1}]},
            {"default_retention_days": 7, "branches": ["main"]},
        ],
    )
    def it_takes_only_the_shape(self, repo, body):
        put(repo, 3)
        assert repo.put(RULES, body).status_code == 400
        assert stored(repo) == (3, {})

    @pytest.mark.parametrize("data", [b"", b"{bad"])
    def it_takes_only_json(self, repo, data):
        headers = {"Content-Type": "application/json"}
        assert repo.call("PUT", RULES, data=data, headers=headers).status_code == 400

    def it_wants_the_content_type(self, repo):
        data = b'{"default_retention_days": 3, "branches": []}'
        assert repo.call("PUT", RULES, data=data).status_code == 400


class DescribeUnsetRules:
    def it_says_not_found(self, repo):
        answer = repo.get(RULES)
        assert (answer.status_code, answer.json()) == (404, {"message": "not found"})

    def it_says_another_thing_for_a_missing_repository(self, server):
        path = "/repositories/not-there/settings/gc_rules"
        body = {"default_retention_days": 1, "branches": []}
        for method, parts in (("GET", {}), ("PUT", {"json": body}), ("DELETE", {})):
            answer = server.call(method, path, **parts)
            assert (answer.status_code, answer.json()) == (404, {"message": "repository not found"})

    def it_is_deleted_as_often_as_one_likes(self, repo):
        put(repo, 7)
        for _ in range(2):
            assert repo.delete(RULES).status_code == 204
            assert repo.get(RULES).status_code == 404


class DescribeThePreflight:
    def it_says_yes_without_a_body(self, repo):
        answer = repo.get("/gc/rules/set_allowed")
        assert (answer.status_code, answer.content) == (204, b"")

    def it_does_not_look_whether_the_repository_is_there(self, server):
        assert server.call("GET", "/repositories/not-there/gc/rules/set_allowed").status_code == 204
