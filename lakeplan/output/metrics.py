"""Documents as metrics, in the text format of OpenMetrics 1.0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from lakeplan.output.plan_changes import writes
from lakeplan.output.plan_impact import expires_by_rule
from lakeplan.output.text import KEY, Json, safe
from lakeplan.values.sweep import Outcome

if TYPE_CHECKING:
    from lakeplan.fleet.documents import StorageDocument
    from lakeplan.plan.documents import ApplyDocument, DriftDocument, RecordedRow
    from lakeplan.review.history import HistoryDocument
    from lakeplan.sweep.documents import MarkListDocument, MarksDocument, SweepDocument


Owners = Callable[[str], str]
"""Returns the owner of ``server/name`` or "", for documents that do not name owners."""

REPOSITORY = ("server", "repository", "owner")
"""The labels of a sample that belongs to a repository."""


@dataclass(frozen=True)
class Family:
    """One gauge, made from the documents of ``command``."""

    name: str
    command: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return next((unit for unit in ("seconds", "bytes") if self.name.endswith(f"_{unit}")), "")


Volume = tuple[Family, Family]
"""Objects, and their bytes."""


@dataclass
class Exposition:
    """Samples by family, in the order in which they are added. ``owner_of`` names the owners of repositories
    whose documents do not. ``tree``, if not "", is the tree's name: a label of every sample, so that files of
    several trees can be read together."""

    owner_of: Owners = lambda key: ""
    tree: str = ""
    _samples: dict[Family, dict[tuple[str, ...], str]] = field(default_factory=dict, init=False)

    def of(self, key: str, owner: str | None = None) -> tuple[str, str, str]:
        """The values of the labels ``REPOSITORY`` for ``server/name``. ``owner`` None: look it up."""
        server, _, name = key.partition("/")
        return server, name, self.owner_of(key) if owner is None else owner

    def add(self, family: Family, value: float | None, *labels: str | None) -> None:
        """Add a sample, unless its value is unknown. ``labels`` are in the family's order."""
        if len(labels) != len(family.labels):
            raise ValueError(f"{family.name} has the labels {', '.join(family.labels)}, not {len(labels)}")
        if value is not None:
            shown = str(int(value)) if float(value).is_integer() else repr(float(value))
            self._samples.setdefault(family, {})[tuple(label or "" for label in labels)] = shown

    def add_volume(self, volume: Volume, amount: Json | None, *labels: str) -> None:
        """Add samples of objects and bytes, unless the amount is unknown."""
        for family, key in zip(volume, ("objects", "size_bytes"), strict=True):
            self.add(family, None if amount is None else amount[key], *labels)

    def add_cost(self, family: Family, part: Json, labels: tuple[str, str, str]) -> None:
        """Add the price of a repository's server, if the tree has one."""
        if price := part.get(KEY):
            self.add(family, price["amount"], *labels, price["currency"])

    def add_refused(
        self, family: Family, gates: Iterable[Json], labels: tuple[str, str, str] = ("", "", "")
    ) -> None:
        """Add a sample for each gate that refuses."""
        for gate in gates:
            if gate["outcome"] == "refused":
                self.add(family, 1, *labels, gate["gate"])

    def at(self, family: Family, moment: str | None, *labels: str | None) -> None:
        """Add a sample of a time in ISO 8601, unless it is unknown."""
        value = None if moment is None else datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
        self.add(family, value, *labels)

    def text(self) -> str:
        lines = []
        for family, samples in self._samples.items():
            lines.append(f"# TYPE {family.name} gauge")
            if family.unit:
                lines.append(f"# UNIT {family.name} {family.unit}")
            lines.append(f"# HELP {family.name} {escaped(family.help)}")
            of_tree = {"tree": self.tree} if self.tree else {}
            for labels, value in samples.items():
                named = of_tree | dict(zip(family.labels, labels, strict=True))
                pairs = ",".join(f'{name}="{escaped(label)}"' for name, label in named.items())
                lines.append(f"{family.name}{pairs and f'{{{pairs}}}'} {value}")
        return "\n".join([*lines, "# EOF"]) + "\n"


def escaped(text: str) -> str:
    """Escape a label value or a help text."""
    plain = "\n".join(safe(line) for line in text.split("\n"))
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _exposed(add: Callable[[Exposition, Any], None]) -> Callable[..., str]:
    """The function that makes the metrics of a document, from one that adds them."""

    def text(document: Json, owner_of: Owners = lambda key: "", tree_name: str = "") -> str:
        made = Exposition(owner_of, document.get("tree_name", tree_name))
        add(made, document)
        return made.text()

    return text


