"""Documents as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakeplan.output import metric_families as f
from lakeplan.output.metric_families import Exposition, Family, Json, Owners, add_cost, of_repository
from lakeplan.values.sweep import Outcome

if TYPE_CHECKING:
    from lakeplan.plan.documents import ApplyDocument, DriftDocument, RecordedRow
    from lakeplan.review.history import HistoryDocument
    from lakeplan.sweep.documents import MarkListDocument, MarksDocument, SweepDocument

_OUTCOMES: tuple[Outcome, ...] = ("deleted", "saved", "failed", "pending")


def plan_metrics(document: Json) -> str:
    """What is pending, what it does and when, what refuses, and the backlog as far as it was read."""
    made = Exposition(document.get("tree_name", ""))
    made.at(f.PLAN_AT, document["as_of"])
    add_refused(made, f.PLAN_REFUSED, document["gates"], ("", "", ""))
    for repository in document["repositories"]:
        labels = of_repository(f"{repository['server']}/{repository['name']}", repository["owner"])
        _repository(made, repository, labels)
    return made.text()


def add_refused(
    made: Exposition, family: Family, gates: Iterable[Json], labels: tuple[str, str, str]
) -> None:
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


def apply_metrics(document: ApplyDocument, owner_of: Owners, tree_name: str = "") -> str:
    """How many settings ended how, and each of them."""
    made = Exposition(tree_name)
    for outcome, number in document["summary"].items():
        made.add(f.APPLY_RESULTS, number, outcome)
    for result in document["results"]:
        labels = of_repository(result["repository"], owner_of(result["repository"]))
        made.add(f.APPLY_RESULT, 1, *labels, result["setting"], result["outcome"])
    return made.text()


def drift_metrics(document: DriftDocument, tree_name: str = "") -> str:
    """Repositories by class, failures, and of every repository its last apply and sweep."""
    made = Exposition(tree_name)
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


def _recorded(made: Exposition, recorded: RecordedRow) -> None:
    labels = of_repository(recorded["repository"], recorded["owner"])
    made.add(f.DRIFT_FAILURE, recorded["failed"], *labels)
    add_cost(made, f.DRIFT_COST, recorded, labels)
    if recorded["last_apply"] is not None:
        made.at(f.LAST_APPLY, recorded["last_apply"]["at"], *labels)
    last, reclaimed, quarantined = recorded["last_sweep"], recorded["reclaimed"], recorded["quarantined"]
    if last is None or reclaimed is None or quarantined is None:  # all of them, or none
        return
    made.at(f.LAST_SWEEP, last["at"], *labels)
    made.add(f.LAST_SWEEP_FINISHED, last["finished"], *labels)
    for status in _OUTCOMES:
        made.add(f.LAST_SWEEP_OBJECTS, last[status]["objects"], *labels, status)
        made.add(f.LAST_SWEEP_BYTES, last[status]["size_bytes"], *labels, status)
    made.add(f.RECLAIMED_OBJECTS, reclaimed["objects"], *labels)
    made.add(f.RECLAIMED_BYTES, reclaimed["size_bytes"], *labels)
    made.add(f.QUARANTINED_OBJECTS, quarantined["objects"], *labels)
    made.add(f.QUARANTINED_BYTES, quarantined["size_bytes"], *labels)


def history_metrics(document: HistoryDocument, owner_of: Owners, tree_name: str = "") -> str:
    """When each command last ended how, by repository, among the runs of the document."""
    newest: dict[tuple[str, str, str], str] = {}
    for run in document["runs"]:
        for step in run["repositories"]:
            key = (step["repository"], run["command"], step["status"])
            newest[key] = max(newest.get(key, ""), run["started_at"])
    made = Exposition(tree_name)
    made.add(f.HISTORY_DAMAGED, len(document["damaged"]))
    for (repository, command, status), at in sorted(newest.items()):
        made.at(f.HISTORY_LAST, at, *of_repository(repository, owner_of(repository)), command, status)
    return made.text()


def lifecycle_plan_metrics(document: Json, owner_of: Owners, tree_name: str = "") -> str:
    """Branches by verdict, what follows, what refuses."""
    made = Exposition(tree_name)
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


def lifecycle_run_metrics(document: Json, owner_of: Owners, tree_name: str = "") -> str:
    """Branches by outcome; those that no policy let go are ``kept``."""
    made = Exposition(tree_name)
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


def mark_metrics(document: MarksDocument, owner_of: Owners, tree_name: str = "") -> str:
    """What each mark would take and what it leaves, by class."""
    made = Exposition(tree_name)
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


def mark_list_metrics(document: MarkListDocument, owner_of: Owners, tree_name: str = "") -> str:
    """How many marks the state knows, approved or not."""
    counts = Counter((mark["repository"], mark["approved"]) for mark in document["marks"])
    made = Exposition(tree_name)
    for (key, approved), number in sorted(counts.items()):
        made.add(f.MARKS, number, *of_repository(key, owner_of(key)), "true" if approved else "false")
    return made.text()


def sweep_metrics(document: SweepDocument, owner_of: Owners, tree_name: str = "") -> str:
    """What became of the objects of one mark."""
    made = Exposition(tree_name)
    labels = of_repository(document["repository"], owner_of(document["repository"]))
    made.at(f.SWEEP_AT, document["at"], *labels)
    made.add(f.SWEEP_FINISHED, document["finished"], *labels)
    for status in _OUTCOMES:
        made.add(f.SWEEP_OBJECTS, document[status]["objects"], *labels, status)
        made.add(f.SWEEP_BYTES, document[status]["size_bytes"], *labels, status)
    made.add(f.SWEEP_BACK, document["came_back"], *labels)
    return made.text()
