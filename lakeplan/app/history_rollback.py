"""What a rollback restores, and where the checked-out tree says something else. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from lakeplan.app.history import RunRecord
from lakeplan.app.plan import Selection
from lakeplan.core.patterns import expand
from lakeplan.errors import StalePlan
from lakeplan.model.desired import BranchRule, Cleared, DesiredRepository, GcDesired
from lakeplan.model.plan import Plan
from lakeplan.model.rules import GcRules
from lakeplan.ports.lakefs import LakeFSReader
from lakeplan.ports.tree import DesiredTree


@dataclass(frozen=True)
class Restoration:
    """One repository: the rules that were there before the run (None: none), and what the run wrote."""

    repository: str
    before: GcRules | None
    written: GcRules | None

    @property
    def server(self) -> str:
        return self.repository.partition("/")[0]

    @property
    def name(self) -> str:
        return self.repository.partition("/")[2]


@dataclass(frozen=True)
class Disagreement:
    """A repository whose tree does not give the rules to restore. ``desired`` is None without an entry.
    ``leftover`` are branch rules of the tree that the rules to restore do not have."""

    restoration: Restoration
    desired: DesiredRepository | None
    leftover: tuple[BranchRule, ...] = ()


def restorations(run: RunRecord, selection: Selection) -> tuple[Restoration, ...]:
    """Every repository whose rules the run recorded before it replaced them, also those it was killed at."""
    return tuple(
        Restoration(s.repository, s.before, s.after)
        for s in run.steps
        if s.replaced and selection.takes_named(*_split(s.repository), None)
    )


def _split(key: str) -> tuple[str, str]:
    server, _, name = key.partition("/")
    return server, name


def disagreements(
    tree: DesiredTree, wanted: Iterable[Restoration], connect: Callable[[str], LakeFSReader]
) -> tuple[Disagreement, ...]:
    """Where the tree, over today's branches, asks for other rules than those to restore. Raises ServerError,
    and StalePlan for a repository on a server that the tree does not name."""
    found = []
    for restoration in wanted:
        if restoration.server not in tree.servers:
            raise StalePlan(
                f"the tree names no server {restoration.server!r} any more",
                where=restoration.repository,
                hint="leave the repository out with --target, or name the server again",
            )
        resolved = tree.resolve(restoration.server, [restoration.name])
        desired = next((d for d in resolved if d.name == restoration.name), None)
        branches = [b.id for b in connect(restoration.server).list_branches(restoration.name)]
        if not _says(desired, restoration.before, branches):
            found.append(Disagreement(restoration, desired, _leftover(desired, restoration.before)))
    return tuple(found)


def _says(desired: DesiredRepository | None, rules: GcRules | None, branches: Sequence[str]) -> bool:
    gc = desired.gc if desired is not None else None
    if isinstance(gc, GcDesired):
        return expand(gc, branches).rules == rules
    return gc is Cleared.CLEAR and rules is None


def _leftover(desired: DesiredRepository | None, rules: GcRules | None) -> tuple[BranchRule, ...]:
    if desired is None or rules is None or not isinstance(desired.gc, GcDesired):
        return ()
    return tuple(r for r in desired.gc.branches if r.is_pattern or r.name not in rules.branches)


def checked(plan: Plan, wanted: Iterable[Restoration], run_id: str) -> Plan:
    """The plan, once it is sure that it restores exactly these rules; what it undoes besides the run is among
    its warnings. Raises StalePlan when branches or rules changed while it was made."""
    planned = {r.key: r for r in plan.repositories}
    warnings = []
    for restoration in wanted:
        repository = planned.get(restoration.repository)
        if repository is None:
            raise StalePlan("the repository is not in the plan", where=restoration.repository)
        if repository.failure is not None:
            continue
        if repository.after != restoration.before:
            raise StalePlan(
                f"the plan does not restore the rules from before run {run_id}",
                where=restoration.repository,
                hint="something changed meanwhile: try again",
            )
        if repository.before not in (restoration.written, restoration.before):
            warnings.append(
                f"{restoration.repository}: its rules were changed again after run {run_id};"
                " that is undone too"
            )
    warnings.append(f"a rollback: it restores the rules from before run {run_id}")
    return replace(plan, warnings=(*plan.warnings, *sorted(warnings)))
