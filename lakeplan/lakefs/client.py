"""The readers of one server: repositories, rules, policies, refs dumps, branches and their contents."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import TypeVar

from lakeplan import limits
from lakeplan.errors import (
    DataGone,
    FeatureMissing,
    NotFound,
    PermissionDenied,
    RepositoryNotFound,
    ServerUnreachable,
)
from lakeplan.lakefs import answers
from lakeplan.lakefs.answers import (
    COMMIT_ID_DIGITS,
    PAGE,
    Fields,
    LakeFSMetadata,
    Malformed,
    check_globs,
    check_read_as_branch,
    checked_glob,
    date_of,
    find,
    list_all,
    page_of,
    parse_json,
    read,
    read_list,
    unexpected,
)
from lakeplan.lakefs.transport import READS, Adapter, Call, Connection, Transport, of_repository
from lakeplan.values.branches import LiveBranch, PullRequest, StagedChange, StagedData
from lakeplan.values.desired import ObjectRule, Policy, SettingItem, SettingKind, Stored
from lakeplan.values.pins import PREFIX, has_pin_commit, may_be_pin
from lakeplan.values.repository import Branch, Commit, RefsDumpIds, Repository, ServerIdentity, Tag
from lakeplan.values.rules import GcRules

OPERATION = "dump the refs"
STATUS_OPERATION = "read the state of the refs dump"
READ_REPOSITORY = "read the repository"

TOO_MUCH_AT_ONCE = frozenset({405, 408, 413, 501, 502, 504})
"""Statuses of the direct request after which a task is started: not offered, too large, or a time-out."""

FIRST_POLL = 0.5
LONGEST_POLL = 5.0
LONGEST_DUMP = 3600.0


def dump_refs(transport: Transport, repository: str) -> RefsDumpIds:
    """Request a dump of all commits, branches and tags, wait for it, and return its ids. They come from the
    response, because the manifest in the store may be of an older dump (lakefs/api.md)."""
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
                f"cannot {OPERATION}: the dump did not finish within {LONGEST_DUMP / 60:.0f} minutes",
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
        problem = f"the server reported an error: {status}"
        call = replace(call, operation=OPERATION)
        raise unexpected(transport, call, response, problem, "Check the server's log.")
    return status


def _status(fields: Fields) -> RefsDumpIds | str | None:
    """Return the ids of a dump that is done, its error as text, or None while it runs."""
    if problem := fields.text("error", ""):
        return " ".join(problem.split())[:300]
    if not fields.flag("done"):
        return None
    if "refs" not in fields.data:
        raise Malformed("the dump is complete, but the response does not contain the ids of its metaranges")
    return answers.dump_ids_of(Fields.of(fields.data["refs"]))


T = TypeVar("T", bound=SettingItem)
Named = TypeVar("Named", Repository, Branch)

PATHS = {
    SettingKind.BRANCH_LIFECYCLE: ("settings", "branch_lifecycle", "policies"),
    SettingKind.OBJECT_LIFECYCLE: ("settings", "object_lifecycle"),
}
_NO_RULES = re.compile(r"cannot [^:]*: not found")
_UNSET = re.compile(r"cannot [^:]*: (.*(polic|rule|lifecycle)[^:]*:? )?not found")
"""The message of a 404 for a setting that is not set (lakefs/api.md). Any other 404 is an error."""


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
        values = tuple(parse(Fields.of(item)) for item in fields.items(kind.items_key))
        check_globs([pattern for item in values for pattern in patterns_of(item)])
        return values

    items = parse_json(transport, call, response, parse_items)
    return Stored(items or None, response.headers.get("ETag", "").strip())


def policy_of(fields: Fields) -> Policy:
    """Return a policy as the API has it (in seconds). Raises Malformed for one without patterns or
    thresholds."""
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
        raise Malformed(f"expire_after_days is {days}, but must be at least 1")
    return ObjectRule(
        id=fields.name("id"),
        branches=_globs(fields, "branches"),
        prefix=fields.text("prefix"),
        expire_after_days=days,
        description=_optional(fields, "description"),
    )


def _globs(fields: Fields, name: str) -> tuple[str, ...]:
    items = fields.items(name)
    texts = tuple(checked_glob(text, name) for text in items if isinstance(text, str) and text)
    if not texts or len(texts) != len(items):
        raise Malformed(f"{name} must be a non-empty list of names")
    return texts


def _seconds(fields: Fields, name: str) -> int | None:
    if fields.data.get(name) is None:
        return None
    seconds = fields.integer(name)
    if seconds < 1:
        raise Malformed(f"{name} is {seconds}, but must be at least 1")
    return seconds


def _optional(fields: Fields, name: str) -> str:
    return "" if fields.data.get(name) is None else fields.text(name)


READS_AND_DUMPS = re.compile(r"GET .*|PUT /repositories/[^/]+/refs/dump|POST /repositories/[^/]+/dump")
"""The requests of a reader. A plan's only request that is not a GET is the refs dump."""


