"""Writing branch lifecycle policies and object lifecycle rules, on a connection of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lakeplan.adapters.lakefs.client import connection_of
from lakeplan.adapters.lakefs.policies import LIST, PATHS
from lakeplan.adapters.lakefs.secret import Credentials
from lakeplan.adapters.lakefs.transport import Clock, Connection, RetryPolicy, Timeouts, Transport
from lakeplan.errors import PermissionDenied, ReadOnlyRepository
from lakeplan.model.desired import ServerConfig
from lakeplan.model.settings import SettingItem, SettingKind, item_body

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
    """``lakeplan.ports.policies.SettingsWriter`` over HTTP."""

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
