"""How gates judge plans and branch runs, and what overrides a gate that refuses.

``values/gates.py`` declares the gates. ``JUDGES_OF_WRITES``, ``JUDGES_OF_SERVERS`` and ``JUDGES_OF_TOTALS``
give each gate its judge. Limits are judged for now and in 7 and 30 days, and the worst figure counts.
``--force`` overrides no gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from typing import Literal, Protocol

from lakeplan.errors import UsageError
from lakeplan.retention.patterns import names_repository
from lakeplan.values.branches import BranchRow
from lakeplan.values.desired import Override, Safety
from lakeplan.values.gates import (
    ADOPTION,
    AT_RISK,
    CLEAR,
    DELETED_BRANCHES,
    EXPIRED_BYTES,
    EXPIRED_OBJECTS,
    HELD_BRANCH,
    PINS,
    TAG_LOSS,
    UNKNOWN_IMPACT,
    UNMANAGED,
    WHOLE_PLAN,
    Gate,
)
from lakeplan.values.pins import PinState
from lakeplan.values.plan import (
    APPLY,
    BRANCHES_RUN,
    GateOutcome,
    GateResult,
    Horizon,
    HorizonImpact,
    ImpactStatus,
    RepositoryPlan,
)
from lakeplan.values.rules import Action
from lakeplan.values.units import count_of

Policy = Literal["ignore", "warn", "fail"]


class Named(Protocol):
    """A repository, by its name and as ``server/name``."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...


def names_of(key: str) -> tuple[str, ...]:
    """Return the names by which ``--allow`` may refer to a repository (``server/name``), most exact first. A
    name that contains ``/`` must not be mistaken for another server's repository."""
    name = key.partition("/")[2]
    return (key,) if "/" in name else (key, name)


@dataclass(frozen=True)
class GateOverrides:
    """The overrides of gates: ``--allow`` (``GATE`` or ``REPOSITORY=GATE``, where ``REPOSITORY`` is a name or
    ``server/name``) and the reviewed overrides of the tree."""

    allowed: frozenset[str]
    overrides: tuple[Override, ...]
    today: date

    def check_named(self, keys: Iterable[str]) -> None:
        """Raises UsageError for an ``--allow`` that names none of these repositories (``server/name``).
        Otherwise, a misspelled name would look like a gate that cannot be overridden."""
        known = {name: key for key in keys for name in names_of(key)}
        for flag in sorted(self.allowed):
            named, separator, gate = flag.rpartition("=")
            if not separator or named in known:
                continue
            similar = dict.fromkeys(known[name] for name in get_close_matches(named, known))
            hint = " or ".join(f"--allow {key}={gate}" for key in similar)
            raise UsageError(
                f"--allow {flag}: repository {named} is not in this run",
                hint=f"Did you mean {hint}?"
                if similar
                else "Use a repository that is in this run, or remove the option.",
            )

    def decide(self, refused: GateResult, repository: Named | None) -> GateResult:
        """Return the outcome of a gate that would refuse."""
        for flag in self._flags(refused.gate, repository):
            if flag in self.allowed:
                return replace(refused, outcome=GateOutcome.ALLOWED, opens_with=f"--allow {flag}")
        for note in self.overrides:
            if note.gate == refused.gate and self._covers(note, refused, repository):
                text = f"overridden at {note.source}: {note.reason}"
                return replace(refused, outcome=GateOutcome.OVERRIDDEN, opens_with=text)
        scope = "" if repository is not None else ' (repository: "*")'
        flag = self._flags(refused.gate, repository)[0]
        text = f"an entry under overrides{scope} in the tree, or --allow {flag} at a terminal"
        return replace(refused, outcome=GateOutcome.REFUSED, opens_with=text)

    def decide_each(self, judged: Iterable[GateResult], repository: Named | None) -> tuple[GateResult, ...]:
        """Return the judged gates, after applying ``decide`` to those that would refuse."""
        return tuple(self.decide(g, repository) if g.outcome is GateOutcome.REFUSED else g for g in judged)

    def decide_whole(self, judged: GateResult, contributing: Iterable[Iterable[GateResult]]) -> GateResult:
        """Return the outcome of a gate of the whole plan. It also counts as overridden if every repository
        that contributes to it overrides the same gate. ``contributing`` are the gates of these
        repositories."""
        (decided,) = self.decide_each([judged], None)
        overridden = [
            any((g.gate, g.stops) == (judged.gate, judged.stops) and g.outcome in _OVERRIDDEN for g in gates)
            for gates in contributing
        ]
        if decided.outcome is not GateOutcome.REFUSED or not overridden or not all(overridden):
            return decided
        text = "overridden in every repository that contributes to this figure"
        return replace(judged, outcome=GateOutcome.OVERRIDDEN, opens_with=text)

    @staticmethod
    def _flags(gate: str, repository: Named | None) -> tuple[str, ...]:
        """Return the values of ``--allow`` that override a gate, most exact first."""
        if repository is None:
            return (gate,)
        return (*(f"{name}={gate}" for name in names_of(repository.key)), gate)

    def _covers(self, note: Override, gate: GateResult, repository: Named | None) -> bool:
        if note.expires < self.today:
            return False
        if note.max is not None and (gate.value is None or gate.value > note.max):
            return False
        if repository is None:
            return note.repository == "*"
        return names_repository(note.repository, repository.key.partition("/")[0], repository.name)


