"""Drift of every repository of a tree: reads servers and state, asks only with GET, changes neither.

Where a server's own job deletes branches their HEADs are recorded in the state (``drift_heads``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from lakeplan.app.drift_heads import HeadPorts, record_server_heads
from lakeplan.app.gather_settings import server_policies
from lakeplan.app.plan import Selection, failure_of
from lakeplan.app.state import known_repositories, repository_key
from lakeplan.app.sweep.record import SweepRecord, read_sweeps
from lakeplan.core.drift import DriftClass, DriftedValue, LastApplied, drift_of, released, unmanaged_new
from lakeplan.errors import LakeplanError, RepositoryNotFound, UsageError
from lakeplan.model.desired import DesiredRepository
from lakeplan.model.plan import Failure
from lakeplan.model.plan_document import rules_from_body
from lakeplan.model.repository import Repository
from lakeplan.ports.lakefs import LakeFSReader
from lakeplan.ports.progress import Progress
from lakeplan.ports.storage import StateReader
from lakeplan.ports.tree import DesiredTree

WORKERS = 8
_Work = tuple[str, "str | None", Callable[[], "RepositoryDrift"]]
"""A repository, its owner, and how it is compared."""


@dataclass(frozen=True)
class DriftPorts:
    connect: Callable[[str], LakeFSReader]
    state: StateReader
    progress: Progress
    heads: HeadPorts | None = None


@dataclass(frozen=True)
class LastWrite:
    """The last run that wrote to a repository: GC rules, policies or object rules."""

    run_id: str
    at: datetime


@dataclass(frozen=True)
class RepositoryDrift:
    """One repository: how it drifted (nothing: it did not), or why that could not be told."""

    repository: str
    owner: str | None = None
    source: str = ""
    classes: tuple[DriftClass, ...] = ()
    values: tuple[DriftedValue, ...] = ()
    last: LastApplied | None = None
    note: str = ""
    failure: Failure | None = None
    applied: LastWrite | None = None
    sweeps: SweepRecord | None = None
    state_note: str = ""
    """What of the state could not be read, beside the rules that were applied last."""


@dataclass(frozen=True)
class DriftReport:
    """``repositories``: everything that was looked at, sorted by name. ``notes`` are what else to know; they
    are no drift and no failure."""

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


@dataclass(frozen=True)
class Remembered:
    """What the state has of a repository's applies. ``last`` is None where GC rules never were applied,
    ``write`` where nothing was."""

    last: LastApplied | None = None
    write: LastWrite | None = None


def read_applies(state: StateReader, repository: str) -> Remembered:
    """The record of ``server/name``. Raises LakeplanError naming a record that cannot be read: it must not
    pass for "never applied"."""
    key = repository_key("applied", repository)
    found = state.read(key)
    if found is None:
        return Remembered()
    try:
        record = json.loads(found.data)
        run_id, at = str(record["run_id"]), datetime.fromisoformat(record["at"].replace("Z", "+00:00"))
        if "body" not in record and "settings" in record:
            return Remembered(write=LastWrite(run_id, at))
        body = record["body"]
        rules = None if body is None else rules_from_body(body)
        return Remembered(LastApplied(rules, str(record["config_hash"]), run_id, at), LastWrite(run_id, at))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeplanError(
            "the state's record of the last apply is damaged",
            where=key,
            hint="move it away: the next apply writes it again",
            detail=repr(error),
        ) from None


def find_drift(
    tree: DesiredTree, selection: Selection, ports: DriftPorts, *, as_of: datetime, tree_commit: str | None
) -> DriftReport:
    """Every selected repository that the tree manages or that was applied once, and new ones nobody manages.
    Repositories that cannot be read carry their failure; the others go on. Raises UsageError for a selection
    that selects nothing: a misspelt one must not read as "no drift"."""
    known = known_repositories(ports.state)
    found: list[RepositoryDrift] = []
    notes: list[str] = []
    for server in tree.servers:
        if selection.server in (None, server):
            mine = frozenset(k for k in known if k.partition("/")[0] == server)
            compared, more = _one_server(tree, server, selection, ports, mine)
            found += compared
            notes += more
    for key in known:
        server, _, name = key.partition("/")
        if server not in tree.servers and selection.takes_named(server, name, None):
            found.append(_of_lost_server(key, server, ports.state))
    if not found and not selection.everything:
        raise UsageError(
            "the selection names no repository that the tree manages or that was applied",
            hint="--target takes a name, server/name or a glob; --owner what the entries say",
        )
    found.sort(key=lambda r: r.repository)
    notes += [r.state_note for r in found if r.state_note]
    return DriftReport(as_of, tree_commit, tuple(found), tuple(notes))


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
    every = {d.key: d for d in tree.resolve(server, live)}
    managed = [d for d in every.values() if d.gc is not None and selection.takes(d)]
    left = {
        key: every[key].owner if key in every else None
        for key in known
        if key not in every or every[key].gc is None
    }
    work: list[_Work] = [(d.key, d.owner, _job(_managed, d, reader, ports.state)) for d in managed]
    work += [
        (key, owner, _job(_released, key, owner, reader, ports.state))
        for key, owner in sorted(left.items())
        if selection.takes_named(server, key.partition("/")[2], owner)
    ]
    with (
        ports.progress.task(f"comparing {server}", len(work)) as step,
        ThreadPoolExecutor(max_workers=WORKERS) as pool,
    ):

        def one(item: _Work) -> RepositoryDrift:
            key, owner, job = item
            try:
                return _with_sweeps(job(), ports.state)
            except LakeplanError as error:
                return _failed(key, owner, error, ports.state)
            finally:
                step()

        found = list(pool.map(one, work))
    if tree.unmanaged_policy != "ignore":
        found += _unmanaged(tree, server, live, selection, ports.state, known)
    return found, _record_heads(tree, server, every.values(), selection, reader, ports)


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
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        notes = pool.map(lambda desired: record_server_heads(desired, reader, heads), wanted)
        return [note for note in notes if note]


def _failed(key: str, owner: str | None, error: LakeplanError, state: StateReader) -> RepositoryDrift:
    """A repository that could not be compared, with what the state has of it."""
    failed = RepositoryDrift(key, owner=owner, failure=failure_of(error))
    with suppress(LakeplanError):  # a damaged record is the failure itself
        failed = replace(failed, applied=read_applies(state, key).write)
    return _with_sweeps(failed, state)


def _with_sweeps(drift: RepositoryDrift, state: StateReader) -> RepositoryDrift:
    try:
        return replace(drift, sweeps=read_sweeps(state, drift.repository))
    except LakeplanError as error:
        return replace(drift, state_note=f"{drift.repository}: {error.message} ({error.where})")


def _job(function: Callable[..., RepositoryDrift], *arguments: object) -> Callable[[], RepositoryDrift]:
    return lambda: function(*arguments)


def _managed(desired: DesiredRepository, reader: LakeFSReader, state: StateReader) -> RepositoryDrift:
    remembered = read_applies(state, desired.key)
    last = remembered.last
    stored = reader.get_gc_rules(desired.name)
    values = drift_of(desired, stored, [b.id for b in reader.list_branches(desired.name)], last)
    return RepositoryDrift(
        desired.key,
        owner=desired.owner,
        source=str(desired.source) if desired.source else "",
        classes=tuple(dict.fromkeys(v.drift for v in values)),
        values=values,
        last=last,
        note="" if last is not None else "no apply of it is recorded",
        applied=remembered.write,
    )


def _released(key: str, owner: str | None, reader: LakeFSReader, state: StateReader) -> RepositoryDrift:
    remembered = read_applies(state, key)
    found = RepositoryDrift(key, owner=owner, last=remembered.last, applied=remembered.write)
    last = remembered.last
    if last is None:  # never rules of its own, or deleted since the keys were listed
        return found
    try:
        stored = reader.get_gc_rules(key.partition("/")[2])
    except RepositoryNotFound:
        return found  # nothing is left to hold rules
    values = released(stored, last)
    note = "the tree manages its rules no more; they stay on the server as they are" if values else ""
    classes = (DriftClass.RELEASED,) if values else ()
    return replace(found, classes=classes, values=values, note=note)


def _of_lost_server(key: str, server: str, state: StateReader) -> RepositoryDrift:
    """Rules applied on a server that the tree does not name any more: nobody can look, so it is said."""
    try:
        remembered = read_applies(state, key)
    except LakeplanError as error:
        return RepositoryDrift(key, failure=failure_of(error))
    last = remembered.last
    found = _with_sweeps(RepositoryDrift(key, last=last, applied=remembered.write), state)
    if last is None or last.rules is None:
        return found
    note = f"the tree names no server {server!r} any more, so its rules could not be read"
    return replace(found, classes=(DriftClass.RELEASED,), note=note)


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
            last = read_applies(state, key).last
        except LakeplanError:
            continue  # its own line says so; without it more counts as new, never less
        if last is not None:
            applies.append(last.at)
    return [
        RepositoryDrift(
            f"{server}/{name}",
            classes=(DriftClass.UNMANAGED_NEW,),
            note=f"made {created[name]:%Y-%m-%d}; no entry of the tree names it",
        )
        for name in unmanaged_new(created, max(applies, default=None))
    ]
