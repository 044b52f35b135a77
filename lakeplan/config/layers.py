"""One set of settings (a profile or an entry) as flat values, ready to be laid over others.

A path names a value: ``("gc", Item("branch_id", "main"), "retention_days")`` and so on. Items of lists that
merge by identity (the design's "Merging") are path parts of their own; every other list is one value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from lakeplan.config.yaml_nodes import ListNode, MapNode, Node, ScalarNode, to_plain
from lakeplan.model.desired import Source

SERVER_BLOCKS = ("gc", "branch_lifecycle", "object_lifecycle")
"""Blocks that live on a server, and so can be cleared."""
BLOCKS = (*SERVER_BLOCKS, "holds", "lifecycle", "sweep")
CLEAR = "clear"


@dataclass(frozen=True, order=True)
class Item:
    """Identity of a list's item: the field that names it, and its value."""

    by: str
    name: str


class Removed(Enum):
    """The value of ``remove: true``."""

    REMOVED = "removed"


FlatPath = tuple[str | Item, ...]


@dataclass(frozen=True)
class Value:
    value: object
    source: Source


@dataclass(frozen=True)
class Layer:
    """``blocks`` says which blocks were named and where, also when nothing stands in them."""

    label: str
    source: Source
    values: Mapping[FlatPath, Value] = field(default_factory=dict)
    blocks: Mapping[str, Source] = field(default_factory=dict)
    use: tuple[Value, ...] = ()


LoadFile = Callable[[str, ScalarNode], MapNode | None]
"""The map in the file that a block's ``file`` key names; None when it cannot be read (already noted)."""

_LISTS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("gc", "branches"): ("branch_id", "pattern"),
    ("branch_lifecycle", "policies"): ("id",),
    ("object_lifecycle", "rules"): ("id",),
}
_HOLD_TARGETS = ("prefix", "branch", "tag", "commit")
_OTHER_NAMES = {"max_inactivity_time": "max_idle_age"}


def make_layer(label: str, source: Source, node: Node, load_file: LoadFile) -> Layer:
    """Flattens what is well formed; whatever is not has its problem already and is left out."""
    values: dict[FlatPath, Value] = {}
    blocks: dict[str, Source] = {}
    use: tuple[Value, ...] = ()
    for key, child in (node.items if isinstance(node, MapNode) else {}).items():
        if key == "use":
            use = tuple(
                Value(n.value, n.source)
                for n in (child.items if isinstance(child, ListNode) else ())
                if isinstance(n, ScalarNode) and isinstance(n.value, str)
            )
        elif key == "owner" and isinstance(child, ScalarNode):
            values[("owner",)] = Value(child.value, child.source)
        elif key in BLOCKS:
            blocks[key] = node.where(key) if isinstance(node, MapNode) else source
            _flatten_block(key, child, values, load_file)
    return Layer(label, source, values, blocks, use)


def _flatten_block(block: str, node: Node, values: dict[FlatPath, Value], load_file: LoadFile) -> None:
    if isinstance(node, ScalarNode):
        if node.value == CLEAR and block in SERVER_BLOCKS:
            values[(block,)] = Value(CLEAR, node.source)
        return
    if isinstance(node, ListNode):
        if block == "holds":
            _flatten_items((block,), node, _HOLD_TARGETS, values)
        return
    reference = node.items.get("file")
    if isinstance(reference, ScalarNode) and block in SERVER_BLOCKS:
        loaded = load_file(block, reference)
        node = loaded if loaded is not None else MapNode(node.source, {}, {})
    for key, child in node.items.items():
        if identities := _LISTS.get((block, key)):
            if isinstance(child, ListNode):
                _flatten_items((block, key), child, identities, values)
        elif (block, key) == ("lifecycle", "exempt") and isinstance(child, ListNode):
            # Exemptions add up over layers: what somebody kept from deletion stays kept.
            for item in child.items:
                if isinstance(item, ScalarNode) and isinstance(item.value, str):
                    values[(block, key, Item("", item.value))] = Value(item.value, item.source)
        else:
            values[(block, key)] = Value(to_plain(child), child.source)


def _flatten_items(
    path: FlatPath, node: ListNode, identities: tuple[str, ...], values: dict[FlatPath, Value]
) -> None:
    for item in node.items:
        if not isinstance(item, MapNode):
            continue
        here = (*path, _identity(item, identities))
        if "remove" in item.items:
            values[here] = Value(Removed.REMOVED, item.source)
            continue
        for key, child in item.items.items():
            place = (*here, _OTHER_NAMES.get(key, key))
            values[place] = Value(to_plain(child), child.source)


def _identity(item: MapNode, identities: tuple[str, ...]) -> Item:
    """What names the item; one without a name is itself (policies may do without an id)."""
    for by in identities:
        node = item.items.get(by)
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            return Item(by, node.value)
    return Item("", json.dumps(to_plain(item), sort_keys=True))
