"""What a curve is asked, its scales and histograms."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo

from lakeplan.errors import UsageError
from lakeplan.retention.curve import Varied, days_needed
from lakeplan.retention.graph import CommitGraph, oldest_first
from lakeplan.retention.rules import DAY_US, DocumentedRule, ServerWalk, to_us
from lakeplan.simulation.ranges import Facts, Holders
from lakeplan.simulation.totals import ObjectClass, Seen
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import MAX_VERDICT_BITS, Amount


@dataclass(frozen=True)
class CurveRequest:
    """``as_of`` is aware. ``points``: days at which the server is asked; empty for usual ones.
    ``branch_ids``: whose rules get curves; None for all of the rules. ``horizon_days``: None for no horizon.
    ``zone`` is the server's time zone."""

    rules: GcRules
    as_of: datetime
    zone: tzinfo = timezone.utc
    points: tuple[int, ...] = ()
    branch_ids: tuple[str, ...] | None = None
    horizon_days: int | None = None


USUAL_POINTS = (1, 3, 7, 14, 21, 30, 45, 60, 90, 120, 180, 270, 365, 730)
MAX_BRANCHES = 12
"""Curves of branches that are drawn unless named: what a person can look at."""
COMMITTED = 1
"""The bit of every commit: what a commit holds is counted, and never listed."""


@dataclass(frozen=True)
class ServerPoint:
    """The server asked at ``days`` for the curve number ``curve``; ``bit`` stands for "it keeps it"."""

    curve: int
    days: int
    bit: int


@dataclass(frozen=True)
class Scales:
    """Per scale one number a commit: of each curve in ``varied``, then of the horizon if there is one.
    ``masks``: per commit, the bits of the points at which the server keeps it."""

    varied: tuple[Varied, ...]
    points: tuple[ServerPoint, ...]
    numbers: tuple[array[int], ...]
    masks: array[int]
    horizon_days: int | None


def scales_of(request: CurveRequest, graph: CommitGraph) -> Scales:
    """Judges every commit. Raises UsageError for more points than one pass can ask."""
    varied = _varied(request, graph)
    points = _points(request, varied)
    numbers = [days_needed(graph, request.rules, one, request.as_of, request.zone) for one in varied]
    if request.horizon_days is not None:
        numbers.append(_days_left(request, graph, request.horizon_days))
    masks = array("q", [COMMITTED]) * len(graph)
    for point in points:
        rules = varied[point.curve].at(request.rules, point.days)
        active = ServerWalk(graph, rules).active(request.as_of, request.zone)
        for commit, kept in enumerate(active):
            if kept:
                masks[commit] |= point.bit
    return Scales(varied, points, tuple(numbers), masks, request.horizon_days)


def left_out(request: CurveRequest, graph: CommitGraph) -> tuple[list[str], list[str]]:
    """Branches with rules that get no curve: those that do not exist, and those past ``MAX_BRANCHES``."""
    here = {branch.id for branch in graph.branches}
    if request.branch_ids is not None:
        return [b for b in request.branch_ids if b not in here], []
    with_rules = list(request.rules.branches)
    found = [b for b in with_rules if b in here]
    return [b for b in with_rules if b not in here], found[MAX_BRANCHES:]


def _varied(request: CurveRequest, graph: CommitGraph) -> tuple[Varied, ...]:
    missing, beyond = left_out(request, graph)
    asked = request.rules.branches if request.branch_ids is None else dict.fromkeys(request.branch_ids)
    skipped = {*missing, *beyond}
    return (Varied(), *(Varied(b) for b in asked if b not in skipped))


def _points(request: CurveRequest, varied: Sequence[Varied]) -> tuple[ServerPoint, ...]:
    room = (MAX_VERDICT_BITS - 1) // len(varied)
    if room < 1 or len(request.points) + 1 > room:
        raise UsageError(
            f"{len(varied)} curves with {len(request.points) + 1} points each are more than one pass can ask "
            f"of the server's rule ({MAX_VERDICT_BITS - 1} in all)",
            hint="give fewer --at, or fewer --branch",
        )
    points: list[ServerPoint] = []
    for curve, one in enumerate(varied):
        now = max(0, one.in_rules(request.rules))
        others = request.points or _around(now, room - 1)
        for days in sorted({now, *others}):
            points.append(ServerPoint(curve, days, COMMITTED << 1 + len(points)))
    return tuple(points)


