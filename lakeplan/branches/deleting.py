"""Deletes branches, each recorded before, and creates deleted branches again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from functools import partial

from lakeplan.branches.announce import Noticed
from lakeplan.branches.deletion_records import (
    Deletion,
    DeletionRecord,
    Fate,
    history_step,
    list_runs,
    read_deletions,
    repositories_on_record,
)
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
    UsageError,
    WriteUncertain,
    may_have_acted,
    may_still_act,
)
from lakeplan.lakefs.protocols import BranchReader, BranchWriter, GcRulesWriter
from lakeplan.review.claims import ClaimServer
from lakeplan.review.run import Run, close_journal, open_journal, read_back
from lakeplan.review.selection import Selection, failure_of
from lakeplan.state.clocks import is_recent, server_clock
from lakeplan.state.store import Lease, RunJournal
from lakeplan.stores.open import StateWriter
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import BranchOutlook, Keep, LiveBranch
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.notify import NoPublisher, Publisher
from lakeplan.values.plan import Failure, GateResult
from lakeplan.values.progress import Progress
from lakeplan.values.records import utc_second_text
from lakeplan.values.units import first_of

SAVE_EVERY = 50
"""Deletions between two saves of the record. If a run is killed, the ones not saved stay ``intended``."""


@dataclass(frozen=True)
class RunPorts:
    """The dependencies of a run. ``stop`` is called before every deletion and returns whether to stop
    (SIGTERM). ``publisher`` gives notice of deletions."""

    readers: Callable[[str], Readers]
    writer: Callable[[str], BranchWriter]
    state: StateWriter
    progress: Progress
    stop: Callable[[], bool] = lambda: False
    publisher: Publisher = field(default_factory=NoPublisher)
    rules: Callable[[str], GcRulesWriter] | None = None
    """Writes the rules of pins; None: there are no pins."""
    claims: Callable[[str], ClaimServer] | None = None
    """The servers on which a named tree claims a repository before it deletes there; None: it does not."""


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
    Keep.OPEN_PULL_REQUEST: "someone opened a pull request from or into this branch",
    Keep.PROTECTED: "a branch protection rule matches it now",
    Keep.NOT_MERGED: "the default branch moved and may no longer contain the commits of this branch",
    Keep.EXEMPTED: "someone recorded or removed an exemption for this branch",
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
                    f"its HEAD has moved since the plan was made, when it was {planned.head[:12]}",
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


log = logging.getLogger(__name__)
SAMPLE = 10
"""Objects of a restored branch that are read to see whether a collection has deleted its data."""
AT_ONCE = 4
"""Branches that are created at the same time."""
NAMED = 5


class Restored(str, Enum):
    """The outcome for a branch. ``EXISTS``: a branch of that name exists and was not changed. ``UNCERTAIN``:
    the answer was lost, and the server may still create the branch."""

    RESTORED = "restored"
    EXISTS = "exists"
    FAILED = "failed"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True)
class BranchRestored:
    """The result for one branch. Of ``sampled`` objects, ``gone`` do not exist. ``back``: it is back."""

    branch_id: str
    deletion: Deletion
    outcome: Restored
    message: str = ""
    warnings: tuple[str, ...] = ()
    sampled: int = 0
    gone: int = 0
    back: bool = False


@dataclass(frozen=True)
class RepositoryRestored:
    repository: str
    run_id: str = ""
    at: str = ""
    branches: tuple[BranchRestored, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True)
class UndoReport:
    run_id: str
    repositories: tuple[RepositoryRestored, ...]


@dataclass(frozen=True)
class UndoOptions:
    """The options of ``branches undo``. ``run_id`` None: for each repository, the newest run with something
    to restore. ``branches`` empty: all branches."""

    selection: Selection
    run_id: str | None = None
    branches: frozenset[str] = frozenset()


def undo_branches(tree: DesiredTree, options: UndoOptions, ports: RunPorts, run: Run) -> UndoReport:
    """Restores branches, repository by repository. Raises UsageError if no record has any to restore."""
    restorable: list[tuple[DesiredRepository, DeletionRecord]] = []
    damaged: list[RepositoryRestored] = []
    on_record = repositories_on_record(ports.state, options.run_id)
    resolved: set[str] = set()
    for server in tree.servers if options.selection.server is None else [options.selection.server]:
        names = [key.partition("/")[2] for key in on_record if key.startswith(f"{server}/")]
        # The engine does not matter: it may have been turned off because of what is to be undone.
        for desired in tree.resolve(server, names):
            resolved.add(desired.key)
            if desired.name not in names or not options.selection.takes(desired):
                continue
            try:
                if (record := _record(ports, desired, options)) is not None:
                    restorable.append((desired, record))
            except LakeplanError as error:
                damaged.append(RepositoryRestored(desired.key, failure=failure_of(error)))
    lost = _lost([k for k in on_record if k not in resolved and options.selection.takes_key(k)])
    if not restorable and not damaged:
        what = f"run {options.run_id}" if options.run_id else "any run"
        state = (
            "Also check that state.url in the tree points to the state of the run that deleted the branch."
        )
        raise UsageError(
            f"no record of {what} lists a deleted branch that can be restored",
            hint=f"Check --target, --run and --branch. {lost or state}",
        )
    if lost:
        log.warning("%s", lost)
    journal = open_journal(ports.state, run, "branches undo")
    done = [_undo(d, r, options, ports, run, journal) for d, r in restorable]
    # The branches have been restored, so a failure to record that is only a warning.
    if done and (note := close_journal(journal, run)):
        log.warning("%s", note)
    return UndoReport(run.run_id, tuple(sorted((*done, *damaged), key=lambda end: end.repository)))


def _lost(keys: Sequence[str]) -> str:
    """A sentence about repositories that have records, but are not in the tree. "" if there are none."""
    advice = (
        "To restore their branches, add them to the tree, or restore the former name of a renamed server."
    )
    text = f"The state has records of repositories that are not in the tree: {first_of(keys, NAMED)}."
    return f"{text} {advice}" if keys else ""


def _record(ports: RunPorts, desired: DesiredRepository, options: UndoOptions) -> DeletionRecord | None:
    """The newest record with something to restore, or the one of the requested run."""
    runs = [run for run in list_runs(ports.state, desired.key) if options.run_id in (None, run)]
    records = (read_deletions(ports.state, desired.key, run_id) for run_id in reversed(runs))
    return next((record for record in records if record is not None and _to_restore(record, options)), None)


def _to_restore(record: DeletionRecord, options: UndoOptions) -> dict[str, Deletion]:
    """The branches that the run deleted or may have deleted. Observed branches, which a server's job may have
    deleted, are included if the run or the branches are named."""
    named = options.run_id is not None or options.branches
    wanted = {Fate.DELETED, Fate.INTENDED, *([Fate.SEEN] if named else [])}
    chosen = options.branches or record.branches
    return {name: one for name, one in record.branches.items() if one.fate in wanted and name in chosen}


def _undo(
    desired: DesiredRepository,
    record: DeletionRecord,
    options: UndoOptions,
    ports: RunPorts,
    run: Run,
    journal: RunJournal,
) -> RepositoryRestored:
    done: list[BranchRestored] = []
    failure = None
    try:
        readers = ports.readers(desired.server)
        clock = partial(server_clock, readers.refs, desired.name, run.now, where=desired.key)
        lease = Lease(ports.state, desired.key, run.holder, run.now, run.is_gone, lambda: clock().earliest)
        with lease, ThreadPoolExecutor(AT_ONCE) as pool:
            # Read again under the lease: another undo may have been first.
            fresh = read_deletions(ports.state, desired.key, record.run_id) or record
            restorer = _Restorer(desired.name, readers.branches, ports.writer(desired.server), run)
            left = sorted(_to_restore(fresh, options).items())
            pending = {name: (deletion.head, "pending") for name, deletion in left}
            journal.step(desired.key, **history_step(pending, None) | {"status": "pending"})
            for start in range(0, len(left), SAVE_EVERY):
                lease.renew()
                some = left[start : start + SAVE_EVERY]
                ends = pool.map(lambda one: None if ports.stop() else restorer.restore(*one), some)
                done += (made := [end for end in ends if end is not None])
                settled = [end.branch_id for end in made if end.outcome is Restored.RESTORED or end.back]
                for name in settled:
                    fresh.settle(name, Fate.RESTORED, f"by {run.run_id}")
                if settled:
                    # If an undo is killed before this, the next one finds the branches and settles them.
                    fresh.save()
                if len(made) < len(some):
                    missing = f"{len(left) - len(done):,} of {len(left):,}"
                    raise LakeplanError(
                        f"the undo was stopped, and {missing} branches were not restored",
                        where=desired.key,
                        hint="Run the command again to restore them.",
                    )
    except LakeplanError as error:
        failure = failure_of(error)
    outcomes = {b.branch_id: (b.deletion.head, b.outcome.value) for b in done}
    bad = (Restored.FAILED.value, Restored.UNCERTAIN.value)
    journal.record.setdefault("repositories", {})[desired.key] = history_step(outcomes, failure, bad)
    return RepositoryRestored(desired.key, record.run_id, record.at, tuple(done), failure)


@dataclass(frozen=True)
class _Restorer:
    """Restores the branches of one repository. Several threads use it, each for different branches."""

    repository: str
    reader: BranchReader
    writer: BranchWriter
    run: Run
    samples: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By HEAD, because many branches may have the same."""

    def restore(self, name: str, deletion: Deletion) -> BranchRestored:
        try:
            existing = self.reader.find_branch(self.repository, name)
            head = existing or self._create(LiveBranch(name, deletion.head, deletion.hidden))
            if existing or head != deletion.head:
                text = f"a branch of this name already exists at {head[:12]}, and was not changed"
                if head != deletion.head:
                    text = f"{text}; the deleted branch was at {deletion.head}"
                return BranchRestored(name, deletion, Restored.EXISTS, text, back=deletion.deleted_at(head))
        except LakeplanError as error:
            outcome = Restored.UNCERTAIN if isinstance(error, WriteUncertain) else Restored.FAILED
            return BranchRestored(name, deletion, outcome, str(error))
        warnings, sampled, gone = _warnings(deletion, self.run.now()), 0, 0
        try:
            sampled, gone = self._sample(deletion.head)
        except LakeplanError as error:
            warnings.append(f"its data could not be inspected: {error.message}")
        if gone:
            warnings.append(
                f"a collection has run since the deletion: {gone} of {sampled} sampled objects were deleted"
            )
        return BranchRestored(name, deletion, Restored.RESTORED, "", tuple(warnings), sampled, gone)

    def _create(self, branch: LiveBranch) -> str:
        """Creates a branch and returns the HEAD of the branch that then exists. The request is sent once,
        because somebody else may create a branch of that name before a second one."""
        try:
            self.writer.create_branch(self.repository, branch)
        except LakeplanError as error:
            if not may_have_acted(error):
                raise
            try:
                find = partial(self.reader.find_branch, self.repository, branch.id)
                head = read_back(find, bool, self.run.sleep)
            except LakeplanError as other:
                text = f"{error.message}; whether the branch exists is unknown: {other.message}"
                raise WriteUncertain(text) from error
            if head:
                return head
            if may_still_act(error):
                raise WriteUncertain(f"{error.message}; the server may still create the branch") from error
            raise
        return branch.commit_id

    def _sample(self, head: str) -> tuple[int, int]:
        if head not in self.samples:
            self.samples[head] = self.reader.readable_sample(self.repository, head, SAMPLE)
        return self.samples[head]


def _warnings(deletion: Deletion, now: datetime) -> list[str]:
    notes = []
    if deletion.uncommitted:
        more = "more than " if deletion.uncommitted_more else ""
        notes.append(f"{more}{deletion.uncommitted:,} uncommitted changes were lost and cannot be restored")
    if deletion.safe_until is not None and utc_second_text(now) > deletion.safe_until:
        since = f"its commits were safe until {deletion.safe_until}"
        notes.append(f"{since}; a later collection may have deleted their data")
    return notes
