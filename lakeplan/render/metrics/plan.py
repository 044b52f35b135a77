"""A plan as metrics (``schemas/plan.v1.json``)."""

from __future__ import annotations

from lakeplan.render.metrics import families as f
from lakeplan.render.metrics.text import Exposition, Family, Json, add_cost, of_repository


def plan_metrics(document: Json) -> str:
    """What is pending, what it does and when, what refuses, and the backlog as far as it was read."""
    made = Exposition()
    made.at(f.PLAN_AT, document["as_of"])
    add_refused(made, f.PLAN_REFUSED, document["gates"], ("", "", ""))
    for repository in document["repositories"]:
        labels = of_repository(f"{repository['server']}/{repository['name']}", repository["owner"])
        _repository(made, repository, labels)
    return made.text()


def add_refused(made: Exposition, family: Family, gates: list[Json], labels: tuple[str, str, str]) -> None:
    """A sample per gate that refuses."""
    for gate in gates:
        if gate["outcome"] == "refused":
            made.add(family, 1, *labels, gate["gate"])


def _repository(made: Exposition, repository: Json, labels: tuple[str, str, str]) -> None:
    failed = repository["failure"] is not None
    made.add(f.PLAN_FAILURE, failed, *labels)
    if failed:
        return
    pending = repository["action"] != "none" or any(
        repository[kind] is not None and repository[kind]["action"] != "none"
        for kind in ("branch_lifecycle", "object_lifecycle")
    )
    made.add(f.PLAN_PENDING, pending, *labels)
    add_cost(made, f.PLAN_COST, repository, labels)
    add_refused(made, f.PLAN_REFUSED, repository["gates"], labels)
    impact = repository["impact"]
    if impact["status"] != "not_asked":
        made.add(f.PLAN_KNOWN, impact["status"] != "unknown" and not _by_object_rules(repository), *labels)
    for horizon, figures in impact["horizons"].items():
        made.add(f.PLAN_COMMITS, figures["commits_expire"], *labels, horizon)
        made.add(f.PLAN_OBJECTS, figures["objects_expire"], *labels, horizon)
        made.add(f.PLAN_BYTES, figures["bytes_expire"], *labels, horizon)
        made.add(f.PLAN_RISK_OBJECTS, figures["objects_at_risk"], *labels, horizon)
        made.add(f.PLAN_RISK_BYTES, figures["bytes_at_risk"], *labels, horizon)
    backlog = impact["backlog"]
    if backlog is not None:
        made.add(f.BACKLOG_COMMITS, backlog["commits"], *labels)
        made.add(f.BACKLOG_OBJECTS, backlog["objects"], *labels)
        made.add(f.BACKLOG_BYTES, backlog["size_bytes"], *labels)
    for branches in (repository["branch_lifecycle"], repository["lifecycle"]):
        for horizon, number in (branches or {}).get("deletions", {}).items():
            made.add(f.PLAN_BRANCHES, number, *labels, horizon)


def _by_object_rules(repository: Json) -> bool:
    """Whether object rules are added or changed: what they expire is not simulated."""
    rules = repository["object_lifecycle"]
    return rules is not None and any(change["action"] != "clear" for change in rules["changes"])
