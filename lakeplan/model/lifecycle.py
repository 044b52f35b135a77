"""Branch-lifecycle policies, what is known of a branch, and what becomes of it.

Rules of evaluation: shared/lakefs/branch-lifecycle.md. Ages and thresholds are seconds, moments aware UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum


@dataclass(frozen=True)
class Policy:
    """One policy. ``id`` is None until a server assigns one. A branch must cross every threshold that is
    given; at least one is."""

    id: str | None
    patterns: tuple[str, ...]
    max_age_seconds: int | None = None
    max_idle_seconds: int | None = None
    description: str = ""


class Evidence(str, Enum):
    """How a moment became known. ``SERVER``: the Enterprise fields; ``OBSERVED``: lakeplan's ledger saw it;
    ``HEAD_COMMIT`` and ``STAGED``: read from the repository; ``ASSUMED``: ``assume_created: head_commit``."""

    SERVER = "server"
    OBSERVED = "observed"
    HEAD_COMMIT = "head_commit"
    STAGED = "staged"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class BranchFacts:
    """What is known of one branch. ``created`` None: no recorded creation time, so it is exempt.
    ``last_write`` None: the creation time counts."""

    branch_id: str
    commit_id: str
    created: datetime | None
    created_evidence: Evidence | None
    last_write: datetime | None
    last_write_evidence: Evidence | None
    hidden: bool = False
