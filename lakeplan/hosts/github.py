"""Pull requests on GitHub, as seen by the job of a workflow.

The event and every answer are input from strangers. The name of an artifact proves nothing, because any run
in the repository can choose it.

Commands are ``/lakeplan plan`` and ``/lakeplan approve MARK``. A comment may come from a stranger, so its
entire text is matched and never given to a shell. GitHub's API says what its author may do."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lakeplan import limits
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.hosts.client import HostClient, reads_answers
from lakeplan.hosts.protocols import PLAN_FILE, PLAN_FILES, Comment, HostError, NoPlan, Request, moment
from lakeplan.lakefs.credentials import Secret
from lakeplan.lakefs.transport import RetryPolicy
from lakeplan.limits import TooLarge, check_size, parse_json
from lakeplan.values.local import read_file, why_unreadable, write_file

API = "https://api.github.com"
COMMIT = re.compile(r"[0-9a-f]{40,64}")
_MOVED = ("base_ref_changed", "automatic_base_change_succeeded")
"""Events that change the base of a pull request: by a person, or by GitHub after the base was merged and
deleted."""
_DELAY = timedelta(minutes=5)
"""How long after its event a run may begin."""
STATUS_CHARACTERS = 140
"""The maximum length of a status description on GitHub."""


def read_event(environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the event that started the workflow. Raises UsageError."""
    path = environ.get("GITHUB_EVENT_PATH", "")
    try:
        event = parse_json(read_file(path))
    except (OSError, ValueError) as error:
        reason = why_unreadable(error) if isinstance(error, (OSError, TooLarge)) else "it is not JSON"
        raise UsageError(
            f"cannot read the event of this workflow: {reason}",
            where=path or "GITHUB_EVENT_PATH",
            hint="Run this command in a GitHub Actions job.",
        ) from None
    return event if isinstance(event, dict) else {}


