"""Ends a sweep: writes its summary, the report for other tools and the record in the state. Also reads
reports of runs."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final, Literal

from lakeplan.errors import LakeplanError, StorageError, StorageNotFound, WriteConflict
from lakeplan.formats.collector import ADDRESSES_A_FILE, UnifiedRun, read_deleted, read_summary
from lakeplan.formats.namespace import (
    OFFICIAL_FILE,
    OLD_RUNS_PREFIX,
    SUMMARY_FILE,
    UNIFIED_PREFIX,
    sweep_prefix,
)
from lakeplan.review.run import Run
from lakeplan.review.selection import Selection
from lakeplan.state.sweeps import record_sweep
from lakeplan.stores.open import NamespaceReader
from lakeplan.sweep.documents import CollectorRunRow, CollectorRunsDocument, SweepDocument
from lakeplan.sweep.mark_record import settings_row
from lakeplan.sweep.ports import Site, SweepPorts, open_site, select
from lakeplan.sweep.records import IN_QUARANTINE, deleted, official_run
from lakeplan.sweep.records import read_summary as read_sweep_summary
from lakeplan.sweep.run import SweepEnd, sweep_journal
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.documents import error_rows
from lakeplan.values.records import json_line, json_text, utc_text
from lakeplan.values.repository import batches
from lakeplan.values.simulation import Status
from lakeplan.values.sweep import OFFICIAL_ENGINE, SWEEP_FORMAT, UNLISTED, Versions
from lakeplan.values.units import count_of


def sweep_document(end: SweepEnd, *, at: datetime, facts_versioned: bool | None = None) -> SweepDocument:
    """The outcome of a run as a document (``schemas/sweep.v1.json``)."""
    mark = end.mark
    reasons: Counter[str] = Counter()
    for one in end.results:
        reasons.update(one.reasons)
    return {
        "format": SWEEP_FORMAT,
        "mark_id": mark.mark_id,
        "repository": mark.key,
        "storage_namespace": mark.storage_namespace,
        "at": utc_text(at),
        "finished": end.finished,
        "closed": end.closed,
        "problem": end.problem,
        "deleted": end.amount(Status.DELETED).to_row(),
        "failed": end.amount(Status.FAILED).to_row(),
        "saved": end.amount(Status.SAVED).to_row(),
        "pending": end.pending.to_row(),
        "reasons": dict(sorted(reasons.items())),
        "verified": end.verified,
        "came_back": end.came_back,
        "looks": end.inspections,
        "approval": None if end.approval is None else end.approval.to_row(),
        "runner": None if end.runner is None else end.runner.to_row(),
        "settings": settings_row(end.settings),
        "settings_from": _settings_from(end),
        "not_yet_reclaimed": _not_yet(end, facts_versioned),
    }


def _settings_from(end: SweepEnd) -> dict[str, Literal["approval", "mark", "tree"]]:
    """The source of each setting: the approval, today's tree if it differs, or else the mark."""
    if end.approval is None:
        return dict.fromkeys(vars(end.settings), "mark")
    approved = vars(end.approval.judged.sweep)
    return {
        name: "approval" if value == approved[name] else "tree" for name, value in vars(end.settings).items()
    }


def _not_yet(end: SweepEnd, versioned: bool | None) -> str:
    """Return why deleted bytes may still use storage, or ""."""
    deleted = end.amount(Status.DELETED)
    if not deleted.objects:
        return ""
    reasons = [f"{Status.DELETED.value}: {why}" for why in UNLISTED]
    gone = sum(one.reasons.get(reason, 0) for one in end.results for reason in reasons)
    notes = []
    if end.mark.settings.mode == "quarantine":
        notes.append(IN_QUARANTINE)
    if end.mark.settings.versions is Versions.MARKER:
        if versioned:
            notes.append("the store keeps versions: older versions of the deleted objects remain")
        elif versioned is None:
            notes.append("the store does not report whether it keeps versions of deleted objects")
    elif gone and versioned is not False:
        they = count_of(gone, "object was", "objects were")
        notes.append(f"{they} already gone, so older versions of {'it' if gone == 1 else 'them'} may remain")
    return "; ".join(notes)


def finish(site: Site, end: SweepEnd, ports: SweepPorts, run: Run, *, run_id: str) -> SweepDocument:
    """Writes the summary of a run, and for a finished sweep the official report under ``run_id``, a
    descending xid. Returns the document. Raises StorageError, which says how much was deleted; the parts'
    records then still say what."""
    try:
        return _finish(site, end, ports, run, run_id=run_id)
    except StorageError as error:
        count, mark_id = end.amount(Status.DELETED).objects, end.mark.mark_id
        command = "abort" if end.closed else "run"
        raise error.replaced(
            message=f"{error.message}. The sweep has deleted {count_of(count, 'object')}, but its summary"
            " was not written",
            hint=f"Run `lakeplan sweep {command} {mark_id}` again to write the summary.",
        ) from error


def _finish(site: Site, end: SweepEnd, ports: SweepPorts, run: Run, *, run_id: str) -> SweepDocument:
    versioned = site.store.facts().versioned
    document = sweep_document(end, at=ports.now(), facts_versioned=versioned)
    prefix = sweep_prefix(end.mark.mark_id)
    deletes = end.mark.settings.mode == "delete"
    # A mark that the state does not record may be forged, so other tools get no report of it.
    if end.stored.recorded and end.finished and end.amount(Status.DELETED).objects and deletes:
        document = {**document, "official_run_id": _official(site, end, run_id, ports.now())}
    kept = end.mark.settings.versions is Versions.MARKER and versioned is not False
    note = _is_outdated(site, end) or _record(end, ports, run, document, versions_kept=kept)
    # Last, because no later run of a sweep that has ended records it.
    if not (later := _is_outdated(site, end)):
        site.store.put(prefix + SUMMARY_FILE, json_text(document, indent=1))
    note = later or note
    return {**document, "note": note} if note else document


