"""Protocols that pipelines need of the host of a git repository, GitHub or GitLab."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

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
