"""Applies a plan file and reports the result (``schemas/apply.v1.json``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, islice
from typing import Final, Literal

from lakeplan.errors import ExitCode, GateRefused, LakeplanError, StalePlan, UsageError
from lakeplan.plan.baselines import record_baselines
from lakeplan.plan.documents import ApplyDocument, EndName
from lakeplan.plan.planning import PlanOptions, Ports, make_plan
from lakeplan.plan.writing import gate_text, write
from lakeplan.review import ceiling
from lakeplan.review.base import not_run, unjudged
from lakeplan.review.differences import action_of
from lakeplan.review.gates import GateOverrides, one_by_one, plan_gates
from lakeplan.review.history import RunFilter, RunRecord, RunSince, each_run, find_run, runs_since
from lakeplan.review.run import ApplyPorts, ApplyReport, Outcome, PinSync, Run, merged_later
from lakeplan.review.selection import Selection
from lakeplan.review.strictness import held_to
from lakeplan.state.store import known_repositories, read_applied, read_baseline, repositories_of
from lakeplan.stores.open import StateReader
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import Check, DesiredRepository, Safety
from lakeplan.values.documents import encode
from lakeplan.values.gates import CHECK, UNKNOWN_IMPACT
from lakeplan.values.plan import APPLY, GateOutcome, GateResult, ImpactStatus, Plan, RepositoryPlan
from lakeplan.values.records import moment_in
from lakeplan.values.rules import GcRules

APPLY_FORMAT: Final = "lakeplan.apply/v1"


def report_document(report: ApplyReport) -> ApplyDocument:
    """The document of an apply."""
    return {
        "format": APPLY_FORMAT,
        "run_id": report.run_id,
        "end": _end_of(report),
        "refusals": [],
        "hint": "",
        "planned_again": list(report.planned_again),
        "results": encode(report.results),
        "not_written": list(report.not_written),
        "unexpanded": {key: list(branches) for key, branches in sorted(report.unexpanded.items())},
        "elsewhere": list(report.elsewhere),
        "note": report.note,
        "summary": {o.value: sum(1 for r in report.results if r.outcome is o) for o in Outcome},
    }


def refusal_document(run_id: str, error: LakeplanError) -> ApplyDocument:
    """The document of an apply that was refused and wrote nothing."""
    listed = error.reasons if isinstance(error, (StalePlan, GateRefused)) else ()
    return {
        **report_document(ApplyReport(run_id, ())),
        "end": end_of(error),
        "refusals": list(listed) or [str(error)],
        "hint": error.hint,
    }


def end_of(error: LakeplanError) -> EndName:
    """The end of an apply that was refused and wrote nothing."""
    names: dict[ExitCode, EndName] = {ExitCode.REFUSED: "refused", ExitCode.STALE: "stale"}
    return names.get(error.exit_code, "failed")


def _end_of(report: ApplyReport) -> EndName:
    if not report.failed:
        return "applied" if report.results else "nothing"
    may_have_written = any(r.exit_code == ExitCode.PARTLY_DONE for r in report.failed)
    return "failed" if len(report.failed) == len(report.results) and not may_have_written else "partly"


def exit_code_of(report: ApplyReport) -> ExitCode:
    """The exit code: 3 if some repositories failed, or the error's own code if all failed by the same one."""
    if not report.failed:
        return ExitCode.OK
    codes = {r.exit_code for r in report.failed}
    if len(report.failed) == len(report.results) and len(codes) == 1:
        return ExitCode(codes.pop())
    return ExitCode.PARTLY_DONE


@dataclass(frozen=True)
class ApplyOptions:
    """Options of an apply. ``force`` skips only the ETag checks. ``selection`` narrows the repositories of
    the plan file. ``refresh_patterns`` also gives branches that are newer than the plan the days of their
    pattern, if these are more than they have. Without ``simulate`` no object is read, so the gate
    ``unknown-impact`` refuses. ``replan``: a plan that is stale only because the servers changed is made
    again, and applied if nothing would be deleted that was not reviewed."""

    force: bool = False
    allowed: frozenset[str] = frozenset()
    refresh_patterns: bool = False
    only_refresh: bool = False
    """The plan was made by ``refresh_plan``."""
    simulate: bool = True
    selection: Selection = field(default_factory=Selection)
    replan: bool = False
    sweep: bool = False
    """A sweep follows."""


