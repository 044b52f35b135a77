"""``sweep run``: deletes the objects of an approved mark and records the result for each.

Before the first batch and every ten minutes, it reads rules, uncommitted data and refs again. Objects that
something needs now are saved. Records are written before and after every part (``lakeplan.sweep.deleting``),
so a run may be killed at any point and continued by another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from lakeplan.branches.pin_records import check_pins
from lakeplan.errors import GateRefused, LakeplanError, StalePlan, UsageError
from lakeplan.formats.namespace import (
    CLOCK_FILE,
    SUMMARY_FILE,
    mark_prefix,
    part_id,
    quarantine_prefix,
    sweep_prefix,
)
from lakeplan.retention.keep import held_prefixes
from lakeplan.review.history import check_newest
from lakeplan.review.run import Run, close_journal, note_step, open_journal
from lakeplan.simulation.requests import DeleteRequest, DeleteSettings, RoundEnd
from lakeplan.state.clocks import Clocks
from lakeplan.state.store import RunJournal
from lakeplan.state.sweeps import read_sweeps
from lakeplan.sweep.deleting import KEYS_A_LEASE, still_stored
from lakeplan.sweep.documents import SweepDocument
from lakeplan.sweep.inspection import (
    all_others,
    inspect_repository,
    marked_on_branches,
    read_rules,
    recheck_request,
)
from lakeplan.sweep.judge import check_readable, held_to_approval, judge_again
from lakeplan.sweep.mark import by_text, collector_runs
from lakeplan.sweep.mark_record import MARK_AGAIN, Approval, Mark
from lakeplan.sweep.neighbours import check_site
from lakeplan.sweep.observed_rules import observe_rules, site_clocks, site_lease
from lakeplan.sweep.ports import STOPPED, Site, SweepPorts
from lakeplan.sweep.records import (
    KNOWN_NOTHING,
    KnownAtMark,
    StoredMark,
    deleted,
    load_approval,
    load_known,
    newest_attempts,
    noted_runs,
    official_run,
    read_approval,
    read_end,
    read_summary,
)
from lakeplan.sweep.rules import proven_absent, window, with_hint
from lakeplan.values.records import json_text
from lakeplan.values.repository import StoredObject, batches
from lakeplan.values.simulation import Amount, Part, PartResult, RunnerChoice, Status, total_of
from lakeplan.values.sweep import SweepSettings

ROUND = timedelta(minutes=10)
"""The longest time between two inspections."""
MAX_SAVED = 1_000_000
"""When more objects are needed again, the mark no longer describes the repository."""
HELD_AGAIN = "needed again"
NO_PART_BEGUN = (
    "no part finished in this round: the workers' clocks may be more than ten minutes ahead of this machine's"
)
SLOW_LOOK = "the inspection took longer than ten minutes, so nothing was deleted after it"
UNLISTED = "never committed, and the objects that branches need could not be listed"
NEVER_NOW = "never committed, and sweep.never_committed is now keep in the tree"
SEEN_ONCE = "never committed, and not yet inspected again after sweep.settle"


@dataclass(frozen=True)
class SweepEnd:
    """The outcome of a run. ``ends`` are all finished parts, also those of earlier runs. ``pending`` objects
    are in unfinished parts, and ``problem`` says why there are any. ``settings`` are those that applied.
    ``approval`` is None when the state lost it; this run deleted nothing then."""

    stored: StoredMark
    approval: Approval | None
    settings: SweepSettings
    results: tuple[PartResult, ...]
    pending: Amount
    problem: str = ""
    inspections: int = 0
    came_back: int | None = None
    """Deleted objects that something needed at the last inspection. Those in quarantine can be restored; the
    data of others is lost. None when unknown."""
    closed: bool = False
    runner: RunnerChoice | None = None
    """Which runner deleted; None when there was nothing to delete."""
    journal: RunJournal | None = None
    """The run's record in the history, if it began to delete."""
    summary: SweepDocument | None = None
    """The summary that this run found at its end. Another run has ended since if it is not the same."""

    @property
    def mark(self) -> Mark:
        return self.stored.mark

    def amount(self, status: Status) -> Amount:
        return total_of(end.amounts.get(status, Amount()) for end in self.results)

    @property
    def verified(self) -> int:
        return sum(end.verified for end in self.results)

    @property
    def finished(self) -> bool:
        return not self.pending.objects


