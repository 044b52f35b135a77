"""``--base REF``: the tree at a git commit, to hold the checked-out tree to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lakeplan.adapters.git import commit_of, write_folder
from lakeplan.app.base import HeldTree
from lakeplan.config.files import ROOT_FILE
from lakeplan.config.tree import Tree, load_tree
from lakeplan.config.units import parse_bytes, parse_count, parse_date, parse_duration
from lakeplan.core.planning.loosening import Guards, loosened, loosened_repository
from lakeplan.core.planning.stricter_sweep import guard_of
from lakeplan.errors import ConfigError
from lakeplan.model.desired import DesiredRepository
from lakeplan.model.plan import Plan
from lakeplan.model.sweep import SweepSettings

_SWEEP_PARSERS = {"max_bytes": parse_bytes, "max_objects": parse_count, "rate": parse_count}


@dataclass(frozen=True)
class Base:
    """The base of a plan. ``tree`` is None where the commit has none: the defaults hold then, which are what
    a server without lakeplan has been reviewed with."""

    ref: str
    commit: str
    tree: Tree | None

    @property
    def guards(self) -> Guards:
        return Guards() if self.tree is None else guards_of(self.tree)

    def hold(self, tree: Tree) -> HeldTree:
        return HeldTree(tree, self.guards, self.ref)

    def finish(self, plan: Plan, tree: Tree, held: HeldTree) -> Plan:
        """The plan with its base: every loosening, and the limits its apply is held to."""
        mine = guards_of(tree)
        # A first tree has nowhere to have moved its state from.
        before = self.guards if self.tree is not None else replace(self.guards, state_url=mine.state_url)
        found = loosened(before, mine, plan.as_of.date())
        warnings = plan.warnings
        if self.tree is None:
            warnings += (f"there is no {ROOT_FILE} at {self.ref}: compared with the defaults",)
        pairs = tuple(self._pairs(plan, tree))
        looser = [
            loosening
            for before, now in pairs
            for loosening in loosened_repository(before, now, measure=_measure, until=parse_date)
        ]
        guards = {now.key: guard_of(before, now) for before, now in pairs if now is not None}
        return replace(
            plan,
            base=self.commit,
            loosenings=(*found, *looser),
            sweep_guards={key: guard for key, guard in guards.items() if guard is not None},
            impact_tolerance_percent=held.safety.impact_tolerance_percent,
            max_plan_age_seconds=held.safety.max_plan_age_seconds,
            warnings=warnings,
        )

    def _pairs(self, plan: Plan, tree: Tree) -> Iterator[tuple[DesiredRepository, DesiredRepository | None]]:
        """(at the base, in the tree) of the repositories the plan saw, and of those the base names. Where the
        base has no entry its defaults are the base; None: the tree names it no more."""
        seen = {(r.server, r.name) for r in plan.repositories}
        seen |= {(server, name) for server, _, name in (key.partition("/") for key in plan.unmanaged)}
        for server in {**(self.tree.servers if self.tree is not None else {}), **tree.servers}:
            live = {name for at, name in seen if at == server}
            now = _by_name(tree, server, live)
            before = _by_name(self.tree, server, live)
            for name in {**before, **now}:
                if (server, name) in seen or (name in before and not plan.targets):
                    yield before.get(name) or self._unnamed(now[name]), now.get(name)

    def _unnamed(self, repository: DesiredRepository) -> DesiredRepository:
        return replace(repository, resolved={}, holds=(), sweep=SweepSettings(), safety=self.guards.safety)


def read_base(folder: Path, ref: str) -> Base:
    """Reads the tree of ``folder`` at ``ref``. Raises LakeplanError when there is no such commit, ConfigError
    when the tree there does not validate."""
    commit = commit_of(folder, ref)
    with TemporaryDirectory(prefix="lakeplan-base-") as name:
        write_folder(folder, commit, Path(name))
        if not (Path(name) / ROOT_FILE).is_file():
            return Base(ref, commit, None)
        try:
            return Base(ref, commit, load_tree(Path(name), os.environ))
        except ConfigError as error:
            raise ConfigError(
                f"the tree at {ref} does not validate, so there is nothing to hold this one to",
                problems=error.problems,
                where=str(folder),
                hint="mend it there first, or plan without --base and have all of safety reviewed",
            ) from None


def guards_of(tree: Tree) -> Guards:
    return Guards(
        safety=tree.safety,
        min_retention_days=tree.bounds.min_retention_days,
        max_retention_days=tree.bounds.max_retention_days,
        unmanaged=tree.unmanaged_policy,
        state_url=tree.declared_state_url,
        acknowledgements=tree.acknowledgements,
        places=tree.places,
    )


def _by_name(tree: Tree | None, server: str, live: set[str]) -> dict[str, DesiredRepository]:
    if tree is None or server not in tree.servers:
        return {}
    return {d.name: d for d in tree.resolve(server, live)}


def _measure(key: str, value: Any) -> float:
    return _SWEEP_PARSERS[key](value) if key in _SWEEP_PARSERS else parse_duration(str(value))
