"""The JSON documents of the sweep commands, as in their schemas. Times are ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from lakeplan.values.desired import PriceRow
from lakeplan.values.documents import ErrorRow, GateRow
from lakeplan.values.rules import RulesBody
from lakeplan.values.simulation import AmountRow, PartRow, RunnerChoiceRow
from lakeplan.values.sweep import SettingsRow

ClassName = Literal[
    "backlog", "newly_expired", "never_committed", "at_risk", "protected", "uncertain_address", "near_limit"
]
"""``values.sweep.MarkClass``."""


class PrefixRow(TypedDict):
    """The objects of a mark at a prefix (None: never committed, so without a path). ``kept`` counts objects
    of the mark that are not deleted, not all objects there."""

    prefix: str | None
    goes: AmountRow
    kept: AmountRow


class TreeRow(PrefixRow):
    """A folder of a tree in order of prefixes. It counts all objects below it."""

    depth: int


class AgeRow(AmountRow):
    """Objects written at least ``from_days`` and less than ``to_days`` (None: no limit) before the mark."""

    from_days: int
    to_days: int | None


class LastCommitRow(AmountRow):
    """The last commit that contained the objects."""

    commit_id: str
    created: str | None


class KeeperName(TypedDict):
    """A branch, tag, hold or repository. ``prefix``: that of a hold on a prefix."""

    kind: str
    name: str
    prefix: str | None


_ClassOf = TypedDict("_ClassOf", {"class": ClassName})


class KeeperRow(KeeperName, _ClassOf, AmountRow):
    """A branch, tag or hold that keeps objects of a class. An object with several keepers counts for each."""


class ObjectRow(_ClassOf):
    """An object of a mark. ``paths``: at most 10. ``last_commit_id`` and ``last_commit_created`` are None
    when it was never committed, ``kept_by`` when nothing keeps it."""

    address: str
    paths: list[str]
    size_bytes: int
    modified: str | None
    last_commit_id: str | None
    last_commit_created: str | None
    kept_by: list[KeeperName] | None


class ObjectsDocument(TypedDict):
    """The document of ``schemas/mark-objects.v1.json``. ``more``: how many objects are left out."""

    format: Literal["lakeplan.mark-objects/v1"]
    mark_id: str
    repository: str
    storage_namespace: str
    classes: list[ClassName]
    prefix: str | None
    objects: list[ObjectRow]
    more: int


class ForecastRow(TypedDict):
    """The forecast of the plan of the mark's rules, made ``as_of``: what newly expires by the mark's date is
    at least ``least`` and at most ``most`` (None: the forecast ends before). ``found``: what is newly
    expired."""

    plan_digest: str
    as_of: str
    least: AmountRow | None
    most: AmountRow | None
    found: AmountRow
    differs: Literal["more", "fewer", "no"]


class ContentsRow(TypedDict):
    """The contents of a mark (``sweep.contents``). Prefixes, ages and last commits are those of objects that
    would be deleted."""

    depth: int
    classes: Mapping[ClassName, AmountRow]
    prefixes: list[PrefixRow]
    more_prefixes: int
    ages: list[AgeRow]
    last_commits: list[LastCommitRow]
    more_last_commits: int
    kept_by: list[KeeperRow]
    more_kept_by: int
    forecast: ForecastRow | None
    digest: NotRequired[str]


class RulesBeforeRow(TypedDict):
    """The rules before their last recorded change. ``none``: none were set."""

    known: Literal["rules", "none", "unknown"]
    rules: RulesBody | None


class MarkGateRow(GateRow):
    horizon: str
    stops: str


class MarkRow(TypedDict):
    """A mark as it is stored."""

    format: Literal["lakeplan.mark/v1"]
    mark_id: str
    server: str
    repository: str
    endpoint_url: str
    storage_namespace: str
    repository_created: int
    marked_at: str
    cutoff: str
    looked_at: str
    lowered_at: str
    rules: RulesBody
    rules_before: RulesBeforeRow
    settings: SettingsRow
    tree_settings: SettingsRow
    held_prefixes: list[str]
    goes: AmountRow
    candidates: AmountRow
    classes: Mapping[ClassName, AmountRow]
    going: list[PartRow]
    kept: list[PartRow]
    seen_sha256: str
    collector_runs: list[str]
    unreadable: Mapping[str, str]
    gates: list[MarkGateRow]
    by: str
    tree_commit: str | None
    runner: RunnerChoiceRow | None
    contents: NotRequired[ContentsRow]
    """Only where the mark is shown for approval; never stored."""
    cost_per_gb_month: NotRequired[PriceRow]
    """Never stored."""


class MarkDocument(MarkRow):
    """A mark, and when it may be swept."""

    sweep_from: str
    sweep_until: str


class MarkPageDocument(TypedDict):
    """The data of a mark's page. ``tree``: folders in order of their prefixes."""

    mark: MarkDocument
    tree: list[TreeRow]


