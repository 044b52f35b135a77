"""A curve and its document (``schemas/curve.v1.json``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeplan import __version__
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.retention.curve import ALWAYS, NEVER
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import DAY_US, to_us
from lakeplan.simulation.cache import RangeCache
from lakeplan.simulation.curve_scales import (
    CurveRequest,
    Scales,
    histograms,
    left_out,
    metarange_facts,
    scales_of,
)
from lakeplan.simulation.document import DAY_SECONDS, METADATA_ONLY, NO_RUN, Json, amount
from lakeplan.simulation.engine import Answer, Asking, ask
from lakeplan.simulation.inputs import NamespaceMetadata, iso, listing_items, read_history
from lakeplan.simulation.listings import Inventory, StagedRun, find_run
from lakeplan.simulation.observing import Addresses, Source, known_as
from lakeplan.simulation.questions import Nothing
from lakeplan.simulation.ranges import collect_ranges
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.work import WorkItem
from lakeplan.stores.protocols import NamespaceReader
from lakeplan.values.progress import Progress
from lakeplan.values.simulation import Amount, Choice

if TYPE_CHECKING:
    from lakeplan.simulation.curve_scales import Histograms


SCHEMA = "curve.v1"


@dataclass(frozen=True)
class ReadSide:
    """What was read, and what was not. ``staged_run`` None: no run of uncommitted addresses was at hand."""

    name: str
    listing: bool
    staged_run: str | None
    metaranges: int
    ranges: int
    entries: int
    size_bytes: int
    runner: Choice
    blind_to: tuple[str, ...] = ()
    inventory: Inventory | None = None


def curve_document(
    request: CurveRequest, graph: CommitGraph, scales: Scales, found: Histograms, read: ReadSide
) -> Json:
    """The whole document. Times are ISO 8601 UTC, sizes bytes. The last of the scales is the horizon's when
    one is asked for."""
    committed = _sum(found.scales[0].values())
    curves = [_curve(request, scales, found, number) for number in range(len(scales.varied))]
    return {
        "schema": SCHEMA,
        "versions": {"lakeplan": __version__},
        "repository": read.name,
        "as_of": iso(to_us(request.as_of)),
        "time_zone": str(request.zone),
        "listing": read.listing,
        **({"inventory": read.inventory.document()} if read.inventory is not None else {}),
        "at_most": not read.listing,
        "runner": read.runner.to_row(),
        "uncommitted_run": read.staged_run,
        "rules": request.rules.to_body(),
        "etag": request.rules.etag,
        "refs": {
            "commits": len(graph),
            "dangling_commits": len(graph.dangling),
            "branches": len(graph.branches),
        },
        "read": {
            "metaranges": read.metaranges,
            "ranges": read.ranges,
            "entries": read.entries,
            "size_bytes": read.size_bytes,
        },
        "committed": amount(committed),
        "never_committed": amount(found.never_committed),
        "curves": curves,
        "horizon": _horizon(request, found.scales[-1], scales.horizon_days),
        "warnings": _warnings(request, graph, read, curves),
    }


def _sum(amounts: Iterable[Amount]) -> Amount:
    total = Amount()
    for each in amounts:
        total += each
    return total


def goes_at(needed: Mapping[int, Amount], days: int) -> Amount:
    """What goes at that many days: everything that needs more."""
    return _sum(each for needs, each in needed.items() if needs > days)


def _curve(request: CurveRequest, scales: Scales, found: Histograms, number: int) -> Json:
    varied, needed = scales.varied[number], found.scales[number]
    steps = _steps(needed)
    days_now = varied.in_rules(request.rules)
    server = []
    for point in scales.points:
        if point.curve != number:
            continue
        goes = _sum(each for mask, each in found.masks.items() if not mask & point.bit)
        documented = goes_at(needed, point.days)
        server.append(
            {
                "days": point.days,
                **amount(goes),
                "at_risk": amount(
                    Amount(goes.objects - documented.objects, goes.size_bytes - documented.size_bytes)
                ),
            }
        )
    return {
        "branch_id": varied.branch_id,
        "days_now": days_now,
        "now": amount(goes_at(needed, days_now)),
        "points": [{"days": days, **amount(goes)} for days, goes in steps],
        "kept_at_any_days": amount(needed.get(ALWAYS, Amount())),
        "kept_at_no_days": amount(needed.get(NEVER, Amount())),
        "server": server,
    }


def _steps(needed: Mapping[int, Amount]) -> list[tuple[int, Amount]]:
    """(days, what goes from these days on until the next step), from 0 days."""
    left = _sum(needed.values()) + _negative(_sum(each for n, each in needed.items() if n <= 0))
    steps = [(0, left)]
    for days in sorted(n for n in needed if 0 < n < NEVER):
        left = left + _negative(needed[days])
        steps.append((days, left))
    return steps


def _negative(value: Amount) -> Amount:
    return Amount(-value.objects, -value.size_bytes)


def _horizon(request: CurveRequest, left: Mapping[int, Amount], days: int | None) -> Json | None:
    if days is None:
        return None
    start = to_us(request.as_of)
    by_day = {-number: each for number, each in left.items()}
    return {
        "days": days,
        "until": iso(start + days * DAY_US),
        "gone_now": amount(by_day.get(0, Amount())),
        "later_or_never": amount(by_day.get(days + 1, Amount())),
        "total": amount(_sum(each for day, each in by_day.items() if 0 < day <= days)),
        "days_with_losses": [
            {"day": day, "until": iso(start + day * DAY_US), **amount(by_day[day])}
            for day in sorted(by_day)
            if 0 < day <= days
        ],
    }


def _warnings(request: CurveRequest, graph: CommitGraph, read: ReadSide, curves: list[Json]) -> list[str]:
    missing, beyond = left_out(request, graph)
    found = [f"no such branch: {branch}" for branch in missing]
    if beyond:
        found.append(f"{len(beyond)} more branches have rules and no curve here: name them with --branch")
    found += [f"not seen: {what}" for what in read.blind_to]
    if read.staged_run is None:
        found.append(NO_RUN if read.listing else "staged data was not read: it only keeps more")
    if not read.listing:
        found.append(METADATA_ONLY)
    if read.inventory is not None:
        found.append(read.inventory.warning())
    if any(point["at_risk"]["objects"] for one in curves for point in _server(one)):
        found.append(
            "at some days the server takes objects that its documented rule keeps: its walk can stop early, "
            "and its curve is not monotone, so between the points asked it may differ too"
        )
    return found


def _server(curve: Json) -> list[dict[str, dict[str, int]]]:
    points = curve["server"]
    assert isinstance(points, list)
    return points


@dataclass(frozen=True)
class CurveInput:
    """One repository. ``listing``: what workers list; None for metadata alone, where figures are at most.
    ``blind_to``: what could not be seen of the history, in words."""

    graph: CommitGraph
    source: Source
    staged: StagedRun = field(default_factory=StagedRun)
    listing: list[WorkItem] | None = None
    blind_to: tuple[str, ...] = ()


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
    """A namespace that holds a refs dump. Raises what ``read_history`` and ``find_run`` do."""
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
    return CurveInput(
        graph=read_history(namespace).graph,
        source=source,
        staged=find_run(namespace, as_of_us=now_us, max_age_seconds=max_uncommitted_age_seconds),
        listing=stored if inventory is None else inventory.items(),
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
    """A repository of a server, through its API: metadata alone, nothing listed; or what an inventory has."""
    source = Source(
        key,
        metadata,
        Addresses((storage_namespace,)),
        young_from_us=young_from_us,
        inventory=inventory,
    )
    listing = None if inventory is None else inventory.items()
    return CurveInput(graph, source, listing=listing, blind_to=blind_to)


def curve(
    request: CurveRequest,
    given: CurveInput,
    runners: Runners,
    progress: Progress,
    cache: RangeCache | None = None,
) -> Json:
    """The document ``schemas/curve.v1.json``.

    Raises UsageError for more points than one pass can ask, StorageError, ServerError and FormatError for
    what cannot be read, SimulationFailed when the runner stops. There is no partial answer.
    """
    scales = scales_of(request, given.graph)
    facts, coding = metarange_facts(given.graph, scales)
    name = given.source.name
    with progress.task("reading metaranges", len(facts)) as step:
        collected = collect_ranges(given.source.metadata, facts, name=name, step=step)
    source = replace(given.source, cache=cache, verify_ids=False)
    items = [*(given.listing or ()), *given.staged.items(), *collected.items]
    with (
        runners.open(collected.entries, collected.size_bytes) as (runner, choice),
        progress.task(f"reading {len(collected.items)} ranges", None),
    ):
        answers = [a for _, a in ask(runner, [Asking(source, Nothing(), items, collected.entries)])]
    (answer,) = answers
    assert isinstance(answer, Answer), "only counts were asked for"
    if answer.error is not None:
        raise answer.error
    classes = answer.classes
    found = histograms(classes, collected.holder_sets, coding, listing=given.listing is not None)
    read = ReadSide(
        name=name,
        listing=given.listing is not None,
        staged_run=given.staged.run_id,
        metaranges=collected.metaranges,
        ranges=len(collected.items),
        entries=collected.entries,
        size_bytes=collected.size_bytes,
        runner=choice,
        blind_to=given.blind_to,
        inventory=given.source.inventory,
    )
    return curve_document(request, given.graph, scales, found, read)
