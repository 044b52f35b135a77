"""Compares last applied, stored and wanted values to find how a repository drifted. Also records HEADs where
a server deletes branches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from lakeplan.branches.deletion_records import drop_observed, last_observed, record_heads
from lakeplan.branches.pin_records import PinRecord, StoredRules, read_pin_record, read_stored
from lakeplan.branches.verdicts import takes
from lakeplan.errors import FeatureMissing, LakeplanError, RepositoryNotFound
from lakeplan.lakefs.protocols import BranchReader, LakeFSReader
from lakeplan.plan.baselines import LastApplied, read_last_applied
from lakeplan.plan.gather import read_setting, server_policies
from lakeplan.retention.patterns import expand, matches
from lakeplan.review.differences import (
    DEFAULT_PATH,
    branch_path,
    diff_rules,
    fits,
    item_name,
    item_values,
    pair_items,
    same_setting,
)
from lakeplan.review.run import Run
from lakeplan.state.sweeps import RecordedSweep
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.values.desired import (
    Cleared,
    DesiredRepository,
    GcDesired,
    Policy,
    ServerConfig,
    SettingItem,
    SettingKind,
)
from lakeplan.values.plan import Failure, ValueChange
from lakeplan.values.rules import GcRules


class DriftClass(str, Enum):
    """``server-edited``: the stored rules are not those that were applied. ``tree-ahead``: the tree requires
    values that were not applied. ``patterns-stale``: patterns expand to other rules, because branches were
    created or deleted. ``pins-missing``: pins are gone or lack the rules that they need. ``released``: rules
    were applied that the tree no longer manages. ``unmanaged-new``: no entry names a repository that is newer
    than the last apply on its server."""

    SERVER_EDITED = "server-edited"
    TREE_AHEAD = "tree-ahead"
    PATTERNS_STALE = "patterns-stale"
    PINS_MISSING = "pins-missing"
    RELEASED = "released"
    UNMANAGED_NEW = "unmanaged-new"


@dataclass(frozen=True)
class DriftedValue:
    """One value in one class. None means not set. ``applied`` is also None if nothing was ever applied."""

    drift: DriftClass
    path: str
    applied: int | None
    stored: int | None
    wanted: int | None


def drift_of(
    desired: DesiredRepository, stored: GcRules | None, branches: Iterable[str], last: LastApplied | None
) -> tuple[DriftedValue, ...]:
    """Every drifted value of a repository whose rules the tree manages, by class, then in the order of a
    plan.

    ``last`` is the last apply that wrote GC rules. Without one, every value that the server lacks is
    ``tree-ahead``. A value that the server has is neither ahead nor stale, no matter who wrote it.
    """
    live = set(branches)
    wanted = _wanted(desired, live)
    applied = last.rules if last is not None else None
    base = applied if last is not None else stored
    values = []
    for change in diff_rules(base, wanted):
        if _value(stored, change.path) == change.after:
            continue
        drift = DriftClass.TREE_AHEAD
        if last is not None and _is_stale(change, desired, live, last):
            drift = DriftClass.PATTERNS_STALE
        values.append(_drifted(drift, change.path, applied, stored, wanted))
    if last is not None:
        values += [
            _drifted(DriftClass.SERVER_EDITED, change.path, applied, stored, wanted)
            for change in diff_rules(applied, stored)
        ]
    order = list(DriftClass)
    return tuple(sorted(values, key=lambda v: order.index(v.drift)))


def pins_missing(stored: StoredRules, record: PinRecord) -> tuple[DriftedValue, ...]:
    """Pins that are gone or lack the rule on record, which is ``applied`` and ``wanted``."""
    raw = stored.raw.branches if stored.raw is not None else {}
    return tuple(
        DriftedValue(DriftClass.PINS_MISSING, branch_path(pin.name), pin.days, raw.get(pin.name), pin.days)
        for pin in sorted((*stored.wrong(record), *stored.gone(record)), key=lambda pin: pin.commit_id)
    )


def released(stored: GcRules | None, last: LastApplied) -> tuple[DriftedValue, ...]:
    """Values that were applied once and that the server still has, but that the tree no longer manages."""
    if stored is None:
        return ()
    return tuple(
        _drifted(DriftClass.RELEASED, change.path, last.rules, stored, None)
        for change in diff_rules(None, stored)
    )


def unmanaged_new(created: Mapping[str, datetime], last_apply: datetime | None) -> tuple[str, ...]:
    """Of the live repositories without an entry, those created since the last apply on their server, or
    all if there was none. A repository without a creation date counts as new."""
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
    """Whether a value differs only because a branch was created or deleted. If the configuration changed too,
    that is unknown, and the difference counts as the tree's."""
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
    """One policy or object rule in one class. ``item`` is its id, or its patterns. The three sides have its
    values as text under the tree's names. A side without the item is empty."""

    drift: DriftClass
    setting: SettingKind
    item: str
    applied: Values
    stored: Values
    wanted: Values


