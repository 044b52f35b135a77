"""Drift of every repository of a tree: reads servers and state, asks only with GET, changes neither.

Where a server's own job deletes branches their HEADs are recorded in the state (``drift_heads``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone

from lakeplan.app.drift_heads import HeadPorts, record_server_heads
from lakeplan.app.gather_settings import server_policies
from lakeplan.app.plan import Selection, failure_of
from lakeplan.app.state import known_repositories, repository_key
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


@dataclass(frozen=True)
class DriftPorts:
    connect: Callable[[str], LakeFSReader]
    state: StateReader
    progress: Progress
    heads: HeadPorts | None = None


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


def read_last_applied(state: StateReader, repository: str) -> LastApplied | None:
    """The record of ``server/name``; None when no apply recorded it. Raises LakeplanError naming a record
    that cannot be read: it must not pass for "never applied"."""
    key = repository_key("applied", repository)
    found = state.read(key)
    if found is None:
        return None
    try:
        record = json.loads(found.data)
        if "body" not in record and "settings" in record:
            return None  # only policies or object rules were ever applied
        body = record["body"]
        return LastApplied(
            rules=None if body is None else rules_from_body(body),
            config_hash=str(record["config_hash"]),
            run_id=str(record["run_id"]),
            at=datetime.fromisoformat(record["at"].replace("Z", "+00:00")),
        )
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
    return DriftReport(as_of, tree_commit, tuple(sorted(found, key=lambda r: r.repository)), tuple(notes))


def _one_server(
    tree: DesiredTree, server: str, selection: Selection, ports: DriftPorts, known: frozenset[str]
) -> tuple[list[RepositoryDrift], list[str]]:
    try:
        reader = ports.connect(server)
        with ports.progress.task(f"listing the repositories of {server}", None):
            live = {r.id: r for r in reader.list_repositories()}
    except LakeplanError as error:
        failure = failure_of(error)
        named = [d for d in tree.resolve(server, ()) if selection.takes(d)]
        keys = {d.key: d.owner for d in named} | {
            k: None for k in known if selection.takes_named(server, k.partition("/")[2], None)
        }
        keys = keys or {server: None}
        return [RepositoryDrift(k, owner=owner, failure=failure) for k, owner in keys.items()], []
    every = {d.key: d for d in tree.resolve(server, live)}
    managed = [d for d in every.values() if d.gc is not None and selection.takes(d)]
    left = {
        key: every[key].owner if key in every else None
        for key in known
        if key not in every or every[key].gc is None
    }
    work: list[tuple[str, Callable[[], RepositoryDrift]]] = [
        (d.key, _job(_managed, d, reader, ports.state)) for d in managed
    ]
    work += [
        (key, _job(_released, key, owner, reader, ports.state))
        for key, owner in sorted(left.items())
        if selection.takes_named(server, key.partition("/")[2], owner)
    ]
    with (
        ports.progress.task(f"comparing {server}", len(work)) as step,
        ThreadPoolExecutor(max_workers=WORKERS) as pool,
    ):

        def one(item: tuple[str, Callable[[], RepositoryDrift]]) -> RepositoryDrift:
            key, job = item
            try:
                return job()
            except LakeplanError as error:
                return RepositoryDrift(key, failure=failure_of(error))
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


def _job(function: Callable[..., RepositoryDrift], *arguments: object) -> Callable[[], RepositoryDrift]:
    return lambda: function(*arguments)


def _managed(desired: DesiredRepository, reader: LakeFSReader, state: StateReader) -> RepositoryDrift:
    last = read_last_applied(state, desired.key)
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
    )


def _released(key: str, owner: str | None, reader: LakeFSReader, state: StateReader) -> RepositoryDrift:
    last = read_last_applied(state, key)
    if last is None:  # deleted since the keys were listed
        return RepositoryDrift(key, owner=owner)
    try:
        stored = reader.get_gc_rules(key.partition("/")[2])
    except RepositoryNotFound:
        return RepositoryDrift(key, owner=owner, last=last)  # nothing is left to hold rules
    values = released(stored, last)
    note = "the tree manages its rules no more; they stay on the server as they are" if values else ""
    classes = (DriftClass.RELEASED,) if values else ()
    return RepositoryDrift(key, owner=owner, classes=classes, values=values, last=last, note=note)


def _of_lost_server(key: str, server: str, state: StateReader) -> RepositoryDrift:
    """Rules applied on a server that the tree does not name any more: nobody can look, so it is said."""
    try:
        last = read_last_applied(state, key)
    except LakeplanError as error:
        return RepositoryDrift(key, failure=failure_of(error))
    if last is None or last.rules is None:
        return RepositoryDrift(key, last=last)
    note = f"the tree names no server {server!r} any more, so its rules could not be read"
    return RepositoryDrift(key, classes=(DriftClass.RELEASED,), last=last, note=note)


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
