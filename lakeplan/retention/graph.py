"""The graph of a repository's commits, as integers."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter

from lakeplan.errors import LakeplanError
from lakeplan.values.repository import FIRST_VERSION_WITH_FIRST_PARENT_MAIN, Branch, Commit, Refs, Tag
from lakeplan.values.rules import GcRules

NO_PARENT = -1


def missing_heads(refs: Refs) -> list[str]:
    """Ids of commits that branches point at and ``refs.commits`` lacks, sorted.

    A commit that was made while the dump was written can be missing. Fetch missing commits before you build a
    graph.
    """
    wanted = {branch.commit_id for branch in refs.branches}
    return sorted(wanted - {commit.id for commit in refs.commits})


@dataclass(frozen=True)
class _Octopus:
    """Commits on which a server's search for dangling commits and its walk disagree (see
    ``server_dangling``)."""

    taken_for_parents: frozenset[int]
    taken_for_leaves: frozenset[int]


@dataclass(frozen=True, eq=False)
class CommitGraph:
    """The commits of a repository at one moment. All arrays are indexed by commit number.

    - ``ids``: commit ids, ascending; ``index``: their numbers
    - ``main_parent``: number of the main parent, -1 for none; ``creation_us``: UTC microseconds
    - ``meta_range_ids``: "" for a commit that holds nothing
    - ``order``: all commit numbers, every child before its main parent
    - ``child_count``: how many commits have it as main parent
    - ``branches``: ascending by id, hidden ones too; ``heads``: per branch, its HEAD's number
    - ``dangling``: commits that are no commit's main parent and no branch's HEAD, ascending
    - ``server_dangling``: the dangling commits from which a server starts. They are the same unless a commit
      of version 0 has three or more parents. A server then searches for dangling commits by the second parent
      and walks along the last one. ``dangling`` has the commits that either way finds.
    """

    ids: list[str]
    index: dict[str, int]
    main_parent: array[int]
    creation_us: array[int]
    meta_range_ids: list[str]
    order: array[int]
    child_count: array[int]
    branches: list[Branch]
    tags: tuple[Tag, ...]
    heads: array[int]
    dangling: array[int]
    server_dangling: array[int]
    _octopus: _Octopus = field(repr=False)

    @classmethod
    def from_refs(cls, refs: Refs) -> CommitGraph:
        """The graph of all refs. Raises LakeplanError that names the commit or branch if an id appears twice,
        a main parent or a HEAD is missing, or main parents form a cycle. A server fails likewise, and part of
        the history would give wrong answers."""
        commits = sorted(refs.commits, key=attrgetter("id"))
        ids = [commit.id for commit in commits]
        index = {commit_id: number for number, commit_id in enumerate(ids)}
        if len(index) != len(ids):
            twice = next(a for a, b in pairwise(ids) if a == b)
            raise LakeplanError(f"commit {twice} is listed twice", hint=_READ_AGAIN)
        main_parent = _main_parents(commits, index)
        child_count = _numbers([0]) * len(ids)
        for parent in main_parent:
            if parent >= 0:
                child_count[parent] += 1
        branches = sorted(refs.branches, key=attrgetter("id"))
        heads = _heads(branches, index)
        octopus = _octopus(commits, index, child_count)
        dangling, server_dangling = _dangling(child_count, heads, octopus)
        return cls(
            ids=ids,
            index=index,
            main_parent=main_parent,
            creation_us=_dates(commits),
            meta_range_ids=[commit.meta_range_id for commit in commits],
            order=_children_first(ids, main_parent, child_count),
            child_count=child_count,
            branches=branches,
            tags=refs.tags,
            heads=heads,
            dangling=dangling,
            server_dangling=server_dangling,
            _octopus=octopus,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def number_of(self, commit_id: str) -> int:
        """The number of a commit. Raises LakeplanError if the graph does not have it."""
        try:
            return self.index[commit_id]
        except KeyError:
            raise LakeplanError(
                f"this history does not contain commit {commit_id}",
                hint="Use the full id of a commit in this repository.",
            ) from None

    def without_branches(self, branch_ids: Collection[str]) -> CommitGraph:
        """The graph after branches are deleted. Their HEADs become dangling unless others reach them."""
        gone = set(branch_ids)
        kept = [n for n, branch in enumerate(self.branches) if branch.id not in gone]
        heads = _numbers([self.heads[n] for n in kept])
        dangling, server_dangling = _dangling(self.child_count, heads, self._octopus)
        return replace(
            self,
            branches=[self.branches[n] for n in kept],
            heads=heads,
            dangling=dangling,
            server_dangling=server_dangling,
        )

    @cached_property
    def is_head(self) -> bytearray:
        """Per commit number, 1 for HEADs of branches. Do not change it."""
        flags = bytearray(len(self.ids))
        for head in self.heads:
            flags[head] = 1
        return flags

    @cached_property
    def newest_ancestor_us(self) -> array[int]:
        """Per commit number, the greatest creation date of the commit and all its main ancestors. If it is
        not after a limit, walks with this limit keep no further ancestor."""
        newest = array("q", self.creation_us)
        for commit in reversed(self.order):
            parent = self.main_parent[commit]
            if parent >= 0 and newest[parent] > newest[commit]:
                newest[commit] = newest[parent]
        return newest

    def children(self, commit: int) -> array[int]:
        """Numbers of the commits that have ``commit`` as main parent."""
        first, children = self._child_lists
        return children[first[commit] : first[commit + 1]]

    def descendants(self, commit: int) -> Iterator[int]:
        """The ``commit`` and every commit whose main ancestry contains it."""
        pending = [commit]
        while pending:
            commit = pending.pop()
            yield commit
            pending.extend(self.children(commit))

    @cached_property
    def _child_lists(self) -> tuple[array[int], array[int]]:
        first = _numbers([0]) * (len(self.ids) + 1)
        for commit, count in enumerate(self.child_count):
            first[commit + 1] = first[commit] + count
        free = _numbers(first)
        children = _numbers([0]) * first[-1]
        for commit, parent in enumerate(self.main_parent):
            if parent >= 0:
                children[free[parent]] = commit
                free[parent] += 1
        return first, children


def _numbers(values: Iterable[int] = ()) -> array[int]:
    """Commit numbers, or ``NO_PARENT``."""
    return array("i", values)


_READ_AGAIN = "Run the command again. If the error persists, the repository's metadata is damaged."


def _main_parents(commits: list[Commit], index: dict[str, int]) -> array[int]:
    parents = _numbers([NO_PARENT]) * len(commits)
    for number, commit in enumerate(commits):
        parent_id = commit.main_parent
        if parent_id is None:
            continue
        parent = index.get(parent_id)
        if parent is None:
            raise LakeplanError(
                f"the main parent {parent_id} of commit {commit.id} is missing", hint=_READ_AGAIN
            )
        parents[number] = parent
    return parents


def _dates(commits: list[Commit]) -> array[int]:
    try:
        return array("q", [commit.creation_us for commit in commits])
    except OverflowError:
        odd = next(c for c in commits if not -(2**63) <= c.creation_us < 2**63)
        raise LakeplanError(
            f"the creation date of commit {odd.id} is outside the supported range ({odd.creation_us} µs)",
            hint="Leave this repository out. lakeplan cannot compute its retention, because a client set this"
            " date.",
        ) from None


def _heads(branches: list[Branch], index: dict[str, int]) -> array[int]:
    for left, right in pairwise(branches):
        if left.id == right.id:
            raise LakeplanError(f"branch {left.id} is listed twice", hint=_READ_AGAIN)
    heads = _numbers()
    for branch in branches:
        head = index.get(branch.commit_id)
        if head is None:
            raise LakeplanError(
                f"the HEAD {branch.commit_id} of branch {branch.id} is missing",
                hint=_READ_AGAIN,
            )
        heads.append(head)
    return heads


def _octopus(commits: list[Commit], index: dict[str, int], child_count: array[int]) -> _Octopus:
    seconds: set[int] = set()
    lasts: Counter[int] = Counter()
    for commit in commits:
        if len(commit.parents) > 2 and commit.version < FIRST_VERSION_WITH_FIRST_PARENT_MAIN:
            lasts[index[commit.parents[-1]]] += 1
            if commit.parents[1] in index:
                seconds.add(index[commit.parents[1]])
    only_lasts = (commit for commit, count in lasts.items() if count == child_count[commit])
    return _Octopus(frozenset(seconds), frozenset(only_lasts) - seconds)


def _dangling(child_count: array[int], heads: array[int], octopus: _Octopus) -> tuple[array[int], array[int]]:
    reached = set(heads)
    leaves = [n for n, count in enumerate(child_count) if not count and n not in reached]
    numbers = {n for n in leaves if n not in octopus.taken_for_parents} | (octopus.taken_for_leaves - reached)
    return _numbers(sorted(numbers.union(leaves))), _numbers(sorted(numbers))


def _children_first(ids: list[str], main_parent: array[int], child_count: array[int]) -> array[int]:
    """All commit numbers, children before parents. Walks up from each leaf as far as this order allows."""
    waiting_for = _numbers(child_count)
    order = _numbers()
    for leaf, count in enumerate(child_count):
        if count:
            continue
        commit = leaf
        while True:
            order.append(commit)
            commit = main_parent[commit]
            if commit < 0:
                break
            waiting_for[commit] -= 1
            if waiting_for[commit]:
                break
    if len(order) != len(ids):
        circle = next(n for n, count in enumerate(waiting_for) if count)
        raise LakeplanError(f"commit {ids[circle]} is its own ancestor", hint=_READ_AGAIN)
    return order


NO_RANK = -1
_LAST_US = 2**63 - 1
"""The greatest date that a commit can have: nothing is after it."""


@dataclass(frozen=True)
class Starts:
    """Where walks start. ``days`` are the distinct retention days, ascending. A *rank* is a position in it,
    so a greater rank is an older limit. ``rank``: per commit, the greatest rank that starts there, or -1."""

    days: tuple[int, ...]
    rank: array[int]
    default_rank: int
    dangling: array[int]


def starts_of(graph: CommitGraph, rules: GcRules, dangling: array[int]) -> Starts:
    """The starts of a rule set: every HEAD with its branch's days, and dangling commits with the default."""
    of_branch = [rules.days_for(branch.id) for branch in graph.branches]
    days = tuple(sorted({*of_branch, rules.default_retention_days}))
    rank_of = {value: rank for rank, value in enumerate(days)}
    rank = array("i", [NO_RANK]) * len(graph)
    for head, value in zip(graph.heads, of_branch, strict=True):
        rank[head] = max(rank[head], rank_of[value])
    default_rank = rank_of[rules.default_retention_days]
    for commit in dangling:
        rank[commit] = default_rank
    return Starts(days, rank, default_rank, dangling)


