"""``lakeplan curve``: what goes as a function of retention days, in one pass over the ranges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakeplan.core.retention import CommitGraph, to_us
from lakeplan.ports.lakefs import MetadataReader
from lakeplan.ports.progress import Progress
from lakeplan.ports.range_cache import RangeCache
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.addresses import Addresses, known_as
from lakeplan.simulation.curve_document import ReadSide, curve_document
from lakeplan.simulation.curve_histograms import histograms
from lakeplan.simulation.curve_request import CurveRequest
from lakeplan.simulation.curve_scales import metarange_facts, scales_of
from lakeplan.simulation.document import Json
from lakeplan.simulation.engine import Answer, Asking, ask
from lakeplan.simulation.inputs import NamespaceMetadata, listing_items, read_history
from lakeplan.simulation.inventory import Inventory
from lakeplan.simulation.observing import Source
from lakeplan.simulation.questions import Nothing
from lakeplan.simulation.ranges import collect_ranges
from lakeplan.simulation.request import DAY_SECONDS
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.staged import StagedRun, find_run
from lakeplan.simulation.work import WorkItem


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