def run_sweep(site: Site, stored: StoredMark, ports: SweepPorts, run: Run) -> SweepEnd:
    """Sweeps an approved mark, or continues its sweep. Raises LakeplanError if it may not be swept (not
    approved, not settled, stale, another collector ran). A later failure is in the answer."""
    mark = stored.mark
    approval = load_approval(ports.state, stored)
    read_sweeps(ports.state, site.key)  # a damaged record must not be found after the deletion
    lease = site_lease(site, ports.state, run)
    site = held_to_approval(site, mark, approval)
    clocks = check_clocks(site, mark, ports, by_text(run))
    with lease:
        check_not_aborted(site, mark)
        check_round(site, mark, approval, ports, by_text(run))
        check_site(site, clocks.latest.date())
        runner = _Runner(site, mark, ports, load_known(site, mark), lease.renew, by_text(run))
        runner.read_records()
        if mark.settings.engine == "builtin":  # lakeFS's own job deletes a whole mark or nothing
            runner.try_failed_again()

        def check() -> None:
            check_still_approved(stored, approval, ports, run)
            # The inspection may have read rules that somebody has just lowered.
            check_round(site, mark, approval, ports, by_text(run))

        before, began = -1, ports.now()
        journal: RunJournal | None = None
        deleted_some = False
        while True:
            runner.read_records()
            left = runner.left()
            if not left:
                break
            # A long round may end in the middle of a large part, which the next one continues.
            if len(left) == before and ports.now() - began < ROUND / 2:
                runner.problem = NO_PART_BEGUN
                break
            before, began = len(left), ports.now()
            if ports.stop():
                runner.problem = STOPPED
                break
            try:
                lease.renew()
                journal = journal or _begun(sweep_journal(stored, approval, ports, run), mark)
                round_end = runner.round(left, check)
            except LakeplanError as error:
                if not runner.results and not deleted_some:
                    if journal is not None:
                        note_step(journal, mark.key, status="failed", message=str(error))
                        close_journal(journal, run)
                    raise  # nothing was done: this is why it may not be swept
                runner.problem = with_hint(error)
                break
            if round_end.prepared:
                before = -1
            # a round may end in the middle of the first part, which has no record yet
            deleted_some = deleted_some or not round_end.prepared
            if runner.problem:
                break
        return replace(runner.ended(stored, approval, site.desired.sweep), journal=journal)


def sweep_journal(
    stored: StoredMark, approval: Approval | None, ports: SweepPorts, run: Run, *, closed: bool = False
) -> RunJournal:
    """The history's record of a run of a mark."""
    approver = None
    if approval is not None:
        approver = {"by": approval.by, "at": approval.at, "reason": approval.reason}
    return open_journal(
        ports.state,
        run,
        "sweep abort" if closed else "sweep run",
        approver=approver,
        plan_digest=stored.digest,
        plan_as_of=stored.mark.marked_at.isoformat(),
    )


def _begun(journal: RunJournal, mark: Mark) -> RunJournal:
    """The journal, stored before the first deletion so that a killed run is in the history too."""
    journal.step(mark.key, status="pending", mark_id=mark.mark_id)
    return journal


