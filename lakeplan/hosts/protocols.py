"""What lakeplan asks of a host of pull requests, and its comments there.

A comment links to the report page and names other open pull requests that change the same repositories. A
hidden line lists the repositories that a plan writes to. Names that lakeFS would refuse are listed as
digests, because strangers may have chosen them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from lakeplan import limits
from lakeplan.errors import LakeplanError

PLAN_FILE = "plan.json"
OBJECTS_FILE = f"{PLAN_FILE}.objects"
PLAN_FILES = (PLAN_FILE, OBJECTS_FILE)
"""The files of an artifact that are read."""


class HostError(LakeplanError):
    """A host did not answer, or refused. Messages never contain a token or a signed URL."""


class NoPlan(LakeplanError):
    """A merge does not have a reviewed plan."""


def moment(text: object) -> datetime:
    """Return a time in an answer of a host, which names its time zone. Raises ValueError."""
    return datetime.fromisoformat(str(text))


@dataclass(frozen=True)
class Request:
    """A pull request or merge request. ``head`` is its last commit. ``own`` says whether it comes from a
    branch of this repository and not from a fork. ``merged`` is when it was merged, or ""."""

    number: int
    head: str
    base: str
    branch: str
    own: bool
    author: str = ""
    merged: str = ""

    def saw(self, made: object) -> bool:
        """Return whether a plan that was made at this time existed at the merge, so that a review could see
        it. Raises ValueError."""
        return made is not None and moment(made) <= moment(self.merged)


@dataclass(frozen=True)
class Comment:
    """One of lakeplan's own comments."""

    number: int
    id: int
    body: str


class Host(Protocol):
    """The host of a git repository. ``sign`` is the character before the number of a pull request."""

    sign: str

    def here(self) -> int | None:
        """Return the number of the pull request that the pipeline runs for, or None."""

    def is_fork(self) -> bool:
        """Return whether the pipeline runs for a pull request from another repository."""

    def head(self) -> str:
        """Return the commit that a status belongs to."""

    def base_ref(self) -> str:
        """Return the commit that a pull request is compared with, by a name that git knows in the
        checkout."""

    def merged(self) -> list[Request]:
        """Return the pull requests that the pushed commits merged, in the order of the commits."""

    def fetch_plan(self, request: Request, folder: Path) -> Path:
        """Write the reviewed plan and its objects file into ``folder``. Raises NoPlan."""

    def approvers(self, request: Request) -> list[str]:
        """Return the logins of the people who approved a pull request as it was merged."""

    def open_requests(self) -> list[int]:
        """Return the open pull requests into the branch of this pipeline."""

    def own_comment(self, number: int, marker: str) -> Comment | None: ...

    def write_comment(self, number: int, body: str, old: Comment | None) -> str:
        """Replace the comment ``old``, or create one. Returns its address, or "" if the host returns none."""

    def set_status(self, commit: str, name: str, *, passed: bool, text: str) -> None: ...


def put_comment(host: Host, number: int, body: str) -> str:
    """Update lakeplan's comment that begins with the first line of ``body``, or create it."""
    return host.write_comment(number, body, host.own_comment(number, body.partition("\n")[0]))


LIMIT = 65_536
"""The maximum number of bytes in a comment."""
MOST = 250
"""The maximum number of repositories in the hidden line. A plan with more of them overlaps with every other
plan."""
ANY = "any"
_OF_ANY = f"<!-- lakeplan:changes {ANY} -->"
_NAMED = 8
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}/[a-z0-9-]{1,63}")
_CHANGES = re.compile(r"^<!-- lakeplan:changes ([A-Za-z0-9_./ -]*) -->$", re.MULTILINE)
_BEGIN, _END = "<!-- lakeplan:others -->", "<!-- /lakeplan:others -->"
_SECTION = re.compile(rf"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}\n", re.DOTALL)


def changes_line(repositories: Iterable[str]) -> str:
    """Return the hidden line of a plan that writes to these repositories (``server/name``)."""
    keys = sorted({_word(key) for key in repositories})
    return f"<!-- lakeplan:changes {' '.join(keys)} -->" if len(keys) <= MOST else _OF_ANY


def _word(repository: str) -> str:
    if _NAME.fullmatch(repository):
        return repository
    return f"digest/{hashlib.sha256(repository.encode()).hexdigest()[:16]}"