FAMILIES: list[Family] = []


def _family(command: str, name: str, text: str, *labels: str, repository: bool = True) -> Family:
    family = Family(f"lakeplan_{name}", command, text, (*(REPOSITORY if repository else ()), *labels))
    FAMILIES.append(family)
    return family


def _volume(command: str, name: str, text: str, *labels: str) -> Volume:
    """A gauge of objects and a gauge of bytes. ``{}`` in the name and the help becomes the unit."""
    helps = {unit: text.format(unit) for unit in ("objects", "bytes")}
    objects, size = (
        _family(command, name.format(unit), f"{words[0].upper()}{words[1:]}", *labels)
        for unit, words in helps.items()
    )
    return objects, size


_drift = partial(_family, "drift")
_storage = partial(_family, "storage")
_plan = partial(_family, "plan")
_apply = partial(_family, "apply")
_history = partial(_family, "history")
_branches_plan = partial(_family, "branches plan")
_branches_run = partial(_family, "branches run")
_sweep_mark = partial(_family, "sweep mark")
_sweep_list = partial(_family, "sweep list")
_sweep_run = partial(_family, "sweep run")

# ---- drift, and what the state remembers
DRIFT_AT = _drift("drift_timestamp_seconds", "When the servers were compared.", repository=False)
DRIFT_CHECKED = _drift("drift_checked", "Repositories that were compared.", repository=False)
DRIFT_FAILED = _drift("drift_failed", "Repositories that could not be compared.", repository=False)
DRIFT_CLASSES = _drift(
    "drift_repositories", "Repositories with drift, by class of drift.", "class", repository=False
)
DRIFT = _drift("drift", "1 for each class of drift that the repository has.", "class")
DRIFT_FAILURE = _drift("drift_failure", "1 when the repository could not be compared.")
LAST_APPLY = _drift("last_apply_timestamp_seconds", "When `lakeplan apply` last wrote to the repository.")
LAST_SWEEP = _drift("last_sweep_timestamp_seconds", "When the latest sweep last ran.")
LAST_SWEEP_FINISHED = _drift(
    "last_sweep_finished", "1 when the latest sweep has processed every marked object."
)
LAST_SWEEP_VOLUME = _volume("drift", "last_sweep_{}", "{} of the latest sweep, by status.", "status")
RECLAIMED_VOLUME = _volume("drift", "reclaimed_{}", "{} permanently deleted by all sweeps.")
QUARANTINED_VOLUME = _volume("drift", "quarantined_{}", "{} in quarantine that are not purged yet.")
DRIFT_COST = _drift(
    "drift_cost_per_gb_month", "Price of a GB per month on the server, as set in the tree.", "currency"
)

# ---- plan, show
PLAN_AT = _plan("plan_timestamp_seconds", "The time as of which the plan was computed.", repository=False)
PLAN_FAILURE = _plan("plan_failure", "1 when the repository could not be planned.")
PLAN_PENDING = _plan("plan_pending", "1 when an apply would write to the repository.")
PLAN_KNOWN = _plan("plan_impact_known", "1 when the expiring objects are known, 0 when they are not.")
PLAN_REFUSED = _plan(
    "plan_gates_refused",
    "1 for each gate that refuses. Without a repository, the gate covers the whole plan.",
    "gate",
)
PLAN_COMMITS = _plan(
    "plan_expiring_commits",
    "Commits that would newly expire by the horizon, assuming no new commits.",
    "horizon",
)
PLAN_VOLUME = _volume(
    "plan",
    "plan_expiring_{}",
    "{} that would newly expire by the horizon, assuming no new commits. Upper bound.",
    "horizon",
)
PLAN_RISK_VOLUME = _volume(
    "plan",
    "plan_at_risk_{}",
    "{} that the server would delete although the documented rule keeps them.",
    "horizon",
)
BACKLOG_COMMITS = _plan("plan_backlog_commits", "Commits that have already expired under the stored rules.")
BACKLOG_VOLUME = _volume(
    "plan", "plan_backlog_{}", "{} that have already expired under the stored rules (`--backlog`)."
)
PLAN_BRANCHES = _plan(
    "plan_deleted_branches",
    "Branches that policies would delete by the horizon, assuming no new writes.",
    "horizon",
)
PLAN_COST = _plan(
    "plan_cost_per_gb_month", "Price of a GB per month on the server, as set in the tree.", "currency"
)

