"""The lakeFS reader: everything a plan asks of a server, and nothing that writes but the refs dump."""

from __future__ import annotations

import dataclasses
import email.utils
import re
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from lakeplan import limits
from lakeplan.adapters.lakefs import answers, dump, policies
from lakeplan.adapters.lakefs.answers import Fields, list_all, parse_json
from lakeplan.adapters.lakefs.endpoint import normalise_endpoint
from lakeplan.adapters.lakefs.metadata import LakeFSMetadata
from lakeplan.adapters.lakefs.secret import Credentials
from lakeplan.adapters.lakefs.transport import Clock, Connection, RetryPolicy, Timeouts, Transport
from lakeplan.errors import FeatureMissing, NotFound, PermissionDenied, RepositoryNotFound
from lakeplan.model.desired import ServerConfig
from lakeplan.model.lifecycle import Policy
from lakeplan.model.refs import Branch, Commit, RefsDumpIds, Tag
from lakeplan.model.repository import Repository
from lakeplan.model.rules import GcRules
from lakeplan.model.settings import ObjectRule, Stored

READS_AND_DUMPS = re.compile(r"GET .*|PUT /repositories/[^/]+/refs/dump|POST /repositories/[^/]+/dump")
"""All that a reader's connection lets through: a plan's only request that is not a GET is the refs dump."""


def connect(
    server: ServerConfig,
    credentials: Credentials,
    *,
    timeouts: Timeouts | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
    storage: Sequence[str] = (),
) -> LakeFSServer:
    """A reader of one server; no request is made yet. ``storage``: bound addresses of its storage, which
    presigned URLs may lead to. Raises CredentialsError for a bad endpoint URL."""
    connection = connection_of(server, credentials, timeouts, retries, clock, READS_AND_DUMPS)
    return LakeFSServer(dataclasses.replace(connection, storage=tuple(storage)))


def connection_of(
    server: ServerConfig,
    credentials: Credentials,
    timeouts: Timeouts | None,
    retries: RetryPolicy | None,
    clock: Clock | None,
    allowed: re.Pattern[str],
) -> Connection:
    return Connection(
        name=server.name,
        endpoint=normalise_endpoint(server.endpoint_url, what=f"server {server.name}"),
        credentials=credentials,
        timeouts=timeouts or Timeouts(),
        retries=retries or RetryPolicy(),
        clock=clock or Clock(),
        allowed=allowed,
    )


