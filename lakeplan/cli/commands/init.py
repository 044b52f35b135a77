"""``lakeplan init``: a tree to begin with, and the workflows that plan and apply it."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from lakeplan.adapters.git import prefix_of
from lakeplan.cli import options
from lakeplan.cli.commands.import_ import Endpoints, endpoints_of, of_options, write_files
from lakeplan.cli.console import configure_logging, say, stdout
from lakeplan.cli.scaffold import Ci, existing, scaffold
from lakeplan.config.files import ROOT_FILE
from lakeplan.config.tree import load_tree
from lakeplan.errors import LakeplanError, UsageError

IGNORE = ".gitignore"

HELP = """Write a tree to begin with: settings with their defaults, an example entry, and workflows.

People who have rules on a server begin with lakeplan import instead. No server is asked, and no file that is
there is changed.

\b
Examples:
  lakeplan init --endpoint prod=https://lakefs.example.com
  lakeplan init -C retention --ci github --state s3://ops/lakeplan
"""


def register(app: typer.Typer) -> None:
    @app.command("init", help=HELP, short_help="Write a tree to begin with, and its workflows.")
    def init(
        tree: options.TreeDir = Path(),
        endpoint: Endpoints = None,
        ci: Annotated[
            str, typer.Option("--ci", help="Workflows to write: github, gitlab or none.", metavar="HOST")
        ] = "none",
        state: Annotated[
            str | None,
            typer.Option(
                "--state", help="Where the state lies: s3://…, https://…blob…, file://…", metavar="URL"
            ),
        ] = None,
        lakectl_config: options.LakectlConfig = None,
        no_color: options.NoColor = False,
        log_level: options.LogLevel = "warning",
        quiet: options.Quiet = False,
    ) -> None:
        configure_logging(log_level)
        host = _ci(ci)
        if host != "none" and prefix_of(tree):
            raise UsageError(
                f"workflows belong to the top of the git repository, and {tree} is not",
                hint="run it there, or use --ci none and copy what you need from examples/ci",
            )
        files = scaffold(endpoints_of(endpoint, lakectl_config), host, state)
        there = existing(tree, files)
        if IGNORE in there:
            del files[IGNORE]
            there.remove(IGNORE)
        if there:
            raise LakeplanError(
                f"there already: {', '.join(there)}",
                where=str(tree),
                hint="nothing was written; -C DIR names another folder",
            )
        with TemporaryDirectory(prefix="lakeplan-init-") as name:
            write_files(Path(name), {k: v for k, v in files.items() if not k.startswith(".")})
            with of_options():
                load_tree(Path(name), os.environ)
        write_files(tree, files)
        if not quiet:
            _report(tree, sorted(files), host, state, no_color=no_color)


def _ci(text: str) -> Ci:
    match text:
        case "github" | "gitlab" | "none":
            return text
        case _:
            raise UsageError(f"unknown --ci {text!r}", hint="one of github, gitlab, none")


def _report(tree: Path, files: list[str], ci: Ci, state: str | None, *, no_color: bool) -> None:
    console = stdout(no_color=no_color)

    def line(text: str) -> None:
        say(console, text)

    for name in files:
        line(f"wrote {tree / name}")
    if IGNORE not in files:
        line(f"{IGNORE} is there already: add .lakeplan/ and plan.json to it")
    if ci != "none" and state is None:
        line(
            f"a runner starts empty: name a state in {ROOT_FILE}, such as state: {{url: s3://bucket/lakeplan}}"
        )
    if ci != "none":
        line("the first lines of each workflow say which variables and secrets it needs")
    line(f"Next: the entry at the end of {ROOT_FILE} into repositories/, then lakeplan doctor, lakeplan plan")
