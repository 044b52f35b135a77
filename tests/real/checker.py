"""What must be readable, judged from outside: the documented rule in a few lines of its own, and reads
through the server. It shares no code with lakeplan."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from tests.real.lake import DAY, Lake, Made, Moment

Entries = dict[tuple[str, str], str]
"""(commit id, path) to physical address."""


@dataclass(frozen=True)
class Kept:
    """Commits that the documented rule keeps, what they hold, and what is staged ((branch, path))."""

    commits: frozenset[str]
    entries: Entries
    staged: frozenset[tuple[str, str]]

    def addresses(self) -> set[str]:
        return set(self.entries.values())


def kept_commits(
    commits: dict[str, Made],
    heads: dict[str, str],
    default: int,
    days: dict[str, int],
    now: float,
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
    return Kept(commits, entries_of(lake, commits), staged_now(lake, heads))


def kept_throughout(
    lake: Lake, moments: Iterable[Moment], default: int, days: dict[str, int], also: frozenset[str]
) -> set[str]:
    """Addresses that some kept commit held at each of these moments, from the first commit with them on
    (before it they were staged)."""
    now = time.time()
    lacking: set[str] = set()
    for moment in moments:
        known = dict(islice(lake.commits.items(), moment.commits))
        kept = kept_commits(known, moment.heads, default, days, now) | also
        lacking |= {*entries_of(lake, known).values()} - {*entries_of(lake, kept).values()}
    return {*entries_of(lake, [*lake.commits]).values()} - lacking


def entries_of(lake: Lake, commits: Iterable[str]) -> Entries:
    commits = [*commits]
    unknown = [commit for commit in commits if commit not in lake.listings]
    lake.listings |= zip(unknown, lake.at_once(lake.entries, unknown), strict=True)
    return {(id, path): address for id in commits for path, address in lake.listings[id].items()}


def staged_now(lake: Lake, heads: Iterable[str]) -> frozenset[tuple[str, str]]:
    branches = [*heads]
    found = zip(branches, lake.at_once(lake.uncommitted, branches), strict=True)
    return frozenset((branch, path) for branch, paths in found for path in paths)


class Reads:
    """Which data was read and which is lost, by address. Between two sweeps nothing is deleted: what was read
    after the last one is not read again before the next, unless ``forget`` was called. Data that is lost once
    stays lost until a restore."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._good: set[str] = set()
        self.lost: set[str] = set()
        self.count = 0

    def forget(self, *, lost: bool = False) -> None:
        self._good.clear()
        if lost:
            self.lost.clear()

    def read(self, *entries: Entries) -> None:
        """Reads all of these. Raises AssertionError for other bytes than were written."""
        where = {address: name for each in entries for name, address in each.items()}
        unread = [address for address in where if address not in self._good | self.lost]
        whole = self._lake.at_once(lambda address: self._is_whole(*where[address], address), unread)
        for address, is_whole in zip(unread, whole, strict=True):
            (self._good if is_whole else self.lost).add(address)

    def read_every_entry(self, kept: Kept) -> None:
        """Through the ref of each entry, whatever was read of its address."""
        rows = [*kept.entries.items()]
        whole = self._lake.at_once(lambda row: self._is_whole(*row[0], row[1]), rows)
        for (name, address), is_whole in zip(rows, whole, strict=True):
            assert is_whole is (address not in self.lost), name

    def _is_whole(self, ref: str, path: str, address: str) -> bool:
        self.count += 1
        content = self._lake.read(ref, path)
        if content is None:
            return False
        assert hashlib.sha256(content).hexdigest() == self._lake.written[address], (ref, path)
        return True


def lost_staged(lake: Lake, staged: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Staged objects that cannot be read, or are other bytes than were uploaded."""
    where = sorted(staged)
    hashes = {*lake.written.values()}
    found = lake.at_once(lambda one: lake.read(*one), where)
    return [
        one
        for one, content in zip(where, found, strict=True)
        if content is None or hashlib.sha256(content).hexdigest() not in hashes
    ]
