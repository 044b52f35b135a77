"""What a rollback restores, and where the checked-out tree says something else. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakeplan.errors import StalePlan, UsageError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.retention.patterns import expand
from lakeplan.review.differences import same_setting
from lakeplan.review.history import RunRecord
from lakeplan.review.selection import Selection
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import BranchRule, Cleared, DesiredRepository, GcDesired
from lakeplan.values.plan import Plan, RepositoryPlan
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import SettingItem, SettingKind

Items = Sequence[SettingItem]


@dataclass(frozen=True)
class Restoration:
    """One repository: the rules that were there before the run (None: none), and what the run wrote.
    ``rules`` False: the run replaced no GC rules. ``settings``: policies and object rules, before and
    written."""

    repository: str
    before: GcRules | None
    written: GcRules | None
    rules: bool = True
    settings: Mapping[SettingKind, tuple[Items, Items]] = field(default_factory=dict)

    @property
    def server(self) -> str:
        return self.repository.partition("/")[0]

    @property
    def name(self) -> str:
        return self.repository.partition("/")[2]


@dataclass(frozen=True)
class Disagreement:
    """A repository whose tree does not give what is to be restored. ``desired`` is None without an entry.
    ``rules``: whether it is the GC rules; ``leftover`` are branch rules of the tree that the rules to restore
    do not have. ``settings``: which further settings."""

    restoration: Restoration
    desired: DesiredRepository | None
    rules: bool = True
    leftover: tuple[BranchRule, ...] = ()
    settings: tuple[SettingKind, ...] = ()


def restorations(run: RunRecord, selection: Selection) -> tuple[Restoration, ...]:
    """Every repository whose rules or settings the run recorded before it replaced them, also those it was
    killed at. Raises UsageError when the selection names none of the run's."""
    selected = [s for s in run.steps if selection.takes_named(*_split(s.repository), None)]
    if run.steps and not selected:
        raise UsageError(
            "the selection matches no repository of the run",
            where=run.run_id,
            hint=f"Run `lakeplan history show {run.run_id}` to list its repositories.",
        )
    found = []
    for s in selected:
        settings = {one.kind: (one.before, one.after) for one in s.settings if one.replaced}
        if s.replaced or settings:
            found.append(Restoration(s.repository, s.before, s.after, s.replaced, settings))
    return tuple(found)


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
                f"the tree no longer has the server {restoration.server!r}",
                where=restoration.repository,
                hint="Exclude the repository with --target, or add the server to the tree again.",
            )
        desired = tree.find(restoration.server, restoration.name)
        rules = restoration.rules
        if rules:
            branches = [b.id for b in connect(restoration.server).list_branches(restoration.name)]
            rules = not _says(desired, restoration.before, branches)
        settings = tuple(
            kind for kind, (before, _) in restoration.settings.items() if not _asks_for(desired, kind, before)
        )
        if rules or settings:
            leftover = _leftover(desired, restoration.before) if rules else ()
            found.append(Disagreement(restoration, desired, rules, leftover, settings))
    return tuple(found)


def _asks_for(desired: DesiredRepository | None, kind: SettingKind, items: Items) -> bool:
    wanted = desired.wanted_items(kind) if desired is not None else None
    return wanted is not None and same_setting(items, wanted)


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
        for called, restores, again in _parts(restoration, repository):
            if not restores:
                raise StalePlan(
                    f"the plan does not restore {called} from before run {run_id}",
                    where=restoration.repository,
                    hint="Something changed meanwhile. Run the command again.",
                )
            if again:
                warnings.append(
                    f"{restoration.repository}: its {called.removeprefix('the ')} were changed again after"
                    f" run {run_id}; that is undone too"
                )
    warnings.append(f"a rollback: it restores the rules from before run {run_id}")
    return replace(plan, warnings=(*plan.warnings, *sorted(warnings)))


def _parts(restoration: Restoration, plan: RepositoryPlan) -> Iterator[tuple[str, bool, bool]]:
    """Of everything to restore: its name, whether the plan restores it, whether it was changed again."""
    if restoration.rules:
        seen = (restoration.written, restoration.before)
        yield "the rules", plan.after == restoration.before, plan.before not in seen
    planned = {setting.kind: setting for setting in plan.settings}
    for kind, (before, written) in restoration.settings.items():
        setting = planned.get(kind)
        restores = setting is not None and same_setting(before, setting.after)
        stored = setting.before if setting is not None else None
        again = not any(same_setting(stored, items) for items in (written, before))
        yield f"the {kind.label}", restores, again
