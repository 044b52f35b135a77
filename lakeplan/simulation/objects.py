"""Sightings become objects: the joins and aggregates of the simulation. DataFrame in, DataFrame out.

A listing, the uncommitted run and the ranges all give *sightings* of addresses, so the anti-joins of a
collector (stored, minus held by a kept commit, minus staged) are one aggregation by address: one shuffle of
what was read, and nothing depends on the order in which it was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from lakeplan.simulation.columns import EXPIRED, MAX_NAMES, MAX_PREFIX_DEPTH, NEVER_COMMITTED
from lakeplan.simulation.reading import Source, read_bins
from lakeplan.simulation.rulesets import RuleSetBits
from lakeplan.simulation.schemas import SIGHTINGS
from lakeplan.simulation.seen import Seen

KEY = ("source", "address")


def sightings(session: SparkSession, bins: Sequence[bytes], sources: Sequence[Source]) -> DataFrame:
    """Everything the bins name, read once. See ``schemas.SIGHTINGS``."""
    shared = session.sparkContext.broadcast(tuple(bins))
    # Sources carry credentials, and Spark puts broadcasts into plain temporary files: these travel with the
    # function, which goes over a socket.
    readers = tuple(sources)

    def read(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
        return read_bins(batches, shared.value, readers)

    # One row and one partition a bin: no shuffle is needed to spread the work.
    numbers = session.range(0, len(bins), 1, len(bins))
    return numbers.mapInArrow(read, SIGHTINGS)


def objects(seen: DataFrame) -> DataFrame:
    """One row an address (and one each for what could not be read).

    ``paths`` are all distinct paths, ``holders`` all distinct sets of holders, unsorted. Rows are shuffled
    once, before anything is collected: that measured faster than folding in two steps.
    """
    return (
        seen.repartition(*KEY)
        .groupBy(*KEY)
        .agg(
            F.bit_or("seen").alias("seen"),
            F.bit_or("mask").alias("mask"),
            F.bit_or("alias_mask").alias("alias_mask"),
            F.max("last").alias("last"),
            F.max("size").alias("size"),
            F.max("stored_size").alias("stored_size"),
            F.max("version").alias("version"),
            F.collect_set("holders").alias("holders"),
            F.collect_set("path").alias("paths"),
        )
    )


def has(bits: Seen) -> Column:
    return F.col("seen").bitwiseAND(F.lit(int(bits))) != 0


def masked(column: Column, bits: int) -> Column:
    return column.bitwiseAND(F.lit(bits).cast(LongType())) != 0


def stored(listing: bool) -> Column:
    """Whether an object counts. With a listing: it is stored. Without: a commit holds it for certain."""
    return has(Seen.LISTED) if listing else has(Seen.ENTRY)


def size_bytes(listing: bool) -> Column:
    return (F.col("stored_size") if listing else F.col("size")).alias("size_bytes")


def goes(bits: RuleSetBits, listing: bool) -> Column:
    """What the server's collector would delete (shared/lakefs/retention.md)."""
    candidate = has(Seen.OLD) if listing else has(Seen.ENTRY) & has(Seen.CANDIDATE)
    both = F.col("mask").bitwiseOR(F.col("alias_mask"))
    return candidate & ~has(Seen.UNCOMMITTED) & ~masked(both, bits.server)


def going(
    all_objects: DataFrame, last_commits: DataFrame, rule_sets: Sequence[RuleSetBits], listing: bool
) -> DataFrame:
    """The rows of ``objects/``, with ``rule_set`` last, and ``all_paths`` for the prefixes."""
    both = F.col("mask").bitwiseOR(F.col("alias_mask"))
    verdicts = [
        F.when(
            goes(bits, listing),
            F.struct(F.lit(bits.name).alias("rule_set"), masked(both, bits.documented).alias("at_risk")),
        )
        for bits in rule_sets
    ]
    judged = all_objects.select("*", F.explode(F.array_compact(F.array(*verdicts))).alias("verdict"))
    named = judged.join(F.broadcast(last_commits), on="last", how="left")
    committed = has(Seen.ENTRY) | has(Seen.ALIAS)
    return named.select(
        "address",
        size_bytes(listing),
        F.slice(F.array_sort("paths"), 1, MAX_NAMES).alias("paths"),
        "last_commit_id",
        F.when(committed, F.lit(EXPIRED)).otherwise(F.lit(NEVER_COMMITTED)).alias("reason"),
        F.col("verdict.at_risk").alias("at_risk"),
        F.col("verdict.rule_set").alias("rule_set"),
        F.col("paths").alias("all_paths"),
    )


def prefixes_of(paths: Column) -> Column:
    """All distinct prefixes of some paths: "" and every part up to a ``/``, up to the greatest depth."""

    def of_one(path: Column) -> Column:
        parts = F.split(path, "/", -1)
        depth = F.least(F.size(parts) - 1, F.lit(MAX_PREFIX_DEPTH))
        return F.when(
            depth > 0,
            F.transform(
                F.sequence(F.lit(1), F.greatest(depth, F.lit(1))),
                lambda n: F.concat(F.array_join(F.slice(parts, F.lit(1), n), "/"), F.lit("/")),
            ),
        ).otherwise(F.array().cast("array<string>"))

    return F.array_distinct(F.concat(F.array(F.lit("")), F.flatten(F.transform(paths, of_one))))


def by_prefix(rows: DataFrame, group: str, paths: str) -> DataFrame:
    """Objects and bytes by prefix of their paths; an object counts once for each distinct prefix."""
    prefix = F.explode(prefixes_of(F.col(paths))).alias("prefix")
    return (
        rows.select(group, "size_bytes", prefix)
        .groupBy(group, "prefix")
        .agg(F.count(F.lit(1)).alias("objects"), F.sum("size_bytes").alias("size_bytes"))
        .select(
            "prefix",
            (F.size(F.split("prefix", "/", -1)) - 1).alias("depth"),
            "objects",
            "size_bytes",
            group,
        )
    )
