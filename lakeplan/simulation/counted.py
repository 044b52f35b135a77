"""Counting objects as DataFrames: everything is read once, little is shuffled, what goes comes out.

What a collector computes (stored, minus held by a kept commit, minus staged) needs every object once, so
every range is read; but of what stays nothing leaves a worker but numbers, folded (``counting``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeplan.errors import LakeplanError
from lakeplan.formats.hashing import Hashes
from lakeplan.model.simulation import Amount
from lakeplan.ports.range_cache import RangeCache
from lakeplan.simulation.blocks import Question
from lakeplan.simulation.counting import (
    ROWS_A_PARTITION,
    Bins,
    Counting,
    count_objects,
    fold_bins,
    unpack_objects,
)
from lakeplan.simulation.pieces import GOING as GOING_ROWS
from lakeplan.simulation.pieces import from_bytes
from lakeplan.simulation.reading import Source, failure
from lakeplan.simulation.schemas import COUNTED, GOING, PIECES
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.sharing import Memory, remember_all, suspects_of
from lakeplan.simulation.totals import ObjectClass
from lakeplan.simulation.work import WorkItem, pack

FEW_ROWS = 500_000
"""Below this many a repository is counted in one partition."""
_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Counted:
    """``frame``: see ``schemas.COUNTED``. ``memories`` are of the sources, by position."""

    frame: DataFrame
    memories: Sequence[Memory]


def counted(
    session: SparkSession,
    items: Sequence[WorkItem],
    sources: Sequence[tuple[Source, Sequence[Question]]],
    *,
    entries: Sequence[int],
    listing: bool,
    cache: RangeCache | None,
) -> Counted:
    """``items`` name a source by its position; ``entries`` are how many each source has in its ranges. An
    object that goes in any of the questions has a row."""
    parallelism = session.sparkContext.defaultParallelism
    bins = pack(items, parallelism)
    of_source: dict[int, list[WorkItem]] = {n: [] for n in range(len(sources))}
    for item in items:
        of_source[item.source].append(item)
    memories = [Memory(of, asks, of_source[n], cache) for n, (of, asks) in enumerate(sources)]
    suspects = suspects_of(memories)
    rows = [
        _most_rows(n, few, memory, listing=listing)
        for n, few, memory in zip(entries, suspects, memories, strict=True)
    ]
    partitions = [1 if n < FEW_ROWS else max(parallelism, -(-n // ROWS_A_PARTITION)) for n in rows]
    # what goes passes through them too, wherever it was counted
    spread = max(*partitions, min(parallelism, len(bins)), -(-sum(entries) // ROWS_A_PARTITION))
    asked = Counting(
        sources=tuple(source for source, _ in sources),
        questions=tuple(tuple(questions) for _, questions in sources),
        listing=listing,
        partitions=tuple(partitions),
        places=places(spread),
        cache=cache,
        tell_shared=any(memory.is_kept for memory in memories),
    )
    shared = session.sparkContext.broadcast(Bins(tuple(bins), suspects))

    # Sources carry credentials, and Spark puts broadcasts into plain temporary files: these travel with the
    # function, which goes over a socket.
    def fold(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
        return fold_bins(batches, shared.value, asked)

    def count(batches):  # type: ignore[no-untyped-def]
        return count_objects(batches, asked)

    numbers = session.range(0, len(bins), 1, len(bins))
    pieces = numbers.mapInArrow(fold, PIECES).repartition(spread, "partition")
    return Counted(pieces.mapInArrow(count, COUNTED), memories)


def _most_rows(entries: int, suspects: Hashes | None, memory: Memory, *, listing: bool) -> int:
    """So many meet in the second step, about: bins send a hash twice at most, and a suspect that lies in
    several regions lies in few."""
    if suspects is None:
        return 2 * entries if listing else entries
    return min(entries, 4 * suspects.size * memory.groups_of_a_region)


def classes_in(objects: Counted) -> dict[int, list[ObjectClass] | LakeplanError]:
    """Per repository (its position), the classes of its objects; or, when a worker could not read something
    of it, that error: one unreadable file, and there is no answer."""
    found: dict[int, list[ObjectClass] | LakeplanError] = {}
    shared: dict[int, list[bytes]] = {}
    columns = objects.frame.where(F.col("counts").isNotNull()).select("source", "counts", "shared")
    for row in columns.toArrow().to_pylist():
        document, of_source = json.loads(row["counts"]), found.setdefault(row["source"], [])
        if row["shared"] is not None:
            shared.setdefault(row["source"], []).append(row["shared"])
        if "error" in document:
            found[row["source"]] = failure(document["error"])
        elif isinstance(of_source, list):
            for seen, mask, alias_mask, holders, number, size in document["classes"]:
                amount = Amount(number, size)
                of_source.append(ObjectClass(Seen(seen), mask, alias_mask, tuple(holders), amount))
    remember_all(
        (memory, shared.get(source, ()))
        for source, memory in enumerate(objects.memories)
        if isinstance(found.get(source), list)
    )
    return found


def objects_in(objects: Counted) -> DataFrame:
    """What goes: see ``schemas.GOING``."""

    def unpack(batches):  # type: ignore[no-untyped-def]
        return unpack_objects(batches)

    return objects.frame.where(F.col("objects").isNotNull()).select("objects").mapInArrow(unpack, GOING)


def few_objects_in(objects: Counted) -> pa.Table:
    """The same on the driver; for those who know that there are few."""
    packed = objects.frame.where(F.col("objects").isNotNull()).select("objects").toArrow()
    tables = [from_bytes(data) for data in packed["objects"].to_pylist()]
    return pa.concat_tables([GOING_ROWS.empty_table(), *tables])


def places(partitions: int) -> tuple[int, ...]:
    """For each partition a number that Spark's ``repartition`` puts into a partition of its own."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(spark_hash(number) % partitions, number)
        number += 1
    return tuple(found.values())


def spark_hash(number: int) -> int:
    """Spark SQL's ``hash`` of one int: Murmur3, 32 bits, seed 42, signed. Were it another, partitions would
    be uneven, and nothing else."""
    mixed = _turned(number * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    value = (_turned(42 ^ mixed, 13) * 5 + 0xE6546B64 & _WORD) ^ 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _WORD
