"""Runs ``branches run``, once or on a schedule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lakeplan.branches.announce import Announced, give_notice
from lakeplan.branches.deleting import (
    SAVE_EVERY,
    BranchEnd,
    BranchesReport,
    Deleter,
    Outcome,
    RepositoryEnd,
    ReviewedBranch,
    RunPorts,
)
from lakeplan.branches.deletion_records import (
    Deletion,
    DeletionRecord,
    Fate,
    history_step,
    last_runs,
    maybe_new,
    read_deletions,
)
from lakeplan.branches.keepers import with_other_names
from lakeplan.branches.ledger import Mark, without
from lakeplan.branches.notices import read_exemptions, with_newest, write_exemptions
from lakeplan.branches.pin_records import PinRelease
from lakeplan.branches.plan import (
    WORKERS,
    BranchesOptions,
    follow,
    repository_gates,
    select,
    what_follows,
    whole_gates,
)
from lakeplan.branches.recall import UNWITNESSED, Recalled, Runs, recall, write_ledger, write_witness
from lakeplan.branches.survey import Keeping, Moments, Survey, survey
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.review import gates
from lakeplan.review.claims import claim
from lakeplan.review.history import check_newest
from lakeplan.review.run import Run, close_journal, note_step, open_journal
from lakeplan.review.selection import failure_of
from lakeplan.state.clocks import Clocks, server_clock
from lakeplan.state.store import LEASE_SECONDS, Lease, ListedOnce
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import BranchOutlook
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.plan import Failure, GateOutcome, GateResult
from lakeplan.values.progress import in_parallel
from lakeplan.values.records import utc_second_text
from lakeplan.values.units import Cron

log = logging.getLogger(__name__)
LONGEST_SLEEP = 60.0
"""In seconds. A run notices within this time that the clock changed or that the machine was suspended."""


def serve(
    cron: Cron, tick: Callable[[], int], now: Callable[[], datetime], wait: Callable[[float], bool]
) -> int:
    """Calls ``tick`` at every moment of the schedule. Missed runs are not made up for, and a failed run is
    logged. ``wait`` sleeps for seconds and returns whether to stop. Returns the number of runs."""
    ticks = 0
    next_run = _next(cron, now())
    while True:
        left = (next_run - now()).total_seconds()
        if left > 0:
            if wait(min(left, LONGEST_SLEEP)):
                return ticks
            continue
        try:
            tick()
        except LakeplanError as error:
            log.error("%s%s", error, f" ({error.hint})" if error.hint else "")
        ticks += 1
        if wait(0):
            return ticks
        next_run = _next(cron, max(now(), next_run))


def _next(cron: Cron, moment: datetime) -> datetime:
    """The next moment of a schedule. Schedules are in UTC, where no hour is skipped or repeated."""
    moment_after = cron.next_after(moment)
    if moment_after is None:
        raise UsageError(
            f"the schedule {cron.text!r} never occurs", hint="Check the day and month of the schedule."
        )
    return moment_after


_BAD = frozenset({Outcome.FAILED.value, Outcome.UNCERTAIN.value, Outcome.HOOK_REFUSED.value})


@dataclass
class _Held:
    """A repository with branches to delete or to give notice of. Its lease is held."""

    desired: DesiredRepository
    lease: Lease
    renewed: datetime
    recalled: Recalled
    survey: Survey
    stack: ExitStack
    old: list[DeletionRecord]
    clocks: Clocks
    ahead: timedelta = timedelta()
    """An upper bound for how far the latest clock is ahead of this machine's."""
    gates: tuple[GateResult, ...] = field(default=())
    mark: Mark | None = None
    """The mark to store with the ledger, once the repository has its witness."""
    announced: Announced = field(default_factory=Announced)

    @property
    def warnings(self) -> tuple[str, ...]:
        writable = not self.survey.repository.read_only
        unwitnessed = writable and self.mark is not None and not self.mark.witnessed
        unwitnessed_note = (UNWITNESSED,) if unwitnessed else ()
        return tuple(dict.fromkeys((*self.recalled.notes, *unwitnessed_note, *self.announced.problems)))


NOTICE_GIVEN = "notice_given"
"""An outcome of a branch in the history, besides the values of ``Outcome``."""

Reviewed = Mapping[str, Mapping[str, ReviewedBranch]]
"""The deletions of a reviewed plan, by ``server/name`` and branch."""


