"""In which ways the policies or the object rules of a repository drifted, item by item (``docs/drift.md``).

Items are paired as a plan pairs them (``core.settings``): ids that the server gave, the order of items and of
patterns, and durations written another way are never drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakeplan.core.drift import DriftClass
from lakeplan.core.settings import fits, item_name, item_values, pair_items
from lakeplan.model.lifecycle import Policy
from lakeplan.model.settings import SettingItem, SettingKind

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
        *(_drifted(DriftClass.SERVER_EDITED, kind, i) for i in edited),
        *(_drifted(DriftClass.TREE_AHEAD, kind, i) for i in ahead),
    )


def setting_released(
    kind: SettingKind, stored: Items | None, applied: Items | None
) -> tuple[DriftedItem, ...]:
    """The items that a server still has of a list that was applied once and that the tree manages no more."""
    return tuple(
        _drifted(DriftClass.RELEASED, kind, item)
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


def _drifted(drift: DriftClass, kind: SettingKind, item: _Item) -> DriftedItem:
    named = item.wanted or item.stored or item.applied
    return DriftedItem(
        drift,
        kind,
        item_name(named),
        item_values(item.applied),
        item_values(item.stored),
        item_values(item.wanted),
    )
