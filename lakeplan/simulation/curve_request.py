"""What a curve is asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo

from lakeplan.model.rules import GcRules


@dataclass(frozen=True)
class CurveRequest:
    """``as_of`` is aware. ``points``: days at which the server is asked; empty for usual ones.
    ``branch_ids``: whose rules get curves; None for all of the rules. ``horizon_days``: None for no horizon.
    ``zone`` is the server's time zone."""

    rules: GcRules
    as_of: datetime
    zone: tzinfo = timezone.utc
    points: tuple[int, ...] = ()
    branch_ids: tuple[str, ...] | None = None
    horizon_days: int | None = None
