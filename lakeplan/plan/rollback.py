"""Determines which rules a rollback restores and where the checked-out tree differs from them, and edits the
tree so that it contains them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lakeplan.errors import ConfigError, LakeplanError, StalePlan, UsageError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.retention.patterns import expand
from lakeplan.review.differences import same_setting
from lakeplan.review.history import RunRecord, RunStep, SettingStep
from lakeplan.review.selection import Selection
from lakeplan.tree.editing import EditedTree, add_entry, gc_lines, set_gc, setting_lines
from lakeplan.tree.files import ROOT_FILE
from lakeplan.tree.tree import DesiredTree, Tree
from lakeplan.values.desired import (
    BranchRule,
    Cleared,
    DesiredRepository,
    GcDesired,
    SettingItem,
    SettingKind,
)
from lakeplan.values.plan import Plan, RepositoryPlan
from lakeplan.values.rules import GcRules

Items = Sequence[SettingItem]
Connect = Callable[[str], LakeFSReader]

_AGAIN = "Run the command again, because something changed in the meantime."


@dataclass(frozen=True)
class Disagreement:
    """A repository whose tree would not restore what a run replaced. ``step`` is that part of the run.
    ``desired`` is None if no entry names the repository. ``rules``: the GC rules differ, and ``leftover`` are
    branch rules of the tree that the old rules lack. ``settings``: the other settings that differ."""

    step: RunStep
    desired: DesiredRepository | None
    rules: bool = True
    leftover: tuple[BranchRule, ...] = ()
    settings: tuple[SettingStep, ...] = ()


def replaced_steps(run: RunRecord, selection: Selection) -> tuple[RunStep, ...]:
    """The selected repositories where the run recorded rules or settings before it replaced them, each with
    the replaced settings only. Includes one that was in progress when the run was killed. Raises UsageError
    if the selection matches none of the run's repositories, and LakeplanError if there is nothing to
    restore."""
    selected = [s for s in run.steps if selection.takes_key(s.repository)]
    if run.steps and not selected:
        raise UsageError(
            "the selection matches no repository in the run",
            where=run.run_id,
            hint=f"Run `lakeplan history show {run.run_id}` to list its repositories.",
        )
    steps = (replace(s, settings=tuple(one for one in s.settings if one.replaced)) for s in selected)
    wanted = tuple(step for step in steps if step.replaced or step.settings)
    if not wanted:
        raise LakeplanError(
            "the run did not replace any rules that can be restored",
            where=run.run_id,
            hint=f"Run `lakeplan history show {run.run_id}` to see what it did.",
        )
    return wanted


def disagreements(tree: DesiredTree, steps: Iterable[RunStep], connect: Connect) -> tuple[Disagreement, ...]:
    """Return where the tree, expanded over today's branches, requires other rules than those to restore.
    Raises ServerError, and StalePlan for a repository on a server that the tree does not name."""
    differing = []
    for step in steps:
        server, _, name = step.repository.partition("/")
        if server not in tree.servers:
            raise StalePlan(
                f"the tree no longer has the server {server!r}",
                where=step.repository,
                hint="Exclude the repository with --target, or add the server to the tree again.",
            )
        desired = tree.find(server, name)
        rules = step.replaced
        if rules:
            branches = [b.id for b in connect(server).list_branches(name)]
            rules = not _requires_rules(desired, step.before, branches)
        settings = tuple(s for s in step.settings if not _requires(desired, s.kind, s.before))
        if rules or settings:
            leftover = _leftover(desired, step.before) if rules else ()
            differing.append(Disagreement(step, desired, rules, leftover, settings))
    return tuple(differing)


def _requires(desired: DesiredRepository | None, kind: SettingKind, items: Items) -> bool:
    wanted = desired.wanted_items(kind) if desired is not None else None
    return wanted is not None and same_setting(items, wanted)


def _requires_rules(
    desired: DesiredRepository | None, rules: GcRules | None, branches: Sequence[str]
) -> bool:
    gc = desired.gc if desired is not None else None
    if isinstance(gc, GcDesired):
        return expand(gc, branches).rules == rules
    return gc is Cleared.CLEAR and rules is None


def _leftover(desired: DesiredRepository | None, rules: GcRules | None) -> tuple[BranchRule, ...]:
    if desired is None or rules is None or not isinstance(desired.gc, GcDesired):
        return ()
    return tuple(r for r in desired.gc.branches if r.is_pattern or r.name not in rules.branches)


def checked(plan: Plan, steps: Iterable[RunStep], run_id: str) -> Plan:
    """The plan, if it restores exactly what the run replaced. Its warnings list what else it undoes. Raises
    StalePlan when branches or rules changed while it was made."""
    planned = {r.key: r for r in plan.repositories}
    warnings = []
    for step in steps:
        repository = planned.get(step.repository)
        if repository is None:
            raise StalePlan("the plan does not contain the repository", where=step.repository, hint=_AGAIN)
        if repository.failure is not None:
            continue
        for name, restores, again in _parts(step, repository):
            if not restores:
                raise StalePlan(
                    f"the plan does not restore the {name} to their state before run {run_id}",
                    where=step.repository,
                    hint=_AGAIN,
                )
            if again:
                warnings.append(
                    f"{step.repository}: its {name} were changed again after run {run_id}, and the rollback"
                    " undoes that change too"
                )
    warnings.append(f"this plan rolls the repositories back to their settings before run {run_id}")
    return replace(plan, warnings=(*plan.warnings, *sorted(warnings)))


def _parts(step: RunStep, plan: RepositoryPlan) -> Iterator[tuple[str, bool, bool]]:
    """For each setting to restore: its name, whether the plan restores it, and whether it was changed
    again."""
    if step.replaced:
        yield "rules", plan.after == step.before, plan.before not in (step.after, step.before)
    planned = {setting.kind: setting for setting in plan.settings}
    for old in step.settings:
        setting = planned.get(old.kind)
        restores = setting is not None and same_setting(old.before, setting.after)
        stored = setting.before if setting is not None else None
        again = not any(same_setting(stored, items) for items in (old.after, old.before))
        yield old.kind.label, restores, again


# ---- edits of the tree
def edit_text(edit: Disagreement) -> str:
    """The edit to make by hand, and where."""
    desired, repository = edit.desired, edit.step.repository
    lines = gc_lines(edit.step.before) if edit.rules else []
    lines += [line for setting in edit.settings for line in setting_lines(setting.kind, setting.before)]
    if desired is None or desired.by_glob or desired.source is None:
        head = f"{repository}: add this entry under `repositories` in any file of the tree:"
        lines = [f"{repository}:", *(f"  {line}" for line in lines)]
    else:
        blocks = ["gc"] * edit.rules + [setting.kind.value for setting in edit.settings]
        head = f"{repository}: in its entry at {desired.source}, replace {' and '.join(blocks)} with:"
    return "\n".join([head, *(f"    {line}" for line in lines)])


def edits_needed(disagreements: Sequence[Disagreement], why: str, hint: str) -> StalePlan:
    """The error of a rollback that needs edits by hand."""
    edits = "\n  ".join(edit_text(each).replace("\n", "\n  ") for each in disagreements)
    return StalePlan(
        f"{why}. No plan was created and nothing was changed. Make these edits:\n  {edits}", hint=hint
    )


@dataclass
class TreeEdit(EditedTree):
    """Edits a tree so that it contains the rules to restore."""

    def make(self, tree: Tree, wanted: Sequence[RunStep], connect: Connect) -> Tree:
        """Edits the files and returns the tree, which then contains the rules to restore and is otherwise the
        same. Where that is impossible, it raises StalePlan with the edits to make by hand."""
        first = disagreements(tree, wanted, connect)
        if any(disagreement.settings for disagreement in first):
            raise _not_editable(first, "lakeplan does not edit policies or object rules")
        try:
            edited = self._pass(first, {})
            again = disagreements(edited, wanted, connect)
            if again:  # rules that the entry inherits have to be removed by name
                edited = self._pass(again, {d.step.repository: d for d in again})
                again = disagreements(edited, wanted, connect)
            if again or not _same_elsewhere(tree, edited, wanted):
                raise ConfigError("the edited tree would not contain the old rules")
        except ConfigError as error:
            raise _not_editable(first, "\n  ".join(error.problems or (error.message,))) from None
        return edited

    def _pass(self, disagreements: Iterable[Disagreement], leftover: Mapping[str, Disagreement]) -> Tree:
        for item in disagreements:
            key = item.step.repository
            lines = gc_lines(item.step.before, leftover[key].leftover if key in leftover else ())
            self._edit(item, lines)
        return self.load()

    def _edit(self, item: Disagreement, lines: list[str]) -> None:
        desired = item.desired
        has_entry = desired is not None and not desired.by_glob and desired.source is not None
        file = desired.source.file if has_entry and desired and desired.source else ROOT_FILE
        key = desired.entry if has_entry and desired else item.step.repository
        edit = set_gc if has_entry else add_entry
        if not self.edit(file, lambda text: edit(text, key, lines)):
            raise ConfigError("an entry is written in a way that lakeplan cannot edit")


def _not_editable(disagreements: Sequence[Disagreement], problems: str) -> StalePlan:
    why = f"\n  {problems}" if problems else ""
    hint = "Edit the tree by hand, then run the rollback again."
    return edits_needed(disagreements, f"the tree could not be edited to contain the old rules{why}", hint)


def _same_elsewhere(before: Tree, after: Tree, wanted: Iterable[RunStep]) -> bool:
    """Whether every other repository that can be named without a server resolves as it did."""
    edited = {r.repository for r in wanted}

    def hashes(tree: Tree) -> dict[str, str]:
        return {
            d.key: d.config_hash
            for server in tree.servers
            for d in tree.resolve(server, ())
            if d.key not in edited
        }

    return hashes(before) == hashes(after)
