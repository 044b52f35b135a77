"""The writes that apply makes, on a connection of their own."""

from __future__ import annotations

import re

from lakeplan.adapters.lakefs.client import connection_of
from lakeplan.adapters.lakefs.secret import Credentials
from lakeplan.adapters.lakefs.transport import Clock, Connection, RetryPolicy, Timeouts, Transport
from lakeplan.errors import PermissionDenied, ReadOnlyRepository
from lakeplan.model.desired import ServerConfig
from lakeplan.model.rules import GcRules

RULES_ONLY = re.compile(
    r"GET /repositories/[^/]+/gc/rules/set_allowed|(PUT|DELETE) /repositories/[^/]+/settings/gc_rules"
)


def connect_rules_writer(
    server: ServerConfig,
    credentials: Credentials,
    *,
    timeouts: Timeouts | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> LakeFSRulesWriter:
    """A writer of GC rules on one server; no request is made yet."""
    return LakeFSRulesWriter(connection_of(server, credentials, timeouts, retries, clock, RULES_ONLY))


class LakeFSRulesWriter:
    """``lakeplan.ports.lakefs.GcRulesWriter`` over HTTP. The server validates nothing (api.md): what is
    given here is what gets stored."""

    def __init__(self, connection: Connection) -> None:
        self._transport = Transport(connection)

    def __repr__(self) -> str:
        server = self._transport.connection
        return f"LakeFSRulesWriter({server.name!r}, {server.endpoint!r})"

    def can_set_gc_rules(self, repository: str) -> bool:
        try:
            self._transport.request(
                *("GET", "repositories", repository, "gc", "rules", "set_allowed"),
                operation="ask whether GC rules may be set",
                repository=repository,
            )
        except (PermissionDenied, ReadOnlyRepository):
            return False
        return True

    def set_gc_rules(self, repository: str, rules: GcRules) -> None:
        self._transport.request(
            *("PUT", "repositories", repository, "settings", "gc_rules"),
            operation="set the GC rules",
            repository=repository,
            body=rules.to_body(),
        )

    def delete_gc_rules(self, repository: str) -> None:
        self._transport.request(
            *("DELETE", "repositories", repository, "settings", "gc_rules"),
            operation="delete the GC rules",
            repository=repository,
        )
