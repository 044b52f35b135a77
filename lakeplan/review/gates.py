"""The safety gates of GC rules: what a plan may do without somebody saying so (the design's "Gates").

Every gate is judged now and at +7 and +30 days, and the worst counts. ``--force`` opens none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from typing import Literal, Protocol

from lakeplan.errors import UsageError
from lakeplan.retention.patterns import names_repository
from lakeplan.values.desired import Override, Safety
from lakeplan.values.gate_names import (
    ADOPTION,
    AT_RISK,
    CLEAR,
    DELETED_BRANCHES,
    EXPIRED_BYTES,
    EXPIRED_OBJECTS,
    HELD_BRANCH,
    TAG_LOSS,
    UNKNOWN_IMPACT,
    UNMANAGED,
    WHOLE_PLAN,
)
from lakeplan.values.plan import (
    LIFECYCLE_RUN,
    GateOutcome,
    GateResult,
    Horizon,
    HorizonImpact,
    ImpactStatus,
    RepositoryPlan,
)
from lakeplan.values.plan_parts import BranchRow
from lakeplan.values.rules import Action


class Named(Protocol):
    """A repository, by its name and as ``server/name``."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...


@dataclass(frozen=True)
class Openers:
    """What may override gates: ``--allow`` (``GATE``, or ``REPOSITORY=GATE`` with a repository by its name or
    as ``server/name``) and the tree's reviewed overrides."""

    allowed: frozenset[str]
    overrides: tuple[Override, ...]
    today: date

    def check_named(self, keys: Iterable[str]) -> None:
        """Raises UsageError for an ``--allow`` that names none of these repositories (``server/name``): left
        alone, a misspelt one would read as if the gate could not be overridden."""
        known = {name: key for key in keys for name in (key, key.partition("/")[2])}
        for flag in sorted(self.allowed):
            named, separator, gate = flag.rpartition("=")
            if not separator or named in known:
                continue
            near = dict.fromkeys(known[name] for name in get_close_matches(named, known))
            hint = " or ".join(f"--allow {key}={gate}" for key in near)
            raise UsageError(
                f"--allow {flag}: {named} is not among the repositories of this run",
                hint=f"did you mean {hint}?"
                if near
                else "Name a repository of this run, or leave the flag out.",
            )

    def decide(self, refused: GateResult, repository: Named | None) -> GateResult:
        """The outcome of a gate that would refuse."""
        for flag in self._flags(refused.gate, repository):
            if flag in self.allowed:
                return replace(refused, outcome=GateOutcome.ALLOWED, opens_with=f"--allow {flag}")
        for note in self.overrides:
            if note.gate == refused.gate and self._covers(note, refused, repository):
                text = f"overridden at {note.source}: {note.reason}"
                return replace(refused, outcome=GateOutcome.OVERRIDDEN, opens_with=text)
        return replace(
            refused,
            outcome=GateOutcome.REFUSED,
            opens_with=f"overrides in the tree, or --allow {_flag_of(refused, repository)} at a terminal",
        )

    @staticmethod
    def _flags(gate: str, repository: Named | None) -> tuple[str, ...]:
        """The most exact first."""
        if repository is None:
            return (gate,)
        return (f"{repository.key}={gate}", f"{repository.name}={gate}", gate)

    def _covers(self, note: Override, gate: GateResult, repository: Named | None) -> bool:
        if note.expires < self.today:
            return False
        if note.max is not None and (gate.value is None or gate.value > note.max):
            return False
        if repository is None:
            return note.repository == "*"
        return names_repository(note.repository, repository.key.partition("/")[0], repository.name)


def _flag_of(gate: GateResult, repository: Named | None) -> str:
    return gate.gate if repository is None else f"{repository.key}={gate.gate}"


