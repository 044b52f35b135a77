"""``lakeplan test``: what must survive in drawn histories, under the tree's own rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from lakeplan.cli import options
from lakeplan.cli.console import configure_logging
from lakeplan.cli.outputs import emit, pair_outputs
from lakeplan.errors import ExitCode, UsageError
from lakeplan.explain.policy_test import run_tests
from lakeplan.output.show import render_tests, render_tests_junit
from lakeplan.output.text import json_text
from lakeplan.tree.policy_tests import FOLDER, find_tests, read_tests
from lakeplan.tree.tree import load_tree

FORMATS = ("rich", "json", "junit")
HELP = """Run the tree's policy tests: drawn histories, and what must survive under the tree's rules.

No server and no Spark. Exit code 1 when a test fails.

\b
Examples:
  lakeplan test
  lakeplan test tests/releases.yaml --format junit --out report.xml
"""
Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", help=f"Test files; every {FOLDER}/*.yaml of the tree by default."),
]


def register(app: typer.Typer) -> None:
    @app.command("test", help=HELP, short_help="Run the tree's policy tests.")
    def test(
        files: Files = None,
        tree: options.TreeDir = Path(),
        format: Annotated[options.Formats, options.formats(FORMATS)] = None,
        out: options.Outs = None,
        no_color: options.NoColor = False,
        log_level: options.LogLevel = "warning",
        quiet: options.Quiet = False,
    ) -> int:
        configure_logging(log_level)
        outputs = pair_outputs(format, out, FORMATS, quiet=quiet)
        loaded = load_tree(tree, os.environ)
        found = find_tests(tree, files or ())
        if not found:
            raise UsageError(
                f"there are no tests: no {FOLDER}/*.yaml in the tree",
                where=str(tree),
                hint="name files, or write one: lakeplan schema policy-test says how",
            )
        document = run_tests(loaded, read_tests(found, tree))
        prefix = "" if tree == Path() or tree.is_absolute() else tree.as_posix()
        emit(
            outputs,
            {
                "json": lambda: json_text(document),
                "junit": lambda: render_tests_junit(document, tree=prefix),
            },
            lambda console: render_tests(document, console),
            no_color=no_color,
        )
        return ExitCode.ERROR if document["failed"] else ExitCode.OK
