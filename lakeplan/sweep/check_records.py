"""Compares records of collections and quarantines with what is stored. Reads only."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from lakeplan.errors import FormatError, StorageNotFound
from lakeplan.formats.collector import UnifiedRun
from lakeplan.formats.collector import read_deleted as read_report
from lakeplan.formats.marks import read_deleted
from lakeplan.formats.namespace import OLD_RUNS_PREFIX, QUARANTINE_PREFIX, SWEEPS_PREFIX, quarantine_prefix
from lakeplan.state.sweeps import RecordedSweep, read_sweeps
from lakeplan.stores.open import StateReader
from lakeplan.sweep.documents import QuarantineRow, RunFinding
from lakeplan.sweep.finish import runs_of
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.ports import NAMED, Site
from lakeplan.sweep.records import (
    deleted,
    mark_ids,
    newest_attempts,
    newest_records,
    official_run,
    read_stored,
    read_summary,
)
from lakeplan.values.repository import batches
from lakeplan.values.simulation import Amount
from lakeplan.values.units import count_of

_log = logging.getLogger(__name__)
FIND_AT_ONCE = 1_000
NO_MARK = "its mark cannot be read, so it is unknown which objects were moved into quarantine"


@dataclass(frozen=True)
class _Run:
    """A collector run. Its deleted objects are in the records of ``mark``, or in the files below
    ``prefix``."""

    row: RunFinding
    mark: Mark | None = None
    prefix: str = ""

    def addresses(self, site: Site) -> Iterator[Collection[str]]:
        if self.mark is not None:
            for data, name in newest_records(site.store, self.mark):
                yield read_deleted(data, name=name, or_gone=False)
            return
        for stored in site.store.list_objects(self.prefix):
            if stored.key.endswith(".parquet"):
                name = f"{site.store.url}/{stored.key}"
                yield read_report(site.store.read(stored.key), name=name)


def last_runs(site: Site, addresses: Collection[str]) -> dict[str, RunFinding]:
    """For each address, the newest run of any collector, or sweep of lakeplan, whose records name it. Records
    that cannot be read are skipped with a warning, because other programs write them too. Raises
    StorageError."""
    left, findings = set(addresses), dict[str, RunFinding]()
    for run in sorted(_runs(site), key=lambda run: run.row["started"], reverse=True):
        try:
            for some in run.addresses(site):
                named = left.intersection(some)
                findings |= dict.fromkeys(named, run.row)
                left -= named
        except FormatError as error:
            _log.warning("could not search a collector's report for missing objects: %s", error)
        if not left:
            break
    return findings


def _runs(site: Site) -> Iterator[_Run]:
    try:
        rows = runs_of(site.store)
    except FormatError as error:
        _log.warning("could not search the collectors' reports for missing objects: %s", error)
        rows = []
    for row in rows:
        old = f"{OLD_RUNS_PREFIX}run_id={row['run_id']}/"
        prefix = old if row["by"] == "the old collector" else f"{UnifiedRun(row['run_id']).prefix}deleted/"
        yield _Run({"run_id": row["run_id"], "by": row["by"], "started": row["started"]}, prefix=prefix)
    for mark_id in mark_ids(site.store, SWEEPS_PREFIX):
        summary = None
        try:
            if official_run(site.store, mark_id) is not None:
                continue  # the official collector wrote its own report
            summary = read_summary(site.store, mark_id)
        except FormatError as error:
            _log.warning("could not read all records of a sweep: %s", error)
        if (mark := _mark(site, mark_id)) is not None:
            started = "" if summary is None else summary["at"]
            yield _Run({"run_id": mark_id, "by": "lakeplan", "started": started}, mark=mark)


def copies_of(site: Site, sizes: Mapping[str, int]) -> dict[str, str]:
    """The newest mark whose quarantine has a copy of this size, by address."""
    mark_of: dict[str, str] = {}
    for mark_id in sorted(mark_ids(site.store, QUARANTINE_PREFIX)):
        prefix = f"{QUARANTINE_PREFIX}{mark_id}/"
        for some in batches(sorted(sizes), FIND_AT_ONCE):
            copies = site.store.find([prefix + address for address in some])
            found = ((key.removeprefix(prefix), copy.size) for key, copy in copies.items())
            mark_of |= {address: mark_id for address, size in found if size == sizes[address]}
    return mark_of


def check_quarantines(site: Site, state: StateReader) -> list[QuarantineRow]:
    """Compares every quarantine with the records of its sweep. Raises StorageError, and FormatError for a
    damaged record in the state."""
    swept = read_sweeps(state, site.key)
    rows: list[QuarantineRow] = []
    present = mark_ids(site.store, QUARANTINE_PREFIX)
    for mark_id in sorted({*present, *mark_ids(site.store, SWEEPS_PREFIX)}):
        mark = _mark(site, mark_id)
        if mark is None:
            if mark_id in present or _may_have_moved(site, mark_id, swept.get(mark_id)):
                rows.append(_unreadable(site, mark_id, NO_MARK))
        elif mark.settings.mode == "quarantine":
            try:
                recorded = dict(deleted(site, mark, or_gone=False))
            except FormatError as error:
                rows.append(_unreadable(site, mark_id, f"{error.where}: {error.message}"))
                continue
            if recorded:
                rows.append(_quarantine(site, mark_id, recorded, swept.get(mark_id)))
    return rows


def _may_have_moved(site: Site, mark_id: str, swept: RecordedSweep | None) -> bool:
    """Whether a sweep whose mark cannot be read, and without copies, may have moved objects that were not
    purged. Its copies may have been lost with the mark."""
    try:
        summary = read_summary(site.store, mark_id)
    except FormatError:
        return True
    if summary is None:
        return bool(newest_attempts(site.store, mark_id))
    moved = summary["deleted"]["objects"] if summary["settings"]["mode"] == "quarantine" else 0
    return moved > (0 if swept is None else swept.purged_by(Amount()).objects)


def _quarantine(
    site: Site, mark_id: str, recorded: Mapping[str, int], swept: RecordedSweep | None
) -> QuarantineRow:
    prefix = quarantine_prefix(mark_id)
    copies = {stored.key.removeprefix(prefix): stored.size for stored in site.store.list_objects(prefix)}
    missing = sorted(recorded.keys() - copies.keys())
    back = {
        address
        for some in batches(missing, FIND_AT_ONCE)
        for address, stored in site.store.find(some).items()
        if stored.size == recorded[address]
    }
    lacking = [address for address in missing if address not in back]
    purged = Amount() if swept is None else swept.purged_by(Amount(len(copies), sum(copies.values())))
    # A purge records how much it deleted, but not what: it may have been copies of restored objects.
    is_purged = len(missing) <= purged.objects
    resized = sorted(a for a, size in copies.items() if a in recorded and size != recorded[a])
    lost = [] if is_purged else lacking
    return {
        "mark_id": mark_id,
        "readable": True,
        "recorded": _amount(recorded, recorded).to_row(),
        "present": _amount(recorded, recorded.keys() & copies.keys()).to_row(),
        "restored": _amount(recorded, back).to_row(),
        "purged": purged.to_row(),
        "lost": _amount(recorded, lost).to_row(),
        "resized": _amount(recorded, resized).to_row(),
        "addresses": [*lost, *resized][:NAMED],
        "note": _purge_note(swept, purged, lost),
    }


def _purge_note(swept: RecordedSweep | None, purged: Amount, lost: Collection[str]) -> str:
    assumed = purged.objects - (0 if swept is None else swept.purged.objects)
    if assumed:
        copies = count_of(assumed, "missing copy is counted", "missing copies are counted")
        return f"a purge did not record that it finished, so {copies} as purged"
    return f"{purged.objects:,} of them were purged" if lost and purged.objects else ""


def _unreadable(site: Site, mark_id: str, why: str) -> QuarantineRow:
    copies = Amount()
    for stored in site.store.list_objects(f"{QUARANTINE_PREFIX}{mark_id}/"):
        copies += Amount(1, stored.size)
    nothing = Amount().to_row()
    return {
        "mark_id": mark_id,
        "readable": False,
        "recorded": nothing,
        "present": copies.to_row(),
        "restored": nothing,
        "purged": nothing,
        "lost": nothing,
        "resized": nothing,
        "addresses": [],
        "note": why,
    }


def _amount(sizes: Mapping[str, int], addresses: Collection[str]) -> Amount:
    return Amount(len(addresses), sum(sizes[address] for address in addresses))


def _mark(site: Site, mark_id: str) -> Mark | None:
    try:
        return read_stored(site.store, mark_id).mark
    except (StorageNotFound, FormatError):
        return None
