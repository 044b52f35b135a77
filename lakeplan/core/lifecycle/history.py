"""What a branch's commits say about it: whether it is merged, whether it may be another branch of the same
name, and which tags only it leads to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakeplan.core.retention import CommitGraph
from lakeplan.model.refs import Branch, Commit, Refs


def reachable(commits: Mapping[str, Commit], heads: Iterable[str]) -> set[str]:
    """Every commit that some head leads to, along all parents. Unknown commits are left out."""
    found: set[str] = set()
    pending = [head for head in heads if head in commits]
    while pending:
        commit_id = pending.pop()
        if commit_id in found:
            continue
        found.add(commit_id)
        pending.extend(p for p in commits[commit_id].parents if p in commits and p not in found)
    return found


def is_continued(graph: CommitGraph, first_head: str, head: str) -> bool:
    """Whether ``head`` follows from ``first_head`` along main parents, as commits, merges and imports make
    it. A hard reset and a branch made anew under the same name do not; False too where the commits are not
    known. (A branch made anew further up the same line looks continued.)"""
    target, commit = graph.index.get(first_head), graph.index.get(head)
    while commit is not None and target is not None and commit >= 0:
        if commit == target:
            return True
        commit = graph.main_parent[commit]
    return False


def tags_on(refs: Refs, default_branch: str) -> dict[str, tuple[str, ...]]:
    """By branch: tags whose commit it leads to and the default branch does not, sorted."""
    if not refs.tags:
        return {}
    commits = {commit.id: commit for commit in refs.commits}
    heads = {branch.id: branch.commit_id for branch in refs.branches}
    settled = reachable(commits, [heads[default_branch]] if default_branch in heads else [])
    names: dict[str, set[str]] = {}
    for tag in refs.tags:
        names.setdefault(tag.commit_id, set()).add(tag.id)
    found: dict[str, frozenset[str]] = {}
    for commit_id in _parents_first(commits, refs.branches, settled):
        own = names.get(commit_id, set())
        sets = {found[p] for p in commits[commit_id].parents if found.get(p)}
        # Most commits add nothing: they share their parent's set.
        found[commit_id] = (
            next(iter(sets), frozenset()) if len(sets) < 2 and not own else frozenset().union(own, *sets)
        )
    return {
        branch.id: tuple(sorted(found[branch.commit_id]))
        for branch in refs.branches
        if found.get(branch.commit_id)
    }


def _parents_first(
    commits: Mapping[str, Commit], branches: Sequence[Branch], settled: set[str]
) -> Iterable[str]:
    """Commits that branches lead to, outside ``settled``, each after all its parents."""
    done: set[str] = set()
    for branch in branches:
        stack = [branch.commit_id]
        while stack:
            commit_id = stack[-1]
            if commit_id in done or commit_id in settled or commit_id not in commits:
                stack.pop()
                continue
            waiting = [
                p for p in commits[commit_id].parents if p in commits and p not in done and p not in settled
            ]
            if waiting:
                stack.extend(waiting)
                continue
            done.add(commit_id)
            stack.pop()
            yield commit_id
