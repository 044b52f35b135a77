"""Branches over HTTP, read only: hidden ones, what is staged on them, pull requests from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone

from lakeplan.errors import DataGone, FeatureMissing, NotFound, RepositoryNotFound
from lakeplan.lakefs import answers
from lakeplan.lakefs.answers import PAGE, Fields, Malformed, check_globs, list_all, parse_json, parse_list
from lakeplan.lakefs.client import connection_of
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import READS, Clock, Connection, RetryPolicy, Timeouts, Transport
from lakeplan.values.branches import LiveBranch, PullRequest, StagedChange, StagedData
from lakeplan.values.desired import ServerConfig

_EMPTY_RANGE = frozenset({416})


def connect_branch_reader(
    server: ServerConfig,
    credentials: Credentials,
    *,
    timeouts: Timeouts | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> LakeFSBranchReader:
    """A reader of branches; no request is made yet, and none but GET ever."""
    return LakeFSBranchReader(connection_of(server, credentials, timeouts, retries, clock, READS))


class LakeFSBranchReader:
    """``lakeplan.lakefs.protocols.BranchReader``. May be used from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._transport = Transport(connection)

    def __repr__(self) -> str:
        server = self._transport.connection
        return f"LakeFSBranchReader({server.name!r}, {server.endpoint!r})"

    def list_live(self, repository: str) -> list[LiveBranch]:
        every = {b.id: b.commit_id for b in self._list(repository, "true")}
        # Read second: a branch made between the two is in neither answer's difference.
        shown = {b.id for b in self._list(repository, "false")}
        return [LiveBranch(name, head, name not in shown) for name, head in sorted(every.items())]

    def _list(self, repository: str, hidden: str) -> Iterator[LiveBranch]:
        return list_all(
            *(self._transport, "repositories", repository, "branches"),
            parse=lambda fields: LiveBranch(fields.name("id"), fields.name("commit_id")),
            operation="list branches",
            repository=repository,
            params={"show_hidden": hidden},
        )

    def find_branch(self, repository: str, branch_id: str) -> str | None:
        operation = "read a branch"
        try:
            response = self._transport.request(
                *("GET", "repositories", repository, "branches", branch_id),
                operation=operation,
                repository=repository,
            )
        except RepositoryNotFound:
            raise
        except NotFound:
            return None
        branch = parse_json(
            response,
            answers.branch_of,
            transport=self._transport,
            operation=operation,
            repository=repository,
        )
        return branch.commit_id

    def staged(self, repository: str, branch_id: str) -> StagedData:
        operation = "read uncommitted changes"
        response = self._transport.request(
            *("GET", "repositories", repository, "branches", branch_id, "diff"),
            operation=operation,
            repository=repository,
            params={"amount": str(PAGE)},
        )
        return parse_json(
            response, _staged_of, transport=self._transport, operation=operation, repository=repository
        )

    def written_at(self, repository: str, branch_id: str, path: str) -> datetime | None:
        operation = "read when an object was written"
        try:
            response = self._transport.request(
                *("GET", "repositories", repository, "refs", branch_id, "objects", "stat"),
                operation=operation,
                repository=repository,
                params={"path": path, "user_metadata": "false"},
            )
        except RepositoryNotFound:
            raise
        except NotFound:
            return None
        seconds = parse_json(
            response,
            lambda fields: fields.seconds("mtime"),
            transport=self._transport,
            operation=operation,
            repository=repository,
        )
        return datetime.fromtimestamp(seconds, tz=timezone.utc)

    def open_pulls(self, repository: str) -> Iterator[PullRequest]:
        try:
            yield from list_all(
                *(self._transport, "repositories", repository, "pulls"),
                parse=_pull_of,
                operation="list pull requests",
                repository=repository,
                params={"status": "open"},
            )
        except FeatureMissing:
            return  # a server from before pull requests has none

    def protected_patterns(self, repository: str) -> Iterator[str]:
        operation = "read the branch protection rules"
        response = self._transport.request(
            *("GET", "repositories", repository, "settings", "branch_protection"),
            operation=operation,
            repository=repository,
        )

        def parse(rules: list[Fields]) -> list[str]:
            patterns = [rule.glob("pattern") for rule in rules]
            check_globs(patterns, "the list")
            return patterns

        found = parse_list(
            response,
            parse,
            transport=self._transport,
            operation=operation,
            repository=repository,
        )
        return iter(found)

    def metadata(self, repository: str) -> Mapping[str, str]:
        operation = "read the repository's metadata"
        try:
            response = self._transport.request(
                *("GET", "repositories", repository, "metadata"), operation=operation, repository=repository
            )
        except FeatureMissing:
            return {}  # a server from before it
        return parse_json(
            response,
            lambda fields: {key: fields.text(key) for key in fields.data},
            transport=self._transport,
            operation=operation,
            repository=repository,
        )

    def readable_sample(self, repository: str, commit_id: str, count: int) -> tuple[int, int]:
        """One byte of each: HEAD and stat answer 200 for collected data too (api.md)."""
        operation = "list objects of a commit"
        response = self._transport.request(
            *("GET", "repositories", repository, "refs", commit_id, "objects", "ls"),
            operation=operation,
            repository=repository,
            params={"amount": str(count), "user_metadata": "false"},
        )
        paths = parse_json(
            response,
            lambda fields: [Fields.of(item).name("path") for item in fields.items("results")],
            transport=self._transport,
            operation=operation,
            repository=repository,
        )
        return len(paths), sum(not self._readable(repository, commit_id, path) for path in paths)

    def _readable(self, repository: str, commit_id: str, path: str) -> bool:
        try:
            self._transport.request(
                *("GET", "repositories", repository, "refs", commit_id, "objects"),
                operation="read an object",
                repository=repository,
                params={"path": path},
                headers={"Range": "bytes=0-0"},
                accept=_EMPTY_RANGE,
            )
        except DataGone:
            return False
        return True


def _staged_of(fields: Fields) -> StagedData:
    found = []
    for item in fields.items("results"):
        change = Fields.of(item)
        found.append(StagedChange(change.name("path"), change.name("type"), change.integer("size_bytes", 0)))
    return StagedData(tuple(found), Fields.of(fields.data.get("pagination")).flag("has_more"))


def _pull_of(fields: Fields) -> PullRequest:
    if fields.text("status") not in ("open", "OPEN"):
        raise Malformed(f"a pull request is {fields.text('status')}, though open ones were asked for")
    return PullRequest(
        fields.name("id"),
        fields.name("source_branch"),
        fields.name("destination_branch"),
        fields.text("title", ""),
    )