def apply_plan(
    reviewed: Plan,
    tree: DesiredTree,
    options: ApplyOptions,
    plan_ports: Ports,
    ports: ApplyPorts,
    run: Run,
    *,
    plan_digest: str,
) -> ApplyReport:
    """Plans again, checks everything, then writes. Raises StalePlan, GateRefused, or UsageError for a plan
    with ``--set``; then nothing is written."""
    if reviewed.what_if:
        raise UsageError(
            f"this plan assumes {' and '.join(reviewed.what_if)} (--set), so it can be shown but not applied",
            hint="Make the change in the tree, then run `lakeplan plan` again.",
        )
    reviewed = narrowed(reviewed, options.selection)
    overrides = GateOverrides(options.allowed, tuple(tree.overrides), run.now().date())
    overrides.check_named(r.key for r in reviewed.repositories)
    known = reviewed_repositories if options.only_refresh else known_repositories
    again = _again(reviewed, options, run, known(ports.state))
    live = make_plan(tree, again, plan_ports)

    def checked(plan: Plan) -> tuple[GateResult, ...]:
        return _check_gates(reviewed, plan, tree.checks, overrides, ports.judge)

    limits = _Limits(
        {d.key: held_to(reviewed, d.safety) for d in _resolved(tree, live)},
        held_to(reviewed, tree.safety),
        overrides,
        tree.unmanaged_policy if options.selection.everything else "ignore",
        checked(live),
    )
    moved = _moved(reviewed, live) if options.replan and not options.force else ()
    if moved:
        live = make_plan(tree, replace(again, expand_over={}), plan_ports)
        limits = replace(limits, checks=checked(live))
        steps = check_again(reviewed, live, limits, moved, now=run.now())
    else:
        steps = check(reviewed, live, limits, now=run.now(), force=options.force)
    later = _later_branches(steps, live) if options.refresh_patterns else {}
    if later:
        # More days for one branch can make the server keep less of others (lakefs/retention.md), so the rules
        # that are really written are judged too.
        over = {key: branches | later.get(key, frozenset()) for key, branches in again.expand_over.items()}
        live = make_plan(tree, replace(again, expand_over=over), plan_ports)
        limits = replace(limits, checks=checked(live))
        refuse_more(reviewed, live, limits, now=run.now())
        fresh = {r.key: r.after for r in live.repositories if r.failure is None}
        steps = tuple(
            _with_rules(s, fresh[s.key]) if later.get(s.key) and s.key in fresh else s for s in steps
        )
    concerned = reviewed.repositories if options.sweep else _not_done(steps, live)
    replayed = _replayed(reviewed, concerned, options, ports.state, plan_digest, run)
    if problems := [*replayed, *(() if options.force else _undone(reviewed, live, ports.state, run))]:
        raise _stale_plan(problems)
    live = replace(live, allowed=tuple(sorted(options.allowed)))
    ports = replace(ports, pins=_pins(reviewed, live, tree))
    # A refresh compares only the days of patterns, so it does not know whether the rest agrees.
    agreeing = () if options.only_refresh else live.repositories
    unseen = record_baselines(agreeing, ports.state, run, plan_ports.connect, at=live.as_of)
    report = write(reviewed, steps, live, run, ports, plan_digest=plan_digest, force=options.force)
    new = () if ports.judge is not None else unjudged(tree.checks, reviewed.gates)[1]
    later_checks = f"new checks, which did not run on this plan: {', '.join(new)}" if new else ""
    note = "; ".join(filter(None, (later_checks, report.note, unseen.note)))
    return replace(report, note=note, planned_again=moved)


def _pins(reviewed: Plan, live: Plan, tree: DesiredTree) -> dict[str, PinSync]:
    """Return how to sync the pins of every written repository that has or requires pins. Only pins whose
    deletion was reviewed and judged now are deleted."""
    retire = _retired(reviewed)
    judged = {r.key: r.pins.retired for r in live.repositories if r.pins is not None}
    return {
        d.key: PinSync(d, tree.servers[d.server].zone, retire[d.key] & judged[d.key])
        for d in _resolved(tree, live)
        if d.key in judged and d.key in retire
    }


def _retired(reviewed: Plan) -> dict[str, frozenset[str]]:
    """The commits whose pins may be deleted because the plan listed their deletion, by ``server/name``."""
    return {r.key: r.pins.retired if r.pins else frozenset() for r in reviewed.writes}


def _with_rules(step: RepositoryPlan, after: GcRules | None) -> RepositoryPlan:
    """A step that writes these rules, even if it only wrote policies before."""
    return replace(step, after=after, action=action_of(step.before, after))


