"""The reader of one server: repositories, rules, policies and refs dumps."""

from __future__ import annotations

import dataclasses
import email.utils
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import TypeVar

from lakeplan import limits
from lakeplan.errors import (
    FeatureMissing,
    NotFound,
    PermissionDenied,
    RepositoryNotFound,
    ServerUnreachable,
    UnexpectedAnswer,
)
from lakeplan.lakefs import answers
from lakeplan.lakefs.answers import Fields, Malformed, check_globs, checked_glob, list_all, parse_json
from lakeplan.lakefs.credentials import Credentials, normalise_endpoint
from lakeplan.lakefs.metadata import LakeFSMetadata
from lakeplan.lakefs.transport import Clock, Connection, RetryPolicy, Timeouts, Transport
from lakeplan.values.desired import ServerConfig
from lakeplan.values.repository import Branch, Commit, RefsDumpIds, Repository, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import ObjectRule, Policy, SettingItem, SettingKind, Stored

OPERATION = "dump the refs"
STATUS_OPERATION = "read the state of the refs dump"

TOO_MUCH_AT_ONCE = frozenset({405, 408, 413, 501, 502, 504})
"""Answers to the short way after which the task is tried: not offered, too large, or a gateway's time-out."""

FIRST_POLL = 0.5
LONGEST_POLL = 5.0
LONGEST_DUMP = 3600.0


def dump_refs(transport: Transport, repository: str) -> RefsDumpIds:
    """Asks for a dump of all commits, branches and tags, and waits for it. The ids are those that the answer
    names, never those of a manifest in the store, which may be of an older dump (api.md)."""
    try:
        response = transport.request(
            *("PUT", "repositories", repository, "refs", "dump"),
            operation=OPERATION,
            repository=repository,
            accept=TOO_MUCH_AT_ONCE,
            repeatable=True,  # a dump writes new files only
            retry_timeouts=False,
        )
    except FeatureMissing:
        return _dump_by_task(transport, repository)
    except ServerUnreachable as error:
        if error.detail != "ReadTimeout":
            raise
        return _dump_by_task(transport, repository)
    if response.status_code in TOO_MUCH_AT_ONCE:
        return _dump_by_task(transport, repository)
    return parse_json(
        response, answers.dump_ids_of, transport=transport, operation=OPERATION, repository=repository
    )


def _dump_by_task(transport: Transport, repository: str) -> RefsDumpIds:
    response = transport.request(
        *("POST", "repositories", repository, "dump"),
        operation=OPERATION,
        repository=repository,
        repeatable=True,  # a second task costs the server time and changes nothing
    )
    task = parse_json(
        response,
        lambda fields: fields.name("id"),
        transport=transport,
        operation=OPERATION,
        repository=repository,
    )
    clock = transport.connection.clock
    deadline = clock.monotonic() + LONGEST_DUMP
    pause = FIRST_POLL
    while (ids := _poll(transport, repository, task)) is None:
        if clock.monotonic() >= deadline:
            raise ServerUnreachable(
                f"cannot {OPERATION}: not done after {LONGEST_DUMP / 60:.0f} minutes",
                where=transport.where(repository),
                hint="see the server's log",
            )
        clock.sleep(pause)
        pause = min(LONGEST_POLL, pause * 1.5)
    return ids


def _poll(transport: Transport, repository: str, task: str) -> RefsDumpIds | None:
    response = transport.request(
        *("GET", "repositories", repository, "dump"),
        operation=STATUS_OPERATION,
        repository=repository,
        params={"task_id": task},
    )
    status = parse_json(
        response, _status, transport=transport, operation=STATUS_OPERATION, repository=repository
    )
    if isinstance(status, str):
        raise UnexpectedAnswer(
            f"cannot {OPERATION}: the server says: {status}",
            status=response.status_code,
            where=transport.where(repository),
            hint="see the server's log",
        )
    return status


def _status(fields: Fields) -> RefsDumpIds | str | None:
    """The ids when it is done, what went wrong as text, or None while it runs."""
    if problem := fields.text("error", ""):
        return " ".join(problem.split())[:300]
    if not fields.flag("done"):
        return None
    if "refs" not in fields.data:
        raise Malformed("the dump is done and names no ids")
    return answers.dump_ids_of(Fields.of(fields.data["refs"]))


