"""Documents as metrics, in the text format of OpenMetrics 1.0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from lakeplan.output.plan_impact import expires_by_rule, writes
from lakeplan.output.text import KEY, Json, safe
from lakeplan.values.records import moment_in
from lakeplan.values.simulation import Outcome

if TYPE_CHECKING:
    from lakeplan.fleet.storage import StorageDocument
    from lakeplan.plan.documents import ApplyDocument, DriftDocument, RecordedRow
    from lakeplan.review.history import HistoryDocument
    from lakeplan.sweep.documents import MarkListDocument, MarksDocument, SweepDocument


Owners = Callable[[str], str]
"""Returns the owner of ``server/name`` or "", for documents that do not name owners."""

REPOSITORY = ("server", "repository", "owner")
"""The labels of a sample that belongs to a repository."""


@dataclass(frozen=True)
class Family:
    """One gauge, made from the documents of ``command``. ``name`` omits the prefix that all families
    share."""

    name: str
    command: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return next((unit for unit in ("seconds", "bytes") if self.name.endswith(f"_{unit}")), "")


@dataclass
class Exposition:
    """Samples by family, in the order in which they are added. ``owner_of`` returns the owners of
    repositories whose documents do not name them. ``tree``, if not "", is the tree's name. It becomes a label
    of every sample, so that files of several trees can be read together."""

    owner_of: Owners = lambda key: ""
    tree: str = ""
    _samples: dict[str, dict[tuple[str, ...], str]] = field(default_factory=dict, init=False)

    def of(self, key: str, owner: str | None = None) -> tuple[str, str, str]:
        """Return the values of the labels ``REPOSITORY`` for ``server/name``. If ``owner`` is None, it is
        looked up."""
        server, _, name = key.partition("/")
        return server, name, self.owner_of(key) if owner is None else owner

    def add(self, name: str, value: float | None, *labels: str | None) -> None:
        """Add a sample, unless its value is unknown. ``labels`` are in the family's order."""
        family = FAMILIES[name]
        if len(labels) != len(family.labels):
            raise ValueError(f"{name} has the labels {', '.join(family.labels)}, not {len(labels)}")
        if value is not None:
            shown = str(int(value)) if float(value).is_integer() else repr(float(value))
            self._samples.setdefault(name, {})[tuple(label or "" for label in labels)] = shown

    def add_volume(self, name: str, amount: Json | None, *labels: str) -> None:
        """Add samples of objects and bytes, unless the amount is unknown."""
        for unit, key in (("objects", "objects"), ("bytes", "size_bytes")):
            self.add(name.format(unit), None if amount is None else amount[key], *labels)

    def add_cost(self, name: str, part: Json, labels: tuple[str, str, str]) -> None:
        """Add the price of a repository's server, if the tree has one."""
        if price := part.get(KEY):
            self.add(name, price["amount"], *labels, price["currency"])

    def add_refused(
        self, name: str, gates: Iterable[Json], labels: tuple[str, str, str] = ("", "", "")
    ) -> None:
        """Add a sample for each gate that refuses."""
        for gate in gates:
            if gate["outcome"] == "refused":
                self.add(name, 1, *labels, gate["gate"])

    def at(self, name: str, moment: str | None, *labels: str | None) -> None:
        """Add a sample of a time in ISO 8601, unless it is unknown."""
        value = None if moment is None else moment_in(moment).timestamp()
        self.add(name, value, *labels)

    def text(self) -> str:
        lines = []
        of_tree = {"tree": self.tree} if self.tree else {}
        for name, samples in self._samples.items():
            family, full = FAMILIES[name], f"lakeplan_{name}"
            unit = [f"# UNIT {full} {family.unit}"] if family.unit else []
            lines += [f"# TYPE {full} gauge", *unit, f"# HELP {full} {escaped(family.help)}"]
            for labels, value in samples.items():
                named = of_tree | dict(zip(family.labels, labels, strict=True))
                pairs = ",".join(f'{label}="{escaped(text)}"' for label, text in named.items())
                lines.append(f"{full}{pairs and f'{{{pairs}}}'} {value}")
        return "\n".join([*lines, "# EOF"]) + "\n"


def escaped(text: str) -> str:
    """Escape a label value or a help text."""
    plain = "\n".join(safe(line) for line in text.split("\n"))
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _exposed(add: Callable[[Exposition, Any], None]) -> Callable[..., str]:
    """Return a function that makes the metrics of a document from one that adds them."""

    def text(document: Json, owner_of: Owners = lambda key: "", tree_name: str = "") -> str:
        made = Exposition(owner_of, document.get("tree_name", tree_name))
        add(made, document)
        return made.text()

    return text


def families() -> Iterator[Family]:
    """The families of ``assets/metrics.txt``, each a line of command, name, labels and help. ``repository``
    stands for the labels ``REPOSITORY``. A line with ``{}`` makes two families, one for objects and one for
    bytes."""
    declared = (files("lakeplan.output") / "assets" / "metrics.txt").read_text(encoding="utf-8")
    for line in declared.splitlines():
        command, name, labels, text = (part.strip() for part in line.split("|"))
        shared = REPOSITORY if labels.startswith("repository") else ()
        names = (*shared, *labels.removeprefix("repository").split())
        for unit in ("objects", "bytes") if "{}" in name else ("",):
            words = text.format(unit)
            yield Family(name.format(unit), command, f"{words[0].upper()}{words[1:]}", names)


