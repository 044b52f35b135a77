"""A plan as frozen data. ``lakeplan.values.plan_document`` converts it to and from the JSON of
``schemas/plan.v1.json``. Times are UTC, sizes are bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntFlag
from typing import TYPE_CHECKING, ClassVar

from lakeplan.values.branches import BranchRow, MomentTotal
from lakeplan.values.desired import ObjectRule, Policy, Price, Safety, SettingItem, SettingKind, setting_etag
from lakeplan.values.pins import PinsPlan, PinState
from lakeplan.values.rules import Action, GcRules, etag_of
from lakeplan.values.simulation import RunnerChoice
from lakeplan.values.sweep import Hold, SweepSettings
from lakeplan.values.urls import path_digest

if TYPE_CHECKING:
    from lakeplan.values.shown_records import Records

PLAN_FORMAT = "lakeplan.plan/v1"


class Horizon(str, Enum):
    """The moments for which an impact is estimated, assuming no new commits."""

    NOW = "now"
    WEEK = "plus_7_days"
    MONTH = "plus_30_days"

    @property
    def days(self) -> int:
        return {Horizon.NOW: 0, Horizon.WEEK: 7, Horizon.MONTH: 30}[self]


@dataclass(frozen=True)
class SettingChange:
    """An item that is added, changed or removed (``clear``). ``item`` is its id or its patterns, or ``order``
    if only the order differs. ``before`` and ``after`` have the values that differ, as text, under the keys
    of the tree."""

    item: str
    action: Action
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BranchFate:
    """A branch that policies delete now, or within 30 days without new writes.

    ``goes_at`` is when the proposed policies delete it, and ``before_at`` when the stored ones do, or None if
    they do not delete it within that time. ``policy`` is the first proposed one that does. ``idle`` says
    whether an idle age decides. ``uncommitted`` counts the changes that would be lost, or only the first of
    them (``uncommitted_more``), or is None if they were not read. ``pulls`` are open pull requests from or
    into the branch. ``tags`` are those in its history but not in that of the default branch.
    """

    branch_id: str
    commit_id: str
    created: datetime
    last_write: datetime | None
    policy: str
    goes_at: datetime | None
    before_at: datetime | None
    idle: bool = False
    uncommitted: int | None = None
    uncommitted_more: bool = False
    pulls: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def newly(self, moment: datetime) -> bool:
        """Return whether the proposed policies delete it by ``moment``, and the stored ones do not."""
        stored = self.before_at is not None and self.before_at <= moment
        return self.goes_at is not None and self.goes_at <= moment and not stored


@dataclass(frozen=True)
class SettingPlan:
    """Policies or object rules. ``server_etag`` is the server's, which an apply sends in ``If-Match``, or ""
    if nothing is set or the server sent no ETag. ``notes`` are for the reviewer, one line each."""

    kind: ClassVar[SettingKind]
    action: Action
    server_etag: str = ""
    changes: tuple[SettingChange, ...] = ()
    notes: tuple[str, ...] = ()
    before: tuple[SettingItem, ...] | None = None
    after: tuple[SettingItem, ...] | None = None

    @property
    def before_etag(self) -> str:
        return setting_etag(self.before)

    @property
    def after_etag(self) -> str:
        return setting_etag(self.after)

    @property
    def shortens(self) -> bool:
        return self.action.writes and self.after is not None


@dataclass(frozen=True)
class PoliciesPlan(SettingPlan):
    """Policies. In ``after``, which is from the tree, a policy without an id gets the server's.
    ``reordered`` says that only the order differs, which does not change which branches are deleted.
    ``fates`` are the branches that are deleted, soonest first. ``deletions`` counts, by horizon, those that
    only the proposed policies delete. ``exempt_branches`` counts those without a creation time."""

    kind = SettingKind.BRANCH_LIFECYCLE
    before: tuple[Policy, ...] | None = None
    after: tuple[Policy, ...] | None = None
    reordered: bool = False
    fates: tuple[BranchFate, ...] = ()
    deletions: Mapping[str, int] = field(default_factory=dict)
    exempt_branches: int = 0

    def deleted(self, moment: datetime, proposed: bool) -> frozenset[str]:
        """Return the branches that the stored or the proposed policies have deleted by ``moment``."""
        gone = ((fate.branch_id, fate.goes_at if proposed else fate.before_at) for fate in self.fates)
        return frozenset(name for name, at in gone if at is not None and at <= moment)

    @property
    def shortens(self) -> bool:
        return super().shortens and not self.reordered


@dataclass(frozen=True)
class ObjectRulesPlan(SettingPlan):
    """Object rules. They delete objects by a commit, and the collector reclaims the storage later."""

    kind = SettingKind.OBJECT_LIFECYCLE
    before: tuple[ObjectRule, ...] | None = None
    after: tuple[ObjectRule, ...] | None = None

    @property
    def tightened(self) -> bool:
        """Whether a rule is added or changed, so that objects may expire that were kept."""
        return any(change.action is not Action.CLEAR for change in self.changes)


@dataclass(frozen=True)
class BranchesPlan:
    """The branches of a repository and what ``branches run`` does to each. An apply deletes none of them.

    Ages are as of ``as_of``. ``deletions`` counts, by horizon, the branches that are deleted by then without
    new writes. ``totals`` has the consequences of the deletions that are due, under the rules after the plan,
    at ``now``, ``plus_7_days``, ``plus_30_days`` and ``settled``. It is empty without deletions or rules.
    ``unknown`` says why the branches could not be inspected.
    """

    as_of: datetime
    branches: tuple[BranchRow, ...] = ()
    observed_since: datetime | None = None
    deletions: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[str, MomentTotal] = field(default_factory=dict)
    objects_unknown: str = ""
    notes: tuple[str, ...] = ()
    unknown: str = ""

    @property
    def expired(self) -> int:
        """The number of branches that the next run deletes or announces for deletion."""
        return sum(1 for row in self.branches if row.is_expired)


RECORD_BYTES = 17
NOT_IN_DOCUMENT = {"not_in_document": True}
"""Metadata of a field that is not in the document of a plan."""
OPTIONAL = {"optional": True}
"""Metadata of a field that documents omit if it is None."""
INLINE_RECORDS = 2_000
"""The maximum number of records per repository in the plan file itself."""


class Bit(IntFlag):
    """Why there is a record of an object or a commit."""

    NOW = 1
    """The object expires now."""
    WEEK = 2
    """It expires within seven days, without new writes."""
    BACKLOG = 4
    """The stored rules do not keep it either."""
    COMMIT_NOW = 8
    COMMIT_WEEK = 16


@dataclass(frozen=True)
class Shown:
    """The records of one repository: their number and SHA-256. If there are few, ``inline`` has them in
    base64. Otherwise they are in the file beside the plan, and in ``data`` after that file was read."""

    records: int
    sha256: str
    inline: str = ""
    data: bytes | None = field(default=None, compare=False, repr=False, metadata=NOT_IN_DOCUMENT)

    @classmethod
    def of(cls, data: bytes) -> Shown:
        count = len(data) // RECORD_BYTES
        inline = base64.b64encode(data).decode() if count <= INLINE_RECORDS else ""
        return cls(count, hashlib.sha256(data).hexdigest(), inline, data)

    def is_of(self, data: bytes) -> bool:
        size = self.records * RECORD_BYTES
        return len(data) == size and hashlib.sha256(data).hexdigest() == self.sha256

    def read(self) -> Records | None:
        """Return the records, or None if the file beside the plan was not read. Raises ValueError if they do
        not belong to the plan."""
        # Imported here so that commands that read no plan start without numpy.
        from lakeplan.values.shown_records import Records

        data = self.data
        if data is None and self.records and not self.inline:
            return None
        if data is None:
            data = base64.b64decode(self.inline, validate=True)
        if not self.is_of(data):
            raise ValueError("the recorded objects do not belong to the plan")
        return Records(data)


@dataclass(frozen=True)
class ValueChange:
    """A value that differs. ``path`` is ``default_retention_days`` or ``branches/<branch id>``. None means
    that the value is not set."""

    path: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class HorizonImpact:
    """The effect of a change at one moment. ``commits_expire`` counts the commits that the server keeps by
    the stored rules but not by the proposed ones. ``objects_expire`` is the upper bound of distinct addresses
    for which the same is true. Those at risk are the part that the documented rule keeps. ``objects_kept``
    counts what the stored rules keep of the objects that were read. Objects are None if they are unknown."""

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
        """The objects that expire, as a percentage of those that are kept before the change."""
        if self.objects_expire is None:
            return None
        if not self.objects_expire:
            return 0.0
        return 100.0 * self.objects_expire / self.objects_kept if self.objects_kept else 100.0


class ImpactStatus(str, Enum):
    """``simulated``: objects were read. ``unaffected``: no commit expires or is kept again, so no object
    does. ``unknown``: objects could not be read, which a gate refuses. ``not_asked``: nothing changes, or
    ``--simulate none`` on a repository without writes."""

    SIMULATED = "simulated"
    UNAFFECTED = "unaffected"
    UNKNOWN = "unknown"
    NOT_ASKED = "not_asked"


@dataclass(frozen=True)
class TagLoss:
    """A tag whose commit loses objects, now or at a later horizon. ``objects`` and ``size_bytes`` count
    everything that it loses by the last horizon."""

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
    """The data that the stored rules already let expire, whether or not this plan is applied. Objects are
    None without ``--backlog``."""

    commits: int
    objects: int | None = None
    size_bytes: int | None = None


STAGED_DATA = "upper bounds: uncommitted changes were not read and can only reduce these numbers"
"""Part of ``blind_to`` of every impact. Plans and pages say it once."""


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
    """SHA-256 over all commits that are kept now and the verdicts that keep them. Impacts with equal digests
    are equal."""
    blind_to: tuple[str, ...] = ()
    """What was not read, as sentences: always uncommitted changes, and dangling commits with
    ``--read-only``."""
    shown: Shown | None = None
    """The objects that expire, or None if nothing was judged or there are too many."""

    @property
    def now(self) -> HorizonImpact | None:
        return self.horizons.get(Horizon.NOW.value)


class GateOutcome(str, Enum):
    PASSED = "passed"
    WARNED = "warned"
    REFUSED = "refused"
    ALLOWED = "allowed"
    OVERRIDDEN = "overridden"


APPLY, BRANCHES_RUN = "apply", "lifecycle run"
"""The commands that gates refuse."""


@dataclass(frozen=True)
class GateResult:
    """The result of one gate. ``scope`` is ``server/name`` or ``plan``. ``value`` and ``limit`` are in
    ``unit``. ``stops`` is the command that does not run if the gate refuses."""

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
    """The reason why a repository could not be planned."""

    message: str
    where: str = ""
    hint: str = ""
    exit_code: int = 1


@dataclass(frozen=True)
class WeakenedSetting:
    """A safety setting that is weaker in the checked-out tree than in the base tree. ``scope`` is ``tree`` or
    ``server/name``, ``path`` is as the tree writes it, ``before`` and ``after`` are text, and ``where`` is
    the place in the checked-out tree, if there is one."""

    scope: str
    path: str
    before: str
    after: str
    where: str = ""


@dataclass(frozen=True)
class SweepGuard:
    """The stricter of a tree and its base for the sweep of one repository: thresholds and protected tags, the
    holds of both, and of each setting the value that deletes less."""

    safety: Safety
    holds: tuple[Hold, ...]
    settings: SweepSettings


@dataclass(frozen=True)
class RepositoryPlan:
    """One repository of the plan.

    ``branches`` maps every branch to its HEAD at the time of the plan. An apply expands patterns over these
    branches only. ``unexpanded`` maps branches that appeared later to the days of their pattern.
    ``creation_date`` (epoch seconds) and ``storage_namespace`` distinguish repositories of the same name.
    ``action``, ``before``, ``after`` and ``changes`` describe the GC rules, without the rules of pins.
    ``branch_lifecycle`` and ``object_lifecycle`` are set if the tree manages them on the server.
    ``lifecycle`` is set if lakeplan enforces the policies, and an apply writes nothing of it.
    ``cost_per_gb_month`` is the server's price, if the tree has one. ``pins`` is None if no pins exist and
    the tree requires none.
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
    """Held branches that the server's policies would delete, as sentences. The plan file has only the gates
    that name them."""

    @property
    def key(self) -> str:
        return f"{self.server}/{self.name}"

    def is_of(self, creation_date: int, storage_namespace: str) -> bool:
        """Return whether a live repository is the planned one and not another with the same name. Redacted
        plans have a digest of the namespace."""
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
        """The policies and object rules that the tree manages on the server."""
        return tuple(s for s in (self.branch_lifecycle, self.object_lifecycle) if s is not None)

    @property
    def writes(self) -> bool:
        """Whether an apply writes anything: rules, pins, policies or object rules."""
        return self.overall.writes

    @property
    def impact_known(self) -> bool:
        """Whether the objects that expire are known. The effect of object rules is not simulated."""
        now, rules = self.impact.now, self.object_lifecycle
        tightened = rules is not None and rules.tightened
        return now is not None and now.objects_expire is not None and not tightened

    @property
    def overall(self) -> Action:
        """The action of the settings that are written if it is the same for all, otherwise ``change``."""
        pins = Action.CHANGE if self.pins is not None and self.pins.writes else Action.NONE
        actions = {a for a in (self.action, pins, *(s.action for s in self.settings)) if a.writes}
        if not actions:
            return Action.NONE
        return actions.pop() if len(actions) == 1 else Action.CHANGE

    @property
    def shortens(self) -> bool:
        """Whether some data may be kept for less time than before. Such writes are made last."""
        retires = self.pins is not None and bool(self.pins.of(PinState.RETIRED))
        return retires or shortens(self.before, self.after) or any(s.shortens for s in self.settings)


