"""The repository that a command line names, managed or not: how ``explain`` and ``curve`` find it."""

from __future__ import annotations

from lakeplan.config.tree import Tree
from lakeplan.errors import RepositoryNotFound, UsageError
from lakeplan.model.desired import DesiredRepository
from lakeplan.model.repository import Repository
from lakeplan.ports.lakefs import LakeFSReader


def one_repository(tree: Tree, repository: str) -> tuple[str, str]:
    """(server, name) of ``name`` or ``server/name``. A repository that no entry names is looked up on the
    tree's only server. Raises UsageError when several servers could be meant."""
    server, slash, name = repository.rpartition("/")
    if slash:
        if server not in tree.servers:
            raise UsageError(f"the tree has no server {server!r}", hint=f"one of {', '.join(tree.servers)}")
        return server, name
    found = tree.servers_of(repository) or list(tree.servers)
    if len(found) != 1:
        raise UsageError(
            f"{repository!r} could be on several servers: {', '.join(found)}",
            hint=f"write {found[0]}/{repository}",
        )
    return found[0], repository


def looked_up(tree: Tree, reader: LakeFSReader, server: str, name: str) -> Repository:
    """The repository on its server. Raises UsageError when neither the server nor the tree knows the name,
    ServerError (RepositoryNotFound) when the tree names it and the server has none."""
    try:
        return reader.get_repository(name)
    except RepositoryNotFound as error:
        if name in tree.directory.exact_names(server):
            raise
        raise UsageError(error.message, where=error.where, hint=error.hint) from error


def entry_of(tree: Tree, server: str, name: str) -> DesiredRepository | None:
    """What the tree asks for; None: no entry names it."""
    return next((d for d in tree.resolve(server, [name]) if d.name == name), None)
