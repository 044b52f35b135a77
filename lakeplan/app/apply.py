"""Applying a reviewed plan: plan again, refuse what is stale or larger, then write.

The plan file is a ceiling. Nothing is written before every planned repository was checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from lakeplan.app.plan import PlanOptions, Ports, Selection, make_plan
from lakeplan.app.write import ApplyPorts, ApplyReport, Run, gate_text, write
from lakeplan.core.planning import ceiling
from lakeplan.core.planning.loosening import held_to
from lakeplan.errors import GateRefused, StalePlan
from lakeplan.model.desired import Safety
from lakeplan.model.plan import GateOutcome, GateResult, Plan, RepositoryPlan
from lakeplan.model.plan import shortens as keeps_less
from lakeplan.model.rules import GcRules
from lakeplan.ports.tree import DesiredTree


@dataclass(frozen=True)
class ApplyOptions:
    """``force`` skips the ETag checks and nothing else. ``targets`` narrows what the plan file names.
    ``refresh_patterns`` also gives branches that appeared since the plan their pattern's days, where that
    is more than they have."""

    force: bool = False
    allowed: frozenset[str] = frozenset()
    refresh_patterns: bool = False
    selection: Selection = field(default_factory=Selection)


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
    """Plans again, checks everything, then writes. Raises StalePlan or GateRefused with nothing written."""
    reviewed = _narrowed(reviewed, tree, options.selection)
    live = make_plan(tree, _again(reviewed, options, run), plan_ports)
    by_server = {server: tree.resolve(server, _names(live, server)) for server in tree.servers}
    safety = {d.key: d.safety for desired in by_server.values() for d in desired}
    steps = check(
        reviewed,
        live,
        {key: held_to(reviewed, limits) for key, limits in safety.items()},
        plan_safety=held_to(reviewed, tree.safety),
        now=run.now(),
        force=options.force,
        allowed=options.allowed,
    )
    if options.refresh_patterns:
        steps = tuple(_refreshed(step, live) for step in steps)
    return write(reviewed, steps, live, run, ports, plan_digest=plan_digest, force=options.force)


def _narrowed(plan: Plan, tree: DesiredTree, selection: Selection) -> Plan:
    """Only the repositories that are asked for now. The others stay unwritten."""
    if selection.everything:
        return plan
    kept = tuple(r for r in plan.repositories if selection.takes_named(r.server, r.name, r.owner))
    return replace(plan, repositories=kept)


def _again(reviewed: Plan, options: ApplyOptions, run: Run) -> PlanOptions:
    """How to plan again: the whole tree is compared, only what is to be written is judged."""
    writes = {r.key: r for r in reviewed.writes}
    return PlanOptions(
        as_of=run.now(),
        allowed=frozenset(reviewed.allowed) | options.allowed,
        tree_commit=run.tree_commit,
        known=frozenset(r.key for r in reviewed.repositories),
        expand_over={key: frozenset(r.branches) for key, r in writes.items()},
        reviewed={key: r.impact for key, r in writes.items()},
        judge=frozenset(writes),
        simulate="none" if reviewed.simulate == "none" else "changed",
    )


def _names(plan: Plan, server: str) -> list[str]:
    return [r.name for r in plan.repositories if r.server == server]


def _refreshed(step: RepositoryPlan, live: Plan) -> RepositoryPlan:
    """Adds or raises, never lowers: rules for branches that appeared since the plan."""
    current = next((r for r in live.repositories if r.key == step.key), None)
    if step.after is None or current is None:
        return step
    rules = step.after
    more = {b: days for b, days in current.unexpanded.items() if days > rules.days_for(b)}
    return replace(step, after=GcRules(rules.default_retention_days, {**rules.branches, **more}))


def check(
    reviewed: Plan,
    live: Plan,
    safety: Mapping[str, Safety],
    *,
    plan_safety: Safety,
    now: datetime,
    force: bool,
    allowed: frozenset[str] = frozenset(),
) -> tuple[RepositoryPlan, ...]:
    """What to write, in order, or an error with nothing written.

    ``live`` is the reviewed plan's repositories planned again from the checked-out tree. ``safety`` gives
    each repository's limits as the tree has them now. ``force`` skips the ETag checks and nothing else.
    Raises StalePlan (exit 5) and GateRefused (exit 4). Repositories the live plan could not read are left
    to fail on their own.
    """
    again = {r.key: r for r in live.repositories}
    stale = []
    for repository in reviewed.writes:
        current = again.get(repository.key)
        if current is not None and current.failure is not None:
            continue
        reasons = ceiling.stale_reasons(repository, current, check_etag=not force)
        stale += [f"{repository.key}: {reason}" for reason in reasons]
    if stale:
        raise StalePlan(
            "the plan is stale, nothing was written:\n  " + "\n  ".join(stale),
            hint="plan again and have it reviewed"
            + ("" if force else "; --force skips the ETag checks only"),
        )
    refused = _refusals(reviewed, again, safety, plan_safety=plan_safety, now=now, allowed=allowed)
    if refused:
        raise GateRefused("refused, nothing was written:\n  " + "\n  ".join(refused), hint=_GATE_HINT)
    return tuple(sorted(reviewed.writes, key=lambda r: (keeps_less(r.before, r.after), r.key)))


_GATE_HINT = (
    "plan again and have it reviewed; a gate opens with --allow GATE when planning,"
    " or by acknowledge in the tree"
)


def _refusals(
    reviewed: Plan,
    again: Mapping[str, RepositoryPlan],
    safety: Mapping[str, Safety],
    *,
    plan_safety: Safety,
    now: datetime,
    allowed: frozenset[str],
) -> list[str]:
    age = now - reviewed.as_of
    old = ceiling.too_old(reviewed, plan_safety, now)
    found = [old] if old else []
    found += [gate_text(g) for g in reviewed.gates if _refuses(g, allowed)]
    for repository in reviewed.writes:
        current = again.get(repository.key)
        if current is None or current.failure is not None or ceiling.is_done(repository, current):
            continue
        found += [gate_text(g) for g in repository.gates if _refuses(g, allowed)]
        shut = {g.gate for g in repository.gates if g.outcome is not GateOutcome.PASSED}
        found += [gate_text(g) for g in current.gates if _refuses(g, allowed) and g.gate not in shut]
        limits = safety.get(repository.key, plan_safety)
        found += [
            f"{repository.key}: {text}" for text in ceiling.growth(repository, current, limits, age=age)
        ]
    return found


def _refuses(gate: GateResult, allowed: frozenset[str]) -> bool:
    return gate.outcome is GateOutcome.REFUSED and gate.gate not in allowed
