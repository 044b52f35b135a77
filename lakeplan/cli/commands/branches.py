"""``lakeplan branches plan|run|undo|exempt``: branch policies, where a server's engine is lakeplan."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated

from lakeplan.branches import documents
from lakeplan.branches.announce import ExemptOptions, exempt_branch
from lakeplan.branches.deleting import RunPorts, UndoOptions, undo_branches
from lakeplan.branches.documents import ReviewedPlan
from lakeplan.branches.plan import BranchesOptions, BranchesPorts, plan_branches
from lakeplan.branches.run import run_branches, serve
from lakeplan.cli import options
from lakeplan.cli.formats import RenderContext
from lakeplan.cli.namespaces import CacheOptions
from lakeplan.cli.options import CommandGroup, argument, command, option
from lakeplan.cli.outputs import Outputs, with_costs
from lakeplan.cli.process import check_lasting_state, now_utc, parse_time, stopping, this_run
from lakeplan.cli.wiring import Opening, SelectionOptions, Session, SessionOptions
from lakeplan.errors import FormatError, UsageError
from lakeplan.limits import PLAN_BYTES, TooLarge, parse_json
from lakeplan.output.branches import (
    render_branches_plan,
    render_branches_run,
    render_branches_undo,
    render_exemption,
)
from lakeplan.review.base import ReviewedTree
from lakeplan.review.selection import Selection, one_repository
from lakeplan.values.local import read_file, why_unreadable
from lakeplan.values.units import Cron, parse_cron, parse_date


@command("List every branch, and show whether it would be deleted.")
def plan(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    outputs: Annotated[Outputs, options.documents("branch-plan")],
    as_of: options.AsOf = None,
    no_simulate: Annotated[
        bool, option("Do not estimate how much data would expire if the branches were deleted.")
    ] = False,
    read_only: options.ReadOnly = False,
    detailed_exitcode: Annotated[bool, option("Exit with code 2 if branches would be deleted.")] = False,
    opening: SessionOptions,
    runners: options.RunnerOptions,
    cache: CacheOptions,
) -> int:
    """List every branch, and show whether a policy would delete it. Deletes nothing.

    This command is for servers with branch_lifecycle: {engine: lakeplan}. It takes the age of a branch from
    the records of `lakeplan branches run`.

    \b
    Examples:
      lakeplan branches plan
      lakeplan branches plan --target analytics --no-simulate
      lakeplan branches plan --format json --out branches.json
    """
    session = opening.session(tree, as_of=as_of, runners=runners, cache=cache)
    made = plan_branches(
        session.tree,
        BranchesOptions(
            now=now_utc(),
            as_of=session.as_of,
            selection=selection,
            simulate=not no_simulate,
            read_only=read_only,
        ),
        BranchesPorts(session.branch_readers, session.simulator, session.progress, session.state()),
    )
    return outputs.emit(
        with_costs(documents.plan_document(made), session.tree, "repositories"),
        render_branches_plan,
        RenderContext.of(session.tree),
        code=documents.plan_exit_code(made, detailed=detailed_exitcode),
    )


@command("Delete branches that have expired under their policies.")
def run(
    *,
    plan_file: Annotated[
        Path | None, argument("Reviewed branch plan. Only the branches it lists are deleted.", "[PLAN]")
    ] = None,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    outputs: Annotated[Outputs, options.documents("branch-run")],
    every: Annotated[
        str | None, option('Keep running on a cron schedule in UTC, for example "0 * * * *".', "CRON")
    ] = None,
    allowed: options.AllowedHere,
    opening: SessionOptions,
) -> int:
    """Delete branches that have expired under their policies, once or on a schedule (--every).

    lakeplan records the HEAD of each branch before it deletes the branch, so that `lakeplan branches undo`
    can restore it.

    \b
    Examples:
      lakeplan branches run
      lakeplan branches run branches.json
      lakeplan branches run --every "0 * * * *"
    """
    if every is not None and (plan_file is not None or allowed):
        raise UsageError(
            "--every cannot be combined with a plan file or --allow, because these apply to a single run"
            " only",
            hint="Run without --every, or without the plan file and --allow.",
        )
    cron = schedule(every) if every is not None else None
    reviewed = read_reviewed(plan_file) if plan_file is not None else None
    outputs.check_files()
    with stopping() as stop:
        runner = _Runner(tree, selection, allowed, outputs, opening, reviewed, stop.is_set)
        if cron is None:
            return runner.once()
        runner.open()  # a tree with problems is reported before the first wait
        serve(cron, runner.once, now_utc, stop.wait)
    return 0


@command("Restore deleted branches.")
def undo(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    run_id: Annotated[
        str | None, option("Id of the run to undo. Default: the newest run.", "RUN_ID", names=("--run",))
    ] = None,
    branch: Annotated[list[str] | None, option("Restore only this branch. Repeatable.", "NAME")] = None,
    outputs: Annotated[Outputs, options.documents("branch-undo")],
    opening: SessionOptions,
) -> int:
    """Restore deleted branches at their last HEAD.

    \b
    Examples:
      lakeplan branches undo
      lakeplan branches undo --branch feature-login
      lakeplan branches undo --run 20260331T120000.000000Z-1a2b3c4d
    """
    outputs.check_files()
    session = opening.session(tree)
    with stopping() as stop:
        done = undo_branches(
            session.tree,
            UndoOptions(selection, run_id, frozenset(branch or ())),
            _ports(session, stop.is_set),
            this_run(tree, session.tree),
        )
    document, code = documents.undo_document(done), documents.undo_exit_code(done)
    return outputs.emit(document, render_branches_undo, code=code)


@command("Exempt a branch from its policies until a date.")
def exempt(
    *,
    repository: Annotated[
        str,
        argument(
            "Repository: name or server/name.", "REPOSITORY", autocompletion=options.complete_repositories
        ),
    ],
    branch: Annotated[str, argument("Branch to keep.", "BRANCH")],
    tree: options.TreeDir = Path(),
    until: Annotated[
        str | None, option("Keep the branch through this day, or until this time (UTC).", "DATE")
    ] = None,
    reason: Annotated[str, option("Reason for the exemption, shown in every plan.", "TEXT")] = "",
    remove: Annotated[bool, option("End the exemption now.")] = False,
    outputs: Annotated[Outputs, options.documents("branch-exempt")],
    opening: SessionOptions,
) -> int:
    """Exempt a branch from its policies until a date, for example after a notice that the branch will be
    deleted.

    The exemption is recorded in the state. To keep a branch permanently, list it in the tree
    (branch_lifecycle.exempt).

    \b
    Examples:
      lakeplan branches exempt analytics feature-login --until 2027-06-30
      lakeplan branches exempt ml wip-7 --until 2027-06-30 --reason "late"
      lakeplan branches exempt analytics feature-login --remove
    """
    if (until is None) != remove or (remove and reason):
        raise UsageError(
            "exempt needs either --until or --remove, and --reason requires --until",
            hint="For example, run `lakeplan branches exempt analytics feature-login --until YYYY-MM-DD`.",
        )
    asked = ExemptOptions(branch, None if until is None else _end_of(until), reason)
    session = opening.session(tree)
    server, name = one_repository(session.tree, repository)
    check_engines(session, Selection(server=server))
    check_lasting_state(session.tree.state_url, os.environ)
    desired = session.tree.find(server, name)
    if desired is None:
        raise UsageError(
            f"the tree has no entry for {server}/{name}",
            hint="Check the name. lakeplan never deletes branches of repositories without an entry.",
        )
    done = exempt_branch(desired, asked, session.branch_readers(server), session.state(), this_run(tree))
    return outputs.emit(documents.exemption_document(done), render_exemption)


def _end_of(until: str) -> datetime:
    """The moment at which the period of ``--until`` has ended. Raises UsageError if that is in the past."""
    try:
        day = parse_date(until)
        end = datetime(day.year, day.month, day.day, tzinfo=timezone.utc) + timedelta(days=1)
    except ValueError:
        end = parse_time(until)
    except OverflowError:
        end = datetime.max.replace(tzinfo=timezone.utc)
    if end <= now_utc():
        raise UsageError(f"--until {until} is in the past", hint="Specify a date in the future.")
    return end


@dataclass(frozen=True)
class _Runner:
    """One run, or the runs of a service. Each run reads the tree again."""

    tree: Path
    selection: Selection
    allowed: frozenset[str]
    outputs: Outputs
    opening: Opening
    reviewed: ReviewedPlan | None
    stop: Callable[[], bool]

    def open(self) -> Session:
        session = self.opening.session(self.tree)
        check_engines(session, self.selection)
        check_lasting_state(session.tree.state_url, os.environ)
        return session

    def once(self) -> int:
        """Raises LakeplanError if no repository can be processed at all."""
        session = self.open()
        reviewed = self.reviewed
        done = run_branches(
            session.tree if reviewed is None else ReviewedTree(session.tree, reviewed.settings),
            BranchesOptions(
                now=session.as_of, as_of=session.as_of, selection=self.selection, allowed=self.allowed
            ),
            _ports(session, self.stop),
            this_run(self.tree, session.tree),
            reviewed=None if reviewed is None else reviewed.branches,
        )
        return self.outputs.emit(
            documents.run_document(done),
            render_branches_run,
            RenderContext.of(session.tree),
            code=documents.run_exit_code(done),
        )


def schedule(text: str) -> Cron:
    """Parse the schedule of ``--every``. Raises UsageError."""
    try:
        return parse_cron(text)
    except ValueError as error:
        raise UsageError(
            f"--every: {error}",
            hint='Specify the minute, hour, day of month, month and day of week, for example "0 * * * *".',
        ) from None


def _ports(session: Session, stop: Callable[[], bool]) -> RunPorts:
    return RunPorts(
        session.branch_readers,
        session.branch_writer,
        session.state(),
        session.progress,
        stop,
        session.publisher(session.tree.notify),
        session.rules_writer,
        session.connection,
    )


def check_engines(session: Session, selection: Selection) -> None:
    """Check that lakeplan deletes branches on a selected server. Raises UsageError if no server has the
    engine ``lakeplan``: a server that deletes branches itself must not have a second deleter."""
    servers = {
        name: config.branch_lifecycle_engine
        for name, config in session.tree.servers.items()
        if selection.server in (None, name)
    }
    if "lakeplan" in servers.values():
        return
    shown = ", ".join(f"{name}: {engine}" for name, engine in sorted(servers.items())) or "no server"
    raise UsageError(
        f"no selected server has branch_lifecycle.engine: lakeplan ({shown})",
        hint="Run `lakeplan apply` to write the policies to the server. With engine: server, it deletes"
        " branches itself.",
    )


def read_reviewed(path: Path) -> ReviewedPlan:
    """Read a reviewed branch plan. Raises FormatError and UsageError."""
    try:
        document = parse_json(read_file(path, PLAN_BYTES), limit=PLAN_BYTES)
    except (OSError, TooLarge) as error:
        raise UsageError(
            f"cannot read the plan: {why_unreadable(error)}",
            where=str(path),
            hint=documents.MAKE_A_PLAN,
        ) from None
    except ValueError:
        raise FormatError(
            "the branch plan is incomplete or not valid JSON", where=str(path), hint=documents.MAKE_A_PLAN
        ) from None
    return documents.reviewed_of(document, str(path))


branches = CommandGroup({"plan": plan, "run": run, "undo": undo, "exempt": exempt})
