"""Lifecycle plans and runs as metrics (``schemas/lifecycle.v1.json``)."""

from __future__ import annotations

from collections import Counter

from lakeplan.render.metrics import families as f
from lakeplan.render.metrics.plan import add_refused
from lakeplan.render.metrics.text import Exposition, Json, Owners, of_repository


def lifecycle_plan_metrics(document: Json, owner_of: Owners) -> str:
    """Branches by verdict, what follows, what refuses."""
    made = Exposition()
    made.at(f.LIFECYCLE_AT, document["as_of"])
    add_refused(made, f.LIFECYCLE_REFUSED, document["gates"], ("", "", ""))
    for repository in document["repositories"]:
        labels = of_repository(repository["repository"], owner_of(repository["repository"]))
        made.add(f.LIFECYCLE_FAILURE, repository["failure"] is not None, *labels)
        if repository["failure"] is not None:
            continue
        add_refused(made, f.LIFECYCLE_REFUSED, repository["gates"], labels)
        verdicts = Counter(branch["verdict"] for branch in repository["branches"])
        for verdict in ("delete", "keep"):
            made.add(f.LIFECYCLE_BRANCHES, verdicts[verdict], *labels, verdict)
        stale = [b["only_here"] for b in repository["branches"] if b["only_here"] is not None]
        made.add(f.STALE_BRANCHES, len(stale), *labels)
        if all(only["size_bytes"] is not None for only in stale):
            made.add(f.STALE_BYTES, sum(only["size_bytes"] for only in stale), *labels)
        for horizon, total in repository["totals"].items():
            made.add(f.FOLLOW_OBJECTS, total["objects"], *labels, horizon)
            made.add(f.FOLLOW_BYTES, total["size_bytes"], *labels, horizon)
    return made.text()


def lifecycle_run_metrics(document: Json, owner_of: Owners) -> str:
    """Branches by outcome; those that no policy let go are ``kept``."""
    made = Exposition()
    made.at(f.RUN_AT, document["at"])
    add_refused(made, f.RUN_REFUSED, document["gates"], ("", "", ""))
    for repository in document["repositories"]:
        labels = of_repository(repository["repository"], owner_of(repository["repository"]))
        made.add(f.RUN_FAILURE, repository["failure"] is not None, *labels)
        add_refused(made, f.RUN_REFUSED, repository["gates"], labels)
        for outcome, number in Counter(b["outcome"] for b in repository["branches"]).items():
            made.add(f.RUN_BRANCHES, number, *labels, outcome)
        made.add(f.RUN_BRANCHES, repository["kept"], *labels, "kept")
    return made.text()