class LakeFSServer:
    """``lakeplan.ports.lakefs.LakeFSReader`` over HTTP. May be used from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._transport = Transport(connection)
        self._lock = threading.Lock()
        self._presigning: dict[str, bool] | None = None

    @property
    def name(self) -> str:
        return self._transport.connection.name

    def __repr__(self) -> str:
        return f"LakeFSServer({self.name!r}, {self._transport.connection.endpoint!r})"

    def version(self) -> str:
        operation = "read the server's version"
        response = self._transport.request("GET", "config", "version", operation=operation)
        return parse_json(
            response, lambda fields: fields.text("version"), transport=self._transport, operation=operation
        )

    def server_time(self, repository: str) -> datetime | None:
        response = self._transport.request(
            "GET", "repositories", repository, operation="read the repository", repository=repository
        )
        try:
            moment = email.utils.parsedate_to_datetime(response.headers.get("Date", ""))
        except ValueError:
            return None
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)

    def list_repositories(self, prefix: str = "") -> Iterator[Repository]:
        return list_all(
            self._transport,
            "repositories",
            parse=answers.repository_of,
            operation="list repositories",
            params=_prefix(prefix),
        )

    def get_repository(self, repository: str) -> Repository:
        operation = "read the repository"
        try:
            response = self._transport.request(
                "GET", "repositories", repository, operation=operation, repository=repository
            )
        except RepositoryNotFound:
            raise
        except NotFound as error:
            raise self._no_repository(repository) from error
        return parse_json(
            response,
            answers.repository_of,
            transport=self._transport,
            operation=operation,
            repository=repository,
        )

    def get_gc_rules(self, repository: str) -> GcRules | None:
        operation = "read the GC rules"
        try:
            response = self._transport.request(
                *("GET", "repositories", repository, "settings", "gc_rules"),
                operation=operation,
                repository=repository,
            )
        except RepositoryNotFound:
            raise
        except NotFound as error:
            # api.md: unset rules are 404 "not found". Any other 404 must not pass for "no rules".
            if error.message == f"cannot {operation}: not found":
                return None
            raise
        return parse_json(
            response, answers.rules_of, transport=self._transport, operation=operation, repository=repository
        )

    def get_policies(self, repository: str) -> Stored[Policy]:
        return policies.read_policies(self._transport, repository)

    def get_object_rules(self, repository: str) -> Stored[ObjectRule]:
        return policies.read_object_rules(self._transport, repository)

    def list_branches(self, repository: str, prefix: str = "") -> Iterator[Branch]:
        return list_all(
            *(self._transport, "repositories", repository, "branches"),
            parse=answers.branch_of,
            operation="list branches",
            repository=repository,
            params={**_prefix(prefix), "show_hidden": "true"},
        )

    def list_tags(self, repository: str) -> Iterator[Tag]:
        return list_all(
            *(self._transport, "repositories", repository, "tags"),
            parse=answers.tag_of,
            operation="list tags",
            repository=repository,
        )

    def get_commit(self, repository: str, commit_id: str) -> Commit:
        operation = "read a commit"
        response = self._transport.request(
            *("GET", "repositories", repository, "commits", commit_id),
            operation=operation,
            repository=repository,
        )
        return parse_json(
            response, answers.commit_of, transport=self._transport, operation=operation, repository=repository
        )

    def log_commits(self, repository: str, ref: str) -> Iterator[Commit]:
        return list_all(
            *(self._transport, "repositories", repository, "refs", ref, "commits"),
            parse=answers.commit_of,
            operation="list commits",
            most=limits.LISTED_COMMITS,
            repository=repository,
        )

    def dump_refs(self, repository: str) -> RefsDumpIds:
        return dump.dump_refs(self._transport, repository)

    def list_uncommitted(self, repository: str, branch: str, prefix: str = "") -> Iterator[str]:
        """Paths staged on a branch (``lakeplan.ports.lakefs.StagingReader``)."""
        changes = list_all(
            *(self._transport, "repositories", repository, "branches", branch, "diff"),
            parse=answers.change_of,
            most=limits.LISTED_CHANGES,
            operation="list uncommitted changes",
            repository=repository,
            params=_prefix(prefix),
        )
        return (path for path, kind in changes if kind != "removed")

    def physical_address(self, repository: str, ref: str, path: str) -> str | None:
        """Where the object at a path is stored (``lakeplan.ports.lakefs.StagingReader``)."""
        operation = "read an object's address"
        try:
            response = self._transport.request(
                *("GET", "repositories", repository, "refs", ref, "objects", "stat"),
                operation=operation,
                repository=repository,
                params={"path": path},
            )
        except RepositoryNotFound:
            raise
        except NotFound:
            return None  # committed or dropped since it was listed
        return parse_json(
            response,
            lambda fields: fields.name("physical_address"),
            transport=self._transport,
            operation=operation,
            repository=repository,
        )

    def metadata_reader(self, repository: str) -> LakeFSMetadata:
        """Asks for the repository and (once per server) for the configuration, to know whether its store
        offers presigned URLs. The reader's own connection can only GET."""
        found = self.get_repository(repository)
        presign = self._offers_presigned_urls(found.storage_id)
        connection = dataclasses.replace(self._transport.connection, allowed=re.compile(r"GET .*"))
        return LakeFSMetadata(connection, repository, found.storage_namespace, presign=presign)

    def _offers_presigned_urls(self, storage_id: str) -> bool:
        with self._lock:
            if self._presigning is None:
                self._presigning = self._read_presigning()
            return self._presigning.get(storage_id, False)

    def _read_presigning(self) -> dict[str, bool]:
        operation = "read the server's configuration"
        try:
            response = self._transport.request("GET", "config", operation=operation)
        except (FeatureMissing, PermissionDenied):
            return {}  # it streams, then
        return parse_json(response, _presigning, transport=self._transport, operation=operation)

    def _no_repository(self, repository: str) -> RepositoryNotFound:
        return RepositoryNotFound(
            "the repository does not exist",
            where=self._transport.where(repository),
            hint="check its name, and which server it is on",
        )


def _presigning(fields: Fields) -> dict[str, bool]:
    """Storage id to "presigns": ``storage_config`` is the only store ("") or the default one."""
    found: dict[str, bool] = {}
    if fields.data.get("storage_config") is not None:
        single = Fields.of(fields.data["storage_config"])
        found[single.text("blockstore_id", "")] = single.flag("pre_sign_support", False)
    for item in fields.items("storage_config_list") if "storage_config_list" in fields.data else []:
        store = Fields.of(item)
        found[store.text("blockstore_id", "")] = store.flag("pre_sign_support", False)
    return found


def _prefix(prefix: str) -> dict[str, str]:
    return {"prefix": prefix} if prefix else {}
