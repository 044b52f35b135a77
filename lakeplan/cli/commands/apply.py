"""``lakeplan apply``, and what follows it with ``--sweep``."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timezone
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from lakeplan.api import read_plan
from lakeplan.cli import options
from lakeplan.cli.base import PlanChecks
from lakeplan.cli.commands.plan import exit_code_of as plan_exit_code
from lakeplan.cli.commands.plan import print_failures, show_plan
from lakeplan.cli.console import confirm, print_error, redacted_message, require_terminal, say, stderr, stdout
from lakeplan.cli.formats import JSON, MARKDOWN, RICH, RenderContext
from lakeplan.cli.git import tree_prefix
from lakeplan.cli.namespaces import CacheOptions
from lakeplan.cli.options import argument, command, option
from lakeplan.cli.outputs import Output, Outputs, with_costs
from lakeplan.cli.process import check_lasting_state, new_mark_id, new_run_id, now_utc, stopping, this_run
from lakeplan.cli.sweeping import sweep_ports
from lakeplan.cli.wiring import SelectionOptions, Session, SessionOptions
from lakeplan.errors import ExitCode, LakeplanError, StalePlan, UsageError
from lakeplan.formats.namespace import XidSource
from lakeplan.output.occasions import apply_failed, apply_stopped, marks_waiting, plan_refused, sweeps_ended
from lakeplan.output.plan import render_apply
from lakeplan.output.sweep import render_after_apply
from lakeplan.plan.apply import (
    ApplyOptions,
    apply_plan,
    end_of,
    exit_code_of,
    narrowed,
    refresh_plan,
    refusal_document,
    report_document,
    reviewed_repositories,
)
from lakeplan.plan.baselines import note_baselines, record_baselines
from lakeplan.plan.planning import PlanOptions, Ports, SimulateMode, make_plan
from lakeplan.review.base import GuardedTree
from lakeplan.review.claims import claim_all
from lakeplan.review.gates import GateOverrides
from lakeplan.review.history import RunFilter, check_newest, list_runs
from lakeplan.review.run import NOT_BEGUN, ApplyPorts, ApplyReport, Run, close_journal, open_journal
from lakeplan.review.selection import Selection
from lakeplan.state.store import RunJournal, known_repositories
from lakeplan.state.sweeps import read_sweeps
from lakeplan.sweep.documents import AfterApplyDocument
from lakeplan.sweep.ports import SweepPorts
from lakeplan.sweep.service import AutomaticEnd, MarkReport, mark_all, marks_document, shown_by, sweep_marks
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.documents import error_rows
from lakeplan.values.plan import GateResult, Plan
from lakeplan.values.plan_document import to_document

AFTER_FORMAT: Final = "lakeplan.apply-sweep/v1"


@dataclass(frozen=True)
class AfterApply:
    """Marks the repositories of the plan, and sweeps them if the tree allows it."""

    session: Session
    outputs: Outputs

    def mark_and_sweep(self, plan: Plan, selection: Selection, run: Run, *, applied: int) -> int:
        """The worst exit code of marks and sweeps. Nothing is marked after an apply that did not finish."""
        if applied:
            stderr(no_color=self.outputs.no_color).print(
                "Nothing was marked because the apply did not finish."
            )
            return 0
        tree = GuardedTree(self.session.tree, plan)
        keys = {r.key for r in plan.repositories if r.failure is None and selection.takes_key(r.key)}
        if not keys:
            return 0
        if any(d.sweep.automatic for s in tree.servers for d in tree.resolve(s, _names(keys, s))):
            check_lasting_state(self.session.tree.state_url, os.environ)
        chosen = replace(selection, targets=tuple(sorted(keys)))
        with stopping() as stop, sweep_ports(self.session, stop=stop.is_set) as ports:
            report, end = self._run(tree, plan, chosen, run, ports)
        self._show(report, end)
        return max(report.exit_code, end.exit_code)

    def _run(
        self, tree: DesiredTree, plan: Plan, chosen: Selection, run: Run, ports: SweepPorts
    ) -> tuple[MarkReport, AutomaticEnd]:
        today = now_utc().astimezone(timezone.utc).date()
        overrides = GateOverrides(frozenset(), tuple(tree.overrides), today)
        report = mark_all(
            tree,
            chosen,
            ports,
            run,
            settings=lambda settings: settings,
            overrides=overrides,
            new_mark_id=lambda: new_mark_id(now_utc()),
        )
        end = sweep_marks(
            report,
            tree,
            ports,
            shown=shown_by(plan),
            overrides=overrides,
            new_run=lambda: replace(run, run_id=new_run_id(now_utc())),
            new_official_id=XidSource(lambda: now_utc().timestamp(), os.urandom).descending,
        )
        return report, end

    def _show(self, report: MarkReport, end: AutomaticEnd) -> None:
        """Shows what was marked, in addition to the apply's own report: on standard error if a document goes
        to standard output."""
        stream = stderr if self.outputs.is_stdout_used else stdout
        after: AfterApplyDocument = {
            "format": AFTER_FORMAT,
            "marked": marks_document(report),
            "waiting": end.waiting,
            "swept": end.swept,
            "failed": error_rows(end.failed),
        }
        document = with_costs(after, self.session.tree, "swept")
        marked = with_costs(document["marked"], self.session.tree, "marks")
        document = {**document, "marked": marked}
        render_after_apply(self.outputs.shown(document), stream(no_color=self.outputs.no_color))
        owner_of = self.session.tree.owner_of
        self.session.notify(marks_waiting(document["marked"], owner_of, document["waiting"]))
        self.session.notify(sweeps_ended(document["swept"], owner_of))


def _names(keys: set[str], server: str) -> list[str]:
    return [name for of, _, name in (key.partition("/") for key in keys) if of == server]


@command()
def apply(
    *,
    plan_file: Annotated[
        Path | None,
        argument("Reviewed plan file. Default: create a new plan and ask for confirmation.", "[PLAN]"),
    ] = None,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    outputs: Annotated[Outputs, options.documents("apply")],
    force: Annotated[bool, option("Skip the ETag checks. Gates still apply.")] = False,
    auto_approve: Annotated[
        bool, option("Do not ask for confirmation. Required if there is neither a terminal nor a plan file.")
    ] = False,
    allowed: options.AllowedHere,
    refresh_patterns: Annotated[
        bool,
        option(
            "Also set the retention of branches that were created after the plan. Without a plan file, only"
            " lengthen the retention of branches to match their patterns. Retention is never shortened."
        ),
    ] = False,
    replan: Annotated[
        bool,
        option(
            "If the plan is stale only because the servers have changed, plan again. The new plan is"
            " applied only if all of its deletions were reviewed."
        ),
    ] = False,
    no_simulate: Annotated[
        bool,
        option(
            "Do not read objects. The unknown-impact gate then refuses the apply unless it is overridden."
        ),
    ] = False,
    sweep: Annotated[
        bool,
        option(
            "After the apply, mark expired objects. If sweep.automatic is set and the reviewed plan"
            " listed every object in the mark, also delete the objects."
        ),
    ] = False,
    run_checks: Annotated[bool, option("Run the tree's checks. At a terminal, checks always run.")] = False,
    opening: SessionOptions,
    runners: options.RunnerOptions,
    cache: CacheOptions,
) -> int:
    """Apply a reviewed plan to the servers.

    lakeplan plans again and compares the new plan with the reviewed one. If the tree or the stored rules have
    changed since the review, the command exits with code 5. If more data would be deleted than was reviewed,
    it exits with code 4. In both cases, nothing is written. Without a plan file, lakeplan creates a new plan,
    shows it and asks for confirmation.

    \b
    Examples:
      lakeplan apply plan.json
      lakeplan apply
      lakeplan apply --target 'team-a-*' --auto-approve
      lakeplan apply plan.json --sweep
    """
    only_refresh = refresh_patterns and plan_file is None
    if only_refresh and sweep:
        raise UsageError(
            "without a plan file, --sweep cannot be combined with --refresh-patterns",
            hint="Remove --sweep, or apply a plan file.",
        )
    if plan_file is None and not (auto_approve or only_refresh):
        hint = "Apply a reviewed plan file, or add --auto-approve."
        require_terminal("apply without a plan file", hint=hint)
    outputs.check_files()
    session = opening.session(tree, runners=runners, cache=cache)
    flow = ApplyFlow(
        session,
        tree,
        this_run(tree, session.tree),
        ApplyOptions(
            force,
            allowed,
            refresh_patterns and not only_refresh,
            only_refresh,
            simulate=not no_simulate,
            selection=selection,
            replan=replan,
            sweep=sweep,
        ),
        outputs,
        sweep=AfterApply(session, outputs) if sweep else None,
        run_checks=run_checks,
    )
    if plan_file is not None:
        return flow.apply(read_plan(plan_file))
    if only_refresh:
        return flow.refresh()
    return flow.plan_and_apply(auto_approve=auto_approve)


@dataclass(frozen=True)
class ApplyFlow:
    """One apply at the terminal or in a pipeline."""

    session: Session
    tree: Path
    run: Run
    options: ApplyOptions
    outputs: Outputs
    sweep: AfterApply | None = None
    run_checks: bool = False

    def plan_and_apply(self, *, auto_approve: bool) -> int:
        """Plans, shows, asks for the word ``yes``, applies."""
        simulated: SimulateMode = "changed" if self.sweep is None else "all"
        plan = make_plan(
            self.session.tree,
            PlanOptions(
                as_of=self.session.as_of,
                selection=self.options.selection,
                allowed=self.options.allowed,
                tree_commit=self.run.tree_commit,
                known=known_repositories(self.session.state()),
                # An automatic sweep deletes only what the plan showed: with --sweep it shows everything.
                backlog=self.sweep is not None,
                simulate=simulated if self.options.simulate else "none",
            ),
            replace(self._plan_ports(), branches=self.session.branch_ports()),
        )
        checks = self._checks()
        if checks.may_run:
            plan = checks.added_to(plan)
        rich = replace(self.outputs, all=(Output(RICH, None),))
        show_plan(plan, rich, to_stderr=self.outputs.is_stdout_used)
        planned = plan_exit_code(plan, detailed=False, refused=bool(plan.blocked))
        if plan.blocked:
            _, document = self.outputs.shown_plan(plan)
            self.session.notify(plan_refused(document, self.session.tree.owner_of))
            return planned
        if not plan.writes and self.sweep is None:
            self._record_baselines(plan)
            return planned
        question, no_color = "Apply this plan? Only 'yes' is accepted", self.outputs.no_color
        if not auto_approve and not confirm(question, otherwise="Nothing was written.", no_color=no_color):
            return ExitCode.ERROR
        approver = {} if auto_approve else {"by": str(self.run.holder["user"])}
        flow = replace(self, run=replace(self.run, approver=approver or self.run.approver))
        return flow.apply(plan) or planned

    def refresh(self) -> int:
        """Lengthens the retention of branches to that of their patterns, which needs no review."""
        state = self.session.state()
        options = PlanOptions(
            as_of=self.session.as_of,
            selection=self.options.selection,
            tree_commit=self.run.tree_commit,
            known=reviewed_repositories(state),
        )
        plan, review = refresh_plan(self.session.tree, options, self._plan_ports())
        for repository in review:
            print_error(
                "if the retention of one branch were lengthened, the server would keep less data of"
                " another branch",
                where=repository.key,
                hint="Run `lakeplan plan` and have it reviewed.",
            )
        code = ExitCode.REFUSED if review else ExitCode.OK
        if not plan.writes:
            if plan.failed:
                print_failures(plan)
                code = ExitCode.PARTLY_DONE if review else plan_exit_code(plan, detailed=False)
            elif not review:
                say(
                    stdout(no_color=self.outputs.no_color),
                    "Every branch already has the retention of its pattern.",
                )
            return code
        print_failures(plan)
        keys = tuple(r.key for r in plan.writes)
        # This apply concerns neither unmanaged repositories nor the rest of the tree.
        flow = replace(self, options=replace(self.options, selection=Selection(targets=keys)))
        return max(flow.apply(replace(plan, targets=keys)), code, ExitCode.PARTLY_DONE if plan.failed else 0)

    def apply(self, plan: Plan) -> int:
        """Applies a reviewed plan, shows the report, sweeps if requested, and returns the worst exit code."""
        journal = None
        try:
            journal = self._begin(plan)
            report = self._apply(plan, journal)
        except LakeplanError as error:
            self._write_refusal(error)
            if journal is not None:
                self._record_refusal(journal, error)
            self.session.notify(apply_stopped(error.replaced(message=redacted_message(error.message))))
            raise
        document = report_document(report)
        code = self.outputs.emit(
            document, render_apply, self._around(), code=exit_code_of(report), sort_keys=True
        )
        self.session.notify(apply_failed(self.outputs.shown(document), self.session.tree.owner_of))
        if self.sweep is None:
            return code
        return max(code, self.sweep.mark_and_sweep(plan, self.options.selection, self.run, applied=code))

    def _begin(self, plan: Plan) -> RunJournal:
        journal, writes = self._journal(plan), narrowed(plan, self.options.selection).writes
        if writes:
            # Even if this run is killed, a later run of the plan must undo nothing that was applied since
            # then. Without the state, nothing is written.
            journal.record["repositories"] = {repository.key: {**NOT_BEGUN} for repository in writes}
            with suppress(LakeplanError):
                journal.save()
        return journal

    def _apply(self, plan: Plan, journal: RunJournal) -> ApplyReport:
        return apply_plan(
            plan,
            self.session.tree,
            self.options,
            self._plan_ports(),
            ApplyPorts(
                self.session.connection,
                self.session.state(),
                self.session.progress,
                # A sweep that follows must not find it damaged after the rules were written.
                also_needs=(read_sweeps,) if self.sweep is not None else (),
                tree=self.session.tree.name,
                judge=self._judge(),
                journal=journal,
            ),
            self.run,
            plan_digest=to_document(plan)["digest"],
        )

    def _write_refusal(self, error: LakeplanError) -> None:
        """Writes the report files of an apply that wrote nothing to a server."""
        files = tuple(o for o in self.outputs.all if o.path is not None and o.format in (JSON, MARKDOWN))
        document = refusal_document(self.run.run_id, error)
        replace(self.outputs, all=files).emit(document, render_apply, self._around(), sort_keys=True)

    def _record_refusal(self, journal: RunJournal, error: LakeplanError) -> None:
        """Records that the plan was not applied."""
        journal.record["end"] = end_of(error)
        message = "the apply failed or was refused, so nothing was written"
        for step in journal.record.get("repositories", {}).values():
            if step == NOT_BEGUN:
                step |= {"status": "failed", "message": message}
        if note := close_journal(journal, self.run):
            say(stderr(no_color=self.outputs.no_color), note)

    def _journal(self, plan: Plan) -> RunJournal:
        facts = {"plan_digest": to_document(plan)["digest"], "plan_as_of": plan.as_of.isoformat()}
        facts |= {"end": "refresh"} if self.options.only_refresh else {}
        return open_journal(self.session.state(), self.run, "apply", **facts)

    def _around(self) -> RenderContext:
        return replace(RenderContext.of(self.session.tree), tree=partial(tree_prefix, self.tree))

    def _record_baselines(self, plan: Plan) -> None:
        """Records in the state that nothing is to be written, so that drift sees edits from now on, and that
        older jobs notice a new tree. Claims the repositories."""
        state = self.session.state()
        recorded = record_baselines(plan.repositories, state, self.run, self.session.reader, at=plan.as_of)
        note = ""
        if recorded.repositories or self._is_new_tree():
            note = note_baselines(self._journal(plan), recorded, self.run)
        notes = (
            recorded.note,
            note,
            claim_all(plan.repositories, self.session.tree.name, self.session.connection, self.run),
        )
        for text in filter(None, notes):
            say(stderr(no_color=self.outputs.no_color), text)

    def _is_new_tree(self) -> bool:
        """Whether there was no apply yet, the last one had other files of the tree, or commands that delete
        would not take this tree for the newest."""
        try:
            check_newest(self.session.state(), self.run, "")
        except StalePlan:
            return True
        own = RunFilter(kinds=frozenset({"apply"}), tree=self.run.tree_name)
        last = list_runs(self.session.state(), own, limit=1).runs
        return [run.tree_digest for run in last] != [self.run.tree_digest]

    def _checks(self) -> PlanChecks:
        today = self.run.now().date()
        overrides = GateOverrides(self.options.allowed, self.session.tree.overrides, today)
        return PlanChecks(self.session.tree, overrides, forced=self.run_checks)

    def _judge(self) -> Callable[[Plan], tuple[GateResult, ...]] | None:
        checks = self._checks()
        return (lambda live: checks.judge(live)[0]) if checks.may_run else None

    def _plan_ports(self) -> Ports:
        ports = Ports(self.session.reader, self.session.simulator, self.session.progress)
        return replace(ports, pins=self.session.pins())
