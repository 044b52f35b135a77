"""lakeplan's comments: the link to a page, and which other open pull requests change the same repositories.

A hidden line names the repositories that a plan writes to. A name that lakeFS would refuse is there as a
digest: names are other people's text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from lakeplan import limits
from lakeplan.hosts.protocols import Comment, Host, HostError

LIMIT = 65_536
"""Bytes of a comment, as lakeplan cuts it."""
MOST = 250
"""Repositories that the hidden line names; a plan of more overlaps with every other."""
ANY = "any"
_NAMED = 8
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}/[a-z0-9-]{1,63}")
_CHANGES = re.compile(r"^<!-- lakeplan:changes ([A-Za-z0-9_./ -]*) -->$", re.MULTILINE)
_BEGIN, _END = "<!-- lakeplan:others -->", "<!-- /lakeplan:others -->"
_SECTION = re.compile(rf"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}\n", re.DOTALL)


def changes_line(repositories: Iterable[str]) -> str:
    """The hidden line of a plan that writes to these repositories (``server/name``)."""
    keys = sorted({_word(key) for key in repositories})
    return f"<!-- lakeplan:changes {' '.join(keys) if len(keys) <= MOST else ANY} -->"


def _word(repository: str) -> str:
    if _NAME.fullmatch(repository):
        return repository
    return f"digest/{hashlib.sha256(repository.encode()).hexdigest()[:16]}"


def changes_in(body: str) -> frozenset[str]:
    """What a comment's hidden line names. The last one counts, which lakeplan wrote below everything."""
    found = _CHANGES.findall(body)
    words = frozenset(found[-1].split()) if found else frozenset()
    return frozenset(word for word in words if word == ANY or _NAME.fullmatch(word))


def shared(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    if not one or not other:
        return frozenset()
    if ANY in one:
        return other
    return one if ANY in other else one & other


def with_others(body: str, others: Mapping[int, frozenset[str]], sign: str = "#") -> str:
    """The comment with a section about other pull requests: by number, the repositories that both change. A
    comment that would be too long keeps its own text and gets none."""
    plain = _SECTION.sub("", body)
    if not others:
        return plain
    lines = [f"- {sign}{number} changes {_shown(both)}\n" for number, both in sorted(others.items())]
    text = (
        "### :warning: Other open pull requests change the same repositories\n\n"
        + "".join(lines)
        + "\nThe first one that is merged makes the plans of the others stale. Merge one, then plan the"
        " others again.\n"
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
    found = list(_CHANGES.finditer(body))
    at = found[-1].start() if found else len(body)
    return body[:at] + section + body[at:]


def with_page(body: str, url: str) -> str:
    """The comment with a link to the report page, where the host's limit leaves room."""
    linked = f"{body}\n[Report page]({url})\n"
    safe = re.fullmatch(r"https?://[\w.:/?=&%~#@+-]+", url) is not None
    return linked if safe and len(linked.encode()) <= LIMIT else body


def with_changes(body: str, repositories: Iterable[str]) -> str:
    return f"{body}\n{changes_line(repositories)}\n"


def overlaps(comments: Iterable[Comment]) -> dict[int, dict[int, frozenset[str]]]:
    """For every pull request, the others that change some of the same repositories."""
    changes = {comment.number: changes_in(comment.body) for comment in comments}
    found: dict[int, dict[int, frozenset[str]]] = {number: {} for number in changes}
    for one, mine in changes.items():
        for other, theirs in changes.items():
            if one != other and (both := shared(mine, theirs)):
                found[one][other] = both
    return found


def put_plan_comment(host: Host, number: int | None, body: str, marker: str, sign: str = "#") -> list[str]:
    """Writes the comment of a plan, and the sections of all open pull requests that it concerns. ``number``
    None: nobody's plan is new, and only the sections are. Returns what was done, a line each."""
    comments = _comments(host, marker)
    if number is not None:
        old = comments.get(number) or host.own_comment(number, marker)
        comments[number] = Comment(number, old.id if old else 0, body)
    found = overlaps(comments.values())
    lines = []
    if number is not None:
        address = host.write_comment(number, with_others(body, found[number], sign), old)
        lines.append(f"{'updated' if old else 'made'} the comment {address}".rstrip())
    for other, comment in comments.items():
        text = with_others(comment.body, found[other], sign)
        if other != number and text != comment.body:
            host.write_comment(other, text, comment)
            lines.append(f"updated the comment of {sign}{other}")
    return lines


def _comments(host: Host, marker: str) -> dict[int, Comment]:
    """lakeplan's comments in open pull requests. Too many to compare are compared with none."""
    numbers = host.open_requests()
    if len(numbers) > limits.HOST_REQUESTS:
        return {}
    found = {}
    for number in numbers:
        try:
            comment = host.own_comment(number, marker)
        except HostError:
            continue
        if comment is not None:
            found[number] = comment
    return found