def close_sweep(site: Site, stored: StoredMark, ports: SweepPorts, run: Run) -> SweepEnd:
    """Ends a sweep that cannot continue: its mark is too old, another collector ran, or the state was lost.
    Deletes nothing. Records which objects are gone and how many of those are needed; the others are kept.
    Raises UsageError if the sweep has not begun."""
    mark = stored.mark
    approval = read_approval(ports.state, stored)
    lease = site_lease(site, ports.state, run)
    with lease:
        known = load_known(site, mark) if stored.recorded else KNOWN_NOTHING
        runner = _Runner(site, mark, ports, known, lease.renew, by_text(run))
        settings = mark.settings if approval is None else approval.judged.sweep
        runner.read_records()
        if not runner.was_begun():
            raise UsageError(
                "no sweep of this mark has begun, so there is nothing to abort",
                where=mark.where,
                hint="Nothing needs to be done: a mark alone deletes nothing.",
            )
        runner.try_failed_again()  # a killed run may have deleted some of them
        if left := runner.left():
            runner.close(left)
        return replace(runner.ended(stored, approval, settings), closed=True)


def check_clocks(site: Site, mark: Mark, ports: SweepPorts, by: str) -> Clocks:
    """The clocks that judge a sweep now. Raises ClockSkew when they differ."""
    return site_clocks(site, mark_prefix(mark.mark_id) + CLOCK_FILE, ports.now, by=by)


def check_round(site: Site, mark: Mark, approval: Approval, ports: SweepPorts, by: str) -> None:
    """Raises LakeplanError when no round of the mark may begin now, because of clocks, lowered rules, other
    collectors or gates. ``site`` comes from ``held_to_approval``."""
    clocks = check_clocks(site, mark, ports, by)
    check_pins(site.reader, ports.state, site.key)
    settle = site.desired.sweep.settle_seconds
    observed = observe_rules(site, ports.state, read_rules(site), clocks, settle_seconds=settle)
    check_may_run(site, mark, clocks, observed.lowered_at)
    judge_again(site, mark, approval, clocks.latest.date())


def check_still_approved(stored: StoredMark, approval: Approval, ports: SweepPorts, run: Run) -> None:
    """Raises GateRefused when the approval was removed or replaced since the run began, and StalePlan when a
    newer tree was applied. Removing the approval is how to stop a sweep that runs on another machine."""
    check_newest(ports.state, run, stored.mark.key)
    if load_approval(ports.state, stored) != approval:
        raise GateRefused(
            "the approval was replaced while the sweep was running",
            where=stored.mark.where,
            hint="Run the sweep again to use the new approval.",
        )


def check_not_aborted(site: Site, mark: Mark) -> None:
    """Raises StalePlan when the sweep was aborted, perhaps while this run waited for the lease."""
    summary = read_summary(site.store, mark.mark_id)
    if summary is not None and summary["closed"]:
        raise mark.stale("the sweep of this mark was aborted")


def check_may_run(site: Site, mark: Mark, clocks: Clocks, lowered_at: datetime) -> None:
    """Raises StalePlan or GateRefused when the site's settings do not let the mark be swept now."""
    check_readable(mark)
    times = window(mark, site.desired.sweep.settle_seconds, lowered_at=lowered_at)
    if problem := times.problem(earliest=clocks.earliest, latest=clocks.latest):
        if clocks.latest < times.closes:
            raise GateRefused(problem, where=mark.where, hint="Run the command again at that time.")
        raise mark.stale(problem)
    check_same_repository(site, mark)
    check_alone(site, mark)
    if mark.endpoint_url != site.server.endpoint_url or (
        mark.storage_namespace != site.repository.storage_namespace
    ):
        raise mark.stale("the mark was created for another server or namespace")
    new = sorted(set(held_prefixes(site.desired.holds, clocks.earliest)) - set(mark.held_prefixes))
    if new:
        raise mark.stale(f"the tree has a hold on {new[0]} that was not in force when the mark was created")


def check_same_repository(site: Site, mark: Mark) -> None:
    """Raises StalePlan when the repository was deleted and created again since the mark."""
    created = site.reader.get_repository(site.desired.name).creation_date
    if mark.repository_created != created:
        raise mark.stale("the repository was deleted and created again after the mark was created")


