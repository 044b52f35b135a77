"""Names of a tree, for shells and for commands that take one repository."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lakeplan.errors import LakeplanError, RepositoryNotFound, UsageError
from lakeplan.retention.patterns import names_repository
from lakeplan.values.gates import GATES

if TYPE_CHECKING:
    from lakeplan.lakefs.protocols import LakeFSReader
    from lakeplan.tree.tree import Tree
    from lakeplan.values.plan import Plan, RepositoryPlan
    from lakeplan.values.repository import Repository


def repositories(context: typer.Context) -> list[str]:
    """Entries of the tree by name, with their server if two servers have the name."""
    tree = _tree(context)
    if tree is None:
        return []
    names = [entry.name for entry in tree.entries if not entry.is_glob]
    return sorted({n for name in names for n in _written(tree, name)})


def targets(context: typer.Context) -> list[str]:
    """Return the values of ``--target``: repositories, and the globs of the tree."""
    tree = _tree(context)
    globs = [] if tree is None else [entry.name for entry in tree.entries if entry.is_glob]
    return [*repositories(context), *sorted(set(globs))]


def allowable(context: typer.Context) -> list[str]:
    """Return the values of ``--allow``: gates, and gates of one repository."""
    gates = [gate.name for gate in GATES.values() if gate.allow]
    return [*gates, *(f"{repository}={gate}" for repository in repositories(context) for gate in gates)]


def servers(context: typer.Context) -> list[str]:
    tree = _tree(context)
    return [] if tree is None else list(tree.servers)


def _written(tree: Tree, name: str) -> list[str]:
    servers = tree.servers_of(name)
    return [name] if len(servers) < 2 else [f"{server}/{name}" for server in servers]


def _tree(context: typer.Context) -> Tree | None:
    """None for a tree with problems: a shell cannot show them."""
    # Imported here because every command has these completions, but most invocations complete nothing.
    from lakeplan.tree.tree import load_tree

    try:
        return load_tree(Path(context.params.get("tree") or "."), os.environ)
    except LakeplanError:
        return None


def check_server(tree: Tree, server: str | None) -> None:
    """Raises UsageError if the tree does not have the server."""
    if server is not None and server not in tree.servers:
        raise UsageError(f"the tree has no server {server!r}", hint=f"Use one of {', '.join(tree.servers)}.")


def one_repository(tree: Tree, repository: str) -> tuple[str, str]:
    """(server, name) of ``name`` or ``server/name``. A repository that no entry names is looked up on the
    tree's only server. Raises UsageError when several servers could be meant."""
    server, slash, name = repository.rpartition("/")
    if slash:
        check_server(tree, server)
        return server, name
    servers = tree.servers_of(repository) or list(tree.servers)
    if len(servers) != 1:
        raise UsageError(
            f"repository {repository!r} may be on any of several servers: {', '.join(servers)}",
            hint=f"Include the server, for example {servers[0]}/{repository}",
        )
    return servers[0], repository


def find_repository(tree: Tree, reader: LakeFSReader, server: str, name: str) -> Repository:
    """The repository on its server. Raises UsageError when neither the server nor the tree knows the name,
    ServerError (RepositoryNotFound) when the tree names it and the server has none."""
    try:
        return reader.get_repository(name)
    except RepositoryNotFound as error:
        if name in tree.directory.exact_names(server):
            raise
        raise UsageError(error.message, where=error.where, hint=error.hint) from error


def targeted(plan: Plan, globs: Sequence[str], plan_file: Path) -> list[RepositoryPlan]:
    """Repositories of a plan that ``--target`` names. Raises UsageError when it names none of them."""
    matching = [r for r in plan.repositories if any(names_repository(g, r.server, r.name) for g in globs)]
    if globs and not matching:
        raise UsageError(
            "no repository in the plan matches --target",
            where=str(plan_file),
            hint=f"Run `lakeplan show {plan_file}` to list their names. Quote globs, for example 'team-*'.",
        )
    return matching