_Sides = tuple[SettingItem | None, SettingItem | None, SettingItem | None]
"""One item as it was applied, is stored, and is wanted."""


def setting_drift(
    kind: SettingKind, wanted: Items | None, stored: Items | None, applied: Items | None, *, recorded: bool
) -> tuple[DriftedItem, ...]:
    """Every drifted item of a list that the tree manages, ``server-edited`` ones first. ``applied`` counts
    only if an apply of the list is ``recorded``. Otherwise everything that the server lacks is
    ``tree-ahead``."""
    # Pairs go by id, which another policy may have by now. Where the tree sets none, it does not matter.
    if same_setting(stored, wanted) and (not recorded or same_setting(applied, wanted)):
        return ()
    items = list(_items(wanted or (), stored or (), (applied or ()) if recorded else ()))
    edited = [sides for sides in items if recorded and not _same(*sides)]
    ahead = [
        (was, have, want)
        for was, have, want in items
        if not _same(have, want, want) and not (recorded and _same(was, want, want))
    ]
    return (
        *(_drifted_setting(DriftClass.SERVER_EDITED, kind, sides) for sides in edited),
        *(_drifted_setting(DriftClass.TREE_AHEAD, kind, sides) for sides in ahead),
    )


def setting_released(
    kind: SettingKind, stored: Items | None, applied: Items | None
) -> tuple[DriftedItem, ...]:
    """The items that a server still has of a list that was applied once and that the tree no longer
    manages."""
    return tuple(
        _drifted_setting(DriftClass.RELEASED, kind, (was, have, want))
        for was, have, want in _items((), stored or (), applied or ())
        if have is not None
    )


def _items(wanted: Items, stored: Items, applied: Items) -> Iterable[_Sides]:
    """All items of the three lists: first those of the tree, in its order."""
    pairs = pair_items(stored, wanted)
    present = [have if have is not None else want for have, want in pairs]
    lead = [item for item in present if item is not None]
    for number, (was, _) in enumerate(pair_items(applied, lead)):
        have, want = pairs[number] if number < len(pairs) else (None, None)
        yield was, have, want


def _same(have: SettingItem | None, want: SettingItem | None, tree: SettingItem | None) -> bool:
    """Whether two sides are equal. Ids do not count if the tree leaves the id to the server."""
    if have is None or want is None:
        return have is want
    if isinstance(want, Policy) and isinstance(tree, Policy) and tree.id is None:
        want = replace(want, id=None)
    return fits(have, want)


def _drifted_setting(drift: DriftClass, kind: SettingKind, sides: _Sides) -> DriftedItem:
    was, have, want = sides
    return DriftedItem(
        drift, kind, item_name(want or have or was), item_values(was), item_values(have), item_values(want)
    )


@dataclass(frozen=True)
class HeadPorts:
    """Where HEADs are read and recorded. Nothing else in drift can write. ``useless`` says why records would
    be useless, so that none are made."""

    branches: Callable[[str], BranchReader]
    state: StateWriter
    run: Run
    useless: str = ""


def record_server_heads(desired: DesiredRepository, reader: LakeFSReader, ports: HeadPorts) -> str:
    """Records the HEAD of every branch that a policy of the tree or of the server matches, unless the newest
    record has the same. Returns why that failed, or ""."""
    try:
        policies = _policies(desired, reader)
        if not policies:
            return ""
        live = ports.branches(desired.server).list_live(desired.name)
        named = [branch for branch in live if any(takes(policy, branch.id) for policy in policies)]
        if last_observed(ports.state, desired.key) != {b.id: (b.commit_id, b.hidden) for b in named}:
            record_heads(ports.state, desired.key, named, ports.run)
    except LakeplanError as error:
        return f"{desired.key}: the HEADs of its branches could not be recorded for undo: {error}"
    try:
        drop_observed(ports.state, desired.key, ports.run.now())
    except LakeplanError as error:
        return f"{desired.key}: old records of HEADs could not be deleted: {error}"
    return ""


def _policies(desired: DesiredRepository, reader: LakeFSReader) -> Sequence[Policy]:
    """The policies of the tree and of the server: the server's job uses the stored ones, and an apply may
    write the tree's at any time."""
    stored = reader.get_policies(desired.name).items or ()
    return (*desired.policies, *stored)


RELEASED_NOTE = "the tree no longer manages {}; they remain on the server unchanged"
GC_RULES = "its GC rules"


