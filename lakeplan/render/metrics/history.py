"""The history as metrics (``schemas/history.v1.json``)."""

from __future__ import annotations

from lakeplan.render.metrics import families as f
from lakeplan.render.metrics.text import Exposition, Json, Owners, of_repository


def history_metrics(document: Json, owner_of: Owners) -> str:
    """When each command last ended how, by repository, among the runs of the document."""
    newest: dict[tuple[str, str, str], str] = {}
    for run in document["runs"]:
        for step in run["repositories"]:
            key = (step["repository"], run["command"], step["status"])
            newest[key] = max(newest.get(key, ""), run["started_at"])
    made = Exposition()
    made.add(f.HISTORY_DAMAGED, len(document["damaged"]))
    for (repository, command, status), at in sorted(newest.items()):
        made.at(f.HISTORY_LAST, at, *of_repository(repository, owner_of(repository)), command, status)
    return made.text()