@dataclass(frozen=True)
class Edges:
    """The rank of the oldest limit that decides at each edge, or -1. ``of_child``: per commit, for the edge
    to its main parent. ``of_dangling``: for each of ``Starts.dangling``, for the commit itself."""

    of_child: array[int]
    of_dangling: array[int]


def active_flags(graph: CommitGraph, starts: Starts, edges: Edges, limits: Sequence[int]) -> bytearray:
    """Per commit number, 1 for what ``edges`` keep if rank r has the limit ``limits[r]``."""
    active = bytearray(graph.is_head)
    # Rank -1 ("none") finds the last item, a limit that nothing is after.
    limit_of = [*limits, _LAST_US]
    for parent, created, rank in zip(graph.main_parent, graph.creation_us, edges.of_child, strict=True):
        if created > limit_of[rank] and parent >= 0:
            active[parent] = 1
    for commit, rank in zip(starts.dangling, edges.of_dangling, strict=True):
        if graph.creation_us[commit] > limit_of[rank]:
            active[commit] = 1
    return active


def all_kept(graph: CommitGraph) -> bytearray:
    """1 for every commit: without rules the collector cannot run (``lakefs/retention.md``)."""
    return bytearray(b"\x01") * len(graph)


def by_date(graph: CommitGraph) -> array[int]:
    """Per commit number, its position by creation date, then id. An object's last commit has the greatest."""
    position = array("q", bytes(8 * len(graph)))
    for at, commit in enumerate(oldest_first(graph)):
        position[commit] = at
    return position


def oldest_first(graph: CommitGraph) -> list[int]:
    """Commit numbers by creation date, then id."""
    # Numbers are in the order of ids, and sorting is stable.
    return sorted(range(len(graph)), key=graph.creation_us.__getitem__)


def metarange_masks(graph: CommitGraph, masks: Sequence[int]) -> dict[str, int]:
    """For each metarange, the OR of the masks of its commits, oldest first, without masks of 0. A
    repository's first commit has no metarange."""
    mask_of: dict[str, int] = {}
    for commit in oldest_first(graph):
        meta_range_id, mask = graph.meta_range_ids[commit], masks[commit]
        if mask and meta_range_id:
            mask_of[meta_range_id] = mask_of.get(meta_range_id, 0) | mask
    return mask_of
