"""Retention curves: requests, scales, histograms and documents."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone, tzinfo
from functools import cached_property

from lakeplan import __version__
from lakeplan.errors import UsageError
from lakeplan.formats.namespace import Addresses, known_as
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.retention.graph import CommitGraph, oldest_first
from lakeplan.retention.rules import (
    ALWAYS,
    DAY_US,
    NEVER,
    DocumentedRule,
    ServerWalk,
    Varied,
    days_needed,
    to_us,
)
from lakeplan.simulation.cache import RangeCache
from lakeplan.simulation.documents import (
    DAY_SECONDS,
    METADATA_ONLY,
    NO_RUN,
    CurveAdditions,
    CurveDocument,
    CurveRow,
    HorizonRow,
    RangesRead,
    ServerDaysPoint,
)
from lakeplan.simulation.engine import Asking, CountsOnly, ask
from lakeplan.simulation.inputs import NamespaceMetadata, collect_ranges, iso, listing_items, read_history
from lakeplan.simulation.listings import Inventory, StagedRun, find_run
from lakeplan.simulation.observing import Source
from lakeplan.simulation.requests import Facts, Holders
from lakeplan.simulation.runners import Runners, WorkItem
from lakeplan.simulation.verdicts import ObjectClass, Sighting
from lakeplan.stores.open import NamespaceReader
from lakeplan.values.progress import Progress
from lakeplan.values.rules import MAX_DAYS, GcRules
from lakeplan.values.simulation import MAX_VERDICT_BITS, Amount, total_of
from lakeplan.values.units import count_of


@dataclass(frozen=True)
class CurveRequest:
    """A request for curves. ``as_of`` is aware. ``points``: days at which the server's walk is evaluated, or
    nothing for the usual ones. ``branch_ids``: branches that get curves, or None for all with rules.
    ``horizon_days``: None for no horizon. ``zone`` is the server's time zone."""

    rules: GcRules
    as_of: datetime
    zone: tzinfo = timezone.utc
    points: tuple[int, ...] = ()
    branch_ids: tuple[str, ...] | None = None
    horizon_days: int | None = None


USUAL_POINTS = (1, 3, 7, 14, 21, 30, 45, 60, 90, 120, 180, 270, 365, 730)
MAX_BRANCHES = 12
"""The most curves of branches that were not named, so that a person can read them."""
COMMITTED = 1
"""The bit of every commit."""


@dataclass(frozen=True)
class ServerPoint:
    """A number of days at which the server's walk is evaluated, for the curve with number ``curve``. ``bit``
    is set in masks of what it keeps."""

    curve: int
    days: int
    bit: int


@dataclass(frozen=True)
class Scales:
    """Scales of numbers per commit, and masks. ``numbers``: one array for each scale, with a number for each
    commit. There is a scale for each curve in ``varied``, then one for the horizon if requested. ``masks``:
    per commit, the bits of the points at which the server keeps it."""

    varied: tuple[Varied, ...]
    points: tuple[ServerPoint, ...]
    numbers: tuple[array[int], ...]
    masks: array[int]


def scales_of(request: CurveRequest, graph: CommitGraph) -> Scales:
    """Judges every commit. Raises UsageError for more points than one pass can evaluate."""
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
    return Scales(varied, points, tuple(numbers), masks)


def left_out(request: CurveRequest, graph: CommitGraph) -> tuple[list[str], list[str]]:
    """Branches without a curve: those that do not exist, and those beyond ``MAX_BRANCHES``."""
    here = {branch.id for branch in graph.branches}
    if request.branch_ids is not None:
        return [b for b in request.branch_ids if b not in here], []
    with_rules = list(request.rules.branches)
    existing = [b for b in with_rules if b in here]
    return [b for b in with_rules if b not in here], existing[MAX_BRANCHES:]


def _varied(request: CurveRequest, graph: CommitGraph) -> tuple[Varied, ...]:
    missing, beyond = left_out(request, graph)
    asked = request.rules.branches if request.branch_ids is None else dict.fromkeys(request.branch_ids)
    skipped = {*missing, *beyond}
    return (Varied(), *(Varied(b) for b in asked if b not in skipped))


def _points(request: CurveRequest, varied: Sequence[Varied]) -> tuple[ServerPoint, ...]:
    room = (MAX_VERDICT_BITS - 1) // len(varied)
    if room < 1 or len(request.points) + 1 > room:
        raise UsageError(
            f"the curves would have {len(varied) * (len(request.points) + 1)} points in total, but the"
            f" maximum is {MAX_VERDICT_BITS - 1}",
            hint="Use fewer --at options or fewer --branch options.",
        )
    points: list[ServerPoint] = []
    for curve, one in enumerate(varied):
        now = max(0, one.in_rules(request.rules))
        others = request.points or _around(now, room - 1)
        for days in sorted({now, *others}):
            points.append(ServerPoint(curve, days, COMMITTED << 1 + len(points)))
    return tuple(points)