def check_alone(site: Site, mark: Mark) -> None:
    """Raises StalePlan when another collector ran since the mark was made."""
    runs = set(collector_runs(site)) - set(mark.collector_runs)
    # This sweep itself leaves these.
    own = {mark.mark_id, *noted_runs(site.store, mark.mark_id), official_run(site.store, mark.mark_id)}
    if others := sorted(runs - own):
        raise mark.stale(f"another collector has run since the mark was created (run {others[0]})")


@dataclass
class _Runner:
    _site: Site
    _mark: Mark
    _ports: SweepPorts
    _known: KnownAtMark
    _keep: Callable[[], None]
    _by: str

    def __post_init__(self) -> None:
        self._prefix = sweep_prefix(self._mark.mark_id)
        self._done: dict[str, int] = {}
        self._read: dict[tuple[str, int], PartResult] = {}
        self._again: dict[str, int] = {}
        self.results: list[PartResult] = []
        self.inspections = 0
        self._looked = 0.0
        self.problem = ""
        self._chosen: RunnerChoice | None = None

    def read_records(self) -> None:
        """Reads from the namespace which parts are finished, and the results of their objects."""
        self._done = newest_attempts(self._site.store, self._mark.mark_id)
        self.results = []
        for part in self._mark.marked.going:
            if (attempt := self._done.get(part_id(part.name))) is None:
                continue
            key = (part.name, attempt)
            if key not in self._read:
                self._read[key] = read_end(self._site, self._mark.mark_id, part, attempt)
            self.results.append(self._read[key])

    def try_failed_again(self) -> None:
        """Makes ``left`` return parts whose current record names failed objects, until they have a newer
        record."""
        failed = {
            part_id(one.name) for one in self.results if one.amounts.get(Status.FAILED, Amount()).objects
        }
        self._again = {name: self._done[name] + 1 for name in failed}

    def left(self) -> list[Part]:
        """The parts that are not finished."""
        parts = ((part, part_id(part.name)) for part in self._mark.marked.going)
        return [part for part, name in parts if self._done.get(name, -1) < self._again.get(name, 0)]

    def ended(self, stored: StoredMark, approval: Approval | None, settings: SweepSettings) -> SweepEnd:
        """The objects that are left, and how many of the deleted ones are needed, as of now."""
        self.read_records()
        never = [part for part in self._mark.marked.going if part_id(part.name) not in self._done]
        pending = Amount(sum(part.rows for part in never), sum(part.size_bytes for part in never))
        end = SweepEnd(
            stored,
            approval,
            settings,
            (*self.results,),
            pending,
            self.problem,
            self.inspections,
            runner=self._chosen,
            summary=read_summary(self._site.store, self._mark.mark_id),
        )
        if not end.finished:
            return end
        try:
            return replace(end, came_back=self._came_back(end))
        except LakeplanError as error:
            why = f"it is unknown which deleted objects are needed again: {error}"
            return replace(end, problem="; ".join(text for text in (end.problem, why) if text))

    def round(self, left: list[Part], check: Callable[[], None]) -> RoundEnd:
        """Inspects the repository, then deletes until ten minutes have passed since the inspection began.
        ``check`` is called in between, and may raise."""
        saved, never, looked_at = self._inspect(left)
        self._keep()  # another run may have taken over the lease and ended
        check()
        self.inspections += 1
        now = self._ports.now()
        # A clock that was set back meanwhile does not make the inspection newer.
        until = min(looked_at, now - timedelta(seconds=time.monotonic() - self._looked)) + ROUND
        if now >= until:
            return self._noted(RoundEnd((), SLOW_LOOK))
        self._reopen()
        request = self._request(left, self._mark.settings.mode)
        return self._noted(
            self._ports.sweeper.delete(replace(request, saved=saved, keep_never_committed=never, until=until))
        )

    def _reopen(self) -> None:
        """If this run tries failed objects again, the summary of an earlier run no longer says which deleted
        objects are needed. Until this run or another ends the sweep, it is not over."""
        summary = read_summary(self._site.store, self._mark.mark_id)
        if summary is not None and summary["came_back"] is not None:
            self._site.store.put(
                self._prefix + SUMMARY_FILE, json_text({**summary, "came_back": None}, indent=1)
            )

    def _noted(self, end: RoundEnd) -> RoundEnd:
        self.problem, self._chosen = end.problem, end.runner
        return end

    def was_begun(self) -> bool:
        begun = self._site.store.list_objects(f"{self._prefix}begun/")
        return bool(self._done) or next(iter(begun), None) is not None

    def close(self, left: list[Part]) -> None:
        """Records the result of every object of these parts, and deletes none."""
        self._noted(self._ports.sweeper.delete(self._request(left, "close")))

    def _request(self, left: list[Part], mode: Literal["delete", "quarantine", "close"]) -> DeleteRequest:
        settings = self._site.desired.sweep
        return DeleteRequest(
            store=self._site.store,
            parts=tuple(left),
            mark_prefix=mark_prefix(self._mark.mark_id),
            prefix=self._prefix,
            quarantine_prefix=quarantine_prefix(self._mark.mark_id),
            settings=DeleteSettings(
                mode=mode,
                versions=settings.versions,
                verify_all=settings.verify == "all",
                cutoff_us=round(self._mark.cutoff.timestamp() * 1_000_000),
                rate=settings.rate,
            ),
            saved={},
            attempts={part.name: self._again.get(part_id(part.name), 0) for part in left},
            keep=self._keep,
        )

    def _came_back(self, end: SweepEnd) -> int:
        """Return how many deleted objects are needed now, by a last inspection. Restored ones do not
        count. Objects whose deletion failed may be gone too: if the answer came late, if a run that tried
        again was killed, or if only older versions are left."""
        if not (end.amount(Status.DELETED) + end.amount(Status.FAILED)).objects:
            return 0
        held, never, _ = self._inspect(list(self._mark.marked.going))
        if never.startswith(UNLISTED):
            raise LakeplanError(f"some deleted objects were {never}", where=self._site.key)
        marked = deleted(self._site, self._mark, or_failed=True)
        gone = {address: size for address, size in marked if address in held}
        there: dict[str, StoredObject] = {}
        for some in batches(sorted(gone), KEYS_A_LEASE):
            self._keep()
            there |= still_stored(self._site.store, self._site.store.find(some))
        # An object of another size at the address is not the one that is needed.
        return sum(address not in there or there[address].size != size for address, size in gone.items())

    def _inspect(self, left: list[Part]) -> tuple[Mapping[str, str], str, datetime]:
        """The addresses that something needs, and why; why no object that was never committed may be deleted,
        or ""; and when the inspection of the repository itself began. Other repositories are read before
        that, because reading them may take long."""
        site, mark = self._site, self._mark
        foreign = all_others(site, keep=self._keep)
        looked_at, self._looked = self._ports.now(), time.monotonic()
        now = check_clocks(site, mark, self._ports, self._by).earliest
        inspected = inspect_repository(
            site, read_rules(site), now=now, before=None, collects=mark.lists_branches
        )
        request = recheck_request(site, mark, tuple(left), inspected, foreign, self._known)
        held = self._ports.marker.held_again(request, limit=MAX_SAVED)
        if len(held) > MAX_SAVED:
            raise StalePlan(
                f"more than {MAX_SAVED:,} marked objects are needed again", where=site.key, hint=MARK_AGAIN
            )
        settled = proven_absent(
            first_seen=mark.looked_at, now=now, settle_seconds=site.desired.sweep.settle_seconds
        )
        never = NEVER_NOW if site.desired.sweep.never_committed == "keep" else "" if settled else SEEN_ONCE
        try:
            held |= marked_on_branches(site, mark, left, inspected)
        except LakeplanError as error:
            never = f"{UNLISTED}: {error.message}"
        return dict.fromkeys(held, HELD_AGAIN), never, looked_at
