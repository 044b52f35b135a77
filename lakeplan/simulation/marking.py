"""A mark in Spark: the listing first and for good, then one pass over everything that holds objects.

The listing is written into parts before the server is asked for anything: a partition that Spark had to
compute again later would list what was uploaded meanwhile, and that can look old (retention.md: S3 dates a
multipart upload at its start).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from operator import attrgetter

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakeplan.core.retention import to_us
from lakeplan.core.sweep.keep import Keep
from lakeplan.errors import SimulationFailed, StorageDenied
from lakeplan.model.simulation import Amount
from lakeplan.model.sweep import EXPIRED_CLASSES, MarkClass, Marked, Part
from lakeplan.ports.progress import Progress, Silent
from lakeplan.ports.sweep import ForeignRanges, MarkRequest, RecheckRequest
from lakeplan.ports.sweep_storage import SweepStore
from lakeplan.simulation import objects as frames
from lakeplan.simulation.addresses import Addresses
from lakeplan.simulation.columns import EXPIRED, MAX_NAMES, NEVER_COMMITTED
from lakeplan.simulation.inputs import listing_items
from lakeplan.simulation.marking_parts import GOING, Writer, list_into_parts, write_parts
from lakeplan.simulation.ranges import Facts as RangeFacts
from lakeplan.simulation.ranges import collect_ranges
from lakeplan.simulation.reading import Source, failure
from lakeplan.simulation.schemas import LAST_COMMITS
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.session import explained
from lakeplan.simulation.work import Kind, WorkItem, pack

OpenSession = Callable[[], AbstractContextManager[SparkSession]]

NAME_BEGINS = 4
"""Characters of a name: of those that lakeFS makes, as many as change about once an hour."""

PARTS = StructType(
    [
        StructField("table", StringType(), False),
        StructField("name", StringType(), False),
        StructField("rows", LongType(), False),
        StructField("size_bytes", LongType(), False),
        StructField("sha256", StringType(), False),
        StructField("amounts", StringType(), False),
    ]
)
"""What a worker says of a part it wrote; ``table`` is ``error`` when it could not."""


class SparkMarker:
    """``lakeplan.ports.sweep.Marker`` on Spark."""

    def __init__(self, open_session: OpenSession, progress: Progress | None = None) -> None:
        self._open = open_session
        self._progress = progress or Silent()

    def list_candidates(self, store: SweepStore, prefix: str, *, older_than: datetime) -> tuple[Part, ...]:
        """See the port. Raises StorageError."""
        items = listing_items(store)
        if items is None:
            raise StorageDenied("the namespace cannot be listed", where=store.url, hint="allow listing")
        source = Source(store.url, _NoMetadata(), Addresses(()), store, to_us(older_than))
        with self._progress.task("listing the namespace", None), self._open() as session, explained():
            bins = pack(items, session.sparkContext.defaultParallelism)
            shared = session.sparkContext.broadcast(tuple(bins))

            def write(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
                return list_into_parts(batches, shared.value, source, prefix)

            numbers = session.range(0, len(bins), 1, len(bins))
            return _parts_of(numbers.mapInArrow(write, PARTS))[0]

    def mark(self, request: MarkRequest) -> Marked:
        """See the port. Raises LakeplanError of whatever could not be read or written."""
        sources = [
            _source(request),
            *_foreign_sources(request.foreign, request.storage_namespace, request.store),
        ]
        facts = {id: RangeFacts(f.mask, f.last) for id, f in request.metaranges.items()}
        with self._progress.task("reading metaranges", len(facts)) as step:
            collected = collect_ranges(request.metadata, facts, name=sources[0].name, step=step)
        items = [*_listed(request.listing), *_staged(request.uncommitted), *collected.items]
        items += _foreign_items(request.foreign)
        with self._progress.task(f"reading {len(items)} files", None), self._open() as session, explained():
            wanted = {item.last for item in collected.items}
            last = {at: id for at, id in request.last_commits.items() if at in wanted}
            return _write(session, _objects(session, items, sources), request, last)

    def held_again(self, request: RecheckRequest, *, limit: int) -> frozenset[str]:
        """See the port. No Spark when nothing new could hold anything."""
        facts = {id: RangeFacts(0) for id in request.other_metaranges}
        facts |= {id: RangeFacts(int(Keep.SERVER)) for id in request.metaranges}
        source = Source(
            request.store.url,
            request.metadata,
            _addresses(request.storage_namespace, request.store),
            request.store,
            held_prefixes=request.held_prefixes,
        )
        sources = [source, *_foreign_sources(request.foreign, request.storage_namespace, request.store)]
        items = collect_ranges(request.metadata, facts, name=source.name).items if facts else []
        items = [*items, *_staged(request.uncommitted), *_foreign_items(request.foreign)]
        if not items or not request.parts:
            return frozenset()
        items += [
            WorkItem(Kind.MARKED, 0, request.prefix + part.name, sort_key=bytes.fromhex(part.sha256))
            for part in request.parts
        ]
        with self._progress.task("looking again at what is held", None), self._open() as session, explained():
            found = _objects(session, items, sources)
            holders = Seen.HELD | Seen.ALIAS | Seen.UNCOMMITTED | Seen.FOREIGN
            held = frames.has(holders) | frames.masked(F.col("mask"), int(Keep.SERVER))
            again = found.where((frames.has(Seen.MARKED) & held) | frames.has(Seen.ERROR))
            # Errors first, and in the same action: what Spark computes again may fail this time.
            rows = again.select("address", report()).orderBy(F.col("report").isNull()).limit(limit + 1)
            table = rows.toArrow()
        for text in table.column("report").to_pylist():
            if text is not None:
                raise failure(text)
        return frozenset(table.column("address").to_pylist())


class _NoMetadata:
    """A listing reads no metadata."""

    def read_metadata(self, kind: str, id: str) -> bytes:
        raise SimulationFailed(f"a listing asked for {kind} {id}")


def _addresses(storage_namespace: str, store: SweepStore) -> Addresses:
    return Addresses((storage_namespace, store.url))


def _source(request: MarkRequest) -> Source:
    return Source(
        request.store.url,
        request.metadata,
        _addresses(request.storage_namespace, request.store),
        request.store,
        held_prefixes=request.held_prefixes,
    )


def _foreign_sources(
    foreign: Sequence[ForeignRanges], storage_namespace: str, store: SweepStore
) -> list[Source]:
    addresses = _addresses(storage_namespace, store)
    return [Source(other.name, other.metadata, addresses, target=0) for other in foreign]


def _foreign_items(foreign: Sequence[ForeignRanges]) -> list[WorkItem]:
    items: list[WorkItem] = []
    for number, other in enumerate(foreign, start=1):
        facts = {id: RangeFacts() for id in other.metaranges}
        ranges = collect_ranges(other.metadata, facts, name=other.name, source=number).items
        items += [item._replace(kind=Kind.FOREIGN_RANGE) for item in ranges]
    return items


def _listed(parts: Sequence[Part]) -> list[WorkItem]:
    return [WorkItem(Kind.LISTED, 0, part.name, sort_key=bytes.fromhex(part.sha256)) for part in parts]


def _staged(keys: Sequence[str]) -> list[WorkItem]:
    return [WorkItem(Kind.UNCOMMITTED, 0, key) for key in keys]


def _objects(session: SparkSession, items: Sequence[WorkItem], sources: Sequence[Source]) -> DataFrame:
    bins = pack(items, session.sparkContext.defaultParallelism)
    return frames.objects(frames.sightings(session, bins, sources))


def neighbourhood() -> Column:
    """What addresses that a listing gives one after the other share: the folder, and the beginning of the
    name (lakeFS gives neighbouring names to what is uploaded within an hour)."""
    folder = F.regexp_extract(F.coalesce("address", F.lit("")), f"^(?:.*/)?[^/]{{0,{NAME_BEGINS}}}", 0)
    return folder.alias("neighbourhood")


def report() -> Column:
    """What a worker could not read, as text; null for an object."""
    return F.when(frames.has(Seen.ERROR), F.array_min("paths")).alias("report")


def mark_class() -> Column:
    """A ``MarkClass``, or null for what is no candidate or is simply kept. The order is the rule: what the
    server keeps is kept; of the rest whatever anything else keeps stays; only then may something go."""
    mask = F.col("mask")

    def kept_by(bits: Keep) -> Column:
        return mask.bitwiseAND(F.lit(int(bits)).cast(LongType())) != 0

    return (
        F.when(~frames.has(Seen.OLD) | frames.has(Seen.UNCOMMITTED), F.lit(None))
        .when(kept_by(Keep.SERVER), F.lit(None))
        .when(kept_by(Keep.DOCUMENTED), F.lit(MarkClass.AT_RISK.value))
        .when(
            frames.has(Seen.HELD | Seen.FOREIGN) | kept_by(Keep.PROTECTED),
            F.lit(MarkClass.PROTECTED.value),
        )
        .when(frames.has(Seen.ALIAS), F.lit(MarkClass.UNCERTAIN_ADDRESS.value))
        .when(kept_by(Keep.EXPANDED | Keep.MARGIN), F.lit(MarkClass.NEAR_LIMIT.value))
        .when(
            frames.has(Seen.ENTRY),
            F.when(kept_by(Keep.BEFORE), F.lit(MarkClass.NEWLY_EXPIRED.value)).otherwise(
                F.lit(MarkClass.BACKLOG.value)
            ),
        )
        .otherwise(F.lit(MarkClass.NEVER_COMMITTED.value))
    )


def _write(
    session: SparkSession, found: DataFrame, request: MarkRequest, last_commits: Mapping[int, str]
) -> Marked:
    last = session.createDataFrame(sorted(last_commits.items()) or [(-1, "")], LAST_COMMITS)
    committed = frames.has(Seen.ENTRY | Seen.ALIAS)
    rows = (
        found.withColumn("class", mark_class())
        .where(F.col("class").isNotNull() | frames.has(Seen.ERROR))
        .join(F.broadcast(last), on="last", how="left")
        .select(
            "address",
            F.coalesce("stored_size", F.lit(0)).alias("size_bytes"),
            F.coalesce("version", F.lit(0)).alias("version"),
            F.slice(F.array_sort("paths"), 1, MAX_NAMES).alias("paths"),
            "last_commit_id",
            F.when(committed, F.lit(EXPIRED)).otherwise(F.lit(NEVER_COMMITTED)).alias("reason"),
            "class",
            report(),
        )
        # Neighbours in one part, so that a sweep finds its objects in few pages of a listing.
        .repartition(neighbourhood())
        .sortWithinPartitions("address")
    )
    going = {kind.value for kind in EXPIRED_CLASSES}
    if request.collect_never_committed:
        going.add(MarkClass.NEVER_COMMITTED.value)
    writer = Writer(request.store, request.prefix, frozenset(going))

    def write(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
        return write_parts(batches, writer)

    return Marked(*_parts_of(rows.mapInArrow(write, PARTS)))


def _parts_of(
    written: DataFrame,
) -> tuple[tuple[Part, ...], tuple[Part, ...], dict[MarkClass, Amount]]:
    """What the workers wrote, in order of name. Raises what one of them could not."""
    going: list[Part] = []
    kept: list[Part] = []
    amounts: dict[MarkClass, Amount] = {}
    for row in written.toArrow().to_pylist():
        if row["table"] == "error":
            raise failure(row["amounts"])
        part = Part(row["name"], row["rows"], row["size_bytes"], row["sha256"])
        (going if row["table"] == GOING else kept).append(part)
        for name, (objects, size) in Writer.amounts_of(row["amounts"]).items():
            amounts[name] = amounts.get(name, Amount()) + Amount(objects, size)
    by_name = attrgetter("name")
    return tuple(sorted(going, key=by_name)), tuple(sorted(kept, key=by_name)), amounts
