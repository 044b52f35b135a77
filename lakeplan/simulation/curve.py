"""``lakeplan curve``: what goes as a function of retention days, in one pass over the ranges."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakeplan.core.retention import CommitGraph, to_us
from lakeplan.errors import LakeplanError
from lakeplan.ports.lakefs import MetadataReader
from lakeplan.ports.progress import Progress
from lakeplan.ports.range_cache import RangeCache
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.addresses import Addresses, known_as
from lakeplan.simulation.counted import classes_in, counted
from lakeplan.simulation.curve_document import ReadSide, curve_document
from lakeplan.simulation.curve_histograms import histograms
from lakeplan.simulation.curve_request import CurveRequest
from lakeplan.simulation.curve_scales import metarange_facts, scales_of
from lakeplan.simulation.digest_cache import trimmed
from lakeplan.simulation.document import Json
from lakeplan.simulation.inputs import NamespaceMetadata, listing_items, read_history
from lakeplan.simulation.ranges import collect_ranges
from lakeplan.simulation.reading import Source
from lakeplan.simulation.request import DAY_SECONDS
from lakeplan.simulation.session import SparkOptions, explained, open_session
from lakeplan.simulation.staged import StagedRun, find_run
from lakeplan.simulation.totals import ObjectClass
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
) -> CurveInput:
    """A namespace that holds a refs dump. Raises what ``read_history`` and ``find_run`` do."""
    now_us = to_us(request.as_of)
    source = Source(
        name=namespace.url,
        metadata=NamespaceMetadata(namespace),
        addresses=known_as(namespace.url, storage_namespace),
        namespace=namespace,
        young_from_us=now_us - min_age_seconds * 1_000_000,
    )
    return CurveInput(
        graph=read_history(namespace).graph,
        source=source,
        staged=find_run(namespace, as_of_us=now_us, max_age_seconds=max_uncommitted_age_seconds),
        listing=listing_items(namespace) if listing else None,
    )


def of_repository(
    key: str,
    graph: CommitGraph,
    metadata: MetadataReader,
    storage_namespace: str,
    blind_to: tuple[str, ...] = (),
) -> CurveInput:
    """A repository of a server, through its API: metadata alone, nothing listed."""
    return CurveInput(graph, Source(key, metadata, Addresses((storage_namespace,))), blind_to=blind_to)


def curve(
    request: CurveRequest,
    given: CurveInput,
    options: SparkOptions,
    progress: Progress,
    cache: RangeCache | None = None,
) -> Json:
    """The document ``schemas/curve.v1.json``.

    Raises UsageError for more points than one pass can ask, StorageError, ServerError and FormatError for
    what cannot be read, SimulationFailed when Spark stops. There is no partial answer.
    """
    scales = scales_of(request, given.graph)
    facts, coding = metarange_facts(given.graph, scales)
    name = given.source.name
    with progress.task("reading metaranges", len(facts)) as step:
        collected = collect_ranges(given.source.metadata, facts, name=name, step=step)
    classes: list[ObjectClass] = []
    items = [*(given.listing or ()), *given.staged.items(), *collected.items]
    if items:
        with (
            trimmed(cache),
            open_session(options, estimated_bytes=collected.size_bytes, light=True) as session,
            explained(),
            progress.task(f"reading {len(collected.items)} ranges", None),
        ):
            listed = given.listing is not None
            frame = counted(
                session,
                items,
                [(given.source, ())],
                entries=[collected.entries],
                listing=listed,
                cache=cache,
            )
            answer = classes_in(frame).get(0, [])
            if isinstance(answer, LakeplanError):
                raise answer
            classes = answer
    found = histograms(classes, collected.holder_sets, coding, listing=given.listing is not None)
    read = ReadSide(
        name=name,
        listing=given.listing is not None,
        staged_run=given.staged.run_id,
        metaranges=collected.metaranges,
        ranges=len(collected.items),
        entries=collected.entries,
        size_bytes=collected.size_bytes,
        blind_to=given.blind_to,
    )
    return curve_document(request, given.graph, scales, found, read)
