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
    changes are others; ``GONE``: somebody else deleted it; ``NOT_REVIEWED``: not in the plan file."""

    DELETED = "deleted"
    MOVED = "moved"
    WRITTEN = "written"
    GONE = "gone"
    NOT_REVIEWED = "not_reviewed"
    HOOK_REFUSED = "hook_refused"
    FAILED = "failed"
    STOPPED = "stopped"
    GATE_REFUSED = "gate_refused"


@dataclass(frozen=True)
class BranchEnd:
    """``uncertain``: the server did not answer, so the branch may still go."""

    outlook: BranchOutlook
    outcome: Outcome
    message: str = ""
    uncertain: bool = False

    @property
    def fate(self) -> Fate:
        """What the record says of it: undo looks for what is deleted or uncertain."""
        if self.outcome is Outcome.DELETED:
            return Fate.DELETED
        return Fate.INTENDED if self.uncertain else Fate.KEPT


@dataclass(frozen=True)
class RepositoryEnd:
    """One repository of a run; ``observed`` counts branches in the stored ledger."""

    desired: DesiredRepository
    branches: tuple[BranchEnd, ...] = ()
    kept: int = 0
    observed: int = 0
    gates: tuple[GateResult, ...] = ()
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
