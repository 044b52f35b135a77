"""The JSON documents of the sweep commands, as their schemas have them. Moments are ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from lakeplan.values.desired import PriceRow
from lakeplan.values.documents import ErrorRow, GateRow
from lakeplan.values.rules import RulesBody
from lakeplan.values.simulation import AmountRow, ChoiceRow
from lakeplan.values.sweep import PartRow, SettingsRow

ClassName = Literal[
    "backlog", "newly_expired", "never_committed", "at_risk", "protected", "uncertain_address", "near_limit"
]
"""``values.sweep.MarkClass``."""


class MarkGateRow(GateRow):
    horizon: str
    stops: str


class MarkRow(TypedDict):
    """A mark as it is stored. What stored marks of earlier releases lack is null here."""

    format: Literal["lakeplan.mark/v1"]
    mark_id: str
    server: str
    repository: str
    endpoint_url: str
    storage_namespace: str
    repository_created: int | None
    marked_at: str
    cutoff: str
    looked_at: str
    lowered_at: str
    rules: RulesBody
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
    runner: ChoiceRow | None
    cost_per_gb_month: NotRequired[PriceRow]
    """Never stored."""


class MarkDocument(MarkRow):
    """A mark, and when it may be swept."""

    sweep_from: str
    sweep_until: str


class MarksDocument(TypedDict):
    """``schemas/marks.v1.json``. ``skipped`` and ``failed`` are by ``server/name``."""

    format: Literal["lakeplan.marks/v1"]
    marks: list[MarkDocument]
    skipped: Mapping[str, str]
    failed: Mapping[str, ErrorRow]


class ListedMark(TypedDict):
    """``repository`` is ``?`` where the state's record is damaged."""

    mark_id: str
    repository: str
    marked_at: str
    by: str
    approved: bool


class MarkListDocument(TypedDict):
    format: Literal["lakeplan.marks/v1"]
    marks: list[ListedMark]


class ApprovalRow(TypedDict):
    """``sweep.values.Approval`` without what the gates were judged by."""

    mark_id: str
    digest: str
    objects: int
    size_bytes: int
    by: str
    at: str
    reason: str


class ApprovalDocument(ApprovalRow):
    repository: str


class SweepDocument(TypedDict):
    """``schemas/sweep.v1.json``: what was seen, nothing that was only meant. Stored summaries of earlier
    releases may lack what ``neighbours.read_summary`` does not require."""

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
    runner: ChoiceRow | None
    settings: SettingsRow
    settings_from: NotRequired[Mapping[str, Literal["approval", "mark", "tree"]]]
    not_yet_reclaimed: str
    official_run_id: NotRequired[str]
    note: NotRequired[str]
    cost_per_gb_month: NotRequired[PriceRow]


class AfterApplyDocument(TypedDict):
    """What ``apply --sweep`` marked and swept."""

    format: Literal["lakeplan.apply-sweep/v1"]
    marked: MarksDocument
    waiting: Mapping[str, str]
    swept: list[SweepDocument]
    failed: Mapping[str, ErrorRow]


class RestoreDocument(TypedDict):
    """``schemas/restore.v1.json``."""

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
    """``needed``: kept copies of what something needs, and that is not at its address. ``newest``: when the
    last copy was written."""

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
    """``schemas/purge.v1.json``."""

    format: Literal["lakeplan.purge/v1"]
    older_than: str | None
    quarantines: list[PurgedRow]
    refused: list[NotPurgedRow]


class CollectorRunRow(TypedDict):
    """``objects``: how many addresses a report names, which for lakeFS's jobs is what they marked."""

    run_id: str
    by: str
    objects: int | None
    success: bool | None
    started: str
    cutoff: str
    note: str


class CollectorRunsDocument(TypedDict):
    """``schemas/collector-runs.v1.json``. Both maps are by ``server/name``."""

    format: Literal["lakeplan.collector-runs/v1"]
    repositories: Mapping[str, list[CollectorRunRow]]
    failed: Mapping[str, ErrorRow]
