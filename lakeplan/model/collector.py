"""One run of lakeFS's own garbage collection job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CollectorJob:
    """With ``mark_id`` "" it marks and deletes nothing; otherwise it marks nothing and deletes what its own
    mark of that id names. It leaves objects alone that are younger than ``min_age_seconds`` (1 or more: the
    job takes 0 for its default, a day)."""

    repository: str
    min_age_seconds: int
    mark_id: str = ""
