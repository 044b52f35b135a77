"""What must be readable, judged from outside: the documented rule in a few lines of its own, and reads
through the server. It shares no code with lakeplan."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.real.lake import DAY, Lake, Made

Entries = dict[tuple[str, str], str]
"""(commit id, path) to physical address."""


@dataclass(frozen=True)
class Kept:
    """Commits that the documented rule keeps, what they hold, and what is staged ((branch, path))."""

    commits: frozenset[str]
    entries: Entries
    staged: frozenset[tuple[str, str]]


def kept_commits(
    commits: dict[str, Made], heads: dict[str, str], default: int, days: dict[str, int], now: float
) -> frozenset[str]:
    """Every HEAD, and along first parents each commit whose child is younger than the branch's days. Commits
    that are nobody's first parent and no HEAD start a walk with the default days."""
    kept = set(heads.values())
    first_parents = {c.parents[0] for c in commits.values() if c.parents}
    dangling = set(commits) - first_parents - kept
    starts = [(head, days.get(name, default), True) for name, head in heads.items()]
    starts += [(id, default, False) for id in dangling]
    for start, retained, is_head in starts:
        limit = now - retained * DAY
        child = commits.get(start)
        if child is None:
            continue
        if not is_head and child.created > limit:
            kept.add(start)
        seen = set()
        while child.parents and child.parents[0] in commits and child.id not in seen:
            seen.add(child.id)
            parent = commits[child.parents[0]]
            if child.created > limit:
                kept.add(parent.id)
            child = parent
    return frozenset(kept)


def kept_now(lake: Lake, default: int, days: dict[str, int], *, also: frozenset[str] = frozenset()) -> Kept:
    """``also`` are commits that a hold or a protected tag keeps."""
    heads = lake.branches()
    for head in set(heads.values()) - set(lake.commits):
        for made in lake.log(head):
            lake.commits.setdefault(made.id, made)
    commits = kept_commits(lake.commits, heads, default, days, time.time()) | also
    entries: Entries = {}
    for commit in commits:
        for path, address in lake.entries(commit).items():
            entries[commit, path] = address
    staged = frozenset((branch, path) for branch in heads for path in lake.uncommitted(branch))
    return Kept(commits, entries, staged)


def lost(lake: Lake, kept: Kept) -> frozenset[str]:
    """Addresses that kept commits hold and whose data cannot be read."""
    where = {address: name for name, address in kept.entries.items()}
    return frozenset(address for address, (ref, path) in where.items() if lake.read(ref, path) is None)


def lost_staged(lake: Lake, kept: Kept) -> list[tuple[str, str]]:
    """Staged objects that are still staged and cannot be read."""
    still = {(branch, path) for branch in lake.branches() for path in lake.uncommitted(branch)}
    return [(b, p) for b, p in sorted(kept.staged & still) if lake.read(b, p) is None]
