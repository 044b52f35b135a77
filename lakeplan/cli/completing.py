"""What a shell completes beside commands and options: names in the tree at hand. No server is asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lakeplan.errors import LakeplanError

if TYPE_CHECKING:
    from lakeplan.config.tree import Tree


def repositories(context: typer.Context) -> list[str]:
    """Entries of the tree by name, with their server where two servers share the name."""
    tree = _tree(context)
    if tree is None:
        return []
    names = [entry.name for entry in tree.entries if not entry.is_glob]
    return sorted({n for name in names for n in _written(tree, name)})


def targets(context: typer.Context) -> list[str]:
    """What ``--target`` may name: repositories, and the tree's own globs."""
    tree = _tree(context)
    globs = [] if tree is None else [entry.name for entry in tree.entries if entry.is_glob]
    return [*repositories(context), *sorted(set(globs))]


def servers(context: typer.Context) -> list[str]:
    tree = _tree(context)
    return [] if tree is None else list(tree.servers)


def _written(tree: Tree, name: str) -> list[str]:
    found = tree.servers_of(name)
    return [name] if len(found) < 2 else [f"{server}/{name}" for server in found]


def _tree(context: typer.Context) -> Tree | None:
    """None for a tree with problems: a shell is no place to say them."""
    # Every command has these completions; few command lines complete a name.
    from lakeplan.config.tree import load_tree

    try:
        return load_tree(Path(context.params.get("tree") or "."), os.environ)
    except LakeplanError:
        return None
