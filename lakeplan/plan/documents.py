"""The types of the JSON documents of apply and drift. Moments are ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from lakeplan.values.desired import PriceRow
from lakeplan.values.rules import ActionName
from lakeplan.values.simulation import AmountRow

OutcomeName = Literal["applied", "already", "failed", "uncertain"]
"""``review.run.Outcome``."""
EndName = Literal["applied", "nothing", "partly", "failed", "refused", "stale"]
"""How a whole apply ended."""
SettingName = Literal["gc", "pins", "branch_lifecycle", "object_lifecycle"]
ClassName = Literal[
    "server-edited", "tree-ahead", "patterns-stale", "pins-missing", "released", "unmanaged-new"
]
"""``drift_compare.DriftClass``."""


# ---- apply
class ResultRow(TypedDict):
    """``review.run.Applied``."""

    repository: str
    setting: SettingName
    action: ActionName
    outcome: OutcomeName
    before_etag: str
    after_etag: str
    message: str
    hint: str
    exit_code: int


class ApplyDocument(TypedDict):
    """The document of ``schemas/apply.v1.json``."""

    format: Literal["lakeplan.apply/v1"]
    run_id: str
    end: EndName
    refusals: list[str]
    hint: str
    planned_again: list[str]
    results: list[ResultRow]
    not_written: list[str]
    unexpanded: Mapping[str, list[str]]
    elsewhere: list[str]
    note: str
    summary: Mapping[OutcomeName, int]


# ---- drift
ValueRow = TypedDict(
    "ValueRow",
    {"class": ClassName, "path": str, "applied": int | None, "stored": int | None, "wanted": int | None},
)
"""Days of a branch, or the default, that drifted."""
ItemRow = TypedDict(
    "ItemRow",
    {
        "class": ClassName,
        "setting": Literal["branch_lifecycle", "object_lifecycle"],
        "item": str,
        "applied": Mapping[str, str],
        "stored": Mapping[str, str],
        "wanted": Mapping[str, str],
    },
)
"""A policy or an object rule that drifted. A side without the item is empty."""


class LastApplyRow(TypedDict):
    run_id: str
    at: str


class LastAppliedRow(TypedDict):
    """``baselines.MatchingRun``: the run that last wrote the values or found that they agree with the
    tree."""

    run_id: str
    at: str
    command: str


class DriftedRow(TypedDict):
    repository: str
    owner: str | None
    source: str
    classes: list[ClassName]
    values: list[ValueRow]
    items: list[ItemRow]
    last_applied: LastAppliedRow | None
    note: str


class NotComparedRow(TypedDict):
    repository: str
    owner: str | None
    message: str
    where: str
    hint: str


class LastSweepRow(TypedDict):
    """A ``state.sweeps.RecordedSweep``."""

    mark_id: str
    at: str
    finished: bool
    deleted: AmountRow
    failed: AmountRow
    saved: AmountRow
    pending: AmountRow


class RecordedRow(TypedDict):
    """The state's records of a repository, whether or not it drifted."""

    repository: str
    owner: str | None
    failed: bool
    cost_per_gb_month: NotRequired[PriceRow]
    last_apply: LastApplyRow | None
    last_sweep: LastSweepRow | None
    quarantined: AmountRow | None
    reclaimed: AmountRow | None


class DriftSummary(TypedDict):
    checked: int
    drifted: int
    failed: int
    classes: Mapping[ClassName, int]


class WrittenRow(TypedDict):
    """A value of the tree that was set to the server's: days, or the differing values of a policy or an
    object rule, as text. None: not set. ``path`` is that of the value, or the item's kind and id."""

    repository: str
    path: str
    before: int | str | None
    after: int | str | None
    file: str


class NotWrittenRow(TypedDict):
    """A value that was not written. ``path`` is that of the value, or the kind and id of a policy or an
    object rule, or the kind alone for the whole list."""

    repository: str
    path: str
    reason: str


class DriftDocument(TypedDict):
    """The document of ``schemas/drift.v1.json``. ``repositories`` are those that drifted. Only ``--write``
    adds ``written`` and ``not_written``."""

    format: Literal["lakeplan.drift/v1"]
    as_of: str
    tree_commit: str | None
    repositories: list[DriftedRow]
    failures: list[NotComparedRow]
    recorded: list[RecordedRow]
    notes: list[str]
    summary: DriftSummary
    written: NotRequired[list[WrittenRow]]
    not_written: NotRequired[list[NotWrittenRow]]
