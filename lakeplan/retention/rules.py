"""The documented rule and the server's walk: which commits are kept, until when, by whom, and at how many
days of retention.

For the last, one number of a rule set varies: the default days, or the days of one branch. More days never
keep less under the documented rule, so each commit has a smallest number of days that keeps it. The server's
walk is not monotone and has no such number. It can only be evaluated at points.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from lakeplan.errors import UsageError
from lakeplan.retention.graph import NO_RANK, CommitGraph, Edges, Starts, active_flags, starts_of
from lakeplan.values.rules import MAX_DAYS, GcRules

DAY_US = 86_400_000_000
EARLIEST_US = -(2**63) + 2
LATEST_US = 2**63 - 3

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
# Zones have rules only for years that datetime can express. One year is left at both ends.
_FIRST_LOOKUP_US = (datetime(2, 1, 1, tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND
_LAST_LOOKUP_US = (datetime(9998, 12, 31, tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND
_REACH_DAYS = 2
"""Offsets are below 27 hours, so a change of clocks that is further away has no effect."""


def to_us(moment: datetime) -> int:
    """UTC microseconds of an aware datetime. Raises UsageError for a naive one."""
    if moment.utcoffset() is None:
        raise UsageError(
            f"the time {moment.isoformat()} has no time zone",
            hint="Add a time zone to the time: Z for UTC, or an offset such as +02:00.",
        )
    return (moment - _EPOCH) // _MICROSECOND


def limit_us(as_of: datetime, days: int, zone: tzinfo = timezone.utc) -> int:
    """The time ``days`` calendar days before ``as_of`` in ``zone``. Any int is accepted. The result is
    clamped."""
    return zone_clock(zone).limit(to_us(as_of), days)


def expiry_us(creation_us: int, days: int, zone: tzinfo = timezone.utc) -> int:
    """The last ``as_of`` at which a commit created at ``creation_us`` is after the limit of ``days``.

    Around a clock change, the limit may pass the commit's date and move back before it within hours. This is
    the end of the last period in which the commit is after the limit, so that no commit seems to expire
    earlier than it can.
    """
    return zone_clock(zone).expiry(creation_us, days)


@lru_cache(maxsize=64)
def zone_clock(zone: tzinfo) -> ZoneClock:
    """The clock of a zone, which remembers its look-ups."""
    return ZoneClock(zone)


class ZoneClock:
    """Limits and expiries in one time zone. ``fixed`` is true when its offset never changes."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self.fixed = zone.utcoffset(None) is not None
        self._calm: dict[int, int | None] = {}
        self._changes: dict[int, tuple[int, ...]] = {}

    def limit(self, now_us: int, days: int) -> int:
        """The time some calendar days before ``now_us``, clamped."""
        wall = now_us + self._offset(now_us) - days * DAY_US
        return _clamp(wall - self._offset_of_wall(wall))

    def expiry(self, creation_us: int, days: int) -> int:
        """The last instant whose limit lies before ``creation_us``, clamped."""
        later = creation_us + days * DAY_US
        if not self.fixed:
            offset_then = self._calm_offset(creation_us // DAY_US)
            offset_later = self._calm_offset(later // DAY_US)
            if offset_then is None or offset_later is None:
                return _clamp(self._expiry_near_a_change(creation_us, days))
            later += offset_then - offset_later
        return _clamp(later - 1)

    def _offset(self, at_us: int) -> int:
        if self.fixed:
            return 0  # a constant offset makes no difference
        at_us = min(max(at_us, _FIRST_LOOKUP_US), _LAST_LOOKUP_US)
        offset = (_EPOCH + timedelta(microseconds=at_us)).astimezone(self._zone).utcoffset()
        if offset is None:
            raise UsageError(f"the time zone {self._zone} has no offset")
        return offset // _MICROSECOND

    def _offset_of_wall(self, wall_us: int) -> int:
        # Like Go: treat the wall time as UTC, and correct once by the offset at that time.
        return self._offset(wall_us - self._offset(wall_us))

    def _calm_offset(self, day: int) -> int | None:
        """The offset around a day (of the epoch), or None when clocks change near it."""
        try:
            return self._calm[day]
        except KeyError:
            around = {self._offset((day + n) * DAY_US) for n in range(-_REACH_DAYS, _REACH_DAYS + 2)}
            self._calm[day] = answer = around.pop() if len(around) == 1 else None
            return answer

    def _changes_near(self, day: int) -> tuple[int, ...]:
        """The instants at which clocks change around a day (of the epoch)."""
        if day not in self._changes:
            moments = []
            for n in range(day - _REACH_DAYS, day + _REACH_DAYS + 1):
                low, high = n * DAY_US, (n + 1) * DAY_US
                before = self._offset(low)
                if self._offset(high) == before:
                    continue
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if self._offset(middle) == before else (low, middle)
                moments.append(high)
            self._changes[day] = tuple(moments)
        return self._changes[day]

    def _expiry_near_a_change(self, creation_us: int, days: int) -> int:
        """``expiry`` where clocks change nearby. As a function of now, the limit has slope one between a few
        breaks. The stretches between them are tried from the last to the first."""
        later = creation_us + days * DAY_US
        first, last = later - _REACH_DAYS * DAY_US, later + _REACH_DAYS * DAY_US
        changes_now = self._changes_near(later // DAY_US)
        breaks = {first, last, *changes_now}
        offsets_now = {self._offset(at) for at in (first, last, *changes_now)}
        for change in self._changes_near(creation_us // DAY_US):
            offsets_then = {0, self._offset(change - 1), self._offset(change)}
            breaks |= {change + then + days * DAY_US - now for then in offsets_then for now in offsets_now}
        stretches = sorted(at for at in breaks if first <= at <= last)
        for start, end in zip(stretches[-2::-1], stretches[:0:-1], strict=True):
            lag = self.limit(start, days) - start
            at = min(end - 1, creation_us - lag - 1)
            if at >= start:
                return at
        return later - 1  # the limit is clamped


def _clamp(at_us: int) -> int:
    return min(max(at_us, EARLIEST_US), LATEST_US)


NEVER_EXPIRES = 2**63 - 1
"""``kept_until_us`` of a HEAD, which is kept as long as its branch exists."""
NEVER_KEPT = -(2**63)
"""``kept_until_us`` of a commit that no start reaches, which is never kept."""


@dataclass(frozen=True)
class DocumentedVerdict:
    """Per commit number: ``active`` (1: kept) at one moment, and ``kept_until_us``, the last instant (UTC
    microseconds) at which the rule keeps the commit, assuming no new commits. It is in the past for an
    expired commit, and ``NEVER_EXPIRES`` for a HEAD. Verdicts share the array, so do not change it."""

    active: bytearray
    kept_until_us: array[int]


class DocumentedRule:
    """The documented rule of one rule set over one history, prepared for any number of moments."""

    def __init__(self, graph: CommitGraph, rules: GcRules) -> None:
        self._graph = graph
        self._starts = starts_of(graph, rules, graph.dangling)
        self._edges = self._edges_to_parents()
        self._kept_until: dict[tzinfo, array[int]] = {}

    def _edges_to_parents(self) -> Edges:
        starts, parents = self._starts, self._graph.main_parent
        of_child = array("i", starts.rank)
        for commit in self._graph.order:
            parent = parents[commit]
            if parent >= 0 and of_child[commit] > of_child[parent]:
                of_child[parent] = of_child[commit]
        return Edges(of_child, array("i", [starts.default_rank]) * len(starts.dangling))

    def active(self, as_of: datetime, zone: tzinfo = timezone.utc) -> bytearray:
        """Per commit number, 1 when the rule keeps it at ``as_of`` (aware) with the server in ``zone``."""
        limits = [limit_us(as_of, days, zone) for days in self._starts.days]
        return active_flags(self._graph, self._starts, self._edges, limits)

    def kept_until_us(self, zone: tzinfo = timezone.utc) -> array[int]:
        """Per commit number, when it expires. See ``DocumentedVerdict``."""
        if zone not in self._kept_until:
            self._kept_until[zone] = _expiries(self._graph, self._starts, self._edges, zone)
        return self._kept_until[zone]

    def verdict(self, as_of: datetime, zone: tzinfo = timezone.utc) -> DocumentedVerdict:
        return DocumentedVerdict(self.active(as_of, zone), self.kept_until_us(zone))


def _expiries(graph: CommitGraph, starts: Starts, edges: Edges, zone: tzinfo) -> array[int]:
    """Per commit number, the last instant at which ``edges`` keep it."""
    clock = zone_clock(zone)
    kept_until = array("q", [NEVER_KEPT]) * len(graph)
    spans = [days * DAY_US - 1 for days in starts.days]
    for parent, created, rank in zip(graph.main_parent, graph.creation_us, edges.of_child, strict=True):
        if parent < 0 or rank == NO_RANK:
            continue
        if clock.fixed:
            until = min(max(created + spans[rank], EARLIEST_US), LATEST_US)
        else:
            until = clock.expiry(created, starts.days[rank])
        if until > kept_until[parent]:
            kept_until[parent] = until
    for commit, rank in zip(starts.dangling, edges.of_dangling, strict=True):
        if rank != NO_RANK:
            until = clock.expiry(graph.creation_us[commit], starts.days[rank])
            kept_until[commit] = max(kept_until[commit], until)
    for head in graph.heads:
        kept_until[head] = NEVER_EXPIRES
    return kept_until


def documented_verdict(
    graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo = timezone.utc
) -> DocumentedVerdict:
    """The verdict of the documented rule at one moment. For several moments, use one ``DocumentedRule``."""
    return DocumentedRule(graph, rules).verdict(as_of, zone)


SELF = -1
"""In a joint, the walk that starts at the commit itself rather than at a child."""

Staircase = tuple[list[int], list[int]]
"""Start numbers, ascending, and their ranks, strictly ascending."""


class ServerWalk:
    """The server's walk of one rule set over one history, prepared for any number of moments."""

    def __init__(self, graph: CommitGraph, rules: GcRules) -> None:
        self._graph = graph
        self._starts = starts_of(graph, rules, graph.server_dangling)
        self._edges: dict[tuple[int, ...], Edges] = {}

    def active(self, as_of: datetime, zone: tzinfo = timezone.utc) -> bytearray:
        """Per commit number, 1 if a server in ``zone`` keeps it at ``as_of`` (aware)."""
        limits = [limit_us(as_of, days, zone) for days in self._starts.days]
        return active_flags(self._graph, self._starts, self._edges_for(limits), limits)

    def kept_until_us(self, zone: tzinfo = timezone.utc) -> array[int]:
        """Per commit number, when the server stops keeping it, as in ``DocumentedVerdict``. Ignores that a
        skipped day of a zone may give different days the same limit."""
        edges = self._edges_for([-days for days in self._starts.days])
        return _expiries(self._graph, self._starts, edges, zone)

    def _edges_for(self, limits: list[int]) -> Edges:
        # Different days can have the same limit (a day that a zone skipped, days outside all calendars). The
        # walk stops at equal limits, so ranks must count limits, not days.
        levels = [0] * len(limits)
        for rank in range(1, len(limits)):
            levels[rank] = levels[rank - 1] if limits[rank] == limits[rank - 1] else rank
        key = tuple(levels)
        if key not in self._edges:
            self._edges[key] = _Joints(self._graph, self._starts, levels).edges()
        return self._edges[key]


def server_verdict(
    graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo = timezone.utc
) -> bytearray:
    """Per commit number, 1 if the server keeps it at one moment. For several moments, use one
    ``ServerWalk``."""
    return ServerWalk(graph, rules).active(as_of, zone)


def kept_by_either(
    graph: CommitGraph, rules: GcRules | None, as_of: datetime, zone: tzinfo = timezone.utc
) -> list[bool]:
    """Per commit number, whether the server's walk or the documented rule keeps it at ``as_of``. Without
    rules, this is true of all commits."""
    if rules is None:
        return [True] * len(graph)
    flags = ServerWalk(graph, rules).active(as_of, zone), DocumentedRule(graph, rules).active(as_of, zone)
    return [bool(server or documented) for server, documented in zip(*flags, strict=True)]


class _Joints:
    """One pass from the leaves up, carrying the staircase of the starts below."""

    def __init__(self, graph: CommitGraph, starts: Starts, levels: list[int]) -> None:
        self._graph = graph
        self._dangling = {commit: n for n, commit in enumerate(starts.dangling)}
        self._own_rank = array("i", [rank if rank == NO_RANK else levels[rank] for rank in starts.rank])
        self._of_child = array("i", [NO_RANK]) * len(graph)
        self._of_dangling = array("i", [NO_RANK]) * len(starts.dangling)

    def edges(self) -> Edges:
        parents, child_count, own_rank = self._graph.main_parent, self._graph.child_count, self._own_rank
        arrived: dict[int, list[tuple[int, Staircase]]] = {}
        for leaf, count in enumerate(child_count):
            if count:
                continue
            commit = leaf
            stairs = self._join(commit, [])
            while (parent := parents[commit]) >= 0:
                if child_count[parent] == 1 and own_rank[parent] == NO_RANK:
                    self._of_child[commit] = stairs[1][-1] if stairs[1] else NO_RANK
                else:
                    below = arrived.setdefault(parent, [])
                    below.append((commit, stairs))
                    if len(below) < child_count[parent]:
                        break
                    stairs = self._join(parent, arrived.pop(parent))
                commit = parent
        return Edges(self._of_child, self._of_dangling)

    def _join(self, commit: int, below: list[tuple[int, Staircase]]) -> Staircase:
        """Merge the staircases that arrive at a commit, and the start there, and record the rank that remains
        for each child. The longest staircase is changed in place."""
        if self._own_rank[commit] != NO_RANK:
            below.append((SELF, ([commit], [self._own_rank[commit]])))
        if not below:
            return [], []
        longest = max(range(len(below)), key=lambda n: len(below[n][1][0]))
        child, merged = below.pop(longest)
        for _, (numbers, ranks) in below:
            for number, rank in zip(numbers, ranks, strict=True):
                _add(merged, number, rank)
        joined: set[int] = set()
        for other, (numbers, ranks) in below:
            passing = [(n, rank) for n, rank in zip(numbers, ranks, strict=True) if _has(merged, n)]
            joined.update(n for n, _ in passing)
            self._note(commit, other, passing[-1][1] if passing else NO_RANK)
        last = len(merged[0]) - 1
        while last >= 0 and merged[0][last] in joined:
            last -= 1
        self._note(commit, child, merged[1][last] if last >= 0 else NO_RANK)
        return merged

    def _note(self, commit: int, child: int, rank: int) -> None:
        if child != SELF:
            self._of_child[child] = rank
        elif commit in self._dangling:
            self._of_dangling[self._dangling[commit]] = rank


def _add(stairs: Staircase, number: int, rank: int) -> None:
    """Add a start unless an earlier one has an older or equal limit, and drop the later ones that it
    stops."""
    numbers, ranks = stairs
    at = bisect_left(numbers, number)
    if at and ranks[at - 1] >= rank:
        return
    stopped = bisect_right(ranks, rank, at)
    numbers[at:stopped] = [number]
    ranks[at:stopped] = [rank]


def _has(stairs: Staircase, number: int) -> bool:
    at = bisect_left(stairs[0], number)
    return at < len(stairs[0]) and stairs[0][at] == number


NOBODY = -1
DANGLING = -2
_WEAKEST = -(2**31)


@dataclass(frozen=True, eq=False)
class Strongest:
    """Per commit number.

    - ``branch``: position in ``graph.branches`` of the branch that keeps (or kept) it the longest;
      ``DANGLING`` for a walk from a dangling commit, ``NOBODY`` if no walk reaches it
    - ``via``: its child on that walk, from whose date the days count; itself if the walk starts there
    - ``until_us``: the last instant at which it is kept, assuming no new commits; ``NEVER_EXPIRES`` for a
      HEAD, ``NEVER_KEPT`` if no walk reaches it
    """

    branch: array[int]
    via: array[int]
    until_us: array[int]


def strongest_keepers(graph: CommitGraph, rules: GcRules, zone: tzinfo = timezone.utc) -> Strongest:
    """The strongest keeper of every commit. If several keep it equally long, it is a branch rather than a
    dangling commit, and the first by name of the branches that were compared."""
    clock = zone_clock(zone)
    count = len(graph)
    best = Strongest(array("i", [NOBODY]) * count, array("i", range(count)), array("q", [NEVER_KEPT]) * count)
    # Days and minus the branch's position, so that the greatest is the strongest.
    below: list[tuple[int, int] | None] = [None] * count
    dangling = (rules.default_retention_days, -len(graph.branches))
    for position, (branch, head) in enumerate(zip(graph.branches, graph.heads, strict=True)):
        start = (rules.days_for(branch.id), -position)
        below[head] = max(below[head] or start, start)
        if best.until_us[head] != NEVER_EXPIRES:
            best.branch[head], best.until_us[head] = position, NEVER_EXPIRES
    for commit in graph.dangling:
        until = clock.expiry(graph.creation_us[commit], rules.default_retention_days)
        best.branch[commit], best.until_us[commit] = DANGLING, until
        below[commit] = max(below[commit] or dangling, dangling)
    for commit in graph.order:
        start_below, parent = below[commit], graph.main_parent[commit]
        below[commit] = None
        if start_below is None or parent < 0:
            continue
        below[parent] = max(below[parent] or start_below, start_below)
        days, minus = start_below
        until = clock.expiry(graph.creation_us[commit], days)
        keeper = DANGLING if -minus == len(graph.branches) else -minus
        if (until, _rank(keeper)) > (best.until_us[parent], _rank(best.branch[parent])):
            best.branch[parent], best.via[parent], best.until_us[parent] = keeper, commit, until
    return best


def _rank(branch: int) -> int:
    """Orders keepers of the same moment, the greatest is the strongest: branches by name, then dangling
    commits."""
    return -branch if branch >= 0 else _WEAKEST


ALWAYS = -1
"""Kept at any number of days: it is a HEAD, or a rule that does not vary keeps it."""
NEVER = MAX_DAYS + 1
"""No number of days up to ``MAX_DAYS`` keeps it; a curve ends there."""


@dataclass(frozen=True)
class Varied:
    """The number that varies: the days of one branch, or the default days if ``branch_id`` is None."""

    branch_id: str | None = None

    def in_rules(self, rules: GcRules) -> int:
        """The days that the rules have now."""
        return rules.default_retention_days if self.branch_id is None else rules.days_for(self.branch_id)

    def at(self, rules: GcRules, days: int) -> GcRules:
        """The rules with other days."""
        if self.branch_id is None:
            return GcRules(days, rules.branches)
        return GcRules(rules.default_retention_days, {**rules.branches, self.branch_id: days})


def days_needed(
    graph: CommitGraph, rules: GcRules, varied: Varied, as_of: datetime, zone: tzinfo = timezone.utc
) -> array[int]:
    """Per commit number, the smallest days from 0 to ``MAX_DAYS`` for ``varied`` at which the documented rule
    keeps the commit at ``as_of`` (aware) with the server in ``zone``; or ``ALWAYS``, or ``NEVER``.

    Calendar days and time zones count exactly as for a verdict: commit c is kept at n days when, and only
    when, ``days_needed(…)[c] <= n``.
    """
    starts = _starts(graph, rules, varied, as_of, zone)
    smallest = _smallest_days(graph, as_of, zone)
    needed = array("i", [NEVER]) * len(graph)
    for commit in graph.order:
        parent = graph.main_parent[commit]
        if parent < 0:
            continue
        if starts.fixed_limit[commit] < graph.creation_us[commit]:
            needed[parent] = ALWAYS
        elif starts.varies[commit]:
            needed[parent] = min(needed[parent], smallest[commit])
        starts.varies[parent] |= starts.varies[commit]
        starts.add(parent, starts.fixed_limit[commit])
    for commit in graph.dangling:
        if starts.default_limit is None:
            needed[commit] = min(needed[commit], smallest[commit])
        elif starts.default_limit < graph.creation_us[commit]:
            needed[commit] = ALWAYS
    for head in graph.heads:
        needed[head] = ALWAYS
    return needed


@dataclass
class _Starts:
    """Per commit, the walks that start at it or below it: whether the days of any vary, and the oldest limit
    of the others. ``default_limit``: the limit of dangling starts, or None if it varies."""

    varies: bytearray
    fixed_limit: array[int]
    default_limit: int | None

    def add(self, commit: int, limit: int) -> None:
        self.fixed_limit[commit] = min(self.fixed_limit[commit], limit)


def _starts(graph: CommitGraph, rules: GcRules, varied: Varied, as_of: datetime, zone: tzinfo) -> _Starts:
    default = None if varied.branch_id is None else limit_us(as_of, rules.default_retention_days, zone)
    # No commit is after this limit, which stands for no fixed start.
    starts = _Starts(bytearray(len(graph)), array("q", [LATEST_US + 1]) * len(graph), default)
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        days = rules.branches.get(branch.id)
        if branch.id == varied.branch_id or (days is None and default is None):
            starts.varies[head] = 1
        elif days is not None:
            starts.add(head, limit_us(as_of, days, zone))
        elif default is not None:
            starts.add(head, default)
    for commit in graph.dangling:
        if default is None:
            starts.varies[commit] = 1
        else:
            starts.add(commit, default)
    return starts


def _smallest_days(graph: CommitGraph, as_of: datetime, zone: tzinfo) -> array[int]:
    """Per commit, the smallest days whose limit is before its creation. Limits never move forward as days
    grow, so bisection finds them."""
    oldest = min(graph.creation_us, default=0)
    # Two more days, for offsets of zones and a day that a zone skipped.
    days = min(MAX_DAYS, max(0, (to_us(as_of) - oldest) // DAY_US + 3))
    back = [-limit_us(as_of, n, zone) for n in range(days + 1)]
    smallest = array("i", bytes(4 * len(graph)))
    for commit, created in enumerate(graph.creation_us):
        at = bisect_right(back, -created)
        smallest[commit] = at if at <= days else NEVER
    return smallest