@dataclass(frozen=True)
class RepositoryDrift:
    """The drift of one repository, or why it is unknown. ``values`` are those of its GC rules, ``items`` are
    policies and object rules, and ``stored`` has their whole lists on the server. ``state_note`` says which
    other record in the state could not be read, or that a purge has not recorded its end."""

    repository: str
    owner: str | None = None
    source: str = ""
    classes: tuple[DriftClass, ...] = ()
    values: tuple[DriftedValue, ...] = ()
    items: tuple[DriftedItem, ...] = ()
    stored: Mapping[SettingKind, Items | None] = field(default_factory=dict)
    last: LastApplied | None = None
    note: str = ""
    failure: Failure | None = None
    sweeps: tuple[RecordedSweep, ...] = ()
    state_note: str = ""


def manages(desired: DesiredRepository, server: ServerConfig) -> bool:
    """Whether the tree manages any setting on the server for this repository."""
    return desired.gc is not None or desired.object_lifecycle is not None or server_policies(desired, server)


def compare(
    key: str,
    desired: DesiredRepository | None,
    server: ServerConfig,
    reader: LakeFSReader,
    state: StateReader,
    owner: str | None,
) -> RepositoryDrift:
    """Compares a repository that the tree manages, or that was applied or imported once. ``desired`` is None
    if no entry names it. Raises LakeplanError if it cannot be compared."""
    last = read_last_applied(state, key)
    managed = desired is not None and manages(desired, server)
    settings = _ServerSettings(
        key.partition("/")[2], desired, server, reader, last, read_pin_record(state, key)
    )
    try:
        values = (*settings.values(), *settings.pins())
        items = [item for kind in SettingKind for item in settings.items(kind)]
    except RepositoryNotFound:
        if managed:
            raise
        return RepositoryDrift(key, owner=owner, last=last)  # nothing is left on the server to compare
    notes = ["no apply of this repository is recorded"] if last is None and managed else []
    notes += settings.notes
    if settings.left:
        notes.append(RELEASED_NOTE.format(", ".join(settings.left)))
    classes = {v.drift for v in values} | {i.drift for i in items}
    return RepositoryDrift(
        key,
        owner=owner,
        source=str(desired.source) if desired is not None and managed and desired.source else "",
        classes=tuple(c for c in DriftClass if c in classes),
        values=values,
        items=tuple(items),
        stored=settings.stored,
        last=last,
        note="; ".join(notes),
    )


@dataclass
class _ServerSettings:
    """Reads from the server what the tree manages or an apply recorded, and nothing else. ``left`` says in
    words which settings were released."""

    _name: str
    _desired: DesiredRepository | None
    _server: ServerConfig
    _reader: LakeFSReader
    _last: LastApplied | None
    _pins: PinRecord
    _rules: StoredRules | None = None
    stored: dict[SettingKind, Items | None] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def values(self) -> tuple[DriftedValue, ...]:
        last = self._last
        if self._desired is not None and self._desired.gc is not None:
            stored = self._stored_rules().bare
            last = last.with_rules(stored) if last is not None else None
            last = last if last is not None and last.rules_recorded else None
            branches = [b.id for b in self._reader.list_branches(self._name)]
            return drift_of(self._desired, stored, branches, last)
        if last is None or not (last.rules_recorded or None in last.attempts):
            return ()
        left = released(self._stored_rules().bare, last)
        self.left += [GC_RULES] if left else []
        return left

    def pins(self) -> tuple[DriftedValue, ...]:
        """Missing pins on record, even if the tree no longer requires them."""
        if not self._pins.pins:
            return ()
        gone = self._stored_rules().gone(self._pins)
        self.notes += [f"the pin {pin.name} was deleted or moved" for pin in gone]
        return pins_missing(self._stored_rules(), self._pins)

    def _stored_rules(self) -> StoredRules:
        if self._rules is None:
            self._rules = read_stored(self._reader, self._name, list_pins=bool(self._pins.pins))
        return self._rules

    def items(self, kind: SettingKind) -> tuple[DriftedItem, ...]:
        applied = self._last.settings.get(kind) if self._last is not None else None
        attempts = self._last.attempts.get(kind, ()) if self._last is not None else ()
        if self._desired is not None and self._manages(kind):
            wanted, stored = self._desired.wanted_items(kind), self._read(kind)
            self.stored[kind] = stored
            applied = next((items for items in attempts if same_setting(items, stored)), applied)
            return setting_drift(kind, wanted, stored, applied, recorded=applied is not None)
        if applied is None and not attempts:
            return ()
        try:
            left = setting_released(kind, self._read(kind), applied or attempts[-1])
        except FeatureMissing:
            return ()  # a server without the feature has none
        self.left += [f"its {kind.label}"] if left else []
        return left

    def _read(self, kind: SettingKind) -> Items | None:
        return read_setting(self._reader, kind, self._name).items

    def _manages(self, kind: SettingKind) -> bool:
        """Whether the tree manages a list on the server."""
        if self._desired is None:
            return False
        if kind is SettingKind.BRANCH_LIFECYCLE:
            return server_policies(self._desired, self._server)
        return self._desired.object_lifecycle is not None
