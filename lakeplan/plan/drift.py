"""Finds the drift of every repository of a tree, and makes its document. Sends only GET requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Final

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.plan.baselines import read_last_applied
from lakeplan.plan.documents import DriftDocument, DriftedRow, LastSweepRow, RecordedRow
from lakeplan.plan.drift_compare import (
    DriftClass,
    DriftedItem,
    DriftedValue,
    HeadPorts,
    RepositoryDrift,
    compare,
    manages,
    record_server_heads,
    unmanaged_new,
)
from lakeplan.plan.gather import server_policies
from lakeplan.review.selection import Selection, failure_of
from lakeplan.state.store import known_repositories, repositories_of
from lakeplan.state.sweeps import RecordedSweep, read_sweeps
from lakeplan.stores.protocols import StateReader
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.documents import encode
from lakeplan.values.progress import Progress, in_parallel
from lakeplan.values.records import utc_text
from lakeplan.values.repository import Repository
from lakeplan.values.simulation import total_of

WORKERS = 8


@dataclass(frozen=True)
class DriftPorts:
    connect: Callable[[str], LakeFSReader]
    state: StateReader
    progress: Progress
    heads: HeadPorts | None = None


@dataclass(frozen=True)
class DriftReport:
    """The drift of a tree. ``repositories`` are all that were inspected, sorted by name. ``notes`` are for
    people, and neither drift nor failures."""

    as_of: datetime
    tree_commit: str | None
    repositories: tuple[RepositoryDrift, ...] = field(default=())
    notes: tuple[str, ...] = ()

    @property
    def drifted(self) -> tuple[RepositoryDrift, ...]:
        return tuple(r for r in self.repositories if r.classes)

    @property
    def failed(self) -> tuple[RepositoryDrift, ...]:
        return tuple(r for r in self.repositories if r.failure is not None)

    def has(self, classes: Iterable[DriftClass]) -> bool:
        return any(c in r.classes for r in self.repositories for c in classes)


def find_drift(
    tree: DesiredTree, selection: Selection, ports: DriftPorts, *, as_of: datetime, tree_commit: str | None
) -> DriftReport:
    """The drift of every selected repository that the tree manages or that was applied once, and new
    unmanaged ones. A repository that cannot be read has its failure and does not stop the others. Raises
    UsageError for a selection that matches nothing, because a misspelt one must not look like "no drift"."""
    recorded = known_repositories(ports.state) | repositories_of(ports.state, "baselines")
    # Other trees may keep their records in the same state.
    known = frozenset(key for key in recorded if tree.may_manage(*key.split("/", 1)))
    drifts: list[RepositoryDrift] = []
    notes: list[str] = []
    for server in tree.servers:
        if selection.server in (None, server):
            mine = frozenset(k for k in known if k.partition("/")[0] == server)
            compared, more = _one_server(tree, server, selection, ports, mine)
            drifts += compared
            notes += more
    for key in known:
        server, _, name = key.partition("/")
        if server not in tree.servers and selection.takes_named(server, name, None):
            drifts.append(_of_lost_server(key, server, ports.state))
    if not drifts and not selection.everything:
        raise UsageError(
            "the selection matches no repository that the tree manages or managed before",
            hint="Check --target (a name, server/name or a glob), --owner and --server.",
        )
    drifts.sort(key=lambda r: r.repository)
    notes += [r.state_note for r in drifts if r.state_note]
    return DriftReport(as_of, tree_commit, tuple(drifts), tuple(notes))


def _one_server(
    tree: DesiredTree, server: str, selection: Selection, ports: DriftPorts, known: frozenset[str]
) -> tuple[list[RepositoryDrift], list[str]]:
    try:
        reader = ports.connect(server)
        with ports.progress.task(f"listing the repositories of {server}", None):
            live = {r.id: r for r in reader.list_repositories()}
    except LakeplanError as error:
        named = [d for d in tree.resolve(server, ()) if selection.takes(d)]
        keys = {d.key: d.owner for d in named} | {
            k: None for k in known if selection.takes_named(server, k.partition("/")[2], None)
        }
        if not keys:
            return [RepositoryDrift(server, failure=failure_of(error))], []
        return [_failed(key, owner, error, ports.state) for key, owner in keys.items()], []
    desired = {d.key: d for d in tree.resolve(server, live)}
    config = tree.servers[server]
    owners = {key: desired[key].owner if key in desired else None for key in (*desired, *known)}
    work = [
        key
        for key, owner in sorted(owners.items())
        if (key in known or manages(desired[key], config))
        and selection.takes_named(server, key.partition("/")[2], owner)
    ]

    def one(key: str) -> RepositoryDrift:
        try:
            drift = compare(key, desired.get(key), config, reader, ports.state, owners[key])
            return _with_sweeps(drift, ports.state)
        except LakeplanError as error:
            return _failed(key, owners[key], error, ports.state)

    with ports.progress.task(f"comparing {server}", len(work)) as step:
        drifts = in_parallel(one, work, WORKERS, step)
    if tree.unmanaged_policy != "ignore":
        drifts += _unmanaged(tree, server, live, selection, ports.state, known)
    return drifts, _record_heads(tree, server, desired.values(), selection, reader, ports)


def _record_heads(
    tree: DesiredTree,
    server: str,
    repositories: Iterable[DesiredRepository],
    selection: Selection,
    reader: LakeFSReader,
    ports: DriftPorts,
) -> list[str]:
    """Notes about HEADs that could not be recorded."""
    heads = ports.heads
    if heads is None:
        return []
    wanted = [d for d in repositories if server_policies(d, tree.servers[server]) and selection.takes(d)]
    if heads.useless:
        return [heads.useless] if wanted else []
    notes = in_parallel(lambda desired: record_server_heads(desired, reader, heads), wanted, WORKERS)
    return [note for note in notes if note]


def _failed(key: str, owner: str | None, error: LakeplanError, state: StateReader) -> RepositoryDrift:
    """A repository that could not be compared, with what the state has of it."""
    failed = RepositoryDrift(key, owner=owner, failure=failure_of(error))
    with suppress(LakeplanError):  # a damaged record is the failure itself
        failed = replace(failed, last=read_last_applied(state, key))
    return _with_sweeps(failed, state)


def _with_sweeps(drift: RepositoryDrift, state: StateReader) -> RepositoryDrift:
    try:
        sweeps = tuple(read_sweeps(state, drift.repository).values())
    except LakeplanError as error:
        return replace(drift, state_note=f"{drift.repository}: {error.message} ({error.where})")
    if purging := [sweep.mark_id for sweep in sweeps if sweep.purging is not None]:
        # It may also be active now.
        note = (
            f"{drift.repository}: a purge of mark {purging[0]} did not record that it finished, so it may"
            " have reclaimed more than is reported. Run `lakeplan sweep purge` to correct the figures"
        )
        return replace(drift, sweeps=sweeps, state_note=note)
    return replace(drift, sweeps=sweeps)


def _of_lost_server(key: str, server: str, state: StateReader) -> RepositoryDrift:
    """A repository on a server that the tree no longer names. Its rules cannot be read, which a note says."""
    try:
        last = read_last_applied(state, key)
    except LakeplanError as error:
        return RepositoryDrift(key, failure=failure_of(error))
    drift = _with_sweeps(RepositoryDrift(key, last=last), state)
    if last is None or not last.has_remainder:
        return drift
    note = f"the tree no longer has the server {server!r}, so its rules could not be read"
    return replace(drift, classes=(DriftClass.RELEASED,), note=note)


def _unmanaged(
    tree: DesiredTree,
    server: str,
    live: Mapping[str, Repository],
    selection: Selection,
    state: StateReader,
    known: frozenset[str],
) -> list[RepositoryDrift]:
    created = {
        name: datetime.fromtimestamp(live[name].creation_date, tz=timezone.utc)
        for name in tree.unmanaged(server, live)
        if f"{server}/{name}" not in known and selection.takes_named(server, name, None)
    }
    if not created:
        return []
    applies = []
    for key in known:
        try:
            last = read_last_applied(state, key)
        except LakeplanError:
            continue  # reported as its failure; without it more repositories count as new, never fewer
        if last is not None:
            applies.append(last.at)
    return [
        RepositoryDrift(
            f"{server}/{name}",
            classes=(DriftClass.UNMANAGED_NEW,),
            note=f"created {created[name]:%Y-%m-%d}; the tree has no entry for it",
        )
        for name in unmanaged_new(created, max(applies, default=None))
    ]


DRIFT_FORMAT: Final = "lakeplan.drift/v1"


def drift_document(report: DriftReport) -> DriftDocument:
    """The document of a report (``schemas/drift.v1.json``), which lists only what drifted or failed."""
    return {
        "format": DRIFT_FORMAT,
        "as_of": utc_text(report.as_of),
        "tree_commit": report.tree_commit,
        "repositories": [_repository(r) for r in report.drifted],
        "failures": [
            {
                "repository": r.repository,
                "owner": r.owner,
                "message": r.failure.message,
                "where": r.failure.where,
                "hint": r.failure.hint,
            }
            for r in report.repositories
            if r.failure is not None
        ],
        "recorded": [_recorded(r) for r in report.repositories],
        "notes": list(report.notes),
        "summary": {
            "checked": len(report.repositories),
            "drifted": len(report.drifted),
            "failed": len(report.failed),
            "classes": {c.value: sum(1 for r in report.drifted if c in r.classes) for c in DriftClass},
        },
    }


def _repository(drift: RepositoryDrift) -> DriftedRow:
    return {
        "repository": drift.repository,
        "owner": drift.owner,
        "source": drift.source,
        "classes": [c.value for c in drift.classes],
        "values": [_classed(value) for value in drift.values],
        "items": [_classed(item) for item in drift.items],
        "last_applied": encode(drift.last.newest) if drift.last is not None else None,
        "note": drift.note,
    }


def _classed(drifted: DriftedValue | DriftedItem) -> Any:
    row = encode(drifted)
    return {"class": row.pop("drift"), **row}


def _recorded(drift: RepositoryDrift) -> RecordedRow:
    """The state's records of a repository, whether or not it drifted."""
    applied, sweeps = drift.last, drift.sweeps
    return {
        "repository": drift.repository,
        "owner": drift.owner,
        "failed": drift.failure is not None,
        "last_apply": None
        if applied is None or not applied.run_id
        else {"run_id": applied.run_id, "at": utc_text(applied.at)},
        "last_sweep": _sweep_row(max(sweeps, key=lambda sweep: sweep.at)) if sweeps else None,
        "quarantined": total_of(sweep.quarantined for sweep in sweeps).to_row() if sweeps else None,
        "reclaimed": total_of(sweep.reclaimed for sweep in sweeps).to_row() if sweeps else None,
    }


def _sweep_row(last: RecordedSweep) -> LastSweepRow:
    return {
        "mark_id": last.mark_id,
        "at": utc_text(last.at),
        "finished": last.finished,
        "deleted": last.amounts["deleted"].to_row(),
        "failed": last.amounts["failed"].to_row(),
        "saved": last.amounts["saved"].to_row(),
        "pending": last.amounts["pending"].to_row(),
    }