def shortens(before: GcRules | None, after: GcRules | None) -> bool:
    """Return whether any branch, or the default, has fewer days. Unset rules keep everything, because the
    collector does not run without rules."""
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
    """The plan of one or more repositories.

    ``tree_digest`` identifies the tree (``Tree.digest``); ``tree_commit`` is its git commit, if it has one.
    ``allowed`` lists the gates that ``--allow`` overrode. ``base`` is the git commit of ``--base``:
    ``loosenings`` are the safety settings that are weaker than in the base tree. Gates were judged by the
    stricter thresholds of the two trees, and ``impact_tolerance_percent`` and ``max_plan_age_seconds`` are
    the stricter values, for the apply. ``sweep_guards`` has, by ``server/name``, the settings of ``apply
    --sweep`` if those of the tree alone are weaker. ``runner`` is None if no range was read."""

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
    loosenings: tuple[WeakenedSetting, ...] = ()
    impact_tolerance_percent: float | None = None
    max_plan_age_seconds: int | None = None
    sweep_guards: Mapping[str, SweepGuard] = field(default_factory=dict)
    runner: RunnerChoice | None = None
    same_as_base: frozenset[str] = field(default=frozenset(), metadata=NOT_IN_DOCUMENT)
    """``server/name`` of the repositories that the tree configures in the same way as the base tree. Not in
    the plan file."""
    tree_name: str = ""
    """The name of the tree; "" if it has none."""
    what_if: tuple[str, ...] | None = field(default=None, metadata=OPTIONAL)
    """The settings of ``--set``, each ``PATH=VALUE``. A plan with any is never applied."""

    @property
    def writes(self) -> tuple[RepositoryPlan, ...]:
        return tuple(r for r in self.repositories if r.writes and r.failure is None)

    @property
    def failed(self) -> tuple[RepositoryPlan, ...]:
        return tuple(r for r in self.repositories if r.failure is not None)

    @property
    def refused(self) -> tuple[GateResult, ...]:
        results = [*self.gates, *(g for r in self.repositories for g in r.gates)]
        return tuple(g for g in results if g.outcome is GateOutcome.REFUSED)

    @property
    def blocked(self) -> tuple[GateResult, ...]:
        """Gates that refuse an apply. The others refuse ``branches run``."""
        return tuple(g for g in self.refused if g.stops == APPLY)

    def count(self, action: Action) -> int:
        return sum(1 for r in self.repositories if r.failure is None and r.overall is action)
