"""``lakeplan test``: what must survive in drawn histories, under the tree's own rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from lakeplan.cli import options
from lakeplan.cli.command import command
from lakeplan.cli.formats import RenderContext
from lakeplan.cli.options import argument
from lakeplan.cli.outputs import Outputs
from lakeplan.errors import ExitCode, UsageError
from lakeplan.explain.policy_test import run_tests
from lakeplan.output.show import render_tests
from lakeplan.tree.policy_tests import FOLDER, find_tests, read_tests
from lakeplan.tree.tree import load_tree


@command(without="redact_paths no_progress")
def test(
    *,
    files: Annotated[
        list[Path] | None, argument(f"Test files. Default: {FOLDER}/*.yaml in the tree.", "[FILE]...")
    ] = None,  # noqa: PT028 - a command, and no test
    tree: options.TreeDir = Path(),  # noqa: PT028
    outputs: Annotated[Outputs, options.documents("test")],
) -> int:
    """Run the tree's policy tests. A test draws a commit history and states what the rules must keep.

    Does not contact a server and does not need Spark. Exits with 1 when a test fails.

    \b
    Examples:
      lakeplan test
      lakeplan test tests/releases.yaml --format junit --out report.xml
    """
    loaded = load_tree(tree, os.environ)
    found = find_tests(tree, files or ())
    if not found:
        raise UsageError(
            f"the tree has no tests ({FOLDER}/*.yaml)",
            where=str(tree),
            hint="Name test files, or write one. `lakeplan schema policy-test` prints the format.",
        )
    document = run_tests(loaded, read_tests(found, tree))
    prefix = "" if tree == Path() or tree.is_absolute() else tree.as_posix()
    outputs.emit(document, render_tests, RenderContext(tree=lambda: prefix), sort_keys=True)
    return ExitCode.ERROR if document["failed"] else ExitCode.OK
