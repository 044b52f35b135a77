"""Explicit schemas of every DataFrame and of every output table, in one place."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from lakeplan.simulation.columns import BRANCHES, OBJECTS, PREFIXES, RULE_SET, Column

SIGHTINGS = StructType(
    [
        # position of the repository in the request
        StructField("source", IntegerType(), False),
        # relative to the namespace; null only in a row that reports an error, whose text is in ``path``
        StructField("address", StringType(), True),
        # null for what was listed or staged
        StructField("path", StringType(), True),
        # bytes as the entry says
        StructField("size", LongType(), True),
        # bytes as the storage says
        StructField("stored_size", LongType(), True),
        # which object was listed at the address (``StoredObject.version``); null unless a mark listed it
        StructField("version", LongType(), True),
        # verdict bits of the commits that hold it, and of those that hold it under a doubtful full address
        StructField("mask", LongType(), False),
        StructField("alias_mask", LongType(), False),
        # position of the last commit that holds it, by creation date and id; null for none
        StructField("last", LongType(), True),
        # set of branches or tags that hold the range; null for none
        StructField("holders", IntegerType(), True),
        StructField("seen", IntegerType(), False),
    ]
)
"""One row each time an address was seen: in a range, in a listing, in a run of uncommitted addresses."""

PIECES = StructType(
    [
        StructField("partition", IntegerType(), False),
        StructField("source", IntegerType(), False),
        # of pieces.py: numbers, texts, the report of an error, or what is counted already
        StructField("kind", IntegerType(), False),
        StructField("data", BinaryType(), False),
    ]
)
"""Folded sightings on their way from the workers that read to those that count, many rows in one."""

COUNTED = StructType(
    [
        StructField("source", IntegerType(), False),
        # JSON: classes of objects with their amounts, or an error
        StructField("counts", StringType(), True),
        # many rows of GOING, as an Arrow stream; a row has this or counts
        StructField("objects", BinaryType(), True),
        # beside counts: hashes, 8 bytes each
        StructField("shared", BinaryType(), True),
    ]
)
"""What was counted in a partition, what goes of it, and hashes that stand in several groups."""

GOING = StructType(
    [
        StructField("source", IntegerType(), False),
        StructField("address", StringType(), False),
        StructField("seen", IntegerType(), False),
        StructField("mask", LongType(), False),
        StructField("alias_mask", LongType(), False),
        StructField("last", LongType(), True),
        # both are what the storage says of an object that was listed, else what entries say
        StructField("size", LongType(), False),
        StructField("stored_size", LongType(), False),
        StructField("paths", ArrayType(StringType()), False),
    ]
)
"""One row an address that goes, as in SIGHTINGS; ``paths`` are distinct, in no order."""

LAST_COMMITS = StructType(
    [StructField("last", LongType(), False), StructField("last_commit_id", StringType(), False)]
)

_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "long": LongType(),
    "int": IntegerType(),
    "boolean": BooleanType(),
    "array<string>": ArrayType(StringType(), False),
}


def table(columns: tuple[Column, ...], *, with_rule_set: bool) -> StructType:
    """The Spark schema of an output table."""
    chosen = (*columns, RULE_SET) if with_rule_set else columns
    return StructType([StructField(c.name, _TYPES[c.type], c.nullable) for c in chosen])


__all__ = [
    "BRANCHES",
    "COUNTED",
    "GOING",
    "LAST_COMMITS",
    "OBJECTS",
    "PIECES",
    "PREFIXES",
    "SIGHTINGS",
    "table",
]