T = TypeVar("T", bound=SettingItem)

PATHS = {
    SettingKind.BRANCH_LIFECYCLE: ("settings", "branch_lifecycle", "policies"),
    SettingKind.OBJECT_LIFECYCLE: ("settings", "object_lifecycle"),
}
LIST = {SettingKind.BRANCH_LIFECYCLE: "policies", SettingKind.OBJECT_LIFECYCLE: "rules"}
_UNSET = re.compile(r"cannot [^:]*: (.*(polic|rule|lifecycle)[^:]*:? )?not found")
"""A 404 that says the setting is not there. Any other 404 must not pass for "nothing set"."""


def read_policies(transport: Transport, repository: str) -> Stored[Policy]:
    return _read(transport, repository, SettingKind.BRANCH_LIFECYCLE, policy_of)


def read_object_rules(transport: Transport, repository: str) -> Stored[ObjectRule]:
    return _read(transport, repository, SettingKind.OBJECT_LIFECYCLE, object_rule_of)


def patterns_of(item: SettingItem) -> tuple[str, ...]:
    return item.patterns if isinstance(item, Policy) else item.branches


def _read(
    transport: Transport, repository: str, kind: SettingKind, parse: Callable[[Fields], T]
) -> Stored[T]:
    operation = f"read the {kind.label}"
    try:
        response = transport.request(
            *("GET", "repositories", repository, *PATHS[kind]), operation=operation, repository=repository
        )
    except RepositoryNotFound:
        raise
    except NotFound as error:
        if _UNSET.fullmatch(error.message):
            return Stored(None)
        raise

    def parse_items(fields: Fields) -> tuple[T, ...]:
        found = tuple(parse(Fields.of(item)) for item in fields.items(LIST[kind]))
        check_globs([pattern for item in found for pattern in patterns_of(item)], "the list")
        return found

    items = parse_json(
        response,
        parse_items,
        transport=transport,
        operation=operation,
        repository=repository,
    )
    return Stored(items or None, response.headers.get("ETag", "").strip())


def policy_of(fields: Fields) -> Policy:
    """One policy in wire form (seconds). What the server stores is taken as it is, but must be a policy: one
    without patterns or thresholds would be judged as something it is not."""
    patterns = _globs(fields, "name_patterns")
    max_age, max_idle = _seconds(fields, "max_age"), _seconds(fields, "max_inactivity_time")
    if max_age is None and max_idle is None:
        raise Malformed("a policy has neither max_age nor max_inactivity_time")
    return Policy(
        _optional(fields, "id") or None, patterns, max_age, max_idle, _optional(fields, "description")
    )


def object_rule_of(fields: Fields) -> ObjectRule:
    days = fields.integer("expire_after_days")
    if days < 1:
        raise Malformed(f"expire_after_days is {days}")
    return ObjectRule(
        id=fields.name("id"),
        branches=_globs(fields, "branches"),
        prefix=fields.text("prefix"),
        expire_after_days=days,
        description=_optional(fields, "description"),
    )


def _globs(fields: Fields, name: str) -> tuple[str, ...]:
    found = fields.items(name)
    texts = tuple(checked_glob(text, name) for text in found if isinstance(text, str) and text)
    if not texts or len(texts) != len(found):
        raise Malformed(f"{name} is not a list of names")
    return texts


def _seconds(fields: Fields, name: str) -> int | None:
    if fields.data.get(name) is None:
        return None
    seconds = fields.integer(name)
    if seconds < 1:
        raise Malformed(f"{name} is {seconds}")
    return seconds


def _optional(fields: Fields, name: str) -> str:
    return "" if fields.data.get(name) is None else fields.text(name)


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
    """``lakeplan.lakefs.protocols.LakeFSReader`` over HTTP. May be used from several threads."""

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
        return read_policies(self._transport, repository)

    def get_object_rules(self, repository: str) -> Stored[ObjectRule]:
        return read_object_rules(self._transport, repository)

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
        return dump_refs(self._transport, repository)

    def list_uncommitted(self, repository: str, branch: str, prefix: str = "") -> Iterator[str]:
        """Paths staged on a branch (``lakeplan.lakefs.protocols.StagingReader``)."""
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
        """Where the object at a path is stored (``lakeplan.lakefs.protocols.StagingReader``)."""
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
