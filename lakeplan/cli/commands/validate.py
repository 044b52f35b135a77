"""``lakeplan validate`` and ``lakeplan test``: check a tree without a server."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lakeplan.cli import options
from lakeplan.cli.console import say
from lakeplan.cli.formats import RICH, Document, RenderContext
from lakeplan.cli.git import tree_prefix
from lakeplan.cli.options import argument, command
from lakeplan.cli.outputs import Outputs
from lakeplan.errors import ConfigError, ExitCode, UsageError
from lakeplan.explain.policy_test import FOLDER, find_tests, read_tests, run_tests
from lakeplan.output.explain import render_tests
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.tree.yaml import TreeError
from lakeplan.values.units import count_of


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
        texts.emit(_problems_document(error), lambda *_: None, context)  # at a terminal, the error is shown
        if len(texts.all) == len(outputs.all) and not quiet:
            raise typer.Exit(ExitCode.ERROR) from None
        raise
    outputs.emit(summary_document(loaded), _render, replace(context, files=loaded.files))


def summary_document(tree: Tree) -> dict[str, Any]:
    """The document of a valid tree: counts, and an empty list of problems."""
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
    entries = (
        f"{count_of(summary['repositories'], 'repository')} by name and {count_of(summary['globs'], 'glob')}"
    )
    servers, files = count_of(summary["servers"], "server"), count_of(summary["files"], "file")
    say(console, f"The tree is valid: {entries} on {servers}, in {files}.")


@command(without="redact_paths no_progress")
def test(
    *,
    files: Annotated[
        list[Path] | None, argument(f"Test files. Default: {FOLDER}/*.yaml in the tree.", "[FILE]...")
    ] = None,  # noqa: PT028 - a command, and no test
    tree: options.TreeDir = Path(),  # noqa: PT028
    outputs: Annotated[Outputs, options.documents("test")],
) -> int:
    """Run the tree's policy tests. A test describes a commit history and states what the rules must keep.

    The command does not contact a server and does not need Spark. If a test fails, it exits with code 1.

    \b
    Examples:
      lakeplan test
      lakeplan test tests/releases.yaml --format junit --out report.xml
    """
    loaded = load_tree(tree, os.environ)
    paths = find_tests(tree, files or ())
    if not paths:
        raise UsageError(
            f"the tree has no tests ({FOLDER}/*.yaml)",
            where=str(tree),
            hint="Specify test files, or write one. `lakeplan schema policy-test` prints the format.",
        )
    document = run_tests(loaded, read_tests(paths, tree))
    prefix = "" if tree == Path() or tree.is_absolute() else tree.as_posix()
    code = ExitCode.ERROR if document["failed"] else ExitCode.OK
    context = RenderContext(tree=lambda: prefix)
    return outputs.emit(document, render_tests, context, code=code, sort_keys=True)
