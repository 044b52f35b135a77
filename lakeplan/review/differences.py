"""Compares stored rules and settings with the wanted ones, and lists the changes. It uses no client."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from lakeplan.values.desired import ObjectRule, Policy, SettingItem, canonical, duration_text
from lakeplan.values.plan import SettingChange, ValueChange
from lakeplan.values.rules import Action, GcRules

DEFAULT_PATH = "default_retention_days"


def action_of(before: GcRules | None, after: GcRules | None) -> Action:
    """Return the write, if any, that takes a repository from ``before`` to ``after`` (None: not set)."""
    if before == after:
        return Action.NONE
    if before is None:
        return Action.ADD
    return Action.CLEAR if after is None else Action.CHANGE


def branch_path(branch_id: str) -> str:
    return f"branches/{branch_id}"


def diff_rules(before: GcRules | None, after: GcRules | None) -> tuple[ValueChange, ...]:
    """Return every value that differs: the default, then branches by id. The server's order and
    representation of branches do not matter."""
    changes = []
    default_before = before.default_retention_days if before else None
    default_after = after.default_retention_days if after else None
    if default_before != default_after:
        changes.append(ValueChange(DEFAULT_PATH, default_before, default_after))
    branches_before = before.branches if before else {}
    branches_after = after.branches if after else {}
    for branch in sorted({*branches_before, *branches_after}):
        old, new = branches_before.get(branch), branches_after.get(branch)
        if old != new:
            changes.append(ValueChange(branch_path(branch), old, new))
    return tuple(changes)


ORDER = "order"
"""The name of a change that only moves items, and of its only value. Items have no value with this name."""
Items = Sequence[SettingItem]
Pair = tuple[SettingItem | None, SettingItem | None]


def same_setting(stored: Items | None, wanted: Items | None) -> bool:
    """Return whether ``stored`` is what ``wanted`` requires. Durations are compared by length, patterns and
    branches in any order, and ids only if the tree sets them. The order of policies matters, but the order of
    object rules does not. None and an empty list are equal."""
    have, want = _ordered(stored), _ordered(wanted)
    return len(have) == len(want) and all(fits(h, w) for h, w in zip(have, want, strict=True))


def is_reordering(stored: Items | None, wanted: Items | None) -> bool:
    """Return whether both have the same policies in a different order, which does not affect which branches
    are deleted (lakefs/branch-lifecycle.md)."""
    if same_setting(stored, wanted):
        return False
    pairs = pair_items(stored or (), wanted or ())
    return all(old is not None and new is not None and fits(old, new) for old, new in pairs)


def action_of_setting(stored: Items | None, wanted: Items | None) -> Action:
    """Return the write, if any, that takes a server from ``stored`` to ``wanted``."""
    if same_setting(stored, wanted):
        return Action.NONE
    if not stored:
        return Action.ADD
    return Action.CHANGE if wanted else Action.CLEAR


def with_server_ids(wanted: Items, stored: Items | None) -> tuple[SettingItem, ...]:
    """Return the items to send. A policy without an id in the tree keeps the id that the server gave it."""
    items: list[SettingItem] = []
    for item, (old, _) in zip(wanted, pair_items(stored or (), wanted), strict=False):
        if isinstance(item, Policy) and item.id is None and old is not None:
            item = replace(item, id=old.id)
        items.append(item)
    return tuple(items)


def diff_setting(stored: Items | None, wanted: Items | None) -> tuple[SettingChange, ...]:
    """Return one change for each item that differs, in the order of ``wanted``, then the removed items. A
    reordering is a separate change."""
    changes = []
    for old, new in pair_items(stored or (), wanted or ()):
        if old is None or new is None or not fits(old, new):
            changes.append(_change(old, new))
    if not changes and not same_setting(stored, wanted):
        changes.append(SettingChange(ORDER, Action.CHANGE, _names(stored), _names(wanted)))
    return tuple(changes)


def what_changed(planned: Items | None, stored: Items | None) -> str:
    """Return how a list changed since it was planned, in one line."""
    changes = diff_setting(planned, stored)
    if not changes:
        return "its ETag differs, but its content is the same"
    words = {Action.ADD: "added", Action.CHANGE: "changed", Action.CLEAR: "removed"}
    return "; ".join(
        "the order" if ORDER in change.after else f"{change.item!r} {words[change.action]}{_details(change)}"
        for change in changes
    )


def _details(change: SettingChange) -> str:
    if change.action is not Action.CHANGE:
        return ""
    keys = sorted({*change.before, *change.after})
    values = (f"{k} {change.before.get(k, 'not set')} to {change.after.get(k, 'not set')}" for k in keys)
    return f" ({', '.join(values)})"


def _change(old: SettingItem | None, new: SettingItem | None) -> SettingChange:
    name = item_name(new if new is not None else old)
    action = Action.ADD if old is None else Action.CLEAR if new is None else Action.CHANGE
    before, after = item_values(old), item_values(new)
    if new is not None and new.id is None:
        before.pop("id", None)  # the server's id does not change
    if action is Action.CHANGE:
        differ = {k for k in {*before, *after} if before.get(k) != after.get(k)}
        before = {k: v for k, v in before.items() if k in differ}
        after = {k: v for k, v in after.items() if k in differ}
    return SettingChange(name, action, before, after)


def item_name(item: SettingItem | None) -> str:
    """Return the name of an item for people: its id, or else its patterns."""
    if item is None:
        return ""
    return item.id if item.id is not None else ", ".join(getattr(item, "patterns", ()))


def item_values(item: SettingItem | None) -> dict[str, str]:
    """Return an item's values as text, under the names of the tree, with durations as ``1w3d``."""
    match item:
        case None:
            return {}
        case Policy():
            values = {
                "id": item.id or "",
                "patterns": ", ".join(sorted(set(item.patterns))),
                "max_age": duration_text(item.max_age_seconds),
                "max_idle_age": duration_text(item.max_idle_seconds),
                "description": item.description,
            }
        case ObjectRule():
            values = {
                "id": item.id,
                "branches": ", ".join(sorted(set(item.branches))),
                "prefix": item.prefix or "everything",
                "expire_after_days": str(item.expire_after_days),
                "description": item.description,
            }
    return {key: value for key, value in values.items() if value}