_OVERRIDDEN = (GateOutcome.OVERRIDDEN, GateOutcome.ALLOWED)


def one_by_one(judged: Mapping[str, Iterable[GateResult]]) -> dict[str, tuple[GateResult, ...]]:
    """Return the gates by ``server/name``, where each ``--allow`` overrides a gate of only one repository. If
    a flag would override a gate in several repositories unnoticed, they all refuse and name the flag that
    each needs."""
    gates = {key: tuple(results) for key, results in judged.items()}
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


@dataclass(frozen=True)
class Verdict:
    """The result of a judge, without the gate and its scope. ``unit`` is set if it differs from the
    gate's."""

    outcome: GateOutcome
    message: str
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    horizon: str = Horizon.NOW.value

    def of(self, gate: Gate, scope: str, stops: str = APPLY) -> GateResult:
        return GateResult(
            gate.name,
            scope,
            self.outcome,
            self.message,
            self.value,
            self.limit,
            self.unit or gate.unit,
            horizon=self.horizon,
            stops=stops,
        )


def by_limit(value: float, limit: float) -> GateOutcome:
    return GateOutcome.REFUSED if value > limit else GateOutcome.PASSED


def percent_text(value: float, limit: float) -> str:
    """Return ``value`` in percent, with one decimal, or with as many as are needed to show on which side of
    the limit it is."""
    shown = (f"{value:.{decimals}f}" for decimals in range(1, 9))
    outcome = by_limit(value, limit)
    return next((text for text in shown if by_limit(float(text), limit) is outcome), str(value))


def _by_policy(policy: Policy) -> GateOutcome:
    return GateOutcome.REFUSED if policy == "fail" else GateOutcome.WARNED


def repository_gates(
    plan: RepositoryPlan, safety: Safety, overrides: GateOverrides
) -> tuple[GateResult, ...]:
    """Return every gate of one repository that has a result, including limits that passed. A repository
    without writes has only the gates that stop ``branches run`` and the gate for held branches."""
    if plan.failure is not None:
        return ()
    rows = plan.lifecycle.branches if plan.lifecycle is not None else ()
    verdicts = [
        *(_judged(JUDGES_OF_WRITES, plan, safety) if plan.writes else ()),
        *gates_of_branch_run(plan.key, rows, safety),
        *_judged(JUDGES_OF_SERVERS, plan, safety),
    ]
    return overrides.decide_each(verdicts, plan)


def _judged(judges: Mapping[Gate, Judge], plan: RepositoryPlan, safety: Safety) -> Iterator[GateResult]:
    for gate, judge in judges.items():
        yield from (verdict.of(gate, plan.key) for verdict in judge(plan, safety))


def gates_of_branch_run(scope: str, rows: Sequence[BranchRow], safety: Safety) -> list[GateResult]:
    """Return the gates of one ``branches run`` on a repository. They do not stop an apply, which deletes no
    branches. ``rows`` include the consequences of each deletion. Deletions after a notice count as deletions
    now."""
    going = [row for row in rows if row.is_expired]
    tags = (v.of(TAG_LOSS, scope, BRANCHES_RUN) for v in _tags_lost_by_branch_run(going, safety))
    return [*limit_of_branch_run(scope, len(going), safety), *tags]


