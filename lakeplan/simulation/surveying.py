"""Surveys the places of every object of a repository, for figures under any rules."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.formats.ranges import read_range
from lakeplan.simulation.engine import (
    PREFIXES,
    Asking,
    CountsOnly,
    ask,
    prefix_rows,
)
from lakeplan.simulation.exchange import PacketKind, to_bytes
from lakeplan.simulation.foreign import OpenRunner
from lakeplan.simulation.inputs import Collected, collect_ranges, listing_items
from lakeplan.simulation.listings import StagedRun
from lakeplan.simulation.observing import Source, known_as
from lakeplan.simulation.requests import AGES, SampledEntry, Surveyed, SurveyRequest
from lakeplan.simulation.sets import Class
from lakeplan.simulation.steps import Question
from lakeplan.simulation.verdicts import ObjectClass, Sighting
from lakeplan.simulation.work import WorkItem
from lakeplan.values.simulation import Amount

_AGE = "age"
DAY_US = 86_400 * 10**6


@dataclass(frozen=True)
class Places:
    """Requests amounts of all objects by part and prefix, and by age if storage was listed."""

    part_of: Callable[[ObjectClass], str]
    listing: bool
    as_of_us: int

    def wants(self, each: Class) -> bool:
        return True

    def takes(self, each: Class) -> bool:
        return bool(each.flags & (Sighting.LISTED if self.listing else Sighting.ENTRY))

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, PacketKind, bytes]]:
        masks = objects["mask"].to_numpy() | objects["alias_mask"].to_numpy()
        pairs = list(zip(objects["seen"].to_pylist(), masks.tolist(), strict=True))
        of_pair = {
            (flags, mask): self.part_of(ObjectClass(Sighting(flags), mask, 0, (), Amount()))
            for flags, mask in set(pairs)
        }
        parts = pa.array([of_pair[pair] for pair in pairs])
        for part in sorted(set(of_pair.values())):
            yield 0, PacketKind.PREFIXES, to_bytes(prefix_rows(part, objects.filter(pc.equal(parts, part))))
        if self.listing:
            days = (self.as_of_us - objects["modified_us"].to_numpy()) // DAY_US
            # The store's clock may be ahead.
            groups = np.maximum(np.searchsorted(AGES, days, side="right") - 1, 0)
            sizes = objects["size"].to_numpy()
            rows = [
                {
                    "name": _AGE,
                    "prefix": str(AGES[at]),
                    "objects": int((groups == at).sum()),
                    "size_bytes": int(sizes[groups == at].sum()),
                }
                for at in np.unique(groups).tolist()
            ]
            yield 0, PacketKind.PREFIXES, to_bytes(pa.Table.from_pylist(rows, schema=PREFIXES))


class StepSurveyor:
    """Implements ``Surveyor`` on either runner."""

    def __init__(self, open_runner: OpenRunner) -> None:
        self._open = open_runner

    def survey(self, request: SurveyRequest) -> Surveyed:
        """Implements the port."""
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
        items = [*(listing or ()), *StagedRun(files=request.staged).items(), *collected.items]
        question: Question = CountsOnly()
        if request.part_of is not None:
            question = Places(request.part_of, listing is not None, request.as_of_us)
        with self._open(collected.entries) as (runner, _):
            (answer,) = ask(runner, [Asking(source, question, items, collected.entries)])
        amounts = answer.checked().prefixes
        sample = tuple(_samples(request, collected, source)) if request.sample else ()
        ages = {int(days): amount for days, amount in amounts.pop(_AGE, {}).items()}
        return Surveyed(answer.classes, listing is not None, sample, collected.holder_sets, amounts, ages)


def _samples(request: SurveyRequest, collected: Collected, source: Source) -> Iterator[SampledEntry]:
    draw, keys = random.Random(request.seed), set[str]()
    wanted = {item.name: item for item in collected.items if item.mask & request.sampled_mask}
    others = {
        item.name: item
        for item in collected.items
        if item.mask & request.also_sampled and item.name not in wanted
    }
    for items in (wanted, others):
        yield from _sample(request, items, source, draw, keys)


def _sample(
    request: SurveyRequest, items: Mapping[str, WorkItem], source: Source, draw: random.Random, keys: set[str]
) -> Iterator[SampledEntry]:
    """Draws ranges by their bytes, then entries of each, which is about as good as drawing from all entries.
    Skips objects in ``seen``, and adds drawn ones to it."""
    if not items:
        return
    weights = [max(item.weight, 1) for item in items.values()]
    drawn = Counter(draw.choices([*items], weights, k=request.sample))
    for id, number in drawn.items():
        data = request.metadata.read_metadata("range", id)
        entries = list(read_range(data, name=f"{request.name}: range {id}", verify_id=id))
        for entry in draw.sample(entries, min(number, len(entries))):
            key, _ = source.addresses.meaning(entry.address, entry.address_type)
            if key is not None and key not in keys:
                keys.add(key)
                item = items[id]
                yield SampledEntry(key, entry.path, entry.size, entry.e_tag, item.mask, item.last)