def run_branches(
    tree: DesiredTree,
    options: BranchesOptions,
    ports: RunPorts,
    run: Run,
    *,
    reviewed: Reviewed | None = None,
) -> BranchesReport:
    """Inspects every selected repository, then deletes branches where no gate refuses. A repository that
    fails does not stop the others."""
    wanted, broken, others = select(tree, options, ports.readers)
    overrides = gates.GateOverrides(options.allowed, (), options.now.date())
    overrides.check_named([*(d.key for d in wanted), *(b.key for b in broken), *others])
    runner = _Runner(tree, options, ports, run, reviewed)
    with runner.leases:
        results, whole = _run_all(runner, wanted, ports)
    results += [RepositoryEnd(b.desired, failure=b.failure) for b in broken]
    runner.close()
    return BranchesReport(
        run.run_id, options.now, tuple(sorted(results, key=lambda e: e.key)), whole, tuple(sorted(others))
    )


def _run_all(
    runner: _Runner, wanted: Sequence[DesiredRepository], ports: RunPorts
) -> tuple[list[RepositoryEnd], tuple[GateResult, ...]]:
    """Inspects repositories, judges the gates over all of them, and deletes. Returns the end of each, and the
    gates."""
    with ports.progress.task("inspecting branches", len(wanted)) as step:
        inspected = in_parallel(runner.inspect, wanted, WORKERS, step)
    held = [item for item in inspected if isinstance(item, _Held)]
    results = [item for item in inspected if isinstance(item, RepositoryEnd)]
    runner.give_notice(held)
    whole = runner.weigh([item for item in held if item.survey.deleted])
    refused = any(g.outcome is GateOutcome.REFUSED for g in whole)
    total = sum(len(item.survey.deleted) for item in held)
    with ports.progress.task("deleting branches", total) as step:
        results += [runner.finish(item, step, refused=refused) for item in held]
    return results, whole


