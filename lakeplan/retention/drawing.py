"""Histories that policy tests draw: commits with ages and parents, branches, tags, uncommitted data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo
from typing import Literal

from lakeplan.errors import LakeplanError
from lakeplan.retention.graph import NO_RANK, CommitGraph, starts_of
from lakeplan.retention.rules import documented_verdict, limit_us, to_us
from lakeplan.values.desired import Source
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from lakeplan.values.rules import GcRules

Fate = Literal["survives", "goes", "at_risk"]
SECOND_US = 1_000_000


@dataclass(frozen=True)
class DrawnObject:
    """An object in a drawing. ``same_as``: the ``path@REF`` whose data this path has too, or None for
    separate data."""

    path: str
    source: Source
    same_as: str | None = None


@dataclass(frozen=True)
class DrawnCommit:
    name: str
    age_seconds: int
    source: Source
    parents: tuple[str, ...] = ()
    objects: tuple[DrawnObject, ...] = ()
    removes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """A drawn history. ``branches`` and ``tags`` map names to commits; ``staged`` branches to objects."""

    as_of: datetime
    commits: Mapping[str, DrawnCommit]
    branches: Mapping[str, str]
    tags: Mapping[str, str] = field(default_factory=dict)
    staged: Mapping[str, tuple[DrawnObject, ...]] = field(default_factory=dict)

    def graph(self) -> CommitGraph:
        """The commit graph. Raises LakeplanError for a cycle, or a parent or HEAD that is not drawn."""
        now = to_us(self.as_of)
        commits = tuple(
            Commit(c.name, now - c.age_seconds * SECOND_US, c.name, c.parents) for c in self.commits.values()
        )
        branches = tuple(Branch(name, commit) for name, commit in self.branches.items())
        tags = tuple(Tag(name, commit) for name, commit in self.tags.items())
        try:
            return CommitGraph.from_refs(Refs(commits, branches, tags))
        except LakeplanError as error:
            raise LakeplanError(f"the commits do not form a valid history: {error.message}") from error

    def commit_of(self, ref: str) -> str | None:
        """The commit that a branch, a tag or a commit's name means."""
        for names in (self.branches, self.tags):
            if ref in names:
                return names[ref]
        return ref if ref in self.commits else None


@dataclass(frozen=True)
class Contents:
    """The objects of every commit. A *version* is the data of one object, named ``path@commit`` after the
    commit that added it, or ``path@branch (staged)``. ``trees``: per commit, path to version. ``staged``: per
    branch, path to version. ``unknown``: errors about data that does not exist, each with its place."""

    trees: Mapping[str, Mapping[str, str]]
    staged: Mapping[str, Mapping[str, str]]
    unknown: tuple[tuple[Source, str], ...] = ()

    def versions(self, drawing: Drawing, text: str) -> set[str]:
        """The versions that ``path@REF``, or a path alone, names."""
        path, at, ref = text.rpartition("@")
        commit = drawing.commit_of(ref) if at else None
        if commit is None:
            everywhere = [*self.trees.values(), *self.staged.values()]
            return {tree[text] for tree in everywhere if text in tree}
        tree = {**self.trees[commit], **self.staged.get(ref, {})}
        return {tree[path]} if path in tree else set()

    def holders(self, version: str) -> list[str]:
        """Commits that hold a version, at any path."""
        return [commit for commit, tree in self.trees.items() if version in tree.values()]

    def staged_on(self, version: str) -> list[str]:
        return [branch for branch, tree in self.staged.items() if version in tree.values()]


def contents_of(drawing: Drawing, graph: CommitGraph) -> Contents:
    """The contents of every commit: those of its first parent, without what it removes, with what it adds."""
    unknown: list[tuple[Source, str]] = []
    sharing: list[tuple[dict[str, str], DrawnObject]] = []

    def add(tree: dict[str, str], objects: Sequence[DrawnObject], place: str) -> None:
        tree |= {drawn.path: f"{drawn.path}@{place}" for drawn in objects}
        sharing.extend((tree, drawn) for drawn in objects if drawn.same_as is not None)

    trees: dict[str, dict[str, str]] = {}
    for number in reversed(graph.order):
        commit = drawing.commits[graph.ids[number]]
        tree = trees[commit.name] = dict(trees[commit.parents[0]]) if commit.parents else {}
        lacking = [path for path in commit.removes if tree.pop(path, None) is None]
        unknown += [
            (commit.source, f"{commit.name} removes {path}, which does not exist") for path in lacking
        ]
        add(tree, commit.objects, commit.name)
    staged: dict[str, dict[str, str]] = {branch: {} for branch in drawing.staged}
    for branch, objects in drawing.staged.items():
        add(staged[branch], objects, f"{branch} (staged)")
    contents = [*trees.values(), *staged.values()]
    for tree, drawn in sharing:
        version = tree.get(drawn.path)
        others = Contents(trees, staged).versions(drawing, drawn.same_as or "")
        if len(others) != 1 or version is None:
            unknown.append((drawn.source, f"same_as: {drawn.same_as!r} must match exactly one object"))
            continue
        # The path has the shared version also in commits that inherited it.
        (shared,) = others
        for each in contents:
            if each.get(drawn.path) == version:
                each[drawn.path] = shared
    return Contents(trees, staged, tuple(unknown))


