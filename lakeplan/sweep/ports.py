"""The ports of a sweep, the repository with its namespace, and the keys of its records in the state."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakeplan.errors import LakeplanError, PermissionDenied, RepositoryNotFound, UsageError
from lakeplan.formats.namespace import checked_mark_id, is_mark_id
from lakeplan.lakefs.protocols import LakeFSReader, MetadataReader
from lakeplan.review.selection import Selection, lost_globs, read_dump
from lakeplan.simulation.requests import Marker, Sweeper, UncommittedPreparer
from lakeplan.stores.open import StateReader, StateWriter, SweepStore
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import DesiredRepository, Override, ServerConfig
from lakeplan.values.progress import Progress
from lakeplan.values.repository import Refs, RefsDumpIds, Repository
from lakeplan.values.urls import can_be_swept


class RefsMemory:
    """The refs that one command read. Every question requests a new refs dump, which is read only when it
    differs from the last one. Several threads may use it, each for different repositories."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[RefsDumpIds, tuple[str, ...]]] = {}
        self._metadata: dict[tuple[str, Repository], MetadataReader] = {}

    def read(self, server: str, reader: LakeFSReader, repository: Repository) -> Refs:
        """All current refs. Raises as ``read_dump``."""
        return self._read(server, reader, repository, reader.dump_refs(repository.id))

    def metaranges(self, server: str, reader: LakeFSReader, repository: Repository) -> tuple[str, ...]:
        """The metaranges of all current commits, sorted. Raises as ``read_dump``."""
        ids = reader.dump_refs(repository.id)
        known = self._known.get((server, repository.id))
        if known is None or known[0] != ids:
            self._read(server, reader, repository, ids)
        return self._known[server, repository.id][1]

    def metadata(self, server: str, reader: LakeFSReader, repository: Repository) -> MetadataReader:
        """A reader of the repository's metadata. Raises ServerError."""
        key = (server, repository)
        if key not in self._metadata:
            self._metadata[key] = reader.metadata_reader(repository.id)
        return self._metadata[key]

    def _read(self, server: str, reader: LakeFSReader, repository: Repository, ids: RefsDumpIds) -> Refs:
        refs = read_dump(reader, repository.id, ids, self.metadata(server, reader, repository))
        metaranges = {commit.meta_range_id for commit in refs.commits if commit.meta_range_id}
        self._known[server, repository.id] = ids, tuple(sorted(metaranges))
        return refs


STOPPED = "stopped by a signal"
KEEP = timedelta(minutes=1)
"""The time between two renewals of the lease in a restore or a purge."""
NAMED = 100
"""The most failures, or addresses of a quarantine, that a document names. All are counted."""


@dataclass(frozen=True)
class SweepPorts:
    """The dependencies of a sweep. ``store`` opens a repository's namespace. ``stop`` is called between
    steps and returns whether to stop (SIGTERM)."""

    reader: Callable[[str], LakeFSReader]
    preparer: Callable[[str], UncommittedPreparer]
    store: Callable[[ServerConfig, Repository], SweepStore]
    marker: Marker
    sweeper: Sweeper
    state: StateWriter
    progress: Progress
    now: Callable[[], datetime]
    stop: Callable[[], bool] = lambda: False
    refs: RefsMemory = field(default_factory=RefsMemory)


@dataclass(frozen=True)
class Neighbour:
    """Another repository. Messages call it ``name``."""

    server: ServerConfig
    name: str
    repository: Repository
    reader: LakeFSReader = field(compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.server.name, self.repository))


@dataclass(frozen=True)
class Site:
    """A repository to mark or sweep, with its server and its open namespace."""

    desired: DesiredRepository
    server: ServerConfig
    repository: Repository
    reader: LakeFSReader
    preparer: UncommittedPreparer
    store: SweepStore
    open_store: Callable[[ServerConfig, Repository], SweepStore]
    neighbours: tuple[Neighbour, ...] = ()
    """Repositories of the tree's other servers when the command began."""
    other_servers: tuple[tuple[ServerConfig, LakeFSReader], ...] = ()
    """The tree's other servers that answered."""
    unread_servers: Mapping[str, str] = field(default_factory=dict)
    """The other servers that did not answer, and why."""
    overrides: tuple[Override, ...] = ()
    """All overrides of the tree."""
    refs: RefsMemory = field(default_factory=RefsMemory, compare=False, repr=False)

    @property
    def key(self) -> str:
        return self.desired.key


OtherServers = tuple[list[tuple[ServerConfig, LakeFSReader, list[Neighbour]]], dict[str, str]]
"""The tree's other servers with their repositories, and the servers that did not answer, with the reasons."""