def _names(items: Items | None) -> dict[str, str]:
    return {"order": " | ".join(item_name(item) for item in items or ())}


def _ordered(items: Items | None) -> list[SettingItem]:
    ordered = [canonical(item) for item in items or ()]
    if all(isinstance(item, ObjectRule) for item in ordered):
        ordered.sort(key=lambda item: item.id or "")
    return ordered


def fits(stored: SettingItem, wanted: SettingItem) -> bool:
    """Return whether a stored item is the wanted one, apart from an id that the tree leaves to the server."""
    have, want = canonical(stored), canonical(wanted)
    if isinstance(have, Policy) and isinstance(want, Policy) and want.id is None:
        have = replace(have, id=None)
    return have == want


def pair_items(stored: Items, wanted: Items) -> list[Pair]:
    """Return pairs of stored and wanted items, in the order of ``wanted``, then stored items that are not
    wanted."""
    left = list(stored)
    partner: dict[int, SettingItem] = {}
    for key in _KEYS:
        for number, new in enumerate(wanted):
            value = key(new)
            if number in partner or value is None:
                continue
            place = next((i for i, old in enumerate(left) if key(old) == value), None)
            if place is not None:
                partner[number] = left.pop(place)
    pairs: list[Pair] = [(partner.get(number), new) for number, new in enumerate(wanted)]
    return [*pairs, *((old, None) for old in left)]


def _id(item: SettingItem) -> Hashable:
    return item.id


def _content(item: SettingItem) -> Hashable:
    have = canonical(item)
    return replace(have, id=None) if isinstance(have, Policy) else None


def _patterns(item: SettingItem) -> Hashable:
    return tuple(sorted(set(item.patterns))) if isinstance(item, Policy) else None


_KEYS: tuple[Callable[[SettingItem], Hashable], ...] = (_id, _content, _patterns)