class MarksDocument(TypedDict):
    """The document of ``schemas/marks.v1.json``. ``skipped`` and ``failed`` are by ``server/name``."""

    format: Literal["lakeplan.marks/v1"]
    marks: list[MarkDocument]
    skipped: Mapping[str, str]
    failed: Mapping[str, ErrorRow]


ListedState = Literal[
    "marked", "approved", "too_old", "unfinished", "swept", "quarantined", "purged", "unknown"
]
"""``too_old``: the mark was never swept and can no longer be. ``unfinished``: its sweep began and did not
end. ``unknown``: the state's record of the mark, or of the repository's sweeps, is damaged."""


class ListedMark(TypedDict):
    """A mark in a list. ``repository`` is ``?`` and ``goes`` None if the state's record is damaged.
    ``deleted`` and what follows are None for marks that were not swept. ``restored`` counts deleted objects,
    ``purged`` their copies: at least that many if ``purging``, which means that a purge has not recorded its
    end."""

    mark_id: str
    repository: str
    marked_at: str
    by: str
    approved: bool
    state: ListedState
    goes: AmountRow | None
    deleted: AmountRow | None
    restored: int | None
    purged: int | None
    purging: bool
    swept_at: str | None


class MarkListDocument(TypedDict):
    format: Literal["lakeplan.marks/v1"]
    marks: list[ListedMark]


class ApprovalRow(TypedDict):
    """A ``mark_record.Approval`` without the inputs of the gates."""

    mark_id: str
    digest: str
    shown: str | None
    objects: int
    size_bytes: int
    by: str
    at: str
    reason: str


class ApprovalDocument(ApprovalRow):
    repository: str


class CheckSummary(TypedDict):
    """The result of a check before or after a sweep. ``damaged`` counts ranges and metaranges. ``complete``:
    no object that HEADs, rules, protected tags or holds name is missing. ``tags_only``: objects that only
    other tags name."""

    as_of: str
    complete: bool
    named: AmountRow
    missing: AmountRow
    resized: AmountRow
    tags_only: int
    damaged: int
    lost_copies: int


class ChecksRow(TypedDict):
    before: CheckSummary
    after: CheckSummary


class SweepDocument(TypedDict):
    """The document of ``schemas/sweep.v1.json``: what a run observed."""

    format: Literal["lakeplan.sweep/v1"]
    mark_id: str
    repository: str
    storage_namespace: str
    at: str
    finished: bool
    closed: bool
    problem: str
    deleted: AmountRow
    failed: AmountRow
    saved: AmountRow
    pending: AmountRow
    reasons: Mapping[str, int]
    verified: int
    came_back: int | None
    looks: int
    approval: ApprovalRow | None
    runner: RunnerChoiceRow | None
    settings: SettingsRow
    settings_from: Mapping[str, Literal["approval", "mark", "tree"]]
    not_yet_reclaimed: str
    official_run_id: NotRequired[str]
    note: NotRequired[str]
    restored: NotRequired[int]
    purged: NotRequired[int]
    """Like ``restored``, only when a sweep in quarantine is printed; never stored."""
    contents: NotRequired[ContentsRow]
    checks: NotRequired[ChecksRow]
    """From ``sweep run --check``; never stored."""
    cost_per_gb_month: NotRequired[PriceRow]


class AfterApplyDocument(TypedDict):
    """The marks and sweeps of ``apply --sweep``."""

    format: Literal["lakeplan.apply-sweep/v1"]
    marked: MarksDocument
    waiting: Mapping[str, str]
    swept: list[SweepDocument]
    failed: Mapping[str, ErrorRow]


TraceState = Literal["marked", "approved", "kept", "deleted", "quarantined", "purged", "saved", "failed"]


class TraceRow(TypedDict):
    """A mark that names the object. State ``kept``: the mark keeps it. ``quarantined``: a copy can be
    restored. ``purged``: the copy was deleted. ``saved``: the sweep kept it. ``swept_at``: the end of the
    sweep's last run. ``restore``: a command."""

    mark_id: str
    marked_at: str
    mark_class: ClassName
    kept_by: list[KeeperName]
    state: TraceState
    why: str
    approved_by: str | None
    approved_at: str | None
    approval_reason: str | None
    swept_at: str | None
    restore: str | None


class RestoreDocument(TypedDict):
    """The document of ``schemas/restore.v1.json``."""

    format: Literal["lakeplan.restore/v1"]
    mark_id: str
    repository: str
    at: str
    by: Mapping[str, object]
    restored: int
    already_there: int
    failed: int
    failures: Mapping[str, str]
    collectable_again: int | None
    note: str


