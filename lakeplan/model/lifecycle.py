"""Branch-lifecycle policies, what is known of a branch, and what becomes of it.

Rules of evaluation: shared/lakefs/branch-lifecycle.md. Ages and thresholds are seconds, moments aware UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal


@dataclass(frozen=True)
class Policy:
    """One policy. ``id`` is None until a server assigns one. A branch must cross every threshold that is
    given; at least one is."""

    id: str | None
    patterns: tuple[str, ...]
    max_age_seconds: int | None = None
    max_idle_seconds: int | None = None
    description: str = ""


@dataclass(frozen=True)
class LifecycleSettings:
    """The ``lifecycle`` block: what keeps lakeplan itself from deleting a branch that a policy lets go.

    ``exempt`` are globs over branch names. ``require_merged``: only branches whose HEAD the default branch
    reaches. ``min_keep``: so many of the branches that a policy matches stay, the most recently written.
    ``assume_created``: ``head_commit`` takes the HEAD commit's date for the creation time of branches that
    were there when lakeplan first looked; ``never`` counts from that first look.
    ``keep_protected``: what a branch protection rule of the server matches stays, although the server itself
    lets an administrator delete it.
    """

    exempt: tuple[str, ...] = ()
    require_merged: bool = False
    min_keep: int = 0
    keep_with_uncommitted: bool = True
    keep_with_open_pull_request: bool = True
    assume_created: Literal["never", "head_commit"] = "never"
    keep_protected: bool = True


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
