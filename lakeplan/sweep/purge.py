"""``sweep purge``: deletes copies in quarantine. They cannot be restored afterwards."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lakeplan.errors import GateRefused, LakeplanError, StorageError
from lakeplan.formats.namespace import CLOCK_FILE, QUARANTINE_PREFIX, quarantine_prefix, sweep_prefix
from lakeplan.retention.rules import to_us
from lakeplan.review.history import check_newest
from lakeplan.review.run import Run
from lakeplan.simulation.requests import DeleteSettings
from lakeplan.state.clocks import Clocks
from lakeplan.state.sweeps import read_sweeps, record_purge
from lakeplan.stores.open import StateReader
from lakeplan.sweep.deleting import still_stored
from lakeplan.sweep.documents import PurgedRow
from lakeplan.sweep.inspection import MOST_NEEDED, TooManyNeeded, needed_now
from lakeplan.sweep.mark import by_text
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.neighbours import check_site
from lakeplan.sweep.observed_rules import site_clocks, site_lease
from lakeplan.sweep.ports import KEEP, NAMED, STOPPED, Site, SweepPorts
from lakeplan.sweep.records import (
    continue_or_abort,
    is_over,
    load_mark,
    mark_ids,
    marked_addresses,
    read_summary,
)
from lakeplan.sweep.run import ROUND, check_same_repository
from lakeplan.values.records import moment_of, utc_text
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount, Part
from lakeplan.values.sweep import Versions
from lakeplan.values.units import count_of

_log = logging.getLogger(__name__)
PURGE_FORMAT: Final = "lakeplan.purge/v1"
COPIES_AT_ONCE = 50_000
"""Copies that are checked and deleted together."""
ROWS = MOST_NEEDED // 2
"""Objects of the mark that an inspection concerns if more than ``MOST_NEEDED`` addresses are needed. All of
these objects may be needed, with their copies."""
NEEDED = "needed again, but no longer at its address"
USED = "used by a commit or an uncommitted change"
YOUNG = "not old enough"
NOT_NAMED = "not listed in the mark"
NOT_TRIED = "not tried: the purge stopped before it reached this copy"
STILL_THERE = "still exists after it was deleted"
SLOW = "inspecting the repository took longer than ten minutes, so nothing was deleted after that inspection"
NONE_DELETED = "the store deleted no copy within ten minutes"
SET_BACK = "this machine's clock was set back, so nothing was deleted after the last inspection"


@dataclass(frozen=True)
class Quarantine:
    """The copies of one sweep. ``newest``: when the last of them was written."""

    site: Site
    mark_id: str
    amount: Amount
    newest: datetime


def list_quarantines(site: Site, *, older_than: datetime) -> list[Quarantine]:
    """The quarantines of a repository whose last copy is older than a moment, oldest first."""
    quarantines = []
    for mark_id in mark_ids(site.store, QUARANTINE_PREFIX):
        amount, newest = Amount(), 0
        for stored in site.store.list_objects(f"{QUARANTINE_PREFIX}{mark_id}/"):
            amount, newest = amount + Amount(1, stored.size), max(newest, stored.modified_us)
        at = moment_of(newest)
        if amount.objects and at < older_than:
            quarantines.append(Quarantine(site, mark_id, amount, at))
    return sorted(quarantines, key=lambda quarantine: quarantine.newest)


def unrecorded_purges(site: Site, state: StateReader) -> list[Quarantine]:
    """The empty quarantines for which no purge recorded that it deleted the last copy."""
    begun = sorted(mark_id for mark_id, sweep in read_sweeps(state, site.key).items() if sweep.purging)
    copies = {mark_id: site.store.list_objects(f"{QUARANTINE_PREFIX}{mark_id}/") for mark_id in begun}
    return [
        Quarantine(site, mark_id, Amount(), moment_of(0))
        for mark_id in begun
        if next(iter(copies[mark_id]), None) is None
    ]


def record_empty(quarantine: Quarantine, ports: SweepPorts, run: Run) -> None:
    """Records the end of a purge that was killed after it deleted the last copy. Raises LakeplanError."""
    site, mark_id = quarantine.site, quarantine.mark_id
    with site_lease(site, ports.state, run):
        record_purge(ports.state, site.key, mark_id, Amount())


def purge(quarantine: Quarantine, ports: SweepPorts, run: Run, *, older_than: datetime) -> PurgedRow:
    """Deletes the copies of one quarantine that nothing needs. Returns what became of all its copies, by what
    is stored afterwards. Keeps copies that were written after ``older_than``, or less than
    ``sweep.quarantine_age`` ago.

    Raises LakeplanError, without deleting anything, when the sweep may not have ended, when objects that it
    moved are needed again, and for anything that makes an inspection unsafe.
    """
    site, mark_id = quarantine.site, quarantine.mark_id
    if ports.stop():
        raise LakeplanError(STOPPED, where=site.key, hint="Run the command again.")
    clocks = site_clocks(site, sweep_prefix(mark_id) + CLOCK_FILE, ports.now, by=by_text(run))
    age = timedelta(seconds=site.desired.sweep.quarantine_age_seconds)
    before_us = to_us(min(older_than, clocks.earliest - age))
    lease = site_lease(site, ports.state, run)
    with lease:
        check_site(site, clocks.latest.date())
        _check_over(site, mark_id)
        mark = load_mark(site, ports.state, mark_id).mark
        check_same_repository(site, mark)
        end = _Purge(site, mark, ports, clocks, lease.renew, before_us, run).purge()
        try:
            if end.left is not None:
                record_purge(ports.state, site.key, mark_id, end.left, ended=run.run_id)
        except LakeplanError as error:
            # The record has only figures. What became of the copies must be reported in any case.
            _log.warning("the state has no record that this purge finished: %s", error)
    return {
        "repository": site.key,
        "mark_id": mark_id,
        "deleted": end.deleted.objects,
        "size_bytes": end.deleted.size_bytes,
        "kept": len(end.kept),
        "kept_reasons": dict(sorted(Counter(end.kept.values()).items())),
        "needed": sum(why == NEEDED for why in end.kept.values()),
        "failed": len(end.failed),
        "failures": dict(list(end.failed.items())[:NAMED]),
        "problem": end.problem,
        "newest": utc_text(quarantine.newest),
    }


@dataclass(frozen=True)
class _End:
    """The outcome of a purge. ``kept`` and ``failed`` say why, by key of the copy. ``left``: all copies that
    are still in quarantine; None if they could not be listed."""

    deleted: Amount
    left: Amount | None
    kept: Mapping[str, str]
    failed: Mapping[str, str]
    problem: str


class _TooOld(Exception):
    """The inspection is too old to delete anything, or a signal stopped the purge."""


@dataclass
class _Purge:
    _site: Site
    _mark: Mark
    _ports: SweepPorts
    _clocks: Clocks
    _keep: Callable[[], None]
    _before_us: int
    _run: Run

    def __post_init__(self) -> None:
        self._copies = Amount()
        self._prefix = quarantine_prefix(self._mark.mark_id)
        self._asked: dict[str, StoredObject] = {}
        self._answers: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        self._problem = ""
        self._left: list[StoredObject] = []
        self._named: Mapping[str, int] = {}
        self._rows: float = math.inf
        self._last = self._ports.now()

    def purge(self) -> _End:
        self._left = self._waiting()
        try:
            while self._left and not self._problem:
                self._round()
        except LakeplanError as error:
            if not self._asked:
                raise  # nothing was deleted
            self._problem = f"{error}"
        known = self._asked.keys() | self._kept.keys()
        self._kept |= {copy.key: NOT_TRIED for copy in self._left if copy.key not in known}
        return self._ended()

    def _round(self) -> None:
        """Deletes the copies of the next parts after one inspection, until the inspection is too old."""
        parts, count = self._next()
        rest = self._left[count:]
        try:
            needed = needed_now(
                self._site,
                self._mark,
                self._ports,
                now=self._clocks.earliest,
                keep=self._keep,
                parts=parts,
                copies=self._prefix,
            )
        except TooManyNeeded:
            if self._rows == ROWS:
                raise
            self._rows = ROWS
            return
        check_newest(self._ports.state, self._run, self._site.key)
        until, self._last = needed.inspected_at + ROUND, needed.inspected_at
        self._problem = self._too_old(until, SLOW)
        while (count := len(self._left) - len(rest)) and not self._problem and not self._too_old(until):
            end = min(count, COPIES_AT_ONCE)
            some, others = sorted(self._left[:end], key=lambda copy: copy.key), self._left[end:]
            self._left = self._delete(self._unneeded(some, needed.addresses), until) + others

    def _next(self) -> tuple[tuple[Part, ...], int]:
        """The parts of the next copies, with at most so many objects, and how many copies these are."""
        self._left.sort(key=lambda copy: (self._number(copy), copy.key))
        going, rows = self._mark.marked.going, 0
        numbers: list[int] = []
        for count, copy in enumerate(self._left):
            number = self._number(copy)
            if numbers[-1:] == [number]:
                continue
            rows += going[number].rows
            if numbers and rows > self._rows:
                return tuple(going[n] for n in numbers), count
            numbers.append(number)
        return tuple(going[n] for n in numbers), len(self._left)

    def _number(self, copy: StoredObject) -> int:
        return self._named[copy.key.removeprefix(self._prefix)]

    def _too_old(self, until: datetime, why: str = NONE_DELETED) -> str:
        """Return why the inspection is too old to delete anything: ``why``, or that the clock was set back.
        Else ""."""
        if (now := self._ports.now()) < self._last:
            return SET_BACK  # until the next inspection
        self._last = now
        return why if now >= until else ""

    def _waiting(self) -> list[StoredObject]:
        """The copies that are old enough. The others are kept. So are copies that the mark does not name,
        because no inspection shows whether something needs them."""
        self._named = marked_addresses(self._site.store, self._mark)
        waiting = []
        for copy in self._site.store.list_objects(self._prefix):
            self._copies += Amount(1, copy.size)
            if copy.modified_us >= self._before_us:
                self._kept[copy.key] = YOUNG
            elif copy.key.removeprefix(self._prefix) not in self._named:
                self._kept[copy.key] = NOT_NAMED
            else:
                waiting.append(copy)
        return waiting

    def _unneeded(self, copies: list[StoredObject], needed: frozenset[str]) -> list[StoredObject]:
        """The copies of objects that nothing needs, or that are at their address again. Something may need a
        copy by its own address, such as an import from the quarantine."""
        wanted = [key for copy in copies if (key := copy.key.removeprefix(self._prefix)) in needed]
        there = still_stored(self._site.store, self._site.store.find(wanted))
        copies_left = []
        for copy in copies:
            key = copy.key.removeprefix(self._prefix)
            back = there.get(key)
            if copy.key in needed:
                self._kept[copy.key] = USED
                self._asked.pop(copy.key, None)
            elif key in needed and (back is None or back.size != copy.size):
                self._kept[copy.key] = NEEDED
                self._asked.pop(copy.key, None)
            else:
                copies_left.append(copy)
        return copies_left

    def _delete(self, copies: list[StoredObject], until: datetime) -> list[StoredObject]:
        """Deletes copies. Returns those that are left because they need a newer inspection."""
        sweep = self._site.desired.sweep
        settings = DeleteSettings(
            mode="delete", versions=sweep.versions, verify_all=False, cutoff_us=0, rate=sweep.rate
        )
        self._keep()
        if not self._asked:
            record_purge(
                self._ports.state,
                self._site.key,
                self._mark.mark_id,
                self._copies,
                begun=self._run.run_id,
            )
        self._asked |= {copy.key: copy for copy in copies}
        kept = self._ports.now()

        def check() -> None:
            nonlocal kept
            if why := STOPPED if self._ports.stop() else self._too_old(until):
                raise _TooOld(why)
            if self._last - kept >= KEEP:
                self._keep()
                kept = self._last

        try:
            answers = self._ports.sweeper.delete_objects(
                self._site.store, copies, settings, before_each=check
            )
        except _TooOld as error:
            there = {copy.key for copy in self._site.store.list_objects(self._prefix)}
            left = [copy for copy in copies if copy.key in there]
            if len(left) == len(copies):
                self._problem = str(error)
            return left
        except StorageError as error:
            self._problem = f"{error}"
            return []
        self._answers |= {answer.key: answer.reason for answer in answers}
        return []

    def _may_leave_versions(self) -> bool:
        is_all = self._site.desired.sweep.versions is Versions.ALL
        return is_all and self._site.store.facts().versioned is not False

    def _ended(self) -> _End:
        """The outcome, by the copies that are still stored. If they cannot be listed, the store's answers
        decide, and the next purge counts what was deleted. If older versions
        may be left, a copy that the store refused to delete has failed even if it is not listed."""
        there: Amount | None = None
        try:
            copies = {copy.key: copy.size for copy in self._site.store.list_objects(self._prefix)}
            left, there = {*copies}, Amount(len(copies), sum(copies.values()))
            refused = {key for key, reason in self._answers.items() if reason}
            if refused - left and self._may_leave_versions():
                left |= refused
        except StorageError as error:
            if not self._asked:
                raise
            self._problem = self._problem or f"{error}"
            left = {key for key in self._asked if self._answers.get(key) != ""}
        failed = {
            key: self._answers.get(key) or self._problem or STILL_THERE for key in self._asked if key in left
        }
        sizes = [copy.size for key, copy in self._asked.items() if key not in left]
        return _End(Amount(len(sizes), sum(sizes)), there, self._kept, failed, self._problem)


def _check_over(site: Site, mark_id: str) -> None:
    summary = read_summary(site.store, mark_id)
    if summary is None or not is_over(summary):
        raise LakeplanError(
            f"the sweep of mark {mark_id} is not finished, so its copies in quarantine may be the only ones"
            " left",
            where=site.key,
            hint=continue_or_abort(mark_id),
        )
    if summary["came_back"] is None:
        raise LakeplanError(
            f"the sweep of mark {mark_id} ended before it checked which objects are needed again",
            where=site.key,
            hint=f"Run `lakeplan sweep abort {mark_id}`.",
        )
    if summary["came_back"]:
        raise GateRefused(
            count_of(
                summary["came_back"],
                f"object that the sweep of mark {mark_id} moved is needed again",
                f"objects that the sweep of mark {mark_id} moved are needed again",
            ),
            where=site.key,
            hint=f"Run `lakeplan sweep restore {mark_id}`, then `lakeplan sweep abort {mark_id}`.",
        )
