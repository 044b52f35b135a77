"""An approval of a mark: who approved which bytes, and what the gates were judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakeplan.model.desired import Safety
from lakeplan.model.sweep import SweepSettings


@dataclass(frozen=True)
class Allowance:
    """A gate that ``--allow`` overrode for one mark, with its figures of that moment."""

    gate: str
    unit: str
    value: float | None
    limit: float | None


@dataclass(frozen=True)
class Judged:
    """What the gates of a mark were judged by when it was approved. ``automatic``: no person was asked.
    ``grace_period_seconds``: the server's then; None when it did not say."""

    safety: Safety
    sweep: SweepSettings
    grace_period_seconds: int | None
    allowed: tuple[Allowance, ...]
    automatic: bool


@dataclass(frozen=True)
class Approval:
    """``digest`` is of the mark's document; ``at`` is ISO 8601."""

    mark_id: str
    digest: str
    objects: int
    size_bytes: int
    by: str
    at: str
    reason: str
    judged: Judged

    def to_row(self) -> dict[str, Any]:
        """For documents: everything but what the gates were judged by."""
        return {key: value for key, value in vars(self).items() if key != "judged"}
