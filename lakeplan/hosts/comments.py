"""Comments by lakeplan, and commands in comments by people.

A comment by lakeplan links to the report page and names other open pull requests that change the same
repositories. A hidden line lists the repositories that a plan writes to. Names that lakeFS would refuse are
listed as digests, because strangers may have chosen them.

Commands are ``/lakeplan plan`` and ``/lakeplan approve MARK``. A comment may come from a stranger, so its
entire text is matched and never given to a shell. The host's API says what its author may do."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakeplan import limits
from lakeplan.errors import LakeplanError
from lakeplan.hosts.client import reads_answers
from lakeplan.hosts.github import COMMIT, GitHub
from lakeplan.hosts.protocols import Comment, Host, HostError, Request, moment
from lakeplan.lakefs.credentials import Secret

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


PLAN, APPROVE = "plan", "approve"
_LINE = re.compile(
    r"/lakeplan +(plan|approve)(?: +([0-9A-Za-z][0-9A-Za-z-]{0,63}))?[ \t]*(?:\r?\n.*)?", re.DOTALL
)
_TEAM = re.compile(r"[A-Za-z0-9-]{1,39}/[A-Za-z0-9_.-]{1,100}")


class NotAllowed(LakeplanError):
    """A command that this person may not give here. If ``silent``, the person is a stranger and gets no
    answer."""

    silent = False


@dataclass(frozen=True)
class Asked:
    """A command. ``mark`` is "" for ``plan``."""

    name: str
    mark: str
    comment: int
    login: str
    at: datetime
    number: int
    url: str


@reads_answers
def asked_in(event: Mapping[str, Any]) -> Asked | None:
    """Return the command in a new comment on a pull request, or None."""
    comment, issue = event.get("comment") or {}, event.get("issue") or {}
    match = _LINE.fullmatch(str(comment.get("body") or ""))
    person = comment.get("user") or {}
    is_new = event.get("action") == "created" and bool(issue.get("pull_request"))
    if match is None or not is_new or person.get("type") != "User":
        return None
    if (match[1] == APPROVE) != bool(match[2]):
        return None
    return Asked(
        name=match[1],
        mark=match[2] or "",
        comment=int(comment["id"]),
        login=str(person["login"]),
        at=moment(comment["created_at"]),
        number=int(issue["number"]),
        url=str(comment.get("html_url") or ""),
    )


@reads_answers
def plan_again(host: GitHub, asked: Asked, workflow: str) -> str:
    """Restart the run that planned the pull request's last commit, so that the commit is planned with the
    rights of that job. Nothing from the pull request is read here. Raises NotAllowed.

    The commit must be the one that the person saw, so its run must have begun before the comment. The date
    of a commit proves nothing, because its author writes it.
    """
    if not host.may_write(asked.login):
        raise _stranger("only people with write access to this repository can plan again")
    pull = host.pull(asked.number)
    request = host.request_of(pull)
    if pull["state"] != "open":
        raise NotAllowed("the pull request is not open", hint="Open a new pull request.")
    if not request.own:
        raise NotAllowed(
            "the pull request is from a fork, which cannot get the credentials that a plan needs",
            hint="Push its branch to this repository.",
        )
    runs = [run for run in host.runs_of(request.head) if host.is_planning(run, request, workflow)]
    earlier = [run for run in runs if moment(run["created_at"]) <= asked.at]
    if not earlier:
        reason = "has a new commit since the comment" if runs else "has no plan for its last commit"
        raise NotAllowed(
            f"the pull request {reason}", hint="Comment again once the plan of the last commit has finished."
        )
    newest = max(earlier, key=lambda run: int(run["id"]))
    if newest.get("status") != "completed":
        raise NotAllowed(
            "the plan of this pull request is already running",
            hint="Comment again once the plan has finished.",
        )
    host.rerun(int(newest["id"]))
    return f"planning {request.head} again"


def check_member(host: GitHub, asked: Asked, team: str | None, token: str) -> None:
    """Raise NotAllowed unless the person is in ``team``, which the tree on the default branch names."""
    if team is None or not _TEAM.fullmatch(team):
        raise NotAllowed(
            "the tree does not name a team that may approve marks",
            hint="Add `approvers: ORGANIZATION/TEAM` to lakeplan.yaml in a pull request.",
        )
    if not token:
        raise NotAllowed(
            "lakeplan has no token to read the members of the team",
            hint="Set the secret LAKEPLAN_TEAM_TOKEN to a token that may read the organization's members.",
        )
    if not host.is_in_team(asked.login, team, Secret(token)):
        raise _stranger(f"only members of {team} can approve marks")


@reads_answers
def check_merge(host: GitHub, asked: Asked, commit: str | None) -> Request:
    """Return the pull request from whose merge a mark was made. ``commit`` is the tree's commit at the mark.
    Raises NotAllowed unless the comment is on that pull request, later than its merge, and not by its
    author."""
    requests = host.merged_as(commit) if commit is not None and COMMIT.fullmatch(commit) else []
    if not requests:
        raise NotAllowed(
            "the mark was created from a commit that is not the merge of a pull request",
            hint="Approve the mark with `lakeplan sweep approve`, or create a new mark after a merge.",
        )
    request = next((one for one in requests if one.number == asked.number), requests[0])
    if request.number != asked.number:
        raise NotAllowed(
            f"the mark was created from the merge of #{request.number}, but the comment is on"
            f" #{asked.number}",
            hint=f"Comment on #{request.number} instead.",
        )
    if moment(host.pull(asked.number)["merged_at"]) > asked.at:
        raise NotAllowed("the comment was written before the pull request was merged", hint="Comment again.")
    if asked.login.lower() in {one.author.lower() for one in requests}:
        raise NotAllowed(
            "the mark was created from a pull request of the author of this comment, and authors cannot"
            " approve such marks",
            hint="Ask another member of the team to approve the mark.",
        )
    return request


def _stranger(message: str) -> NotAllowed:
    error = NotAllowed(message)
    error.silent = True
    return error
