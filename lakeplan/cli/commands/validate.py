"""``lakeplan validate``: every problem of a tree at once, with its position; no server is asked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lakeplan.cli import options
from lakeplan.cli.console import configure_logging, say
from lakeplan.cli.outputs import RICH, emit, pair_outputs
from lakeplan.cli.plan_texts import tree_prefix
from lakeplan.errors import ConfigError, ExitCode
from lakeplan.output.annotations import problem_annotations, render_github, render_junit_problems
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.tree.yaml import TreeError

HELP = """Check a tree: every problem at once, each with file, line and column. No server is asked.

\b
Examples:
  lakeplan validate -C trees/prod
  lakeplan validate --format github
  lakeplan validate --format junit --out validate.xml
"""

FORMATS = (RICH, "json", "github", "junit")


def register(app: typer.Typer) -> None:
    @app.command("validate", help=HELP, short_help="Check a tree, with file, line and column.")
    def validate(
        tree: options.TreeDir = Path(),
        format: Annotated[options.Formats, options.formats(FORMATS)] = None,
        out: options.Outs = None,
        no_color: options.NoColor = False,
        quiet: options.Quiet = False,
        log_level: options.LogLevel = "warning",
    ) -> None:
        configure_logging(log_level)
        outputs = pair_outputs(format, out, FORMATS, quiet=quiet)
        prefix = tree_prefix(tree)
        try:
            loaded = load_tree(tree, os.environ)
        except ConfigError as error:
            texts = [o for o in outputs if o.format != RICH]
            emit(texts, _texts(_problems_document(error), (), prefix), _nothing, no_color=no_color)
            if len(texts) == len(outputs) and not quiet:
                raise typer.Exit(ExitCode.ERROR) from None
            raise
        summary = summary_document(loaded)

        def rich_form(console: Console) -> None:
            say(console, _sentence(summary))

        emit(outputs, _texts(summary, loaded.files, prefix), rich_form, no_color=no_color)


def _texts(document: dict[str, Any], files: Sequence[str], prefix: str) -> Mapping[str, Callable[[], str]]:
    problems = document["problems"]
    return {
        "json": lambda: _as_json(document),
        "github": lambda: render_github(problem_annotations(problems), tree=prefix),
        "junit": lambda: render_junit_problems(files, problems, tree=prefix),
    }


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


def _sentence(summary: dict[str, Any]) -> str:
    def count(key: str, one: str, many: str) -> str:
        return f"{summary[key]} {one if summary[key] == 1 else many}"

    return (
        f"The tree is valid: {count('repositories', 'repository', 'repositories')} by name and "
        f"{count('globs', 'glob', 'globs')} on {count('servers', 'server', 'servers')}, "
        f"in {count('files', 'file', 'files')}."
    )


def _as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _nothing(_: Console) -> None:
    """The rich form of problems is the error itself."""