def narrowed(plan: Plan, selection: Selection) -> Plan:
    """The plan with the selected repositories only. Raises UsageError if there are none."""
    if selection.everything:
        return plan
    kept = tuple(r for r in plan.repositories if selection.takes_named(r.server, r.name, r.owner))
    if not kept:
        raise UsageError(
            "the selection matches no repository in the plan",
            hint="Run `lakeplan show` with the plan to list its repositories.",
        )
    return replace(plan, repositories=kept)


def _again(reviewed: Plan, options: ApplyOptions, run: Run, known: frozenset[str]) -> PlanOptions:
    """Return how to plan again: compare the whole tree, but judge only the writes. Figures, gates and
    overrides are today's, whatever the plan file contains. ``--allow`` counts later, when it is known which
    repositories it concerns."""
    writes = {r.key: r for r in reviewed.writes}
    return PlanOptions(
        as_of=run.now(),
        tree_commit=run.tree_commit,
        known=known,
        expand_over={key: frozenset(r.branches) for key, r in writes.items()},
        judge=frozenset(writes),
        simulate="changed" if options.simulate and not options.only_refresh else "none",
        retire=_retired(reviewed),
        refresh=options.only_refresh,
    )


def reviewed_repositories(state: StateReader) -> frozenset[str]:
    """The repositories (``server/name``) whose rules an apply wrote, or found to agree with the tree."""
    return known_repositories(state) | repositories_of(state, "baselines")


def refresh_plan(
    tree: DesiredTree, options: PlanOptions, ports: Ports
) -> tuple[Plan, tuple[RepositoryPlan, ...]]:
    """A plan that only gives branches the days of their patterns where the stored rules have fewer, and the
    repositories that still need a review. More days for one branch can make the server keep less of another
    (lakefs/retention.md), so that a commit would expire."""
    made = make_plan(tree, replace(options, refresh=True, simulate="none"), ports)
    safe = tuple(r for r in made.writes if r.impact.status is ImpactStatus.UNAFFECTED)
    review = tuple(r for r in made.writes if r not in safe)
    return replace(made, repositories=(*safe, *made.failed), gates=()), review


def _resolved(tree: DesiredTree, live: Plan) -> list[DesiredRepository]:
    """The desired configuration of the repositories of a plan."""
    names = {
        s: [r.name for r in live.repositories if r.server == s and r.failure is None] for s in tree.servers
    }
    return [desired for server in tree.servers for desired in tree.resolve(server, names[server])]


def _later_branches(steps: Iterable[RepositoryPlan], live: Plan) -> dict[str, frozenset[str]]:
    """Branches that are newer than the plan and whose pattern has more days than the reviewed rules. A
    refresh adds or raises days, but never lowers them."""
    unexpanded = {r.key: r.unexpanded for r in live.repositories}
    later = {}
    for step in steps:
        if step.after is not None:
            days = step.after.days_for
            more = frozenset(b for b, d in unexpanded.get(step.key, {}).items() if d > days(b))
            later[step.key] = more
    return {key: more for key, more in later.items() if more}


@dataclass(frozen=True)
class _Limits:
    """Today's safety limits, by ``server/name`` and of the whole plan, and today's overrides.
    ``on_unmanaged`` concerns whole servers, so an apply of a selection ignores it, as a plan does."""

    by_repository: Mapping[str, Safety]
    of_plan: Safety
    overrides: GateOverrides
    on_unmanaged: Literal["ignore", "warn", "fail"] = "warn"
    checks: tuple[GateResult, ...] = ()
    """The results of the tree's checks for this apply."""


def _check_gates(
    reviewed: Plan,
    live: Plan,
    checks: Sequence[Check],
    overrides: GateOverrides,
    judge: Callable[[Plan], tuple[GateResult, ...]] | None,
) -> tuple[GateResult, ...]:
    """The results of checks: of the live plan if they may be run, else of the review. A check without a
    result refuses."""
    if judge is not None:
        return judge(live)
    named = {r.key: r for r in live.repositories}
    refused = [g for g in reviewed.gates if g.gate == CHECK.name and _refuses(g)]
    missing = [not_run(name) for name in unjudged(checks, reviewed.gates)[0]]
    return tuple(overrides.decide(gate, named.get(gate.scope)) for gate in (*refused, *missing))