class PurgedRow(TypedDict):
    """A purged quarantine. ``needed``: kept copies of objects that are needed and not at their address.
    ``newest``: when the last copy was written."""

    repository: str
    mark_id: str
    deleted: int
    size_bytes: int
    kept: int
    kept_reasons: Mapping[str, int]
    needed: int
    failed: int
    failures: Mapping[str, str]
    problem: str
    newest: str


class NotPurgedRow(TypedDict):
    repository: str
    mark_id: str
    message: str
    hint: str


class PurgeDocument(TypedDict):
    """The document of ``schemas/purge.v1.json``."""

    format: Literal["lakeplan.purge/v1"]
    older_than: str | None
    quarantines: list[PurgedRow]
    refused: list[NotPurgedRow]


class CollectorRunRow(TypedDict):
    """A run. ``objects``: the number of addresses in its report. lakeFS's jobs report what they marked."""

    run_id: str
    by: str
    objects: int | None
    success: bool | None
    started: str
    cutoff: str
    note: str


class CollectorRunsDocument(TypedDict):
    """The document of ``schemas/collector-runs.v1.json``. Both maps are by ``server/name``."""

    format: Literal["lakeplan.collector-runs/v1"]
    repositories: Mapping[str, list[CollectorRunRow]]
    failed: Mapping[str, ErrorRow]


NamedBy = Literal["head", "rules", "tag", "protected-tag", "hold"]
"""What names an object that must be stored: a HEAD, a commit that the rules keep, a tag, a protected
tag (``kept_tags``), or a hold."""


class NamedCommitsRow(TypedDict):
    """The number of commits that must be complete, by reason. A commit may have several."""

    total: int
    heads: int
    rules: int
    tags: int
    holds: int


class RunFinding(TypedDict):
    """The last collector run whose records name an object. ``started`` is as written in its report."""

    run_id: str
    by: str
    started: str


class FindingRow(TypedDict):
    """An object that is missing, or whose size or checksum differs from its entries. ``commit_id``: a commit
    that names it, preferably a HEAD. ``branches``: those with that HEAD, or some that contain the commit.
    ``quarantine``: the mark whose quarantine has a copy, or ""."""

    problem: Literal["missing", "size", "checksum"]
    branches: list[str]
    tags: list[str]
    commit_id: str
    paths: list[str]
    address: str
    size_bytes: int
    stored_bytes: int | None
    named_by: list[NamedBy]
    collector_run: RunFinding | None
    quarantine: str


class DamagedRow(TypedDict):
    """A range or metarange that is missing or does not match its id. ``paths``: the first and the last of a
    range."""

    kind: Literal["metarange", "range"]
    id: str
    message: str
    branches: list[str]
    commit_id: str
    named_by: list[NamedBy]
    entries: int
    paths: list[str]


class QuarantineRow(TypedDict):
    """A quarantine compared with the records of its sweep. ``recorded``: what was moved there. ``present``:
    the part of that which exists. ``lost``: copies that are neither present, restored nor purged.
    ``addresses`` name some of the ``lost`` and ``resized``. ``readable`` False: the mark or a record of its
    sweep cannot be read, so the expected content is unknown. ``present`` then counts all copies, and ``note``
    says why."""

    mark_id: str
    readable: bool
    recorded: AmountRow
    present: AmountRow
    restored: AmountRow
    purged: AmountRow
    lost: AmountRow
    resized: AmountRow
    addresses: list[str]
    note: str


class ReadRow(TypedDict):
    """The result of ``--read-data``. ``matched`` counts objects that have the checksum of their entry, and
    ``differs`` those that have another. ``incomparable``: the entry has no MD5, or the store's ETag is not
    one. ``unreadable``: archived or missing."""

    percent: float
    read: AmountRow
    matched: int
    differs: int
    incomparable: int
    unreadable: int


class CheckedRow(TypedDict):
    """One repository. ``named``: objects that commits name inside the namespace; ``missing`` and ``resized``
    are among them. ``unusual``: keys that could not be requested. ``unconfirmed``: how many count as missing
    because of a listing alone."""

    repository: str
    storage_namespace: str
    as_of: str
    rules: bool
    commits: NamedCommitsRow
    metaranges: int
    ranges: int
    named: AmountRow
    outside: AmountRow
    missing: AmountRow
    resized: AmountRow
    unusual: int
    unconfirmed: int
    findings: list[FindingRow]
    damaged: list[DamagedRow]
    quarantine: list[QuarantineRow]
    holds: list[str]
    read: ReadRow | None
    runner: RunnerChoiceRow | None
    complete: bool


class CheckDocument(TypedDict):
    """The document of ``schemas/check.v1.json``. ``failed``: repositories that could not be checked, by
    ``server/name``."""

    format: Literal["lakeplan.check/v1"]
    at: str
    repositories: list[CheckedRow]
    failed: Mapping[str, ErrorRow]
