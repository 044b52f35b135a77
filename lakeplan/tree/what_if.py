"""Reads the settings of ``plan --set``, which a plan assumes although they are not in the tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakeplan.errors import UsageError
from lakeplan.retention.patterns import is_glob
from lakeplan.tree.layers import BLOCKS, LISTS, Item
from lakeplan.tree.structure import nearest
from lakeplan.tree.yaml import ListNode, MapNode, Node, Problems, ScalarNode, parse_yaml
from lakeplan.values.desired import Source

SET = "--set"
"""The name that stands for a file in the place of such a value."""
OF_TREE = ("safety", "bounds", "unmanaged")
OF_REPOSITORIES = ("owner", *BLOCKS)
_HERE = Source(SET, 1, 1)
_PART = re.compile(r"(?:^|\.)(?P<key>[^.\[\]=]+)(?:\[(?P<name>.+?)\](?=[.=]|$))?")
_HINT = (
    "For example, use --set gc.default_retention_days=14, --set 'gc.branches[main].retention_days=30' or"
    " --set sweep.min_age=2d. The value is YAML."
)

Path = tuple[str | Item, ...]
_Nested = dict[str | Item, "Node | _Nested"]


@dataclass(frozen=True)
class WhatIf:
    """Assumed settings: keys of ``lakeplan.yaml`` (``tree``), and of every entry (``repository``)."""

    tree: MapNode
    repository: MapNode


def read_what_if(settings: Sequence[str]) -> WhatIf:
    """Return the assumed settings. Each is ``PATH=VALUE``, with the value in YAML. They are checked together
    with the tree. Raises UsageError."""
    of_tree: _Nested = {}
    of_repositories: _Nested = {}
    for setting in settings:
        path, value = _split(setting)
        _put(of_tree if path[0] in OF_TREE else of_repositories, path, value, setting)
    return WhatIf(_map(of_tree), _map(of_repositories))


def refuse_wrong(problems: Problems) -> None:
    """Raise UsageError if a value of ``--set`` has a problem."""
    wrong = [problem for problem in problems if problem.source.file == SET]
    if wrong:
        raise UsageError(
            f"{SET}: {'; '.join(f'{problem.path}: {problem.text}' for problem in wrong[:3])}", hint=_HINT
        )


def laid_over(node: MapNode, over: MapNode) -> MapNode:
    """Return a map with the values of another map laid over it, including nested maps."""
    items = dict(node.items)
    for key, value in over.items.items():
        known = items.get(key)
        both = isinstance(known, MapNode) and isinstance(value, MapNode)
        items[key] = laid_over(known, value) if both else value  # type: ignore[arg-type]
    return MapNode(node.source, items, {**node.keys, **over.keys})


def _split(setting: str) -> tuple[Path, Node]:
    path: list[str | Item] = []
    at = 0
    while (part := _PART.match(setting, at)) and (not at or setting[at] == "."):
        path.append(part["key"])
        if part["name"] is not None:
            path.append(_item(path, part["name"], setting))
        at = part.end()
    if not path or setting[at : at + 1] != "=":
        raise UsageError(f"{SET} {setting} is not in the form PATH=VALUE", hint=_HINT)
    first = str(path[0])
    known = (*OF_REPOSITORIES, *OF_TREE)
    if first not in known:
        close = nearest(first, known)
        raise UsageError(
            f"{SET} {setting}: {first} cannot be set for a plan",
            hint=f"Did you mean {close}?" if close else f"You can set {', '.join(known)}.",
        )
    return tuple(path), _value(setting[at + 1 :], setting)


def _item(path: Sequence[str | Item], name: str, setting: str) -> Item:
    """Return the item of ``gc.branches[main]``, which is the rule of a branch, or ``[release-*]``, which is
    the rule of a pattern."""
    identities = LISTS.get((str(path[0]), str(path[-1]))) if len(path) == 2 else None
    if identities is None:
        lists = ", ".join(f"{block}.{key}[…]" for block, key in LISTS)
        raise UsageError(
            f"{SET} {setting}: items of this list cannot be selected by name",
            hint=f"Only items of these lists can be selected by name: {lists}.",
        )
    return Item("pattern" if "pattern" in identities and is_glob(name) else identities[0], name)


def _value(text: str, setting: str) -> Node:
    problems = Problems()
    node = parse_yaml(text, SET, problems)
    if node is None or len(problems):
        why = next((problem.text for problem in problems), "") if text.strip() else "the value is missing"
        raise UsageError(f"{SET} {setting}: {why}", hint=_HINT)
    return node


def _put(into: _Nested, path: Path, value: Node, setting: str) -> None:
    for part in path[:-1]:
        inner = into.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(
                f"{SET} {setting}: another {SET} already sets this key or a part of it", hint=_HINT
            )
        into = inner
    if path[-1] in into:
        raise UsageError(f"{SET} {setting}: this key is set twice", hint=_HINT)
    into[path[-1]] = value


def _map(nested: Mapping[str | Item, Node | _Nested], named: Item | None = None) -> MapNode:
    items = {} if named is None else {named.by: ScalarNode(_HERE, named.name, named.name, plain=False)}
    return MapNode(_HERE, items | {str(key): _node(value) for key, value in nested.items()}, {})


def _node(value: Node | _Nested) -> Node:
    if not isinstance(value, dict):
        return value
    if value and all(isinstance(key, Item) for key in value):
        return ListNode(_HERE, list(_items(value.items())))
    return _map(value)


def _items(nested: Iterable[tuple[str | Item, Node | _Nested]]) -> Iterable[Node]:
    for item, values in nested:
        assert isinstance(item, Item)
        yield _map(values, item) if isinstance(values, dict) else values