def _around(now: int, room: int) -> tuple[int, ...]:
    """The usual points nearest to the days that stand now, by ratio."""
    nearest = sorted(USUAL_POINTS, key=lambda days: max(days, now or 1) / max(1, min(days, now or 1)))
    return tuple(nearest[:room])


def _days_left(request: CurveRequest, graph: CommitGraph, horizon: int) -> array[int]:
    """Per commit, minus the number of the day in which the rules let it go if nobody writes: day n ends n
    times 24 hours after ``as_of``; 0 is gone already, ``horizon + 1`` later or never."""
    start = to_us(request.as_of)
    ends = [start + n * DAY_US for n in range(horizon + 1)]
    kept_until = DocumentedRule(graph, request.rules).kept_until_us(request.zone)
    # kept until an instant: gone at the next, so in the first day that ends after it
    return array("i", [-bisect_left(ends, until + 1) for until in kept_until])


@dataclass(frozen=True)
class Coding:
    """Numbers as bits, so that metaranges fold into ranges by OR (``collect_ranges``): rank r has the bits r
    and above, and the least number of any holders is the lowest bit of the OR."""

    values: tuple[tuple[int, ...], ...]
    """Per scale, its distinct numbers, ascending."""

    def decode(self, holders: Sequence[int]) -> tuple[int, ...]:
        """The least number of each scale."""
        return tuple(
            values[(bits & -bits).bit_length() - 1] for values, bits in zip(self.values, holders, strict=True)
        )


def metarange_facts(graph: CommitGraph, scales: Scales) -> tuple[dict[str, Facts], Coding]:
    """What every metarange passes on to its ranges. Metaranges of all commits are in, dangling ones too."""
    least: dict[str, list[int]] = {}
    facts: dict[str, Facts] = {}
    for commit in oldest_first(graph):
        meta_range_id = graph.meta_range_ids[commit]
        if not meta_range_id:
            continue
        numbers = [of[commit] for of in scales.numbers]
        known = least.get(meta_range_id)
        least[meta_range_id] = (
            numbers if known is None else [min(a, b) for a, b in zip(known, numbers, strict=True)]
        )
        fact = facts.setdefault(meta_range_id, Facts())
        fact.mask |= scales.masks[commit]
    coding = Coding(tuple(tuple(sorted({n[k] for n in least.values()})) for k in range(len(scales.numbers))))
    codes = [_codes(values) for values in coding.values]
    for meta_range_id, numbers in least.items():
        facts[meta_range_id].holders = tuple(code[n] for code, n in zip(codes, numbers, strict=True))
    return facts, coding


def _codes(values: Sequence[int]) -> dict[int, int]:
    every = (1 << len(values)) - 1
    return {value: every >> rank << rank for rank, value in enumerate(values)}


@dataclass
class Histograms:
    """``scales``: per scale, objects by the number they need. ``masks``: objects by the server's bits.
    All are objects that a collector may take at all: stored where it looks, old enough, not staged."""

    scales: list[dict[int, Amount]]
    masks: dict[int, Amount] = field(default_factory=dict)
    never_committed: Amount = field(default_factory=Amount)


def histograms(
    classes: Iterable[ObjectClass], holder_sets: Sequence[Holders], coding: Coding, *, listing: bool
) -> Histograms:
    """``holder_sets`` are those that the classes number. An object needs the least of what all its holders
    need, under whatever path or doubtful URL they hold it."""
    found = Histograms([{} for _ in coding.values])
    needs = [coding.decode(holders) for holders in holder_sets]
    for each in classes:
        if not each.is_candidate(listing) or each.seen & Seen.UNCOMMITTED:
            continue
        if not each.is_committed:
            found.never_committed += each.amount
            continue
        _add(found.masks, each.any_mask, each.amount)
        for scale, histogram in enumerate(found.scales):
            _add(histogram, min(needs[number][scale] for number in each.holders), each.amount)
    return found


def _add(histogram: dict[int, Amount], key: int, amount: Amount) -> None:
    histogram[key] = histogram.get(key, Amount()) + amount
