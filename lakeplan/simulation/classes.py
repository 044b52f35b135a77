"""Collecting classes of objects: the one action that reads everything."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeplan.ports.simulation import Amount
from lakeplan.simulation.objects import has
from lakeplan.simulation.reading import failure
from lakeplan.simulation.seen import Seen
from lakeplan.simulation.totals import ObjectClass


def classes_of(objects: DataFrame, *, listing: bool) -> list[ObjectClass]:
    """The classes of one repository's objects.

    Raises what a worker met first in the order of its text: one unreadable file, and there is no answer.
    """
    grouped = objects.groupBy("seen", "mask", "alias_mask", F.array_sort("holders").alias("holders")).agg(
        F.count(F.lit(1)).alias("objects"),
        F.sum(F.coalesce("stored_size" if listing else "size", "size")).alias("size_bytes"),
        F.min(F.when(has(Seen.ERROR), F.array_min("paths"))).alias("report"),
    )
    found = []
    for row in grouped.toArrow().to_pylist():
        if row["report"] is not None:
            raise failure(row["report"])
        amount = Amount(row["objects"], row["size_bytes"] or 0)
        seen, holders = Seen(row["seen"]), tuple(row["holders"])
        found.append(ObjectClass(seen, row["mask"], row["alias_mask"], holders, amount))
    return found
