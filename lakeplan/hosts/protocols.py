"""What a pipeline asks its host of git repositories, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lakeplan.errors import LakeplanError

PLAN_FILE = "plan.json"
OBJECTS_FILE = f"{PLAN_FILE}.objects"
PLAN_FILES = (PLAN_FILE, OBJECTS_FILE)
"""The files that are unpacked from an artifact."""


class HostError(LakeplanError):
    """A host did not answer, or refused. Messages never contain a token or a signed URL."""


class NoPlan(LakeplanError):
    """A merge has no reviewed plan."""


@dataclass(frozen=True)
class Request:
    """A pull request, or a merge request. ``head`` is its last commit; ``own`` says that it is of a branch of
    this repository and not of a fork."""

    number: int
    head: str
    base: str
    branch: str
    own: bool
    author: str = ""


@dataclass(frozen=True)
class Comment:
    """One of lakeplan's own comments."""

    number: int
    id: int
    body: str


class Host(Protocol):
    """``sign`` is what the number of a pull request is written with."""

    sign: str

    def here(self) -> int | None:
        """The pull request that the pipeline runs for, or None."""

    def is_fork(self) -> bool:
        """Whether the pipeline runs for a pull request of another repository."""

    def head(self) -> str:
        """The commit that a status belongs to."""

    def base_ref(self) -> str:
        """The commit that a pull request is compared with, as git in the checkout knows it."""

    def merged(self) -> list[Request]:
        """The pull requests that the pushed commits merged, in the order of the commits."""

    def fetch_plan(self, request: Request, folder: Path) -> Path:
        """Writes the plan that was reviewed, and what is beside it. Raises NoPlan."""

    def approvers(self, request: Request) -> list[str]:
        """Who approves of a pull request as it was merged, by login."""

    def open_requests(self) -> list[int]:
        """Open pull requests into the branch that this pipeline is about."""

    def own_comment(self, number: int, marker: str) -> Comment | None: ...

    def write_comment(self, number: int, body: str, old: Comment | None) -> str:
        """Replaces the comment, or makes one. Returns its address, or "" where the host gives none."""

    def set_status(self, commit: str, name: str, *, passed: bool, text: str) -> None: ...


def put_comment(host: Host, number: int, body: str) -> str:
    """Updates lakeplan's comment that begins with the first line of ``body``, or makes it."""
    return host.write_comment(number, body, host.own_comment(number, body.partition("\n")[0]))
