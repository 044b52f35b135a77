"""Deletes branches one by one and reports the outcome of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from lakeplan.branches.announce import Noticed
from lakeplan.branches.deletion_records import Fate
from lakeplan.branches.keepers import uncommitted_writes
from lakeplan.branches.pin_records import PinRelease
from lakeplan.branches.recall import Readers
from lakeplan.branches.survey import FRESH_SECONDS, Keeping, Survey
from lakeplan.branches.verdicts import judge_branch
from lakeplan.errors import (
    LakeplanError,
    LeaseHeld,
    NotFound,
    PreconditionFailed,
    RepositoryNotFound,
    may_have_acted,
    may_still_act,
)
from lakeplan.lakefs.protocols import BranchWriter
from lakeplan.review.run import Run, read_back
from lakeplan.state.clocks import is_recent
from lakeplan.values.branches import BranchOutlook, Keep
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.plan import Failure, GateResult


class Outcome(str, Enum):
    """The outcome for one branch. ``MOVED``: its HEAD moved since it was judged. ``WRITTEN``: its uncommitted
    changes differ. ``NEWLY_KEPT``: something keeps it that did not when it was judged. ``GONE``: somebody
    else deleted it. ``NOT_REVIEWED``: it is not in the plan file. ``UNCERTAIN``: it is unknown whether it was
    deleted or will be."""

    DELETED = "deleted"
    MOVED = "moved"
    WRITTEN = "written"
    NEWLY_KEPT = "newly_kept"
    GONE = "gone"
    NOT_REVIEWED = "not_reviewed"
    HOOK_REFUSED = "hook_refused"
    FAILED = "failed"
    UNCERTAIN = "uncertain"
    STOPPED = "stopped"
    GATE_REFUSED = "gate_refused"


@dataclass(frozen=True)
class BranchEnd:
    """The result for one branch. ``maybe_deleted``: an answer was lost, so the branch that was judged may
    have been deleted, even if a branch of the same name exists now. ``new_head`` is the different HEAD that a
    branch of the same name had then."""

    outlook: BranchOutlook
    outcome: Outcome
    message: str = ""
    maybe_deleted: bool = False
    new_head: str | None = None

    @property
    def fate(self) -> Fate:
        """Its fate for the record: undo restores branches that were or may have been deleted."""
        if self.outcome is Outcome.DELETED:
            return Fate.DELETED
        return Fate.INTENDED if self.maybe_deleted else Fate.KEPT

    @property
    def is_new(self) -> bool:
        """Whether a branch of this name may from now on be a new branch."""
        return self.maybe_deleted or self.outcome in (Outcome.DELETED, Outcome.GONE)


@dataclass(frozen=True)
class RepositoryEnd:
    """One repository of a run. ``observed`` counts the branches in the stored ledger."""

    desired: DesiredRepository
    branches: tuple[BranchEnd, ...] = ()
    kept: int = 0
    observed: int = 0
    gates: tuple[GateResult, ...] = ()
    warnings: tuple[str, ...] = ()
    failure: Failure | None = None
    noticed: tuple[Noticed, ...] = ()

    @property
    def key(self) -> str:
        return self.desired.key


@dataclass(frozen=True)
class BranchesReport:
    run_id: str
    at: datetime
    repositories: tuple[RepositoryEnd, ...]
    gates: tuple[GateResult, ...] = ()
    not_ours: tuple[str, ...] = ()


def is_held_elsewhere(end: RepositoryEnd) -> bool:
    """Whether another run holds the lease of the repository."""
    return end.failure is not None and end.failure.exit_code == int(LeaseHeld.exit_code)


TRIES = 3
"""The number of attempts at a deletion whose answers are lost, and at reading a branch within
``FRESH_SECONDS``."""

_KEPT = {
    Keep.DEFAULT_BRANCH: "it is the default branch now",
    Keep.READ_ONLY: "the repository is read-only now",
    Keep.HELD: "a hold now keeps this branch, because another branch or tag was moved or deleted",
    Keep.OPEN_PULL_REQUEST: "somebody opened a pull request from or into this branch",
    Keep.PROTECTED: "a branch protection rule matches it now",
    Keep.NOT_MERGED: "the default branch moved and may no longer contain the commits of this branch",
    Keep.EXEMPTED: "somebody recorded or removed an exemption for this branch",
    Keep.MIN_KEEP: "min_keep now keeps this branch, because other branches were deleted in the meantime",
}


@dataclass(frozen=True)
class ReviewedBranch:
    """A deletion in a plan file. ``uncommitted`` counts the changes; None: too many to count. ``last_write``
    None: the plan does not contain it."""

    head: str
    uncommitted: int | None = 0
    last_write: datetime | None = None

    def shows(self, outlook: BranchOutlook) -> bool:
        """Whether the plan showed the uncommitted changes: there are no more of them, and none is known to be
        newer. The same number alone does not prove that they are the same changes."""
        staged, written = outlook.staged, outlook.facts.last_write
        if staged is None or not (staged.changes or staged.more):
            return True
        if self.last_write is not None and written is not None and written > self.last_write:
            return False
        return self.uncommitted is None or (not staged.more and len(staged.changes) <= self.uncommitted)


@dataclass(frozen=True)
class Deleter:
    """Deletes branches of one repository. ``renew`` renews its lease. ``reviewed`` are the deletions of a
    plan file; None: any may be deleted."""

    survey: Survey
    readers: Readers
    writer: BranchWriter
    keeping: Keeping
    run: Run
    renew: Callable[[], None]
    reviewed: Mapping[str, ReviewedBranch] | None
    pins: PinRelease | None = None

    def delete(self, outlook: BranchOutlook) -> BranchEnd:
        """Deletes a branch and returns the outcome. Raises only if the lease was lost."""
        end = self._delete(outlook)
        if not end.is_new:
            self.keeping.stays(outlook.id)
        return end

    def _delete(self, outlook: BranchOutlook) -> BranchEnd:
        lost: LakeplanError | None = None
        for _ in range(TRIES):
            why = self._why_not(outlook)
            if why is not None:
                return why if lost is None else _after_lost(why)
            try:
                if self.pins is not None:
                    self.pins.before_deleting(outlook.id, outlook.facts.commit_id)
            except LakeplanError as error:
                return BranchEnd(outlook, Outcome.FAILED, str(error), lost is not None)
            if not self.keeping.is_fresh():  # pins may have required reading all refs and writing rules
                why = self._why_not(outlook)
                if why is not None:
                    return why if lost is None else _after_lost(why)
            try:
                self.writer.delete_branch(self.survey.desired.name, outlook.id)
            except PreconditionFailed as error:
                return BranchEnd(outlook, Outcome.HOOK_REFUSED, error.message, lost is not None)
            except RepositoryNotFound as error:
                return BranchEnd(outlook, Outcome.FAILED, str(error))
            except NotFound:
                # Or a proxy sent the deletion twice, so undo must be able to restore it.
                return BranchEnd(
                    outlook, Outcome.GONE, "another user or process deleted it", maybe_deleted=True
                )
            except LakeplanError as error:
                if not may_have_acted(error):
                    return BranchEnd(outlook, Outcome.FAILED, str(error), lost is not None)
                lost = error
            else:
                return BranchEnd(outlook, Outcome.DELETED)
            end = self._read_back(outlook, lost)
            if end is not None:
                return end
            self.keeping.forget()
        return BranchEnd(outlook, Outcome.FAILED, str(lost), maybe_deleted=True)

    def _read_back(self, outlook: BranchOutlook, lost: LakeplanError) -> BranchEnd | None:
        """The outcome of a deletion whose answer was lost. None: the branch exists as it was judged, and the
        server will not delete it any more."""
        name = self.survey.desired.name

        def head() -> str | None:
            return self.readers.branches.find_branch(name, outlook.id)

        try:
            current_head = read_back(head, lambda now: now != outlook.facts.commit_id, self.run.sleep)
        except LakeplanError as error:
            text = f"{lost.message}; lakeplan cannot check whether the branch was deleted: {error.message}"
            return BranchEnd(outlook, Outcome.UNCERTAIN, text, maybe_deleted=True)
        if current_head is None:
            return BranchEnd(outlook, Outcome.DELETED)
        if current_head != outlook.facts.commit_id:
            return _after_lost(_moved(outlook, current_head))
        if may_still_act(lost):
            # A hook may be running, and a second request would run it twice.
            text = f"{lost.message}; the branch exists now, but the server may still delete it"
            return BranchEnd(outlook, Outcome.UNCERTAIN, text, maybe_deleted=True)
        return None

    def _why_not(self, outlook: BranchOutlook) -> BranchEnd | None:
        """Return why a branch must not be deleted now, or None. No read is older than ``FRESH_SECONDS``."""
        for _ in range(TRIES):
            self.renew()
            began = self.run.now()
            try:
                why = self._changed(outlook)
            except RepositoryNotFound as error:
                return BranchEnd(outlook, Outcome.FAILED, str(error))
            except NotFound:
                return BranchEnd(outlook, Outcome.GONE, "another user or process deleted it")
            except LakeplanError as error:
                return BranchEnd(outlook, Outcome.FAILED, str(error))
            in_time = is_recent(began, self.run.now(), FRESH_SECONDS)
            if why is not None or (in_time and self.keeping.is_fresh()):
                return why
        text = f"the server took more than {FRESH_SECONDS:.0f} seconds to report what keeps the branch"
        return BranchEnd(outlook, Outcome.FAILED, text)

    def _changed(self, outlook: BranchOutlook) -> BranchEnd | None:
        """Return how a branch differs from the survey or from the reviewed plan, or what keeps it now."""
        name, judged = self.survey.desired.name, outlook.facts.commit_id
        if self.reviewed is not None:
            planned = self.reviewed.get(outlook.id)
            if planned is None:
                return BranchEnd(
                    outlook, Outcome.NOT_REVIEWED, "the plan does not list this branch for deletion"
                )
            if planned.head != judged:
                return BranchEnd(
                    outlook,
                    Outcome.MOVED,
                    f"its HEAD has moved since the plan, where it was {planned.head[:12]}",
                )
            if not planned.shows(outlook):
                text = "it has uncommitted changes that are not in the plan"
                return BranchEnd(outlook, Outcome.WRITTEN, text)
        keep = self.keeping.keeper(outlook)
        if keep is not None:
            return BranchEnd(outlook, Outcome.NEWLY_KEPT, _KEPT.get(keep, keep.value))
        written = outlook.staged is None or self._is_written(outlook)
        # The HEAD is read last: a commit removes the uncommitted changes and moves the HEAD.
        head = self.readers.branches.find_branch(name, outlook.id)
        if head is None:
            return BranchEnd(outlook, Outcome.GONE, "another user or process deleted it")
        if head != judged:
            return _moved(outlook, head)
        if written:
            return BranchEnd(
                outlook,
                Outcome.WRITTEN,
                "its uncommitted changes differ from those that the inspection found",
            )
        return None

    def _is_written(self, outlook: BranchOutlook) -> bool:
        """Whether its uncommitted changes differ from the survey, or are so new that no policy would delete
        it. An object that was written again with the same path and size differs only in its time."""
        reader, name, now = self.readers.branches, self.survey.desired.name, self.run.now()
        data = reader.staged(name, outlook.id)
        if outlook.staged is None or data.fingerprint != outlook.staged.fingerprint:
            return True
        seconds = int(now.timestamp())
        writes = uncommitted_writes(
            data, data.fingerprint, seconds, lambda path: reader.written_at(name, outlook.id, path)
        )
        if writes.written is not None:
            return True
        if writes.staged_at is None or outlook.facts.last_write is None:
            return False
        if writes.staged_at <= outlook.facts.last_write.timestamp():
            return False
        verdict = judge_branch(
            replace(outlook.facts, last_write=now),
            self.survey.desired.policies,
            now,
            default_branch=self.survey.repository.default_branch,
        )
        return not verdict.deletes


def _moved(outlook: BranchOutlook, head: str) -> BranchEnd:
    return BranchEnd(outlook, Outcome.MOVED, f"its HEAD moved to {head[:12]} in the meantime", new_head=head)


def _after_lost(end: BranchEnd) -> BranchEnd:
    """The result for a branch whose earlier deletion got no answer."""
    if end.outcome is Outcome.GONE:
        return BranchEnd(end.outlook, Outcome.DELETED)
    text = f"{end.message}; the server did not confirm an earlier request to delete the branch"
    return replace(end, message=text, maybe_deleted=True)
