"""Parses responses of lakeFS, and reads ranges and metaranges. A body that differs from the API is an error.
Presigned URLs may lead only to the repository's storage."""

from __future__ import annotations

import email.utils
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Generic, TypeVar
from urllib.parse import unquote, urljoin

import requests

from lakeplan import limits
from lakeplan.errors import NotFound, RepositoryNotFound, UnexpectedAnswer
from lakeplan.lakefs.protocols import MetadataKind
from lakeplan.lakefs.transport import (
    CHERRY_PICKED,
    Call,
    Connection,
    NoAuth,
    Timeouts,
    Transport,
    new_session,
    of_repository,
    read_whole,
)
from lakeplan.values.bodies import TooSlow, within
from lakeplan.values.records import LAST_SECOND, nearest_us
from lakeplan.values.repository import Branch, Commit, RefsDumpIds, Repository, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.units import number_of
from lakeplan.values.urls import (
    BUCKET_SCHEMES,
    BadUrl,
    WebUrl,
    parse_bucket_url,
    parse_signed_url,
    parse_web_url,
    scheme_of,
    storage_of,
)

T = TypeVar("T")
PAGE = 1000
"""The largest page that a server returns (lakefs/api.md)."""

_FIRST_SECOND = -62135596800
"""The beginning of the year 1."""

_LARGEST = 2**63

ANY_MESSAGE = re.compile(".*", re.DOTALL)

HEX = frozenset("0123456789abcdef")


class Malformed(Exception):
    """A body differs from the API. ``_parsed`` turns it into UnexpectedAnswer."""