class _Reader(Adapter):
    """The requests that both readers of a server make."""

    def metadata(self, repository: str) -> Mapping[str, str]:
        """Return the key-value map of a repository, which is empty on servers that do not have it."""
        call = of_repository("GET", repository, "metadata", operation="read the repository's metadata")
        try:
            return read(self._transport, call, lambda fields: {key: fields.text(key) for key in fields.data})
        except FeatureMissing:
            return {}

    def _branches(self, repository: str, prefix: str = "", *, hidden: bool) -> Iterator[Branch]:
        params = {**_prefix(prefix), "show_hidden": "true" if hidden else "false"}
        call = of_repository("GET", repository, "branches", operation="list branches", params=params)
        return list_all(self._transport, call, answers.branch_of)

    def _live(self, repository: str, prefix: str = "") -> list[LiveBranch]:
        """Return the branches with their hidden flag, sorted by id."""
        heads = {b.id: b.commit_id for b in self._branches(repository, prefix, hidden=True)}
        # Read second: a branch that is created in between must not look hidden.
        visible = {b.id for b in self._branches(repository, prefix, hidden=False)} if heads else set()
        return [LiveBranch(name, head, name not in visible) for name, head in sorted(heads.items())]

    @contextmanager
    def _reading(self, branch: str, call: Call) -> Iterator[None]:
        """Raise UnexpectedAnswer if the server may have read the name of a branch as a commit. It is checked
        before and after the call, because a new commit may have such an id."""
        check_read_as_branch(self._transport, call.repository or "", branch, call.operation)
        yield
        check_read_as_branch(self._transport, call.repository or "", branch, call.operation)