class GitHub:
    """One repository, for one job."""

    sign = "#"

    def __init__(self, client: HostClient, environ: Mapping[str, str], event: Mapping[str, Any]) -> None:
        self.client, self.event = client, event
        self.repository = environ.get("GITHUB_REPOSITORY", "")
        self._root = f"/repos/{self.repository}"
        self._event_name = environ.get("GITHUB_EVENT_NAME", "")
        self._commit, self._branch = environ.get("GITHUB_SHA", ""), environ.get("GITHUB_REF_NAME", "")
        # org/trees/.github/workflows/lakeplan.yml@refs/heads/main
        path = environ.get("GITHUB_WORKFLOW_REF", "").partition("@")[0]
        self._workflow = path.removeprefix(f"{self.repository}/")

    @classmethod
    def of(cls, environ: Mapping[str, str], retries: RetryPolicy | None = None) -> GitHub:
        """Return the repository of the job. Raises UsageError outside a job or without a token."""
        token = environ.get("GITHUB_TOKEN", "")
        if not token or not re.fullmatch(r"[\w.-]+/[\w.-]+", environ.get("GITHUB_REPOSITORY", "")):
            raise UsageError(
                "GITHUB_TOKEN or GITHUB_REPOSITORY is not set",
                hint="Pass the token to the step: env: {GITHUB_TOKEN: ${{ github.token }}}.",
            )
        api = environ.get("GITHUB_API_URL", "") or API
        client = HostClient("GitHub", api, "Authorization", Secret(token), retries or RetryPolicy())
        return cls(client, environ, read_event(environ))

    # ---- the job
    @reads_answers
    def here(self) -> int | None:
        number = (self.event.get("pull_request") or {}).get("number")
        return number if isinstance(number, int) else None

    @reads_answers
    def is_fork(self) -> bool:
        """Return whether the job runs for a pull request from another repository."""
        pull = self.event.get("pull_request")
        return pull is not None and not self.request_of(pull).own

    @reads_answers
    def base_ref(self) -> str:
        if self._event_name != "merge_group":
            # The event has the merge commit. HEAD may be another one, whose parent is a part of the change.
            return f"{self._commit}^1"
        base = str((self.event.get("merge_group") or {}).get("base_sha", ""))
        if not COMMIT.fullmatch(base):
            raise HostError("the merge queue event does not contain a base commit", hint="Run the job again.")
        return base

    @reads_answers
    def head(self) -> str:
        """Return the commit that a status belongs to."""
        head = ((self.event.get("pull_request") or {}).get("head") or {}).get("sha")
        return str(head or self._commit)

    # ---- comments
    @reads_answers
    def own_comment(self, number: int, marker: str) -> Comment | None:
        """Return lakeplan's comment. Only a bot's comment counts, because a person could write the marker
        too."""
        for comment in self.client.pages(f"{self._root}/issues/{int(number)}/comments"):
            body = str(comment.get("body") or "")
            if (comment.get("user") or {}).get("type") == "Bot" and body.startswith(marker):
                return Comment(number, int(comment["id"]), body)
        return None

    @reads_answers
    def write_comment(self, number: int, body: str, old: Comment | None) -> str:
        if old is None:
            answer = self.client.call("POST", f"{self._root}/issues/{int(number)}/comments", {"body": body})
        else:
            answer = self.client.call("PATCH", f"{self._root}/issues/comments/{old.id}", {"body": body})
        return str(answer.json().get("html_url", ""))

    def set_status(self, commit: str, name: str, *, passed: bool, text: str) -> None:
        body = {
            "state": "success" if passed else "failure",
            "context": name,
            "description": text[:STATUS_CHARACTERS],
        }
        self.client.call("POST", f"{self._root}/statuses/{quote(commit, safe='')}", body)

    # ---- pull requests
    def pull(self, number: int) -> Mapping[str, Any]:
        pull: Mapping[str, Any] = self.client.get(f"{self._root}/pulls/{int(number)}")
        return pull

    @reads_answers
    def request_of(self, pull: Mapping[str, Any]) -> Request:
        head = pull["head"]
        return Request(
            number=int(pull["number"]),
            head=str(head["sha"]),
            base=str(pull["base"]["ref"]),
            branch=str(head["ref"]),
            own=(head.get("repo") or {}).get("full_name") == self.repository,
            author=str((pull.get("user") or {}).get("login") or ""),
            merged=str(pull.get("merged_at") or ""),
        )

    @reads_answers
    def open_requests(self) -> list[int]:
        base = str(((self.event.get("pull_request") or {}).get("base") or {}).get("ref") or self._branch)
        path = f"{self._root}/pulls?state=open&base={quote(base, safe='')}"
        return [int(pull["number"]) for pull in self.client.pages(path)]

    @reads_answers
    def merged(self) -> list[Request]:
        pushed = self._pushed()
        pulls = list(self._newest_closed(pushed[: -limits.HOST_COMMITS]))
        for commit in pushed[-limits.HOST_COMMITS :]:
            pulls += [pull for pull in self._pulls_of(commit) if pull["merge_commit_sha"] == commit]
        known: dict[int, Request] = {}
        for pull in pulls:
            if pull["merged_at"] and pull["base"]["ref"] == self._branch:
                request = self.request_of(pull)
                known.setdefault(request.number, request)
        return list(known.values())

    def _pushed(self) -> list[str]:
        """Return the commits of the push, because a merge queue may push the commits of several pull
        requests."""
        listed = [c.get("id") for c in self.event.get("commits") or () if isinstance(c, dict)]
        commits = [c for c in listed if isinstance(c, str) and COMMIT.fullmatch(c)]
        return commits if self._commit in commits else [*commits, self._commit]

    def _newest_closed(self, commits: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the pull requests that commits merged, in their order. A push may have too many commits to
        look each one up."""
        if not commits:
            return []
        order = {commit: n for n, commit in enumerate(commits)}
        closed = (
            f"{self._root}/pulls?state=closed&base={quote(self._branch, safe='')}&sort=updated&direction=desc"
        )
        newest = islice(self.client.pages(closed), limits.HOST_COMMITS)
        return sorted(
            (pull for pull in newest if pull["merge_commit_sha"] in order),
            key=lambda pull: order[pull["merge_commit_sha"]],
        )

    def _pulls_of(self, commit: str) -> Iterator[Mapping[str, Any]]:
        return self.client.pages(f"{self._root}/commits/{quote(commit, safe='')}/pulls")

    def _pulls_from(self, request: Request) -> Iterator[Mapping[str, Any]]:
        """Yield all pull requests that its branch ever had. By commit, GitHub does not list those that were
        closed without a merge, and for a merged commit it lists only the one that merged it."""
        branch = quote(f"{self.repository.partition('/')[0]}:{request.branch}", safe="")
        return self.client.pages(f"{self._root}/pulls?state=all&head={branch}")

    @reads_answers
    def merged_as(self, commit: str) -> list[Request]:
        """Return the pull requests whose merge made a commit. There may be several, because pushing the
        commit to another branch merges the pull requests that are open for that branch."""
        return [
            self.request_of(pull)
            for pull in self._pulls_of(commit)
            if pull["merged_at"] and pull["merge_commit_sha"] == commit
        ]

    @reads_answers
    def approvers(self, request: Request) -> list[str]:
        """Return who approved. Each person's last review counts, if it is of the commit that was merged."""
        latest: dict[str, bool] = {}
        for review in self.client.pages(f"{self._root}/pulls/{request.number}/reviews"):
            login, state = str((review.get("user") or {}).get("login") or ""), review["state"]
            if login and state in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):
                latest[login] = state == "APPROVED" and review["commit_id"] == request.head
        return [login for login, approves in latest.items() if approves]

    # ---- plans
    @reads_answers
    def fetch_plan(self, request: Request, folder: Path) -> Path:
        artifact = self._find_plan(request)
        data = self.client.download(f"{self._root}/actions/artifacts/{artifact}/zip")
        for name, content in unpacked(data).items():
            write_file(folder / name, content)
        if not (folder / PLAN_FILE).is_file():
            raise _no_plan(request)
        return folder / PLAN_FILE

    def _find_plan(self, request: Request) -> int:
        head, number = request.head, request.number
        pulls = list(self._pulls_from(request))
        others = sorted({str(p["base"]["ref"]) for p in pulls if p["head"]["sha"] == head} - {request.base})
        if others:
            # The run of that pull request has the same head and path, but the workflow file of another
            # branch.
            raise NoPlan(
                f"other pull requests propose the same commit for {', '.join(others)}",
                hint="Close all but one of these pull requests, then push a new commit to the branch.",
            )
        name = f"lakeplan-{number}-{head}"
        listed = self.client.pages(f"{self._root}/actions/artifacts?name={quote(name)}", "artifacts")
        ids = [
            int(a["id"])
            for a in listed
            if a["name"] == name
            and not a["expired"]
            and request.saw(a["created_at"])
            and self._is_ours(a["workflow_run"]["id"], request, pulls)
        ]
        if not ids:
            raise _no_plan(request)
        return max(ids)

    def _is_ours(self, run_id: int, request: Request, pulls: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether a run belongs to this workflow and this pull request. ``pulls`` are those from its
        branch. A run may belong to any that was open when it began, even if that has another commit now, so
        none of these may have had another base."""
        run = self.client.get(f"{self._root}/actions/runs/{int(run_id)}")
        if not self.is_planning(run, request, self._workflow):
            return False
        began = moment(run["created_at"])
        rivals = [p for p in pulls if _was_open(p, began)]
        moved = (
            moment(event["created_at"])
            for number in sorted({request.number, *(int(p["number"]) for p in rivals)})
            for event in self.client.pages(f"{self._root}/issues/{number}/timeline")
            if event.get("event") in _MOVED
        )
        return all(p["base"]["ref"] == request.base for p in rivals) and all(at < began for at in moved)

    def is_planning(self, run: Mapping[str, Any], request: Request, workflow: str) -> bool:
        """Return whether a run planned the last commit of a pull request with the file ``workflow``."""
        return (
            _is_file(str(run["path"]), workflow)
            and run["event"] == "pull_request"
            and run["head_sha"] == request.head
            and run["head_branch"] == request.branch
            and (run["head_repository"] or {}).get("full_name") == self.repository
            and request.own
        )

    # ---- people
    def runs_of(self, commit: str) -> Iterator[Mapping[str, Any]]:
        path = f"{self._root}/actions/runs?event=pull_request&head_sha={quote(commit, safe='')}"
        return self.client.pages(path, "workflow_runs")

    def rerun(self, run_id: int) -> None:
        self.client.call("POST", f"{self._root}/actions/runs/{int(run_id)}/rerun")

    @reads_answers
    def is_unchanged(self, comment: Mapping[str, Any]) -> bool:
        """Return whether a comment of the event still exists with the same text. Its author may withdraw it
        before the job begins, and a job may run again much later."""
        path = f"{self._root}/issues/comments/{int(comment['id'])}"
        answer = self.client.call("GET", path, accept=(404, 410))
        return answer.status == 200 and answer.json()["body"] == comment["body"]

    def react(self, comment: int, content: str) -> None:
        self.client.call(
            "POST", f"{self._root}/issues/comments/{int(comment)}/reactions", {"content": content}
        )

    @reads_answers
    def may_write(self, login: str) -> bool:
        path = f"{self._root}/collaborators/{quote(login, safe='')}/permission"
        answer = self.client.call("GET", path, accept=(404,))
        return answer.status == 200 and answer.json().get("permission") in ("write", "admin")

    @reads_answers
    def is_in_team(self, login: str, team: str, token: Secret) -> bool:
        """Return whether a person is in ``team``, which is ORG/TEAM. ``token`` may read the organization's
        members."""
        organization, _, slug = team.partition("/")
        member = f"/orgs/{quote(organization, safe='')}/teams/{quote(slug, safe='')}/memberships"
        answer = self.client.call("GET", f"{member}/{quote(login, safe='')}", accept=(404,), token=token)
        return answer.status == 200 and answer.json().get("state") == "active"


def _was_open(pull: Mapping[str, Any], at: datetime) -> bool:
    """Return whether a pull request was open at a time, or just before, because runs begin with a delay."""
    closed = pull["closed_at"]
    return moment(pull["created_at"]) <= at and (closed is None or at <= moment(closed) + _DELAY)


def _is_file(path: str, workflow: str) -> bool:
    """Return whether the path of a run, which may end with ``@`` and a ref, is that of a workflow. The file
    ``lakeplan.yml@x.yml`` is another one."""
    file, _, ref = path.partition("@")
    return file == workflow and re.search(r"\.ya?ml(?:@|$)", ref, re.IGNORECASE) is None


_MEMBER = b"PK\x01\x02"
"""The beginning of each entry of an archive's directory. Other data hardly has it a hundred times."""


def unpacked(data: bytes) -> dict[str, bytes]:
    """Return the plan and its objects file, by name. Other files of the artifact are ignored. Raises
    HostError for an archive that is damaged or too large."""
    try:
        if data.count(_MEMBER) > limits.ARTIFACT_MEMBERS:  # opening it would list them all in memory
            raise TooLarge(f"it exceeds the limit of {limits.ARTIFACT_MEMBERS} files")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            contents = {}
            for member in archive.infolist():
                if member.filename in PLAN_FILES:
                    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                        raise zipfile.BadZipFile("it is not packed in the way that GitHub packs artifacts")
                    with archive.open(member) as file:
                        content = file.read(limits.OBJECT_BYTES + 1)
                    check_size(len(content), limits.OBJECT_BYTES)
                    contents[member.filename] = content
            return contents
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, RuntimeError) as error:
        reason = str(error) if isinstance(error, TooLarge) else "it is damaged"
        raise HostError(
            f"the plan artifact was refused: {reason}",
            hint="Open a new pull request. Its workflow then creates a new plan.",
        ) from None


def _no_plan(request: Request) -> NoPlan:
    return NoPlan(
        f"no plan of pull request {request.number} at {request.head} was created before the merge, or the"
        " plan has expired",
        hint="Open a new pull request. Its workflow then creates a new plan.",
    )


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
            hint="Push its branch to this repository, and open a pull request from there.",
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
            "the tree does not specify a team that can approve marks",
            hint="Add `approvers: ORGANIZATION/TEAM` to lakeplan.yaml in a pull request.",
        )
    if not token:
        raise NotAllowed(
            "lakeplan has no token to read the members of the team",
            hint="Set the secret LAKEPLAN_TEAM_TOKEN to a token that can read the organization's members.",
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
            "the author of the comment is also the author of the pull request that led to the mark",
            hint="Ask another member of the team to approve the mark.",
        )
    return request


def _stranger(message: str) -> NotAllowed:
    error = NotAllowed(message)
    error.silent = True
    return error
