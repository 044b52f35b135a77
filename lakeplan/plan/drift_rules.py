"""In which ways rules and settings drifted: last applied, stored and wanted, value by value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any

from lakeplan.branches.pin_records import PinRecord, StoredRules
from lakeplan.retention.patterns import expand, matches
from lakeplan.review.differences import (
    DEFAULT_PATH,
    branch_path,
    diff_rules,
    fits,
    item_name,
    item_values,
    pair_items,
)
from lakeplan.values.desired import Cleared, DesiredRepository, GcDesired
from lakeplan.values.plan import ValueChange
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import Policy, SettingItem, SettingKind


class DriftClass(str, Enum):
    """``server-edited``: the stored rules are not those that were applied. ``tree-ahead``: the tree requires
    values that were not applied. ``patterns-stale``: branches came or went, so patterns give other rules.
    ``pins-missing``: pins that are gone, or whose rules are others than they need.
    ``released``: rules that were applied, and that the tree does not manage any more. ``unmanaged-new``: a
    repository that no entry names and that is younger than the server's last apply."""

    SERVER_EDITED = "server-edited"
    TREE_AHEAD = "tree-ahead"
    PATTERNS_STALE = "patterns-stale"
    PINS_MISSING = "pins-missing"
    RELEASED = "released"
    UNMANAGED_NEW = "unmanaged-new"


@dataclass(frozen=True)
class MatchingRun:
    """The import, or the apply, that found a repository as the tree has it."""

    run_id: str
    at: datetime
    command: str


@dataclass(frozen=True)
class LastApplied:
    """What the state recorded of a repository's last apply. ``rules`` None: they were cleared.
    ``rules_recorded`` False: no apply wrote any, only ``settings``: the policies and object rules that were
    read back, empty where they were cleared; without a key nothing was applied. ``attempts`` are what later
    writes were to leave whose end no run could record, oldest first. ``seen`` is the run that found values of
    it there and did not have to write them; with an empty ``run_id`` nothing was ever written."""

    rules: GcRules | None
    config_hash: str
    run_id: str
    at: datetime
    rules_recorded: bool = True
    settings: Mapping[SettingKind, tuple[SettingItem, ...]] = field(default_factory=dict)
    attempts: Mapping[SettingKind | None, tuple[Any, ...]] = field(default_factory=dict)
    seen: MatchingRun | None = None

    @property
    def newest(self) -> MatchingRun:
        """The run that last wrote or saw values of it."""
        written = MatchingRun(self.run_id, self.at, "apply")
        return self.seen if self.seen is not None and self.seen.at >= self.at else written

    def with_rules(self, stored: GcRules | None) -> LastApplied:
        """With the rules that are stored now as those applied, where an attempt was to leave them."""
        attempted = stored in self.attempts.get(None, ())
        return replace(self, rules=stored, rules_recorded=True) if attempted else self

    @property
    def has_remainder(self) -> bool:
        """Whether something that it wrote may still be on the server."""
        attempted = any(body for bodies in self.attempts.values() for body in bodies)
        return self.rules is not None or any(self.settings.values()) or attempted


@dataclass(frozen=True)
class DriftedValue:
    """One value in one class. None is "not set"; ``applied`` is None too where nothing was ever applied."""

    drift: DriftClass
    path: str
    applied: int | None
    stored: int | None
    wanted: int | None


def drift_of(
    desired: DesiredRepository, stored: GcRules | None, branches: Iterable[str], last: LastApplied | None
) -> tuple[DriftedValue, ...]:
    """Every drifted value of a repository whose rules the tree manages, by class, then as a plan orders them.

    ``last`` is an apply that wrote GC rules; without one every value that the server lacks is ``tree-ahead``.
    A value that the server has already is neither ahead nor stale, whoever wrote it.
    """
    live = set(branches)
    wanted = _wanted(desired, live)
    applied = last.rules if last is not None else None
    base = applied if last is not None else stored
    found = []
    for change in diff_rules(base, wanted):
        if _value(stored, change.path) == change.after:
            continue
        drift = DriftClass.TREE_AHEAD
        if last is not None and _is_stale(change, desired, live, last):
            drift = DriftClass.PATTERNS_STALE
        found.append(_drifted(drift, change.path, applied, stored, wanted))
    if last is not None:
        found += [
            _drifted(DriftClass.SERVER_EDITED, change.path, applied, stored, wanted)
            for change in diff_rules(applied, stored)
        ]
    order = list(DriftClass)
    return tuple(sorted(found, key=lambda v: order.index(v.drift)))


def pins_missing(stored: StoredRules, record: PinRecord) -> tuple[DriftedValue, ...]:
    """Pins that are gone or lack the rule that they were given. ``applied`` and ``wanted`` are that rule."""
    raw = stored.raw.branches if stored.raw is not None else {}
    return tuple(
        DriftedValue(DriftClass.PINS_MISSING, branch_path(pin.name), pin.days, raw.get(pin.name), pin.days)
        for pin in sorted((*stored.wrong(record), *stored.gone(record)), key=lambda pin: pin.commit_id)
    )