FAMILIES = {family.name: family for family in families()}


def table() -> str:
    """All families as the Markdown table of ``docs/metrics.md``; *repository* means ``REPOSITORY``."""
    rows = ["| command | metric | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in FAMILIES.values():
        shared = family.labels[: len(REPOSITORY)] == REPOSITORY
        names = [f"`{name}`" for name in family.labels if not (shared and name in REPOSITORY)]
        labels = ", ".join(["*repository*"] * shared + names)
        rows.append(f"| `{family.command}` | `lakeplan_{family.name}` | {labels} | {family.help} |")
    return "\n".join(rows) + "\n"


_OUTCOMES: tuple[Outcome, ...] = ("deleted", "saved", "failed", "pending")


@_exposed
def plan_metrics(made: Exposition, document: Json) -> None:
    """The metrics of a plan: pending changes and their impact, gates that refuse, and the backlog."""
    made.at("plan_timestamp_seconds", document["as_of"])
    made.add_refused("plan_gates_refused", document["gates"])
    for repository in document["repositories"]:
        labels = made.of(f"{repository['server']}/{repository['name']}", repository["owner"] or "")
        _repository(made, repository, labels)


def _repository(made: Exposition, repository: Json, labels: tuple[str, str, str]) -> None:
    failed = repository["failure"] is not None
    made.add("plan_failure", failed, *labels)
    if failed:
        return
    made.add("plan_pending", writes(repository), *labels)
    made.add_cost("plan_cost_per_gb_month", repository, labels)
    made.add_refused("plan_gates_refused", repository["gates"], labels)
    impact = repository["impact"]
    if impact["status"] != "not_asked":
        made.add(
            "plan_impact_known", impact["status"] != "unknown" and not expires_by_rule(repository), *labels
        )
    for horizon, figures in impact["horizons"].items():
        made.add("plan_expiring_commits", figures["commits_expire"], *labels, horizon)
        expiring = {"objects": figures["objects_expire"], "size_bytes": figures["bytes_expire"]}
        made.add_volume("plan_expiring_{}", expiring, *labels, horizon)
        at_risk = {"objects": figures["objects_at_risk"], "size_bytes": figures["bytes_at_risk"]}
        made.add_volume("plan_at_risk_{}", at_risk, *labels, horizon)
    backlog = impact["backlog"]
    if backlog is not None:
        made.add("plan_backlog_commits", backlog["commits"], *labels)
        made.add_volume("plan_backlog_{}", backlog, *labels)
    for branches in (repository["branch_lifecycle"], repository["lifecycle"]):
        for horizon, number in (branches or {}).get("deletions", {}).items():
            made.add("plan_deleted_branches", number, *labels, horizon)


@_exposed
def apply_metrics(made: Exposition, document: ApplyDocument) -> None:
    """Add settings by outcome, and the outcome of each setting."""
    for outcome, number in document["summary"].items():
        made.add("apply_results", number, outcome)
    for result in document["results"]:
        labels = made.of(result["repository"])
        made.add("apply_result", 1, *labels, result["setting"], result["outcome"])


@_exposed
def drift_metrics(made: Exposition, document: DriftDocument) -> None:
    """Repositories by class of drift, failures, and the last apply and sweep of each repository."""
    made.at("drift_timestamp_seconds", document["as_of"])
    made.add("drift_checked", document["summary"]["checked"])
    made.add("drift_failed", document["summary"]["failed"])
    for name, number in document["summary"]["classes"].items():
        made.add("drift_repositories", number, name)
    for repository in document["repositories"]:
        for name in repository["classes"]:
            made.add("drift", 1, *made.of(repository["repository"], repository["owner"] or ""), name)
    for recorded in document["recorded"]:
        _recorded(made, recorded)


def _recorded(made: Exposition, recorded: RecordedRow) -> None:
    labels = made.of(recorded["repository"], recorded["owner"] or "")
    made.add("drift_failure", recorded["failed"], *labels)
    made.add_cost("drift_cost_per_gb_month", recorded, labels)
    if recorded["last_apply"] is not None:
        made.at("last_apply_timestamp_seconds", recorded["last_apply"]["at"], *labels)
    last, reclaimed, quarantined = recorded["last_sweep"], recorded["reclaimed"], recorded["quarantined"]
    if last is None or reclaimed is None or quarantined is None:  # all of them are None, or none of them
        return
    made.at("last_sweep_timestamp_seconds", last["at"], *labels)
    made.add("last_sweep_finished", last["finished"], *labels)
    for status in _OUTCOMES:
        made.add_volume("last_sweep_{}", last[status], *labels, status)
    made.add_volume("reclaimed_{}", reclaimed, *labels)
    made.add_volume("quarantined_{}", quarantined, *labels)


@_exposed
def history_metrics(made: Exposition, document: HistoryDocument) -> None:
    """Add when each command last ended with each status, by repository."""
    newest: dict[tuple[str, str, str], str] = {}
    for run in document["runs"]:
        for step in run["repositories"]:
            key = (step["repository"], run["command"], step["status"])
            newest[key] = max(newest.get(key, ""), run["started_at"])
    made.add("history_damaged", len(document["damaged"]))
    for (repository, command, status), at in sorted(newest.items()):
        made.at("history_last_timestamp_seconds", at, *made.of(repository), command, status)


@_exposed
def branches_plan_metrics(made: Exposition, document: Json) -> None:
    """Branches by verdict, what expires because of deletions, and gates that refuse."""
    made.at("lifecycle_plan_timestamp_seconds", document["as_of"])
    made.add_refused("lifecycle_plan_gates_refused", document["gates"])
    for repository in document["repositories"]:
        labels = made.of(repository["repository"])
        made.add("lifecycle_plan_failure", repository["failure"] is not None, *labels)
        if repository["failure"] is not None:
            continue
        made.add_refused("lifecycle_plan_gates_refused", repository["gates"], labels)
        verdicts = Counter(branch["verdict"] for branch in repository["branches"])
        for verdict in ("delete", "keep"):
            made.add("lifecycle_plan_branches", verdicts[verdict], *labels, verdict)
        stale = [b["only_here"] for b in repository["branches"] if b["only_here"] is not None]
        made.add("lifecycle_plan_stale_branches", len(stale), *labels)
        if all(only["size_bytes"] is not None for only in stale):
            made.add("lifecycle_plan_stale_bytes", sum(only["size_bytes"] for only in stale), *labels)
        for horizon, total in repository["totals"].items():
            made.add_volume("lifecycle_plan_following_{}", total, *labels, horizon)


@_exposed
def branches_run_metrics(made: Exposition, document: Json) -> None:
    """Add branches by outcome. Branches that no policy deletes count as ``kept``."""
    made.at("lifecycle_run_timestamp_seconds", document["at"])
    made.add_refused("lifecycle_run_gates_refused", document["gates"])
    for repository in document["repositories"]:
        labels = made.of(repository["repository"])
        made.add("lifecycle_run_failure", repository["failure"] is not None, *labels)
        made.add_refused("lifecycle_run_gates_refused", repository["gates"], labels)
        for outcome, number in Counter(b["outcome"] for b in repository["branches"]).items():
            made.add("lifecycle_run_branches", number, *labels, outcome)
        made.add("lifecycle_run_branches", repository["kept"], *labels, "kept")


@_exposed
def mark_metrics(made: Exposition, document: MarksDocument) -> None:
    """The metrics of marks: the objects that each would delete and those that it keeps, by class."""
    for mark in document["marks"]:
        key = f"{mark['server']}/{mark['repository']}"
        labels = made.of(key)
        made.at("sweep_mark_timestamp_seconds", mark["marked_at"], *labels)
        made.add("sweep_mark_failure", 0, *labels)
        made.add_volume("sweep_mark_going_{}", mark["goes"], *labels)
        for name, amount in mark["classes"].items():
            made.add_volume("sweep_mark_{}", amount, *labels, name)
        made.add_refused("sweep_mark_gates_refused", mark["gates"], labels)
    for key in document["failed"]:
        made.add("sweep_mark_failure", 1, *made.of(key))


@_exposed
def mark_list_metrics(made: Exposition, document: MarkListDocument) -> None:
    """The metrics of the marks in the state: how many are approved and how many are not."""
    counts = Counter((mark["repository"], mark["approved"]) for mark in document["marks"])
    for (key, approved), number in sorted(counts.items()):
        made.add("sweep_marks", number, *made.of(key), "true" if approved else "false")


@_exposed
def sweep_metrics(made: Exposition, document: SweepDocument) -> None:
    """The objects of a mark by what a sweep did with them."""
    labels = made.of(document["repository"])
    made.at("sweep_run_timestamp_seconds", document["at"], *labels)
    made.add("sweep_run_finished", document["finished"], *labels)
    for status in _OUTCOMES:
        made.add_volume("sweep_run_{}", document[status], *labels, status)
    made.add("sweep_run_came_back_objects", document["came_back"], *labels)


@_exposed
def storage_metrics(made: Exposition, document: StorageDocument) -> None:
    """The metrics of stored data, by the parts of ``output.storage.parts_of``."""
    from lakeplan.output.storage import parts_of

    for row in document["repositories"]:
        labels = made.of(row["repository"], row.get("owner") or "")
        made.at("storage_timestamp_seconds", row["as_of"], *labels)
        for part, amount in parts_of(row):
            made.add_volume("storage_{}", amount, *labels, part)
        for one in row.get("classes") or ():
            made.add_volume("storage_class_{}", one, *labels, one["storage_class"])
    for key in document["failed"]:
        made.add("storage_failure", 1, *made.of(key, ""))
