"""Parsing of lakeFS answers. Nothing is assumed: a body that is not what the API says is an error."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Generic, TypeVar

import requests

from lakeplan import limits
from lakeplan.errors import NotFound, RepositoryNotFound, UnexpectedAnswer
from lakeplan.lakefs.transport import Call, Transport
from lakeplan.values.repository import Branch, Commit, RefsDumpIds, Repository, Tag
from lakeplan.values.rules import GcRules

T = TypeVar("T")
PAGE = 1000
"""The largest page a server gives (lakefs/api.md)."""

_FIRST_SECOND, _LAST_SECOND = -62135596800, 253402300799
"""The years 1 and 9999."""

_LARGEST = 2**63

ANY_MESSAGE = re.compile(".*", re.DOTALL)

HEX = frozenset("0123456789abcdef")


class Malformed(Exception):
    """A body is not what the API says; becomes UnexpectedAnswer with server and repository."""


@dataclass(frozen=True)
class Fields:
    """One JSON object, read field by field."""

    data: Mapping[str, object]

    @classmethod
    def of(cls, value: object) -> Fields:
        if not isinstance(value, dict):
            raise Malformed(f"an object was expected, not {_kind(value)}")
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
        """A pattern that names are compared with."""
        return checked_glob(self.name(name), name)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.data.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Malformed(f"{name} is {_kind(value)}, not an integer")
        if abs(value) >= _LARGEST:
            raise Malformed(f"{name} is a number that is too large")
        return value

    def seconds(self, name: str, first: int = _FIRST_SECOND) -> int:
        """A moment in seconds since the epoch."""
        if not first <= (value := self.integer(name)) <= _LAST_SECOND:
            raise Malformed(f"{name} is {value}, which is not a time in seconds")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self.data.get(name, default)
        if not isinstance(value, bool):
            raise Malformed(f"{name} is {_kind(value)}, not true or false")
        return value

    def items(self, name: str) -> list[object]:
        """A list; ``null`` is an empty one (a Go server writes its empty lists so: lakefs/api.md)."""
        if name not in self.data:
            raise Malformed(f"{name} is missing")
        value = self.data[name]
        if value is None:
            return []
        if not isinstance(value, list):
            raise Malformed(f"{name} is {_kind(value)}, not a list")
        return value


def read(transport: Transport, call: Call, parse: Callable[[Fields], T]) -> T:
    """``parse`` of the answer's fields; UnexpectedAnswer when it is not JSON or not of that shape."""
    return parse_json(transport, call, transport.request(call), parse)


def find(
    transport: Transport, call: Call, parse: Callable[[Fields], T], *, missing: re.Pattern[str] = ANY_MESSAGE
) -> T | None:
    """The same; None where the repository exists and what is requested does not. ``missing``: what the server
    then says. Any other 404 is an error."""
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
    """``read`` of an answer that has come already."""
    return _parsed(transport, call, response, lambda body: parse(Fields.of(body)))


def checked_glob(pattern: str, name: str) -> str:
    """The pattern. Raises Malformed for one that is longer than any that a tree may have."""
    if len(pattern) > limits.GLOB_CHARACTERS:
        raise Malformed(f"{name} has more than {limits.GLOB_CHARACTERS:,} characters")
    return pattern


def check_globs(patterns: Sequence[str], name: str) -> None:
    """Raises Malformed for more patterns, or more of them, than names can be compared with in short time."""
    if len(patterns) > limits.GLOBS:
        raise Malformed(f"{name} has more than {limits.GLOBS:,} patterns")
    if sum(map(len, patterns)) > limits.SERVER_GLOB_CHARACTERS:
        raise Malformed(f"{name} has more than {limits.SERVER_GLOB_CHARACTERS:,} characters in all patterns")


def read_list(transport: Transport, call: Call, parse: Callable[[list[Fields]], T]) -> T:
    """``read`` of an answer that is a list, without pages."""

    def parse_items(body: object) -> T:
        return parse([Fields.of(item) for item in Fields({"": body}).items("")])

    return _parsed(transport, call, transport.request(call), parse_items)


def _parsed(transport: Transport, call: Call, response: requests.Response, parse: Callable[[object], T]) -> T:
    try:
        try:
            body = limits.parse_json(response.content)
        except limits.TooLarge as error:
            raise Malformed(f"of the answer, {error}") from None
        except ValueError:
            kind = response.headers.get("Content-Type", "").partition(";")[0] or "an unnamed kind"
            raise Malformed(f"the answer is {kind}, not JSON") from None
        return parse(body)
    except Malformed as error:
        hint = "Check that endpoint_url is a lakeFS server, and proxies on the way."
        raise unexpected(transport, call, response, str(error), hint) from None


def unexpected(
    transport: Transport, call: Call, response: requests.Response, problem: str, hint: str
) -> UnexpectedAnswer:
    """The error of an answer that came, and says something that it should not."""
    return UnexpectedAnswer(
        f"cannot {call.operation}: {problem}",
        status=response.status_code,
        where=transport.where(call.repository),
        hint=hint,
    )


