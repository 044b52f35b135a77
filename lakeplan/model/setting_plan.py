"""What a plan does to the settings that have an ETag of the server's: policies and object rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lakeplan.model.action import Action
from lakeplan.model.lifecycle import Policy
from lakeplan.model.settings import ObjectRule, SettingKind, setting_etag


@dataclass(frozen=True)
class SettingChange:
    """One item that is added, changed or removed (``clear``). ``item`` is its id, or its patterns; ``order``
    when only the order differs. ``before`` and ``after`` hold the values that differ, as text under the names
    of the tree."""

    item: str
    action: Action
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BranchFate:
    """A branch that policies let go, by now or within thirty days if nobody writes. ``goes_at`` is when the
    proposed policies have all their thresholds crossed (``policy`` names the first), ``before_at`` when the
    stored ones have; None: not within that time. ``idle`` says that an idle age is among what decides.
    ``uncommitted`` counts the changes that would be lost (``uncommitted_more``: at least); None: not read.
    ``pulls`` are open pull requests from it, ``tags`` those that it leads to and the default branch does not.
    """

    branch_id: str
    commit_id: str
    created: datetime
    last_write: datetime | None
    policy: str
    goes_at: datetime | None
    before_at: datetime | None
    idle: bool = False
    uncommitted: int | None = None
    uncommitted_more: bool = False
    pulls: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def newly(self, moment: datetime) -> bool:
        """Whether the change lets it go by ``moment``: the stored policies would not have."""
        stored = self.before_at is not None and self.before_at <= moment
        return self.goes_at is not None and self.goes_at <= moment and not stored


@dataclass(frozen=True)
class SettingPlan:
    """``server_etag`` is the server's own, "" while nothing is set or when it gives none; it is what an apply
    sends in ``If-Match``. ``notes`` say what a reviewer should know, one line each."""

    action: Action
    server_etag: str = ""
    changes: tuple[SettingChange, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PoliciesPlan(SettingPlan):
    """``after`` is what the tree says: a policy without an id gets the server's. ``reordered`` means that
    nothing but the order differs, which has no effect on which branches go. ``fates`` are the branches that
    go, soonest first; ``deletions`` counts, by horizon, those that the change newly lets go;
    ``exempt_branches`` those that the server gives no creation time for."""

    before: tuple[Policy, ...] | None = None
    after: tuple[Policy, ...] | None = None
    reordered: bool = False
    fates: tuple[BranchFate, ...] = ()
    deletions: Mapping[str, int] = field(default_factory=dict)
    exempt_branches: int = 0

    def deleted(self, moment: datetime, proposed: bool) -> frozenset[str]:
        """Branches that the stored or the proposed policies have let go by then."""
        gone = ((fate.branch_id, fate.goes_at if proposed else fate.before_at) for fate in self.fates)
        return frozenset(name for name, at in gone if at is not None and at <= moment)

    @property
    def kind(self) -> SettingKind:
        return SettingKind.BRANCH_LIFECYCLE

    @property
    def before_etag(self) -> str:
        return setting_etag(self.before)

    @property
    def after_etag(self) -> str:
        return setting_etag(self.after)

    @property
    def shortens(self) -> bool:
        return self.action.writes and self.after is not None and not self.reordered


@dataclass(frozen=True)
class ObjectRulesPlan(SettingPlan):
    """Object rules expire objects by a commit; what they let go is reclaimed by the collector later."""

    before: tuple[ObjectRule, ...] | None = None
    after: tuple[ObjectRule, ...] | None = None

    @property
    def kind(self) -> SettingKind:
        return SettingKind.OBJECT_LIFECYCLE

    @property
    def before_etag(self) -> str:
        return setting_etag(self.before)

    @property
    def after_etag(self) -> str:
        return setting_etag(self.after)

    @property
    def shortens(self) -> bool:
        return self.action.writes and self.after is not None

    @property
    def tightened(self) -> bool:
        """Whether some rule is added or changed: objects may go that were kept."""
        return any(change.action is not Action.CLEAR for change in self.changes)
