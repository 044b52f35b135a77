"""What marking and sweeping need of the world, in one value; and one repository as they see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lakeplan.app.plan import Selection
from lakeplan.app.sweep.refs_memory import RefsMemory
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.model.desired import DesiredRepository, Override, ServerConfig
from lakeplan.model.repository import Repository
from lakeplan.ports.lakefs import LakeFSReader
from lakeplan.ports.progress import Progress
from lakeplan.ports.storage import StateWriter
from lakeplan.ports.sweep import Marker, Sweeper, UncommittedPreparer
from lakeplan.ports.sweep_storage import SweepStore
from lakeplan.ports.tree import DesiredTree


@dataclass(frozen=True)
class SweepPorts:
    """``store`` opens a repository's namespace; ``stop`` is asked between rounds (SIGTERM)."""

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
    """What the command read of refs."""


@dataclass(frozen=True)
class Neighbour:
    """Another repository; ``name`` as messages call it."""

    server: ServerConfig
    name: str
    repository: Repository
    reader: LakeFSReader = field(compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.server.name, self.repository))


@dataclass(frozen=True)
class Site:
    """A repository to mark or sweep, its server, and its namespace opened."""

    desired: DesiredRepository
    server: ServerConfig
    repository: Repository
    reader: LakeFSReader
    preparer: UncommittedPreparer
    store: SweepStore
    open_store: Callable[[ServerConfig, Repository], SweepStore]
    neighbours: tuple[Neighbour, ...] = ()
    """Repositories of the tree's other servers, as they were when the command began."""
    other_servers: tuple[tuple[ServerConfig, LakeFSReader], ...] = ()
    """Those of the tree's other servers that answered."""
    unread_servers: Mapping[str, str] = field(default_factory=dict)
    """Those of the other servers that could not be asked, with why."""
    overrides: tuple[Override, ...] = ()
    """Of the whole tree."""
    refs: RefsMemory = field(default_factory=RefsMemory, compare=False, repr=False)

    @property
    def key(self) -> str:
        return self.desired.key


OtherServers = tuple[list[tuple[ServerConfig, LakeFSReader, list[Neighbour]]], dict[str, str]]
"""The tree's other servers with their repositories, and those that could not be asked, with why."""


def open_site(
    desired: DesiredRepository,
    tree: DesiredTree,
    ports: SweepPorts,
    others: Callable[[ServerConfig], OtherServers] | None = None,
) -> Site:
    """``others``: see ``other_servers``, for those who open several. Raises ServerError,
    StorageError, CredentialsError; LakeplanError for storage that is not swept."""
    server = tree.servers[desired.server]
    reader = ports.reader(desired.server)
    repository = reader.get_repository(desired.name)
    namespace = repository.storage_namespace
    if namespace.startswith(("gs://", "mem://")):
        raise LakeplanError(
            f"lakeplan does not sweep {namespace.partition('://')[0]}:// namespaces",
            where=desired.key,
            hint="plan works; reclaim storage with the official collector",
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
    """All but ``server``, asked now."""
    found: list[tuple[ServerConfig, LakeFSReader, list[Neighbour]]] = []
    unread: dict[str, str] = {}
    for name, other in tree.servers.items():
        if name == server.name:
            continue
        try:
            reader = ports.reader(name)
            found.append((other, reader, list_neighbours(other, reader)))
        except LakeplanError as error:
            unread[f"server {name}"] = error.message
    return found, unread


def list_neighbours(server: ServerConfig, reader: LakeFSReader) -> list[Neighbour]:
    """The repositories of another server as they are now. Raises ServerError."""
    return [
        Neighbour(server, f"{server.name}/{repository.id}", repository, reader)
        for repository in reader.list_repositories()
    ]


def select(
    tree: DesiredTree, selection: Selection, ports: SweepPorts
) -> tuple[list[DesiredRepository], dict[str, LakeplanError]]:
    """The selected repositories that an entry names, and those of servers that do not answer, with why.
    Raises UsageError when nothing is selected."""
    wanted: list[DesiredRepository] = []
    failed: dict[str, LakeplanError] = {}
    lost: list[LakeplanError] = []
    for name in tree.servers:
        if selection.server not in (None, name):
            continue
        try:
            live = [r.id for r in ports.reader(name).list_repositories()]
        except LakeplanError as error:
            lost.append(error)
            failed |= {d.key: error for d in tree.resolve(name, ()) if selection.takes(d)}
            continue
        wanted += [d for d in tree.resolve(name, live) if selection.takes(d)]
    if not wanted and not failed:
        if lost:  # what a glob names there is not known
            raise lost[0]
        raise UsageError("no repository of the tree is selected", hint="check --target, --owner and --server")
    return wanted, failed


def select_one(tree: DesiredTree, repository: str, ports: SweepPorts) -> DesiredRepository:
    """The repository of a mark, ``server/name``. Raises UsageError when the tree does not name it."""
    server, _, name = repository.partition("/")
    if server in tree.servers:
        for desired in tree.resolve(server, [name]):
            if desired.name == name:
                return desired
    raise UsageError(
        f"no entry of the tree names {repository}, which the mark belongs to",
        hint="run it in the tree that the mark was made with",
    )