# ---- apply, history
APPLY_RESULTS = _apply("apply_results", "Settings, by outcome.", "outcome", repository=False)
APPLY_RESULT = _apply(
    "apply_result", "1 for the outcome of each setting of the repository.", "setting", "outcome"
)
HISTORY_LAST = _history(
    "history_last_timestamp_seconds", "When the command last ended with this status.", "command", "status"
)
HISTORY_DAMAGED = _history("history_damaged", "History records that cannot be read.", repository=False)

# ---- branches
BRANCHES_PLAN_AT = _branches_plan(
    "lifecycle_plan_timestamp_seconds", "The time as of which branch ages were computed.", repository=False
)
BRANCHES_PLAN_FAILURE = _branches_plan(
    "lifecycle_plan_failure", "1 when the repository's branches could not be read."
)
BRANCHES_PLAN_BRANCHES = _branches_plan("lifecycle_plan_branches", "Branches, by verdict.", "verdict")
BRANCHES_PLAN_REFUSED = _branches_plan(
    "lifecycle_plan_gates_refused", "1 for each gate that refuses.", "gate"
)
FOLLOW_VOLUME = _volume(
    "branches plan",
    "lifecycle_plan_following_{}",
    "{} that would expire because their branches are deleted.",
    "horizon",
)
STALE_BRANCHES = _branches_plan(
    "lifecycle_plan_stale_branches",
    "Stale branches: no commit for 30 days, or a policy would delete them. Counts up to 20.",
)
STALE_BYTES = _branches_plan(
    "lifecycle_plan_stale_bytes",
    "Bytes that only a single stale branch keeps, summed over stale branches. Upper bound.",
)
RUN_AT = _branches_run("lifecycle_run_timestamp_seconds", "When branches were deleted.", repository=False)
RUN_FAILURE = _branches_run("lifecycle_run_failure", "1 when deleting branches of the repository failed.")
RUN_BRANCHES = _branches_run("lifecycle_run_branches", "Branches, by outcome.", "outcome")
RUN_REFUSED = _branches_run("lifecycle_run_gates_refused", "1 for each gate that refuses.", "gate")

# ---- sweep
MARK_AT = _sweep_mark("sweep_mark_timestamp_seconds", "When the mark was created.")
MARK_FAILURE = _sweep_mark("sweep_mark_failure", "1 when the repository could not be marked.")
MARK_VOLUME = _volume("sweep mark", "sweep_mark_going_{}", "{} that a sweep may delete.")
MARK_CLASS_VOLUME = _volume("sweep mark", "sweep_mark_{}", "Marked {}, by class.", "class")
MARK_REFUSED = _sweep_mark("sweep_mark_gates_refused", "1 for each gate that refuses.", "gate")
MARKS = _sweep_list("sweep_marks", "Marks recorded in the state.", "approved")
SWEEP_AT = _sweep_run("sweep_run_timestamp_seconds", "When the sweep ended or stopped.")
SWEEP_FINISHED = _sweep_run("sweep_run_finished", "1 when every marked object has been processed.")
SWEEP_VOLUME = _volume("sweep run", "sweep_run_{}", "Marked {}, by status.", "status")
SWEEP_BACK = _sweep_run("sweep_run_came_back_objects", "Deleted objects that are needed again.")

# ---- storage
STORAGE_AT = _storage("storage_timestamp_seconds", "When the repository was measured.")
STORAGE_VOLUME = _volume("storage", "storage_{}", "{}, by part. Unknown parts are omitted.", "part")
STORAGE_CLASS_VOLUME = _volume(
    "storage", "storage_class_{}", "Stored {}, by storage class (--by-class).", "class"
)
STORAGE_FAILURE = _storage("storage_failure", "1 when the repository could not be measured.")


