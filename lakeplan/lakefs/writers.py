"""The writes of an apply and of branch deletion, each on a connection of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lakeplan.errors import PermissionDenied, ReadOnlyRepository
from lakeplan.lakefs.client import LIST, PATHS, connection_of
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import Clock, Connection, RetryPolicy, Timeouts, Transport
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import ServerConfig
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import SettingItem, SettingKind, item_body

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
    """``lakeplan.lakefs.protocols.GcRulesWriter`` over HTTP. The server validates nothing (api.md): what is
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


SETTINGS_ONLY = re.compile(
    r"GET /repositories/[^/]+/settings/branch_lifecycle/set_allowed"
    r"|(PUT|DELETE) /repositories/[^/]+/settings/(branch_lifecycle/policies|object_lifecycle)"
)
"""All that the writer's connection lets through."""


def connect_settings_writer(
    server: ServerConfig,
    credentials: Credentials,
    *,
    timeouts: Timeouts | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> LakeFSSettingsWriter:
    """A writer of policies and object rules on one server; no request is made yet."""
    return LakeFSSettingsWriter(connection_of(server, credentials, timeouts, retries, clock, SETTINGS_ONLY))


class LakeFSSettingsWriter:
    """``lakeplan.lakefs.protocols.SettingsWriter`` over HTTP."""

    def __init__(self, connection: Connection) -> None:
        self._transport = Transport(connection)

    def __repr__(self) -> str:
        server = self._transport.connection
        return f"LakeFSSettingsWriter({server.name!r}, {server.endpoint!r})"

    def can_set(self, repository: str, kind: SettingKind) -> bool:
        if kind is not SettingKind.BRANCH_LIFECYCLE:
            return True  # there is no preflight: the write itself is refused
        try:
            self._transport.request(
                *("GET", "repositories", repository, "settings", "branch_lifecycle", "set_allowed"),
                operation=f"ask whether {kind.label} may be set",
                repository=repository,
            )
        except (PermissionDenied, ReadOnlyRepository):
            return False
        return True

    def set_items(
        self, repository: str, kind: SettingKind, items: Sequence[SettingItem], *, if_match: str
    ) -> None:
        self._transport.request(
            *("PUT", "repositories", repository, *PATHS[kind]),
            operation=f"set the {kind.label}",
            repository=repository,
            # An empty If-Match is refused (400); what is unset has no ETag to match.
            headers={"If-Match": if_match} if if_match else None,
            body={LIST[kind]: [item_body(item) for item in items]},
        )

    def delete_items(self, repository: str, kind: SettingKind) -> None:
        self._transport.request(
            *("DELETE", "repositories", repository, *PATHS[kind]),
            operation=f"delete the {kind.label}",
            repository=repository,
        )


BRANCHES_ONLY = re.compile(
    r"DELETE /repositories/[^/]+/branches/[^/]+|POST /repositories/[^/]+/(branches|metadata)"
)


def connect_branch_writer(
    server: ServerConfig,
    credentials: Credentials,
    *,
    timeouts: Timeouts | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> LakeFSBranchWriter:
    """A writer of branches on one server; no request is made yet."""
    return LakeFSBranchWriter(connection_of(server, credentials, timeouts, retries, clock, BRANCHES_ONLY))


class LakeFSBranchWriter:
    """``lakeplan.lakefs.protocols.BranchWriter`` over HTTP."""

    def __init__(self, connection: Connection) -> None:
        self._transport = Transport(connection)

    def __repr__(self) -> str:
        server = self._transport.connection
        return f"LakeFSBranchWriter({server.name!r}, {server.endpoint!r})"

    def delete_branch(self, repository: str, branch_id: str) -> None:
        self._transport.request(
            *("DELETE", "repositories", repository, "branches", branch_id),
            operation="delete a branch",
            repository=repository,
        )

    def create_branch(self, repository: str, branch: LiveBranch) -> None:
        self._transport.request(
            *("POST", "repositories", repository, "branches"),
            operation="create a branch",
            repository=repository,
            body={"name": branch.id, "source": branch.commit_id, "hidden": branch.hidden},
        )

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None:
        self._transport.request(
            *("POST", "repositories", repository, "metadata"),
            operation="set the repository's metadata",
            repository=repository,
            body={"metadata": dict(values)},
        )
