"""Trees of committed objects compared and merged. Pure: trees in, trees out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from lakeplan.model.objects import Entry

Tree = Mapping[str, Entry]
DiffType = Literal["added", "removed", "changed", "conflict"]
Strategy = Literal["", "source-wins", "dest-wins"]


class MergeConflict(Exception):
    """Both sides changed a path, and not to the same object. ``paths`` are sorted."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__("conflict found")
        self.paths = paths


class _Side(Enum):
    DESTINATION = 0
    SOURCE = 1
    CONFLICT = 2


def same(left: Entry | None, right: Entry | None) -> bool:
    """Whether two entries are the same object to lakeFS: size, ETag, metadata and content type, whatever the
    address (what a record's identity is made of)."""
    if left is None or right is None:
        return left is right
    return (left.size, left.e_tag, left.metadata, left.content_type) == (
        right.size,
        right.e_tag,
        right.metadata,
        right.content_type,
    )


@dataclass(frozen=True)
class Difference:
    """One changed path; ``size`` in bytes of what is there after the change, or of what is removed."""

    path: str
    type: DiffType
    size: int


def diff(before: Tree, after: Tree) -> list[Difference]:
    """What turns ``before`` into ``after``, by path."""
    found = []
    for path in in_order(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if not same(old, new):
            found.append(_difference(path, old, new, _type_of(old, new)))
    return found


def diff_from_base(base: Tree, destination: Tree, source: Tree) -> list[Difference]:
    """What a merge of ``source`` into ``destination`` would bring, conflicts included (a three-dot diff)."""
    found = []
    for path in in_order(base.keys() | source.keys()):
        old, new, there = base.get(path), source.get(path), destination.get(path)
        match _decide(old, there, new):
            case _Side.SOURCE:
                found.append(_difference(path, old, new, _type_of(old, new)))
            case _Side.CONFLICT:
                found.append(_difference(path, old, new, "conflict"))
            case _Side.DESTINATION:
                pass
    return found


def merge(base: Tree, destination: Tree, source: Tree, strategy: Strategy = "") -> dict[str, Entry]:
    """The merged tree. Raises MergeConflict, unless the strategy decides."""
    merged = dict(destination)
    conflicts = []
    for path in base.keys() | source.keys():
        side = _decide(base.get(path), destination.get(path), source.get(path))
        if side is _Side.CONFLICT:
            if not strategy:
                conflicts.append(path)
            side = _Side.SOURCE if strategy == "source-wins" else _Side.DESTINATION
        if side is _Side.SOURCE:
            _set(merged, path, source.get(path))
    if conflicts:
        raise MergeConflict(tuple(in_order(conflicts)))
    return merged


def apply_changes(tree: Tree, changes: Mapping[str, Entry | None]) -> dict[str, Entry]:
    """The tree with staged changes over it."""
    result = dict(tree)
    for path, entry in changes.items():
        _set(result, path, entry)
    return result


def in_order(paths: Iterable[str]) -> list[str]:
    """Paths in lakeFS's order: by their UTF-8 bytes."""
    return sorted(paths, key=lambda path: path.encode(errors="surrogateescape"))


def _difference(path: str, old: Entry | None, new: Entry | None, type: DiffType) -> Difference:
    entry = new or old
    return Difference(path, type, entry.size if entry else 0)


def _set(tree: dict[str, Entry], path: str, entry: Entry | None) -> None:
    if entry is None:
        tree.pop(path, None)
    else:
        tree[path] = entry


def _decide(base: Entry | None, destination: Entry | None, source: Entry | None) -> _Side:
    if same(base, source) or same(destination, source):
        return _Side.DESTINATION
    return _Side.SOURCE if same(base, destination) else _Side.CONFLICT


def _type_of(old: Entry | None, new: Entry | None) -> DiffType:
    if old is None:
        return "added"
    return "removed" if new is None else "changed"