@dataclass(frozen=True)
class Fields:
    """A JSON object, read field by field."""

    data: Mapping[str, object]

    @classmethod
    def of(cls, value: object) -> Fields:
        if not isinstance(value, dict):
            raise Malformed(f"expected an object, but the value is {_kind(value)}")
        return cls(value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.data.get(name, default)
        if not isinstance(value, str):
            raise Malformed(f"{name} is {_kind(value)}, not a string")
        return value

    def name(self, name: str) -> str:
        if not (value := self.text(name)):
            raise Malformed(f"{name} is empty")
        return _bounded(value, name)

    def glob(self, name: str) -> str:
        """Return a pattern that names are compared with."""
        return checked_glob(self.name(name), name)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.data.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Malformed(f"{name} is {_kind(value)}, not an integer")
        if abs(value) >= _LARGEST:
            raise Malformed(f"{name} is a number that is too large")
        return value

    def seconds(self, name: str) -> int:
        """Return a moment in seconds since the epoch."""
        if not _FIRST_SECOND <= (value := self.integer(name)) <= LAST_SECOND:
            raise Malformed(f"{name} is {value}, which is not a valid time in seconds")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self.data.get(name, default)
        if not isinstance(value, bool):
            raise Malformed(f"{name} is {_kind(value)}, not true or false")
        return value

    def items(self, name: str) -> list[object]:
        """Return a list. ``null`` is an empty one, as Go servers write it (lakefs/api.md)."""
        if name not in self.data:
            raise Malformed(f"{name} is missing")
        value = self.data[name]
        if value is None:
            return []
        if not isinstance(value, list):
            raise Malformed(f"{name} is {_kind(value)}, not a list")
        return value


def read(transport: Transport, call: Call, parse: Callable[[Fields], T]) -> T:
    """Return ``parse`` of the response's fields. Raises UnexpectedAnswer if it is not JSON of that shape."""
    return parse_json(transport, call, transport.request(call), parse)


def find(
    transport: Transport, call: Call, parse: Callable[[Fields], T], *, missing: re.Pattern[str] = ANY_MESSAGE
) -> T | None:
    """Return the same as ``read``, or None if the repository exists and the requested thing does not.
    ``missing`` matches the server's message for that. Any other 404 is an error."""
    try:
        return read(transport, call, parse)
    except RepositoryNotFound:
        raise
    except NotFound as error:
        if missing.fullmatch(error.message):
            return None
        raise


def parse_json(
    transport: Transport, call: Call, response: requests.Response, parse: Callable[[Fields], T]
) -> T:
    """Return ``parse`` of the fields of a response that was received."""
    return _parsed(transport, call, response, lambda body: parse(Fields.of(body)))


def checked_glob(pattern: str, name: str) -> str:
    """Return the pattern. Raises Malformed if it is longer than a pattern of a tree may be."""
    if len(pattern) > limits.GLOB_CHARACTERS:
        raise Malformed(f"{name} exceeds the limit of {limits.GLOB_CHARACTERS:,} characters")
    return pattern


def check_globs(patterns: Sequence[str]) -> None:
    """Raise Malformed for a list with more patterns, or longer ones, than can be compared in short time."""
    if len(patterns) > limits.GLOBS:
        raise Malformed(f"the list exceeds the limit of {limits.GLOBS:,} patterns")
    if sum(map(len, patterns)) > limits.SERVER_GLOB_CHARACTERS:
        raise Malformed(
            f"the patterns in the list exceed the limit of {limits.SERVER_GLOB_CHARACTERS:,}"
            " characters in total"
        )


def read_list(transport: Transport, call: Call, parse: Callable[[list[Fields]], T]) -> T:
    """Return the same as ``read``, for a response that is a list without pages."""

    def parse_items(body: object) -> T:
        return parse([Fields.of(item) for item in Fields({"": body}).items("")])

    return _parsed(transport, call, transport.request(call), parse_items)


def _parsed(transport: Transport, call: Call, response: requests.Response, parse: Callable[[object], T]) -> T:
    try:
        try:
            body = limits.parse_json(response.content)
        except limits.TooLarge as error:
            raise Malformed(f"the response was refused: {error}") from None
        except ValueError:
            kind = response.headers.get("Content-Type", "").partition(";")[0] or "of an unknown type"
            raise Malformed(f"the response is {kind}, not JSON") from None
        return parse(body)
    except Malformed as error:
        hint = "Check that endpoint_url points to a lakeFS server, and check any proxies in between."
        raise unexpected(transport, call, response, str(error), hint) from None


def unexpected(
    transport: Transport, call: Call, response: requests.Response, problem: str, hint: str
) -> UnexpectedAnswer:
    """Return the error of a response with an unexpected body."""
    return UnexpectedAnswer(
        f"cannot {call.operation}: {problem}",
        status=response.status_code,
        where=transport.where(call.repository),
        hint=hint,
    )


def list_all(
    transport: Transport, call: Call, parse: Callable[[Fields], T], *, most: int = limits.LISTED
) -> Iterator[T]:
    """Yield all results of a listing, page by page. An incomplete page, or one that does not say where the
    next begins, is an error: the data of a branch that a listing omits would look unneeded. More than
    ``most`` results are an error too, and a listing that does not end."""
    clock = transport.connection.clock
    progress = _ListingProgress(most, clock.monotonic())
    call = replace(call, params={**call.params, "amount": str(PAGE)})
    while True:
        response = transport.request(call)
        page = parse_json(transport, call, response, lambda fields: page_of(fields, parse))
        yield from page.results
        if not page.has_more:
            return
        if fault := progress.fault(page, response.content, clock.monotonic()):
            hint = "Check that endpoint_url points to a lakeFS server. See docs/limits.md for the limits."
            raise unexpected(transport, call, response, fault, hint)
        call = replace(call, params={**call.params, "after": page.next_offset})


def date_of(response: requests.Response) -> datetime | None:
    """Return the ``Date`` of a response, in UTC, to the second, or None if it has none."""
    try:
        moment = email.utils.parsedate_to_datetime(response.headers.get("Date", ""))
        if moment.tzinfo is None:
            return moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


class _ListingProgress:
    """The total size of the pages of a listing."""

    def __init__(self, most: int, started: float) -> None:
        self._most, self._started = most, started
        self._most_bytes = limits.LISTING_BYTES * max(1, most // limits.LISTED)
        self._listed = self._bytes = 0
        self._offsets = {hash("")}

    def fault(self, page: Page[T], body: bytes, now: float) -> str:
        """Return why no further page is requested, or "" if nothing is wrong."""
        self._listed += len(page.results)
        self._bytes += limits.memory_of_text(body) * (4 if b"\\u" in body else 1)
        if not page.next_offset:
            return "the listing has more pages, but the response does not contain the offset of the next page"
        if hash(page.next_offset) in self._offsets:
            return "the server referred back to an earlier page, so the listing would never end"
        self._offsets.add(hash(page.next_offset))
        if self._listed > self._most or len(self._offsets) > self._most // 1000 + limits.EMPTY_PAGES:
            return (
                f"the server kept returning more pages after {self._listed:,} entries, without reaching the"
                " end of the listing"
            )
        if self._bytes > self._most_bytes:
            most = limits.size_text(self._most_bytes)
            return f"the {self._listed:,} entries of the listing take more memory than the limit of {most}"
        if now - self._started > limits.LISTING_SECONDS:
            return (
                "the server did not reach the end of the listing within the time limit of"
                f" {limits.LISTING_SECONDS / 3600:g} hours"
            )
        return ""


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of a listing."""

    results: list[T]
    has_more: bool
    next_offset: str


def page_of(fields: Fields, parse: Callable[[Fields], T]) -> Page[T]:
    """Return a page. Raises Malformed also for one that lacks results."""
    pagination = Fields.of(fields.data.get("pagination"))
    results = fields.items("results")
    if len(results) > limits.PAGE_ITEMS:
        raise Malformed(f"a page exceeds the limit of {limits.PAGE_ITEMS:,} results")
    if pagination.integer("results", len(results)) != len(results):
        raise Malformed(
            f"the page has {len(results)} results, but its pagination states {pagination.integer('results')}"
        )
    return Page(
        [parse(Fields.of(item)) for item in results],
        pagination.flag("has_more"),
        _bounded(pagination.text("next_offset", ""), "next_offset"),
    )


def repository_of(fields: Fields) -> Repository:
    return Repository(
        id=fields.name("id"),
        storage_namespace=fields.text("storage_namespace"),
        default_branch=fields.text("default_branch"),
        creation_date=fields.seconds("creation_date"),
        storage_id=fields.text("storage_id", ""),
        read_only=fields.flag("read_only", False),
    )


def rules_of(fields: Fields) -> GcRules:
    """Return the rules as stored, even invalid ones. The last rule of a branch counts, as on the server."""
    branches: dict[str, int] = {}
    for item in fields.items("branches"):
        rule = Fields.of(item)
        branches[rule.text("branch_id")] = rule.integer("retention_days")
    return GcRules(fields.integer("default_retention_days"), branches)


def branch_of(fields: Fields) -> Branch:
    """Return a branch. Only Enterprise servers return the two dates; 0 is a date that the server does not
    know."""
    return Branch(
        fields.name("id"),
        fields.name("commit_id"),
        _moment(fields, "creation_date"),
        _moment(fields, "update_date"),
    )


def _moment(fields: Fields, name: str) -> int | None:
    seconds = 0 if fields.data.get(name) is None else fields.integer(name)
    if seconds > LAST_SECOND:
        raise Malformed(f"{name} is {seconds}, which is not a valid time in seconds")
    return seconds if seconds > 0 else None


def tag_of(fields: Fields) -> Tag:
    return Tag(fields.name("id"), fields.name("commit_id"))


def commit_of(fields: Fields) -> Commit:
    """Return a commit. ``creation_date`` has whole seconds. A refs dump has fractions (lakefs/format.md)."""
    parents = tuple(_commit_id(parent) for parent in fields.items("parents"))
    if len(parents) > 1 and "version" not in fields.data:
        # The version decides which parent retention walks along; a guess could expire a kept commit.
        raise Malformed("a merge commit has no `version`, so its main parent is unknown")
    return Commit(
        id=fields.name("id"),
        creation_us=nearest_us(fields.integer("creation_date") * 1_000_000),
        meta_range_id=fields.text("meta_range_id"),
        parents=parents,
        version=fields.integer("version", 1),
        generation=fields.integer("generation", 0),
        message=fields.text("message", ""),
        committer=fields.text("committer", ""),
    )


def read_commit(transport: Transport, repository: str, commit_id: str) -> Commit:
    """Return a commit. Raises NotFound, also if the server answers with another one (lakefs/api.md)."""
    call = of_repository("GET", repository, "commits", commit_id, operation="read a commit")
    commit = read(transport, call, commit_of)
    if len(commit_id) == len(commit.id) and commit_id != commit.id:
        raise NotFound(
            f"cannot {call.operation}: the server returned commit {commit.id} instead of {commit_id}",
            where=transport.where(repository),
            hint=CHERRY_PICKED,
        )
    return commit


COMMIT_ID_DIGITS = 64


def check_read_as_branch(transport: Transport, repository: str, branch: str, operation: str) -> None:
    """Raise UnexpectedAnswer if the server reads the name of this branch as a commit. In the paths of commits
    and objects, the unique beginning of a commit id comes before a branch with that name on servers before
    0.87, and no request returns the branch's uncommitted objects (lakefs/api.md)."""
    name = branch.lower()
    if not name or len(name) > COMMIT_ID_DIGITS or not set(name) <= HEX:
        return
    call = of_repository("GET", repository, "commits", branch, operation=operation)
    commit = find(transport, call, commit_of)
    if commit is not None and commit.id.startswith(name):
        raise UnexpectedAnswer(
            f"cannot {operation}: the server may read the branch name {branch} as the id of commit"
            f" {commit.id[:16]}",
            status=200,
            where=transport.where(repository),
            hint="Commit the changes on the branch. Create a branch with another name from the full id of its"
            " HEAD, check that both have the same objects, and only then delete the original branch.",
        )


def dump_ids_of(fields: Fields) -> RefsDumpIds:
    return RefsDumpIds(
        commits_meta_range_id=_meta_range_id(fields, "commits_meta_range_id"),
        branches_meta_range_id=_meta_range_id(fields, "branches_meta_range_id"),
        tags_meta_range_id=_meta_range_id(fields, "tags_meta_range_id"),
    )


def _meta_range_id(fields: Fields, name: str) -> str:
    value = fields.text(name)
    if not set(value) <= HEX or (value and len(value) != 64):
        raise Malformed(f"{name} is not a metarange id")
    return value


def _commit_id(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Malformed(f"a parent is {_kind(value)}, not a commit id")
    return value


def _bounded(value: str, name: str) -> str:
    if len(value) > limits.KEY_BYTES:
        raise Malformed(f"{name} exceeds the limit of {limits.KEY_BYTES:,} characters")
    return value


def _kind(value: object) -> str:
    if value is None:
        return "missing or null"
    return {dict: "an object", list: "a list", str: "a string", bool: "a flag", int: "a number"}.get(
        type(value), "something else"
    )


def may_follow(target: str, *, server: str, namespace: str, bound: Sequence[str] = ()) -> bool:
    """Return whether a redirect to ``target`` leads to the storage of ``namespace``: the server, a bound
    storage address (``bound``), or the vendor's host for this bucket or account, by HTTPS."""
    try:
        signed = parse_signed_url(target)
        places = [parse_web_url(url) for url in (server, *bound) if scheme_of(url) in ("http", "https")]
        bucket = _bucket(namespace)
    except BadUrl:
        return False
    for place in places:
        hosts = (place.host, f"{bucket}.{place.host}") if bucket else (place.host,)
        if any(signed.origin == replace(place, host=host).origin for host in hosts):
            return True
    return signed.scheme == "https" and signed.port is None and _is_vendors(signed, target, namespace, bucket)


def _is_vendors(url: WebUrl, target: str, namespace: str, bucket: str) -> bool:
    kind = storage_of(namespace)
    if kind is None or kind.hosts is None:
        return False
    if not bucket:
        try:
            place = parse_web_url(namespace)
        except BadUrl:
            return False
        return url.origin == place.origin and kind.hosts.fullmatch(place.host) is not None
    parts = [unquote(part) for part in re.split(r"[?#]", target.partition("://")[2])[0].split("/")]
    if "." in parts or ".." in parts:
        # Programs remove such parts before the request, and would request another bucket.
        return False
    first = parts[1] if len(parts) > 1 else ""
    match = kind.hosts.fullmatch(url.host)
    return match is not None and (match["bucket"] or first) == bucket


def _bucket(namespace: str) -> str:
    """Return the bucket of a namespace, or "" if it has none."""
    if scheme_of(namespace) not in BUCKET_SCHEMES:
        return ""
    return parse_bucket_url(namespace, BUCKET_SCHEMES).bucket


log = logging.getLogger(__name__)

OPERATION = "read metadata"
REDIRECTS = frozenset({302, 303, 307})


class LakeFSMetadata:
    """Implements ``MetadataReader`` of one repository. May be used from several threads.

    A pickle has the credentials, which ``repr`` and ``str`` do not show. It is for the Spark workers of this
    run only.

    With ``presign`` the server redirects to a signed URL of the object store, which is read without the
    lakeFS credentials, and only from the storage of ``namespace`` (``may_follow``). If that fails, the server
    streams the file. If the store cannot be reached from here, the server streams later files too.
    """

    def __init__(self, connection: Connection, repository: str, namespace: str, presign: bool) -> None:
        self._transport = Transport(connection)
        self._repository = repository
        self._namespace = namespace
        self._presign = presign
        self._local = threading.local()

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._transport.connection, self._repository, self._namespace, self._presign))

    def __repr__(self) -> str:
        server = self._transport.connection
        return f"LakeFSMetadata({server.name!r}, {server.endpoint!r}, {self._repository!r})"

    def read_metadata(self, kind: MetadataKind, id: str) -> bytes:
        if self._presign and (data := self._read_presigned(kind, id)) is not None:
            return data
        response = self._get(kind, id, presign=False)
        return self._whole(response)

    def _get(self, kind: MetadataKind, id: str, *, presign: bool) -> requests.Response:
        return self._transport.request(
            of_repository(
                *("GET", self._repository, "metadata", "object", kind, id),
                operation=OPERATION,
                params={"presign": "true"} if presign else {},
                limit=limits.TABLE_BYTES,
                timeouts=self._timeouts,
                accept=REDIRECTS if presign else frozenset(),
            )
        )

    def _read_presigned(self, kind: MetadataKind, id: str) -> bytes | None:
        """Return the file, read by a signed URL, or None if it has to be streamed."""
        answer = self._get(kind, id, presign=True)
        if answer.status_code not in REDIRECTS:
            return self._whole(answer)  # the server streams if it does not know the parameter
        location = answer.headers.get("Location", "")[: limits.URL_CHARACTERS + 1]
        target = _target(answer.url, location)
        server = self._transport.connection
        if not may_follow(target, server=server.endpoint, namespace=self._namespace, bound=server.storage):
            log.debug("a presigned URL does not point to the storage; reading through the server instead")
            return None
        session, timeouts = self._store(), self._timeouts
        try:
            response = within(timeouts.total, lambda: _fetch(session, target, timeouts))
            if response.status_code == 200 and _complete(response):
                return response.content
            reason = f"returned status {response.status_code} or incomplete data"
        except (TooSlow, limits.TooLarge) as error:
            self._local.session, self._presign = None, False
            reason = f"sent too much data, or sent it too slowly: {error}"
        except (requests.ConnectionError, requests.Timeout) as error:
            self._presign = False
            reason = f"cannot be reached ({type(error).__name__})"
        except requests.RequestException as error:
            reason = f"cannot be requested ({type(error).__name__})"
        log.debug("a presigned URL %s; reading through the server instead", reason)
        return None

    def _whole(self, response: requests.Response) -> bytes:
        if response.status_code != 200 or not _complete(response):
            status = response.status_code
            what = "an incomplete file" if status == 200 else f"status {status}"
            raise UnexpectedAnswer(
                f"cannot {OPERATION}: the server returned {what}",
                status=status,
                where=self._transport.where(self._repository),
                hint="Run the command again.",
            )
        return response.content

    @property
    def _timeouts(self) -> Timeouts:
        """The limits for a file, which may take longer than a response of the API."""
        given = self._transport.connection.timeouts
        return replace(given, total=max(given.total, limits.FILE_SECONDS))

    def _store(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = new_session()
        return session


def _target(url: str, location: str) -> str:
    """Return the target of a redirect, or "" if it is not a URL."""
    try:
        return urljoin(url, location)
    except ValueError:
        return ""


def _complete(response: requests.Response) -> bool:
    """Return whether all announced bytes were received. The length of a decoded body is not known."""
    announced = response.headers.get("Content-Length", "")
    if not announced.isdecimal() or response.headers.get("Content-Encoding"):
        return True
    return len(response.content) == number_of(announced)


def _fetch(session: requests.Session, url: str, timeouts: Timeouts) -> requests.Response:
    """Send one request, without credentials and without following redirects."""
    response = session.get(
        url, auth=NoAuth(), timeout=(timeouts.connect, timeouts.read), allow_redirects=False, stream=True
    )
    read_whole(response, limits.TABLE_BYTES, time.monotonic)
    return response