def check(
    reviewed: Plan, live: Plan, limits: _Limits, *, now: datetime, force: bool
) -> tuple[RepositoryPlan, ...]:
    """The repositories to write, in order.

    ``live`` is the plan made again from the checked-out tree. ``force`` skips only the ETag checks. Raises
    StalePlan (exit 5) and GateRefused (exit 4). A repository that could not be read fails later on its own.
    """
    stale = _stale(reviewed, live, check_etag=not force)
    if stale:
        raise _stale_plan(stale, "" if force else " --force skips only the ETag checks.")
    refuse_more(reviewed, live, limits, now=now)
    return _in_order(reviewed.writes)


def _in_order(steps: Iterable[RepositoryPlan]) -> tuple[RepositoryPlan, ...]:
    return tuple(sorted(steps, key=lambda r: (r.shortens, r.key)))


def _stale(reviewed: Plan, live: Plan, *, check_etag: bool) -> list[str]:
    again = {r.key: r for r in live.repositories}
    stale = []
    for repository in reviewed.writes:
        current = again.get(repository.key)
        if current is not None and current.failure is not None:
            continue
        reasons = ceiling.stale_reasons(repository, current, check_etag=check_etag)
        stale += [f"{repository.key}: {reason}" for reason in reasons]
    return stale


def _not_done(steps: Iterable[RepositoryPlan], live: Plan) -> list[RepositoryPlan]:
    again = {r.key: r for r in live.repositories if r.failure is None}
    return [s for s in steps if s.key in again and not ceiling.is_done(s, again[s.key])]


def _replayed(
    reviewed: Plan,
    concerned: Iterable[RepositoryPlan],
    options: ApplyOptions,
    state: StateReader,
    plan_digest: str,
    own: Run,
) -> list[str]:
    """Return the repositories of a plan that an earlier run applied or tried to apply, and that a later apply
    changed. An old job that runs again must not undo a newer review, such as that of a revert, nor sweep what
    a newer tree protects. This is also true of an old job that first runs late: after an apply of a pull
    request that was merged later or, for a sweep, with the tree that was planned."""
    planned = reviewed.as_of - ceiling.CLOCK_SKEW
    left = {
        r.key: r.config_hash
        for r in concerned
        if options.sweep or _is_applied_since(r.key, r.config_hash, planned, state)
    }
    later, problems, newer = dict[str, str](), list[str](), dict[str | None, str]()
    runs = runs_since(state, planned) if left else []
    others = _other_trees(runs, reviewed.as_of, state, own) if options.sweep else frozenset()
    for since in runs:
        if (run := since.record) is None:
            why = (
                f"the state's record {since.key} is damaged, and could be that of an earlier run of this plan"
            )
            return [f"{key}: {why}" for key in sorted(left)]
        if run.command != "apply" or run.run_id == own.run_id:
            continue
        is_same = run.plan_digest == plan_digest
        is_later = merged_later(run.ci, own.ci) and run.tree_name in ("", own.tree_name)
        named = {s.repository for s in run.steps if is_same or s.replaced_any}
        is_newer = run.tree_digest != own.tree_digest and run.tree_name not in others
        if options.sweep and (is_same or is_newer):
            named = set(left)  # a sweep needs the newest holds and limits, of which a run records none
            if not is_same and run.started_at > reviewed.as_of and reviewed.tree_commit == own.tree_commit:
                newer[run.tree_digest] = run.run_id
        if not is_same:
            later |= dict.fromkeys(named - later.keys(), f"run {run.run_id} has applied another plan")
        if not (is_same or is_later):
            continue
        earlier = "a pull request that was merged later was applied first, and"
        if is_same:
            earlier = f"run {run.run_id} applied this plan or tried to, but since then,"
        for key in sorted(left if is_later else left.keys() & named):
            if why := later.get(key) or _agreed_since(key, left[key], run.started_at, state):
                del left[key]
                problems.append(f"{key}: {earlier} {why}")
    if newer:
        # A job may still have had the tree that was applied before the plan.
        last = next(_before(reviewed.as_of, state, own.tree_name), None)
        newer.pop((last and last.tree_digest) or "", None)
    if newer:
        run_id = next(iter(newer.values()))
        why = f"the plan was made with the same commit of the tree, but since then, run {run_id} has applied"
        problems += [f"{key}: {why} another tree" for key in sorted(left)]
    return problems


