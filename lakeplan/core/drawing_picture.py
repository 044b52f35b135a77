"""A drawn history as lanes of characters, the newest commit first, as ``git log --graph`` does."""

from __future__ import annotations

from dataclasses import dataclass

from lakeplan.core.retention import CommitGraph

MARK = "*"


@dataclass(frozen=True)
class PictureRow:
    """``lanes``: one character a lane and between lanes; ``*`` is the commit, ``|`` a lane that goes on,
    ``/`` one that ends here: its child's main parent is this commit."""

    commit: int
    lanes: str


def picture(graph: CommitGraph) -> list[PictureRow]:
    """All commits along main parents, children before their parents, else the newest first."""
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
