"""Which branches keep a commit under the documented rule, why, and until when.

A branch keeps its HEAD, and every main ancestor whose child on the way is younger than the branch's limit.
Sets of branches are integers with one bit per branch, in order of name. The branches below a child change
only at joints, and which of them have an old enough limit depends on one rank. So long runs of commits share
one set, and there are about as many distinct sets as joints.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import NEVER_EXPIRES, limit_us, zone_clock
from lakeplan.values.rules import GcRules


@dataclass(frozen=True, eq=False)
class BranchSets:
    """The branches that keep each commit. ``names`` are all branches, ascending, and bit i of a mask is
    ``names[i]``. ``masks`` are the distinct sets, of which the first is empty. ``of_commit``: per commit
    number, the position of its set."""

    names: tuple[str, ...]
    masks: list[int]
    of_commit: array[int]

    def count(self, commit: int) -> int:
        """Return how many branches keep a commit."""
        return self.masks[self.of_commit[commit]].bit_count()

    def branches(self, commit: int, limit: int | None = None) -> tuple[str, ...]:
        """The first ``limit`` names of the branches that keep a commit, ascending."""
        return self.names_in(self.masks[self.of_commit[commit]], limit)

    def names_in(self, mask: int, limit: int | None = None) -> tuple[str, ...]:
        """The first ``limit`` names in a mask, ascending."""
        names: list[str] = []
        while mask and (limit is None or len(names) < limit):
            lowest = mask & -mask
            names.append(self.names[lowest.bit_length() - 1])
            mask ^= lowest
        return tuple(names)

    def rows(self, limit: int | None = None) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Per commit number, how many branches keep the commit, and the first ``limit`` names. Commits with
        the same set share one tuple."""
        shown = [(mask.bit_count(), self.names_in(mask, limit)) for mask in self.masks]
        return (shown[position] for position in self.of_commit)


def branch_sets(
    graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo = timezone.utc
) -> BranchSets:
    """The branches that keep each commit at ``as_of``, for all commits in one pass."""
    days, old_enough = _branches_by_days(graph, rules)
    limits = [limit_us(as_of, value, zone) for value in days]
    youngest_first = [-limit for limit in limits]  # ascending, as bisect requires
    below = [0] * len(graph)
    for bit, head in enumerate(graph.heads):
        below[head] |= 1 << bit
    keeping = list(below)
    position_of: dict[int, int] = {0: 0}
    of_commit = array("i", bytes(4 * len(graph)))
    for commit in graph.order:
        kept_by = keeping[commit]
        of_commit[commit] = position_of.setdefault(kept_by, len(position_of))
        branches, parent = below[commit], graph.main_parent[commit]
        below[commit] = keeping[commit] = 0
        if parent < 0 or not branches:
            continue
        below[parent] = below[parent] | branches if below[parent] else branches
        # The first rank whose limit is before the child's date. An equal date is not after it.
        rank = bisect_right(youngest_first, -graph.creation_us[commit])
        if rank < len(days):
            keeping[parent] |= branches & old_enough[rank]
    return BranchSets(tuple(branch.id for branch in graph.branches), list(position_of), of_commit)


def _branches_by_days(graph: CommitGraph, rules: GcRules) -> tuple[list[int], list[int]]:
    """The distinct days of branches, ascending, and for each the mask of branches with at least as many."""
    by_days: dict[int, int] = {}
    for bit, branch in enumerate(graph.branches):
        value = rules.days_for(branch.id)
        by_days[value] = by_days.get(value, 0) | 1 << bit
    days = sorted(by_days)
    masks, at_least = [], 0
    for value in reversed(days):
        at_least |= by_days[value]
        masks.append(at_least)
    return days, masks[::-1]


@dataclass(frozen=True)
class Keeper:
    """One reason to keep a commit.

    ``branch`` is None if the walk starts at a dangling commit. ``start`` is the id of the HEAD or dangling
    commit. ``days`` are those of the branch's rule, or the default if ``is_default``. ``until_us``: the last
    instant, assuming no new commits, in UTC microseconds; None for the branch's HEAD.
    """

    branch: str | None
    start: str
    days: int
    is_default: bool
    until_us: int | None

    @property
    def rule(self) -> str:
        """The rule in words: ``28 days (branch main)`` or ``21 days (default)``."""
        unit = "day" if self.days == 1 else "days"
        return f"{self.days} {unit} ({'default' if self.is_default else f'branch {self.branch}'})"


def why(
    graph: CommitGraph, rules: GcRules, commit: str, as_of: datetime, zone: tzinfo = timezone.utc
) -> list[Keeper]:
    """The reasons why the documented rule keeps a commit (by id) at ``as_of``, if it does: branches by name,
    then dangling starts, the longest first. Raises LakeplanError for an unknown commit."""
    limits = {days: limit_us(as_of, days, zone) for days in {*rules.branches.values()}}
    limits[rules.default_retention_days] = limit_us(as_of, rules.default_retention_days, zone)
    return [
        k
        for k, created in _reaching(graph, rules, commit, zone)
        if created is None or created > limits[k.days]
    ]


def reaching(graph: CommitGraph, rules: GcRules, commit: str, zone: tzinfo = timezone.utc) -> list[Keeper]:
    """Every branch and dangling start whose walk reaches a commit, also those that no longer keep it, ordered
    as in ``why``."""
    return [keeper for keeper, _ in _reaching(graph, rules, commit, zone)]


def _reaching(
    graph: CommitGraph, rules: GcRules, commit: str, zone: tzinfo
) -> list[tuple[Keeper, int | None]]:
    """Keepers, each with the date that must be after its limit (None if the commit is the branch's HEAD)."""
    number = graph.number_of(commit)
    branches_at: dict[int, list[str]] = {}
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        branches_at.setdefault(head, []).append(branch.id)
    dangling = set(graph.dangling)
    clock = zone_clock(zone)
    keepers: list[tuple[Keeper, int | None]] = []

    def add(branch: str | None, start: int, created: int | None) -> None:
        has_rule = branch is not None and branch in rules.branches
        days = rules.default_retention_days if branch is None else rules.days_for(branch)
        until = None if created is None else clock.expiry(created, days)
        keepers.append((Keeper(branch, graph.ids[start], days, not has_rule, until), created))

    for branch_id in branches_at.get(number, ()):
        add(branch_id, number, None)
    if number in dangling:
        add(None, number, graph.creation_us[number])
    for child in graph.children(number):
        created = graph.creation_us[child]
        for start in graph.descendants(child):
            for branch_id in branches_at.get(start, ()):
                add(branch_id, start, created)
            if start in dangling:
                add(None, start, created)
    keepers.sort(key=lambda item: _order(item[0]))
    return keepers


def _order(keeper: Keeper) -> tuple[bool, str, int, str]:
    until = NEVER_EXPIRES if keeper.until_us is None else keeper.until_us
    return (keeper.branch is None, keeper.branch or "", -until, keeper.start)
