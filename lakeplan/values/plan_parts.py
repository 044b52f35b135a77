"""Parts of a plan: policies and object rules, branches that are deleted, and named objects."""

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
    """An item that is added, changed or removed (``clear``). ``item`` is its id or its patterns, or ``order``
    if only the order differs. ``before`` and ``after`` have the values that differ, as text, under the keys
    of the tree."""

    item: str
    action: Action
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BranchFate:
    """A branch that policies delete now, or within 30 days without new writes.

    ``goes_at`` is when the proposed policies delete it, and ``before_at`` when the stored ones do, or None if
    they do not delete it within that time. ``policy`` is the first proposed one that does. ``idle`` says
    whether an idle age decides. ``uncommitted`` counts the changes that would be lost, or only the first of
    them (``uncommitted_more``), or is None if they were not read. ``pulls`` are open pull requests from the
    branch. ``tags`` are those in its history but not in that of the default branch.
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
        """Return whether the proposed policies delete it by ``moment``, and the stored ones do not."""
        stored = self.before_at is not None and self.before_at <= moment
        return self.goes_at is not None and self.goes_at <= moment and not stored


@dataclass(frozen=True)
class SettingPlan:
    """Policies or object rules. ``server_etag`` is the server's, which an apply sends in ``If-Match``, or ""
    if nothing is set or the server sent no ETag. ``notes`` are for the reviewer, one line each."""

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
    """Policies. In ``after``, which is from the tree, a policy without an id gets the server's.
    ``reordered`` says that only the order differs, which does not change which branches are deleted.
    ``fates`` are the branches that are deleted, soonest first. ``deletions`` counts, by horizon, those that
    only the proposed policies delete. ``exempt_branches`` counts those without a creation time."""

    kind = SettingKind.BRANCH_LIFECYCLE
    before: tuple[Policy, ...] | None = None
    after: tuple[Policy, ...] | None = None
    reordered: bool = False
    fates: tuple[BranchFate, ...] = ()
    deletions: Mapping[str, int] = field(default_factory=dict)
    exempt_branches: int = 0

    def deleted(self, moment: datetime, proposed: bool) -> frozenset[str]:
        """Return the branches that the stored or the proposed policies have deleted by ``moment``."""
        gone = ((fate.branch_id, fate.goes_at if proposed else fate.before_at) for fate in self.fates)
        return frozenset(name for name, at in gone if at is not None and at <= moment)

    @property
    def shortens(self) -> bool:
        return super().shortens and not self.reordered


@dataclass(frozen=True)
class ObjectRulesPlan(SettingPlan):
    """Object rules. They delete objects by a commit, and the collector reclaims the storage later."""

    kind = SettingKind.OBJECT_LIFECYCLE
    before: tuple[ObjectRule, ...] | None = None
    after: tuple[ObjectRule, ...] | None = None

    @property
    def tightened(self) -> bool:
        """Whether a rule is added or changed, so that objects may expire that were kept."""
        return any(change.action is not Action.CLEAR for change in self.changes)


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


@dataclass(frozen=True)
class BranchesPlan:
    """The branches of a repository and what ``branches run`` does to each. An apply deletes none of them.

    Ages are as of ``as_of``. ``deletions`` counts, by horizon, the branches that are deleted by then without
    new writes. ``totals`` has the consequences of the deletions that are due, under the rules after the plan,
    at ``now``, ``plus_7_days``, ``plus_30_days`` and ``settled``. It is empty without deletions or rules.
    ``unknown`` says why the branches could not be inspected.
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
    def expired(self) -> int:
        """The number of branches that the next run deletes or announces for deletion."""
        return sum(1 for row in self.branches if row.is_expired)


RECORD_BYTES = 17
NOT_IN_DOCUMENT = {"not_in_document": True}
"""Metadata of a field that is not in the document of a plan."""
OPTIONAL = {"optional": True}
"""Metadata of a field that documents omit if it is None."""
INLINE_RECORDS = 2_000
"""The maximum number of records per repository in the plan file itself."""


class Bit(IntFlag):
    """Why there is a record of an object or a commit."""

    NOW = 1
    """The object expires now."""
    WEEK = 2
    """It expires within seven days, without new writes."""
    BACKLOG = 4
    """The stored rules do not keep it either."""
    COMMIT_NOW = 8
    COMMIT_WEEK = 16


@dataclass(frozen=True)
class Shown:
    """The records of one repository: their number and SHA-256. If there are few, ``inline`` has them in
    base64. Otherwise they are in the file beside the plan, and in ``data`` after that file was read."""

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
        """Return the records, or None if the file beside the plan was not read. Raises ValueError if they do
        not belong to the plan."""
        # Imported here so that commands that read no plan start without numpy.
        from lakeplan.values.shown_records import Records

        data = self.data
        if data is None and self.records and not self.inline:
            return None
        if data is None:
            data = base64.b64decode(self.inline, validate=True)
        if not self.is_of(data):
            raise ValueError("the recorded objects do not belong to the plan")
        return Records(data)
