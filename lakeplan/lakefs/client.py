"""The reader of one server: repositories, rules, policies and refs dumps."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from lakeplan import limits
from lakeplan.errors import (
    FeatureMissing,
    NotFound,
    PermissionDenied,
    RepositoryNotFound,
    ServerUnreachable,
)
from lakeplan.lakefs import answers
from lakeplan.lakefs.answers import (
    Fields,
    Malformed,
    check_globs,
    checked_glob,
    date_of,
    find,
    list_all,
    parse_json,
    read,
    unexpected,
)
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.metadata import LakeFSMetadata
from lakeplan.lakefs.transport import (
    Adapter,
    Call,
    Clock,
    Connection,
    RetryPolicy,
    Timeouts,
    Transport,
    connection_of,
    of_repository,
)
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import ServerConfig
from lakeplan.values.pins import PREFIX, has_pin_commit
from lakeplan.values.repository import Branch, Commit, RefsDumpIds, Repository, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import ObjectRule, Policy, SettingItem, SettingKind, Stored

OPERATION = "dump the refs"
STATUS_OPERATION = "read the state of the refs dump"
READ_REPOSITORY = "read the repository"

TOO_MUCH_AT_ONCE = frozenset({405, 408, 413, 501, 502, 504})
"""Answers to the short way after which the task is tried: not offered, too large, or a gateway's time-out."""

FIRST_POLL = 0.5
LONGEST_POLL = 5.0
LONGEST_DUMP = 3600.0


def dump_refs(transport: Transport, repository: str) -> RefsDumpIds:
    """Asks for a dump of all commits, branches and tags, and waits for it. The ids are those that the answer
    names, never those of a manifest in the store, which may be of an older dump (lakefs/api.md)."""
    call = of_repository(
        *("PUT", repository, "refs", "dump"),
        operation=OPERATION,
        accept=TOO_MUCH_AT_ONCE,
        repeatable=True,  # a dump writes new files only
        retry_timeouts=False,
    )
    try:
        response = transport.request(call)
    except FeatureMissing:
        return _dump_by_task(transport, repository)
    except ServerUnreachable as error:
        if error.detail != "ReadTimeout":
            raise
        return _dump_by_task(transport, repository)
    if response.status_code in TOO_MUCH_AT_ONCE:
        return _dump_by_task(transport, repository)
    return parse_json(transport, call, response, answers.dump_ids_of)


def _dump_by_task(transport: Transport, repository: str) -> RefsDumpIds:
    # A second task costs the server time and changes nothing.
    begin = of_repository("POST", repository, "dump", operation=OPERATION, repeatable=True)
    task = read(transport, begin, lambda fields: fields.name("id"))
    clock = transport.connection.clock
    deadline = clock.monotonic() + LONGEST_DUMP
    pause = FIRST_POLL
    while (ids := _poll(transport, repository, task)) is None:
        if clock.monotonic() >= deadline:
            raise ServerUnreachable(
                f"cannot {OPERATION}: not done after {LONGEST_DUMP / 60:.0f} minutes",
                where=transport.where(repository),
                hint="Check the server's log.",
            )
        clock.sleep(pause)
        pause = min(LONGEST_POLL, pause * 1.5)
    return ids


def _poll(transport: Transport, repository: str, task: str) -> RefsDumpIds | None:
    call = of_repository("GET", repository, "dump", operation=STATUS_OPERATION, params={"task_id": task})
    response = transport.request(call)
    status = parse_json(transport, call, response, _status)
    if isinstance(status, str):
        problem = f"the server says: {status}"
        call = replace(call, operation=OPERATION)
        raise unexpected(transport, call, response, problem, "Check the server's log.")
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
    call = of_repository("GET", repository, *PATHS[kind], operation=f"read the {kind.label}")
    try:
        response = transport.request(call)
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

    items = parse_json(transport, call, response, parse_items)
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
    return LakeFSServer(replace(connection, storage=tuple(storage)))


