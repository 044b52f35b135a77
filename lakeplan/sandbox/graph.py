"""Computes merge bases, and compares and merges trees of committed objects. Pure."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal

from lakeplan.sandbox.messages import bad_request, not_found
from lakeplan.values.repository import Commit, Entry

if TYPE_CHECKING:
    from lakeplan.sandbox.state import BranchRecord, Records

Tree = Mapping[str, Entry]
DiffType = Literal["added", "removed", "changed", "conflict"]
Strategy = Literal["", "source-wins", "dest-wins"]


class MergeConflict(Exception):
    """Raised if both sides changed a path to different objects. ``paths`` are sorted."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__("conflict found")
        self.paths = paths


class _Side(Enum):
    DESTINATION = 0
    SOURCE = 1
    CONFLICT = 2


def same(left: Entry | None, right: Entry | None) -> bool:
    """Whether lakeFS treats two entries as the same object: by size, ETag, metadata and content type (the
    record's identity), whatever the address."""
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
    """One changed path. ``size`` is the bytes of the object after the change, or of the removed one."""

    path: str
    type: DiffType
    size: int


def diff(before: Tree, after: Tree) -> list[Difference]:
    """The changes from ``before`` to ``after``, by path."""
    differences = []
    for path in in_order(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if not same(old, new):
            differences.append(_difference(path, old, new, _type_of(old, new)))
    return differences


def diff_from_base(base: Tree, destination: Tree, source: Tree) -> list[Difference]:
    """The changes that a merge of ``source`` into ``destination`` would make, and conflicts (three dots)."""
    differences = []
    for path in in_order(base.keys() | source.keys()):
        old, new, there = base.get(path), source.get(path), destination.get(path)
        match _decide(old, there, new):
            case _Side.SOURCE:
                differences.append(_difference(path, old, new, _type_of(old, new)))
            case _Side.CONFLICT:
                differences.append(_difference(path, old, new, "conflict"))
            case _Side.DESTINATION:
                pass
    return differences


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
    """The tree with staged changes applied."""
    result = dict(tree)
    for path, entry in changes.items():
        _set(result, path, entry)
    return result


def in_order(paths: Iterable[str]) -> list[str]:
    """The paths in lakeFS's order: by their UTF-8 bytes."""
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


_HEX = re.compile(r"[0-9a-fA-F]{1,64}")
_EXPRESSION = re.compile(r"([^~^@$]+)((?:[~^]\d*|[@$])*)")
_MODIFIER = re.compile(r"([~^@$])(\d*)")


@dataclass(frozen=True)
class Resolved:
    """The commit that a reference names. ``branch`` is set if it has staged data (``main``, ``main$``)."""

    commit_id: str
    branch: BranchRecord | None = None


def resolve(records: Records, ref: str) -> Resolved:
    """The commit of ``main``, a tag, a commit id or a unique prefix of one, with optional ``~n``, ``^n``,
    ``@`` or ``$``.

    Raises ApiError 404 for what does not exist and 400 for what cannot be read.
    """
    match = _EXPRESSION.fullmatch(ref)
    if not match:
        raise bad_request("ref: invalid value: validation error")
    base = _resolve_base(records, match[1])
    modifiers = _MODIFIER.findall(match[2])
    if not modifiers:
        return base
    if any(kind in "@$" for kind, _ in modifiers):
        if base.branch is None or len(modifiers) != 1:
            raise bad_request("ref: invalid value: validation error")
        return base if modifiers[0][0] == "$" else Resolved(base.commit_id)
    commit_id = base.commit_id
    for kind, digits in modifiers:
        step = _ancestor if kind == "~" else _nth_parent
        commit_id = step(records, commit_id, int(digits or 1))
    return Resolved(commit_id)


def log(records: Records, start: str, *, first_parent: bool = False) -> Iterator[Commit]:
    """Commits reachable from ``start``, the newest known one first, ties by the greater id."""
    first = records.commit(start)
    visited = {start}
    queue = [_Newest(first)]
    while queue:
        commit = heapq.heappop(queue).commit
        yield commit
        for parent in commit.parents[:1] if first_parent else commit.parents:
            if parent not in visited:
                visited.add(parent)
                heapq.heappush(queue, _Newest(records.commit(parent)))


def merge_base(records: Records, left: str, right: str) -> Commit | None:
    """The best common ancestor: the first, by falling generation, that both sides reach."""
    if left == right:
        return records.commit(left)
    reached = {left: 1, right: 2}
    queue = [(-records.commit(id).generation, id) for id in (left, right)]
    heapq.heapify(queue)
    while queue:
        _, id = heapq.heappop(queue)
        if reached[id] == 3:
            return records.commit(id)
        for parent in records.commit(id).parents:
            if parent not in reached:
                reached[parent] = 0
                heapq.heappush(queue, (-records.commit(parent).generation, parent))
            reached[parent] |= reached[id]
    return None


class _Newest:
    """Heap order of the log."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit

    def __lt__(self, other: _Newest) -> bool:
        mine, theirs = self.commit, other.commit
        return (mine.creation_us, mine.id) > (theirs.creation_us, theirs.id)


def _resolve_base(records: Records, name: str) -> Resolved:
    """The commit of a name without modifiers. As on servers since 0.87 (``revResolve`` in treeverse/lakeFS),
    only a whole commit id comes before a branch or a tag with that name."""
    if _HEX.fullmatch(name) and len(name) == 64 and records.find_commit(name):
        return Resolved(name)
    if branch := records.find_branch(name):
        return Resolved(branch.commit_id, branch)
    if tag := records.find_tag(name):
        return Resolved(tag.commit_id)
    ids = records.commits_with_prefix(name) if _HEX.fullmatch(name) else []
    if len(ids) != 1:
        raise not_found()
    return Resolved(ids[0])


def _ancestor(records: Records, commit_id: str, steps: int) -> str:
    for _ in range(steps):
        parents = records.commit(commit_id).parents
        if not parents:
            raise not_found()
        commit_id = parents[0]
    return commit_id


def _nth_parent(records: Records, commit_id: str, number: int) -> str:
    if number == 0:
        return commit_id
    parents = records.commit(commit_id).parents
    if number > len(parents):
        raise bad_request("ref: invalid value: validation error")
    return parents[number - 1]
