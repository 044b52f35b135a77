"""Collecting classes of objects: the one action that reads everything."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeplan.errors import LakeplanError
from lakeplan.model.simulation import Amount
from lakeplan.simulation.objects import has
from lakeplan.simulation.reading import failure
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.totals import ObjectClass


def classes_of(objects: DataFrame, *, listing: bool) -> dict[int, list[ObjectClass] | LakeplanError]:
    """Per repository (its position), the classes of its objects; or, when a worker could not read something
    of it, that error: one unreadable file, and there is no answer."""
    grouped = objects.groupBy(
        "source", "seen", "mask", "alias_mask", F.array_sort("holders").alias("holders")
    ).agg(
        F.count(F.lit(1)).alias("objects"),
        F.sum(F.coalesce("stored_size" if listing else "size", "size")).alias("size_bytes"),
        F.min(F.when(has(Seen.ERROR), F.array_min("paths"))).alias("report"),
    )
    found: dict[int, list[ObjectClass] | LakeplanError] = {}
    for row in grouped.toArrow().to_pylist():
        of_source = found.setdefault(row["source"], [])
        if row["report"] is not None:
            found[row["source"]] = failure(row["report"])
        elif isinstance(of_source, list):
            amount = Amount(row["objects"], row["size_bytes"] or 0)
            seen, holders = Seen(row["seen"]), tuple(row["holders"])
            of_source.append(ObjectClass(seen, row["mask"], row["alias_mask"], holders, amount))
    return found
