"""What a plan does to the settings that have an ETag of the server's: policies and object rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    nothing but the order differs, which has no effect on which branches go."""

    before: tuple[Policy, ...] | None = None
    after: tuple[Policy, ...] | None = None
    reordered: bool = False

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