def limit_of_branch_run(scope: str, count: int, safety: Safety) -> list[GateResult]:
    """Return the gate for the number of branches that one ``branches run`` deletes."""
    limit = safety.max_deleted_branches
    if not count or limit is None:
        return []
    deleted = count_of(count, "branch")
    text = f"{deleted} would be deleted by `lakeplan branches run`; the limit is {limit:,}"
    return [Verdict(by_limit(count, limit), text, count, limit).of(DELETED_BRANCHES, scope, BRANCHES_RUN)]


def plan_gates(
    repositories: Iterable[RepositoryPlan],
    safety: Safety,
    overrides: GateOverrides,
    *,
    unmanaged: tuple[str, ...] = (),
    on_unmanaged: Policy = "warn",
) -> tuple[GateResult, ...]:
    """Return the gates of the whole plan. A gate counts as overridden if every repository that contributes to
    it overrides the same gate. If only one repository contributes and its own gate refuses, the gate is not
    repeated here."""
    planned = [r for r in repositories if r.failure is None]
    writing = [r for r in planned if r.writes]
    totals = {h.value: total for h in Horizon if (total := _total(writing, h)) is not None}
    verdicts = [
        (verdict.of(gate, WHOLE_PLAN), [r.gates for r in writing if total.is_raised_by(r)])
        for gate, total in JUDGES_OF_TOTALS.items()
        for verdict in total.judge(writing, totals, safety)
    ]
    of_deleting = [r.gates for r in planned if _run_deletes(r) > 0]
    of_run = limit_of_branch_run(WHOLE_PLAN, sum(map(_run_deletes, planned)), safety)
    verdicts += [(gate, of_deleting) for gate in of_run]
    results = []
    for gate, of_each in verdicts:
        if len(of_each) != 1 or not any(_is_refusal(result, gate.gate) for result in of_each[0]):
            results.append(overrides.decide_whole(gate, of_each))
    unnamed = (v.of(UNMANAGED, WHOLE_PLAN) for v in _unmanaged(unmanaged, on_unmanaged))
    return (*results, *overrides.decide_each(unnamed, None))


def _is_refusal(result: GateResult, gate: str) -> bool:
    return result.gate == gate and result.outcome is GateOutcome.REFUSED


def _run_deletes(plan: RepositoryPlan) -> int:
    """Return the number of branches that the next ``branches run`` deletes."""
    return plan.lifecycle.expired if plan.lifecycle is not None else 0


def _total(writing: list[RepositoryPlan], horizon: Horizon) -> HorizonImpact | None:
    """Return the sum of the figures that limits measure. Percentages refer to the repositories that were
    read."""
    impacts = [h for r in writing if (h := r.impact.horizons.get(horizon.value)) is not None]
    if not impacts:
        return None
    return replace(
        impacts[0],
        objects_expire=sum(h.objects_expire or 0 for h in impacts),
        bytes_expire=sum(h.bytes_expire or 0 for h in impacts),
        objects_kept=sum(h.objects_kept or 0 for h in impacts),
    )


# ---- judges
def _adoption(plan: RepositoryPlan, _: Safety) -> Iterator[Verdict]:
    if plan.adopted:
        yield Verdict(
            GateOutcome.REFUSED, f"the glob {plan.entry!r} matches this repository for the first time"
        )


def _clear(plan: RepositoryPlan, _: Safety) -> Iterator[Verdict]:
    if plan.action is Action.CLEAR:
        text = "all GC rules would be removed; without rules, no collector runs and no storage is reclaimed"
        yield Verdict(GateOutcome.REFUSED, text)
    for setting in plan.settings:
        if setting.action is Action.CLEAR:
            yield Verdict(GateOutcome.REFUSED, f"all {setting.kind.label} would be removed from the server")