def _is_outdated(site: Site, end: SweepEnd) -> str:
    """Return what ended this sweep since ``end``, or "". Whatever did so had the lease, and its summary must
    remain: an aborted sweep that looks unfinished would continue."""
    summary = read_sweep_summary(site.store, end.mark.mark_id)
    if summary is None or end.closed:
        return ""
    if summary["closed"]:
        return "the sweep was aborted in the meantime, and the summary of the abort was kept"
    is_other = summary != end.summary or summary["finished"] > end.finished
    return "another run of the sweep ended in the meantime" if is_other else ""


def _official(site: Site, end: SweepEnd, run_id: str, now: datetime) -> str:
    """Writes the official report and returns its run id. The id is recorded before the first file is written,
    so a killed run leaves no second report."""
    key = sweep_prefix(end.mark.mark_id) + OFFICIAL_FILE
    try:
        site.store.create(key, json_line({"run_id": run_id}))
    except WriteConflict:
        run_id = official_run(site.store, end.mark.mark_id) or run_id
    if end.mark.settings.engine == OFFICIAL_ENGINE:
        return run_id  # the collector wrote its own report
    report = UnifiedRun(run_id)
    count = 0
    addresses = (address for address, _ in deleted(site, end.mark))
    for number, some in enumerate(batches(addresses, ADDRESSES_A_FILE)):
        for key, data in report.files(number, some):
            site.store.put(key, data)
        count += len(some)
    summary = report.summary(
        started=end.mark.marked_at, cutoff=end.mark.cutoff, first_slice=run_id, deleted=count, now=now
    )
    site.store.put(report.summary_key, summary)
    return run_id


def _record(
    end: SweepEnd, ports: SweepPorts, run: Run, document: SweepDocument, *, versions_kept: bool
) -> str:
    """Writes the run's step to the history, and the figures for drift. Returns why they could not be written,
    or "". No safety depends on them."""
    status = "applied" if end.finished and not end.amount(Status.FAILED).objects else "failed"
    counts = ", ".join(f"{end.amount(s).objects} {s.value}" for s in Status)
    history = end.journal or sweep_journal(end.stored, end.approval, ports, run, closed=end.closed)
    history.record["finished_at"] = run.now().isoformat()
    problems = []
    try:
        history.step(
            end.mark.key,
            status=status,
            message=f"mark {end.mark.mark_id}: {counts}",
            mark_id=end.mark.mark_id,
            counts={s.value: end.amount(s).objects for s in Status} | {"pending": end.pending.objects},
        )
    except LakeplanError as error:
        problems.append(f"{error}")
    try:  # even without the history, because no later run of a finished sweep records its figures
        record_sweep(ports.state, document, versions_kept=versions_kept)
    except LakeplanError as error:
        problems.append(f"{error}")
    return f"the state could not be written: {'; '.join(problems)}" if problems else ""


RUNS_FORMAT: Final = "lakeplan.collector-runs/v1"
NO_SUMMARY = "no summary: the run did not finish, or a lakeplan sweep rejected its mark"
_UNKNOWN = CollectorRunRow(run_id="", by="", objects=None, success=None, started="", cutoff="", note="")


def collector_reports(tree: DesiredTree, selection: Selection, ports: SweepPorts) -> CollectorRunsDocument:
    """The collector runs of every selected repository. Raises UsageError when none is selected."""
    wanted, failed = select(tree, selection, ports)
    repositories: dict[str, list[CollectorRunRow]] = {}
    for desired in wanted:
        try:
            repositories[desired.key] = runs_of(open_site(desired, tree, ports).store)
        except LakeplanError as error:
            failed[desired.key] = error
    return {"format": RUNS_FORMAT, "repositories": repositories, "failed": error_rows(failed)}


def runs_of(store: NamespaceReader) -> list[CollectorRunRow]:
    """The collector runs that left a report, newest first."""
    unified = [_unified(store, _name(prefix)) for prefix in store.list_prefixes(UNIFIED_PREFIX)]
    old = [_old(store, prefix) for prefix in store.list_prefixes(OLD_RUNS_PREFIX)]
    return sorted([*unified, *old], key=lambda run: run["started"], reverse=True)


def _unified(store: NamespaceReader, run_id: str) -> CollectorRunRow:
    run = UnifiedRun(run_id)
    try:
        data = store.read(run.summary_key)
    except StorageNotFound:
        return {**_UNKNOWN, "run_id": run_id, "note": NO_SUMMARY}
    summary = read_summary(data, name=f"{store.url}/{run.summary_key}")
    return {
        "run_id": run_id,
        "by": summary.written_by or "lakefs-spark-client",
        "objects": summary.objects,
        "success": summary.success,
        "started": summary.started,
        "cutoff": summary.cutoff,
        "note": "",
    }


def _old(store: NamespaceReader, prefix: str) -> CollectorRunRow:
    objects = sum(
        len(read_deleted(store.read(stored.key), name=f"{store.url}/{stored.key}"))
        for stored in store.list_objects(prefix)
        if stored.key.endswith(".parquet")
    )
    run_id = _name(prefix).rpartition("=")[2]
    return {**_UNKNOWN, "run_id": run_id, "by": "the old collector", "objects": objects}


def _name(prefix: str) -> str:
    return prefix.removesuffix("/").rpartition("/")[2]
