"""Runs the checks of a tree on a plan: with ``--base`` those of the base commit, with its files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lakeplan.cli.base import Base
from lakeplan.cli.git import find_work_folder, write_folder
from lakeplan.review.checks import Place, judge, own_folder
from lakeplan.review.gates import GateOverrides
from lakeplan.tree.tree import Tree
from lakeplan.values.desired import Check
from lakeplan.values.plan import GateResult, Plan
from lakeplan.values.plan_document import dump_plan


@dataclass(frozen=True)
class PlanChecks:
    """The checks that a command runs. ``forced``: ``--run-checks`` was given."""

    tree: Tree
    openers: GateOverrides
    base: Base | None = None
    forced: bool = False

    @property
    def may_run(self) -> bool:
        """Without a base they are the checkout's own, which only somebody who trusts it may run."""
        return self.base is not None or self.forced or sys.stdin.isatty()

    @property
    def checks(self) -> tuple[Check, ...]:
        if self.base is None:
            return self.tree.checks
        return self.base.tree.checks if self.base.tree is not None else ()

    def judge(self, plan: Plan) -> tuple[tuple[GateResult, ...], tuple[str, ...]]:
        """Gates and warnings. Raises LakeplanError when the base's files cannot be written."""
        if not self.checks:
            return (), ()
        with self._place() as place:
            given = dump_plan(plan).encode()
            return judge(self.checks, plan, given, place, self.openers, os.environ.get("PATH", os.defpath))

    def added_to(self, plan: Plan) -> Plan:
        """The plan with its checks' results, or with a warning for each check that did not run."""
        if not self.may_run:
            warnings = tuple(
                f"check {check.name} was not run: add --base REF, or --run-checks for a tree that you trust"
                for check in self.checks
            )
            return replace(plan, warnings=(*plan.warnings, *warnings))
        gates, warnings = self.judge(plan)
        known = set(map(str, self.checks))
        later = tuple(
            f"check {check.name} is new or another one at {self.base.ref}: this change is not judged by it"
            for check in self.tree.checks
            if self.base is not None and str(check) not in known
        )
        return replace(plan, gates=(*plan.gates, *gates), warnings=(*plan.warnings, *warnings, *later))

    @contextmanager
    def _place(self) -> Iterator[Place]:
        root = self.tree.root.resolve()
        if self.base is None:
            yield Place(root)
            return
        work = find_work_folder(root)
        with own_folder("lakeplan-checks-") as name:
            folder = Path(name)
            write_folder(work, self.base.commit, folder)
            _drop_links_out(folder)
            yield Place(folder, judged=work.top)


def _drop_links_out(folder: Path) -> None:
    """Removes symbolic links that lead out of a folder: what is there may be anybody's."""
    top = os.path.realpath(folder)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            target = os.path.realpath(path)
            if os.path.islink(path) and target != top and not target.startswith(top + os.sep):
                os.unlink(path)
