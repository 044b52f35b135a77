"""Reference expressions, the log, and merge bases over a repository's commits."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lakeplan.model.refs import Commit
from lakeplan.sandbox.messages import bad_request, not_found
from lakeplan.sandbox.records import BranchRecord, Records

_HEX = re.compile(r"[0-9a-fA-F]{1,64}")
_EXPRESSION = re.compile(r"([^~^@$]+)((?:[~^]\d*|[@$])*)")
_MODIFIER = re.compile(r"([~^@$])(\d*)")


@dataclass(frozen=True)
class Resolved:
    """What a reference means. ``branch`` is set when staged data belongs to it (``main``, ``main$``)."""

    commit_id: str
    branch: BranchRecord | None = None


def resolve(records: Records, repository: str, ref: str) -> Resolved:
    """``main``, a tag, a commit id or a unique prefix of one, with ``~n``, ``^n``, ``@`` or ``$`` behind it.

    Raises ApiError 404 for what does not exist and 400 for what cannot be read.
    """
    match = _EXPRESSION.fullmatch(ref)
    if not match:
        raise bad_request("ref: invalid value: validation error")
    base = _resolve_base(records, repository, match[1])
    modifiers = _MODIFIER.findall(match[2])
    if not modifiers:
        return base
    if any(kind in "@$" for kind, _ in modifiers):
        if base.branch is None or len(modifiers) != 1:
            raise bad_request("ref: invalid value: validation error")
        return base if modifiers[0][0] == "$" else Resolved(base.commit_id)
    commit_id = base.commit_id
    for kind, digits in modifiers:
        number = int(digits) if digits else 1
        commit_id = (
            _ancestor(records, repository, commit_id, number)
            if kind == "~"
            else (_nth_parent(records, repository, commit_id, number))
        )
    return Resolved(commit_id)


def log(records: Records, repository: str, start: str, *, first_parent: bool = False) -> Iterator[Commit]:
    """Commits reachable from ``start``, the newest known one first, ties by the greater id."""
    first = records.commit(repository, start)
    seen = {start}
    queue = [_Newest(first)]
    while queue:
        commit = heapq.heappop(queue).commit
        yield commit
        for parent in commit.parents[:1] if first_parent else commit.parents:
            if parent not in seen:
                seen.add(parent)
                heapq.heappush(queue, _Newest(records.commit(repository, parent)))


def merge_base(records: Records, repository: str, left: str, right: str) -> Commit | None:
    """The best common ancestor: the first, by falling generation, that both sides reach."""
    if left == right:
        return records.commit(repository, left)
    reached = {left: 1, right: 2}
    queue = [(-records.commit(repository, id).generation, id) for id in (left, right)]
    heapq.heapify(queue)
    while queue:
        _, id = heapq.heappop(queue)
        if reached[id] == 3:
            return records.commit(repository, id)
        for parent in records.commit(repository, id).parents:
            if parent not in reached:
                reached[parent] = 0
                heapq.heappush(queue, (-records.commit(repository, parent).generation, parent))
            reached[parent] |= reached[id]
    return None


class _Newest:
    """Heap order of the log."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit

    def __lt__(self, other: _Newest) -> bool:
        mine, theirs = self.commit, other.commit
        return (mine.creation_us, mine.id) > (theirs.creation_us, theirs.id)


def _resolve_base(records: Records, repository: str, name: str) -> Resolved:
    is_hex = _HEX.fullmatch(name) is not None
    if is_hex and len(name) == 64 and records.find_commit(repository, name):
        return Resolved(name)
    branch = records.find_branch(repository, name)
    if branch:
        return Resolved(branch.commit_id, branch)
    tag = records.find_tag(repository, name)
    if tag:
        return Resolved(tag.commit_id)
    if is_hex:
        found = records.commits_with_prefix(repository, name)
        if len(found) == 1:
            return Resolved(found[0])
    raise not_found()


def _ancestor(records: Records, repository: str, commit_id: str, steps: int) -> str:
    for _ in range(steps):
        parents = records.commit(repository, commit_id).parents
        if not parents:
            raise not_found()
        commit_id = parents[0]
    return commit_id


def _nth_parent(records: Records, repository: str, commit_id: str, number: int) -> str:
    if number == 0:
        return commit_id
    parents = records.commit(repository, commit_id).parents
    if number > len(parents):
        raise bad_request("ref: invalid value: validation error")
    return parents[number - 1]
