"""Marks and their approvals."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from lakeplan.errors import FormatError, StalePlan
from lakeplan.sweep.documents import ApprovalRow, MarkRow, RulesBeforeRow
from lakeplan.values import records
from lakeplan.values.declare import Setting
from lakeplan.values.desired import Safety
from lakeplan.values.documents import encode
from lakeplan.values.plan import GateOutcome, GateResult
from lakeplan.values.records import json_text, utc_text
from lakeplan.values.rules import NO_RULES, GcRules, RulesBefore, rules_from_body
from lakeplan.values.simulation import Amount, MarkClass, Marked, Part, RunnerChoice, deleted_classes
from lakeplan.values.sweep import MARK_FORMAT, SWEEP, SettingsRow, SweepSettings, Versions

MARK_AGAIN = "Run `lakeplan sweep mark` again."
"""The hint of errors about a mark that can no longer be used."""


@dataclass(frozen=True)
class Allowance:
    """A gate that ``--allow`` overrode for one mark, with its figures at that time."""

    gate: str
    unit: str
    value: float | None
    limit: float | None


@dataclass(frozen=True)
class Judged:
    """The settings and figures by which the gates of a mark were judged when it was approved. ``automatic``:
    no person approved it. ``grace_period_seconds``: the server's at that time, if it was reported."""

    safety: Safety
    sweep: SweepSettings
    grace_period_seconds: int | None
    allowed: tuple[Allowance, ...]
    automatic: bool


@dataclass(frozen=True)
class Approval:
    """An approval of a mark. ``digest`` is of the mark's document. ``at`` is ISO 8601. ``shown``: digest of
    the contents that the approver was shown (``contents.contents_digest``), or None if they were not."""

    mark_id: str
    digest: str
    objects: int
    size_bytes: int
    by: str
    at: str
    reason: str
    judged: Judged
    shown: str | None

    def to_row(self) -> ApprovalRow:
        return cast("ApprovalRow", {key: of for key, of in vars(self).items() if key != "judged"})


@dataclass(frozen=True)
class Mark:
    """The objects that a sweep of one repository may delete, and everything they were judged by.

    - ``marked_at``: when the run began. ``cutoff``: nothing that was modified then or later is in the mark.
      ``looked_at``: when uncommitted data and refs were read
    - ``lowered_at``: when a rule was last lowered, or first observed as it is. ``rules_before``: the rules
      before their last recorded change
    - ``settings``: those of the mark. ``tree_settings``: the tree's, without a person's options
    - ``collector_runs``: the runs of collectors before this mark
    - ``unreadable``: the server's repositories that could not be read, with the reasons. While there are any,
      nothing may be deleted
    - ``repository_created``: epoch seconds
    """

    mark_id: str
    server: str
    repository: str
    endpoint_url: str
    storage_namespace: str
    repository_created: int
    marked_at: datetime
    cutoff: datetime
    looked_at: datetime
    lowered_at: datetime
    rules: GcRules
    settings: SweepSettings
    tree_settings: SweepSettings
    held_prefixes: tuple[str, ...]
    marked: Marked
    candidates: Amount
    seen_sha256: str
    collector_runs: tuple[str, ...]
    unreadable: Mapping[str, str]
    gates: tuple[GateResult, ...]
    by: str
    tree_commit: str | None = None
    rules_before: RulesBefore = None

    @property
    def key(self) -> str:
        return f"{self.server}/{self.repository}"

    @property
    def where(self) -> str:
        """The name of the mark in errors."""
        return f"{self.key}: mark {self.mark_id}"

    def stale(self, why: str) -> StalePlan:
        """The error for a mark that can no longer be used."""
        return StalePlan(why, where=self.where, hint=MARK_AGAIN)

    @property
    def to_delete(self) -> Amount:
        """The objects that a sweep may delete."""
        return self.marked.amount(*deleted_classes(self.settings.never_committed))

    @property
    def collects(self) -> bool:
        """Whether a sweep may delete objects that were never committed, and the mark names any."""
        return self.lists_branches and self.marked.amount(MarkClass.NEVER_COMMITTED).objects > 0

    @property
    def lists_branches(self) -> bool:
        """Whether a sweep lists the objects of all branches. An object that expired may be staged again too,
        with the content of the HEAD, but for that alone the listing is too slow."""
        named = MarkClass.NEVER_COMMITTED in deleted_classes(self.settings.never_committed)
        return named and self.to_delete.objects > 0

    def to_document(self) -> MarkRow:
        return {
            "format": MARK_FORMAT,
            "mark_id": self.mark_id,
            "server": self.server,
            "repository": self.repository,
            "endpoint_url": self.endpoint_url,
            "storage_namespace": self.storage_namespace,
            "repository_created": self.repository_created,
            "marked_at": utc_text(self.marked_at),
            "cutoff": utc_text(self.cutoff),
            "looked_at": utc_text(self.looked_at),
            "lowered_at": utc_text(self.lowered_at),
            "rules": self.rules.to_body(),
            "rules_before": _before_row(self.rules_before),
            "settings": settings_row(self.settings),
            "tree_settings": settings_row(self.tree_settings),
            "held_prefixes": list(self.held_prefixes),
            "goes": self.to_delete.to_row(),
            "candidates": self.candidates.to_row(),
            "classes": {kind.value: self.marked.amount(kind).to_row() for kind in MarkClass},
            "going": encode(self.marked.going),
            "kept": encode(self.marked.kept),
            "seen_sha256": self.seen_sha256,
            "collector_runs": list(self.collector_runs),
            "unreadable": dict(self.unreadable),
            "gates": encode(self.gates),
            "by": self.by,
            "tree_commit": self.tree_commit,
            "runner": None if self.marked.runner is None else self.marked.runner.to_row(),
        }

    def to_bytes(self) -> bytes:
        return json_text(self.to_document(), indent=1)


