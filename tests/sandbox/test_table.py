"""The routing table."""

from __future__ import annotations

from collections import Counter

from lakeplan.sandbox.server import router_of, routes_of


def test_no_route_stands_twice():
    counts = Counter((r.method, r.pattern) for r in routes_of("enterprise"))
    assert set(counts.values()) == {1}


def test_enterprise_has_more_and_nothing_less():
    oss = {(r.method, r.pattern) for r in routes_of("oss")}
    enterprise = {(r.method, r.pattern) for r in routes_of("enterprise")}
    assert oss < enterprise
    assert all("lifecycle" in pattern for _, pattern in enterprise - oss)


def test_parts_of_a_path_are_decoded_after_they_were_told_apart():
    route, params = router_of("oss").find("GET", "/api/v1/repositories/a/branches/x%2Fy%20z")
    assert route.pattern == "/repositories/{repository}/branches/{branch}"
    assert params == {"repository": "a", "branch": "x/y z"}


def test_a_path_outside_the_api_has_no_route():
    assert router_of("oss").find("GET", "/repositories") is None
    assert router_of("oss").find("PATCH", "/api/v1/repositories") is None
