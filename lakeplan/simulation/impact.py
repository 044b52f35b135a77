"""The simulation that planning asks: what changes of rules do to many repositories, in one Spark job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType
from pyspark.storagelevel import StorageLevel

from lakeplan import limits
from lakeplan.errors import LakeplanError
from lakeplan.model.simulation import Amount, ImpactResult, PrefixAmount, Transition
from lakeplan.ports.progress import Progress, Silent
from lakeplan.ports.range_cache import RangeCache
from lakeplan.ports.simulation import ImpactRequest
from lakeplan.simulation import objects as frames
from lakeplan.simulation.addresses import Addresses
from lakeplan.simulation.blocks import Question
from lakeplan.simulation.counted import Counted, classes_in, counted, few_objects_in, objects_in
from lakeplan.simulation.digest_cache import trimmed
from lakeplan.simulation.few import amounts_by_prefix
from lakeplan.simulation.ranges import Collected, Facts, collect_ranges, union
from lakeplan.simulation.reading import Source
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.session import SparkOptions, explained, open_session
from lakeplan.simulation.shown import Naming, records_in_spark, records_of
from lakeplan.simulation.totals import ObjectClass
from lakeplan.simulation.work import WorkItem
from lakeplan.simulation.writing import is_few

REPOSITORIES_AT_ONCE = 4
"""Repositories whose metaranges are read at the same time; each has its own few connections."""
MAX_PREFIXES = 1000
CANDIDATES = Seen.ENTRY | Seen.CANDIDATE


@dataclass(frozen=True)
class _Asked:
    """A repository whose ranges have to be read. ``tags``: their order is that of the holders' bits."""

    request: ImpactRequest
    collected: Collected
    tags: tuple[str, ...]

    @property
    def detail(self) -> Transition:
        return self.request.transitions[self.request.detail]

    @property
    def naming(self) -> Naming:
        named = ((int(bit), self.request.transitions[name]) for name, bit in self.request.shown.items())
        return Naming(self.request.key, tuple((bit, t.before, t.after) for bit, t in named))

    @property
    def questions(self) -> list[Question]:
        """An object that goes in any of them has a text."""
        named = [self.request.transitions[name] for name in self.request.shown]
        return [Question(t.before, t.after) for t in dict.fromkeys([self.detail, *named])]

    def tag_loses(self, mask: int) -> bool:
        asked = self.request.tag_transitions or (self.request.detail,)
        return any(self.request.transitions[name].goes(mask) for name in asked)

    def items(self, source: int) -> list[WorkItem]:
        return [item._replace(source=source) for item in self.collected.items]


class SparkSimulator:
    """``lakeplan.ports.simulation.Simulator`` on Spark. No session is started when nothing can go."""

    def __init__(
        self,
        options: SparkOptions | None = None,
        progress: Progress | None = None,
        cache: RangeCache | None = None,
    ) -> None:
        self._options = options or SparkOptions()
        self._progress = progress or Silent()
        self._cache = cache

    def impact(self, requests: Sequence[ImpactRequest]) -> Mapping[str, ImpactResult | LakeplanError]:
        """See the port. A repository that cannot be read, and all that Spark fails for, get their error."""
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
            self._progress.task("reading metaranges", len(requests)) as step,
            ThreadPoolExecutor(REPOSITORIES_AT_ONCE) as pool,
        ):
            prepared = []
            for answer in pool.map(_prepare, requests):
                prepared.append(answer)
                step()
            return prepared

    def _run(self, asked: list[_Asked]) -> dict[str, ImpactResult | LakeplanError]:
        size = sum(one.collected.size_bytes for one in asked)
        ranges = sum(len(one.collected.items) for one in asked)
        with (
            trimmed(self._cache),
            self._progress.task(f"reading {ranges} ranges", None),
            open_session(self._options, estimated_bytes=size, light=True) as session,
            explained(),
        ):
            objects = _counted(session, asked, self._cache)
            objects.frame.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                classes = classes_in(objects)
                going = _going(classes, asked)
                few = few_objects_in(objects) if is_few(sum(going)) else None
                prefixes = _prefixes(objects, asked, few) if sum(going) else {}
                shown = _shown(objects, asked, going, few)
            finally:
                objects.frame.unpersist()
        return {
            one.request.key: _result(
                one, classes.get(source, []), prefixes.get(source, ()), shown.get(source)
            )
            for source, one in enumerate(asked)
        }


def _prepare(request: ImpactRequest) -> _Asked | ImpactResult | LakeplanError:
    """The ranges to read; or the answer, when no commit and then no range changes sides. An object goes only
    if all its ranges go, and a range only if a metarange does, so nothing is missed by not reading."""
    tags = tuple(sorted(request.tags))
    nothing = ImpactResult({}, tags=dict.fromkeys(tags, Amount()))
    if not _may_go(request, request.metaranges.values()):
        return nothing
    facts = {id: Facts(mask, holders=(0,)) for id, mask in request.metaranges.items()}
    for bit, tag in enumerate(tags):
        if request.tags[tag]:  # a tag of a repository's first commit loses nothing
            fact = facts.setdefault(request.tags[tag], Facts(holders=(0,)))
            fact.holders = (fact.holders[0] | 1 << bit,)
    try:
        collected = collect_ranges(request.metadata, facts, name=request.key)
    except LakeplanError as error:
        return error
    if not _may_go(request, (item.mask for item in collected.items)):
        return nothing
    return _Asked(request, collected, tags)


