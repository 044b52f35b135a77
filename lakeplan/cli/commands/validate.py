"""``lakeplan validate``: every problem of a tree at once, with its position; no server is asked."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lakeplan.cli import options
from lakeplan.cli.command import command
from lakeplan.cli.console import say
from lakeplan.cli.formats import RICH, Document, RenderContext
from lakeplan.cli.git import tree_prefix
from lakeplan.cli.outputs import Outputs
from lakeplan.errors import ConfigError, ExitCode
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.tree.yaml import TreeError


@command(common="no_color quiet log_level")
def validate(
    *, tree: options.TreeDir = Path(), outputs: Annotated[Outputs, options.documents("problems")], quiet: bool
) -> None:
    """Check the tree and report every problem with file, line and column. Does not contact a server.

    \b
    Examples:
      lakeplan validate -C trees/prod
      lakeplan validate --format github
      lakeplan validate --format junit --out validate.xml
    """
    context = RenderContext(tree=partial(tree_prefix, tree))
    try:
        loaded = load_tree(tree, os.environ)
    except ConfigError as error:
        texts = replace(outputs, all=tuple(o for o in outputs.all if o.format != RICH))
        texts.emit(_problems_document(error), _nothing, context)
        if len(texts.all) == len(outputs.all) and not quiet:
            raise typer.Exit(ExitCode.ERROR) from None
        raise
    outputs.emit(summary_document(loaded), _render, replace(context, files=loaded.files))


def summary_document(tree: Tree) -> dict[str, Any]:
    """What a valid tree holds: counts, and an empty list of problems."""
    return {
        "valid": True,
        "files": len(tree.files),
        "servers": len(tree.servers),
        "profiles": len(tree.profiles),
        "repositories": sum(1 for e in tree.entries if not e.is_glob),
        "globs": sum(1 for e in tree.entries if e.is_glob),
        "problems": [],
    }


def _problems_document(error: ConfigError) -> dict[str, Any]:
    items = error.items if isinstance(error, TreeError) else ()
    return {"valid": False, "message": str(error), "problems": [item.to_json() for item in items]}


def _render(summary: Document, console: Console) -> None:
    def count(key: str, one: str, many: str) -> str:
        return f"{summary[key]} {one if summary[key] == 1 else many}"

    say(
        console,
        f"The tree is valid: {count('repositories', 'repository', 'repositories')} by name and "
        f"{count('globs', 'glob', 'globs')} on {count('servers', 'server', 'servers')}, "
        f"in {count('files', 'file', 'files')}.",
    )


def _nothing(problems: Document, console: Console) -> None:
    """The rich form of problems is the error itself."""