def open_site(
    desired: DesiredRepository,
    tree: DesiredTree,
    ports: SweepPorts,
    others: Callable[[ServerConfig], OtherServers] | None = None,
) -> Site:
    """Opens a repository. A caller that opens several gives ``others``, which remembers ``other_servers``.
    Raises ServerError, StorageError, CredentialsError, and LakeplanError for storage that is not swept."""
    server = tree.servers[desired.server]
    reader = ports.reader(desired.server)
    repository = reader.get_repository(desired.name)
    if not can_be_swept(repository.storage_namespace):
        raise LakeplanError(
            f"lakeplan cannot sweep {repository.storage_namespace.partition('://')[0]}:// namespaces",
            where=desired.key,
            hint="Use the official collector for this repository. `lakeplan plan` still works.",
        )
    store = ports.store(server, repository)
    listed, unread = other_servers(server, tree, ports) if others is None else others(server)
    return Site(
        desired,
        server,
        repository,
        reader,
        ports.preparer(desired.server),
        store,
        ports.store,
        tuple(neighbour for _, _, neighbours in listed for neighbour in neighbours),
        tuple((other, reader) for other, reader, _ in listed),
        unread,
        tuple(tree.overrides),
        ports.refs,
    )


def other_servers(server: ServerConfig, tree: DesiredTree, ports: SweepPorts) -> OtherServers:
    """The servers of the tree except ``server``, with their current repositories."""
    answered: list[tuple[ServerConfig, LakeFSReader, list[Neighbour]]] = []
    unread: dict[str, str] = {}
    for name, other in tree.servers.items():
        if name == server.name:
            continue
        try:
            reader = ports.reader(name)
            listed = reader.list_repositories()
            neighbours = [Neighbour(other, f"{name}/{each.id}", each, reader) for each in listed]
            answered.append((other, reader, neighbours))
        except LakeplanError as error:
            unread[f"server {name}"] = error.message
    return answered, unread


def select(
    tree: DesiredTree, selection: Selection, ports: SweepPorts
) -> tuple[list[DesiredRepository], dict[str, LakeplanError]]:
    """The selected repositories of the tree, and those whose server does not answer, with the reasons. Raises
    UsageError when none is selected."""
    wanted: list[DesiredRepository] = []
    failed: dict[str, LakeplanError] = {}
    lost: dict[str, LakeplanError] = {}
    for name in tree.servers:
        if selection.server not in (None, name):
            continue
        try:
            live = [r.id for r in ports.reader(name).list_repositories()]
        except LakeplanError as error:
            named = {d.key: error for d in tree.resolve(name, ()) if selection.takes(d)}
            lost |= {} if named else {name: error}
            failed |= named
            continue
        wanted += [d for d in tree.resolve(name, live) if selection.takes(d)]
    if not wanted and not failed:
        if lost:  # a glob may name repositories there
            raise next(iter(lost.values()))
        raise UsageError(
            "the selection matches no repository in the tree",
            hint="Check --target, --owner and --server.",
        )
    for name, why in lost.items():
        failed |= {glob.key: why for glob in lost_globs(tree, name, selection)}
    return wanted, failed


def select_one(tree: DesiredTree, repository: str) -> DesiredRepository:
    """The tree's entry for the repository of a mark (``server/name``). Raises UsageError without one."""
    server, _, name = repository.partition("/")
    desired = tree.find(server, name) if server in tree.servers else None
    if desired is not None:
        return desired
    raise UsageError(
        f"the mark belongs to {repository}, which has no entry in the tree",
        hint="Use the tree that the mark was created with.",
    )


MARK_INDEX = "sweep/marks/"


def recorded_marks(state: StateReader) -> list[str]:
    """The ids of all marks that the state records, newest first. Other files are ignored."""
    ids = (key.removeprefix(MARK_INDEX).removesuffix(".json") for key in state.list_keys(MARK_INDEX))
    return [id for id in reversed([*ids]) if is_mark_id(id)]


def mark_index_key(mark_id: str) -> str:
    return f"{MARK_INDEX}{checked_mark_id(mark_id)}.json"


def approval_key(mark_id: str) -> str:
    return f"sweep/approvals/{checked_mark_id(mark_id)}.json"


HIDDEN = "hidden from these credentials"
"""Names what a server may leave out of its list."""


def why_hidden(reader: LakeFSReader) -> str:
    """Return why a server may leave repositories out of its list, or "". Since 2026 lakeFS silently leaves
    out those that the user may not list. For an unknown repository it answers "not found" to users who may
    read all, and "not permitted" to others."""
    try:
        reader.get_repository(secrets.token_hex(16))
    except RepositoryNotFound:
        return ""
    except PermissionDenied as error:
        return f"the server lists only repositories that these credentials may read ({error.message})"
    return ""
