"""What marks and the doctor ask of a server: uncommitted addresses, grace period, version."""

from __future__ import annotations

import re

from lakeplan.errors import FeatureMissing, NotFound, PermissionDenied, RepositoryNotFound
from lakeplan.lakefs.answers import Fields, date_of, parse_json, read, unexpected
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import (
    Adapter,
    Call,
    Clock,
    RetryPolicy,
    Timeouts,
    Transport,
    connection_of,
    of_repository,
)
from lakeplan.values.desired import ServerConfig
from lakeplan.values.repository import ServerIdentity
from lakeplan.values.sweep import UncommittedRun

PREPARE_ONLY = re.compile(r"POST /repositories/[^/]+/gc/prepare_uncommited|GET /config/garbage-collection")
OPERATION = "prepare uncommitted addresses"
MAX_PAGES = 1_000_000
BRANCH_TRIES = 4


class LakeFSPreparer(Adapter):
    """``lakeplan.simulation.requests.UncommittedPreparer`` over HTTP."""

    _ALLOWED = PREPARE_ONLY

    def prepare_uncommitted(self, repository: str) -> tuple[UncommittedRun, ...]:
        """Asks until no continuation token comes back (lakefs/api.md). The server fails when a
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
                    hint = "Run the command again: branches were deleted meanwhile."
                    raise error.replaced(hint=hint) from error

    def _prepare(self, repository: str) -> tuple[UncommittedRun, ...]:
        runs: dict[UncommittedRun, None] = {}
        token = ""
        for _ in range(MAX_PAGES):
            call = of_repository(
                *("POST", repository, "gc", "prepare_uncommited"),
                operation=OPERATION,
                body={"continuation_token": token} if token else {},
                repeatable=True,  # each answer names a run of its own; one that nobody names is never read
                retry_timeouts=False,
            )
            response = self._transport.request(call)
            run, after = parse_json(self._transport, call, response, _answer)
            runs[run] = None
            if not after:
                return tuple(runs)
            if after == token:
                break
            token = after
        problem = "the continuation tokens do not end"
        raise unexpected(self._transport, call, response, problem, "Check the server's log.")

    def grace_period_seconds(self) -> int | None:
        call = Call("GET", ("config", "garbage-collection"), "read the grace period")
        try:
            seconds = read(self._transport, call, lambda fields: fields.integer("grace_period", 0))
        except (FeatureMissing, NotFound, PermissionDenied):
            return None
        return seconds if seconds > 0 else None


connect_preparer = LakeFSPreparer.connect


def _answer(fields: Fields) -> tuple[UncommittedRun, str]:
    """``gc_uncommitted_location`` is "" where nothing is uncommitted. An answer without it says nothing."""
    token = fields.data.get("continuation_token")
    location = fields.text("gc_uncommitted_location")
    return UncommittedRun(fields.name("run_id"), location), fields.text("continuation_token") if token else ""


VERSION_ONLY = re.compile(r"GET /config/version")


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
    call = Call("GET", ("config", "version"), "read the server's version")
    response = transport.request(call)
    version, context = parse_json(
        *(transport, call, response),
        lambda fields: (fields.text("version"), fields.text("version_context", "")),
    )
    return ServerIdentity(version, context, date_of(response))
