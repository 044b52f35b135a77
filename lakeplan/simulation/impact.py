"""The simulation for plans: what changes of rules expire in many repositories, in one job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from lakeplan import limits
from lakeplan.errors import LakeplanError
from lakeplan.formats.namespace import Addresses
from lakeplan.simulation.cache import RangeCache
from lakeplan.simulation.engine import (
    CANDIDATES,
    Answer,
    Asking,
    ExpiryInTransitions,
    Naming,
    ask,
    joined,
    largest,
)
from lakeplan.simulation.inputs import Collected, collect_ranges, iso
from lakeplan.simulation.listings import Inventory
from lakeplan.simulation.observing import Source
from lakeplan.simulation.requests import Facts, ImpactRequest, union
from lakeplan.simulation.runners import Runners, WorkItem
from lakeplan.simulation.verdicts import Sighting
from lakeplan.values.plan import RECORD_BYTES
from lakeplan.values.progress import Progress, Silent
from lakeplan.values.simulation import (
    Amount,
    ImpactResult,
    PrefixAmount,
    RunnerChoice,
    StoredAmounts,
    Transition,
)

REPOSITORIES_AT_ONCE = 4
"""Repositories whose metaranges are read at the same time. Each has its own connections."""
MAX_PREFIXES = 1000
Inventories = Callable[[ImpactRequest], Inventory | None]
"""Returns the inventory of a repository. Raises LakeplanError for one that cannot be used."""


@dataclass(frozen=True)
class _Asked:
    """A repository whose ranges must be read. ``tags`` are in the order of the holders' bits."""

    request: ImpactRequest
    collected: Collected
    tags: tuple[str, ...]
    inventory: Inventory | None = None
    problem: str = ""
    """Why its inventory is not used."""

    @property
    def detail(self) -> Transition:
        return self.request.transitions[self.request.detail]

    @property
    def naming(self) -> Naming:
        named = ((int(bit), self.request.transitions[name]) for name, bit in self.request.shown.items())
        bits = ((bit, before, after) for bit, of in named for before, after in of.bits)
        return Naming(self.request.key, tuple(bits))

    def tag_loses(self, mask: int) -> bool:
        asked = self.request.tag_transitions or (self.request.detail,)
        return any(self.request.transitions[name].expires(mask) for name in asked)

    def items(self, source: int) -> list[WorkItem]:
        stored = [] if self.inventory is None else self.inventory.items()
        return [item._replace(source=source) for item in (*stored, *self.collected.items)]


