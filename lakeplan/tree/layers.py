"""Merges profiles and entries, which are layers of settings, and the settings of ``plan --set`` over them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations, groupby
from typing import Any

from lakeplan.errors import UsageError
from lakeplan.retention.patterns import is_glob, matches, names_repository, specificity
from lakeplan.tree.structure import nearest
from lakeplan.tree.yaml import ListNode, MapNode, Node, Problems, ScalarNode, parse_yaml, to_plain
from lakeplan.values.declare import ALL_OF_BOTH
from lakeplan.values.desired import BRANCH_SETTINGS, Source
from lakeplan.values.pins import PINS
from lakeplan.values.sweep import SWEEP

SERVER_BLOCKS = ("gc", "branch_lifecycle", "object_lifecycle")
"""Blocks of server settings, which can be cleared."""
BLOCKS = (*SERVER_BLOCKS, "holds", "sweep", "pins")
CLEAR = "clear"
POLICIES_BLOCK = "branch_lifecycle"
RUN_SETTINGS = frozenset(setting.key for setting in BRANCH_SETTINGS)
"""Keys of ``branch_lifecycle`` besides its policies. They are merged separately and cannot be cleared."""
_ADDED_UP = {setting.path for setting in (*BRANCH_SETTINGS, *SWEEP, *PINS) if setting.rule is ALL_OF_BOTH}
"""Lists that combine the items of all layers, so that no layer drops an item by which another layer prevents
deletions."""
CLEARED = {block: (block,) for block in SERVER_BLOCKS} | {POLICIES_BLOCK: (POLICIES_BLOCK, "policies")}
"""The path of the word ``clear``, by block."""


@dataclass(frozen=True, order=True)
class Item:
    """The identity of an item of a list: the field that names it, and its value."""

    by: str
    name: str

    def __str__(self) -> str:
        return self.name


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
    """The settings of one profile or entry. ``blocks`` has the place of each block, including empty ones."""

    label: str
    source: Source
    values: Mapping[FlatPath, Value] = field(default_factory=dict)
    blocks: Mapping[str, Source] = field(default_factory=dict)
    use: tuple[Value, ...] = ()


LoadFile = Callable[[str, ScalarNode], MapNode | None]
"""Returns the map in the file that a block's ``file`` key names, or None if it cannot be read, which is a
problem."""

LISTS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("gc", "branches"): ("branch_id", "pattern"),
    ("branch_lifecycle", "policies"): ("id",),
    ("object_lifecycle", "rules"): ("id",),
}
"""Lists whose items have names, and the fields that name an item."""
HOLD_TARGETS = ("prefix", "branch", "tag", "commit")
OTHER_NAMES = {"max_inactivity_time": "max_idle_age"}
"""Keys of the API that a tree may use, and the tree's own names for them."""


def make_layer(label: str, source: Source, node: Node, load_file: LoadFile) -> Layer:
    """Return the layer of a profile or entry. Malformed parts, which already have a problem, are omitted."""
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
            if not _has_only_run_settings(key, child):
                blocks[key] = node.where(key) if isinstance(node, MapNode) else source
            _flatten_block(key, child, values, load_file)
    return Layer(label, source, values, blocks, use)


def _has_only_run_settings(block: str, node: Node) -> bool:
    """Return whether a block manages no policies."""
    return block == POLICIES_BLOCK and isinstance(node, MapNode) and node.items.keys() <= RUN_SETTINGS


def _flatten_block(block: str, node: Node, values: dict[FlatPath, Value], load_file: LoadFile) -> None:
    if isinstance(node, ScalarNode):
        if node.value == CLEAR and block in SERVER_BLOCKS:
            values[CLEARED[block]] = Value(CLEAR, node.source)
        return
    if isinstance(node, ListNode):
        if block == "holds":
            _flatten_items((block,), node, HOLD_TARGETS, values)
        return
    reference = node.items.get("file")
    if isinstance(reference, ScalarNode) and block in SERVER_BLOCKS:
        loaded = load_file(block, reference)
        siblings = {key: child for key, child in node.items.items() if key != "file"}
        node = MapNode(node.source, {**siblings, **(loaded.items if loaded is not None else {})}, {})
    for key, child in node.items.items():
        if identities := LISTS.get((block, key)):
            if isinstance(child, ListNode):
                _flatten_items((block, key), child, identities, values)
        elif f"{block}.{key}" in _ADDED_UP and isinstance(child, ListNode):
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
            place = (*here, OTHER_NAMES.get(key, key))
            values[place] = Value(to_plain(child), child.source)


def _identity(item: MapNode, identities: tuple[str, ...]) -> Item:
    """Return the identity of an item. An item without a name, such as a policy without an id, is identified
    by its content."""
    for by in identities:
        node = item.items.get(by)
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            return Item(by, node.value)
    return Item("", json.dumps(to_plain(item), sort_keys=True))


@dataclass(frozen=True)
class Conflict:
    path: FlatPath
    one: Value
    other: Value


