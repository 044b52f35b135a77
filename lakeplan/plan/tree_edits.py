"""Edits the files of a tree: to have values that were changed on servers, or the rules of an earlier apply
(``history rollback``), after it has determined where the tree differs from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakeplan.errors import ConfigError, LakeplanError, StalePlan, UsageError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.limits import DRIFT_VALUES
from lakeplan.plan.documents import NotWrittenRow, WrittenRow
from lakeplan.plan.drift_compare import DriftClass, DriftedItem, DriftedValue, Items, RepositoryDrift
from lakeplan.retention.patterns import expand, matches
from lakeplan.review.differences import (
    DEFAULT_PATH,
    branch_path,
    is_reordering,
    item_name,
    pair_items,
    same_setting,
)
from lakeplan.review.history import RunRecord, RunStep, SettingStep
from lakeplan.review.selection import Selection
from lakeplan.tree.editing import (
    Change,
    EditedTree,
    add_entry,
    drop_branch,
    gc_lines,
    put_branch,
    put_default,
    put_setting,
    replace_number,
    set_gc,
    setting_lines,
)
from lakeplan.tree.files import ROOT_FILE
from lakeplan.tree.tree import DesiredTree, Tree
from lakeplan.values.desired import (
    BranchRule,
    Cleared,
    DesiredRepository,
    GcDesired,
    Policy,
    SettingKind,
    Source,
)
from lakeplan.values.plan import Plan, RepositoryPlan
from lakeplan.values.rules import GcRules

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


@dataclass(frozen=True)
class DriftWritten:
    written: tuple[WrittenRow, ...]
    not_written: tuple[NotWrittenRow, ...]


class _Refused(Exception):
    """A value is not written; the message says why."""


@dataclass(frozen=True)
class _Edit:
    """One edit for one value or item of a repository's drift. ``users`` are all repositories that it changes,
    as ``server/name``."""

    drift: RepositoryDrift
    value: DriftedValue | DriftedItem
    file: str
    change: Change
    users: frozenset[str]
    place: tuple[int, int] = (0, 0)


def write_drift(
    tree: Tree, drifts: Iterable[RepositoryDrift], live: Mapping[str, Iterable[str] | None], files: EditedTree
) -> DriftWritten:
    """Writes every value that differs on the server from both the baseline and the tree. ``live`` are the
    repositories of each server; None: not known. The edited tree is loaded and compared. Edits that do not
    result in exactly the server's values, or that change another repository, are not written."""
    drifted = [drift for drift in drifts if drift.failure is None]
    stored = {(d.repository, v.path): v.stored for d in drifted for v in _edited(d)}
    written: list[WrittenRow] = []
    refused: list[NotWrittenRow] = []
    # The check of one edit takes as long as that of all, so all are tried at once, then halves.
    pending = [[(drift, kind) for drift in drifted for kind in (None, *SettingKind)]]
    while pending:
        parts = pending.pop()
        writer = _Writer(tree, live, stored, files)
        before = len(refused)
        edits = [edit for drift, kind in parts for edit in writer.edits(drift, kind, refused)]
        why = writer.write(edits)
        if not why:
            tree = writer.tree
            written += [_written(edit) for edit in edits]
        elif len(parts) == 1:
            refused += [_refused(edit.drift, edit.value, why) for edit in edits]
        else:
            del refused[before:]
            half = len(parts) // 2
            pending += [parts[half:], parts[:half]]
    return DriftWritten(tuple(written), tuple(refused))


def _edited(drift: RepositoryDrift) -> list[DriftedValue]:
    """The values that were edited on the server and that the tree manages and does not have yet."""
    return [v for v in drift.values if v.drift is DriftClass.SERVER_EDITED and v.stored != v.wanted]


def _edited_items(drift: RepositoryDrift, kind: SettingKind) -> list[DriftedItem]:
    items = (item for item in drift.items if item.setting is kind)
    return [i for i in items if i.drift is DriftClass.SERVER_EDITED and i.stored != i.wanted]