def _before_row(before: RulesBefore) -> RulesBeforeRow:
    if isinstance(before, GcRules):
        return {"known": "rules", "rules": before.to_body()}
    return {"known": "unknown" if before is None else "none", "rules": None}


def _before(row: RulesBeforeRow) -> RulesBefore:
    if row["known"] == "unknown":
        return None
    return NO_RULES if row["rules"] is None else rules_from_body(row["rules"])


def digest_of(data: bytes) -> str:
    """The digest of a mark's stored bytes, which an approval records."""
    return hashlib.sha256(data).hexdigest()


def read_mark(data: bytes, *, name: str) -> Mark:
    """The mark in a document. Raises FormatError for anything else, and for a mark of another version."""
    what, hint = "the mark", MARK_AGAIN
    formatted = records.record({"format": records.text})
    version = records.read_record(data, formatted, what=what, where=name, hint=hint)["format"]
    if version != MARK_FORMAT:
        raise FormatError(
            f"the format of this mark is {version}, but this version of lakeplan reads {MARK_FORMAT}",
            where=name,
            hint=hint,
        )
    document = records.read_record(data, _DOCUMENT, what=what, where=name, hint=hint)
    try:
        return _mark(document)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "the mark is damaged: it contains an invalid value", where=name, hint=hint
        ) from error


_PART_NAME = re.compile(r"(going|kept)/[A-Za-z0-9_-][A-Za-z0-9._-]*")


def _part_name(value: Any, name: str) -> None:
    """The name of a part. It becomes part of keys, and anybody who can write to the namespace can change
    it."""
    records.text(value, name)
    if not _PART_NAME.fullmatch(value):
        raise records.WrongShape(f"{name} is not a valid part name")


_SHAPES: Mapping[str, records.Shape] = {
    "integer": records.count,
    "boolean": records.flag,
    "string": records.text,
    "strings": records.list_of(records.text),
}


def _shape(setting: Setting) -> records.Shape:
    if setting.kind.words:
        return records.exactly(*setting.kind.words)
    shape = _SHAPES[setting.kind.recorded]
    return records.or_null(shape) if setting.may_be_null else shape


_FIRST_SETTINGS = (
    *("engine", "automatic", "mode", "min_age_seconds", "settle_seconds", "margin_seconds"),
    *("never_committed", "versions", "verify", "max_objects", "max_bytes", "rate"),
)
"""Every mark records these. A mark that is older than another setting takes that setting's default, so that
objects in its quarantine can still be restored."""
_BLOCK = records.record(
    {s.field: _shape(s) for s in SWEEP if s.field in _FIRST_SETTINGS},
    {s.field: _shape(s) for s in SWEEP if s.field not in _FIRST_SETTINGS},
)
_PARTS = records.list_of(
    records.record(
        {"name": _part_name, "rows": records.count, "size_bytes": records.count, "sha256": records.text}
    )
)
_TEXTS = ("mark_id", "server", "repository", "endpoint_url", "storage_namespace", "seen_sha256", "by")
_MOMENTS = ("marked_at", "cutoff", "looked_at", "lowered_at")
_DOCUMENT = records.record(
    {
        **dict.fromkeys(_TEXTS, records.text),
        **dict.fromkeys(_MOMENTS, records.moment),
        "rules": records.rules,
        "settings": _BLOCK,
        "tree_settings": _BLOCK,
        "held_prefixes": records.list_of(records.text),
        "candidates": records.AMOUNT,
        "classes": records.map_of(records.AMOUNT),
        "going": _PARTS,
        "kept": _PARTS,
        "collector_runs": records.list_of(records.text),
        "unreadable": records.map_of(records.text),
        "gates": records.list_of(records.record({"outcome": records.text})),
        "tree_commit": records.or_null(records.text),
        "repository_created": records.count,
        "rules_before": records.record(
            {"known": records.exactly("rules", "none", "unknown"), "rules": records.or_null(records.rules)}
        ),
        "runner": records.or_null(records.record({"name": records.text, "reason": records.text})),
    }
)


def _mark(document: Mapping[str, Any]) -> Mark:
    texts = {name: document[name] for name in _TEXTS}
    moments: dict[str, Any] = {name: records.moment_in(document[name]) for name in _MOMENTS}
    runner = document["runner"]
    return Mark(
        **texts,
        **moments,
        rules=rules_from_body(document["rules"]),
        rules_before=_before(document["rules_before"]),
        settings=_settings(document["settings"]),
        tree_settings=_settings(document["tree_settings"]),
        held_prefixes=tuple(document["held_prefixes"]),
        marked=Marked(
            tuple(Part(**part) for part in document["going"]),
            tuple(Part(**part) for part in document["kept"]),
            {MarkClass(name): Amount.from_row(row) for name, row in document["classes"].items()},
            None if runner is None else RunnerChoice(**runner),
        ),
        candidates=Amount.from_row(document["candidates"]),
        collector_runs=tuple(document["collector_runs"]),
        unreadable=dict(document["unreadable"]),
        gates=tuple(
            GateResult(**{**gate, "outcome": GateOutcome(gate["outcome"])}) for gate in document["gates"]
        ),
        tree_commit=document["tree_commit"],
        repository_created=document["repository_created"],
    )


def _settings(row: Mapping[str, Any]) -> SweepSettings:
    return SweepSettings(**{**row, "versions": Versions(row["versions"])})


def settings_row(settings: SweepSettings) -> SettingsRow:
    return cast("SettingsRow", {**vars(settings), "versions": settings.versions.value})
