"""How a lifecycle run ended, branch by branch and repository by repository."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from lakeplan.app.lifecycle.memory import Fate
from lakeplan.errors import LeaseHeld
from lakeplan.model.branches import BranchOutlook
from lakeplan.model.desired import DesiredRepository
from lakeplan.model.plan import Failure, GateResult


class Outcome(str, Enum):
    """How one branch ended. ``MOVED``: its HEAD moved since it was judged; ``WRITTEN``: its uncommitted
    changes are others; ``NEWLY_KEPT``: something keeps it that did not when it was judged; ``GONE``: somebody
    else deleted it; ``NOT_REVIEWED``: not in the plan file; ``UNCERTAIN``: it is not known whether it was
    deleted, or will be."""

    DELETED = "deleted"
    MOVED = "moved"
    WRITTEN = "written"
    NEWLY_KEPT = "newly_kept"
    GONE = "gone"
    NOT_REVIEWED = "not_reviewed"
    HOOK_REFUSED = "hook_refused"
    FAILED = "failed"
    UNCERTAIN = "uncertain"
    STOPPED = "stopped"
    GATE_REFUSED = "gate_refused"


@dataclass(frozen=True)
class BranchEnd:
    """``maybe_deleted``: an answer was lost, so the branch that was judged may have been deleted, whatever is
    there now. ``found``: another HEAD that a branch of its name had then."""

    outlook: BranchOutlook
    outcome: Outcome
    message: str = ""
    maybe_deleted: bool = False
    found: str | None = None

    @property
    def fate(self) -> Fate:
        """What the record says of it: undo brings back what is deleted or may be."""
        if self.outcome is Outcome.DELETED:
            return Fate.DELETED
        return Fate.INTENDED if self.maybe_deleted else Fate.KEPT

    @property
    def is_new(self) -> bool:
        """Whether a branch that has its name from now on may be another one."""
        return self.maybe_deleted or self.outcome in (Outcome.DELETED, Outcome.GONE)


@dataclass(frozen=True)
class RepositoryEnd:
    """One repository of a run; ``observed`` counts branches in the stored ledger."""

    desired: DesiredRepository
    branches: tuple[BranchEnd, ...] = ()
    kept: int = 0
    observed: int = 0
    gates: tuple[GateResult, ...] = ()
    warnings: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def key(self) -> str:
        return self.desired.key


@dataclass(frozen=True)
class LifecycleReport:
    run_id: str
    at: datetime
    repositories: tuple[RepositoryEnd, ...]
    gates: tuple[GateResult, ...] = ()
    not_ours: tuple[str, ...] = ()


def is_held_elsewhere(end: RepositoryEnd) -> bool:
    """Whether another run is at this repository."""
    return end.failure is not None and end.failure.exit_code == int(LeaseHeld.exit_code)
