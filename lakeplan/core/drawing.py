"""A drawn history, as a test states it: commits with ages and parents, branches, tags, staged data, objects.

Names stand for commit ids. Real ids are hashes, so nothing may follow from how names sort: see
``drawing_verdicts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from lakeplan.core.retention import CommitGraph, to_us
from lakeplan.errors import LakeplanError
from lakeplan.model.desired import Source
from lakeplan.model.refs import Branch, Commit, Refs, Tag

Fate = Literal["survives", "goes", "at_risk"]
SECOND_US = 1_000_000


@dataclass(frozen=True)
class DrawnObject:
    """``same_as``: ``path@REF`` whose data this path holds too; None: data of its own."""

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
    """``branches`` and ``tags`` map names to commits; ``staged`` branches to objects."""

    as_of: datetime
    commits: Mapping[str, DrawnCommit]
    branches: Mapping[str, str]
    tags: Mapping[str, str] = field(default_factory=dict)
    staged: Mapping[str, tuple[DrawnObject, ...]] = field(default_factory=dict)

    def graph(self) -> CommitGraph:
        """Raises LakeplanError for what is no history: a cycle, a parent or HEAD that is not drawn."""
        now = to_us(self.as_of)
        commits = tuple(
            Commit(c.name, now - c.age_seconds * SECOND_US, c.name, c.parents) for c in self.commits.values()
        )
        branches = tuple(Branch(name, commit) for name, commit in self.branches.items())
        return CommitGraph.from_refs(
            Refs(commits, branches, tuple(Tag(name, commit) for name, commit in self.tags.items()))
        )

    def commit_of(self, ref: str) -> str | None:
        """The commit that a branch, a tag or a commit's own name means."""
        for names in (self.branches, self.tags):
            if ref in names:
                return names[ref]
        return ref if ref in self.commits else None


@dataclass(frozen=True)
class Contents:
    """What every commit holds. A *version* is the data of one object: named ``path@commit`` after the commit
    that brought it, or ``path@branch (staged)``. ``trees``: per commit, path to version; ``staged``: per
    branch, path to version. ``unknown``: references to data that is not there, each with its place."""

    trees: Mapping[str, Mapping[str, str]]
    staged: Mapping[str, Mapping[str, str]]
    unknown: tuple[tuple[Source, str], ...] = ()

    def versions(self, drawing: Drawing, text: str) -> set[str]:
        """The versions that ``path@REF`` or a path alone names; empty when there are none."""
        path, at, ref = text.rpartition("@")
        commit = drawing.commit_of(ref) if at else None
        if commit is None:
            everywhere = [*self.trees.values(), *self.staged.values()]
            return {tree[text] for tree in everywhere if text in tree}
        tree = {**self.trees[commit], **self.staged.get(ref, {})}
        return {tree[path]} if path in tree else set()

    def holders(self, version: str) -> list[str]:
        """Commits that hold a version, at whatever path."""
        return [commit for commit, tree in self.trees.items() if version in tree.values()]

    def staged_on(self, version: str) -> list[str]:
        return [branch for branch, tree in self.staged.items() if version in tree.values()]


def contents_of(drawing: Drawing, graph: CommitGraph) -> Contents:
    """Every commit's tree: its first parent's, without what it removes, with what it adds."""
    trees: dict[str, dict[str, str]] = {}
    unknown: list[tuple[Source, str]] = []
    waiting: list[tuple[dict[str, str], DrawnObject]] = []
    for number in reversed(graph.order):
        commit = drawing.commits[graph.ids[number]]
        tree = dict(trees[commit.parents[0]]) if commit.parents else {}
        lacking = [path for path in commit.removes if tree.pop(path, None) is None]
        unknown += [(commit.source, f"{commit.name} removes {path}, which is not there") for path in lacking]
        for drawn in commit.objects:
            tree[drawn.path] = f"{drawn.path}@{commit.name}"
            if drawn.same_as is not None:
                waiting.append((tree, drawn))
        trees[commit.name] = tree
    staged = {
        branch: {drawn.path: f"{drawn.path}@{branch} (staged)" for drawn in objects}
        for branch, objects in drawing.staged.items()
    }
    waiting += [
        (staged[branch], drawn)
        for branch, objects in drawing.staged.items()
        for drawn in objects
        if drawn.same_as is not None
    ]
    _share(drawing, trees, staged, waiting, unknown)
    return Contents(trees, staged, tuple(unknown))


def _share(
    drawing: Drawing,
    trees: dict[str, dict[str, str]],
    staged: dict[str, dict[str, str]],
    waiting: list[tuple[dict[str, str], DrawnObject]],
    unknown: list[tuple[Source, str]],
) -> None:
    """Gives ``same_as`` paths the version of the other one, wherever the path was inherited too."""
    for tree, drawn in waiting:
        own = tree.get(drawn.path)
        found = Contents(trees, staged).versions(drawing, drawn.same_as or "")
        if len(found) != 1 or own is None:
            unknown.append((drawn.source, f"same_as: {drawn.same_as!r} names no one object"))
            continue
        shared = found.pop()
        for every in (*trees.values(), *staged.values()):
            if every.get(drawn.path) == own:
                every[drawn.path] = shared


def check_history(drawing: Drawing) -> CommitGraph:
    """The graph, with errors in words of a drawing."""
    try:
        return drawing.graph()
    except LakeplanError as error:
        raise LakeplanError(f"this is no history: {error.message}") from error