def one_by_one(found: Mapping[str, Iterable[GateResult]]) -> dict[str, tuple[GateResult, ...]]:
    """Gates by ``server/name``, where one ``--allow`` overrides a gate of one repository. What is meant for
    one must not override the same gate of others unseen: these refuse, and name the flag that each needs."""
    gates = {key: tuple(results) for key, results in found.items()}
    allowed = {
        key: {g.opens_with for g in of if g.outcome is GateOutcome.ALLOWED} for key, of in gates.items()
    }
    users = Counter(flag for flags in allowed.values() for flag in flags)
    return {
        key: tuple(
            replace(
                gate,
                outcome=GateOutcome.REFUSED,
                opens_with=f"--allow {key}={gate.gate} at a terminal;"
                f" {gate.opens_with} would override this gate in {users[gate.opens_with]:,} repositories",
            )
            if gate.outcome is GateOutcome.ALLOWED and users[gate.opens_with] > 1
            else gate
            for gate in of
        )
        for key, of in gates.items()
    }


def repository_gates(plan: RepositoryPlan, safety: Safety, openers: Openers) -> tuple[GateResult, ...]:
    """Every gate of one repository that has something to say; a passed limit is listed too. Without writes
    there is only what stops ``branches run``, and what a server's policies do to held branches."""
    if plan.failure is not None:
        return ()
    found = [
        *run_gate(plan.key, _run_deletes(plan), safety.max_deleted_branches),
        *run_tag_gate(plan.key, plan.lifecycle.branches if plan.lifecycle is not None else (), safety),
        *_held_gate(plan),
    ]
    if plan.writes:
        found = [
            *_presence_gates(plan),
            *_limit_gates(plan.key, plan.impact.horizons, safety),
            *_branch_gate(plan.key, [plan], safety),
            *_tag_gate(plan, safety),
            *_risk_gate(plan, safety),
            *found,
        ]
    return tuple(openers.decide(g, plan) if g.outcome is GateOutcome.REFUSED else g for g in found)


def plan_gates(
    repositories: Iterable[RepositoryPlan],
    safety: Safety,
    openers: Openers,
    *,
    unmanaged: tuple[str, ...] = (),
    on_unmanaged: Literal["ignore", "warn", "fail"] = "warn",
) -> tuple[GateResult, ...]:
    """The limits over the whole plan. Such a gate counts as overridden when it is in every repository
    that contributes to it."""
    planned = [r for r in repositories if r.failure is None]
    writing = [r for r in planned if r.writes]
    by_run = run_gate(WHOLE_PLAN, sum(map(_run_deletes, planned)), safety.max_deleted_branches)
    results = []
    totals = {h.value: total for h in Horizon if (total := _total(writing, h)) is not None}
    limits = _limit_gates(WHOLE_PLAN, totals, safety)
    for gate in [*limits, *_branch_gate(WHOLE_PLAN, writing, safety), *by_run]:
        if gate.outcome is not GateOutcome.REFUSED:
            results.append(gate)
            continue
        decided = openers.decide(gate, None)
        if decided.outcome is GateOutcome.REFUSED and _all_open(planned, gate):
            text = "overridden in every repository that contributes"
            decided = replace(gate, outcome=GateOutcome.OVERRIDDEN, opens_with=text)
        results.append(decided)
    if unmanaged and on_unmanaged != "ignore":
        gate = GateResult(
            UNMANAGED,
            WHOLE_PLAN,
            GateOutcome.REFUSED if on_unmanaged == "fail" else GateOutcome.WARNED,
            "1 repository on the servers is named by no entry"
            if len(unmanaged) == 1
            else f"{len(unmanaged):,} repositories on the servers are named by no entry",
            value=len(unmanaged),
            unit="repositories",
        )
        results.append(openers.decide(gate, None) if gate.outcome is GateOutcome.REFUSED else gate)
    return tuple(results)


def _all_open(planned: list[RepositoryPlan], gate: GateResult) -> bool:
    opened = (GateOutcome.OVERRIDDEN, GateOutcome.ALLOWED)
    contributing = [r for r in planned if _contributes(r, gate)]
    return bool(contributing) and all(
        any(g.gate == gate.gate and g.stops == gate.stops and g.outcome in opened for g in r.gates)
        for r in contributing
    )


