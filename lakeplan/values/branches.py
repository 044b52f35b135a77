"""Branches on a server, and what happens to each of them. Times are timezone-aware and in UTC."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from lakeplan.values.desired import BranchFacts, Evidence

NOTHING_STAGED = ""
"""The fingerprint of no uncommitted changes."""
NEVER_OBSERVED = (
    "seen for the first time: the age of the branch is counted from the next `lakeplan branches run`"
)
"""The note of a branch that is observed for the first time."""


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
        """Return a text that identifies the listed uncommitted changes."""
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
    """The reasons to keep a branch. The first three are documented exemptions
    (lakefs/branch-lifecycle.md)."""

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
    """A hold names the branch, or held data is reachable only through it."""
    EXEMPTED = "exempted"
    """Someone exempted it until a date (``branches exempt``)."""
    NOTICE_DUE = "notice_due"
    """A policy would delete it, but no notice has been accepted yet."""
    NOTICE_GIVEN = "notice_given"
    """A notice was accepted, but its period is not over."""


AWAITS_NOTICE = frozenset({Keep.NOTICE_DUE, Keep.NOTICE_GIVEN})
"""Only a missing notice, or its period, keeps the branch."""


@dataclass(frozen=True)
class BranchVerdict:
    """Whether a branch is deleted or kept. If ``kept_by`` is None, ``policy`` (its id, or its place such as
    ``policy 2``) deletes the branch, which crossed the thresholds at ``since``. Otherwise ``due`` is when
    ``policy`` would delete it without new writes, or None if that never happens or is unknown."""

    kept_by: Keep | None
    policy: str | None = None
    since: datetime | None = None
    due: datetime | None = None

    @property
    def deletes(self) -> bool:
        return self.kept_by is None


@dataclass(frozen=True)
class Consequence:
    """What one branch loses when all branches that are due are deleted. ``commits`` counts the commits on its
    main line that are kept today, at a horizon or once everything is past the default days, and that nothing
    keeps after the deletion. Objects are those that no commit kept after the deletion holds, or None if they
    were not read. Several branches may count the same commits and objects. ``tags`` are the tags on these
    commits, each listed for one branch only: a tag keeps no data (lakefs/retention.md)."""

    commits: int
    objects: int | None = None
    size_bytes: int | None = None
    tags: tuple[str, ...] = ()


MAX_STALE = 20
"""The most stale branches of a repository whose objects are counted separately, the longest idle first."""


@dataclass(frozen=True)
class OnlyHere:
    """The commits that only one stale branch keeps, and the data that no other kept commit holds.
    ``idle_since`` is the date of its HEAD. Objects are None if they were not read."""

    idle_since: datetime
    commits: int
    objects: int | None = None
    size_bytes: int | None = None


SETTLED = "settled"
"""When everything that exists today is past the default days, without new writes."""


@dataclass(frozen=True)
class MomentTotal:
    """The effect of all deletions at one moment: commits that are kept only because of these branches."""

    as_of: datetime
    commits: int
    objects: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True)
class BranchOutlook:
    """A branch in a branch plan. ``staged`` is None if it was not read, because the branch is kept anyway.
    ``safe_until`` is how long its HEAD is kept after all planned deletions, or None without rules (nothing is
    collected) or if the branch is kept. ``only_here`` is None if it is not stale, or not
    read."""

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


BY_POLICY = "policy"
"""The reason of a branch that is deleted."""
_AWAITS_NOTICE = frozenset(keep.value for keep in AWAITS_NOTICE)
_DELETED_WHEN_DUE = _AWAITS_NOTICE | {Keep.NOT_CROSSED.value, Keep.EXEMPTED.value}


@dataclass(frozen=True)
class BranchRow:
    """A branch in a document. ``verdict`` is ``delete`` or ``keep``. ``reason`` is ``policy`` or a value of
    ``Keep``. ``uncommitted`` is None if it was not read, because the branch is kept anyway. ``only_here`` is
    None if the branch is not stale."""

    branch_id: str
    commit_id: str
    hidden: bool
    verdict: str
    reason: str
    policy: str | None
    since: datetime | None
    due: datetime | None
    created: datetime | None
    created_evidence: Evidence | None
    last_write: datetime | None
    last_write_evidence: Evidence | None
    uncommitted: int | None
    uncommitted_more: bool
    pulls: tuple[str, ...]
    tags: tuple[str, ...]
    safe_until: datetime | None
    follows: Consequence | None
    notes: tuple[str, ...]
    only_here: OnlyHere | None = None

    @property
    def is_deleted(self) -> bool:
        return self.reason == BY_POLICY

    @property
    def is_expired(self) -> bool:
        """Whether it is deleted, now or after its notice period."""
        return self.is_deleted or self.reason in _AWAITS_NOTICE

    def is_deleted_by(self, moment: datetime) -> bool:
        """Return whether it is deleted by ``moment`` without new writes. Uncommitted changes may still keep
        it."""
        is_due = self.due is not None and self.due <= moment
        return self.is_deleted or (is_due and self.reason in _DELETED_WHEN_DUE)


def branch_row(outlook: BranchOutlook) -> BranchRow:
    """Return the branch as documents show it, with times to the second."""
    facts, verdict, staged = outlook.facts, outlook.verdict, outlook.staged
    return BranchRow(
        facts.branch_id,
        facts.commit_id,
        facts.hidden,
        verdict="delete" if verdict.deletes else "keep",
        reason=BY_POLICY if verdict.kept_by is None else verdict.kept_by.value,
        policy=verdict.policy,
        since=_second(verdict.since),
        due=_second(verdict.due),
        created=_second(facts.created),
        created_evidence=facts.created_evidence,
        last_write=_second(facts.last_write),
        last_write_evidence=facts.last_write_evidence,
        uncommitted=None if staged is None else len(staged.changes),
        uncommitted_more=staged.more if staged is not None else False,
        pulls=tuple(pull.id for pull in outlook.pulls),
        tags=outlook.tags,
        safe_until=_second(outlook.safe_until),
        follows=outlook.follows,
        notes=outlook.notes,
        only_here=None
        if outlook.only_here is None
        else replace(outlook.only_here, idle_since=outlook.only_here.idle_since.replace(microsecond=0)),
    )


def _second(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(microsecond=0)