@dataclass(frozen=True)
class Merged:
    """Merged layers. ``blocks`` maps each managed block to its place in the strongest layer.
    ``idle_removals`` are items with ``remove: true`` that remove nothing."""

    values: Mapping[FlatPath, Value]
    blocks: Mapping[str, Source]
    conflicts: tuple[Conflict, ...]
    idle_removals: tuple[tuple[FlatPath, Value], ...]


def is_under(path: FlatPath, prefix: FlatPath) -> bool:
    return path[: len(prefix)] == prefix


def disagreements(one: Layer, other: Layer) -> Iterator[Conflict]:
    """Yield the paths for which two layers have different values. Items with different names do not
    conflict."""
    for path, value in one.values.items():
        twin = other.values.get(path)
        if twin is not None and twin.value != value.value:
            yield Conflict(path, value, twin)
        if twin is not None and (end := _end_of(path)) is not None:
            given, other_given = one.values.get(end), other.values.get(end)
            if (given is None) != (other_given is None):
                yield Conflict(end, given or value, other_given or twin)
    for first, second, swapped in ((one, other, False), (other, one, True)):
        for path, value in first.values.items():
            if not _drops(path, value):
                continue
            for deeper, given in second.values.items():
                if len(deeper) > len(path) and is_under(deeper, path) and not _is_name(deeper):
                    yield Conflict(deeper, given, value) if swapped else Conflict(deeper, value, given)


def touches(layer: Layer, path: FlatPath) -> bool:
    """Return whether a layer decides a path, by a value for it or by removing an item that contains it."""
    return path in layer.values or any(is_under(path, p) for p in layer.values if len(p) < len(path))


def _is_name(path: FlatPath) -> bool:
    """Return whether a value is the name of its item."""
    item = path[-2] if len(path) > 1 else None
    return isinstance(item, Item) and item.by == path[-1]


def _drops(path: FlatPath, value: Value) -> bool:
    """Return whether a value removes everything under its path."""
    return value.value is Removed.REMOVED or (value.value == CLEAR and path in CLEARED.values())


def merge(groups: Sequence[Sequence[Layer]]) -> Merged:
    values: dict[FlatPath, Value] = {}
    blocks: dict[str, Source] = {}
    conflicts: list[Conflict] = []
    idle: list[tuple[FlatPath, Value]] = []
    for group in groups:
        conflicts = [c for c in conflicts if not any(touches(layer, c.path) for layer in group)]
        for one, other in combinations(group, 2):
            conflicts.extend(disagreements(one, other))
        for layer in group:
            blocks.update(layer.blocks)
            _apply(layer, values, idle)
    return Merged(values, blocks, tuple(conflicts), tuple(idle))


def _end_of(path: FlatPath) -> FlatPath | None:
    """Return the path of the last day of a hold, by the path of its target, or None for every other path."""
    return (*path[:-1], "until") if path[0] == "holds" and _is_name(path) else None


def _apply(layer: Layer, values: dict[FlatPath, Value], idle: list[tuple[FlatPath, Value]]) -> None:
    for path in layer.values:
        if (end := _end_of(path)) is not None:
            values.pop(end, None)  # a hold without an end does not inherit one
    for path, value in layer.values.items():
        for cleared in CLEARED.values():
            if len(path) > len(cleared) and is_under(path, cleared):
                values.pop(cleared, None)  # --set may give a value to a block that an entry clears
        if _drops(path, value):
            below = [p for p in values if is_under(p, path)]
            for p in below:
                del values[p]
            if value.value is Removed.REMOVED:
                if not below:
                    idle.append((path, value))
                continue
        values[path] = value


def to_document(merged: Merged) -> tuple[dict[str, Any], dict[str, Source]]:
    """Return the merged settings as JSON data, and the place of every value by its JSON pointer.

    Branch rules and exemptions are sorted by name. Policies, object rules and holds are in the order in which
    layers first name them.
    """
    tree: dict[str | Item, Any] = {}
    order = {key: i for i, key in enumerate(("owner", *BLOCKS))}
    for path, value in sorted(merged.values.items(), key=lambda pair: order[str(pair[0][0])]):
        inner = tree
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    sources: dict[str, Source] = {}
    document = _plain(tree, "", sources)
    assert isinstance(document, dict)
    if document.get(POLICIES_BLOCK) == {
        "policies": CLEAR
    }:  # as a tree writes it if the block has no other keys
        document[POLICIES_BLOCK] = CLEAR
        sources[f"/{POLICIES_BLOCK}"] = sources.pop(f"/{POLICIES_BLOCK}/policies")
    return document, sources


def _plain(inner: Any, pointer: str, sources: dict[str, Source]) -> Any:
    if isinstance(inner, Value):
        sources[pointer] = inner.source
        return inner.value
    if inner and all(isinstance(key, Item) for key in inner):
        names = list(inner)
        if names[0].by in ("branch_id", "pattern") or pointer[1:].replace("/", ".") in _ADDED_UP:
            names.sort()
        return [_plain(inner[name], f"{pointer}/{i}", sources) for i, name in enumerate(names)]
    return {
        str(key): _plain(child, f"{pointer}/{_escape(str(key))}", sources) for key, child in inner.items()
    }


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


MAX_PROFILE_DEPTH = 20
"""The maximum number of profiles in a chain in which each uses the next."""