class LakeFSServer(_Reader):
    """Implements ``LakeFSReader`` over HTTP. May be used from several threads."""

    _ALLOWED = READS_AND_DUMPS

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._lock = threading.Lock()
        self._presigning: dict[str, bool] | None = None

    @property
    def name(self) -> str:
        return self._transport.connection.name

    def identify(self) -> ServerIdentity:
        """Return the version, edition and clock. The clock is from the ``Date`` header (whole seconds), which
        a proxy may have set. Raises ServerError."""
        call = Call("GET", ("config", "version"), "read the server's version")
        response = self._transport.request(call)
        version, context = parse_json(
            *(self._transport, call, response),
            lambda fields: (fields.text("version"), fields.text("version_context", "")),
        )
        return ServerIdentity(version, context, date_of(response))

    def server_time(self, repository: str) -> datetime | None:
        response = self._transport.request(of_repository("GET", repository, operation=READ_REPOSITORY))
        return date_of(response)

    def list_repositories(self, prefix: str = "") -> Iterator[Repository]:
        call = Call("GET", ("repositories",), "list repositories", params=_prefix(prefix))
        return list_all(self._transport, call, answers.repository_of)

    def get_repository(self, repository: str) -> Repository:
        call = of_repository("GET", repository, operation=READ_REPOSITORY)
        stored = find(self._transport, call, _about(repository, answers.repository_of))
        if stored is None:
            raise RepositoryNotFound(
                "the repository does not exist",
                where=self._transport.where(repository),
                hint="Check the repository's name and server.",
            )
        return stored

    def get_gc_rules(self, repository: str) -> GcRules | None:
        call = of_repository("GET", repository, "settings", "gc_rules", operation="read the GC rules")
        return find(self._transport, call, answers.rules_of, missing=_NO_RULES)

    def get_policies(self, repository: str) -> Stored[Policy]:
        return _read(self._transport, repository, SettingKind.BRANCH_LIFECYCLE, policy_of)

    def get_object_rules(self, repository: str) -> Stored[ObjectRule]:
        return _read(self._transport, repository, SettingKind.OBJECT_LIFECYCLE, object_rule_of)

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
        return self._live(repository, PREFIX)

    def list_tags(self, repository: str) -> Iterator[Tag]:
        call = of_repository("GET", repository, "tags", operation="list tags")
        return list_all(self._transport, call, answers.tag_of)

    def get_commit(self, repository: str, commit_id: str) -> Commit:
        return answers.read_commit(self._transport, repository, commit_id)

    def log_commits(self, repository: str, ref: str) -> Iterator[Commit]:
        call = of_repository("GET", repository, "refs", ref, "commits", operation="list commits")
        if len(ref) != COMMIT_ID_DIGITS:
            check_read_as_branch(self._transport, repository, ref, call.operation)
        return list_all(self._transport, call, answers.commit_of, most=limits.LISTED_COMMITS)

    def dump_refs(self, repository: str) -> RefsDumpIds:
        return dump_refs(self._transport, repository)

    def list_uncommitted(self, repository: str, branch: str, prefix: str = "") -> Iterator[str]:
        """Implements ``StagingReader``."""
        call = of_repository(
            *("GET", repository, "branches", branch, "diff"),
            operation="list uncommitted changes",
            params=_prefix(prefix),
        )
        changes = list_all(self._transport, call, _change_of, most=limits.LISTED_CHANGES)
        return (change.path for change in changes if change.kind != "removed")

    def physical_address(self, repository: str, branch: str, path: str) -> str | None:
        """Implements ``StagingReader``."""
        call = of_repository(
            *("GET", repository, "refs", branch, "objects", "stat"),
            operation="read an object's address",
            params={"path": path},
        )
        with self._reading(branch, call):
            return find(self._transport, call, lambda fields: fields.name("physical_address"))

    def list_addresses(self, repository: str, branch: str) -> Iterator[str]:
        """See ``StagingReader``."""
        call = of_repository(
            *("GET", repository, "refs", branch, "objects", "ls"),
            operation="list the objects of a branch",
            params={"user_metadata": "false"},
        )
        with self._reading(branch, call):
            yield from list_all(self._transport, call, lambda fields: fields.name("physical_address"))

    def metadata_reader(self, repository: str) -> LakeFSMetadata:
        """Return a reader, whose connection can only GET. Reads the repository and, once per server, the
        configuration, which says whether the store offers presigned URLs."""
        info = self.get_repository(repository)
        presign = self._offers_presigned_urls(info.storage_id)
        connection = replace(self._transport.connection, allowed=re.compile(r"GET .*"))
        return LakeFSMetadata(connection, repository, info.storage_namespace, presign=presign)

    def _offers_presigned_urls(self, storage_id: str) -> bool:
        with self._lock:
            if self._presigning is None:
                call = Call("GET", ("config",), "read the server's configuration")
                try:
                    self._presigning = read(self._transport, call, _presigning)
                except (FeatureMissing, PermissionDenied):
                    self._presigning = {}  # files are streamed
            return self._presigning.get(storage_id, False)


def _presigning(fields: Fields) -> dict[str, bool]:
    """Return which storages presign, by id. ``storage_config`` is the only store ("") or the default one."""
    support: dict[str, bool] = {}
    if fields.data.get("storage_config") is not None:
        single = Fields.of(fields.data["storage_config"])
        support[single.text("blockstore_id", "")] = single.flag("pre_sign_support", False)
    for item in fields.items("storage_config_list") if "storage_config_list" in fields.data else []:
        store = Fields.of(item)
        support[store.text("blockstore_id", "")] = store.flag("pre_sign_support", False)
    return support


def _prefix(prefix: str) -> dict[str, str]:
    return {"prefix": prefix} if prefix else {}


_EMPTY_RANGE = frozenset({416})


