"""The document of an audit (``schemas/audit.v1.json``). Moments are ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from lakeplan.sweep.documents import CollectorRunRow
from lakeplan.values.desired import PriceRow
from lakeplan.values.documents import ErrorRow
from lakeplan.values.rules import RulesBody
from lakeplan.values.simulation import AmountRow


class AuditCommits(TypedDict):
    """The number of commits, and the numbers that each rule keeps. ``at_risk``: the documented rule keeps
    them, the server's walk does not. ``dangling_seen``: whether commits that no branch or tag leads to were
    read."""

    total: int
    branches: int
    tags: int
    kept_by_server: int
    kept_by_rule: int
    at_risk: int
    dangling_seen: bool


class DestroyedRow(TypedDict):
    """Objects that should be stored and are gone. A ``listing`` counts all of them. A ``sample`` finds
    ``gone`` of ``asked``. The share of all lies between the two percentages, with a confidence of 95 %."""

    how: Literal["listing", "sample"]
    amount: AmountRow | None
    asked: int | None
    gone: int | None
    low_percent: float
    high_percent: float
    examples: list[str]


class NextRunRow(TypedDict):
    """The objects that the server's collector would delete next, with ``at_risk`` and ``tagged`` as parts of
    it. ``too_young``: expired objects younger than ``min_age_seconds``, which a later run would delete. None:
    ages are unknown, and ``expired`` contains these objects."""

    expired: AmountRow
    at_risk: AmountRow
    tagged: AmountRow
    min_age_seconds: int
    too_young: AmountRow | None


class PeriodRow(TypedDict):
    """The objects that would expire if every branch had this many days."""

    days: int
    expired: AmountRow


class LeftoversRow(TypedDict):
    """Stored objects in no commit that are older than a day. ``staged`` None: there is no recent list of
    uncommitted objects, so ``never_committed`` contains staged objects."""

    never_committed: AmountRow
    staged: AmountRow | None


class UncommittedRow(TypedDict):
    """Uncommitted changes that the server reports: on how many ``branches`` of those ``asked`` about, and how
    many. ``more``: not all changes of some branch were counted."""

    asked: int
    branches: int
    changes: int
    more: bool


class RemnantsRow(TypedDict):
    """The data in a bucket other than current objects. None means unknown, and "" no upload. ``complete``:
    everything was counted."""

    noncurrent: AmountRow | None
    delete_markers: int | None
    unfinished_uploads: int | None
    oldest_upload: str
    complete: bool


class PolicyRow(TypedDict):
    """A stored branch policy as the server writes it; ages in seconds."""

    name_patterns: list[str]
    id: NotRequired[str]
    max_age: NotRequired[int]
    max_inactivity_time: NotRequired[int]
    description: NotRequired[str]


class StaleRow(TypedDict):
    branch: str
    days: int


Severity = Literal["data-loss", "cost", "settings"]


class AdviceRow(TypedDict):
    """A problem, and the command that helps, or ""."""

    severity: Severity
    problem: str
    command: str


class AuditedRow(TypedDict):
    """One repository. ``estimated``: storage was not listed (``not_listed`` is why), so figures come from
    metadata and include objects that are gone. ``destroyed`` is of what the documented rule keeps,
    ``destroyed_tagged`` of what only tags name; None also if there is no such object. ``policies`` None: the
    server has none, or they cannot be read."""

    repository: str
    storage_namespace: str
    as_of: str
    rules: RulesBody | None
    policies: list[PolicyRow] | None
    commits: AuditCommits
    objects: AmountRow
    estimated: bool
    not_listed: str
    destroyed: DestroyedRow | None
    destroyed_tagged: DestroyedRow | None
    not_sampled: str
    next_run: NextRunRow
    freeable: AmountRow
    periods: list[PeriodRow]
    leftovers: LeftoversRow | None
    uncommitted: UncommittedRow | None
    remnants: RemnantsRow | None
    stale_branches: list[StaleRow]
    stale_count: int
    nonsense: list[str]
    unknown_branches: list[str]
    collector_runs: list[CollectorRunRow] | None
    advice: list[AdviceRow]
    cost_per_gb_month: NotRequired[PriceRow]


class AuditDocument(TypedDict):
    """The document of an audit. ``failed``: repositories that could not be read, by ``server/name``.
    ``unfinished``: those that were not tried, because the audit was stopped."""

    format: Literal["lakeplan.audit/v1"]
    at: str
    servers: Mapping[str, str]
    repositories: list[AuditedRow]
    failed: Mapping[str, ErrorRow]
    unfinished: list[str]


# ---- storage
class HolderRow(TypedDict):
    """A branch or tag: what it holds, and what nothing else holds."""

    name: str
    held: AmountRow
    exclusive: AmountRow


class ReclaimableRow(TypedDict):
    """The objects that are reclaimable now or will be in this many days, assuming no new commits."""

    days: int
    reclaimable: AmountRow


class ComparedRow(TypedDict):
    """The objects that two branches share, and those that only one of them holds."""

    branches: list[str]
    both: AmountRow
    only_first: AmountRow
    only_second: AmountRow


class PlaceRow(TypedDict):
    """Objects below a prefix of paths; "" is everything. An object counts once for each prefix of its paths,
    and an object in no commit has no path. None is unknown without a listing."""

    prefix: str
    depth: int
    held: AmountRow
    reclaimable: AmountRow
    young: AmountRow | None
    uncommitted: AmountRow | None
    unreferenced: AmountRow | None


class StoredAgeRow(AmountRow):
    """Objects written this many days ago. ``to_days`` None: or more."""

    from_days: int
    to_days: int | None


class StoredClassRow(AmountRow):
    """Objects of one storage class, or "" if the store names none."""

    storage_class: str


class OwnerRow(TypedDict):
    """Repositories of one owner, or of none. A figure is None if it is unknown for one of them."""

    owner: str | None
    repositories: int
    stored: AmountRow | None
    held: AmountRow
    reclaimable: AmountRow
    unreferenced: AmountRow | None
    noncurrent: AmountRow | None


class GrowthRow(TypedDict):
    """Growth since an earlier report: negative if there is less now, None if the two cannot be compared."""

    since: str
    stored: AmountRow | None
    held: AmountRow | None


class StoredRow(TypedDict):
    """One repository. With a listing, ``stored`` is the sum of ``held``, ``uncommitted``, ``young``,
    ``reclaimable`` and ``unreferenced``. None is unknown."""

    repository: str
    storage_namespace: str
    as_of: str
    listed: bool
    not_listed: str
    dangling_seen: bool
    stored: AmountRow | None
    held: AmountRow
    shared: AmountRow
    exclusive: AmountRow
    tags_only: AmountRow
    reclaimable: AmountRow
    periods: list[ReclaimableRow]
    uncommitted: AmountRow | None
    young: AmountRow | None
    unreferenced: AmountRow | None
    noncurrent: AmountRow | None
    branches: list[HolderRow]
    tags: list[HolderRow]
    compared: ComparedRow | None
    prefixes: NotRequired[list[PlaceRow]]
    prefixes_left_out: NotRequired[int]
    ages: NotRequired[list[StoredAgeRow]]
    classes: NotRequired[list[StoredClassRow] | None]
    owner: NotRequired[str | None]
    growth: NotRequired[GrowthRow]
    cost_per_gb_month: NotRequired[PriceRow]


class StorageDocument(TypedDict):
    """A storage report. ``failed`` and ``unfinished`` as in an audit. ``owners`` if a tree names them."""

    format: Literal["lakeplan.storage/v1"]
    at: str
    servers: Mapping[str, str]
    repositories: list[StoredRow]
    owners: NotRequired[list[OwnerRow]]
    failed: Mapping[str, ErrorRow]
    unfinished: list[str]