@dataclass(frozen=True)
class LocalOrSpark:
    """Implements ``Simulator`` on either runner. No runner is started if nothing can expire."""

    runners: Runners = field(default_factory=Runners)
    progress: Progress = field(default_factory=Silent)
    cache: RangeCache | None = None
    inventories: Inventories | None = None

    def impact(self, requests: Sequence[ImpactRequest]) -> Mapping[str, ImpactResult | LakeplanError]:
        """Implements the port. If a runner fails, all its repositories get the error."""
        results: dict[str, ImpactResult | LakeplanError] = {}
        asked: list[_Asked] = []
        for request, answer in zip(requests, self._prepare_all(requests), strict=True):
            if isinstance(answer, _Asked):
                asked.append(answer)
            else:
                results[request.key] = answer
        if asked:
            try:
                results.update(self._run(asked))
            except LakeplanError as error:
                results.update({one.request.key: error for one in asked})
        return results

    def _prepare_all(self, requests: Sequence[ImpactRequest]) -> list[_Asked | ImpactResult | LakeplanError]:
        with (
            self.progress.task("reading metaranges", len(requests)) as step,
            ThreadPoolExecutor(REPOSITORIES_AT_ONCE) as pool,
        ):
            prepared = []
            for answer in pool.map(self._prepare, requests):
                prepared.append(answer)
                step()
            return prepared

    def _prepare(self, request: ImpactRequest) -> _Asked | ImpactResult | LakeplanError:
        prepared = _prepare(request)
        if not isinstance(prepared, _Asked) or self.inventories is None or request.storage_id is None:
            return prepared
        try:
            return replace(prepared, inventory=self.inventories(request))
        except LakeplanError as error:
            return replace(prepared, problem=str(error))

    def _run(self, asked: list[_Asked]) -> dict[str, ImpactResult | LakeplanError]:
        collected = [one.collected for one in asked]
        asking = [_asking(one, place, self.cache) for place, one in enumerate(asked)]
        records: list[list[bytes]] = [[] for _ in asked]
        with (
            self.runners.open(sum(c.entries for c in collected)) as (runner, choice),
            self.progress.task(f"reading {sum(len(c.items) for c in collected)} ranges", None),
        ):
            answers = ask(runner, asking, take=lambda place, _, data: records[place].append(data))
        named = _named([sum(map(len, of_one)) // RECORD_BYTES for of_one in records])
        return {
            one.request.key: _result(one, answer, choice, records[place] if place in named else None)
            for place, (one, answer) in enumerate(zip(asked, answers, strict=True))
        }


def _asking(asked: _Asked, place: int, cache: RangeCache | None) -> Asking:
    request = asked.request
    # The same range in two namespaces has different objects, so repositories are separate.
    # An inventory only says what is stored. It lowers no figure that a gate judges.
    source = Source(
        request.key,
        request.metadata,
        Addresses((request.storage_namespace,)),
        cache=cache,
        verify_ids=False,
        inventory=asked.inventory,
        stored_sizes=False,
    )
    question = ExpiryInTransitions(asked.detail, asked.naming)
    return Asking(source, question, asked.items(place), asked.collected.entries)


def _named(records: Sequence[int]) -> set[int]:
    """The positions of the repositories whose objects are named: the smallest, up to the limit."""
    places, left = set(), limits.SHOWN_RECORDS
    for place in sorted(range(len(records)), key=records.__getitem__):
        if records[place] <= left:
            left -= records[place]
            places.add(place)
    return places


def _prepare(request: ImpactRequest) -> _Asked | ImpactResult | LakeplanError:
    """The ranges to read, or the answer if no commit or no range expires. An object expires only if all its
    ranges do, and a range only if all its metaranges do, so nothing else needs to be read."""
    tags = tuple(sorted(request.tags))
    nothing = ImpactResult({}, tags=dict.fromkeys(tags, Amount()))
    if not _may_go(request, request.metaranges.values()):
        return nothing
    facts = {id: Facts(mask) for id, mask in request.metaranges.items()}
    for bit, tag in enumerate(tags):
        if request.tags[tag]:  # a tag of a repository's first commit loses nothing
            id = request.tags[tag]
            facts[id] = facts.get(id, Facts()) | Facts(holders=(1 << bit,))
    try:
        collected = collect_ranges(request.metadata, facts, name=request.key)
    except LakeplanError as error:
        return error
    if not _may_go(request, (item.mask for item in collected.items)):
        return nothing
    return _Asked(request, collected, tags)


def _may_go(request: ImpactRequest, masks: Iterable[int]) -> bool:
    distinct = set(masks)
    return any(t.expires(mask) for t in request.transitions.values() for mask in distinct)


def _result(
    asked: _Asked, answer: Answer, choice: RunnerChoice, records: list[bytes] | None
) -> ImpactResult | LakeplanError:
    if answer.error is not None:
        return answer.error
    by_mask: dict[int, Amount] = {}
    stored: dict[int, Amount] = {}
    tags = dict.fromkeys(asked.tags, Amount())
    for each in answer.classes:
        if each.flags & CANDIDATES != CANDIDATES:
            continue  # no collector lists such a key
        if each.mask:
            by_mask[each.mask] = by_mask.get(each.mask, Amount()) + each.amount
            if each.flags & Sighting.LISTED:
                stored[each.mask] = stored.get(each.mask, Amount()) + each.amount
        if each.holders and asked.tag_loses(each.mask):
            holding = union([asked.collected.holder_sets[n] for n in each.holders])[0]
            for bit, tag in enumerate(asked.tags):
                if holding >> bit & 1:
                    tags[tag] += each.amount
    collected = asked.collected
    prefixes = largest(answer.prefixes.get("", {}), MAX_PREFIXES)
    return ImpactResult(
        by_mask,
        tuple(PrefixAmount(prefix, prefix.count("/"), amount) for prefix, amount in prefixes),
        tags,
        len(collected.items),
        collected.entries,
        None if records is None else joined(records),
        choice,
        _stored(asked, stored),
    )


def _stored(asked: _Asked, by_mask: Mapping[int, Amount]) -> StoredAmounts | None:
    if asked.inventory is not None:
        return StoredAmounts(iso(asked.inventory.created_us), by_mask)
    return StoredAmounts(problem=asked.problem) if asked.problem else None