def released(stored: GcRules | None, last: LastApplied) -> tuple[DriftedValue, ...]:
    """The values that a server still has, applied once, although the tree manages them no more."""
    if stored is None:
        return ()
    return tuple(
        _drifted(DriftClass.RELEASED, change.path, last.rules, stored, None)
        for change in diff_rules(None, stored)
    )


def unmanaged_new(created: Mapping[str, datetime], last_apply: datetime | None) -> tuple[str, ...]:
    """Of the live repositories that no entry names, those made since the last apply on their server; all of
    them when there was none. A repository without a creation date counts as new."""
    return tuple(sorted(n for n, at in created.items() if last_apply is None or not _before(at, last_apply)))


def _before(created: datetime, last_apply: datetime) -> bool:
    return created.timestamp() > 0 and created <= last_apply


def _wanted(desired: DesiredRepository, live: Iterable[str]) -> GcRules | None:
    match desired.gc:
        case GcDesired() as gc:
            return expand(gc, live).rules
        case Cleared.CLEAR | None:
            return None


def _is_stale(change: ValueChange, desired: DesiredRepository, live: set[str], last: LastApplied) -> bool:
    """Whether a branch came or went is all that is behind a difference. Where that is unknown, because
    the configuration changed since, it is the tree's."""
    if change.path == DEFAULT_PATH or not isinstance(desired.gc, GcDesired):
        return False
    branch = change.path.removeprefix(branch_path(""))
    exact = any(not r.is_pattern and r.name == branch for r in desired.gc.branches)
    by_pattern = any(r.is_pattern and matches(branch, r.name) for r in desired.gc.branches)
    if exact or not by_pattern:
        return False
    if change.after is None:
        return branch not in live
    return change.before is None and last.config_hash == desired.config_hash


def _drifted(
    drift: DriftClass, path: str, applied: GcRules | None, stored: GcRules | None, wanted: GcRules | None
) -> DriftedValue:
    return DriftedValue(drift, path, _value(applied, path), _value(stored, path), _value(wanted, path))


def _value(rules: GcRules | None, path: str) -> int | None:
    if rules is None:
        return None
    if path == DEFAULT_PATH:
        return rules.default_retention_days
    return rules.branches.get(path.removeprefix(branch_path("")))


Items = Sequence[SettingItem]
Values = Mapping[str, str]


@dataclass(frozen=True)
class DriftedItem:
    """One policy or object rule in one class. ``item`` is its id, or its patterns; the three sides are its
    values as text under the names of the tree, empty where there is no such item."""

    drift: DriftClass
    setting: SettingKind
    item: str
    applied: Values
    stored: Values
    wanted: Values


@dataclass(frozen=True)
class _Item:
    """One item on its three sides."""

    applied: SettingItem | None
    stored: SettingItem | None
    wanted: SettingItem | None


def setting_drift(
    kind: SettingKind, wanted: Items | None, stored: Items | None, applied: Items | None, *, recorded: bool
) -> tuple[DriftedItem, ...]:
    """Every drifted item of a list that the tree manages, ``server-edited`` ones first. ``applied`` counts
    only where an apply of the list is ``recorded``; without, all that the server lacks is ``tree-ahead``."""
    items = list(_items(wanted or (), stored or (), (applied or ()) if recorded else ()))
    edited = [i for i in items if recorded and not _same(i.applied, i.stored, i.wanted)]
    ahead = [
        i
        for i in items
        if not _same(i.stored, i.wanted, i.wanted) and not (recorded and _same(i.applied, i.wanted, i.wanted))
    ]
    return (
        *(_drifted_setting(DriftClass.SERVER_EDITED, kind, i) for i in edited),
        *(_drifted_setting(DriftClass.TREE_AHEAD, kind, i) for i in ahead),
    )


def setting_released(
    kind: SettingKind, stored: Items | None, applied: Items | None
) -> tuple[DriftedItem, ...]:
    """The items that a server still has of a list that was applied once and that the tree manages no more."""
    return tuple(
        _drifted_setting(DriftClass.RELEASED, kind, item)
        for item in _items((), stored or (), applied or ())
        if item.stored is not None
    )


def _items(wanted: Items, stored: Items, applied: Items) -> Iterable[_Item]:
    """All items of the three lists, those of the tree first and in its order."""
    pairs = pair_items(stored, wanted)
    present = [have if have is not None else want for have, want in pairs]
    lead = [item for item in present if item is not None]
    for number, (was, _) in enumerate(pair_items(applied, lead)):
        have, want = pairs[number] if number < len(pairs) else (None, None)
        yield _Item(was, have, want)


def _same(have: SettingItem | None, want: SettingItem | None, tree: SettingItem | None) -> bool:
    """Whether two sides say the same; where the tree leaves the id to the server, whatever their ids are."""
    if have is None or want is None:
        return have is want
    if isinstance(want, Policy) and isinstance(tree, Policy) and tree.id is None:
        want = replace(want, id=None)
    return fits(have, want)


def _drifted_setting(drift: DriftClass, kind: SettingKind, item: _Item) -> DriftedItem:
    named = item.wanted or item.stored or item.applied
    return DriftedItem(
        drift,
        kind,
        item_name(named),
        item_values(item.applied),
        item_values(item.stored),
        item_values(item.wanted),
    )
