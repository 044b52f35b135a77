"""``branches undo``: creates deleted branches again at the HEAD in the record of a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial

from lakeplan.branches.deletion_records import (
    Deletion,
    DeletionRecord,
    Fate,
    history_step,
    list_runs,
    read_deletions,
    repositories_on_record,
)
from lakeplan.branches.run import SAVE_EVERY, RunPorts
from lakeplan.errors import LakeplanError, UsageError, WriteUncertain, may_have_acted, may_still_act
from lakeplan.lakefs.protocols import BranchReader, BranchWriter
from lakeplan.review.run import Run, close_journal, open_journal, read_back
from lakeplan.review.selection import Selection, failure_of
from lakeplan.state.clocks import server_clock
from lakeplan.state.store import Lease, RunJournal
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.plan import Failure
from lakeplan.values.records import utc_second_text
from lakeplan.values.units import first_of

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
    advice = "To restore their branches, add them to the tree, or change the name of a renamed server back."
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
                        f"the undo was stopped before it restored {missing} branches",
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
