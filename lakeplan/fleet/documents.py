"""The documents of an audit (``schemas/audit.v1.json``) and of a storage report. Times are ISO 8601 in
UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from lakeplan.sweep.documents import CollectorRunRow
from lakeplan.values.desired import PriceRow
from lakeplan.values.documents import ErrorRow
from lakeplan.values.rules import RulesBody
from lakeplan.values.simulation import AmountRow


class AuditCommits(TypedDict):
    """The number of commits, and the numbers that each rule keeps. ``at_risk`` counts those that the
    documented rule keeps but the server's walk does not. ``dangling_seen`` says whether commits that no
    branch or tag reaches were read."""

    total: int
    branches: int
    tags: int
    kept_by_server: int
    kept_by_rule: int
    at_risk: int
    dangling_seen: bool


class DestroyedRow(TypedDict):
    """Objects that should be stored but are gone. A ``listing`` counts all of them. A ``sample`` finds that
    ``gone`` of ``asked`` objects are gone. The share of all objects lies between the two percentages, with a
    confidence of 95 %."""

    how: Literal["listing", "sample"]
    amount: AmountRow | None
    asked: int | None
    gone: int | None
    low_percent: float
    high_percent: float
    examples: list[str]


class NextRunRow(TypedDict):
    """The objects that the server's collector would delete next, with ``at_risk`` and ``tagged`` as parts of
    it. ``too_young`` counts expired objects younger than ``min_age_seconds``, which a later run would delete.
    It is None if ages are unknown. ``expired`` then contains these objects."""

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
    """Stored objects in no commit that are older than a day. ``staged`` is None without a recent list of
    uncommitted objects. ``never_committed`` then contains staged objects."""

    never_committed: AmountRow
    staged: AmountRow | None


class UncommittedRow(TypedDict):
    """Uncommitted changes that the server reports: how many ``changes``, and on how many ``branches`` of
    those ``asked`` about. ``more`` says that not all changes of some branch were counted."""

    asked: int
    branches: int
    changes: int
    more: bool


class RemnantsRow(TypedDict):
    """The data in a bucket other than current objects. None means unknown, and "" means no upload.
    ``complete`` says whether everything was counted."""

    noncurrent: AmountRow | None
    delete_markers: int | None
    unfinished_uploads: int | None
    oldest_upload: str
    complete: bool


class PolicyRow(TypedDict):
    """A stored branch policy as the server writes it, with ages in seconds."""

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
    """One repository. If ``estimated``, storage was not listed (``not_listed`` says why), so figures come
    from metadata and include objects that are gone. ``destroyed`` is about objects that the documented rule
    keeps, and ``destroyed_tagged`` about objects that only tags name. Both are also None if there are no such
    objects. ``policies`` is None if the server has none or they cannot be read."""

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
    """The document of an audit. ``failed`` has repositories that could not be read, by ``server/name``.
    ``unfinished`` has those that were not tried, because the audit was stopped."""

    format: Literal["lakeplan.audit/v1"]
    at: str
    servers: Mapping[str, str]
    repositories: list[AuditedRow]
    failed: Mapping[str, ErrorRow]
    unfinished: list[str]


# ---- storage
class HolderRow(TypedDict):
    """A branch or tag: the data that it holds, and the part that nothing else holds."""

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
    and an object in no commit has no path. None means unknown, without a listing."""

    prefix: str
    depth: int
    held: AmountRow
    reclaimable: AmountRow
    young: AmountRow | None
    uncommitted: AmountRow | None
    unreferenced: AmountRow | None


class StoredAgeRow(AmountRow):
    """Objects written this many days ago. If ``to_days`` is None, the age has no upper limit."""

    from_days: int
    to_days: int | None


class StoredClassRow(AmountRow):
    """Objects of one storage class, which is "" if the store names none."""

    storage_class: str


class OwnerRow(TypedDict):
    """Repositories of one owner, or without an owner. A figure is None if it is unknown for one of them."""

    owner: str | None
    repositories: int
    stored: AmountRow | None
    held: AmountRow
    reclaimable: AmountRow
    unreferenced: AmountRow | None
    noncurrent: AmountRow | None


class GrowthRow(TypedDict):
    """Growth since an earlier report. It is negative if there is less now, and None if the two reports cannot
    be compared."""

    since: str
    stored: AmountRow | None
    held: AmountRow | None


class StoredRow(TypedDict):
    """One repository. With a listing, ``stored`` is the sum of ``held``, ``uncommitted``, ``young``,
    ``reclaimable`` and ``unreferenced``. None means unknown."""

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
    """A storage report. ``failed`` and ``unfinished`` are as in an audit. ``owners`` is present if a tree
    names them."""

    format: Literal["lakeplan.storage/v1"]
    at: str
    servers: Mapping[str, str]
    repositories: list[StoredRow]
    owners: NotRequired[list[OwnerRow]]
    failed: Mapping[str, ErrorRow]
    unfinished: list[str]
