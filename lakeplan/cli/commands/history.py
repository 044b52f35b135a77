"""``lakeplan history``: who applied what and when, and plans that take it back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import click
import typer
from typer.core import TyperGroup

from lakeplan.adapters.git import head_of
from lakeplan.app.history import find_change, find_run, history_document, list_runs
from lakeplan.app.history_rollback import checked, disagreements, restorations
from lakeplan.app.plan import PlanOptions, Selection
from lakeplan.app.state import known_repositories
from lakeplan.cli import caches, options
from lakeplan.cli.commands.plan import Allow, exit_code_of, plan_against, show_plan
from lakeplan.cli.console import configure_logging, say, stderr
from lakeplan.cli.formats import PLAN_FORMATS
from lakeplan.cli.gates import check_gate_names
from lakeplan.cli.outputs import OPENMETRICS, emit, pair_outputs
from lakeplan.cli.rollback import TreeEdit, needs_edits
from lakeplan.cli.wiring import Session
from lakeplan.errors import ExitCode, LakeplanError
from lakeplan.render.history import render_history, render_run
from lakeplan.render.json import json_text
from lakeplan.render.metrics import history_metrics

FORMATS = ("rich", "json", OPENMETRICS)

RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run id, what only it begins with, or last.", show_default=False),
]

LIST_HELP = """Every run that the state recorded, newest first.

\b
Examples:
  lakeplan history
  lakeplan history list --repository analytics --limit 5 --format json
"""
SHOW_HELP = """One run: who, from which tree and plan, and every value it replaced.

\b
Examples:
  lakeplan history show last
  lakeplan history show 20260331T1200 --format json
"""
ROLLBACK_HELP = """Make a plan that restores the rules from before a run. Never writes to a server.

An apply plans again from the tree, so the tree has to ask for the old rules too. When it does not, the edits
are printed and no plan is made (exit 5); --edit-tree makes them in the checked-out tree, and checks that
nothing else changed. Review edits and plan as any other change, then apply the plan.

\b
Examples:
  lakeplan history rollback last
  lakeplan history rollback 20260331T1200 --edit-tree --out plan.json
  lakeplan apply plan.json
"""


class ListsByDefault(TyperGroup):
    """``lakeplan history`` alone is ``lakeplan history list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=ListsByDefault, help="Who applied what and when; plans that take it back. Alone, it lists."
    )
    group.command("list", help=LIST_HELP, short_help="Every run, newest first.")(list_)
    group.command("show", help=SHOW_HELP, short_help="One run in full.")(show)
    group.command("rollback", help=ROLLBACK_HELP, short_help="A plan that restores what a run replaced.")(
        rollback
    )
    app.add_typer(group, name="history")


def list_(
    tree: options.TreeDir = Path(),
    repository: Annotated[
        str | None,
        typer.Option("--repository", help="Only runs that touched it: name or server/name.", metavar="REPO"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="At most this many runs.", min=1, metavar="N")
    ] = None,
    format: Annotated[options.Formats, options.formats(FORMATS)] = None,
    out: options.Outs = None,
    no_color: options.NoColor = False,
    log_level: options.LogLevel = "warning",
) -> int:
    configure_logging(log_level)
    outputs = pair_outputs(format, out, FORMATS)
    session = Session.open(tree, progress=False)
    found = list_runs(session.state(), repository=repository, limit=limit)
    document = history_document(found.runs, found.damaged)
    emit(
        outputs,
        {
            "json": lambda: json_text(document),
            OPENMETRICS: lambda: history_metrics(document, session.tree.owner_of),
        },
        lambda console: render_history(document, console),
        no_color=no_color,
    )
    return ExitCode.PARTLY_DONE if found.damaged else ExitCode.OK


def show(
    run: RunArgument,
    tree: options.TreeDir = Path(),
    format: Annotated[options.Formats, options.formats(FORMATS)] = None,
    out: options.Outs = None,
    no_color: options.NoColor = False,
    log_level: options.LogLevel = "warning",
) -> None:
    configure_logging(log_level)
    outputs = pair_outputs(format, out, FORMATS)
    session = Session.open(tree, progress=False)
    document = history_document([find_run(session.state(), run)])
    emit(
        outputs,
        {
            "json": lambda: json_text(document),
            OPENMETRICS: lambda: history_metrics(document, session.tree.owner_of),
        },
        lambda console: render_run(document, console),
        no_color=no_color,
    )


def rollback(
    run: RunArgument,
    tree: options.TreeDir = Path(),
    target: options.Targets = None,
    server: options.Server = None,
    edit_tree: Annotated[
        bool, typer.Option("--edit-tree", help="Edit the checked-out tree so that it asks for the old rules.")
    ] = False,
    no_simulate: Annotated[
        bool, typer.Option("--no-simulate", help="Do not read objects; their number is then unknown.")
    ] = False,
    allow: Allow = None,
    redact_paths: options.RedactPaths = False,
    format: Annotated[options.Formats, options.formats(PLAN_FORMATS)] = None,
    out: options.Outs = None,
    lakectl_config: options.LakectlConfig = None,
    runner: options.Runner = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    spark_home: options.SparkHome = None,
    cache: caches.Where = None,
    cache_size: caches.Size = caches.DEFAULT_SIZE,
    no_color: options.NoColor = False,
    no_progress: options.NoProgress = False,
    log_level: options.LogLevel = "warning",
    quiet: options.Quiet = False,
) -> int:
    configure_logging(log_level)
    outputs = pair_outputs(format, out, PLAN_FORMATS, quiet=quiet)
    allowed = check_gate_names(allow)
    session = Session.open(
        tree,
        lakectl_config=lakectl_config,
        runners=options.runners(runner, master, spark_conf, spark_home),
        cache=caches.cache_choice(cache, cache_size),
        progress=not (no_progress or quiet),
    )
    state = session.state()
    record = find_change(state, run)
    wanted = restorations(record, Selection(tuple(target or ()), server=server))
    if not wanted:
        raise LakeplanError(
            "the run replaced no rules that could be restored",
            where=record.run_id,
            hint=f"lakeplan history show {record.run_id} says what it did",
        )
    found = disagreements(session.tree, wanted, session.reader)
    if found and not edit_tree:
        raise needs_edits(found, record.run_id)
    edit = TreeEdit(tree)
    if found:
        session = replace(session, tree=edit.make(session.tree, wanted, session.reader))
    try:
        made = plan_against(
            None,
            session,
            PlanOptions(
                as_of=session.as_of,
                selection=Selection(tuple(r.repository for r in wanted)),
                simulate="none" if no_simulate else "changed",
                allowed=allowed,
                tree_commit=head_of(tree),
                known=known_repositories(state),
            ),
        )
        made = checked(made, wanted, record.run_id)
    except BaseException:
        edit.restore()
        raise
    show_plan(made, outputs, no_color=no_color, tree=tree, redact=redact_paths)
    if edit.files and not quiet:
        say(
            stderr(no_color=no_color),
            f"Edited in the tree, to be reviewed and committed with the plan: {', '.join(edit.files)}",
        )
    return exit_code_of(made, detailed=False)
