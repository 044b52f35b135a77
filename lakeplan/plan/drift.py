"""Compares servers with the last apply and the tree (``drift``), and makes a tree of rules (``import``).
Sends only GET requests, and writes no files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Final, Literal

from lakeplan.branches.pin_records import read_stored
from lakeplan.errors import FeatureMissing, LakeplanError, UsageError
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
from lakeplan.plan.gather import read_setting, server_policies
from lakeplan.retention.patterns import names_repository
from lakeplan.review.run import GC, Run
from lakeplan.review.selection import Selection, failure_of
from lakeplan.state.store import Sighting, known_repositories, repositories_of
from lakeplan.state.sweeps import RecordedSweep, read_sweeps
from lakeplan.stores.open import StateReader
from lakeplan.tree.editing import gc_lines, quoted, setting_lines
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import DesiredRepository, SettingItem, SettingKind, item_body
from lakeplan.values.documents import encode
from lakeplan.values.progress import Progress, in_parallel
from lakeplan.values.records import utc_text
from lakeplan.values.repository import Repository
from lakeplan.values.rules import MAX_DAYS, GcRules
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


Split = Literal["repository", "server", "owner"]
ROOT_FILE = "lakeplan.yaml"
UNOWNED = "unowned"


@dataclass(frozen=True)
class Imported:
    """One repository with what a server stores, or with the rules in a file for lakectl. ``rules`` None: it
    has only ``settings``, the policies or object rules of a lakeFS Enterprise server."""

    server: str
    name: str
    rules: GcRules | None
    owner: str | None = None
    settings: Mapping[SettingKind, tuple[SettingItem, ...]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.server}/{self.name}"


@dataclass(frozen=True)
class SkippedRepository:
    """A repository that was left out of the tree, and why. ``is_problem``: it has, or may have, rules."""

    repository: str
    reason: str
    is_problem: bool = True


@dataclass(frozen=True)
class Import:
    """An imported tree. ``files`` maps each path in the tree to its text."""

    files: Mapping[str, str]
    imported: tuple[Imported, ...]
    left_out: tuple[SkippedRepository, ...] = ()
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Owners:
    """``GLOB=OWNER`` pairs, of which the first that matches counts. Servers do not record owners."""

    pairs: tuple[tuple[str, str], ...] = field(default=())

    def of(self, server: str, name: str) -> str | None:
        return next((o for g, o in self.pairs if names_repository(g, server, name)), None)


def read_servers(
    servers: Iterable[str],
    connect: Callable[[str], LakeFSReader],
    owners: Owners,
    progress: Progress,
    *,
    takes: Callable[[str, str], bool],
) -> tuple[list[Imported], list[SkippedRepository]]:
    """The rules, policies and object rules of every live repository for which ``takes(server, name)`` is
    true, and those that could not be read. Raises ServerError if a server does not answer."""
    imported: list[Imported] = []
    left_out: list[SkippedRepository] = []
    for server in servers:
        reader = connect(server)
        names = [r.id for r in reader.list_repositories() if takes(server, r.id)]
        with progress.task(f"reading {server}", len(names)) as step:
            read = in_parallel(_ServerImport(server, reader, owners).read, names, WORKERS, step)
        for repository, missing in read:
            imported += [repository] if repository is not None else []
            left_out += missing
    return imported, left_out


@dataclass(frozen=True)
class _ServerImport:
    """Reads the repositories of one server. A feature that it lacks is requested only once."""

    _server: str
    _reader: LakeFSReader
    _owners: Owners
    _lacking: set[SettingKind] = field(default_factory=set)

    def read(self, name: str) -> tuple[Imported | None, list[SkippedRepository]]:
        key, owner = f"{self._server}/{name}", self._owners.of(self._server, name)
        try:
            rules = read_stored(self._reader, name).bare
        except LakeplanError as error:
            return None, [SkippedRepository(key, error.message)]
        settings: dict[SettingKind, tuple[SettingItem, ...]] = {}
        left_out = []
        for kind in SettingKind:
            items = self._items(kind, name)
            if isinstance(items, LakeplanError):
                left_out.append(SkippedRepository(key, f"its {kind.label}: {items.message}"))
            elif items:
                settings[kind] = items
        if rules is None and not settings:
            missing = [] if left_out else [SkippedRepository(key, "it has no GC rules", is_problem=False)]
            return None, [*left_out, *missing]
        return Imported(self._server, name, rules, owner, settings), left_out

    def _items(self, kind: SettingKind, name: str) -> tuple[SettingItem, ...] | LakeplanError | None:
        if kind in self._lacking:
            return None
        try:
            return read_setting(self._reader, kind, name).items
        except FeatureMissing:
            self._lacking.add(kind)
            return None
        except LakeplanError as error:
            return error


def sightings(
    imported: Iterable[Imported], tree: DesiredTree, run: Run, *, at: datetime
) -> dict[str, dict[str, Sighting]]:
    """The values that were read of each repository, by ``server/name`` and setting, for its baseline."""
    hashes = {d.key: d.config_hash for server in tree.servers for d in tree.resolve(server, ())}
    by_key = {}
    for repository in imported:
        bodies: dict[str, Any] = {k.value: [item_body(i) for i in v] for k, v in repository.settings.items()}
        if repository.rules is not None:
            bodies[GC] = repository.rules.to_body()
        by_key[repository.key] = {
            name: Sighting(body, hashes[repository.key], run.run_id, at, "import")
            for name, body in bodies.items()
        }
    return by_key


def make_tree(
    endpoints: Mapping[str, str],
    repositories: Sequence[Imported],
    left_out: Sequence[SkippedRepository],
    split: Split,
    *,
    state: str | None = None,
) -> Import:
    """The files of a tree that requires exactly these rules. Repositories with stored values that no tree can
    have are left out, which a comment says."""
    good = []
    out = list(left_out)
    for repository in sorted(repositories, key=lambda r: r.key):
        invalid = _invalid_days(repository.rules)
        if invalid:
            out.append(SkippedRepository(repository.key, f"no tree can express the stored rules: {invalid}"))
        else:
            good.append(repository)
    out.sort(key=lambda item: item.repository)
    profiles = _profiles(good)
    engines = {r.server for r in good if SettingKind.BRANCH_LIFECYCLE in r.settings}
    files = {ROOT_FILE: _root(endpoints, engines, profiles, out, state)}
    for path, group in _groups(good, split, several=len(endpoints) > 1).items():
        files[path] = _file(group, profiles, several=len(endpoints) > 1)
    return Import(files, tuple(good), tuple(out), tuple(profiles.values()))


def _invalid_days(rules: GcRules | None) -> str:
    if rules is None:
        return ""
    days = {"the default": rules.default_retention_days, **rules.branches}
    return ", ".join(f"{d} days for {name}" for name, d in days.items() if not 1 <= d <= MAX_DAYS)


def _profiles(repositories: Iterable[Imported]) -> dict[GcRules, str]:
    """Names for the rules that more than one repository has."""
    counts = Counter(r.rules for r in repositories if r.rules is not None)
    shared = sorted(
        (rules for rules, n in counts.items() if n > 1),
        key=lambda r: (r.default_retention_days, len(r.branches), list(r.branches.items())),
    )
    names: dict[GcRules, str] = {}
    for rules in shared:
        name = f"days-{rules.default_retention_days}"
        if len(rules.branches) == 1:
            (branch, days), *_ = rules.branches.items()
            name += f"-{_file_name(branch)}-{days}"
        number, free = 2, name
        while free in names.values():
            free, number = f"{name}-{number}", number + 1
        names[rules] = free
    return names


def _groups(repositories: Iterable[Imported], split: Split, *, several: bool) -> dict[str, list[Imported]]:
    """Repositories by their file. Names that differ only in case, or in what file names cannot have, share
    one."""
    groups: dict[str, list[Imported]] = {}
    paths: dict[str, str] = {}  # some file systems ignore case
    for repository in repositories:
        match split:
            case "owner":
                name = _file_name(repository.owner or UNOWNED)
            case "server":
                name = _file_name(repository.server)
            case "repository":
                name = _file_name(repository.name)
                if several:
                    name = f"{_file_name(repository.server)}/{name}"
        path = paths.setdefault(name.lower(), f"repositories/{name}.yaml")
        groups.setdefault(path, []).append(repository)
    return groups


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)[:100]


def _root(
    endpoints: Mapping[str, str],
    engines: Collection[str],
    profiles: Mapping[GcRules, str],
    left_out: Iterable[SkippedRepository],
    state: str | None,
) -> str:
    lines = ["apiVersion: lakeplan/v1", "servers:"]
    for name, url in endpoints.items():
        engine = ", branch_lifecycle: {engine: server}" if name in engines else ""
        lines.append(f"  {quoted(name)}: {{endpoint_url: {quoted(url)}{engine}}}")
    if state is not None:
        lines.append(f"state: {{url: {quoted(state)}}}")
    if profiles:
        lines.append("profiles:")
        for rules, name in profiles.items():
            lines += [f"  {quoted(name)}:", *(f"    {line}" for line in gc_lines(rules))]
    lines.append("unmanaged: warn  # repositories without an entry")
    lines.append('include: ["repositories/**/*.yaml"]')
    notes = [f"#   {_comment(f'{item.repository}: {item.reason}')}" for item in left_out]
    if notes:
        lines += ["", "# Not imported, so not managed:", *notes]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _file(repositories: Iterable[Imported], profiles: Mapping[GcRules, str], *, several: bool) -> str:
    lines = ["apiVersion: lakeplan/v1", "repositories:"]
    for repository in repositories:
        lines.append(f"  {quoted(repository.key if several else repository.name)}:")
        if repository.owner is not None:
            lines.append(f"    owner: {quoted(repository.owner)}")
        body = _gc(repository.rules, profiles) if repository.rules is not None else []
        for kind, items in repository.settings.items():
            body += setting_lines(kind, items)
        lines += [f"    {line}" for line in body]
    return "\n".join(lines) + "\n"


def _gc(rules: GcRules, profiles: Mapping[GcRules, str]) -> list[str]:
    return [f"use: [{quoted(profiles[rules])}]"] if rules in profiles else gc_lines(rules)
