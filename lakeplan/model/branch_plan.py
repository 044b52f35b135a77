"""Branches in a plan, where lakeplan is the one that deletes them (engine ``lakeplan``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from lakeplan.model.branches import BranchOutlook, Consequence, Keep, MomentTotal, OnlyHere
from lakeplan.model.lifecycle import Evidence

BY_POLICY = "policy"
"""The reason of a branch that goes."""


@dataclass(frozen=True)
class BranchRow:
    """One branch of a document. ``verdict`` is ``delete`` or ``keep``; ``reason`` is ``policy`` or a value of
    ``Keep``; ``uncommitted`` None: not looked at, because it stays anyway; ``only_here`` None: it is not
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
    def goes(self) -> bool:
        return self.reason == BY_POLICY

    def goes_by(self, moment: datetime) -> bool:
        """Whether it goes by then if nobody writes; what is staged on it may keep it all the same."""
        due = self.due is not None and self.due <= moment
        return self.goes or (due and self.reason == Keep.NOT_CROSSED.value)


def row_of(outlook: BranchOutlook) -> BranchRow:
    """Moments to the second."""
    facts, verdict, staged = outlook.facts, outlook.verdict, outlook.staged
    return BranchRow(
        facts.branch_id,
        facts.commit_id,
        facts.hidden,
        verdict="delete" if verdict.goes else "keep",
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
    """Every branch of a repository and what ``lifecycle run`` makes of it; an apply deletes none of them.

    ``as_of`` is the moment that ages are told for. ``deletions`` counts by horizon those that go by then, if
    nobody writes. ``totals`` is what follows from the deletions that are due, under the rules that the plan
    leaves behind, at ``now``, ``plus_7_days``, ``plus_30_days`` and ``settled``; empty without deletions or
    rules. ``unknown`` says why the branches could not be looked at.
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
        """Branches that the next run deletes."""
        return sum(1 for row in self.branches if row.goes)
