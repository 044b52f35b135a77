"""Drift, and what the state remembers, as metrics (``schemas/drift.v1.json``)."""

from __future__ import annotations

from lakeplan.render.metrics import families as f
from lakeplan.render.metrics.text import Exposition, Json, add_cost, of_repository


def drift_metrics(document: Json) -> str:
    """Repositories by class, failures, and of every repository its last apply and sweep."""
    made = Exposition()
    made.at(f.DRIFT_AT, document["as_of"])
    made.add(f.DRIFT_CHECKED, document["summary"]["checked"])
    made.add(f.DRIFT_FAILED, document["summary"]["failed"])
    for name, number in document["summary"]["classes"].items():
        made.add(f.DRIFT_CLASSES, number, name)
    for repository in document["repositories"]:
        for name in repository["classes"]:
            made.add(f.DRIFT, 1, *of_repository(repository["repository"], repository["owner"]), name)
    for recorded in document["recorded"]:
        _recorded(made, recorded)
    return made.text()


def _recorded(made: Exposition, recorded: Json) -> None:
    labels = of_repository(recorded["repository"], recorded["owner"])
    made.add(f.DRIFT_FAILURE, recorded["failed"], *labels)
    add_cost(made, f.DRIFT_COST, recorded, labels)
    if recorded["last_apply"] is not None:
        made.at(f.LAST_APPLY, recorded["last_apply"]["at"], *labels)
    last = recorded["last_sweep"]
    if last is None:
        return
    made.at(f.LAST_SWEEP, last["at"], *labels)
    made.add(f.LAST_SWEEP_FINISHED, last["finished"], *labels)
    for status in ("deleted", "saved", "failed", "pending"):
        made.add(f.LAST_SWEEP_OBJECTS, last[status]["objects"], *labels, status)
        made.add(f.LAST_SWEEP_BYTES, last[status]["size_bytes"], *labels, status)
    made.add(f.RECLAIMED_OBJECTS, recorded["reclaimed"]["objects"], *labels)
    made.add(f.RECLAIMED_BYTES, recorded["reclaimed"]["size_bytes"], *labels)
    made.add(f.QUARANTINED_OBJECTS, recorded["quarantined"]["objects"], *labels)
    made.add(f.QUARANTINED_BYTES, recorded["quarantined"]["size_bytes"], *labels)
