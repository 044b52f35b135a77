"""What only lakeFS Enterprise has. The sandbox's flavour of it is built from models and documents
(docs/lakefs/api.md, branch-lifecycle.md); an open-source server knows none of these routes."""

from __future__ import annotations

import pytest

from lakeplan.sandbox.service import Options
from tests.sandboxes import start_sandbox

POLICIES = "/settings/branch_lifecycle/policies"
OBJECTS = "/settings/object_lifecycle"
POLICY = {"id": "features", "name_patterns": ["feature-*"], "max_age": 604_800}
RULE = {"id": "raw-90d", "branches": ["main"], "prefix": "raw/", "expire_after_days": 90}


class DescribeAnOpenSourceServer:
    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    @pytest.mark.parametrize("path", [POLICIES, OBJECTS])
    def it_knows_no_lifecycle(self, repo, method, path):
        answer = repo.call(method, path, json={})
        assert (answer.status_code, answer.json()) == (404, {"message": "invalid API endpoint"})

    def it_has_no_preflight_for_it(self, repo):
        answer = repo.get("/settings/branch_lifecycle/set_allowed")
        assert (answer.status_code, answer.json()) == (404, {"message": "invalid API endpoint"})

    def it_knows_no_times_of_branches(self, repo):
        assert repo.get("/branches/main").json().keys() == {"id", "commit_id"}
        assert repo.get("/branches").json()["results"][0].keys() == {"id", "commit_id"}


@pytest.fixture
def enterprise(tmp_path, connect):
    with start_sandbox(tmp_path, options=Options(flavor="enterprise")) as handle:
        yield connect(handle, "repository")


class DescribeBranchLifecycle:
    def it_is_an_empty_list_at_first(self, enterprise):
        answer = enterprise.get(POLICIES)
        assert (answer.status_code, answer.json()) == (200, {"policies": []})

    def it_answers_with_the_list_and_assigned_ids(self, enterprise):
        unnamed = {"name_patterns": ["wip-*"], "max_inactivity_time": 60, "description": "quiet"}
        answer = enterprise.put(POLICIES, {"policies": [POLICY, unnamed]})
        assert answer.status_code == 200
        first, second = answer.json()["policies"]
        assert first == POLICY
        assert second == unnamed | {"id": second["id"]}
        assert second["id"].startswith("pol-")
        assert enterprise.get(POLICIES).json() == answer.json()

    def it_takes_a_matching_etag_only(self, enterprise):
        def put(etag, *policies):
            return enterprise.call(
                "PUT", POLICIES, json={"policies": list(policies)}, headers={"If-Match": etag}
            ).status_code

        assert enterprise.put(POLICIES, {"policies": [POLICY]}).status_code == 200
        etag = enterprise.get(POLICIES).headers["ETag"]
        assert put("another", POLICY | {"max_age": 60}) == 412
        assert enterprise.get(POLICIES).json() == {"policies": [POLICY]}
        assert put(etag, POLICY | {"max_age": 60}) == 200
        assert enterprise.get(POLICIES).headers["ETag"] != etag

    def it_is_cleared_as_often_as_one_likes(self, enterprise):
        assert enterprise.put(POLICIES, {"policies": [POLICY]}).status_code == 200
        for _ in range(2):
            assert enterprise.delete(POLICIES).status_code == 204
            assert enterprise.get(POLICIES).json() == {"policies": []}

    @pytest.mark.parametrize(
        "policy",
        [
            {"name_patterns": []} | {"max_age": 1},
            {"name_patterns": [""], "max_age": 1},
            {"name_patterns": ["x"]},
            {"name_patterns": ["x"], "max_age": 0},
            {"name_patterns": ["x"], "max_age": "7d"},
            {"name_patterns": ["ma*"], "max_age": 1},
            {"name_patterns": ["x"], "max_age": 1, "id": "has space"},
            {"name_patterns": ["x"], "max_age": 1, "id": "x" * 33},
        ],
    )
    def it_refuses_policies_that_cannot_be_meant(self, enterprise, policy):
        assert enterprise.put(POLICIES, {"policies": [policy]}).status_code == 400
        assert enterprise.get(POLICIES).json() == {"policies": []}

    def it_refuses_two_policies_of_one_id(self, enterprise):
        assert enterprise.put(POLICIES, {"policies": [POLICY, POLICY]}).status_code == 400

    def it_has_a_preflight(self, enterprise):
        assert enterprise.get("/settings/branch_lifecycle/set_allowed").status_code == 204

    def it_knows_when_a_branch_was_made_and_last_written(self, enterprise):
        branch = enterprise.get("/branches/main").json()
        assert branch["creation_date"] <= branch["update_date"]


class DescribeObjectLifecycle:
    def it_replaces_all_rules_without_a_body(self, enterprise):
        answer = enterprise.put(OBJECTS, {"rules": [RULE]})
        assert (answer.status_code, answer.content) == (204, b"")
        assert enterprise.get(OBJECTS).json() == {"rules": [RULE]}
        assert enterprise.put(OBJECTS, {"rules": []}).status_code == 204
        assert enterprise.get(OBJECTS).json() == {"rules": []}

    def it_says_not_found_while_unset(self, enterprise):
        assert enterprise.get(OBJECTS).status_code == 404
        assert enterprise.put(OBJECTS, {"rules": [RULE]}).status_code == 204
        assert enterprise.delete(OBJECTS).status_code == 204
        assert enterprise.get(OBJECTS).status_code == 404

    def it_takes_a_matching_etag_only(self, enterprise):
        assert enterprise.put(OBJECTS, {"rules": [RULE]}).status_code == 204
        answer = enterprise.call("PUT", OBJECTS, json={"rules": []}, headers={"If-Match": "another"})
        assert answer.status_code == 412

    @pytest.mark.parametrize(
        "change",
        [{"id": "Upper"}, {"id": "x" * 65}, {"branches": []}, {"prefix": "raw"}, {"expire_after_days": 0}],
    )
    def it_refuses_rules_that_cannot_be_meant(self, enterprise, change):
        assert enterprise.put(OBJECTS, {"rules": [RULE | change]}).status_code == 400