def _may_go(request: ImpactRequest, masks: Iterable[int]) -> bool:
    distinct = set(masks)
    return any(t.goes(mask) for t in request.transitions.values() for mask in distinct)


def _counted(session: SparkSession, asked: list[_Asked], cache: RangeCache | None) -> Counted:
    # Repository and address identify an object: the same range id in two namespaces has other objects.
    sources = [
        (
            Source(one.request.key, one.request.metadata, Addresses((one.request.storage_namespace,))),
            one.questions,
        )
        for one in asked
    ]
    items = [item for source, one in enumerate(asked) for item in one.items(source)]
    entries = [one.collected.entries for one in asked]
    return counted(session, items, sources, entries=entries, listing=False, cache=cache)


def _going(classes: Mapping[int, list[ObjectClass] | LakeplanError], asked: list[_Asked]) -> list[int]:
    """How many objects of each repository have texts."""
    return [
        sum(
            each.amount.objects
            for each in found
            if each.seen & CANDIDATES == CANDIDATES and any(q.goes(each.mask) for q in one.questions)
        )
        if isinstance(found := classes.get(source, []), list)
        else 0
        for source, one in enumerate(asked)
    ]


def _shown(objects: Counted, asked: list[_Asked], going: list[int], few: pa.Table | None) -> dict[int, bytes]:
    """Records of each repository's objects that are to be named; the smallest first, until the limit is
    reached: the others have none."""
    naming: dict[int, Naming] = {}
    left = limits.SHOWN_RECORDS
    for source in sorted(range(len(asked)), key=lambda source: going[source]):
        if going[source] <= left:
            left -= going[source]
            naming[source] = asked[source].naming
    if few is None:
        found = records_in_spark(objects, naming)
    else:
        tables = {source: few.filter(pc.equal(few["source"], source)) for source in naming}
        found = {source: records_of(table, naming[source]) for source, table in tables.items()}
    return {source: found.get(source, b"") for source in naming}


def _prefixes(objects: Counted, asked: list[_Asked], table: pa.Table | None) -> dict[int, list[PrefixAmount]]:
    """Per repository, the largest prefixes of what goes in its ``detail`` transition. ``table``: the objects,
    when they are few."""
    if table is None:
        return _prefixes_in_spark(objects_in(objects), asked)
    found = {}
    for source in pc.unique(table["source"]).to_pylist():
        of_source = table.filter(pc.equal(table["source"], source))
        goes = [asked[source].detail.goes(mask) for mask in of_source["mask"].to_pylist()]
        amounts = amounts_by_prefix(of_source.filter(pa.array(goes, pa.bool_())))
        largest = sorted(amounts.items(), key=lambda row: (-row[1].size_bytes, -row[1].objects, row[0]))
        found[source] = [PrefixAmount(p, p.count("/"), amount) for p, amount in largest[:MAX_PREFIXES]]
    return found


def _prefixes_in_spark(objects: DataFrame, asked: list[_Asked]) -> dict[int, list[PrefixAmount]]:

    def bits(values: list[int]) -> Column:
        of_each = F.array(*(F.lit(value).cast(LongType()) for value in values))
        return F.col("mask").bitwiseAND(F.element_at(of_each, F.col("source") + 1))

    before = bits([one.detail.before for one in asked])
    after = bits([one.detail.after for one in asked])
    candidate = frames.has(Seen.ENTRY) & frames.has(Seen.CANDIDATE)
    going = objects.where(candidate & (before != 0) & (after == 0)).withColumn("size_bytes", F.col("size"))
    largest_first = Window.partitionBy("source").orderBy(
        F.desc("size_bytes"), F.desc("objects"), F.asc("prefix")
    )
    rows = (
        frames.by_prefix(going, "source", "paths")
        .withColumn("position", F.row_number().over(largest_first))
        .where(F.col("position") <= MAX_PREFIXES)
        .orderBy("source", "position")
    )
    found: dict[int, list[PrefixAmount]] = {}
    for row in rows.toArrow().to_pylist():
        amount = Amount(row["objects"], row["size_bytes"])
        found.setdefault(row["source"], []).append(PrefixAmount(row["prefix"], row["depth"], amount))
    return found


def _result(
    asked: _Asked,
    classes: list[ObjectClass] | LakeplanError,
    prefixes: Sequence[PrefixAmount],
    shown: bytes | None,
) -> ImpactResult | LakeplanError:
    if isinstance(classes, LakeplanError):
        return classes
    by_mask: dict[int, Amount] = {}
    tags = dict.fromkeys(asked.tags, Amount())
    for each in classes:
        if each.seen & CANDIDATES != CANDIDATES:
            continue  # no collector looks where it is stored
        if each.mask:
            by_mask[each.mask] = by_mask.get(each.mask, Amount()) + each.amount
        if each.holders and asked.tag_loses(each.mask):
            holding = union([asked.collected.holder_sets[n] for n in each.holders])[0]
            for bit, tag in enumerate(asked.tags):
                if holding >> bit & 1:
                    tags[tag] += each.amount
    collected = asked.collected
    return ImpactResult(by_mask, tuple(prefixes), tags, len(collected.items), collected.entries, shown)
