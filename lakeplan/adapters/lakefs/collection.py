"""What a mark asks of a server, on a connection of its own: uncommitted addresses, and the grace period."""

from __future__ import annotations

import re

from lakeplan.adapters.lakefs.answers import Fields, parse_json
from lakeplan.adapters.lakefs.client import connection_of
from lakeplan.adapters.lakefs.secret import Credentials
from lakeplan.adapters.lakefs.transport import Clock, Connection, RetryPolicy, Timeouts, Transport
from lakeplan.errors import FeatureMissing, NotFound, PermissionDenied, RepositoryNotFound, UnexpectedAnswer
from lakeplan.model.desired import ServerConfig
from lakeplan.ports.sweep import UncommittedRun

PREPARE_ONLY = re.compile(r"POST /repositories/[^/]+/gc/prepare_uncommited|GET /config/garbage-collection")
OPERATION = "prepare uncommitted addresses"
MAX_PAGES = 1_000_000
BRANCH_TRIES = 4


def connect_preparer(
    server: ServerConfig,
    credentials: Credentials,
    *,
    timeouts: Timeouts | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> LakeFSPreparer:
    """No request is made yet."""
    return LakeFSPreparer(connection_of(server, credentials, timeouts, retries, clock, PREPARE_ONLY))


class LakeFSPreparer:
    """``lakeplan.ports.sweep.UncommittedPreparer`` over HTTP."""

    def __init__(self, connection: Connection) -> None:
        self._transport = Transport(connection)

    def __repr__(self) -> str:
        server = self._transport.connection
        return f"LakeFSPreparer({server.name!r}, {server.endpoint!r})"

    def prepare_uncommitted(self, repository: str) -> tuple[UncommittedRun, ...]:
        """Asks until no continuation token comes back (api.md, "GC preparation"). The server fails when a
        branch is deleted while it lists them: then from the beginning again."""
        tries = BRANCH_TRIES
        while True:
            tries -= 1
            try:
                return self._prepare(repository)
            except NotFound as error:
                if isinstance(error, RepositoryNotFound) or "branch" not in error.message:
                    raise
                if not tries:
                    error.hint = "Run the command again: branches were deleted meanwhile."
                    raise

    def _prepare(self, repository: str) -> tuple[UncommittedRun, ...]:
        runs: dict[UncommittedRun, None] = {}
        token = ""
        for _ in range(MAX_PAGES):
            response = self._transport.request(
                *("POST", "repositories", repository, "gc", "prepare_uncommited"),
                operation=OPERATION,
                repository=repository,
                body={"continuation_token": token} if token else {},
                repeatable=True,  # each answer names a run of its own; one that nobody names is never read
                retry_timeouts=False,
            )
            run, after = parse_json(
                response, _answer, transport=self._transport, operation=OPERATION, repository=repository
            )
            runs[run] = None
            if not after:
                return tuple(runs)
            if after == token:
                break
            token = after
        raise UnexpectedAnswer(
            f"cannot {OPERATION}: the continuation tokens do not end",
            status=response.status_code,
            where=self._transport.where(repository),
            hint="see the server's log",
        )

    def grace_period_seconds(self) -> int | None:
        operation = "read the grace period"
        try:
            response = self._transport.request("GET", "config", "garbage-collection", operation=operation)
        except (FeatureMissing, NotFound, PermissionDenied):
            return None
        seconds = parse_json(
            response,
            lambda fields: fields.integer("grace_period", 0),
            transport=self._transport,
            operation=operation,
        )
        return seconds if seconds > 0 else None


def _answer(fields: Fields) -> tuple[UncommittedRun, str]:
    """``gc_uncommitted_location`` is "" where nothing is staged. An answer without it says nothing."""
    token = fields.data.get("continuation_token")
    location = fields.text("gc_uncommitted_location")
    return UncommittedRun(fields.name("run_id"), location), fields.text("continuation_token") if token else ""
