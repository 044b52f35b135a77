"""Branches as they are on a server, and what becomes of each. Moments are aware UTC."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from lakeplan.values.settings import BranchFacts

NOTHING_STAGED = ""
"""The fingerprint of no uncommitted changes."""
NEVER_OBSERVED = "first seen now: its age counts from the next `lakeplan branches run` on"
"""The note of a branch that nobody observed before."""


@dataclass(frozen=True, slots=True)
class LiveBranch:
    id: str
    commit_id: str
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class StagedChange:
    """One uncommitted change. ``kind`` is ``added``, ``changed`` or ``removed``."""

    path: str
    kind: str
    size: int = 0


@dataclass(frozen=True)
class StagedData:
    """Uncommitted changes of a branch: the first 1,000, and whether there are more."""

    changes: tuple[StagedChange, ...] = ()
    more: bool = False

    @property
    def fingerprint(self) -> str:
        """Distinguishes one state of the uncommitted changes from another, as far as their listing shows
        it."""
        if not self.changes and not self.more:
            return NOTHING_STAGED
        text = "\n".join(f"{c.kind} {c.size} {c.path}" for c in sorted(self.changes, key=lambda c: c.path))
        return hashlib.sha256(f"{self.more}\n{text}".encode("utf-8", "backslashreplace")).hexdigest()[:16]


@dataclass(frozen=True)
class PullRequest:
    id: str
    source_branch: str
    destination_branch: str
    title: str = ""


class Keep(str, Enum):
    """Why a branch is kept. The first three are exemptions of the documents (lakefs/branch-lifecycle.md)."""

    DEFAULT_BRANCH = "default_branch"
    NO_CREATION_TIME = "no_creation_time"
    READ_ONLY = "read_only"
    NO_POLICY = "no_policy"
    NOT_CROSSED = "not_crossed"
    EXEMPT = "exempt"
    UNCOMMITTED = "uncommitted"
    OPEN_PULL_REQUEST = "open_pull_request"
    PROTECTED = "protected"
    NOT_MERGED = "not_merged"
    MIN_KEEP = "min_keep"
    HELD = "held"
    """A legal hold names the branch, or needs it to reach a commit or paths that it names."""
    EXEMPTED = "exempted"
    """A person exempted it for some time (``branches exempt``)."""
    NOTICE_DUE = "notice_due"
    """A policy would delete it, and no notice of that was accepted yet."""
    NOTICE_GIVEN = "notice_given"
    """The notice period is not over."""


AWAITS_NOTICE = frozenset({Keep.NOTICE_DUE, Keep.NOTICE_GIVEN})
"""Nothing but a notice, or its period, keeps the branch."""


@dataclass(frozen=True)
class BranchVerdict:
    """``kept_by`` None: the branch is deleted, by ``policy`` (its id, or its place such as ``policy 2``),
    which it crossed at ``since``. Otherwise ``due`` says when a policy would delete it if nobody writes
    (None: never, or it is unknown), and ``policy`` which."""

    kept_by: Keep | None
    policy: str | None = None
    since: datetime | None = None
    due: datetime | None = None

    @property
    def deletes(self) -> bool:
        return self.kept_by is None


@dataclass(frozen=True)
class Consequence:
    """What follows for one branch when all that are due are deleted: commits on its main line that are kept
    now or within 30 days (or when everything is past the default days) and that nothing keeps then, and the
    data that no commit holds any more that is still kept in the end. Two branches may count the same. Objects
    are None where they were not read. ``tags`` are on those commits, each beside one branch: a tag keeps no
    data (lakefs/retention.md)."""

    commits: int
    objects: int | None = None
    size_bytes: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class OnlyHere:
    """What one stale branch alone holds: commits that it keeps and nothing else does, and data that no other
    kept commit holds. ``idle_since`` is the date of its HEAD. Objects are None where they were not read."""

    idle_since: datetime
    commits: int
    objects: int | None = None
    size_bytes: int | None = None


SETTLED = "settled"
"""The moment at which all that exists today is past the default days, if nobody writes."""


@dataclass(frozen=True)
class MomentTotal:
    """All deletions together, at one moment: commits kept with the branches and not without them."""

    as_of: datetime
    commits: int
    objects: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class BranchOutlook:
    """One line of a branch plan. ``staged`` None: not read, because the branch is kept anyway.
    ``safe_until``: until when its HEAD is kept after a deletion, under the default days; None without rules
    (nothing is collected) or where the branch is kept. ``only_here`` None: not stale, or not read.
    """

    facts: BranchFacts
    verdict: BranchVerdict
    staged: StagedData | None = None
    pulls: tuple[PullRequest, ...] = ()
    tags: tuple[str, ...] = ()
    safe_until: datetime | None = None
    follows: Consequence | None = None
    notes: tuple[str, ...] = field(default=())
    only_here: OnlyHere | None = None

    @property
    def id(self) -> str:
        return self.facts.branch_id
