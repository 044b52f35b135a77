"""``lakeplan plan``: what would change, and what that does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakeplan.app.plan import PlanOptions, Ports, Selection, SimulateMode, make_plan
from lakeplan.app.state import known_repositories
from lakeplan.cli import options
from lakeplan.cli.console import configure_logging, stderr
from lakeplan.cli.gates import check_gate_names
from lakeplan.cli.outputs import Output, emit, pair_outputs
from lakeplan.cli.who import tree_commit
from lakeplan.cli.wiring import Session
from lakeplan.errors import ExitCode, UsageError
from lakeplan.model.plan import Plan
from lakeplan.model.plan_document import dump_plan, to_document
from lakeplan.render.plan import render_plan

FORMATS = ("rich", "json")
Simulate = Annotated[
    str, typer.Option("--simulate", help="changed (the default), all or none.", metavar="WHICH")
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", help="Open this gate for the plan; recorded in it. Repeatable.", metavar="GATE"),
]


def register(app: typer.Typer) -> None:
    @app.command("plan", help="Show what would change in the rules, and what that does.")
    def plan(
        tree: options.TreeDir = Path(),
        target: options.Targets = None,
        owner: options.Owner = None,
        server: options.Server = None,
        format: options.Formats = None,
        out: options.Outs = None,
        as_of: options.AsOf = None,
        simulate: Simulate = "changed",
        no_simulate: Annotated[bool, typer.Option("--no-simulate", help="Same as --simulate none.")] = False,
        backlog: Annotated[
            bool, typer.Option("--backlog", help="Also read what the stored rules already let go.")
        ] = False,
        read_only: Annotated[
            bool,
            typer.Option("--read-only", help="Only GET requests: no refs dump, no dangling commits."),
        ] = False,
        detailed_exitcode: Annotated[
            bool, typer.Option("--detailed-exitcode", help="Exit 2 when changes are pending.")
        ] = False,
        allow: Allow = None,
        lakectl_config: options.LakectlConfig = None,
        master: options.Master = None,
        spark_conf: options.SparkConf = None,
        no_color: options.NoColor = False,
        no_progress: options.NoProgress = False,
        log_level: options.LogLevel = "warning",
        quiet: options.Quiet = False,
    ) -> int:
        configure_logging(log_level)
        outputs = pair_outputs(format, out, FORMATS, quiet=quiet)
        session = Session.open(
            tree,
            as_of=as_of,
            lakectl_config=lakectl_config,
            master=master,
            spark_conf=spark_conf,
            progress=not (no_progress or quiet),
        )
        made = make_plan(
            session.tree,
            PlanOptions(
                as_of=session.as_of,
                selection=Selection(tuple(target or ()), owner, server),
                simulate=_mode(simulate, no_simulate=no_simulate),
                read_only=read_only,
                backlog=backlog,
                allowed=check_gate_names(allow),
                tree_commit=tree_commit(tree),
                known=known_repositories(session.state()),
            ),
            Ports(session.reader, session.simulator, session.progress),
        )
        show_plan(made, outputs, no_color=no_color)
        return exit_code_of(made, detailed=detailed_exitcode)


def show_plan(plan: Plan, outputs: tuple[Output, ...], *, no_color: bool, to_stderr: bool = False) -> None:
    """Every output of a plan. ``to_stderr`` leaves standard output to another document."""
    document = to_document(plan)
    if to_stderr:
        render_plan(document, stderr(no_color=no_color))
        return
    emit(
        outputs,
        {"json": lambda: dump_plan(plan)},
        lambda console: render_plan(document, console),
        no_color=no_color,
    )


def exit_code_of(plan: Plan, *, detailed: bool) -> ExitCode:
    """The worst result: nothing could be planned, some could not, a gate refused, changes pending."""
    if plan.failed:
        return ExitCode.ERROR if len(plan.failed) == len(plan.repositories) else ExitCode.PARTLY_DONE
    if plan.refused:
        return ExitCode.REFUSED
    return ExitCode.CHANGES_PENDING if detailed and plan.writes else ExitCode.OK


def _mode(simulate: str, *, no_simulate: bool) -> SimulateMode:
    if no_simulate:
        return "none"
    match simulate:
        case "changed" | "all" | "none":
            return simulate
        case _:
            raise UsageError(f"unknown --simulate {simulate!r}", hint="one of changed, all, none")
