"""Trees with stricter settings than the checked-out tree: those of its base, of a plan or of a review."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakeplan.errors import ConfigError
from lakeplan.review import strictness
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.declare import POLICY
from lakeplan.values.desired import BranchSettings, Check, DesiredRepository, Override, Safety, ServerConfig
from lakeplan.values.pins import PinSettings
from lakeplan.values.plan import Plan


@dataclass(frozen=True)
class _Wrapped:
    """A ``DesiredTree`` that delegates to another tree. Subclasses override some of its methods."""

    tree: DesiredTree

    @property
    def servers(self) -> Mapping[str, ServerConfig]:
        return self.tree.servers

    @property
    def safety(self) -> Safety:
        return self.tree.safety

    @property
    def overrides(self) -> Sequence[Override]:
        """The overrides of the checked-out tree. They are reviewed, and new ones are listed as weakened
        settings."""
        return self.tree.overrides

    @property
    def unmanaged_policy(self) -> strictness.Policy:
        return self.tree.unmanaged_policy

    @property
    def checks(self) -> Sequence[Check]:
        return self.tree.checks

    @property
    def name(self) -> str:
        return self.tree.name

    @property
    def digest(self) -> str:
        return self.tree.digest

    def globs(self, server: str) -> list[DesiredRepository]:
        return self.tree.globs(server)

    def may_manage(self, server: str, name: str) -> bool:
        return self.tree.may_manage(server, name)

    def unmanaged(self, server: str, live_repositories: Iterable[str]) -> list[str]:
        return self.tree.unmanaged(server, live_repositories)

    def resolve(self, server: str, live_repositories: Iterable[str]) -> list[DesiredRepository]:
        return self._adjusted(server, self.tree.resolve(server, live_repositories))

    def find(self, server: str, name: str) -> DesiredRepository | None:
        desired = self.tree.find(server, name)
        return None if desired is None else self._adjusted(server, [desired])[0]

    def _adjusted(self, server: str, resolved: list[DesiredRepository]) -> list[DesiredRepository]:
        """Return the repositories of a server with the settings of this tree, in the same order."""
        raise NotImplementedError


@dataclass(frozen=True)
class HeldTree(_Wrapped):
    """A ``DesiredTree`` with the stricter limits of ``tree`` and ``base`` and the holds of both. Messages
    refer to the base as ``base_name``."""

    base: strictness.Guards
    base_name: str
    before: Callable[[str, set[str]], Mapping[str, Sequence[DesiredRepository]]]
    """The base's repositories on a server of ``tree``, by name."""

    @property
    def safety(self) -> Safety:
        return strictness.stricter_safety(self.base.safety, self.tree.safety)

    @property
    def unmanaged_policy(self) -> strictness.Policy:
        policy: strictness.Policy = POLICY.combine(self.base.unmanaged, self.tree.unmanaged_policy)
        return policy

    def _adjusted(self, server: str, resolved: list[DesiredRepository]) -> list[DesiredRepository]:
        """Raises ConfigError if a retention period is outside the base's bounds."""
        low, high = self.base.min_retention_days, self.base.max_retention_days
        outside = {
            f"{source}: {name}: {days} is outside the bounds in {self.base_name} ({low} to {high} days)": None
            for desired in resolved
            for source, name, days in strictness.outside_bounds(desired, low, high)
        }
        if outside:
            raise ConfigError(
                f"the tree has retention periods outside the bounds of {self.base_name}",
                problems=tuple(outside),
                hint="Widen the bounds in a separate pull request first.",
            )
        before = self.before(server, {desired.name for desired in resolved})
        return [self._held(desired, before.get(desired.name, ())) for desired in resolved]

    def _held(self, desired: DesiredRepository, before: Sequence[DesiredRepository]) -> DesiredRepository:
        most_pins = min([one.pins.max for one in before] or [PinSettings().max])
        return replace(
            desired,
            safety=strictness.stricter_safety(self.base.safety, desired.safety),
            holds=strictness.all_holds(desired.holds, *(one.holds for one in before)),
            pins=replace(desired.pins, max=min(most_pins, desired.pins.max)),
        )


@dataclass(frozen=True)
class GuardedTree(_Wrapped):
    """A ``DesiredTree`` whose settings for sweeps are at least as strict as in the review of ``plan``
    (``Plan.sweep_guards``). A repository that the plan shows with other settings is not swept automatically,
    because the checkout may be older than the plan."""

    plan: Plan

    def _adjusted(self, server: str, resolved: list[DesiredRepository]) -> list[DesiredRepository]:
        guards, planned = self.plan.sweep_guards, {r.key: r.config_hash for r in self.plan.repositories}
        return [
            strictness.held_to_guard(d, guards[d.key]) if d.key in guards else d
            for one in resolved
            for d in [one if planned.get(one.key) == one.config_hash else _not_automatic(one)]
        ]


def _not_automatic(desired: DesiredRepository) -> DesiredRepository:
    return replace(desired, sweep=replace(desired.sweep, automatic=False))


@dataclass(frozen=True)
class ReviewedSettings:
    """The settings that a branch plan was made with."""

    lifecycle: BranchSettings
    safety: Safety


@dataclass(frozen=True)
class ReviewedTree(_Wrapped):
    """A ``DesiredTree`` whose branch settings are at least as strict as those of a reviewed branch plan,
    which ``reviewed`` has by ``server/name``."""

    reviewed: Mapping[str, ReviewedSettings]

    @property
    def safety(self) -> Safety:
        safety = self.tree.safety
        for then in self.reviewed.values():
            safety = strictness.stricter_safety(then.safety, safety)
        return safety

    def _adjusted(self, server: str, resolved: list[DesiredRepository]) -> list[DesiredRepository]:
        return [self._as_reviewed(desired) for desired in resolved]

    def _as_reviewed(self, desired: DesiredRepository) -> DesiredRepository:
        then = self.reviewed.get(desired.key)
        if then is None:
            return desired
        return replace(
            desired,
            branch_settings=strictness.stricter_branch_settings(then.lifecycle, desired.branch_settings),
            safety=strictness.stricter_safety(then.safety, desired.safety),
        )
