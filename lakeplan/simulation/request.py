"""What a simulation of a namespace is asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from lakeplan.simulation.rulesets import RuleSet

if TYPE_CHECKING:  # --commits-only needs no Arrow
    from lakeplan.simulation.inventory import Inventory

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class SimulateRequest:
    """``as_of`` is aware. ``rule_sets``: one, or two to compare. ``storage_namespace`` is the URL the server
    uses for the namespace, None when it is not known. ``listing``: look at what is stored, where possible.
    ``zone`` is the server's time zone."""

    rule_sets: tuple[RuleSet, ...]
    as_of: datetime
    min_age_seconds: int = DAY_SECONDS
    zone: tzinfo = timezone.utc
    listing: bool = True
    max_uncommitted_age_seconds: int = DAY_SECONDS
    storage_namespace: str | None = None
    output: Path | None = None
    overwrite: bool = False
    inventory: Inventory | None = None
    """Read in the place of a listing."""
