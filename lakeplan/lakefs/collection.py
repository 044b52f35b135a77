"""What marks and the doctor ask of a server: uncommitted addresses, grace period, version."""

from __future__ import annotations

import email.utils
import re
from datetime import datetime, timezone

from lakeplan.errors import FeatureMissing, NotFound, PermissionDenied, RepositoryNotFound, UnexpectedAnswer
from lakeplan.lakefs.answers import Fields, parse_json
from lakeplan.lakefs.client import connection_of
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import Clock, Connection, RetryPolicy, Timeouts, Transport
from lakeplan.values.desired import ServerConfig
from lakeplan.values.repository import ServerIdentity
from lakeplan.values.sweep import UncommittedRun

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
    """``lakeplan.simulation.requests.UncommittedPreparer`` over HTTP."""

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


VERSION_ONLY = re.compile(r"GET /config/version")
PROBE_OPERATION = "read the server's version"


def identify(
    server: ServerConfig,
    credentials: Credentials,
    *,
    timeouts: Timeouts | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> ServerIdentity:
    """Raises ServerError. The clock is that of whatever answered (the ``Date`` header, whole seconds), which
    may be a proxy in front of the server."""
    transport = Transport(connection_of(server, credentials, timeouts, retries, clock, VERSION_ONLY))
    response = transport.request("GET", "config", "version", operation=PROBE_OPERATION)
    version, context = parse_json(
        response,
        lambda fields: (fields.text("version"), fields.text("version_context", "")),
        transport=transport,
        operation=PROBE_OPERATION,
    )
    return ServerIdentity(version, context, _date(response.headers.get("Date", "")))


def _date(text: str) -> datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return found.replace(tzinfo=timezone.utc) if found.tzinfo is None else found
