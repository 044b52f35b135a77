"""Other repositories, of all servers of the tree: which metaranges they have, for full addresses in these.

An import may hold full addresses into the namespace that is marked or swept, and nobody else inspects there.
Every inspection has all of them dumped again, *after* the own refs of all repositories that are marked in one
group were read: commits never leave a dump, so a later dump has all that an earlier one had. One dump that
old would not do for a repository whose own refs are read later: an object could leave its commits after it
was imported elsewhere. What has the same ids as the last dump is not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from lakeplan.app.sweep.ports import Site
from lakeplan.core.sweep.overlap import place_of
from lakeplan.errors import LakeplanError
from lakeplan.model.repository import Repository
from lakeplan.ports.lakefs import LakeFSReader
from lakeplan.ports.sweep import ForeignRanges

REPOSITORIES_AT_ONCE = 8
"""Refs dumps that are asked for at the same time."""


@dataclass(frozen=True)
class Others:
    """Metaranges of other repositories, and those that could not be read, with why."""

    foreign: tuple[ForeignRanges, ...]
    unreadable: dict[str, str]


@dataclass
class _Server:
    """Its repositories as they are now, or why they cannot be listed."""

    reader: LakeFSReader
    repositories: tuple[Repository, ...] = ()
    error: LakeplanError | None = None
    found: dict[str, ForeignRanges | str] = field(default_factory=dict)
    """By repository: what it has, or why it cannot be read."""

    def list(self) -> None:
        try:
            self.repositories = tuple(self.reader.list_repositories())
        except LakeplanError as error:
            self.error = error


def foreign_ranges(
    site: Site, *, keep: Callable[[], None] = lambda: None
) -> tuple[tuple[ForeignRanges, ...], dict[str, str]]:
    """``Others`` of one repository. ``keep`` is called after each of them. Raises the error of its server."""
    found = read_others([site], keep=keep)[0]
    if isinstance(found, LakeplanError):
        raise found
    return found.foreign, found.unreadable


def read_others(
    sites: Sequence[Site], *, keep: Callable[[], None] = lambda: None
) -> list[Others | LakeplanError]:
    """What each of some repositories has to know of all others, asked for now and once for all of them."""
    servers: dict[str, _Server] = {}
    for site in sites:
        servers.setdefault(site.server.name, _Server(site.reader))
        for server, reader in site.other_servers:
            servers.setdefault(server.name, _Server(reader))
    for each in servers.values():
        each.list()
    wanted = dict.fromkeys(
        (name, repository)
        for site in sites
        for name, server in servers.items()
        for repository in server.repositories
        if _concerns(site, name, repository)
    )
    memory = sites[0].refs

    def read(one: tuple[str, Repository]) -> ForeignRanges | str:
        name, repository = one
        reader = servers[name].reader
        try:
            metaranges = memory.metaranges(name, reader, repository)
            metadata = memory.metadata(name, reader, repository)
        except LakeplanError as error:
            return error.message
        return ForeignRanges(f"{name}/{repository.id}", metadata, metaranges)

    with ThreadPoolExecutor(REPOSITORIES_AT_ONCE) as pool:
        for (name, repository), found in zip(wanted, pool.map(read, wanted), strict=True):
            keep()
            servers[name].found[repository.id] = found
    return [_of_site(site, servers) for site in sites]


def _concerns(site: Site, server: str, repository: Repository) -> bool:
    """Of other servers, only repositories on the same kind of storage."""
    if server == site.server.name:
        return repository.id != site.desired.name
    if all(other.name != server for other, _ in site.other_servers):
        return False
    return place_of(repository.storage_namespace).scheme == place_of(site.repository.storage_namespace).scheme


def _of_site(site: Site, servers: Mapping[str, _Server]) -> Others | LakeplanError:
    own = servers[site.server.name]
    if own.error is not None:
        return own.error
    foreign: list[ForeignRanges] = []
    unreadable: dict[str, str] = {}
    for name, server in servers.items():
        if server.error is not None and any(other.name == name for other, _ in site.other_servers):
            unreadable[f"of server {name}"] = server.error.message
        for repository in server.repositories:
            if not _concerns(site, name, repository):
                continue
            found = server.found[repository.id]
            if isinstance(found, str):
                unreadable[repository.id if server is own else f"{name}/{repository.id}"] = found
            elif found.metaranges:
                foreign.append(found)
    return Others(tuple(foreign), unreadable)


def only_new(
    foreign: tuple[ForeignRanges, ...], seen: Mapping[str, frozenset[str]]
) -> tuple[ForeignRanges, ...]:
    """What appeared since a mark looked (``seen``: metarange ids by repository)."""
    fresh = (
        replace(other, metaranges=tuple(id for id in other.metaranges if id not in seen.get(other.name, ())))
        for other in foreign
    )
    return tuple(other for other in fresh if other.metaranges)