class LakeFSServer(Adapter):
    """``lakeplan.lakefs.protocols.LakeFSReader`` over HTTP. May be used from several threads."""

    _ALLOWED = READS_AND_DUMPS

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._lock = threading.Lock()
        self._presigning: dict[str, bool] | None = None

    @property
    def name(self) -> str:
        return self._transport.connection.name

    def version(self) -> str:
        call = Call("GET", ("config", "version"), "read the server's version")
        return read(self._transport, call, lambda fields: fields.text("version"))

    def server_time(self, repository: str) -> datetime | None:
        response = self._transport.request(of_repository("GET", repository, operation=READ_REPOSITORY))
        return date_of(response)

    def list_repositories(self, prefix: str = "") -> Iterator[Repository]:
        call = Call("GET", ("repositories",), "list repositories", params=_prefix(prefix))
        return list_all(self._transport, call, answers.repository_of)

    def get_repository(self, repository: str) -> Repository:
        call = of_repository("GET", repository, operation=READ_REPOSITORY)
        found = find(self._transport, call, answers.repository_of)
        if found is None:
            raise RepositoryNotFound(
                "the repository does not exist",
                where=self._transport.where(repository),
                hint="Check its name and its server.",
            )
        return found

    def get_gc_rules(self, repository: str) -> GcRules | None:
        call = of_repository("GET", repository, "settings", "gc_rules", operation="read the GC rules")
        try:
            return read(self._transport, call, answers.rules_of)
        except RepositoryNotFound:
            raise
        except NotFound as error:
            # lakefs/api.md: unset rules are 404 "not found". Any other 404 must not pass for "no rules".
            if error.message == f"cannot {call.operation}: not found":
                return None
            raise

    def get_policies(self, repository: str) -> Stored[Policy]:
        return read_policies(self._transport, repository)

    def get_object_rules(self, repository: str) -> Stored[ObjectRule]:
        return read_object_rules(self._transport, repository)

    def list_branches(self, repository: str, prefix: str = "") -> Iterator[Branch]:
        visible: set[str] | None = None
        for branch in self._branches(repository, prefix, hidden=True):
            if has_pin_commit(branch.id, branch.commit_id):
                if visible is None:
                    visible = {b.id for b in self._branches(repository, PREFIX, hidden=False)}
                if branch.id not in visible:
                    continue
            yield branch

    def list_pins(self, repository: str) -> list[LiveBranch]:
        every = [(b.id, b.commit_id) for b in self._branches(repository, PREFIX, hidden=True)]
        # Read second: a branch made between the two is in neither answer's difference.
        visible = {b.id for b in self._branches(repository, PREFIX, hidden=False)} if every else set()
        return [LiveBranch(name, head, name not in visible) for name, head in sorted(every)]

    def _branches(self, repository: str, prefix: str, *, hidden: bool) -> Iterator[Branch]:
        params = {**_prefix(prefix), "show_hidden": "true" if hidden else "false"}
        call = of_repository("GET", repository, "branches", operation="list branches", params=params)
        return list_all(self._transport, call, answers.branch_of)

    def list_tags(self, repository: str) -> Iterator[Tag]:
        call = of_repository("GET", repository, "tags", operation="list tags")
        return list_all(self._transport, call, answers.tag_of)

    def get_commit(self, repository: str, commit_id: str) -> Commit:
        call = of_repository("GET", repository, "commits", commit_id, operation="read a commit")
        return read(self._transport, call, answers.commit_of)

    def log_commits(self, repository: str, ref: str) -> Iterator[Commit]:
        call = of_repository("GET", repository, "refs", ref, "commits", operation="list commits")
        return list_all(self._transport, call, answers.commit_of, most=limits.LISTED_COMMITS)

    def dump_refs(self, repository: str) -> RefsDumpIds:
        return dump_refs(self._transport, repository)

    def list_uncommitted(self, repository: str, branch: str, prefix: str = "") -> Iterator[str]:
        """Paths staged on a branch (``lakeplan.lakefs.protocols.StagingReader``)."""
        call = of_repository(
            *("GET", repository, "branches", branch, "diff"),
            operation="list uncommitted changes",
            params=_prefix(prefix),
        )
        changes = list_all(self._transport, call, answers.change_of, most=limits.LISTED_CHANGES)
        return (path for path, kind in changes if kind != "removed")

    def physical_address(self, repository: str, ref: str, path: str) -> str | None:
        """Where the object at a path is stored (``lakeplan.lakefs.protocols.StagingReader``); None when it
        was committed or dropped since it was listed."""
        call = of_repository(
            *("GET", repository, "refs", ref, "objects", "stat"),
            operation="read an object's address",
            params={"path": path},
        )
        return find(self._transport, call, lambda fields: fields.name("physical_address"))

    def metadata(self, repository: str) -> Mapping[str, str]:
        return repository_metadata(self._transport, repository)

    def metadata_reader(self, repository: str) -> LakeFSMetadata:
        """Asks for the repository and (once per server) for the configuration, to know whether its store
        offers presigned URLs. The reader's own connection can only GET."""
        found = self.get_repository(repository)
        presign = self._offers_presigned_urls(found.storage_id)
        connection = replace(self._transport.connection, allowed=re.compile(r"GET .*"))
        return LakeFSMetadata(connection, repository, found.storage_namespace, presign=presign)

    def _offers_presigned_urls(self, storage_id: str) -> bool:
        with self._lock:
            if self._presigning is None:
                self._presigning = self._read_presigning()
            return self._presigning.get(storage_id, False)

    def _read_presigning(self) -> dict[str, bool]:
        try:
            call = Call("GET", ("config",), "read the server's configuration")
            return read(self._transport, call, _presigning)
        except (FeatureMissing, PermissionDenied):
            return {}  # it streams, then


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


def repository_metadata(transport: Transport, repository: str) -> Mapping[str, str]:
    """The key-value map that a repository carries. A server from before it has none."""
    call = of_repository("GET", repository, "metadata", operation="read the repository's metadata")
    try:
        return read(transport, call, lambda fields: {key: fields.text(key) for key in fields.data})
    except FeatureMissing:
        return {}


def _prefix(prefix: str) -> dict[str, str]:
    return {"prefix": prefix} if prefix else {}
