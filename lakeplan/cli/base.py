"""``--base REF``: the tree at a git commit, to hold the checked-out tree to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lakeplan.adapters.git import commit_of, find_work_folder, has_file, write_folder
from lakeplan.app.base import HeldTree
from lakeplan.cli.base_pairs import Pair, Pairing
from lakeplan.config.files import ROOT_FILE
from lakeplan.config.tree import Tree, load_tree
from lakeplan.core.planning.loosening import Guards, guard_of, held_to_guard, loosened, loosened_repository
from lakeplan.errors import ConfigError, LakeplanError, UsageError
from lakeplan.model.plan import Plan, SweepGuard


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
        return HeldTree(tree, self.guards, self.ref, Pairing(self.tree, tree, self.guards.safety).before)

    def finish(self, plan: Plan, tree: Tree, held: HeldTree) -> Plan:
        """The plan with its base: every loosening, and the limits its apply is held to."""
        mine = guards_of(tree)
        # A first tree has nowhere to have moved its state from.
        before = self.guards if self.tree is not None else replace(self.guards, state_url=mine.state_url)
        today = plan.as_of.date()
        found = loosened(before, mine, today)
        warnings = plan.warnings
        if self.tree is None:
            warnings += (f"there is no {ROOT_FILE} at {self.ref}: compared with the defaults",)
        pairing = Pairing(self.tree, tree, self.guards.safety)
        pairs = tuple(pairing.repositories(plan))
        looser = [loosening for before, now in pairs for loosening in loosened_repository(before, now, today)]
        return replace(
            plan,
            base=self.commit,
            loosenings=(*found, *pairing.lost_servers(), *pairing.changed_servers(), *looser),
            sweep_guards=_guards(pairs),
            impact_tolerance_percent=held.safety.impact_tolerance_percent,
            max_plan_age_seconds=held.safety.max_plan_age_seconds,
            warnings=warnings,
        )


def read_base(folder: Path, ref: str, *, is_new: bool = False) -> Base:
    """Reads the tree of ``folder`` at ``ref``. ``is_new``: there is none. Raises LakeplanError when it cannot
    be read or is missing, UsageError when a new one is there, ConfigError when it does not validate."""
    work = find_work_folder(folder)
    commit = commit_of(work, ref)
    has_tree = has_file(work, commit, ROOT_FILE)
    if has_tree and is_new:
        raise UsageError(f"--new-tree: there is a tree at {ref} already", hint="run without --new-tree")
    if not has_tree:
        if not is_new:
            raise LakeplanError(
                f"there is no {ROOT_FILE} at {ref} to compare with",
                where=str(folder),
                hint="Add --new-tree if this change adds the tree.",
            )
        return Base(ref, commit, None)
    with TemporaryDirectory(prefix="lakeplan-base-") as name:
        write_folder(work, commit, Path(name))
        try:
            return Base(ref, commit, load_tree(Path(name), os.environ, is_base=True))
        except ConfigError as error:
            raise ConfigError(
                f"the tree at {ref} does not validate, so there is nothing to hold this one to",
                problems=error.problems,
                where=str(folder),
                hint="fix it there first, or plan without --base and have all safety settings reviewed",
            ) from None


def guards_of(tree: Tree) -> Guards:
    return Guards(
        safety=tree.safety,
        min_retention_days=tree.bounds.min_retention_days,
        max_retention_days=tree.bounds.max_retention_days,
        unmanaged=tree.unmanaged_policy,
        state_url=tree.declared_state_url,
        overrides=tree.overrides,
        places=tree.places,
    )


def _guards(pairs: Iterable[Pair]) -> dict[str, SweepGuard]:
    """By ``server/name``; where several pairs are of one repository, the strictest of all."""
    found: dict[str, SweepGuard] = {}
    for before, now in pairs:
        if now is None:
            continue
        held = held_to_guard(now, found[now.key]) if now.key in found else now
        guard = guard_of(before, held)
        if guard is not None:
            found[now.key] = guard
    return found
