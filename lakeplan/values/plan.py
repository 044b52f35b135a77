"""A plan: frozen data, the document that is shown, reviewed, stored and applied.

``to_document`` and ``from_document`` give and take the JSON of ``schemas/plan.v1.json``. Times are ISO 8601
UTC with seconds; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from lakeplan.values.desired import Price, Safety
from lakeplan.values.pins import PinsPlan, PinState
from lakeplan.values.plan_parts import (
    NOT_IN_DOCUMENT,
    OPTIONAL,
    BranchesPlan,
    ObjectRulesPlan,
    PoliciesPlan,
    Shown,
)
from lakeplan.values.rules import Action, GcRules, etag_of
from lakeplan.values.simulation import RunnerChoice
from lakeplan.values.sweep import Hold, SweepSettings
from lakeplan.values.urls import path_digest

PLAN_FORMAT = "lakeplan.plan/v1"


class Horizon(str, Enum):
    """The moments an impact is judged at, if nobody writes until then."""

    NOW = "now"
    WEEK = "plus_7_days"
    MONTH = "plus_30_days"

    @property
    def days(self) -> int:
        return {Horizon.NOW: 0, Horizon.WEEK: 7, Horizon.MONTH: 30}[self]


@dataclass(frozen=True)
class ValueChange:
    """One value that differs: ``path`` is ``default_retention_days`` or ``branches/<branch id>``.
    None is "not set"."""

    path: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class HorizonImpact:
    """What the change does at one moment. ``commits_expire`` are kept by the stored rules and not by the
    proposed ones (the server's verdict); ``objects_expire`` likewise, by address, at most. ``at_risk_*``
    is the part of it that the documented rule keeps. ``objects_kept`` is what the stored rules keep among
    what was read. Objects are None where they are unknown."""

    as_of: datetime
    commits_kept_before: int
    commits_kept_after: int
    commits_expire: int
    commits_released: int
    commits_at_risk: int
    objects_expire: int | None = None
    bytes_expire: int | None = None
    objects_kept: int | None = None
    bytes_kept: int | None = None
    objects_at_risk: int | None = None
    bytes_at_risk: int | None = None

    @property
    def percent_expire(self) -> float | None:
        """Objects that expire, in percent of what is kept before."""
        if self.objects_expire is None:
            return None
        if not self.objects_expire:
            return 0.0
        return 100.0 * self.objects_expire / self.objects_kept if self.objects_kept else 100.0


class ImpactStatus(str, Enum):
    """``simulated``: objects were read. ``unaffected``: no commit changes sides, so no object can.
    ``unknown``: objects could not be read (a gate). ``not_asked``: nothing changes, or ``--simulate none``
    on a repository without writes."""

    SIMULATED = "simulated"
    UNAFFECTED = "unaffected"
    UNKNOWN = "unknown"
    NOT_ASKED = "not_asked"


@dataclass(frozen=True)
class TagLoss:
    """A tag whose commit loses objects, now or at a later horizon: what it names can then no longer be read
    in full. ``objects`` and ``size_bytes``: all that it loses until the last of them."""

    tag: str
    commit_id: str
    objects: int | None
    size_bytes: int | None


@dataclass(frozen=True)
class PrefixImpact:
    prefix: str
    depth: int
    objects: int
    size_bytes: int


@dataclass(frozen=True)
class Backlog:
    """What the stored rules already let expire: collectable today, whatever this plan does. Objects are None
    unless ``--backlog`` was given."""

    commits: int
    objects: int | None = None
    size_bytes: int | None = None


STAGED_DATA = "upper bounds: uncommitted changes were not read and can only reduce these numbers"
"""In ``blind_to`` of every impact; plans and pages say it once."""


@dataclass(frozen=True)
class Impact:
    status: ImpactStatus
    reason: str = ""
    horizons: Mapping[str, HorizonImpact] = field(default_factory=dict)
    tags: tuple[TagLoss, ...] = ()
    prefixes: tuple[PrefixImpact, ...] = ()
    backlog: Backlog | None = None
    ranges_read: int = 0
    entries_read: int = 0
    commits_digest: str = ""
    """SHA-256 over all commits kept now, with the verdicts that keep them: equal digests, equal impact."""
    blind_to: tuple[str, ...] = ()
    """What was not read, as sentences: dangling commits under ``--read-only``, staged data always."""
    shown: Shown | None = None
    """What expires, one by one. None: nothing was judged, or there are too many."""

    @property
    def now(self) -> HorizonImpact | None:
        return self.horizons.get(Horizon.NOW.value)


class GateOutcome(str, Enum):
    PASSED = "passed"
    WARNED = "warned"
    REFUSED = "refused"
    ALLOWED = "allowed"
    OVERRIDDEN = "overridden"


APPLY, LIFECYCLE_RUN = "apply", "lifecycle run"
"""The commands that gates stop."""


@dataclass(frozen=True)
class GateResult:
    """One gate. ``scope`` is ``server/name`` or ``plan``. ``value`` and ``limit`` are in ``unit``. ``stops``
    is the command that it stops when it refuses."""

    gate: str
    scope: str
    outcome: GateOutcome
    message: str
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    opens_with: str = ""
    horizon: str = Horizon.NOW.value
    stops: str = APPLY


@dataclass(frozen=True)
class Failure:
    """A repository that could not be planned, as a person reads it."""

    message: str
    where: str = ""
    hint: str = ""
    exit_code: int = 1


@dataclass(frozen=True)
class Loosening:
    """One safety value that is weaker in the checked-out tree than at the base. ``scope`` is ``tree`` or
    ``server/name``; ``path`` as the tree writes it; ``before`` and ``after`` in words; ``where`` the place in
    the checked-out tree, when there is one."""

    scope: str
    path: str
    before: str
    after: str
    where: str = ""


@dataclass(frozen=True)
class SweepGuard:
    """The stricter of a tree and its base for the sweep of one repository: limits and protected tags, what is
    held by either, and of every setting the one that takes less."""

    safety: Safety
    holds: tuple[Hold, ...]
    settings: SweepSettings


@dataclass(frozen=True)
class RepositoryPlan:
    """One repository of the plan. ``branches`` maps every branch to its HEAD when planned: patterns are
    expanded over these alone when the plan is applied. ``unexpanded`` are branches that appeared later, with
    the days their pattern would give them. ``creation_date`` (epoch seconds) and ``storage_namespace`` tell a
    repository from another of the same name. ``action``, ``before``, ``after`` and ``changes`` are of the GC
    rules; ``branch_lifecycle`` and ``object_lifecycle`` are set when the tree manages them on the server,
    ``lifecycle`` when lakeplan itself enforces the policies: an apply writes nothing of it.
    ``cost_per_gb_month`` is the server's price, where the tree has one. ``pins``: None where there are none
    and the tree requires none; rules and their ETags are without the entries of pins.
    """

    server: str
    name: str
    entry: str
    endpoint_url: str
    config_hash: str
    action: Action
    before: GcRules | None
    after: GcRules | None
    managed: bool = True
    adopted: bool = False
    owner: str | None = None
    source: str = ""
    changes: tuple[ValueChange, ...] = ()
    branches: Mapping[str, str] = field(default_factory=dict)
    impact: Impact = field(default_factory=lambda: Impact(ImpactStatus.NOT_ASKED))
    gates: tuple[GateResult, ...] = ()
    warnings: tuple[str, ...] = ()
    unexpanded: Mapping[str, int] = field(default_factory=dict)
    branch_lifecycle: PoliciesPlan | None = None
    object_lifecycle: ObjectRulesPlan | None = None
    lifecycle: BranchesPlan | None = None
    creation_date: int = 0
    storage_namespace: str = ""
    failure: Failure | None = None
    cost_per_gb_month: Price | None = None
    pins: PinsPlan | None = field(default=None, metadata=OPTIONAL)
    held_deletions: tuple[str, ...] = field(default=(), metadata=NOT_IN_DOCUMENT)
    """Held branches that the server's policies would delete, as sentences; not in the plan file, whose gates
    say it."""

    @property
    def key(self) -> str:
        return f"{self.server}/{self.name}"

    def is_of(self, creation_date: int, storage_namespace: str) -> bool:
        """Whether a live repository is the planned one, and no other of the same name. In a redacted plan
        the namespace is a digest."""
        names = (storage_namespace, path_digest(self.key, storage_namespace))
        return self.creation_date == creation_date and self.storage_namespace in names

    @property
    def before_etag(self) -> str:
        return etag_of(self.before)

    @property
    def after_etag(self) -> str:
        return etag_of(self.after)

    @property
    def settings(self) -> tuple[PoliciesPlan | ObjectRulesPlan, ...]:
        """The further settings that the tree manages here."""
        return tuple(s for s in (self.branch_lifecycle, self.object_lifecycle) if s is not None)

    @property
    def writes(self) -> bool:
        """Whether anything is to be written: rules, pins, policies or object rules."""
        return self.overall.writes

    @property
    def impact_known(self) -> bool:
        """Whether the objects that expire are known. What object rules newly expire is not simulated."""
        now, rules = self.impact.now, self.object_lifecycle
        tightened = rules is not None and rules.tightened
        return now is not None and now.objects_expire is not None and not tightened

    @property
    def overall(self) -> Action:
        """One word for all settings: what happens to those that are written when it is the same, else
        ``change``."""
        pins = Action.CHANGE if self.pins is not None and self.pins.writes else Action.NONE
        actions = {a for a in (self.action, pins, *(s.action for s in self.settings)) if a.writes}
        if not actions:
            return Action.NONE
        return actions.pop() if len(actions) == 1 else Action.CHANGE

    @property
    def shortens(self) -> bool:
        """True when some data may be kept for less time than before: such writes go last."""
        retires = self.pins is not None and bool(self.pins.of(PinState.RETIRED))
        return retires or shortens(self.before, self.after) or any(s.shortens for s in self.settings)


def shortens(before: GcRules | None, after: GcRules | None) -> bool:
    """Whether any branch, or what has no branch, is kept for fewer days. Unset rules keep everything:
    the collector does not run without them."""
    if after is None or before == after:
        return False
    if before is None:
        return True
    names = {*before.branches, *after.branches}
    return after.default_retention_days < before.default_retention_days or any(
        after.days_for(name) < before.days_for(name) for name in names
    )


@dataclass(frozen=True)
class Plan:
    """``tree_digest`` tells one tree from another (``Tree.digest``); ``tree_commit`` is its git commit, when
    there is one. ``allowed`` are the gates opened with ``--allow``. ``base`` is the git commit of ``--base``:
    ``loosenings`` are held against it, gates were judged by the stricter limits of both, and
    ``impact_tolerance_percent`` and ``max_plan_age_seconds`` are the stricter ones, for the apply.
    ``sweep_guards`` by ``server/name``: the limits of ``apply --sweep`` where the tree alone has weaker ones.
    ``runner``: who read the ranges; None where nothing was read."""

    as_of: datetime
    lakeplan_version: str
    tree_digest: str
    tree_commit: str | None
    repositories: tuple[RepositoryPlan, ...]
    gates: tuple[GateResult, ...] = ()
    allowed: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    unmanaged: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    simulate: str = "changed"
    read_only: bool = False
    base: str | None = None
    loosenings: tuple[Loosening, ...] = ()
    impact_tolerance_percent: float | None = None
    max_plan_age_seconds: int | None = None
    sweep_guards: Mapping[str, SweepGuard] = field(default_factory=dict)
    runner: RunnerChoice | None = None
    same_as_base: frozenset[str] = field(default=frozenset(), metadata=NOT_IN_DOCUMENT)
    """``server/name`` of repositories that the tree configures as the base does; not in the plan file."""
    tree_name: str = ""
    """What the tree is called; "" when it has no name."""
    what_if: tuple[str, ...] | None = field(default=None, metadata=OPTIONAL)
    """What ``--set`` gave, each ``PATH=VALUE``: a plan that has any is never applied."""

    @property
    def writes(self) -> tuple[RepositoryPlan, ...]:
        return tuple(r for r in self.repositories if r.writes and r.failure is None)

    @property
    def failed(self) -> tuple[RepositoryPlan, ...]:
        return tuple(r for r in self.repositories if r.failure is not None)

    @property
    def refused(self) -> tuple[GateResult, ...]:
        every = [*self.gates, *(g for r in self.repositories for g in r.gates)]
        return tuple(g for g in every if g.outcome is GateOutcome.REFUSED)

    @property
    def blocked(self) -> tuple[GateResult, ...]:
        """Gates that stop an apply; the others stop ``branches run``."""
        return tuple(g for g in self.refused if g.stops == APPLY)

    def count(self, action: Action) -> int:
        return sum(1 for r in self.repositories if r.failure is None and r.overall is action)
