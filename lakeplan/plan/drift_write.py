"""Writes values that were changed on servers into the files of a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakeplan.errors import ConfigError, LakeplanError
from lakeplan.limits import DRIFT_VALUES
from lakeplan.plan.documents import NotWrittenRow, WrittenRow
from lakeplan.plan.drift_compare import DriftClass, DriftedItem, DriftedValue, Items, RepositoryDrift
from lakeplan.retention.patterns import matches
from lakeplan.review.differences import (
    DEFAULT_PATH,
    branch_path,
    is_reordering,
    item_name,
    pair_items,
    same_setting,
)
from lakeplan.tree.editing import (
    Change,
    EditedTree,
    drop_branch,
    put_branch,
    put_default,
    put_setting,
    replace_number,
)
from lakeplan.tree.tree import Tree
from lakeplan.values.desired import DesiredRepository, GcDesired, Policy, SettingKind, Source


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