def _undone(reviewed: Plan, live: Plan, state: StateReader, own: Run) -> Iterator[str]:
    """Yield the repositories that agreed with the tree at the review, and that an apply of another version of
    the tree has changed since. A revert that was planned before the reverted change was applied has nothing
    to write, but must not look as if it had taken effect. A pull request that was merged before the change
    does not revert it."""
    again = {r.key: r for r in live.repositories if r.failure is None}
    for key, then in {r.key: r for r in reviewed.repositories if not r.writes and r.key in again}.items():
        now = again[key]
        is_open = now.action.writes or any(setting.action.writes for setting in now.settings)
        if not is_open or now.config_hash != then.config_hash:
            continue
        with suppress(LakeplanError):  # a damaged record concerns only the writes to its own repository
            record, _ = read_applied(state, key) or ({}, "")
            if record.get("config_hash") not in (None, then.config_hash) and (
                moment_in(record["at"]) > reviewed.as_of
            ):
                run_id = record["run_id"]
                why = f"the plan writes nothing, but since then, run {run_id} has changed the rules"
                if not _is_of_later_merge(run_id, state, own):
                    yield f"{key}: {why}"


def _is_of_later_merge(run_id: str, state: StateReader, own: Run) -> bool:
    with suppress(LakeplanError):  # unknown
        return merged_later(find_run(state, run_id).ci, own.ci)
    return False


def _before(moment: datetime, state: StateReader, tree: str = "") -> Iterator[RunRecord]:
    """The applies that began before a moment, newest first, each read when it is needed. ``tree`` is as in
    ``RunFilter``."""
    wanted = RunFilter(kinds=frozenset({"apply"}), tree=tree)
    return (run for run in islice(each_run(state, wanted, []), 1_000) if run.started_at < moment)


def _other_trees(runs: Iterable[RunSince], moment: datetime, state: StateReader, own: Run) -> frozenset[str]:
    """The names of trees other than this run's that have applied before a moment and in ``runs``. What they
    manage, they claim. A name that is newer may be this tree's new one."""
    names = {since.record.tree_name for since in runs if since.record} - {"", own.tree_name}
    if not (names and own.tree_name):
        return frozenset()
    return frozenset(run.tree_name for run in _before(moment, state)) & names


def _is_applied_since(key: str, config_hash: str, moment: datetime, state: StateReader) -> bool:
    """Whether an apply wrote the repository since then, or found it to agree with another configuration."""
    try:
        applied = read_applied(state, key)
        is_written = applied is not None and moment_in(applied[0]["at"]) > moment
        return is_written or bool(_agreed_since(key, config_hash, moment, state))
    except LakeplanError:
        return False  # its repository fails on its own


def _agreed_since(key: str, config_hash: str, moment: datetime, state: StateReader) -> str:
    """Which run later had nothing to write, because the server matched another tree, or ""."""
    seen = read_baseline(state, key)[0].values()
    run = next((s.run_id for s in seen if s.at > moment and s.config_hash != config_hash), "")
    return run and f"run {run} found that the server already matches another version of the tree"


def _stale_plan(reasons: list[str], more: str = "") -> StalePlan:
    error = StalePlan(
        "the plan is stale, so nothing was written:\n  " + "\n  ".join(reasons),
        hint=f"{_PLAN_AGAIN}{more}",
    )
    error.reasons = tuple(reasons)
    return error


def _moved(reviewed: Plan, live: Plan) -> tuple[str, ...]:
    """Return why the plan is stale if only the servers changed: all repositories could be read and have their
    reviewed configuration. Empty if the plan is not stale, or stale for another reason."""
    again = {r.key: r for r in live.repositories}
    for repository in reviewed.writes:
        current = again.get(repository.key)
        if current is None or current.failure is not None or not ceiling.only_moved(repository, current):
            return ()
    return tuple(_stale(reviewed, live, check_etag=True))


def check_again(
    reviewed: Plan, live: Plan, limits: _Limits, moved: tuple[str, ...], *, now: datetime
) -> tuple[RepositoryPlan, ...]:
    """The repositories to write, in order, of a plan that was made again over today's branches.

    ``moved`` says why the reviewed plan is stale. The new plan must have the reviewed configuration, and
    everything that it would delete must have been reviewed, object by object and branch by branch. There is
    no tolerance. Raises StalePlan (exit 5) and GateRefused (exit 4).
    """
    again = {r.key: r for r in live.repositories}
    age = now - reviewed.as_of
    steps, excess = [], list[str]()
    for repository in reviewed.writes:
        current = again.get(repository.key)
        # The rules were expanded over branches that differ from the plan's.
        if (
            current is None
            or current.failure is not None
            or not ceiling.only_moved(replace(repository, after=current.after), current)
        ):
            raise _stale_plan(
                [*moved, f"{repository.key}: it changed again while lakeplan was planning again"]
            )
        if ceiling.is_done(repository, current):
            steps.append(repository)
            continue
        steps.append(current)
        problems = ceiling.outside(repository, current, age=age, now=now)
        excess += [f"{repository.key}, after planning again: {text}" for text in problems]
    if excess:
        raise _stale_plan([*moved, *excess])
    refuse_more(reviewed, live, limits, now=now)
    return _in_order(steps)


