"""An apply as metrics (``schemas/apply.v1.json``)."""

from __future__ import annotations

from lakeplan.render.metrics import families as f
from lakeplan.render.metrics.text import Exposition, Json, Owners, of_repository


def apply_metrics(document: Json, owner_of: Owners) -> str:
    """How many settings ended how, and each of them."""
    made = Exposition()
    for outcome, number in document["summary"].items():
        made.add(f.APPLY_RESULTS, number, outcome)
    for result in document["results"]:
        labels = of_repository(result["repository"], owner_of(result["repository"]))
        made.add(f.APPLY_RESULT, 1, *labels, result["setting"], result["outcome"])
    return made.text()
