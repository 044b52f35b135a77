"""``lakeplan plan``: what would change, and what that does."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

from lakeplan.api import objects_path
from lakeplan.cli import options
from lakeplan.cli.base import Base, PlanChecks, read_base
from lakeplan.cli.console import print_error, redacted_message, stderr
from lakeplan.cli.git import head_of
from lakeplan.cli.namespaces import CacheOptions, LazySimulator, inventory_for
from lakeplan.cli.options import command, option
from lakeplan.cli.outputs import Outputs
from lakeplan.cli.process import now_utc
from lakeplan.cli.wiring import SelectionOptions, Session, SessionOptions
from lakeplan.errors import ExitCode, UsageError
from lakeplan.output.occasions import plan_refused
from lakeplan.output.plan import render_plan
from lakeplan.plan.planning import PlanOptions, Ports, SimulateMode, make_plan
from lakeplan.review.gates import GateOverrides
from lakeplan.state.store import known_repositories
from lakeplan.values.local import write_file
from lakeplan.values.plan import Plan
from lakeplan.values.plan_document import dump_objects

RunChecks = Annotated[bool, option("Run the tree's checks. With --base or at a terminal, checks always run.")]


@command()
def plan(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    outputs: Annotated[Outputs, options.documents("plan")],
    as_of: options.AsOf = None,
    simulate: Annotated[str, option("Repositories to simulate: changed, all or none.", "WHICH")] = "changed",
    no_simulate: Annotated[bool, option("Same as --simulate none.")] = False,
    backlog: Annotated[
        bool, option("Also report data that has already expired under the stored rules.")
    ] = False,
    read_only: options.ReadOnly = False,
    detailed_exitcode: Annotated[bool, option("Exit with code 2 if changes are pending.")] = False,
    allowed: options.AllowedInPreview,
    base: Annotated[
        str | None,
        option(
            "Compare the tree with its version at this git commit. For each safety setting, the"
            " stricter of the two values applies. The plan begins with a list of the settings that the"
            " change weakens.",
            "REF",
        ),
    ] = None,
    new_tree: Annotated[
        bool,
        option(
            "With --base: compare with the default settings, because the change adds the tree and the base"
            " commit has none."
        ),
    ] = False,
    what_if: Annotated[
        list[str] | None,
        option(
            "Plan as if every selected repository had this setting in the tree. The plan cannot be"
            " applied. Repeatable.",
            "PATH=VALUE",
            names=("--set",),
        ),
    ] = None,
    run_checks: RunChecks = False,
    opening: SessionOptions,
    runners: options.RunnerOptions,
    cache: CacheOptions,
    quiet: bool,
) -> int:
    """Show which rules would change and which data would be deleted. Changes no rules or data.

    \b
    Examples:
      lakeplan plan
      lakeplan plan --target 'team-a-*' --detailed-exitcode
      lakeplan plan --format json --out plan.json
      lakeplan plan --base 'HEAD^1' --format markdown --out comment.md
      lakeplan plan --set gc.default_retention_days=14
      lakeplan plan --set 'gc.branches[main].retention_days=60' --target analytics
    """
    if what_if and base is not None:
        raise UsageError("--set and --base cannot be combined", hint="Make the change in the tree first.")
    session = opening.session(tree, as_of=as_of, runners=runners, cache=cache, what_if=what_if or ())
    if new_tree and base is None:
        raise UsageError("--new-tree requires --base", hint="Add --base REF.")
    compared = None if base is None else read_base(tree, base, is_new=new_tree)
    made = plan_against(
        compared,
        session,
        PlanOptions(
            as_of=session.as_of,
            selection=selection,
            simulate="none"
            if no_simulate
            else options.one_of("--simulate", simulate, get_args(SimulateMode)),
            read_only=read_only,
            backlog=backlog,
            allowed=allowed,
            tree_commit=head_of(tree),
            known=known_repositories(session.state()),
            now=now_utc(),
        ),
    )
    made = replace(made, what_if=tuple(what_if) if what_if else None)
    overrides = GateOverrides(allowed, session.tree.overrides, session.as_of.date())
    made = PlanChecks(session.tree, overrides, compared, forced=run_checks).added_to(made)
    show_plan(made, outputs, tree=tree)
    if quiet and all(output.path is not None for output in outputs.all):
        _print_refusal(made)
    if made.refused and not what_if:
        known = compared.tree if compared is not None else None
        _, document = outputs.shown_plan(made)

        def owner_of(repository: str) -> str:
            return (known.owner_of(repository) if known else "") or session.tree.owner_of(repository)

        session.notify(plan_refused(document, owner_of), known.notify if known else None)
    return exit_code_of(made, detailed=detailed_exitcode)


def plan_against(base: Base | None, session: Session, options: PlanOptions) -> Plan:
    """The plan of the session's tree. With a base, the plan also has every weakened setting and is judged by
    the stricter settings."""
    simulator = session.simulator
    if isinstance(simulator, LazySimulator):
        simulator = replace(simulator, inventories=partial(inventory_for, session))
    ports = Ports(session.reader, simulator, session.progress, session.branch_ports(), session.pins())
    if base is None:
        return make_plan(session.tree, options, ports)
    held = base.hold(session.tree)
    return base.finish(make_plan(held, options, ports), session.tree, held)


def show_plan(plan: Plan, outputs: Outputs, *, to_stderr: bool = False, tree: Path = Path()) -> None:
    """Writes every output of a plan. With ``to_stderr``, standard output is left to another document."""
    plan, document = outputs.shown_plan(plan)
    if to_stderr:
        render_plan(document, stderr(no_color=outputs.no_color))
        return
    objects = dump_objects(plan)
    for output in outputs.all:
        if output.format == "json" and output.path is not None and objects:
            write_file(objects_path(output.path), objects)
    outputs.write_plan(plan, document, partial(render_plan, document), tree=tree)


def print_failures(plan: Plan) -> None:
    """Repositories that could not be planned, on standard error."""
    for repository in plan.failed:
        assert repository.failure is not None
        message = redacted_message(repository.failure.message)
        print_error(message, where=repository.key, hint=repository.failure.hint)


def _print_refusal(plan: Plan) -> None:
    """Prints in one line why a quiet plan failed, because its report was not printed."""
    print_failures(plan)
    if plan.refused:
        gates = dict.fromkeys(f"{gate.gate} ({gate.scope})" for gate in plan.refused)
        print_error(
            f"refused by {', '.join(gates)}",
            hint="Run without -q, or show the plan file with `lakeplan show`. To override a gate, list it"
            " under overrides in the tree.",
        )


def exit_code_of(plan: Plan, *, detailed: bool, refused: bool | None = None) -> ExitCode:
    """The worst result: no repository could be planned, some could not, a gate refused, changes are pending.
    ``refused`` None: any gate counts, even one that stops only ``branches run``."""
    if plan.failed:
        return ExitCode.ERROR if len(plan.failed) == len(plan.repositories) else ExitCode.PARTLY_DONE
    if bool(plan.refused) if refused is None else refused:
        return ExitCode.REFUSED
    return ExitCode.CHANGES_PENDING if detailed and plan.writes else ExitCode.OK