def list_all(
    transport: Transport, call: Call, parse: Callable[[Fields], T], *, most: int = limits.LISTED
) -> Iterator[T]:
    """Every result of a listing, page by page. A page that is cut short or leads nowhere is an error: a
    branch that a listing lost would look as if nobody kept its data. So is one of more than ``most`` results,
    or one that does not end."""
    clock = transport.connection.clock
    so_far = _SoFar(most, clock.monotonic())
    call = replace(call, params={**call.params, "amount": str(PAGE)})
    while True:
        response = transport.request(call)
        page = parse_json(transport, call, response, lambda fields: _page(fields, parse))
        yield from page.results
        if not page.has_more:
            return
        if fault := so_far.fault(page, response.content, clock.monotonic()):
            hint = "Check that endpoint_url is a lakeFS server. docs/limits.md lists the limits."
            raise unexpected(transport, call, response, fault, hint)
        call = replace(call, params={**call.params, "after": page.next_offset})


def date_of(response: requests.Response) -> datetime | None:
    """The clock of whatever answered, in UTC, to the second; None when it does not say."""
    try:
        moment = email.utils.parsedate_to_datetime(response.headers.get("Date", ""))
        if moment.tzinfo is None:
            return moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


class _SoFar:
    """What the pages of a listing have brought."""

    def __init__(self, most: int, started: float) -> None:
        self._most, self._started = most, started
        self._most_bytes = limits.LISTING_BYTES * max(1, most // limits.LISTED)
        self._listed = self._bytes = 0
        self._offsets = {hash("")}

    def fault(self, page: _Page[T], body: bytes, now: float) -> str:
        """Why no further page is requested; "" when nothing is wrong."""
        self._listed += len(page.results)
        self._bytes += limits.memory_of_text(body) * (4 if b"\\u" in body else 1)
        if not page.next_offset:
            return "the listing has more pages and does not say where"
        if hash(page.next_offset) in self._offsets:
            return "the listing has more pages and does not say where: it leads in a circle"
        self._offsets.add(hash(page.next_offset))
        if self._listed > self._most or len(self._offsets) > self._most // 1000 + limits.EMPTY_PAGES:
            return f"the listing does not end after {self._listed:,} entries"
        if self._bytes > self._most_bytes:
            return f"its {self._listed:,} entries take more than {limits.size_text(self._most_bytes)}"
        if now - self._started > limits.LISTING_SECONDS:
            return f"the listing does not end within {limits.LISTING_SECONDS / 3600:g} hours"
        return ""


@dataclass(frozen=True)
class _Page(Generic[T]):
    results: list[T]
    has_more: bool
    next_offset: str


def _page(fields: Fields, parse: Callable[[Fields], T]) -> _Page[T]:
    pagination = Fields.of(fields.data.get("pagination"))
    results = fields.items("results")
    if len(results) > limits.PAGE_ITEMS:
        raise Malformed(f"a page has more than {limits.PAGE_ITEMS:,} results")
    if pagination.integer("results", len(results)) != len(results):
        raise Malformed(f"the page says {pagination.integer('results')} results and has {len(results)}")
    return _Page(
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
    """Whatever is stored, nonsense included; a branch named twice keeps the last, as the server does."""
    branches: dict[str, int] = {}
    for item in fields.items("branches"):
        rule = Fields.of(item)
        branches[rule.text("branch_id")] = rule.integer("retention_days")
    return GcRules(fields.integer("default_retention_days"), branches)


def branch_of(fields: Fields) -> Branch:
    """Only Enterprise servers give the two dates; 0 is how a server writes a moment it does not know."""
    return Branch(
        fields.name("id"),
        fields.name("commit_id"),
        _moment(fields, "creation_date"),
        _moment(fields, "update_date"),
    )


def _moment(fields: Fields, name: str) -> int | None:
    seconds = 0 if fields.data.get(name) is None else fields.integer(name)
    if seconds > _LAST_SECOND:
        raise Malformed(f"{name} is {seconds}, which is not a time in seconds")
    return seconds if seconds > 0 else None


def change_of(fields: Fields) -> tuple[str, str]:
    """(path, type) of one uncommitted change; type is ``added``, ``changed``, ``removed``."""
    return fields.text("path"), fields.text("type")


def tag_of(fields: Fields) -> Tag:
    return Tag(fields.name("id"), fields.name("commit_id"))


def commit_of(fields: Fields) -> Commit:
    """``creation_date`` is whole seconds here, while a refs dump has fractions (lakefs/format.md)."""
    parents = tuple(_commit_id(parent) for parent in fields.items("parents"))
    if len(parents) > 1 and "version" not in fields.data:
        # The version decides which parent retention walks along; a guess could expire a kept commit.
        raise Malformed("a merge commit has no version")
    return Commit(
        id=fields.name("id"),
        creation_us=fields.seconds("creation_date", -_LAST_SECOND) * 1_000_000,
        meta_range_id=fields.text("meta_range_id"),
        parents=parents,
        version=fields.integer("version", 1),
        generation=fields.integer("generation", 0),
        message=fields.text("message", ""),
        committer=fields.text("committer", ""),
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
        raise Malformed(f"{name} has more than {limits.KEY_BYTES:,} characters")
    return value


def _kind(value: object) -> str:
    if value is None:
        return "missing or null"
    return {dict: "an object", list: "a list", str: "a string", bool: "a flag", int: "a number"}.get(
        type(value), "something else"
    )
