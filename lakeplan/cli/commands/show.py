"""``lakeplan show``: a stored plan, or with ``--resolved`` where every value of a repository comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lakeplan.api import read_plan
from lakeplan.cli import completing, options
from lakeplan.cli.commands.show_resolved import show_resolved
from lakeplan.cli.console import configure_logging
from lakeplan.cli.formats import PLAN_FORMATS, plan_texts
from lakeplan.cli.outputs import emit, pair_outputs
from lakeplan.cli.redaction import plan_shown
from lakeplan.core.globs import names_repository
from lakeplan.errors import UsageError
from lakeplan.model.plan_document import to_document
from lakeplan.render.plan import render_plan
from lakeplan.render.show import render_repository

HELP = """Show a plan file again, or with --resolved a repository's configuration. No server is asked.

With --resolved every value comes with the file and line that it is from.

\b
Examples:
  lakeplan show plan.json
  lakeplan show plan.json --target 'team-a-*'
  lakeplan show plan.json --format markdown --out comment.md
  lakeplan show --resolved analytics
"""


def register(app: typer.Typer) -> None:
    @app.command("show", help=HELP, short_help="Show a plan file, or a resolved configuration.")
    def show(
        plan_file: Annotated[Path | None, typer.Argument(metavar="[PLAN]", help="A plan file.")] = None,
        resolved: Annotated[
            str | None,
            typer.Option(
                "--resolved",
                metavar="REPO",
                help="Print every value with the file it came from.",
                autocompletion=completing.repositories,
            ),
        ] = None,
        tree: options.TreeDir = Path(),
        target: options.Targets = None,
        format: Annotated[options.Formats, options.formats(PLAN_FORMATS)] = None,
        out: options.Outs = None,
        redact_paths: options.RedactPaths = False,
        no_color: options.NoColor = False,
        log_level: options.LogLevel = "warning",
    ) -> None:
        configure_logging(log_level)
        if (plan_file is None) == (resolved is None):
            raise UsageError(
                "give a plan file or --resolved REPO: one of the two", hint="lakeplan show plan.json"
            )
        outputs = pair_outputs(format, out, ("rich", "json") if resolved is not None else PLAN_FORMATS)
        if resolved is not None:
            show_resolved(tree, resolved, outputs, no_color=no_color, redact=redact_paths)
            return
        assert plan_file is not None
        plan, outside = plan_shown(read_plan(plan_file), redact=redact_paths)
        document = outside(to_document(plan))
        targets = target or []
        wanted = [
            r
            for r in document["repositories"]
            if any(names_repository(t, r["server"], r["name"]) for t in targets)
        ]
        if targets and not wanted:
            raise UsageError(
                "no repository of the plan matches --target",
                where=str(plan_file),
                hint=f"lakeplan show {plan_file} names them; a glob such as 'team-*' is in quotes",
            )

        def rich_form(console: Console) -> None:
            if not targets:
                render_plan(document, console)
            for repository in wanted:
                render_repository(repository, console)

        emit(outputs, plan_texts(plan, tree, document), rich_form, no_color=no_color)