def fates(
    graph: CommitGraph, rules: GcRules | None, as_of: datetime, zone: tzinfo = timezone.utc
) -> list[Fate]:
    """The fate of each commit, by number. Without rules nothing is collected."""
    if rules is None:
        return ["survives"] * len(graph)
    active = documented_verdict(graph, rules, as_of, zone).active
    starts = starts_of(graph, rules, graph.dangling)
    limits = [limit_us(as_of, days, zone) for days in starts.days]
    oldest = {commit: limits[rank] for commit, rank in enumerate(starts.rank) if rank != NO_RANK}
    fates_of: list[Fate] = []
    for commit in range(len(graph)):
        if not active[commit]:
            fates_of.append("goes")
        elif graph.is_head[commit] or _survives_every_order(graph, oldest, commit):
            fates_of.append("survives")
        else:
            fates_of.append("at_risk")
    return fates_of


def _survives_every_order(graph: CommitGraph, starts: dict[int, int], commit: int) -> bool:
    """Whether the server keeps a commit in every order of its starts. ``starts``: the oldest limit of each
    commit at which walks start.

    Take a walk that visits the commit without marking it, with a limit as old as any that would mark it. If
    its start sorts first, no walk stops it and it stops all others, so the commit is lost. Without such a
    walk, the oldest of the walks that mark the commit arrives in every order, unless a walk with an older
    limit through the same child stops it. That one then marks the commit."""
    marking: list[int] = []
    passing: list[int] = []
    if commit in starts:
        marking.append(starts[commit])  # a dangling commit: nothing is below it
    for child in graph.children(commit):
        created = graph.creation_us[child]
        for start in graph.descendants(child):
            if start in starts:
                (marking if created > starts[start] else passing).append(starts[start])
    return not passing or min(passing) > min(marking)


def fate_of(commits: Sequence[Fate], *, staged: bool) -> Fate:
    """The fate of an object, given those of the commits that hold it. It survives if one of them does or it
    is staged. It is at risk if one of them is, although no single order of starts may lose all of them."""
    if staged or "survives" in commits:
        return "survives"
    return "at_risk" if "at_risk" in commits else "goes"


MARK = "*"


@dataclass(frozen=True)
class PictureRow:
    """A row of a picture. ``lanes`` has a character for each lane, with blanks between them: ``*`` is the
    commit, ``|`` a lane that continues, and ``/`` one that ends here because its child's main parent is this
    commit."""

    commit: int
    lanes: str


def picture(graph: CommitGraph) -> list[PictureRow]:
    """All commits along main parents, children before parents, otherwise the newest first."""
    rows: list[PictureRow] = []
    lanes: list[int | None] = []
    for commit in _newest_first(graph):
        mine = [n for n, expected in enumerate(lanes) if expected == commit]
        if not mine:
            free = next((n for n, expected in enumerate(lanes) if expected is None), len(lanes))
            if free == len(lanes):
                lanes.append(None)
            mine = [free]
        shown = []
        for n, expected in enumerate(lanes):
            if n == mine[0]:
                shown.append(MARK)
            elif n in mine:
                shown.append("/")
            else:
                shown.append(" " if expected is None else "|")
        rows.append(PictureRow(commit, " ".join(shown).rstrip()))
        for n in mine:
            lanes[n] = None
        parent = graph.main_parent[commit]
        lanes[mine[0]] = parent if parent >= 0 else None
        while lanes and lanes[-1] is None:
            lanes.pop()
    return rows


def _newest_first(graph: CommitGraph) -> list[int]:
    waiting = list(graph.child_count)
    ready = [n for n in range(len(graph)) if not waiting[n]]
    order: list[int] = []
    while ready:
        commit = max(ready, key=lambda n: (graph.creation_us[n], -n))
        ready.remove(commit)
        order.append(commit)
        parent = graph.main_parent[commit]
        if parent >= 0:
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
    return order