def _around(now: int, room: int) -> tuple[int, ...]:
    """The usual points nearest to the current days, by ratio."""
    nearest = sorted(USUAL_POINTS, key=lambda days: max(days, now or 1) / max(1, min(days, now or 1)))
    return tuple(nearest[:room])


def _days_left(request: CurveRequest, graph: CommitGraph, horizon: int) -> array[int]:
    """For each commit, minus the number of the day in which it expires, assuming no new commits. Day n ends n
    times 24 hours after ``as_of``. Day 0 means already expired, ``horizon + 1`` later or never."""
    start = to_us(request.as_of)
    day_starts = [start + n * DAY_US for n in range(horizon + 1)]
    kept_until = DocumentedRule(graph, request.rules).kept_until_us(request.zone)
    # It expires just after its last instant, so in the first day that ends after that.
    return array("i", [-bisect_left(day_starts, until + 1) for until in kept_until])


@dataclass(frozen=True)
class Coding:
    """Numbers as bits, so that ``collect_ranges`` can join those of metaranges by OR. Rank r has the bits r
    and above, so the least number of any holders is the lowest bit of the OR."""

    values: tuple[tuple[int, ...], ...]
    """The distinct numbers of each scale, ascending."""

    def encode(self, numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(codes[n] for codes, n in zip(self._codes, numbers, strict=True))

    @cached_property
    def _codes(self) -> list[dict[int, int]]:
        return [{n: (1 << len(of)) - (1 << rank) for rank, n in enumerate(of)} for of in self.values]

    def decode(self, holders: Sequence[int]) -> tuple[int, ...]:
        """The lowest number of each scale."""
        return tuple(
            values[(bits & -bits).bit_length() - 1] for values, bits in zip(self.values, holders, strict=True)
        )


def metarange_facts(graph: CommitGraph, scales: Scales) -> tuple[dict[str, Facts], Coding]:
    """Return the facts that ranges inherit from each metarange, for all commits including dangling ones, and
    the coding."""
    least: dict[str, list[int]] = {}
    masks: dict[str, int] = {}
    for commit in oldest_first(graph):
        meta_range_id = graph.meta_range_ids[commit]
        if not meta_range_id:
            continue
        numbers = [of[commit] for of in scales.numbers]
        known = least.get(meta_range_id)
        least[meta_range_id] = (
            numbers if known is None else [min(a, b) for a, b in zip(known, numbers, strict=True)]
        )
        masks[meta_range_id] = masks.get(meta_range_id, 0) | scales.masks[commit]
    coding = Coding(tuple(tuple(sorted({n[k] for n in least.values()})) for k in range(len(scales.numbers))))
    facts = {id: Facts(masks[id], holders=coding.encode(numbers)) for id, numbers in least.items()}
    return facts, coding


@dataclass(frozen=True)
class Histograms:
    """Histograms of objects. ``scales``: for each scale, objects by the number that they need. ``masks``:
    objects by the server's bits. All are candidates for deletion: stored where collectors look, old enough,
    and not uncommitted. The scale of a horizon also has those that are too young now."""

    scales: list[dict[int, Amount]]
    masks: dict[int, Amount]
    never_committed: Amount


def histograms(
    classes: Iterable[ObjectClass],
    holder_sets: Sequence[Holders],
    coding: Coding,
    *,
    listing: bool,
    old_on_day: int | None = None,
) -> Histograms:
    """The histograms of the classes, which refer to ``holder_sets`` by number. An object needs the least
    number of all its holders, whatever the path or doubtful URL by which they hold it. ``old_on_day``: the
    day of the horizon, which has the last scale, that ends when objects written now are old enough."""
    scales: list[dict[int, Amount]] = [defaultdict(Amount) for _ in coding.values]
    masks: dict[int, Amount] = defaultdict(Amount)
    never_committed = Amount()
    needs = [coding.decode(holders) for holders in holder_sets]
    for each in classes:
        if each.flags & Sighting.UNCOMMITTED:
            continue
        if not each.is_candidate(listing):
            if old_on_day is not None and listing and each.counts(listing) and each.is_committed:
                expires = min(needs[number][-1] for number in each.holders)
                scales[-1][min(expires, -old_on_day)] += each.amount
            continue
        if not each.is_committed:
            never_committed += each.amount
            continue
        masks[each.any_mask] += each.amount
        for scale, histogram in enumerate(scales):
            histogram[min(needs[number][scale] for number in each.holders)] += each.amount
    return Histograms(scales, masks, never_committed)


@dataclass(frozen=True)
class CurveInput:
    """One repository. ``listing``: what workers list, or None for metadata alone, whose figures are upper
    bounds. ``blind_to``: what could not be read of the history, in words. ``outdated``: warnings
    about data that was written too early."""

    graph: CommitGraph
    source: Source
    staged: StagedRun = field(default_factory=StagedRun)
    listing: list[WorkItem] | None = None
    blind_to: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()


def curve_document(
    request: CurveRequest, given: CurveInput, scales: Scales, histogram: Histograms, side: RangesRead
) -> CurveDocument:
    """The document of a curve. The last scale is that of the horizon, if one is requested."""
    curves = [_curve(request, scales, histogram, number) for number in range(len(scales.varied))]
    inventory, graph = given.source.inventory, given.graph
    stored: CurveAdditions = {"inventory": inventory.document()} if inventory is not None else {}
    return {
        "schema": "curve.v1",
        "versions": {"lakeplan": __version__},
        "repository": given.source.name,
        "as_of": iso(to_us(request.as_of)),
        "time_zone": str(request.zone),
        "listing": given.listing is not None,
        **stored,
        "at_most": given.listing is None,
        "runner": side.runner.to_row(),
        "uncommitted_run": given.staged.run_id,
        "rules": request.rules.to_body(),
        "etag": request.rules.etag,
        "refs": {
            "commits": len(graph),
            "dangling_commits": len(graph.dangling),
            "branches": len(graph.branches),
        },
        "read": side.to_row(),
        "committed": total_of(histogram.scales[0].values()).to_row(),
        "never_committed": histogram.never_committed.to_row(),
        "curves": curves,
        "horizon": _horizon(request, histogram.scales[-1]),
        "warnings": _warnings(request, given, curves),
    }


def expired_at(needed: Mapping[int, Amount], days: int) -> Amount:
    """Return the objects that expire at this many days: all that need more. Stored rules can have any number
    of days. A number out of range counts as the nearest in range, because ``ALWAYS`` and ``NEVER`` are
    outside it."""
    days = min(max(days, 0), MAX_DAYS)
    return total_of(each for needs, each in needed.items() if needs > days)


def _curve(request: CurveRequest, scales: Scales, histogram: Histograms, number: int) -> CurveRow:
    varied, needed = scales.varied[number], histogram.scales[number]
    steps = _steps(needed)
    days_now = varied.in_rules(request.rules)
    server: list[ServerDaysPoint] = []
    for point in scales.points:
        if point.curve != number:
            continue
        goes = total_of(each for mask, each in histogram.masks.items() if not mask & point.bit)
        documented = expired_at(needed, point.days)
        # For days out of range, the documented figure is that of the nearest in range and can be greater.
        more = Amount(
            max(0, goes.objects - documented.objects), max(0, goes.size_bytes - documented.size_bytes)
        )
        server.append({"days": point.days, **goes.to_row(), "at_risk": more.to_row()})
    return {
        "branch_id": varied.branch_id,
        "days_now": days_now,
        "now": expired_at(needed, days_now).to_row(),
        "points": [{"days": days, **goes.to_row()} for days, goes in steps],
        "kept_at_any_days": needed.get(ALWAYS, Amount()).to_row(),
        "kept_at_no_days": needed.get(NEVER, Amount()).to_row(),
        "server": server,
    }


def _steps(needed: Mapping[int, Amount]) -> list[tuple[int, Amount]]:
    """The days at which less expires than below, with what expires there; begins with 0 days."""
    left = total_of(each for needs, each in needed.items() if needs > 0)
    steps = [(0, left)]
    for days in sorted(n for n in needed if 0 < n < NEVER):
        left -= needed[days]
        steps.append((days, left))
    return steps


def _horizon(request: CurveRequest, left: Mapping[int, Amount]) -> HorizonRow | None:
    days, start = request.horizon_days, to_us(request.as_of)
    if days is None:
        return None
    by_day = {-number: each for number, each in left.items()}
    return {
        "days": days,
        "until": iso(start + days * DAY_US),
        "gone_now": by_day.get(0, Amount()).to_row(),
        "later_or_never": by_day.get(days + 1, Amount()).to_row(),
        "total": total_of(each for day, each in by_day.items() if 0 < day <= days).to_row(),
        "days_with_losses": [
            {"day": day, "until": iso(start + day * DAY_US), **by_day[day].to_row()}
            for day in sorted(by_day)
            if 0 < day <= days
        ],
    }


def _warnings(request: CurveRequest, given: CurveInput, curves: list[CurveRow]) -> list[str]:
    missing, beyond = left_out(request, given.graph)
    notes = [f"branch {branch} does not exist" for branch in missing]
    if beyond:
        more = count_of(len(beyond), "more branch has", "more branches have")
        notes.append(f"{more} rules but no curve in this report; use --branch to select branches")
    notes += [f"not included: {what}" for what in given.blind_to]
    if given.staged.run_id is None:
        notes.append(
            NO_RUN
            if given.listing is not None
            else "upper bounds: uncommitted changes were not read and can only reduce these numbers"
        )
    notes += [METADATA_ONLY] if given.listing is None else given.outdated
    if given.source.inventory is not None:
        notes.append(given.source.inventory.warning())
    if any(point["at_risk"]["objects"] for one in curves for point in one["server"]):
        notes.append(
            "at some retention periods, the server deletes objects that the documented rule keeps,"
            " because the server's walk over the commits can stop early. Between the computed points,"
            " the server's curve may"
            " differ from the one shown"
        )
    return notes


def of_namespace(
    request: CurveRequest,
    namespace: NamespaceReader,
    *,
    listing: bool = True,
    min_age_seconds: int = DAY_SECONDS,
    max_uncommitted_age_seconds: int = DAY_SECONDS,
    storage_namespace: str | None = None,
    inventory: Inventory | None = None,
) -> CurveInput:
    """The input for a namespace with a refs dump. Raises what ``read_history`` and ``find_run`` raise."""
    now_us = to_us(request.as_of)
    source = Source(
        name=namespace.url,
        metadata=NamespaceMetadata(namespace),
        addresses=known_as(namespace.url, storage_namespace),
        namespace=namespace,
        young_from_us=now_us - min_age_seconds * 1_000_000,
        inventory=inventory,
    )
    stored = listing_items(namespace) if listing and inventory is None else None
    history = read_history(namespace)
    staged = find_run(namespace, as_of_us=now_us, max_age_seconds=max_uncommitted_age_seconds)
    return CurveInput(
        graph=history.graph,
        source=source,
        staged=staged,
        listing=stored if inventory is None else inventory.items(),
        outdated=(*history.warnings(source.young_from_us), *staged.warnings(source.young_from_us)),
    )


def of_repository(
    key: str,
    graph: CommitGraph,
    metadata: MetadataReader,
    storage_namespace: str,
    blind_to: tuple[str, ...] = (),
    *,
    inventory: Inventory | None = None,
    young_from_us: int = 0,
) -> CurveInput:
    """The input for a repository on a server. Nothing is listed. Stored objects come from any given
    inventory."""
    source = Source(
        key, metadata, Addresses((storage_namespace,)), young_from_us=young_from_us, inventory=inventory
    )
    listing = None if inventory is None else inventory.items()
    return CurveInput(graph, source, listing=listing, blind_to=blind_to)


def curve(
    request: CurveRequest,
    given: CurveInput,
    runners: Runners,
    progress: Progress,
    cache: RangeCache | None = None,
) -> CurveDocument:
    """The document of a curve. Raises UsageError for more points than one pass can evaluate, StorageError,
    ServerError and FormatError for what cannot be read, and SimulationFailed if the runner stops. There is no
    partial answer."""
    scales = scales_of(request, given.graph)
    facts, coding = metarange_facts(given.graph, scales)
    source = replace(given.source, cache=cache, verify_ids=False)
    with progress.task("reading metaranges", len(facts)) as step:
        collected = collect_ranges(source.metadata, facts, name=source.name, step=step)
    items = [*(given.listing or ()), *given.staged.items(), *collected.items]
    with (
        runners.open(collected.entries) as (runner, choice),
        progress.task(f"reading {len(collected.items)} ranges", None),
    ):
        (answer,) = ask(runner, [Asking(source, CountsOnly(), items, collected.entries)])
    old_on_day = None
    if request.horizon_days is not None:
        min_age_us = to_us(request.as_of) - source.young_from_us
        old_on_day = min(-(-min_age_us // DAY_US), request.horizon_days + 1)
    histogram = histograms(
        answer.checked().classes,
        collected.holder_sets,
        coding,
        listing=given.listing is not None,
        old_on_day=old_on_day,
    )
    return curve_document(request, given, scales, histogram, RangesRead(collected, choice))