def refuse_more(reviewed: Plan, live: Plan, limits: _Limits, *, now: datetime) -> None:
    """Raises GateRefused if a gate refuses or more would be lost than was reviewed."""
    refused, only_gates = _refusals(reviewed, live, limits, now=now)
    if refused:
        hint = f"{_PLAN_AGAIN} {_OVERRIDE}" if only_gates else _PLAN_AGAIN
        refusal = "the apply was refused, so nothing was written:\n  "
        error = GateRefused(refusal + "\n  ".join(refused), hint=hint)
        error.reasons = tuple(refused)
        raise error


_PLAN_AGAIN = "Run `lakeplan plan` again and have it reviewed."
_OVERRIDE = (
    "To override a gate, list it under overrides in the tree, or use `lakeplan apply --allow GATE` at a"
    " terminal."
)


def _refusals(reviewed: Plan, live: Plan, limits: _Limits, *, now: datetime) -> tuple[list[str], bool]:
    """The refusals, judged by the live plan and today's overrides, and whether all are gates, which can be
    overridden. A gate that refused at the review still refuses unless it is overridden today. Gates that the
    plan file calls passed or allowed do not count."""
    age = now - reviewed.as_of
    again = {r.key: r for r in live.repositories}
    old = ceiling.too_old(reviewed, limits.of_plan, now)
    growth: list[str] = []
    gates: dict[str, list[GateResult]] = {}
    for repository in reviewed.writes:
        current = again.get(repository.key)
        if current is None or current.failure is not None or ceiling.is_done(repository, current):
            continue
        then = [g for g in repository.gates if _refuses(g)]
        if repository.impact.status is ImpactStatus.UNKNOWN:
            text = "the impact was unknown when the plan was reviewed"
            then.append(GateResult(UNKNOWN_IMPACT.name, repository.key, GateOutcome.REFUSED, text))
        known = {g.gate for g in current.gates if g.outcome in _JUDGED}
        then = [limits.overrides.decide(g, repository) for g in then if g.gate not in known]
        today = [limits.overrides.decide(g, repository) if _refuses(g) else g for g in current.gates]
        gates[repository.key] = [*today, *then]
        safety = limits.by_repository.get(repository.key, limits.of_plan)
        growth += [
            f"{repository.key}: {text}"
            for text in ceiling.growth(repository, current, safety, age=age, now=now)
        ]
    named = one_by_one(gates)
    judged = [replace(again[key], gates=of) for key, of in named.items()]
    of_plan = _plan_gates(reviewed, judged, live.unmanaged, limits)
    shut = [g for g in (*of_plan, *chain.from_iterable(named.values())) if _refuses(g)]
    texts = [f"{gate_text(gate)} (override with {gate.opens_with})" for gate in shut]
    return [*([old] if old else []), *texts, *growth], not (old or growth)


_JUDGED = (GateOutcome.REFUSED, GateOutcome.ALLOWED, GateOutcome.OVERRIDDEN)


def _plan_gates(
    reviewed: Plan, judged: list[RepositoryPlan], unmanaged: tuple[str, ...], limits: _Limits
) -> list[GateResult]:
    """The gates over all repositories to write and over today's servers, and those that refused the whole
    plan at the review and are not overridden today."""
    policy = limits.on_unmanaged
    gates_now = list(
        plan_gates(judged, limits.of_plan, limits.overrides, unmanaged=unmanaged, on_unmanaged=policy)
    )
    known = {g.gate for g in gates_now if g.outcome in _JUDGED}
    then = [g for g in reviewed.gates if _refuses(g) and g.gate not in (*known, CHECK.name)]
    return [*gates_now, *limits.checks, *(limits.overrides.decide(g, None) for g in then)]


def _refuses(gate: GateResult) -> bool:
    """Whether a gate stops an apply. Some stop only ``branches run``."""
    return gate.outcome is GateOutcome.REFUSED and gate.stops == APPLY
