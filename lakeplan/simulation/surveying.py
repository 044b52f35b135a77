"""Every object of a repository by where it is seen, for figures under any rules."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping

from lakeplan.formats.ranges import read_range
from lakeplan.simulation.engine import Answer, Asking, Nothing, ask
from lakeplan.simulation.foreign import OpenRunner
from lakeplan.simulation.inputs import Collected, collect_ranges, listing_items
from lakeplan.simulation.observing import Source, known_as
from lakeplan.simulation.requests import SampledEntry, Surveyed, SurveyRequest
from lakeplan.simulation.work import Kind, WorkItem


class StepSurveyor:
    """``lakeplan.simulation.requests.Surveyor`` on either runner."""

    def __init__(self, open_runner: OpenRunner) -> None:
        self._open = open_runner

    def survey(self, request: SurveyRequest) -> Surveyed:
        """See the port."""
        collected = collect_ranges(request.metadata, request.metaranges, name=request.name)
        read_url = request.storage_namespace if request.namespace is None else request.namespace.url
        source = Source(
            request.name,
            request.metadata,
            known_as(read_url, request.storage_namespace),
            request.namespace,
            request.young_from_us,
        )
        listing = None if request.namespace is None else listing_items(request.namespace)
        staged = [WorkItem(Kind.UNCOMMITTED, 0, key) for key in request.staged]
        items = [*(listing or ()), *staged, *collected.items]
        with self._open(collected.entries) as (runner, _):
            asking = Asking(source, Nothing(), items, collected.entries)
            found = next(answer for _, answer in ask(runner, [asking]) if isinstance(answer, Answer))
        if found.error is not None:
            raise found.error
        sample = tuple(_samples(request, collected, source)) if request.sample else ()
        return Surveyed(found.classes, listing is not None, sample, collected.holder_sets)


def _samples(request: SurveyRequest, collected: Collected, source: Source) -> Iterator[SampledEntry]:
    draw, seen = random.Random(request.seed), set[str]()
    wanted = {item.name: item for item in collected.items if item.mask & request.sampled_mask}
    others = {
        item.name: item
        for item in collected.items
        if item.mask & request.also_sampled and item.name not in wanted
    }
    for items in (wanted, others):
        yield from _sample(request, items, source, draw, seen)


def _sample(
    request: SurveyRequest,
    items: Mapping[str, WorkItem],
    source: Source,
    draw: random.Random,
    seen: set[str],
) -> Iterator[SampledEntry]:
    """Ranges are drawn by their bytes, then entries of each: about as if entries were drawn from all.
    Objects of ``seen`` are left out, and those that are drawn are added to it."""
    if not items:
        return
    weights = [max(item.weight, 1) for item in items.values()]
    drawn = Counter(draw.choices([*items], weights, k=request.sample))
    for id, number in drawn.items():
        data = request.metadata.read_metadata("range", id)
        entries = list(read_range(data, name=f"{request.name}: range {id}", verify_id=id))
        for entry in draw.sample(entries, min(number, len(entries))):
            key, _ = source.addresses.meaning(entry.address, entry.address_type)
            if key is not None and key not in seen:
                seen.add(key)
                item = items[id]
                yield SampledEntry(key, entry.path, entry.size, entry.e_tag, item.mask, item.last)
