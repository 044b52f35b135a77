"""Faults that a test arms, and the record of requests."""

from __future__ import annotations

import pytest
import requests

from lakeplan.sandbox.messages import ApiError
from tests.sandboxes import Faults, Recorded


class DescribeCountedFaults:
    def it_fails_so_many_requests_and_no_more(self, sandbox, call):
        sandbox.faults.fail_next(2, 500)
        assert [call("GET", "/repositories").status_code for _ in range(3)] == [500, 500, 200]

    def it_fails_only_what_matches(self, sandbox, call, repository):
        sandbox.faults.fail_next(1, 503, r"PUT .*/settings/gc_rules$")
        rules = {"default_retention_days": 7, "branches": []}
        path = f"{repository}/settings/gc_rules"
        assert call("GET", path).status_code == 404
        assert call("PUT", path, json=rules).status_code == 503
        assert call("GET", path).status_code == 404
        assert call("PUT", path, json=rules).status_code == 204

    def it_answers_in_the_shape_of_an_error(self, sandbox, call):
        sandbox.faults.fail_next(1, 429, message="slow down")
        answer = call("GET", "/repositories")
        assert (answer.status_code, answer.json()) == (429, {"message": "slow down"})

    def it_reaches_links_without_credentials_too(self, sandbox, call, repository):
        path = f"{repository}/metadata/object/range/{'0' * 64}"
        link = call("GET", path, params={"presign": "true"}).headers["Location"]
        sandbox.faults.fail_next(1, 500, "/_presigned/")
        assert requests.get(link, timeout=60).status_code == 500

    @pytest.mark.parametrize(("count", "status"), [(0, 500), (-1, 500), (1, 200), (1, 302)])
    def it_refuses_what_is_no_fault(self, count, status):
        with pytest.raises(ValueError):
            Faults().fail_next(count, status)


class DescribeDenials:
    def it_refuses_until_cleared(self, sandbox, call, repository):
        sandbox.faults.deny("(PUT|DELETE) .*/gc_rules|GET .*/set_allowed")
        for _ in range(2):
            answer = call("GET", f"{repository}/gc/rules/set_allowed")
            assert (answer.status_code, answer.json()) == (403, {"message": "insufficient permissions"})
        assert call("GET", f"{repository}/settings/gc_rules").json() == {"message": "not found"}
        sandbox.faults.clear()
        assert call("GET", f"{repository}/gc/rules/set_allowed").status_code == 204

    def it_gives_way_to_a_counted_fault(self):
        faults = Faults()
        faults.deny("GET")
        faults.fail_next(1, 500, "GET")
        for status in (500, 403):
            with pytest.raises(ApiError) as caught:
                faults.check("GET", "/x")
            assert caught.value.status == status


class DescribeTheRecord:
    def it_holds_every_request_with_its_answer(self, sandbox, call, repository):
        sandbox.faults.forget()
        call("GET", f"{repository}/branches", params={"amount": 1})
        call("DELETE", f"{repository}/branches/main")
        call("GET", "/nothing")
        prefix = "/api/v1/repositories/repo"
        assert sandbox.faults.requests == (
            Recorded("GET", f"{prefix}/branches?amount=1", 200),
            Recorded("DELETE", f"{prefix}/branches/main", 403),
            Recorded("GET", "/api/v1/nothing", 404),
        )

    def it_holds_what_a_fault_answered(self, sandbox, call):
        sandbox.faults.fail_next(1, 500)
        call("GET", "/repositories")
        assert [r.status for r in sandbox.faults.requests] == [500]

    def it_holds_no_credentials(self, sandbox, call, repository):
        path = f"{repository}/metadata/object/range/{'0' * 64}"
        link = call("GET", path, params={"presign": "true"}).headers["Location"]
        requests.get(link, timeout=60)
        recorded = repr(sandbox.faults.requests)
        assert "/_presigned/" in recorded
        assert "signature" not in recorded
        assert sandbox.secret_access_key not in recorded