@dataclass(frozen=True)
class Entry:
    """An entry of ``repositories``. A ``broken`` entry already has problems and is not resolved."""

    key: str
    server: str
    name: str
    layer: Layer
    broken: bool = False

    @property
    def is_glob(self) -> bool:
        return is_glob(self.name)

    @property
    def source(self) -> Source:
        return self.layer.source

    def covers(self, name: str) -> bool:
        return matches(name, self.name) if self.is_glob else name == self.name


@dataclass(frozen=True)
class Naming:
    """The entries that name a repository: globs from the least to the most specific, and an exact entry."""

    globs: tuple[Entry, ...]
    exact: Entry | None

    @property
    def entry(self) -> Entry:
        """The exact entry, or else the most specific glob."""
        return self.exact if self.exact is not None else self.globs[-1]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (*self.globs, self.exact) if self.exact is not None else self.globs


class Directory:
    """Entries by server, and profiles by name. ``manages`` has globs over the repositories that entries may
    name, or is None for all. ``over`` is a layer that overrides every entry."""

    def __init__(
        self,
        entries: Iterable[Entry],
        profiles: Mapping[str, Layer],
        manages: Sequence[str] | None = None,
        over: Layer | None = None,
    ) -> None:
        self._manages = manages
        self._over = over
        self._exact: dict[str, dict[str, Entry]] = {}
        self._globs: dict[str, list[Entry]] = {}
        self.profiles = profiles
        for entry in entries:
            if entry.is_glob:
                self._globs.setdefault(entry.server, []).append(entry)
            else:
                self._exact.setdefault(entry.server, {})[entry.name] = entry
        for globs in self._globs.values():
            globs.sort(key=lambda e: (specificity(e.name), e.name))

    def exact_names(self, server: str) -> set[str]:
        return set(self._exact.get(server, {}))

    def globs(self, server: str) -> Sequence[Entry]:
        """Return the globs of a server from the least to the most specific; equally specific ones by name."""
        return self._globs.get(server, ())

    def names_any(self, server: str) -> bool:
        """Return whether a server has any entry."""
        return server in self._exact or server in self._globs

    def may_manage(self, server: str, name: str) -> bool:
        """Return whether ``manages`` allows the tree to manage a repository."""
        return self._manages is None or any(names_repository(g, server, name) for g in self._manages)

    def naming(self, server: str, name: str) -> Naming | None:
        """Return the entries that name a repository, or None without one, or if ``manages`` excludes it."""
        if not self.may_manage(server, name):
            return None
        globs = tuple(e for e in self.globs(server) if matches(name, e.name))
        exact = self._exact.get(server, {}).get(name)
        return Naming(globs, exact) if globs or exact is not None else None

    def merged(self, naming: Naming) -> Merged:
        """Merge profiles left to right, globs from the least to the most specific, and the exact entry."""
        groups: list[list[Layer]] = [[p] for p in self.profile_layers(naming.entries)]
        for _, equal in groupby(naming.globs, key=lambda e: specificity(e.name)):
            groups.append([e.layer for e in equal])
        if naming.exact is not None:
            groups.append([naming.exact.layer])
        if self._over is not None:
            groups.append([self._over])
        return merge(groups)

    def profile_layers(self, entries: Iterable[Entry]) -> list[Layer]:
        """Return the profiles of all entries in their order. A profile that is named several times counts at
        its last place. Profiles that others use come before those, and only once. Unknown names are
        omitted."""
        named: dict[str, None] = {}
        for entry in entries:
            for value in entry.layer.use:
                named.pop(str(value.value), None)
                named[str(value.value)] = None
        ordered: dict[str, Layer] = {}
        for name in named:
            self._expand(name, ordered, 0)
        return list(ordered.values())

    def _expand(self, name: str, ordered: dict[str, Layer], depth: int) -> None:
        profile = self.profiles.get(name)
        if profile is None or name in ordered or depth > MAX_PROFILE_DEPTH:
            return
        for base in profile.use:
            self._expand(str(base.value), ordered, depth + 1)
        ordered[name] = profile


def find_cycle(profiles: Mapping[str, Layer], start: str) -> list[Value] | None:
    """Return the shortest chain of ``use`` items from a profile back to itself, or None if there is none."""
    pending: list[list[Value]] = [[value] for value in profiles[start].use]
    visited: set[str] = set()
    while pending:
        chain = pending.pop(0)
        name = str(chain[-1].value)
        if name == start:
            return chain
        if name in profiles and name not in visited:
            visited.add(name)
            pending.extend([*chain, value] for value in profiles[name].use)
    return None


def profile_depths(profiles: Mapping[str, Layer]) -> dict[str, int]:
    """Return the length of the longest chain of used profiles of each profile. Counting stops above the
    allowed length, so that cycles end too."""
    depths = dict.fromkeys(profiles, 0)
    for _ in range(MAX_PROFILE_DEPTH + 2):
        before = dict(depths)
        for name, profile in profiles.items():
            depths[name] = max(
                (1 + before[str(v.value)] for v in profile.use if v.value in before), default=0
            )
        if depths == before:
            break
    return depths


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
