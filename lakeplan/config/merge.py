"""Lays layers over each other, and turns the result into plain data with the source of every value.

Layers come in groups of equal rank, from the weakest to the strongest. Two layers of one group that give one
path different values disagree: a conflict, unless a stronger group settles the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from lakeplan.config.layers import BLOCKS, CLEAR, FlatPath, Item, Layer, Removed, Value
from lakeplan.model.desired import Source


@dataclass(frozen=True)
class Conflict:
    path: FlatPath
    one: Value
    other: Value


@dataclass(frozen=True)
class Merged:
    """``blocks`` maps each block that is managed to where the strongest layer named it; ``idle_removals`` are
    ``remove: true`` that found nothing to remove."""

    values: Mapping[FlatPath, Value]
    blocks: Mapping[str, Source]
    conflicts: tuple[Conflict, ...]
    idle_removals: tuple[tuple[FlatPath, Value], ...]


def is_under(path: FlatPath, prefix: FlatPath) -> bool:
    return path[: len(prefix)] == prefix


def disagreements(one: Layer, other: Layer) -> Iterator[Conflict]:
    """Paths to which two layers give different values. Items of one list that have other names do not."""
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
    """Whether a layer settles what a path is: by giving it a value, or by removing what it is in."""
    return path in layer.values or any(is_under(path, p) for p in layer.values if len(p) < len(path))


def _is_name(path: FlatPath) -> bool:
    """Whether a value is just what its item is called by."""
    item = path[-2] if len(path) > 1 else None
    return isinstance(item, Item) and item.by == path[-1]


def _drops(path: FlatPath, value: Value) -> bool:
    """Whether a value takes away everything under its path."""
    return value.value is Removed.REMOVED or (len(path) == 1 and value.value == CLEAR and path[0] in BLOCKS)


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
            _lay(layer, values, idle)
    return Merged(values, blocks, tuple(conflicts), tuple(idle))


def _end_of(path: FlatPath) -> FlatPath | None:
    """Where the end of a hold stands, by the path of what it holds; None for every other path."""
    return (*path[:-1], "until") if path[0] == "holds" and _is_name(path) else None


def _lay(layer: Layer, values: dict[FlatPath, Value], idle: list[tuple[FlatPath, Value]]) -> None:
    for path in layer.values:
        if (end := _end_of(path)) is not None:
            values.pop(end, None)  # a hold without an end has none, whatever ends one that it is laid over
    for path, value in layer.values.items():
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
    """The merged settings as plain JSON data, and the source of every value by its JSON pointer.

    Branch rules and exemptions are sorted by name; policies, rules and holds keep the order in which layers
    first named them.
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
    return document, sources


def _plain(inner: Any, pointer: str, sources: dict[str, Source]) -> Any:
    if isinstance(inner, Value):
        sources[pointer] = inner.source
        return inner.value
    if inner and all(isinstance(key, Item) for key in inner):
        names = list(inner)
        if names[0].by in ("branch_id", "pattern") or pointer.endswith("/exempt"):
            names.sort()
        return [_plain(inner[name], f"{pointer}/{i}", sources) for i, name in enumerate(names)]
    return {
        str(key): _plain(child, f"{pointer}/{_escape(str(key))}", sources) for key, child in inner.items()
    }


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
