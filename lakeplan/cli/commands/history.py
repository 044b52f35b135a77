"""``lakeplan history``, and the rollback of a tree."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from typer.core import TyperGroup

from lakeplan.cli import click, options
from lakeplan.cli.commands.plan import exit_code_of, plan_against, show_plan
from lakeplan.cli.console import say, stderr
from lakeplan.cli.formats import RenderContext
from lakeplan.cli.git import head_of
from lakeplan.cli.namespaces import CacheOptions
from lakeplan.cli.options import CommandGroup, argument, command, option
from lakeplan.cli.outputs import Outputs
from lakeplan.cli.process import now_utc, parse_time
from lakeplan.cli.wiring import Opening, SessionOptions
from lakeplan.errors import ExitCode
from lakeplan.output.operations import render_history, render_run
from lakeplan.plan.planning import PlanOptions
from lakeplan.plan.tree_edits import TreeEdit, checked, disagreements, edits_needed, replaced_steps
from lakeplan.review import history as records
from lakeplan.review.selection import Selection
from lakeplan.state.store import known_repositories
from lakeplan.values.units import parse_duration

RunArgument = Annotated[
    str, argument("Run id, a unique prefix of a run id, or `last`.", "RUN", show_default=False)
]


class ListsByDefault(TyperGroup):
    """``lakeplan history`` alone is ``lakeplan history list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@command("List runs, newest first.", without="redact_paths no_progress quiet")
def list_(
    *,
    tree: options.TreeDir = Path(),
    repository: Annotated[
        str | None, option("Only runs that changed this repository: name or server/name.", "REPO")
    ] = None,
    since: Annotated[
        str | None,
        option(
            "Only runs that began at or after this time, or within this period (for example, 30d).",
            "TIME",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None, option(f"Only runs of this kind: {', '.join(records.KINDS)}. Repeatable.", "KIND")
    ] = None,
    limit: Annotated[int | None, option("Maximum number of runs to list.", "N", min=1)] = None,
    outputs: Annotated[Outputs, options.documents("history")],
) -> int:
    """List the runs recorded in the state, newest first.

    \b
    Examples:
      lakeplan history
      lakeplan history list --repository analytics --limit 5 --format json
      lakeplan history --since 90d --kind sweep --format csv --out sweeps.csv
    """
    kinds = frozenset(options.one_of("--kind", name, records.KINDS) for name in kind or ())
    session = Opening().session(tree)
    wanted = records.RunFilter(repository, None if since is None else _since(since), kinds)
    runs = records.list_runs(session.state(), wanted, limit=limit)
    document = records.history_document(runs.runs, runs.damaged)
    context = RenderContext.of(session.tree)
    code = ExitCode.PARTLY_DONE if runs.damaged else ExitCode.OK
    return outputs.emit(document, render_history, context, code=code, sort_keys=True)


def _since(text: str) -> datetime:
    """Parse a time, or an age such as ``30d``, which is counted back from now. Raises UsageError."""
    try:
        return now_utc() - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        return parse_time(text)


@command("Show one run.", without="redact_paths no_progress quiet")
def show(
    *,
    run: RunArgument,
    tree: options.TreeDir = Path(),
    outputs: Annotated[Outputs, options.documents("history")],
) -> None:
    """Show one run: who ran it, from which tree and plan, and every value it replaced.

    \b
    Examples:
      lakeplan history show last
      lakeplan history show 20260331T1200 --format json
    """
    session = Opening().session(tree)
    document = records.history_document([records.find_run(session.state(), run)])
    context = RenderContext.of(session.tree)
    outputs.emit(document, render_run, context, sort_keys=True)


@command("Create a plan that restores the rules from before a run.", without="redact_paths")
def rollback(
    *,
    run: RunArgument,
    tree: options.TreeDir = Path(),
    target: options.Targets = None,
    server: options.Server = None,
    edit_tree: Annotated[
        bool, option("Edit the checked-out tree so that it contains the old rules.")
    ] = False,
    no_simulate: Annotated[bool, option("Do not read objects. The impact is then unknown.")] = False,
    allowed: options.AllowedInPreview,
    redact_paths: options.RedactPaths = False,  # outputs read it; here it only appears in the help
    outputs: Annotated[Outputs, options.documents("plan")],
    opening: SessionOptions,
    runners: options.RunnerOptions,
    cache: CacheOptions,
    quiet: bool,
) -> int:
    """Create a plan that restores the rules from before a run. Servers are not changed.

    `lakeplan apply` computes the plan again from the tree, so the tree must contain the old rules too. If it
    does not, lakeplan prints the required edits, creates no plan, and exits with code 5. With --edit-tree,
    lakeplan makes these edits in the checked-out tree, and checks that they change only these rules. Have the
    edits and the plan reviewed, then apply the plan.

    \b
    Examples:
      lakeplan history rollback last
      lakeplan history rollback 20260331T1200 --edit-tree --out plan.json
      lakeplan apply plan.json
    """
    session = opening.session(tree, runners=runners, cache=cache)
    state = session.state()
    record = records.with_retried(state, records.find_change(state, run))
    wanted = replaced_steps(record, Selection(tuple(target or ()), server=server))
    differing = disagreements(session.tree, wanted, session.reader)
    if differing and not edit_tree:
        raise edits_needed(
            differing,
            f"the tree does not contain the rules from before run {record.run_id}, so an apply would"
            " not restore them",
            "Edit the tree by hand or rerun with --edit-tree, then commit it with the plan.",
        )
    edit = TreeEdit(tree)
    if differing:
        session = replace(session, tree=edit.make(session.tree, wanted, session.reader))
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
    edit.keep()
    show_plan(made, outputs, tree=tree)
    if edit.files and not quiet:
        say(
            stderr(no_color=outputs.no_color),
            f"Edited these files. Have them reviewed, and commit them with the plan: {', '.join(edit.files)}",
        )
    return exit_code_of(made, detailed=False)


history = CommandGroup(
    {"list": list_, "show": show, "rollback": rollback},
    help="List past runs, show one, or plan a rollback. Without a subcommand, list runs.",
    cls=ListsByDefault,
)
