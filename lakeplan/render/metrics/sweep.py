"""Marks and sweeps as metrics (``schemas/marks.v1.json``, ``schemas/sweep.v1.json``)."""

from __future__ import annotations

from collections import Counter

from lakeplan.render.metrics import families as f
from lakeplan.render.metrics.plan import add_refused
from lakeplan.render.metrics.text import Exposition, Json, Owners, of_repository


def mark_metrics(document: Json, owner_of: Owners) -> str:
    """What each mark would take and what it leaves, by class."""
    made = Exposition()
    for mark in document["marks"]:
        key = f"{mark['server']}/{mark['repository']}"
        labels = of_repository(key, owner_of(key))
        made.at(f.MARK_AT, mark["marked_at"], *labels)
        made.add(f.MARK_FAILURE, 0, *labels)
        made.add(f.MARK_OBJECTS, mark["goes"]["objects"], *labels)
        made.add(f.MARK_BYTES, mark["goes"]["size_bytes"], *labels)
        for name, amount in mark["classes"].items():
            made.add(f.MARK_CLASS_OBJECTS, amount["objects"], *labels, name)
            made.add(f.MARK_CLASS_BYTES, amount["size_bytes"], *labels, name)
        add_refused(made, f.MARK_REFUSED, mark["gates"], labels)
    for key in document["failed"]:
        made.add(f.MARK_FAILURE, 1, *of_repository(key, owner_of(key)))
    return made.text()


def mark_list_metrics(document: Json, owner_of: Owners) -> str:
    """How many marks the state knows, approved or not."""
    counts = Counter((mark["repository"], mark["approved"]) for mark in document["marks"])
    made = Exposition()
    for (key, approved), number in sorted(counts.items()):
        made.add(f.MARKS, number, *of_repository(key, owner_of(key)), "true" if approved else "false")
    return made.text()


def sweep_metrics(document: Json, owner_of: Owners) -> str:
    """What became of the objects of one mark."""
    made = Exposition()
    labels = of_repository(document["repository"], owner_of(document["repository"]))
    made.at(f.SWEEP_AT, document["at"], *labels)
    made.add(f.SWEEP_FINISHED, document["finished"], *labels)
    for status in ("deleted", "saved", "failed", "pending"):
        made.add(f.SWEEP_OBJECTS, document[status]["objects"], *labels, status)
        made.add(f.SWEEP_BYTES, document[status]["size_bytes"], *labels, status)
    made.add(f.SWEEP_BACK, document["came_back"], *labels)
    return made.text()