class LakeFSBranchReader(_Reader):
    """``lakeplan.lakefs.protocols.BranchReader``, by GET only. May be used from several threads."""

    _ALLOWED = READS

    def list_live(self, repository: str) -> list[LiveBranch]:
        return [branch for branch in self._live(repository) if not may_be_pin(branch)]

    def find_branch(self, repository: str, branch_id: str) -> str | None:
        call = of_repository("GET", repository, "branches", branch_id, operation="read a branch")
        branch = find(self._transport, call, _about(branch_id, answers.branch_of))
        return None if branch is None else branch.commit_id

    def staged(self, repository: str, branch_id: str) -> StagedData:
        call = of_repository(
            *("GET", repository, "branches", branch_id, "diff"),
            operation="read uncommitted changes",
            params={"amount": str(PAGE)},
        )
        return read(self._transport, call, _staged_of)

    def written_at(self, repository: str, branch_id: str, path: str) -> datetime | None:
        call = of_repository(
            *("GET", repository, "refs", branch_id, "objects", "stat"),
            operation="read the modification time of an object",
            params={"path": path, "user_metadata": "false"},
        )
        with self._reading(branch_id, call):
            seconds = find(self._transport, call, lambda fields: fields.seconds("mtime"))
        return None if seconds is None else datetime.fromtimestamp(seconds, tz=timezone.utc)

    def open_pulls(self, repository: str) -> Iterator[PullRequest]:
        params = {"status": "open"}
        call = of_repository("GET", repository, "pulls", operation="list pull requests", params=params)
        try:
            yield from list_all(self._transport, call, _pull_of)
        except FeatureMissing:
            return  # the server is older than pull requests

    def protected_patterns(self, repository: str) -> Iterator[str]:
        def parse(rules: list[Fields]) -> list[str]:
            patterns = [rule.glob("pattern") for rule in rules]
            check_globs(patterns)
            return patterns

        path, operation = ("settings", "branch_protection"), "read the branch protection rules"
        call = of_repository("GET", repository, *path, operation=operation)
        return iter(read_list(self._transport, call, parse))

    def readable_sample(self, repository: str, commit_id: str, count: int) -> tuple[int, int]:
        """Implements ``BranchReader``. Reads one byte of each: HEAD and stat return 200 for collected data
        too."""
        call = of_repository(
            *("GET", repository, "refs", commit_id, "objects", "ls"),
            operation="list the objects of a commit",
            params={"amount": str(count), "user_metadata": "false"},
        )
        paths = read(
            self._transport,
            call,
            lambda fields: page_of(fields, lambda item: item.name("path")).results,
        )
        return len(paths), sum(not self.readable(repository, commit_id, path) for path in paths)

    def readable(self, repository: str, commit_id: str, path: str) -> bool:
        """Implements ``ObjectPinger``."""
        call = of_repository(
            *("GET", repository, "refs", commit_id, "objects"),
            operation="read an object",
            params={"path": path},
            headers={"Range": "bytes=0-0"},
            accept=_EMPTY_RANGE,
        )
        try:
            self._transport.request(call)
        except DataGone:
            return False
        return True


def _about(id: str, parse: Callable[[Fields], Named]) -> Callable[[Fields], Named]:
    """Return ``parse``, which then raises Malformed for the response to another request."""

    def parse_own(fields: Fields) -> Named:
        if (value := parse(fields)).id != id:
            raise Malformed(f"the response describes {value.id[:100]!r}, not {id!r}")
        return value

    return parse_own


def _staged_of(fields: Fields) -> StagedData:
    page = page_of(fields, _change_of)
    return StagedData(tuple(page.results), page.has_more)


def _change_of(fields: Fields) -> StagedChange:
    return StagedChange(fields.name("path"), fields.name("type"), fields.integer("size_bytes", 0))


def _pull_of(fields: Fields) -> PullRequest:
    if fields.text("status") not in ("open", "OPEN"):
        raise Malformed(
            f"the server returned a pull request with the status {fields.text('status')}, but only open"
            " ones were requested"
        )
    return PullRequest(
        fields.name("id"),
        fields.name("source_branch"),
        fields.name("destination_branch"),
        fields.text("title", ""),
    )
