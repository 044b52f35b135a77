"""The routing table."""

from __future__ import annotations

from collections import Counter

from lakeplan.sandbox import server
from lakeplan.sandbox.messages import ROUTES, find_route

assert server.HANDLERS  # they declare the routes


def test_no_route_stands_twice():
    counts = Counter((r.method, r.pattern) for r in ROUTES)
    assert set(counts.values()) == {1}


def test_enterprise_has_more_and_nothing_less():
    oss = {(r.method, r.pattern) for r in ROUTES if r.flavor == "oss"}
    enterprise = {(r.method, r.pattern) for r in ROUTES}
    assert oss < enterprise
    assert all("lifecycle" in pattern for _, pattern in enterprise - oss)


def test_parts_of_a_path_are_decoded_after_they_were_told_apart():
    route, params = find_route("oss", "GET", "/api/v1/repositories/a/branches/x%2Fy%20z")
    assert route.pattern == "/repositories/{repository}/branches/{branch}"
    assert params == {"repository": "a", "branch": "x/y z"}


def test_a_path_outside_the_api_has_no_route():
    assert find_route("oss", "GET", "/repositories") is None
    assert find_route("oss", "PATCH", "/api/v1/repositories") is None