def _path(value: DriftedValue | DriftedItem) -> str:
    return value.path if isinstance(value, DriftedValue) else f"{value.setting.value}/{value.item}"


def _refused(drift: RepositoryDrift, value: DriftedValue | DriftedItem, reason: str) -> NotWrittenRow:
    return {"repository": drift.repository, "path": _path(value), "reason": reason}


def _written(edit: _Edit) -> WrittenRow:
    value = edit.value
    before, after = value.wanted, value.stored
    row: WrittenRow = {
        "repository": edit.drift.repository,
        "path": _path(value),
        "before": before if isinstance(before, int) else _text(before, after),
        "after": after if isinstance(after, int) else _text(after, before),
        "file": edit.file,
    }
    return row


def _text(values: Mapping[str, str] | None, other: Mapping[str, str] | int | None) -> str | None:
    """The values of an item that differ from the other side, as text. None without an item."""
    if not values:
        return None
    compared = other if isinstance(other, Mapping) else {}
    differ = [key for key in values if values[key] != compared.get(key) and key != "id"]
    return ", ".join(f"{key} {values[key]}" for key in differ)


class _Writer:
    def __init__(
        self,
        tree: Tree,
        live: Mapping[str, Iterable[str] | None],
        stored: Mapping[tuple[str, str], int | None],
        files: EditedTree,
    ) -> None:
        self.tree = tree
        self._live, self._stored, self._files = live, stored, files
        self._all_known = all(live.get(server) is not None for server in tree.servers)
        self._desired = self._resolved(tree)
        self._users: dict[Source, set[str]] = {}
        for key, desired in self._desired.items():
            for pointer, source in desired.values.items():
                if pointer.startswith("/gc/"):
                    self._users.setdefault(source, set()).add(key)

    def _resolved(self, tree: Tree) -> dict[str, DesiredRepository]:
        return {
            d.key: d for server in tree.servers for d in tree.resolve(server, self._live.get(server) or ())
        }

    def edits(
        self, drift: RepositoryDrift, kind: SettingKind | None, refused: list[NotWrittenRow]
    ) -> list[_Edit]:
        """The edits of one setting (None: GC rules). Adds values that cannot be written to ``refused``."""
        return self._rule_edits(drift, refused) if kind is None else self._item_edits(drift, refused, kind)

    def _rule_edits(self, drift: RepositoryDrift, refused: list[NotWrittenRow]) -> list[_Edit]:
        edits = []
        values = _edited(drift)
        cleared = next((v for v in values if v.path == DEFAULT_PATH and v.stored is None), None)
        if cleared is not None:
            why = (
                "the server no longer has GC rules. Write `gc: clear` in the tree, or run `lakeplan apply` to"
                " set them again"
            )
            refused.append(_refused(drift, cleared, why))
            return []
        if len(values) > DRIFT_VALUES:
            why = (
                f"{len(values):,} values differ, but the limit is {DRIFT_VALUES} edits. Import the"
                " repository again"
            )
            refused.append(_refused(drift, values[0], why))
            return []
        for value in values:
            try:
                edits.append(self._edit(drift, value))
            except _Refused as why:
                refused.append(_refused(drift, value, str(why)))
        return edits

    def _item_edits(
        self, drift: RepositoryDrift, refused: list[NotWrittenRow], kind: SettingKind
    ) -> list[_Edit]:
        """The edits of policies or object rules, in the repository's own entry."""
        values = _edited_items(drift, kind)
        desired = self._desired.get(drift.repository)
        stored, wanted = drift.stored.get(kind) or (), desired.wanted_items(kind) if desired else None
        try:
            if not values:
                return []
            if desired is None or not wanted:
                raise _Refused(f"the tree clears the {kind.label}, but they are still set on the server")
            if not stored:
                clear = f"Write `{kind.value}: clear` in the tree, or run `lakeplan apply` to set them again"
                raise _Refused(f"the server no longer has {kind.label}. {clear}")
            changed = drift.last is not None and drift.last.config_hash != desired.config_hash
            if changed and any(value.applied != value.wanted for value in values):
                raise _Refused(
                    f"the tree's {kind.label} have changed too, and that change has not been applied"
                )
            file, entry = self._own_entry(desired, f"{kind.label} can be edited only in an exact entry")
        except _Refused as why:
            # All of them have this one reason.
            refused.append({"repository": drift.repository, "path": kind.value, "reason": str(why)})
            return []
        named = {value.item: value for value in values}
        edits = []
        for have, want in pair_items(stored, wanted):
            value = named.get(item_name(want if want is not None else have))
            if value is None:
                continue
            if isinstance(have, Policy) and isinstance(want, Policy) and want.id is None:
                have = replace(have, id=None)
            put = partial(put_setting, entry=entry, kind=kind, old=want, new=have)
            edits.append(_Edit(drift, value, file, put, frozenset({drift.repository})))
        return edits

    def _edit(self, drift: RepositoryDrift, value: DriftedValue) -> _Edit:
        desired = self._desired.get(drift.repository)
        gc = desired.gc if desired is not None else None
        if desired is None or not isinstance(gc, GcDesired):
            raise _Refused("the tree clears the GC rules, but they are still set on the server")
        last = drift.last
        own_change = last is not None and last.config_hash != desired.config_hash
        if own_change and value.applied != value.wanted:
            raise _Refused(
                f"its value in the tree has changed too, from {_days(value.applied)} to"
                f" {_days(value.wanted)}, and that change has not been applied"
            )
        if value.path == DEFAULT_PATH:
            put = partial(put_default, days=value.stored or 0)
            return self._set(drift, value, gc.source, put)
        branch = value.path.removeprefix(branch_path(""))
        rule = next((r for r in gc.branches if not r.is_pattern and r.name == branch), None)
        if value.stored is None:
            return self._drop(drift, value, branch)
        put_rule = partial(put_branch, branch=branch, days=value.stored)
        return self._set(drift, value, rule.source if rule is not None else None, put_rule)

    def _set(
        self,
        drift: RepositoryDrift,
        value: DriftedValue,
        source: Source | None,
        put: Callable[[str, str], str | None],
    ) -> _Edit:
        """The edit that sets a value: in its place if all repositories that share the place have the same
        value on the server, or else as the repository's own value."""
        days, desired = value.stored, self._desired[drift.repository]
        assert days is not None
        users = self._users.get(source, set()) if source is not None else set()
        same = all(self._stored.get((user, value.path), ...) == days for user in users)
        if source is not None and same and (self._all_known or self._is_own(desired, source)):
            place = (source.line, source.column)
            change = partial(replace_number, line=place[0], column=place[1], number=days)
            return _Edit(drift, value, source.file, change, frozenset(users), place)
        where = f"its value is in {source}, which other repositories share" if source else ""
        file, entry = self._own_entry(desired, where or "the tree has no rule for exactly this branch")
        return _Edit(drift, value, file, lambda text: put(text, entry), frozenset({desired.key}))

    def _drop(self, drift: RepositoryDrift, value: DriftedValue, branch: str) -> _Edit:
        desired = self._desired[drift.repository]
        gc = desired.gc
        patterns = gc.branches if isinstance(gc, GcDesired) else ()
        by = next((r.name for r in patterns if r.is_pattern and matches(branch, r.name)), None)
        if by is not None:
            raise _Refused(
                f"the server has no rule for this branch, but the pattern {by!r} in the tree sets one"
            )
        file, entry = self._own_entry(desired, "its rule is shared with other repositories")

        def drop(text: str) -> str | None:
            return drop_branch(text, entry, branch) or put_branch(text, entry, branch, None)

        return _Edit(drift, value, file, drop, frozenset({desired.key}))

    def _is_own(self, desired: DesiredRepository, source: Source) -> bool:
        naming = self.tree.directory.naming(desired.server, desired.name)
        exact = naming.exact if naming is not None else None
        return exact is not None and any(v.source == source for v in exact.layer.values.values())

    def _own_entry(self, desired: DesiredRepository, why: str) -> tuple[str, str]:
        """The file and key of the repository's exact entry. Raises ``_Refused`` if it has none."""
        naming = self.tree.directory.naming(desired.server, desired.name)
        if naming is None or naming.exact is None:
            raise _Refused(f"{why}, and the repository has no entry of its own. Add one")
        return naming.exact.source.file, naming.exact.key

    def write(self, edits: Sequence[_Edit]) -> str:
        """Makes all edits, or none. Returns why they are impossible, or "": then ``tree`` is the new tree."""
        if not edits:
            return ""
        expected = {user: _Settings.of(self._desired[user]) for edit in edits for user in edit.users}
        for edit in edits:
            for user in edit.users:
                expected[user].take(edit.value, edit.drift)
        try:
            # The last place of a file is first, so that no edit moves the place of a later one.
            for edit in sorted(edits, key=lambda edit: (edit.file, edit.place), reverse=True):
                if not self._files.edit(edit.file, edit.change):
                    raise ConfigError(f"{edit.file}: the entry is written in a way that lakeplan cannot edit")
            tree = self._files.load()
            after = self._resolved(tree)
            self._check(edits[0].drift.repository, expected, after)
            self._files.keep()
        except LakeplanError as error:
            self._files.undo()
            return "; ".join(error.problems if isinstance(error, ConfigError) else ()) or str(error)
        self.tree = tree
        return ""

    def _check(
        self, key: str, expected: Mapping[str, _Settings], after: Mapping[str, DesiredRepository]
    ) -> None:
        """Raises ConfigError unless exactly these settings changed as expected."""
        for user, settings in expected.items():
            if user not in after or not settings.fit(after[user]):
                raise ConfigError(f"the edited tree would not contain the server's rules for {user}")
        others = self._desired.keys() - expected.keys()
        if after.keys() != self._desired.keys() or any(
            after[other].config_hash != self._desired[other].config_hash for other in others
        ):
            raise ConfigError(f"the edit for {key} would change other repositories")


