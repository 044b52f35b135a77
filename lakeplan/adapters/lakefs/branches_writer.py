"""Deleting and making branches, and marking their repository, on a connection that allows nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakeplan.adapters.lakefs.client import connection_of
from lakeplan.adapters.lakefs.secret import Credentials
from lakeplan.adapters.lakefs.transport import Clock, Connection, RetryPolicy, Timeouts, Transport
from lakeplan.model.branches import LiveBranch
from lakeplan.model.desired import ServerConfig

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
    """``lakeplan.ports.branches.BranchWriter`` over HTTP."""

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