@dataclass
class _Runner:
    _tree: DesiredTree
    _options: BranchesOptions
    _ports: RunPorts
    _run: Run
    _reviewed: Reviewed | None
    leases: ExitStack = field(default_factory=ExitStack)
    """Releases every lease that is still held when the run ends, whatever ended it."""

    def __post_init__(self) -> None:
        self._journal = open_journal(self._ports.state, self._run, "branches run")
        self._listed = ListedOnce(self._ports.state)

    # ---- inspecting
    def inspect(self, desired: DesiredRepository) -> _Held | RepositoryEnd:
        """Inspects a repository under its lease, which is kept if there is something to do."""
        with ExitStack() as stack:
            try:
                desired = with_other_names(desired, self._tree, self._ports.readers)
                refs = self._ports.readers(desired.server).refs
                began = self._run.now()
                clocks = server_clock(refs, desired.name, self._run.now, where=desired.key)
                state, run = self._ports.state, self._run
                lease = stack.enter_context(
                    Lease(state, desired.key, run.holder, run.now, run.is_gone, lambda: clocks.earliest)
                )
                held = self._survey(desired, lease, stack, clocks)
                held.ahead = clocks.latest - began
                if held.survey.deleted or held.survey.to_announce:
                    held.stack = self.leases.enter_context(stack.pop_all())
                    return held
                return self._nothing_to_delete(held)
            except LakeplanError as error:
                return RepositoryEnd(desired, failure=failure_of(error))

    def _survey(self, desired: DesiredRepository, lease: Lease, stack: ExitStack, clocks: Clocks) -> _Held:
        readers = self._ports.readers(desired.server)
        old, finished = last_runs(self._ports.state, desired.key)
        server = self._tree.servers[desired.server]
        recalled = recall(
            self._listed,
            readers,
            desired,
            server.endpoint_url,
            self._options.now,
            Runs(self._run.run_id, old, finished),
        )
        if recalled.ledger is not None:
            recalled = replace(recalled, ledger=without(recalled.ledger, maybe_new(old)))
        if recalled.spared.exemptions:
            self._keep_exemptions(desired, recalled)
        # New branches are dated by the latest clock and all are judged by the earliest.
        when = Moments(clocks.latest, min(self._options.now, clocks.earliest), server.zone)
        inspected = survey(desired, readers, recalled, when, whole=False)
        if (inspected.deleted or inspected.to_announce) and inspected.hold_problems:
            raise LakeplanError(
                f"{inspected.hold_problems[0]}; nothing is deleted until the hold is corrected",
                where=desired.key,
                hint="Correct the hold in the tree, or remove it.",
            )
        return _Held(desired, lease, self._run.now(), recalled, inspected, stack, old, clocks)

    def _keep_exemptions(self, desired: DesiredRepository, recalled: Recalled) -> None:
        """Stores the exemptions under other names of the server under its present name."""
        state, all_of_them = self._ports.state, recalled.spared.exemptions
        own, version = read_exemptions(state, desired.key)
        merged = with_newest(all_of_them, own)  # somebody may have exempted a branch since
        if merged != own:
            write_exemptions(state, desired.key, merged, version, self._options.now)

    def _nothing_to_delete(self, held: _Held) -> RepositoryEnd:
        self._remember(held, deleted=())
        return self._end(held, [], None)

    def _remember(self, held: _Held, deleted: tuple[str, ...]) -> None:
        """Stores the ledger, once a run, and then settles the records of stopped runs."""
        ledger, mark = without(held.survey.ledger, deleted), self._marked(held)
        write_ledger(self._ports.state, held.desired.key, ledger, mark, held.recalled.version)
        for record in held.old:
            for name, deletion in record.branches.items():
                if deletion.fate is Fate.INTENDED:
                    _settle(record, name, held.survey.outlooks.get(name))
            record.finished = True
            record.save()

    def _marked(self, held: _Held) -> Mark:
        """The mark for the ledger, after the witness was written, once a run."""
        if held.mark is None:
            server, repository, mark = held.desired.server, held.survey.repository, held.recalled.mark
            if repository.read_only:
                held.mark = replace(mark, assumable=mark.assumable and mark.witnessed)
            else:
                held.mark = write_witness(
                    repository.id,
                    mark,
                    self._ports.readers(server).branches,
                    self._ports.writer(server),
                    self._run,
                )
        return held.mark

    # ---- notices
    def give_notice(self, held: list[_Held]) -> None:
        """Publishes notices of the deletions that need one, unless the run is to stop."""
        waiting = [item for item in held if item.survey.to_announce]
        if not waiting or self._ports.stop():
            return
        ahead = max(item.ahead for item in waiting)
        done = give_notice(
            [item.survey for item in waiting],
            self._ports.publisher,
            self._ports.state,
            lambda: self._run.now() + ahead,
        )
        for item in waiting:
            item.announced = done[item.desired.key]

    # ---- gates
    def weigh(self, held: list[_Held]) -> tuple[GateResult, ...]:
        """Judges the gates of each repository. Returns those over all of them."""
        today = max((item.clocks.latest for item in held), default=self._options.now).date()
        overrides = gates.GateOverrides(self._options.allowed, tuple(self._tree.overrides), today)
        judged = {
            item.desired.key: repository_gates(item.desired, self._followed(item).deleted, overrides)
            for item in held
        }
        named = gates.one_by_one(judged)
        for item in held:
            item.gates = named[item.desired.key]
        count = sum(len(item.survey.deleted) for item in held)
        return whole_gates(self._tree, count, overrides, [item.gates for item in held])

    def _followed(self, held: _Held) -> Survey:
        """A survey of what this run deletes, with what follows for commits. Objects are not read."""
        zone = self._tree.servers[held.desired.server].zone
        deletions = replace(held.survey, outlooks={outlook.id: outlook for outlook in held.survey.deleted})
        what = what_follows(deletions, self._options.now, zone)
        return follow(deletions, what, None, simulated=False)

    # ---- deleting
    def finish(self, held: _Held, step: Callable[[], None], *, refused: bool) -> RepositoryEnd:
        """Deletes branches unless a gate refuses, stores the ledger and releases the lease."""
        refused = refused or any(g.outcome is GateOutcome.REFUSED for g in held.gates)
        results: list[BranchEnd] = []
        with held.stack:
            try:
                if not held.survey.deleted:
                    self._renew(held, always=True)
                    return self._noted(self._nothing_to_delete(held))
                if refused:
                    results = [BranchEnd(o, Outcome.GATE_REFUSED) for o in held.survey.deleted]
                    self._remember(held, deleted=())
                else:
                    self._renew(held, always=True)
                    self._delete_all(held, results, step)
            except LakeplanError as error:
                return self._noted(self._end(held, results, failure_of(error)))
        return self._noted(self._end(held, results, None))

    def close(self) -> None:
        """Ends the history's record of a run that was to delete branches or gave notice."""
        if self._steps and (note := close_journal(self._journal, self._run)):
            log.warning("%s", note)

    @property
    def _steps(self) -> Mapping[str, object]:
        steps: Mapping[str, object] = self._journal.record.get("repositories", {})
        return steps

    def _noted(self, end: RepositoryEnd) -> RepositoryEnd:
        """Records the end of a repository in the history, if the run was to delete branches there or gave
        notice. Returns it with a warning if that failed."""
        if end.key not in self._steps and not end.noticed:
            return end
        outcomes = {n.branch_id: (n.commit_id, NOTICE_GIVEN) for n in end.noticed}
        outcomes |= {b.outlook.id: (b.outlook.facts.commit_id, b.outcome.value) for b in end.branches}
        note = note_step(self._journal, end.key, **history_step(outcomes, end.failure, _BAD))
        return replace(end, warnings=(*end.warnings, note)) if note else end

    def _end(self, held: _Held, results: list[BranchEnd], failure: Failure | None) -> RepositoryEnd:
        count = len(held.survey.outlooks)
        deleted = sum(1 for e in results if e.outcome in (Outcome.DELETED, Outcome.GONE))
        return RepositoryEnd(
            held.desired,
            tuple(results),
            kept=count - deleted,
            observed=count - deleted,
            gates=held.gates,
            warnings=held.warnings,
            failure=failure,
            noticed=held.announced.noticed,
        )

    def _delete_all(self, held: _Held, results: list[BranchEnd], step: Callable[[], None]) -> None:
        going, desired = held.survey.deleted, held.desired
        if self._ports.claims is not None:
            # Another tree may have exemptions and holds for this repository.
            server = self._ports.claims(desired.server)
            claim(desired.name, desired.key, desired.tree, server, self._run)
        record = self._record(held, going)
        record.save()
        self._journal.step(held.desired.key, status="pending")
        self._marked(held)
        deleter = self._deleter(held)
        try:
            for number, outlook in enumerate(going, 1):
                if self._ports.stop():
                    end = BranchEnd(outlook, Outcome.STOPPED, "the run was stopped")
                else:
                    end = deleter.delete(outlook)
                results.append(end)
                step()
                record.settle(outlook.id, end.fate, end.message, end.new_head)
                if number % SAVE_EVERY == 0:
                    record.save()
            self._remember(held, tuple(e.outlook.id for e in results if e.is_new))
        except LakeplanError:
            self._save_fates(held, results)
            raise
        record.finished = True
        record.save()

    def _save_fates(self, held: _Held, results: list[BranchEnd]) -> None:
        """Records what was deleted, even if another run has taken over and settled the record meanwhile."""
        fresh = read_deletions(self._ports.state, held.desired.key, self._run.run_id)
        if fresh is None:
            return
        for end in results:
            if end.fate is not Fate.KEPT:
                fresh.settle(end.outlook.id, end.fate, end.message, end.new_head)
        fresh.save()

    def _deleter(self, held: _Held) -> Deleter:
        desired, readers = held.desired, self._ports.readers(held.desired.server)
        reviewed = None if self._reviewed is None else self._reviewed.get(desired.key, {})
        return Deleter(
            held.survey,
            readers,
            self._ports.writer(desired.server),
            Keeping(
                held.survey,
                readers,
                self._run.now,
                lambda: read_exemptions(self._ports.state, desired.key)[0],
                lambda: check_newest(self._ports.state, self._run, desired.key),
            ),
            self._run,
            lambda: self._renew(held),
            reviewed,
            self._pins(held),
        )

    def _pins(self, held: _Held) -> PinRelease | None:
        desired, ports, connect = held.desired, self._ports, self._ports.rules
        if connect is None:
            return None
        zone = self._tree.servers[desired.server].zone
        reader = ports.readers(desired.server).refs
        writer, rules = connect(desired.server), held.survey.rules
        return PinRelease(desired.key, reader, writer, ports.state, self._run, zone, rules)

    def _record(self, held: _Held, going: tuple[BranchOutlook, ...]) -> DeletionRecord:
        return DeletionRecord(
            self._ports.state,
            held.desired.key,
            self._run.run_id,
            at=utc_second_text(self._options.now),
            by=dict(self._run.holder),
            branches={o.id: _deletion(o) for o in going},
            ledger=held.recalled.mark.id,
            generation=held.recalled.mark.generation,
        )

    def _renew(self, held: _Held, *, always: bool = False) -> None:
        now = self._run.now()
        if always or (now - held.renewed).total_seconds() > LEASE_SECONDS / 3:
            held.lease.renew()
            held.renewed = now


def _settle(record: DeletionRecord, name: str, present: BranchOutlook | None) -> None:
    """Records the fate of a branch that a stopped run may have deleted, from what exists now. Undo still
    needs the HEAD of one that exists: it may have been made again, or a hook may hold the request back."""
    if present is None:
        record.settle(name, Fate.DELETED)
    elif present.facts.commit_id == record.branches[name].head:
        record.settle(name, Fate.INTENDED, "the run was stopped; the branch still existed")
    else:
        text = "the run was stopped; a branch of this name now has a different HEAD"
        record.settle(name, Fate.INTENDED, text, present.facts.commit_id)


def _deletion(outlook: BranchOutlook) -> Deletion:
    staged = outlook.staged
    return Deletion(
        head=outlook.facts.commit_id,
        hidden=outlook.facts.hidden,
        policy=outlook.verdict.policy,
        since=utc_second_text(outlook.verdict.since),
        safe_until=utc_second_text(outlook.safe_until),
        uncommitted=len(staged.changes) if staged else 0,
        uncommitted_more=staged.more if staged else False,
    )