def _unknown_impact(plan: RepositoryPlan, _: Safety) -> Iterator[Verdict]:
    rules = plan.object_lifecycle
    if rules is not None and rules.tightened:
        yield Verdict(
            GateOutcome.REFUSED,
            "object lifecycle rules are not simulated, so it is unknown which objects they would expire",
        )
    if plan.impact.status is ImpactStatus.UNKNOWN:
        yield Verdict(GateOutcome.REFUSED, f"it is unknown which objects would expire: {plan.impact.reason}")


def _expired_objects(horizons: Mapping[str, HorizonImpact], safety: Safety) -> Iterator[Verdict]:
    limit, worst = safety.max_expired_objects_percent, _worst(horizons, lambda h: h.percent_expire)
    if limit is not None and worst is not None:
        text = f"{percent_text(worst[0], limit)} percent of the kept objects would expire"
        yield _limited(text, worst, limit)


def _expired_bytes(horizons: Mapping[str, HorizonImpact], safety: Safety) -> Iterator[Verdict]:
    limit, worst = safety.max_expired_bytes, _worst(horizons, lambda h: h.bytes_expire)
    if limit is not None and worst is not None:
        yield _limited(f"{worst[0]:,} bytes would expire", worst, limit)


def _deleted_by_policies(plans: Iterable[RepositoryPlan], safety: Safety) -> Iterator[Verdict]:
    """Judge the branches that the policies of a server newly delete."""
    managed = [p.branch_lifecycle for p in plans if p.branch_lifecycle and p.branch_lifecycle.action.writes]
    limit = safety.max_deleted_branches
    if limit is None or not managed:
        return
    counts = {h: sum(policies.deletions.get(h.value, 0) for policies in managed) for h in Horizon}
    horizon = max(counts, key=lambda h: counts[h])
    deleted = count_of(counts[horizon], "branch")
    yield _limited(f"{deleted} would be deleted by policy", (counts[horizon], horizon.value), limit)


def _worst(
    horizons: Mapping[str, HorizonImpact], measure: Callable[[HorizonImpact], float | None]
) -> tuple[float, str] | None:
    """Return the greatest known figure and its horizon, or the first of equal figures. ``horizons`` are by
    name, in any order, and some may be missing."""
    ordered = [(horizons[h.value], h.value) for h in Horizon if h.value in horizons]
    known = [(value, name) for impact, name in ordered if (value := measure(impact)) is not None]
    return max(known, key=lambda pair: pair[0], default=None)


def _limited(text: str, worst: tuple[float, str], limit: float) -> Verdict:
    value, horizon = worst
    text = f"{text} ({horizon.replace('_', ' ')}); the limit is {limit:,}"
    return Verdict(by_limit(value, limit), text, value, limit, horizon=horizon)


def _tags_lost_by_rules(plan: RepositoryPlan, safety: Safety) -> Iterator[Verdict]:
    lost = [t.tag for t in plan.impact.tags]
    if lost and safety.on_tag_loss != "ignore":
        text = f"{_tags(lost)} would lose data, now or within 30 days: {first_names(lost)}"
        yield Verdict(_by_policy(safety.on_tag_loss), text, len(lost), 0)


def _tags_lost_by_branch_run(going: list[BranchRow], safety: Safety) -> Iterator[Verdict]:
    """Judge the tags on commits that nothing keeps after ``branches run`` deletes a branch. A tag keeps no
    data (lakefs/retention.md). The run reads no objects, so commits alone decide, although another kept
    commit may have the same data."""
    at_stake = [r for r in going if r.follows is not None and r.follows.tags]
    tags = sorted({tag for row in at_stake if row.follows is not None for tag in row.follows.tags})
    if tags and safety.on_tag_loss != "ignore":
        text = (
            f"{_tags(tags)} ({first_names(tags)}) may lose data once `lakeplan branches run` deletes"
            f" {first_names([row.branch_id for row in at_stake])}, because a tag does not keep data"
        )
        yield Verdict(_by_policy(safety.on_tag_loss), text, len(tags), 0)


def _tags(tags: list[str]) -> str:
    return f"{len(tags)} tag{'s' * (len(tags) != 1)}"