def changes_in(body: str) -> frozenset[str]:
    """Return the repositories in the hidden line of a comment. The last such line counts, because lakeplan
    writes it at the end."""
    lists = _CHANGES.findall(body)
    words = frozenset(lists[-1].split()) if lists else frozenset()
    return frozenset(word for word in words if word == ANY or _NAME.fullmatch(word))


def shared(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    if not one or not other:
        return frozenset()
    if ANY in one:
        return other
    return one if ANY in other else one & other


def with_others(body: str, others: Mapping[int, frozenset[str]], sign: str = "#") -> str:
    """Return the comment with a section about other pull requests: by number, the repositories that both
    change. If the result is too long, the section is omitted."""
    plain = _SECTION.sub("", body)
    if not others:
        return plain
    lines = [f"- {sign}{number} changes {_shown(both)}\n" for number, both in sorted(others.items())]
    text = (
        "### :warning: Other open pull requests change the same repositories\n\n"
        + "".join(lines)
        + "\nWhen one of the pull requests is merged, the plans of the others become stale. Merge one,"
        " then plan the others again.\n"
    )
    made = _before_changes(plain, f"{_BEGIN}\n{text}{_END}\n")
    return made if len(made.encode()) <= LIMIT else plain


def _shown(repositories: frozenset[str]) -> str:
    named = [f"`{name}`" for name in sorted(repositories - {ANY})]
    if not named:
        return "many of the same repositories"
    more = f" and {len(named) - _NAMED:,} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more


def _before_changes(body: str, section: str) -> str:
    markers = list(_CHANGES.finditer(body))
    at = markers[-1].start() if markers else len(body)
    return body[:at] + section + body[at:]


def with_page(body: str, url: str) -> str:
    """Return the comment with a link to the report page, if the host's limit leaves room for it and for the
    shortest hidden line."""
    linked = f"{body}\n[Report page]({url})\n"
    safe = re.fullmatch(r"https?://[\w.:/?=&%~#@+-]+", url) is not None
    return linked if safe and len(f"{linked}\n{_OF_ANY}\n".encode()) <= LIMIT else body


def with_changes(body: str, repositories: Iterable[str]) -> str:
    """Return the comment with the hidden line. If its list makes the comment too long, the plan overlaps with
    every other plan."""
    full = f"{body}\n{changes_line(repositories)}\n"
    return full if len(full.encode()) <= LIMIT else f"{body}\n{_OF_ANY}\n"


def overlaps(comments: Iterable[Comment]) -> dict[int, dict[int, frozenset[str]]]:
    """Return, for every pull request, the others that change some of the same repositories."""
    changes = {comment.number: changes_in(comment.body) for comment in comments}
    common: dict[int, dict[int, frozenset[str]]] = {number: {} for number in changes}
    for one, mine in changes.items():
        for other, theirs in changes.items():
            if one != other and (both := shared(mine, theirs)):
                common[one][other] = both
    return common


def put_plan_comment(host: Host, number: int | None, body: str, marker: str) -> list[str]:
    """Write the comment of a plan, and update the sections of other open pull requests. Without a ``number``,
    there is no new plan, and only sections are updated. Returns what was done, one line for each comment."""
    comments = _comments(host, marker)
    if number is not None:
        old = comments.get(number) or host.own_comment(number, marker)
        comments[number] = Comment(number, old.id if old else 0, body)
    shared = overlaps(comments.values())
    lines = []
    if number is not None:
        address = host.write_comment(number, with_others(body, shared[number], host.sign), old)
        lines.append(f"{'updated' if old else 'posted'} the comment {address}".rstrip())
    for other, comment in comments.items():
        text = with_others(comment.body, shared[other], host.sign)
        if other != number and text != comment.body:
            host.write_comment(other, text, comment)
            lines.append(f"updated the comment on {host.sign}{other}")
    return lines


def _comments(host: Host, marker: str) -> dict[int, Comment]:
    """Return lakeplan's comments in open pull requests, or nothing if there are too many to compare."""
    numbers = host.open_requests()
    if len(numbers) > limits.HOST_REQUESTS:
        return {}
    by_number = {}
    for number in numbers:
        try:
            comment = host.own_comment(number, marker)
        except HostError:
            continue
        if comment is not None:
            by_number[number] = comment
    return by_number
