"""Parts of a plan: settings that have an ETag, branches that are deleted, objects that are named."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntFlag
from typing import TYPE_CHECKING, ClassVar

from lakeplan.values.branches import AWAITS_NOTICE, BranchOutlook, Consequence, Keep, MomentTotal, OnlyHere
from lakeplan.values.rules import Action
from lakeplan.values.settings import Evidence, ObjectRule, Policy, SettingItem, SettingKind, setting_etag

if TYPE_CHECKING:
    from lakeplan.values.shown_records import Records


@dataclass(frozen=True)
class SettingChange:
    """One item that is added, changed or removed (``clear``). ``item`` is its id, or its patterns; ``order``
    when only the order differs. ``before`` and ``after`` hold the values that differ, as text under the names
    of the tree."""

    item: str
    action: Action
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BranchFate:
    """A branch that policies delete, by now or within thirty days if nobody writes. ``goes_at`` is when the
    proposed policies have all their thresholds crossed (``policy`` names the first), ``before_at`` when the
    stored ones have; None: not within that time. ``idle`` says that an idle age is among what decides.
    ``uncommitted`` counts the changes that would be lost (``uncommitted_more``: at least); None: not read.
    ``pulls`` are open pull requests from it, ``tags`` those that it leads to and the default branch does not.
    """

    branch_id: str
    commit_id: str
    created: datetime
    last_write: datetime | None
    policy: str
    goes_at: datetime | None
    before_at: datetime | None
    idle: bool = False
    uncommitted: int | None = None
    uncommitted_more: bool = False
    pulls: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def newly(self, moment: datetime) -> bool:
        """Whether the change deletes it by ``moment`` and the stored policies would not have."""
        stored = self.before_at is not None and self.before_at <= moment
        return self.goes_at is not None and self.goes_at <= moment and not stored


@dataclass(frozen=True)
class SettingPlan:
    """``server_etag`` is the server's own, "" while nothing is set or when it gives none; it is what an apply
    sends in ``If-Match``. ``notes`` say what a reviewer should know, one line each."""

    kind: ClassVar[SettingKind]
    action: Action
    server_etag: str = ""
    changes: tuple[SettingChange, ...] = ()
    notes: tuple[str, ...] = ()
    before: tuple[SettingItem, ...] | None = None
    after: tuple[SettingItem, ...] | None = None

    @property
    def before_etag(self) -> str:
        return setting_etag(self.before)

    @property
    def after_etag(self) -> str:
        return setting_etag(self.after)

    @property
    def shortens(self) -> bool:
        return self.action.writes and self.after is not None


@dataclass(frozen=True)
class PoliciesPlan(SettingPlan):
    """``after`` is what the tree says: a policy without an id gets the server's. ``reordered`` means that
    nothing but the order differs, which has no effect on which branches are deleted. ``fates`` are the
    branches that are deleted, soonest first; ``deletions`` counts, by horizon, those that the change newly
    deletes; ``exempt_branches`` those that the server gives no creation time for."""

    kind = SettingKind.BRANCH_LIFECYCLE
    before: tuple[Policy, ...] | None = None
    after: tuple[Policy, ...] | None = None
    reordered: bool = False
    fates: tuple[BranchFate, ...] = ()
    deletions: Mapping[str, int] = field(default_factory=dict)
    exempt_branches: int = 0

    def deleted(self, moment: datetime, proposed: bool) -> frozenset[str]:
        """Branches that the stored or the proposed policies have deleted by then."""
        gone = ((fate.branch_id, fate.goes_at if proposed else fate.before_at) for fate in self.fates)
        return frozenset(name for name, at in gone if at is not None and at <= moment)

    @property
    def shortens(self) -> bool:
        return super().shortens and not self.reordered


@dataclass(frozen=True)
class ObjectRulesPlan(SettingPlan):
    """Object rules expire objects by a commit; the collector reclaims them later."""

    kind = SettingKind.OBJECT_LIFECYCLE
    before: tuple[ObjectRule, ...] | None = None
    after: tuple[ObjectRule, ...] | None = None

    @property
    def tightened(self) -> bool:
        """Whether some rule is added or changed: objects may expire that were kept."""
        return any(change.action is not Action.CLEAR for change in self.changes)


BY_POLICY = "policy"
"""The reason of a branch that is deleted."""


_AWAITS_NOTICE = frozenset(keep.value for keep in AWAITS_NOTICE)
_GO_WHEN_DUE = _AWAITS_NOTICE | {Keep.NOT_CROSSED.value, Keep.EXEMPTED.value}


@dataclass(frozen=True)
class BranchRow:
    """One branch of a document. ``verdict`` is ``delete`` or ``keep``; ``reason`` is ``policy`` or a value of
    ``Keep``; ``uncommitted`` None: not read, because it is kept anyway; ``only_here`` None: it is not
    among the stale branches."""

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
        """Whether it is deleted, at once or after its notice."""
        return self.is_deleted or self.reason in _AWAITS_NOTICE

    def is_deleted_by(self, moment: datetime) -> bool:
        """Whether it is deleted by then if nobody writes; uncommitted changes may keep it all the same."""
        due = self.due is not None and self.due <= moment
        return self.is_deleted or (due and self.reason in _GO_WHEN_DUE)


def branch_row(outlook: BranchOutlook) -> BranchRow:
    """Moments to the second."""
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


@dataclass(frozen=True)
class BranchesPlan:
    """Every branch of a repository and what ``branches run`` makes of it; an apply deletes none of them.

    ``as_of`` is the moment that ages count to. ``deletions`` counts by horizon those deleted by then, if
    nobody writes. ``totals`` is what follows from the deletions that are due, under the rules that the plan
    leaves behind, at ``now``, ``plus_7_days``, ``plus_30_days`` and ``settled``; empty without deletions or
    rules. ``unknown`` says why the branches could not be inspected.
    """

    as_of: datetime
    branches: tuple[BranchRow, ...] = ()
    observed_since: datetime | None = None
    deletions: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[str, MomentTotal] = field(default_factory=dict)
    objects_unknown: str = ""
    notes: tuple[str, ...] = ()
    unknown: str = ""

    @property
    def going(self) -> int:
        """Branches that the next run deletes, or gives notice of."""
        return sum(1 for row in self.branches if row.is_expired)


RECORD_BYTES = 17
NOT_IN_DOCUMENT = {"not_in_document": True}
"""Metadata of a field that is not in the document of a plan."""
OPTIONAL = {"optional": True}
"""Metadata of a field that is in the document of a plan unless it is None."""
INLINE_RECORDS = 2_000
"""Up to so many of a repository are in the plan file itself."""


class Bit(IntFlag):
    """Why there is a record of an object or a commit."""

    NOW = 1
    """The object expires at once."""
    WEEK = 2
    """It expires within seven days, if nobody writes."""
    BACKLOG = 4
    """The stored rules do not keep it already."""
    COMMIT_NOW = 8
    COMMIT_WEEK = 16


@dataclass(frozen=True)
class Shown:
    """The records of one repository: how many, and the SHA-256 of all of them. ``inline`` has them in base64
    when they are few; otherwise they are in the file beside the plan, and ``data`` when that was read."""

    records: int
    sha256: str
    inline: str = ""
    data: bytes | None = field(default=None, compare=False, repr=False, metadata=NOT_IN_DOCUMENT)

    @classmethod
    def of(cls, data: bytes) -> Shown:
        count = len(data) // RECORD_BYTES
        inline = base64.b64encode(data).decode() if count <= INLINE_RECORDS else ""
        return cls(count, hashlib.sha256(data).hexdigest(), inline, data)

    def is_of(self, data: bytes) -> bool:
        size = self.records * RECORD_BYTES
        return len(data) == size and hashlib.sha256(data).hexdigest() == self.sha256

    def read(self) -> Records | None:
        """The records; None when they are beside the plan and were not found there. Raises ValueError when
        they are not those that the plan names."""
        # numpy is needed here alone: commands that read no plan start without it
        from lakeplan.values.shown_records import Records

        data = self.data
        if data is None and self.records and not self.inline:
            return None
        if data is None:
            data = base64.b64decode(self.inline, validate=True)
        if not self.is_of(data):
            raise ValueError("the objects that the plan showed are not those that it names")
        return Records(data)
