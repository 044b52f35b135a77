"""Commands in comments on pull requests: ``/lakeplan plan`` and ``/lakeplan approve MARK``.

Everything in a comment is a stranger's text. It is matched as a whole and never given to a shell. What its
author may do is asked of the host's API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakeplan.errors import LakeplanError
from lakeplan.hosts.client import reads_answers
from lakeplan.hosts.github import COMMIT, GitHub, request_of
from lakeplan.hosts.protocols import Request
from lakeplan.lakefs.credentials import Secret

PLAN, APPROVE = "plan", "approve"
_LINE = re.compile(r"/lakeplan +(plan|approve)(?: +([0-9A-Za-z-]{1,64}))?[ \t]*(?:\r?\n.*)?", re.DOTALL)
_TEAM = re.compile(r"[A-Za-z0-9-]{1,39}/[A-Za-z0-9_.-]{1,100}")


class NotAllowed(LakeplanError):
    """A command that this person may not give here. ``silent``: a stranger gets no answer."""

    silent = False


@dataclass(frozen=True)
class Asked:
    """One command. ``mark`` is "" for a plan."""

    name: str
    mark: str
    comment: int
    login: str
    at: datetime
    number: int
    url: str


def asked_in(event: Mapping[str, Any]) -> Asked | None:
    """The command of a new comment on a pull request; None where there is none."""
    comment, issue = event.get("comment") or {}, event.get("issue") or {}
    found = _LINE.fullmatch(str(comment.get("body") or ""))
    person = comment.get("user") or {}
    is_new = event.get("action") == "created" and bool(issue.get("pull_request"))
    if found is None or not is_new or person.get("type") != "User":
        return None
    if (found[1] == APPROVE) != bool(found[2]):
        return None
    return Asked(
        name=found[1],
        mark=found[2] or "",
        comment=int(comment["id"]),
        login=str(person["login"]),
        at=moment(comment["created_at"]),
        number=int(issue["number"]),
        url=str(comment.get("html_url") or ""),
    )


def moment(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


@reads_answers
def plan_again(host: GitHub, asked: Asked, workflow: str) -> str:
    """Starts the run again that planned the pull request's last commit, so that its job, with its rights,
    plans it; nothing of the pull request is read here. Raises NotAllowed.

    The commit must be the one that the person saw: its run began before the comment. When a commit was
    made says nothing, because its author writes that.
    """
    if not host.may_write(asked.login):
        raise _stranger("only people who may write to this repository can plan again")
    pull = host.pull(asked.number)
    request = request_of(pull, host.job.repository)
    if pull["state"] != "open":
        raise NotAllowed("the pull request is not open", hint="Open a new one.")
    if not request.own:
        raise NotAllowed("it is of a fork, and plans need credentials", hint="Push its branch here.")
    runs = [run for run in host.runs_of(request.head) if host.is_planning(run, request, workflow)]
    seen = [run for run in runs if moment(run["created_at"]) <= asked.at]
    if not seen:
        reason = "has a new commit since the comment" if runs else "was not planned at its last commit"
        raise NotAllowed(f"the pull request {reason}", hint="Comment again once its plan has ended.")
    newest = max(seen, key=lambda run: int(run["id"]))
    if newest.get("status") != "completed":
        raise NotAllowed("its plan is already running", hint="Comment again once it has ended.")
    host.rerun(int(newest["id"]))
    return f"planning {request.head} again"


def check_member(host: GitHub, asked: Asked, team: str | None, token: str) -> None:
    """``team`` is the one that the tree on the default branch names. Raises NotAllowed."""
    if team is None or not _TEAM.fullmatch(team):
        raise NotAllowed(
            "the tree names no team that approves marks",
            hint="Add `approvers: ORGANIZATION/TEAM` to lakeplan.yaml by a pull request.",
        )
    if not token:
        raise NotAllowed(
            "the members of the team cannot be read",
            hint="Set the secret LAKEPLAN_TEAM_TOKEN to a token that may read the organization's members.",
        )
    if not host.is_in_team(asked.login, team, Secret(token)):
        raise _stranger(f"only members of {team} can approve marks")


@reads_answers
def check_merge(host: GitHub, asked: Asked, commit: str | None) -> Request:
    """The pull request whose merge a mark was made of; ``commit`` is the tree's when it was made. Raises
    NotAllowed unless the comment is on that pull request, later than its merge, and by another person than
    its author."""
    request = host.merged_as(commit) if commit is not None and COMMIT.fullmatch(commit) else None
    if request is None:
        raise NotAllowed(
            "the mark was made of a commit that is the merge of no pull request",
            hint="Approve it with `lakeplan sweep approve`, or mark again after a merge.",
        )
    if request.number != asked.number:
        raise NotAllowed(
            f"the mark was made of the merge of #{request.number}, and this is #{asked.number}",
            hint=f"Comment on #{request.number}.",
        )
    if moment(host.pull(asked.number)["merged_at"]) > asked.at:
        raise NotAllowed("the comment is older than the merge", hint="Comment again.")
    if request.author.lower() == asked.login.lower():
        raise NotAllowed(
            "the author of the pull request that the mark was made of cannot approve it",
            hint="Ask another member of the team.",
        )
    return request


def _stranger(message: str) -> NotAllowed:
    error = NotAllowed(message)
    error.silent = True
    return error