def _contributes(plan: RepositoryPlan, gate: GateResult) -> bool:
    """Whether anything in this repository adds to a gate of the whole plan."""
    if gate.stops == LIFECYCLE_RUN:
        return _run_deletes(plan) > 0
    if not plan.writes:
        return False
    if gate.gate == DELETED_BRANCHES:
        return plan.branch_lifecycle is not None and any(plan.branch_lifecycle.deletions.values())
    return any((h.objects_expire or 0) > 0 for h in plan.impact.horizons.values())


def _run_deletes(plan: RepositoryPlan) -> int:
    """Branches that the next ``branches run`` deletes."""
    return plan.lifecycle.going if plan.lifecycle is not None else 0


def run_gate(scope: str, count: int, limit: int | None) -> list[GateResult]:
    """How many branches one ``branches run`` may delete. An apply deletes none, so it is not stopped."""
    if not count or limit is None:
        return []
    return [
        GateResult(
            DELETED_BRANCHES,
            scope,
            GateOutcome.REFUSED if count > limit else GateOutcome.PASSED,
            f"{count:,} branches would be deleted by `lakeplan branches run`; the limit is {limit:,}",
            value=count,
            limit=limit,
            unit="branches",
            stops=LIFECYCLE_RUN,
        )
    ]


def _held_gate(plan: RepositoryPlan) -> list[GateResult]:
    """Judged without writes too: the hold may be newer than the policies."""
    if not plan.held_deletions:
        return []
    count, first = len(plan.held_deletions), plan.held_deletions[0]
    text = f"the server's policies would delete a held branch: {first}"
    if count > 1:
        text += f" (and {count - 1:,} more)"
    return [GateResult(HELD_BRANCH, plan.key, GateOutcome.REFUSED, text, count, 0, "branches")]


def _presence_gates(plan: RepositoryPlan) -> list[GateResult]:
    gates = []
    if plan.adopted:
        text = f"the glob {plan.entry!r} newly matches this repository"
        gates.append(GateResult(ADOPTION, plan.key, GateOutcome.REFUSED, text))
    if plan.action is Action.CLEAR:
        text = "all GC rules are removed: no collector runs without rules, so nothing is reclaimed any more"
        gates.append(GateResult(CLEAR, plan.key, GateOutcome.REFUSED, text))
    for setting in plan.settings:
        if setting.action is Action.CLEAR:
            text = f"all {setting.kind.label} are removed from the server"
            gates.append(GateResult(CLEAR, plan.key, GateOutcome.REFUSED, text))
    rules = plan.object_lifecycle
    if rules is not None and rules.tightened:
        text = "what the object lifecycle rules expire is not simulated"
        gates.append(GateResult(UNKNOWN_IMPACT, plan.key, GateOutcome.REFUSED, text))
    if plan.impact.status is ImpactStatus.UNKNOWN:
        text = f"what expires is not known: {plan.impact.reason}"
        gates.append(GateResult(UNKNOWN_IMPACT, plan.key, GateOutcome.REFUSED, text))
    return gates


def _limit_gates(scope: str, horizons: Mapping[str, HorizonImpact], safety: Safety) -> list[GateResult]:
    """The worst horizon counts, and of equal ones the first. ``horizons`` by name, in any order; some may be
    missing."""
    gates = []
    limits: tuple[tuple[str, float | None, str, Callable[[HorizonImpact], float | None]], ...] = (
        (EXPIRED_OBJECTS, safety.max_expired_objects_percent, "percent", lambda h: h.percent_expire),
        (EXPIRED_BYTES, safety.max_expired_bytes, "bytes", lambda h: h.bytes_expire),
    )
    ordered = [(h.value, horizons[h.value]) for h in Horizon if h.value in horizons]
    for gate, limit, unit, measure in limits:
        known = [(v, name) for name, h in ordered if (v := measure(h)) is not None]
        if limit is None or not known:
            continue
        value, horizon = max(known, key=lambda pair: pair[0])
        refused = value > limit
        what = "of the kept objects expire" if unit == "percent" else "bytes expire"
        text = f"{value:,.1f} percent {what}" if unit == "percent" else f"{value:,} {what}"
        gates.append(
            GateResult(
                gate,
                scope,
                GateOutcome.REFUSED if refused else GateOutcome.PASSED,
                f"{text} ({horizon.replace('_', ' ')}); the limit is {limit:,}",
                value=value,
                limit=limit,
                unit=unit,
                horizon=horizon,
            )
        )
    return gates