@dataclass
class _Settings:
    """The settings that a repository must have after the edits. ``rules`` has days by whether the name is a
    pattern, and the name. The default has the name ""."""

    rules: dict[tuple[bool, str], int]
    items: dict[SettingKind, Items | None]

    @classmethod
    def of(cls, desired: DesiredRepository) -> _Settings:
        return cls(_rules(desired), {kind: desired.wanted_items(kind) for kind in SettingKind})

    def take(self, value: DriftedValue | DriftedItem, drift: RepositoryDrift) -> None:
        """Sets a value to the server's; of policies or object rules, the whole list."""
        if isinstance(value, DriftedItem):
            self.items[value.setting] = drift.stored[value.setting]
            return
        name = "" if value.path == DEFAULT_PATH else value.path.removeprefix(branch_path(""))
        if value.stored is None:
            self.rules.pop((False, name), None)
        else:
            self.rules[False, name] = value.stored

    def fit(self, desired: DesiredRepository) -> bool:
        """Whether a repository has these settings. The order of policies does not matter, because it has no
        effect on which branches are deleted (lakefs/branch-lifecycle.md)."""
        wanted = {kind: desired.wanted_items(kind) for kind in SettingKind}
        return _rules(desired) == self.rules and all(
            same_setting(items, wanted[kind]) or is_reordering(items, wanted[kind])
            for kind, items in self.items.items()
        )


def _rules(desired: DesiredRepository) -> dict[tuple[bool, str], int]:
    gc = desired.gc
    if not isinstance(gc, GcDesired):
        return {}
    return {(False, ""): gc.default_retention_days, **{r.key: r.retention_days for r in gc.branches}}


def _days(value: int | None) -> str:
    return "not set" if value is None else f"{value} days"