def first_names(names: Sequence[str]) -> str:
    """Return the first five names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _at_risk(plan: RepositoryPlan, safety: Safety) -> Iterator[Verdict]:
    worst = [(h.objects_at_risk or 0, name) for name, h in plan.impact.horizons.items()]
    value, horizon = max(worst, default=(0, Horizon.NOW.value), key=lambda pair: pair[0])
    if value and safety.on_server_divergence != "ignore":
        text = f"{count_of(value, 'object')} would be deleted although the documented rule keeps "
        text += "it" if value == 1 else "them"
        text += f" ({horizon.replace('_', ' ')})"
        yield Verdict(_by_policy(safety.on_server_divergence), text, value, 0, horizon=horizon)


def _held_branches(plan: RepositoryPlan, _: Safety) -> Iterator[Verdict]:
    """This is judged even without writes, because the hold may be newer than the policies."""
    if plan.held_deletions:
        count, first = len(plan.held_deletions), plan.held_deletions[0]
        more = f" (and {count - 1:,} more)" if count > 1 else ""
        text = f"the server's policies would delete a held branch: {first}{more}"
        yield Verdict(GateOutcome.REFUSED, text, count, 0)


def _pins(plan: RepositoryPlan, _: Safety) -> Iterator[Verdict]:
    if plan.pins is not None and plan.pins.of(PinState.MISSING):
        value, limit = plan.pins.wanted, plan.pins.limit
        text = f"{count_of(value, 'pin')} in total; the limit is {limit:,}"
        yield Verdict(by_limit(value, limit), text, value, limit)


def _unmanaged(unmanaged: Sequence[str], policy: Policy) -> Iterator[Verdict]:
    if unmanaged and policy != "ignore":
        number = count_of(len(unmanaged), "repository")
        text = f"{number} on the servers {'has' if len(unmanaged) == 1 else 'have'} no entry in the tree"
        yield Verdict(_by_policy(policy), text, len(unmanaged))


Judge = Callable[[RepositoryPlan, Safety], Iterator[Verdict]]

JUDGES_OF_WRITES: Mapping[Gate, Judge] = {
    ADOPTION: _adoption,
    CLEAR: _clear,
    UNKNOWN_IMPACT: _unknown_impact,
    EXPIRED_OBJECTS: lambda plan, safety: _expired_objects(plan.impact.horizons, safety),
    EXPIRED_BYTES: lambda plan, safety: _expired_bytes(plan.impact.horizons, safety),
    DELETED_BRANCHES: lambda plan, safety: _deleted_by_policies([plan], safety),
    TAG_LOSS: _tags_lost_by_rules,
    AT_RISK: _at_risk,
    PINS: _pins,
}
"""The judges of a repository with writes, in the order of a plan."""

JUDGES_OF_SERVERS: Mapping[Gate, Judge] = {HELD_BRANCH: _held_branches}
"""The judges of every repository, including those without writes."""


def _expires_objects(plan: RepositoryPlan) -> bool:
    return any((h.objects_expire or 0) > 0 for h in plan.impact.horizons.values())


def _policies_delete(plan: RepositoryPlan) -> bool:
    return plan.branch_lifecycle is not None and any(plan.branch_lifecycle.deletions.values())


@dataclass(frozen=True)
class JudgeOfTotals:
    """Judges all repositories with writes together. Those for which ``is_raised_by`` is true contribute."""

    judge: Callable[[list[RepositoryPlan], Mapping[str, HorizonImpact], Safety], Iterator[Verdict]]
    is_raised_by: Callable[[RepositoryPlan], bool]


JUDGES_OF_TOTALS: Mapping[Gate, JudgeOfTotals] = {
    EXPIRED_OBJECTS: JudgeOfTotals(
        lambda _, totals, safety: _expired_objects(totals, safety), _expires_objects
    ),
    EXPIRED_BYTES: JudgeOfTotals(lambda _, totals, safety: _expired_bytes(totals, safety), _expires_objects),
    DELETED_BRANCHES: JudgeOfTotals(
        lambda writing, _, safety: _deleted_by_policies(writing, safety), _policies_delete
    ),
}
"""The judges of the whole plan: one for every threshold of ``safety``."""


def contributes(plan: RepositoryPlan, gate: GateResult) -> bool:
    """Return whether a repository contributes to what a gate measures for the whole plan."""
    return any(of.name == gate.gate and total.is_raised_by(plan) for of, total in JUDGES_OF_TOTALS.items())
