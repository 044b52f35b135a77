"""Finds objects that commits need and that storage lacks or has in another size, and surveys the places of
every object, for figures under any rules."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.errors import FormatError, StorageNotFound
from lakeplan.formats.namespace import known_as
from lakeplan.formats.ranges import read_metarange, read_range, read_range_arrays
from lakeplan.lakefs.protocols import MetadataKind
from lakeplan.simulation.engine import PREFIXES, Answer, Asking, CountsOnly, ask, prefix_rows, sorted_paths
from lakeplan.simulation.foreign import OpenRunner
from lakeplan.simulation.inputs import (
    Collected,
    NamespaceMetadata,
    collect_ranges,
    fetch_each,
    listing_items,
    required_listing,
)
from lakeplan.simulation.listings import StagedRun
from lakeplan.simulation.local import PacketKind, from_bytes, to_bytes
from lakeplan.simulation.observing import Source
from lakeplan.simulation.requests import (
    AGES,
    DamagedFile,
    Facts,
    NamedObject,
    Presence,
    PresenceRequest,
    SampledEntry,
    Surveyed,
    SurveyRequest,
)
from lakeplan.simulation.runners import WorkItem
from lakeplan.simulation.steps import Question, is_kept_entry
from lakeplan.simulation.table import Class
from lakeplan.simulation.verdicts import ObjectClass, Sighting
from lakeplan.values.progress import Progress, Silent
from lakeplan.values.repository import RangeInfo
from lakeplan.values.simulation import Amount, RunnerChoice

FEW_RANGES = 100
"""A sample reads all ranges if there are no more than this."""
NAMED_PATHS = 10
"""The most paths of an object in an answer."""
DAMAGE = (FormatError, StorageNotFound)
"""What reading a missing or damaged file of metadata raises."""


@dataclass(frozen=True)
class MissingObjects:
    """Requests objects of kept commits that are not listed, or are listed in another size."""

    def wants(self, each: Class) -> bool:
        # A path of an object is sent once, whichever of the commits that have it is read first.
        return not each.flags & Sighting.LISTED

    def takes(self, each: Class) -> bool:
        return is_kept_entry(each) and (
            not each.flags & Sighting.LISTED or bool(each.flags & Sighting.RESIZED)
        )

    def answers(self, objects: pa.Table) -> Iterator[tuple[int, PacketKind, bytes]]:
        yield 0, PacketKind.OBJECTS, to_bytes(objects)


class StepChecker:
    """Implements ``Checker`` on either runner."""

    def __init__(self, open_runner: OpenRunner, progress: Progress | None = None) -> None:
        self._open = open_runner
        self._progress = progress or Silent()

    def presence(self, request: PresenceRequest) -> Presence:
        """Implements the port. A second job names objects if the first counts any. Most namespaces lack none,
        and counting needs no texts."""
        metadata = NamespaceMetadata(request.store)
        collected, damaged = self._collected(metadata, request)
        source = Source(
            request.store.url,
            metadata,
            known_as(request.store.url, request.storage_namespace),
            request.store,
            held_prefixes=request.held_prefixes,
            outside=True,
        )
        answer, choice = self._ask(source, CountsOnly(), collected, [], 0)
        if isinstance(answer.error, DAMAGE):
            bad = self._damaged_ranges(metadata, collected, request)
            if not bad:  # the damage is not in a range, or was repaired meanwhile
                raise answer.error
            damaged += bad
            without = {one.id for one in bad}
            items = [item for item in collected.items if item.name not in without]
            collected = replace(collected, items=items)
            answer, choice = self._ask(source, CountsOnly(), collected, [], 0)
        objects: list[NamedObject] = []
        lacking = MissingObjects()
        if answer.error is None and any(
            lacking.takes(Class(each.flags, each.mask)) for each in answer.classes
        ):
            answer, choice = self._ask(source, lacking, collected, objects, request.limit)
        return _presence(answer.checked().classes, collected, objects, damaged, choice)

    def sample(self, request: PresenceRequest, share: float, seed: str) -> Iterator[SampledEntry]:
        """Implements the port. Reads only some of many ranges, because entries must be decoded one by one."""
        metadata = NamespaceMetadata(request.store)
        collected, _ = self._collected(metadata, request)
        items = {item.name: item for item in collected.items if item.mask}
        within = share if len(items) <= FEW_RANGES else math.sqrt(share)
        of_ranges = share / within if within else 0.0
        addresses = known_as(request.store.url, request.storage_namespace)
        keys: set[str] = set()
        wanted = [id for id in items if _drawn(seed, id) < of_ranges]
        for id, fetched in fetch_each(metadata, "range", wanted):
            try:
                entries = read_range(fetched(), name=id, verify_id=id)
                for entry in entries:
                    key, _ = addresses.meaning(entry.address, entry.address_type)
                    if key is None or key in keys or _drawn(seed, key) >= within:
                        continue
                    keys.add(key)
                    item = items[id]
                    yield SampledEntry(key, entry.path, entry.size, entry.e_tag, item.mask, item.last)
            except DAMAGE:
                continue  # ``presence`` reports it

    def _ask(
        self, source: Source, question: Question, collected: Collected, into: list[NamedObject], limit: int
    ) -> tuple[Answer, RunnerChoice]:
        """The answer to a question. Adds at most ``limit`` of the requested objects to ``into``."""
        items = [*required_listing(source.opened()), *collected.items]
        asking = Asking(source, question, items, collected.entries, exact=False, compares_sizes=True)

        def take(_: int, kind: PacketKind, data: bytes) -> None:
            into.extend(_objects_of(from_bytes(data), limit - len(into)))

        with (
            self._progress.task(f"reading {len(items)} files", None),
            self._open(collected.entries) as (runner, choice),
        ):
            (answer,) = ask(runner, [asking], take=take)
        return answer, choice

    def _collected(
        self, metadata: NamespaceMetadata, request: PresenceRequest
    ) -> tuple[Collected, list[DamagedFile]]:
        """The ranges of all readable metaranges, and the other metaranges."""
        facts, name = request.metaranges, request.store.url
        try:
            with self._progress.task("reading metaranges", len(facts)) as step:
                return collect_ranges(metadata, facts, name=name, step=step), []
        except DAMAGE as error:
            first = error
        bad = [
            DamagedFile("meta_range", id, message, facts[id].mask, facts[id].last)
            for id, message in _damage(metadata, "meta_range", facts)
        ]
        if not bad:
            raise first
        left = {id: fact for id, fact in facts.items() if id not in {one.id for one in bad}}
        return collect_ranges(metadata, left, name=name), bad

    def _damaged_ranges(
        self, metadata: NamespaceMetadata, collected: Collected, request: PresenceRequest
    ) -> list[DamagedFile]:
        items = {item.name: item for item in collected.items}
        with self._progress.task("checking ranges", len(items)) as step:
            messages = dict(_damage(metadata, "range", items, step))
        infos = _infos(metadata, request.metaranges, messages) if messages else {}
        return [_damaged_range(items[id], message, infos.get(id)) for id, message in messages.items()]


def _drawn(seed: str, name: str) -> float:
    """A pseudorandom number in [0, 1) that depends only on the seed and the name."""
    data = f"{seed} {name}".encode(errors="surrogateescape")
    return int.from_bytes(blake2b(data, digest_size=7).digest(), "big") / 256**7


def _damage(
    metadata: NamespaceMetadata,
    kind: MetadataKind,
    ids: Iterable[str],
    step: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, str]]:
    """Yields ids of files that are missing or damaged, with the reason. Raises for other failures to read."""
    for id, fetched in fetch_each(metadata, kind, ids):
        step()
        try:
            data = fetched()
            if kind == "range":
                read_range_arrays(data, name=id, verify_id=id)
            else:
                list(read_metarange(data, name=id, verify_id=id))
        except DAMAGE as error:
            yield id, error.message


def _infos(
    metadata: NamespaceMetadata, metaranges: Mapping[str, Facts], ids: Mapping[str, str]
) -> dict[str, RangeInfo]:
    """The records of these ranges in metaranges, as far as they can be read."""
    info_of: dict[str, RangeInfo] = {}
    for id, fetched in fetch_each(metadata, "meta_range", metaranges):
        try:
            infos = list(read_metarange(fetched(), name=id))
        except DAMAGE:
            continue
        info_of |= {info.id: info for info in infos if info.id in ids}
        if len(info_of) == len(ids):
            break
    return info_of


def _damaged_range(item: WorkItem, message: str, info: RangeInfo | None) -> DamagedFile:
    bounds = () if info is None else (info.min_key, info.max_key)
    paths = tuple(end.decode(errors="backslashreplace") for end in bounds)
    return DamagedFile(
        "range", item.name, message, item.mask, item.last, info.count if info is not None else 0, paths
    )


def _objects_of(table: pa.Table, limit: int) -> list[NamedObject]:
    some = table.slice(0, max(limit, 0))
    if not some.num_rows:
        return []
    paths = sorted_paths(some["paths"]).to_pylist()
    columns = [some[name].to_pylist() for name in ("address", "mask", "last", "size", "seen")]
    return [
        NamedObject(
            address,
            tuple(of_one[:NAMED_PATHS]),
            mask,
            last,
            size,
            held=bool(flags & Sighting.HELD),
            resized=bool(flags & Sighting.RESIZED),
        )
        for of_one, address, mask, last, size, flags in zip(paths, *columns, strict=True)
    ]


def _presence(
    classes: Iterable[ObjectClass],
    collected: Collected,
    objects: list[NamedObject],
    damaged: list[DamagedFile],
    choice: RunnerChoice,
) -> Presence:
    named, lacking, resized, outside = Amount(), Amount(), Amount(), Amount()
    for each in classes:
        if each.flags & Sighting.OUTSIDE:
            outside += each.amount
        if not is_kept_entry(Class(each.flags, each.mask)):
            continue
        named += each.amount
        if each.flags & Sighting.RESIZED:
            resized += each.amount
        elif not each.flags & Sighting.LISTED:
            lacking += each.amount
    ranges = len(collected.items) + sum(one.kind == "range" for one in damaged)
    return Presence(
        metaranges=collected.metaranges + sum(one.kind == "meta_range" for one in damaged),
        ranges=ranges,
        named=named,
        lacking=lacking,
        resized=resized,
        outside=outside,
        objects=tuple(sorted(objects, key=lambda one: one.address)),
        damaged=tuple(damaged),
        runner=choice,
    )


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
