"""Credentials, unknown routes and what a server tells about itself."""

from __future__ import annotations

import pytest


class DescribeCredentials:
    def it_refuses_a_request_without_any(self, server):
        answer = server.call("GET", "/repositories", auth=None)
        assert (answer.status_code, answer.json()) == (401, {"message": "error authenticating request"})

    def it_refuses_an_unknown_key(self, server):
        assert server.call("GET", "/repositories", auth=("nobody", "secret")).status_code == 401

    def it_refuses_a_wrong_secret(self, server):
        assert server.call("GET", "/repositories", auth=(server.auth[0], "wrong")).status_code == 401

    def it_does_not_ask_for_them_on_the_health_check(self, server):
        assert server.call("GET", "/healthcheck", auth=None).status_code == 204


class DescribeUnknownRoutes:
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "/nothing/here"),
            ("POST", "/config/version"),
            ("PUT", "/repositories/a/settings/gc_rules/"),
        ],
    )
    def it_answers_404_by_a_message_of_its_own(self, server, method, path):
        answer = server.call(method, path)
        assert (answer.status_code, answer.json()) == (404, {"message": "invalid API endpoint"})

    def it_says_so_before_it_looks_at_credentials(self, server):
        answer = server.call("GET", "/nothing/here", auth=None)
        assert answer.json() == {"message": "invalid API endpoint"}


class DescribeConfig:
    def it_tells_version_and_flavour(self, server):
        body = server.call("GET", "/config/version").json()
        assert body["version"]
        assert body["version_context"].startswith("lakeFS")

    def it_tells_storage_and_version_together(self, server):
        body = server.call("GET", "/config").json()
        assert body["storage_config"]["blockstore_type"]
        assert body["version_config"] == server.call("GET", "/config/version").json()

    def it_tells_the_grace_period_of_the_collector(self, server):
        answer = server.call("GET", "/config/garbage-collection")
        assert (answer.status_code, answer.json()) == (200, {"grace_period": 86400})