def _branch_gate(scope: str, plans: list[RepositoryPlan], safety: Safety) -> list[GateResult]:
    """Branches that the policies of a server newly let go, at the worst moment."""
    managed = [p.branch_lifecycle for p in plans if p.branch_lifecycle and p.branch_lifecycle.action.writes]
    if safety.max_deleted_branches is None or not managed:
        return []
    counts = {h.value: sum(policies.deletions.get(h.value, 0) for policies in managed) for h in Horizon}
    horizon = max(counts, key=lambda name: counts[name])
    value, limit = counts[horizon], safety.max_deleted_branches
    text = f"{value:,} branches go by policy ({horizon.replace('_', ' ')}); the limit is {limit:,}"
    outcome = GateOutcome.REFUSED if value > limit else GateOutcome.PASSED
    return [GateResult(DELETED_BRANCHES, scope, outcome, text, value, limit, "branches", horizon=horizon)]


def run_tag_gate(scope: str, rows: Iterable[BranchRow], safety: Safety) -> list[GateResult]:
    """Tags on commits that nothing keeps once ``branches run`` deletes a branch. A tag keeps no data
    (lakefs/retention.md). Commits alone decide, as the run reads no objects: another kept commit may hold
    the same data."""
    at_stake = [r for r in rows if r.goes and r.follows is not None and r.follows.tags]
    tags = sorted({tag for row in at_stake if row.follows is not None for tag in row.follows.tags})
    if not tags or safety.on_tag_loss == "ignore":
        return []
    text = (
        f"{_tags(tags)} may lose data once `lakeplan branches run` deletes"
        f" {_names([row.branch_id for row in at_stake])}: a tag keeps no data"
    )
    outcome = _by_setting(safety.on_tag_loss)
    return [GateResult(TAG_LOSS, scope, outcome, text, len(tags), 0, "tags", stops=LIFECYCLE_RUN)]


def _by_setting(setting: Literal["ignore", "warn", "fail"]) -> GateOutcome:
    return GateOutcome.REFUSED if setting == "fail" else GateOutcome.WARNED


def _names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _tags(tags: list[str]) -> str:
    return f"{len(tags)} tag{'s' * (len(tags) != 1)} ({_names(tags)})"


def _tag_gate(plan: RepositoryPlan, safety: Safety) -> list[GateResult]:
    lost = [t.tag for t in plan.impact.tags]
    if not lost or safety.on_tag_loss == "ignore":
        return []
    outcome = _by_setting(safety.on_tag_loss)
    tags = f"{len(lost)} tag{'s' * (len(lost) != 1)}"
    text = f"{tags} would lose data, now or within 30 days: {_names(lost)}"
    return [GateResult(TAG_LOSS, plan.key, outcome, text, value=len(lost), limit=0, unit="tags")]


def _risk_gate(plan: RepositoryPlan, safety: Safety) -> list[GateResult]:
    worst = [(h.objects_at_risk or 0, name) for name, h in plan.impact.horizons.items()]
    value, horizon = max(worst, default=(0, Horizon.NOW.value), key=lambda pair: pair[0])
    if not value or safety.on_server_divergence == "ignore":
        return []
    outcome = _by_setting(safety.on_server_divergence)
    text = f"{value:,} objects would go although the documented rule keeps them ({horizon.replace('_', ' ')})"
    return [
        GateResult(AT_RISK, plan.key, outcome, text, value=value, limit=0, unit="objects", horizon=horizon)
    ]


def _total(writing: list[RepositoryPlan], horizon: Horizon) -> HorizonImpact | None:
    """The sum of what limits measure over repositories; percent is over those that were read."""
    impacts = [h for r in writing if (h := r.impact.horizons.get(horizon.value)) is not None]
    if not impacts:
        return None
    return replace(
        impacts[0],
        objects_expire=sum(h.objects_expire or 0 for h in impacts),
        bytes_expire=sum(h.bytes_expire or 0 for h in impacts),
        objects_kept=sum(h.objects_kept or 0 for h in impacts),
    )