def table() -> str:
    """All families as the Markdown table of ``docs/metrics.md``; *repository* means ``REPOSITORY``."""
    rows = ["| command | metric | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in FAMILIES:
        shared = family.labels[: len(REPOSITORY)] == REPOSITORY
        names = [f"`{name}`" for name in family.labels if not (shared and name in REPOSITORY)]
        labels = ", ".join(["*repository*"] * shared + names)
        rows.append(f"| `{family.command}` | `{family.name}` | {labels} | {family.help} |")
    return "\n".join(rows) + "\n"


_OUTCOMES: tuple[Outcome, ...] = ("deleted", "saved", "failed", "pending")


@_exposed
def plan_metrics(made: Exposition, document: Json) -> None:
    """The metrics of a plan: pending changes and their impact, gates that refuse, and the backlog."""
    made.at(PLAN_AT, document["as_of"])
    made.add_refused(PLAN_REFUSED, document["gates"])
    for repository in document["repositories"]:
        labels = made.of(f"{repository['server']}/{repository['name']}", repository["owner"] or "")
        _repository(made, repository, labels)


def _repository(made: Exposition, repository: Json, labels: tuple[str, str, str]) -> None:
    failed = repository["failure"] is not None
    made.add(PLAN_FAILURE, failed, *labels)
    if failed:
        return
    made.add(PLAN_PENDING, writes(repository), *labels)
    made.add_cost(PLAN_COST, repository, labels)
    made.add_refused(PLAN_REFUSED, repository["gates"], labels)
    impact = repository["impact"]
    if impact["status"] != "not_asked":
        made.add(PLAN_KNOWN, impact["status"] != "unknown" and not expires_by_rule(repository), *labels)
    for horizon, figures in impact["horizons"].items():
        made.add(PLAN_COMMITS, figures["commits_expire"], *labels, horizon)
        expiring = {"objects": figures["objects_expire"], "size_bytes": figures["bytes_expire"]}
        made.add_volume(PLAN_VOLUME, expiring, *labels, horizon)
        at_risk = {"objects": figures["objects_at_risk"], "size_bytes": figures["bytes_at_risk"]}
        made.add_volume(PLAN_RISK_VOLUME, at_risk, *labels, horizon)
    backlog = impact["backlog"]
    if backlog is not None:
        made.add(BACKLOG_COMMITS, backlog["commits"], *labels)
        made.add_volume(BACKLOG_VOLUME, backlog, *labels)
    for branches in (repository["branch_lifecycle"], repository["lifecycle"]):
        for horizon, number in (branches or {}).get("deletions", {}).items():
            made.add(PLAN_BRANCHES, number, *labels, horizon)


@_exposed
def apply_metrics(made: Exposition, document: ApplyDocument) -> None:
    """Settings by outcome, and the outcome of each."""
    for outcome, number in document["summary"].items():
        made.add(APPLY_RESULTS, number, outcome)
    for result in document["results"]:
        labels = made.of(result["repository"])
        made.add(APPLY_RESULT, 1, *labels, result["setting"], result["outcome"])


@_exposed
def drift_metrics(made: Exposition, document: DriftDocument) -> None:
    """Repositories by class of drift, failures, and the last apply and sweep of each repository."""
    made.at(DRIFT_AT, document["as_of"])
    made.add(DRIFT_CHECKED, document["summary"]["checked"])
    made.add(DRIFT_FAILED, document["summary"]["failed"])
    for name, number in document["summary"]["classes"].items():
        made.add(DRIFT_CLASSES, number, name)
    for repository in document["repositories"]:
        for name in repository["classes"]:
            made.add(DRIFT, 1, *made.of(repository["repository"], repository["owner"] or ""), name)
    for recorded in document["recorded"]:
        _recorded(made, recorded)


def _recorded(made: Exposition, recorded: RecordedRow) -> None:
    labels = made.of(recorded["repository"], recorded["owner"] or "")
    made.add(DRIFT_FAILURE, recorded["failed"], *labels)
    made.add_cost(DRIFT_COST, recorded, labels)
    if recorded["last_apply"] is not None:
        made.at(LAST_APPLY, recorded["last_apply"]["at"], *labels)
    last, reclaimed, quarantined = recorded["last_sweep"], recorded["reclaimed"], recorded["quarantined"]
    if last is None or reclaimed is None or quarantined is None:  # all of them, or none
        return
    made.at(LAST_SWEEP, last["at"], *labels)
    made.add(LAST_SWEEP_FINISHED, last["finished"], *labels)
    for status in _OUTCOMES:
        made.add_volume(LAST_SWEEP_VOLUME, last[status], *labels, status)
    made.add_volume(RECLAIMED_VOLUME, reclaimed, *labels)
    made.add_volume(QUARANTINED_VOLUME, quarantined, *labels)


@_exposed
def history_metrics(made: Exposition, document: HistoryDocument) -> None:
    """When each command last ended with each status, by repository."""
    newest: dict[tuple[str, str, str], str] = {}
    for run in document["runs"]:
        for step in run["repositories"]:
            key = (step["repository"], run["command"], step["status"])
            newest[key] = max(newest.get(key, ""), run["started_at"])
    made.add(HISTORY_DAMAGED, len(document["damaged"]))
    for (repository, command, status), at in sorted(newest.items()):
        made.at(HISTORY_LAST, at, *made.of(repository), command, status)


@_exposed
def branches_plan_metrics(made: Exposition, document: Json) -> None:
    """Branches by verdict, what expires because of deletions, and gates that refuse."""
    made.at(BRANCHES_PLAN_AT, document["as_of"])
    made.add_refused(BRANCHES_PLAN_REFUSED, document["gates"])
    for repository in document["repositories"]:
        labels = made.of(repository["repository"])
        made.add(BRANCHES_PLAN_FAILURE, repository["failure"] is not None, *labels)
        if repository["failure"] is not None:
            continue
        made.add_refused(BRANCHES_PLAN_REFUSED, repository["gates"], labels)
        verdicts = Counter(branch["verdict"] for branch in repository["branches"])
        for verdict in ("delete", "keep"):
            made.add(BRANCHES_PLAN_BRANCHES, verdicts[verdict], *labels, verdict)
        stale = [b["only_here"] for b in repository["branches"] if b["only_here"] is not None]
        made.add(STALE_BRANCHES, len(stale), *labels)
        if all(only["size_bytes"] is not None for only in stale):
            made.add(STALE_BYTES, sum(only["size_bytes"] for only in stale), *labels)
        for horizon, total in repository["totals"].items():
            made.add_volume(FOLLOW_VOLUME, total, *labels, horizon)


@_exposed
def branches_run_metrics(made: Exposition, document: Json) -> None:
    """Branches by outcome. Those that no policy deletes are ``kept``."""
    made.at(RUN_AT, document["at"])
    made.add_refused(RUN_REFUSED, document["gates"])
    for repository in document["repositories"]:
        labels = made.of(repository["repository"])
        made.add(RUN_FAILURE, repository["failure"] is not None, *labels)
        made.add_refused(RUN_REFUSED, repository["gates"], labels)
        for outcome, number in Counter(b["outcome"] for b in repository["branches"]).items():
            made.add(RUN_BRANCHES, number, *labels, outcome)
        made.add(RUN_BRANCHES, repository["kept"], *labels, "kept")


@_exposed
def mark_metrics(made: Exposition, document: MarksDocument) -> None:
    """The metrics of marks: the objects that each would delete and those that it keeps, by class."""
    for mark in document["marks"]:
        key = f"{mark['server']}/{mark['repository']}"
        labels = made.of(key)
        made.at(MARK_AT, mark["marked_at"], *labels)
        made.add(MARK_FAILURE, 0, *labels)
        made.add_volume(MARK_VOLUME, mark["goes"], *labels)
        for name, amount in mark["classes"].items():
            made.add_volume(MARK_CLASS_VOLUME, amount, *labels, name)
        made.add_refused(MARK_REFUSED, mark["gates"], labels)
    for key in document["failed"]:
        made.add(MARK_FAILURE, 1, *made.of(key))


@_exposed
def mark_list_metrics(made: Exposition, document: MarkListDocument) -> None:
    """The metrics of the marks in the state: how many are approved and how many are not."""
    counts = Counter((mark["repository"], mark["approved"]) for mark in document["marks"])
    for (key, approved), number in sorted(counts.items()):
        made.add(MARKS, number, *made.of(key), "true" if approved else "false")


@_exposed
def sweep_metrics(made: Exposition, document: SweepDocument) -> None:
    """The objects of a mark by what a sweep did with them."""
    labels = made.of(document["repository"])
    made.at(SWEEP_AT, document["at"], *labels)
    made.add(SWEEP_FINISHED, document["finished"], *labels)
    for status in _OUTCOMES:
        made.add_volume(SWEEP_VOLUME, document[status], *labels, status)
    made.add(SWEEP_BACK, document["came_back"], *labels)


@_exposed
def storage_metrics(made: Exposition, document: StorageDocument) -> None:
    """The metrics of stored data, by the parts of ``output.storage.parts_of``."""
    from lakeplan.output.storage import parts_of

    for row in document["repositories"]:
        labels = made.of(row["repository"], row.get("owner") or "")
        made.at(STORAGE_AT, row["as_of"], *labels)
        for part, amount in parts_of(row):
            made.add_volume(STORAGE_VOLUME, amount, *labels, part)
        for one in row.get("classes") or ():
            made.add_volume(STORAGE_CLASS_VOLUME, one, *labels, one["storage_class"])
    for key in document["failed"]:
        made.add(STORAGE_FAILURE, 1, *made.of(key, ""))
