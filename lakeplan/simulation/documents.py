"""The request of a simulation, the documents of simulations and curves, and verdicts without objects."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

from lakeplan import __version__
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import to_us
from lakeplan.simulation.inputs import CommitHistory, iso, read_history
from lakeplan.simulation.verdicts import BranchTotals, Judged, RuleSet, Totals, judge
from lakeplan.stores.open import NamespaceReader
from lakeplan.values.desired import PriceRow
from lakeplan.values.rules import RulesBody
from lakeplan.values.simulation import AmountRow, RunnerChoice, RunnerChoiceRow
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.simulation.inputs import Collected
    from lakeplan.simulation.listings import Inventory, StagedRun


DAY_SECONDS = 86_400


@dataclass(frozen=True)
class SimulateRequest:
    """A request for a simulation. ``as_of`` is aware. ``rule_sets``: one, or two to compare.
    ``storage_namespace`` is the URL that the server uses for the namespace, or None if unknown. ``listing``:
    list stored objects, where possible. ``zone`` is the server's time zone."""

    rule_sets: tuple[RuleSet, ...]
    as_of: datetime
    min_age_seconds: int = DAY_SECONDS
    zone: tzinfo = timezone.utc
    listing: bool = True
    max_uncommitted_age_seconds: int = DAY_SECONDS
    storage_namespace: str | None = None
    output: Path | None = None
    overwrite: bool = False
    inventory: Inventory | None = None
    """Read instead of a listing."""


NO_RUN = "no list of uncommitted objects was found, so uncommitted objects may be shown as garbage"
METADATA_ONLY = (
    "storage was not listed, so the numbers are upper bounds and do not take the minimum age into account"
)
MAX_ROWS = 20
"""The most prefixes and branches in the summary. The tables have all."""


class RunnerVersions(TypedDict, total=False):
    """Versions of programs other than lakeplan and Python."""

    pyspark: str
    java: str


class Versions(RunnerVersions):
    lakeplan: str
    python: str


class InventoryRow(TypedDict):
    url: str
    created: str
    age_seconds: int


class Stored(TypedDict, total=False):
    """The inventory that was read instead of a listing, if any."""

    inventory: InventoryRow


class RefsRow(TypedDict):
    commits_meta_range_id: str
    branches_meta_range_id: str
    tags_meta_range_id: str
    dumped: str | None
    commits: int
    dangling_commits: int
    branches: int
    tags: int


class StagedRow(TypedDict):
    """The run of uncommitted addresses."""

    run_id: str | None
    created: str | None
    files: int


class ReadRow(TypedDict):
    metaranges: int
    ranges: int
    entries: int
    size_bytes: int


class CommitsRow(TypedDict):
    total: int
    active: int
    active_documented: int
    at_risk: int


class PrefixRow(AmountRow):
    prefix: str
    depth: int


class BranchRow(AmountRow):
    branch_id: str
    commits: int
    exclusive_objects: int
    exclusive_bytes: int


Figure = Literal[
    "goes",
    "kept",
    "expired",
    "never_committed",
    "at_risk",
    "kept_by_commits",
    "kept_uncommitted",
    "kept_young",
    "kept_elsewhere",
    "protected_by_alias",
    "missing",
]
FIGURES: tuple[Figure, ...] = get_args(Figure)
"""Names of figures of ``Totals``."""


class RuleSetRow(TypedDict):
    """One rule set. ``objects``, ``prefixes`` and ``branches`` are None with ``--commits-only``."""

    name: str
    rules: RulesBody
    etag: str
    commits: CommitsRow
    objects: Mapping[Figure, AmountRow] | None
    prefixes: Sequence[PrefixRow] | None
    branches: Sequence[BranchRow] | None


class SimulateDocument(Stored):
    """The document of ``schemas/simulate.v1.json``. Times are ISO 8601 UTC, sizes bytes, ages seconds."""

    schema: Literal["simulate.v1"]
    versions: Versions
    namespace: str
    storage_namespace: str | None
    as_of: str
    time_zone: str
    min_age_seconds: int
    commits_only: bool
    listing: bool
    at_most: bool
    runner: RunnerChoiceRow | None
    refs: RefsRow
    uncommitted: StagedRow | None
    read: ReadRow | None
    rule_sets: list[RuleSetRow]
    warnings: list[str]


class DaysPoint(AmountRow):
    """The objects that expire at this retention and longer ones, up to the next point."""

    days: int


class ServerDaysPoint(DaysPoint):
    """The objects that the server lets expire at this retention. ``at_risk``: those that the documented rule
    keeps."""

    at_risk: AmountRow


class CurveRow(TypedDict):
    """A curve. If ``branch_id`` is None, the default days vary."""

    branch_id: str | None
    days_now: int
    now: AmountRow
    points: list[DaysPoint]
    kept_at_any_days: AmountRow
    kept_at_no_days: AmountRow
    server: list[ServerDaysPoint]


class DayRow(AmountRow):
    day: int
    until: str


class HorizonRow(TypedDict):
    days: int
    until: str
    gone_now: AmountRow
    later_or_never: AmountRow
    total: AmountRow
    days_with_losses: list[DayRow]


class CurveVersions(TypedDict):
    lakeplan: str


class CurveRefs(TypedDict):
    commits: int
    dangling_commits: int
    branches: int


class CurveAdditions(Stored, total=False):
    """The part of a curve's document that needs a server. ``cost_per_gb_month`` is the server's."""

    cost_per_gb_month: PriceRow


class CurveDocument(CurveAdditions):
    """The document of ``schemas/curve.v1.json``. Times are ISO 8601 UTC, sizes bytes."""

    schema: Literal["curve.v1"]
    versions: CurveVersions
    repository: str
    as_of: str
    time_zone: str
    listing: bool
    at_most: bool
    runner: RunnerChoiceRow
    uncommitted_run: str | None
    rules: RulesBody
    etag: str
    refs: CurveRefs
    read: ReadRow
    committed: AmountRow
    never_committed: AmountRow
    curves: list[CurveRow]
    horizon: HorizonRow | None
    warnings: list[str]


@dataclass(frozen=True)
class ObjectsOf:
    """The figures of one rule set."""

    totals: Totals
    branches: BranchTotals
    prefixes: Sequence[PrefixRow]


@dataclass(frozen=True)
class RangesRead:
    """The ranges that were read, and the runner that read them."""

    collected: Collected
    runner: RunnerChoice

    def to_row(self) -> ReadRow:
        return {
            "metaranges": self.collected.metaranges,
            "ranges": len(self.collected.items),
            "entries": self.collected.entries,
            "size_bytes": self.collected.size_bytes,
        }


@dataclass(frozen=True)
class ObjectSide:
    """The part of the document that ``--commits-only`` omits."""

    staged: StagedRun
    read: RangesRead
    listing: bool
    by_rule_set: Mapping[str, ObjectsOf]
    versions: RunnerVersions


def summary(
    request: SimulateRequest,
    url: str,
    history: CommitHistory,
    judged: Sequence[Judged],
    side: ObjectSide | None,
) -> SimulateDocument:
    """The complete document of a simulation."""
    versions: RunnerVersions = side.versions if side else {}
    stored: Stored = {"inventory": request.inventory.document()} if request.inventory and side else {}
    return {
        "schema": "simulate.v1",
        "versions": {"lakeplan": __version__, "python": platform.python_version(), **versions},
        "namespace": url,
        "storage_namespace": request.storage_namespace,
        "as_of": iso(to_us(request.as_of)),
        "time_zone": str(request.zone),
        "min_age_seconds": request.min_age_seconds,
        "commits_only": side is None,
        "listing": side.listing if side else False,
        **stored,
        "at_most": side is not None and not side.listing,
        "runner": side.read.runner.to_row() if side else None,
        "refs": _refs(history),
        "uncommitted": _uncommitted(side.staged) if side else None,
        "read": side.read.to_row() if side else None,
        "rule_sets": [_rule_set(history.graph, one, side) for one in judged],
        "warnings": _warnings(request, history, judged, side),
    }


def _refs(history: CommitHistory) -> RefsRow:
    graph, ids = history.graph, history.ids
    return {
        "commits_meta_range_id": ids.commits_meta_range_id,
        "branches_meta_range_id": ids.branches_meta_range_id,
        "tags_meta_range_id": ids.tags_meta_range_id,
        "dumped": None if history.dumped_us is None else iso(history.dumped_us),
        "commits": len(graph),
        "dangling_commits": len(graph.dangling),
        "branches": len(graph.branches),
        "tags": len(graph.tags),
    }


def _uncommitted(staged: StagedRun) -> StagedRow:
    return {
        "run_id": staged.run_id,
        "created": None if staged.created_us is None else iso(staged.created_us),
        "files": len(staged.files),
    }


def _rule_set(graph: CommitGraph, judged: Judged, side: ObjectSide | None) -> RuleSetRow:
    rules = judged.rule_set.rules
    of = side.by_rule_set[judged.rule_set.name] if side else None
    return {
        "name": judged.rule_set.name,
        "rules": rules.to_body(),
        "etag": rules.etag,
        "commits": {
            "total": len(graph),
            "active": sum(judged.server),
            "active_documented": sum(judged.documented.active),
            "at_risk": judged.commits_at_risk,
        },
        "objects": {f: getattr(of.totals, f).to_row() for f in FIGURES} if of else None,
        "prefixes": of.prefixes if of else None,
        "branches": _branches(judged, of.branches) if of else None,
    }


def _branches(judged: Judged, held: BranchTotals) -> list[BranchRow]:
    """The ``MAX_ROWS`` branches with the most exclusive bytes, then those with the most bytes."""
    commits = judged.commits_of_branches()
    order = sorted(
        range(len(commits)),
        key=lambda n: (-held.exclusive_bytes[n], -held.size_bytes[n], judged.branches.names[n]),
    )
    return [
        {
            "branch_id": judged.branches.names[n],
            "commits": commits[n],
            "objects": held.objects[n],
            "size_bytes": held.size_bytes[n],
            "exclusive_objects": held.exclusive_objects[n],
            "exclusive_bytes": held.exclusive_bytes[n],
        }
        for n in order[:MAX_ROWS]
    ]


def _warnings(
    request: SimulateRequest, history: CommitHistory, judged: Sequence[Judged], side: ObjectSide | None
) -> list[str]:
    warnings = []
    known = {branch.id for branch in history.graph.branches}
    for one in judged:
        unknown = sorted(set(one.rule_set.rules.branches) - known)
        if unknown:
            more = ", …" if len(unknown) > MAX_ROWS else ""
            warnings.append(
                f"{one.rule_set.name}: the rules name branches that do not exist:"
                f" {', '.join(unknown[:MAX_ROWS])}{more}"
            )
        if one.commits_at_risk:
            warnings.append(
                f"{one.rule_set.name}: the server does not keep"
                f" {count_of(one.commits_at_risk, 'commit')} that the documented rule keeps"
            )
    if side is None:
        return warnings
    if side.staged.run_id is None:
        warnings.append(NO_RUN)
    if not side.listing:
        warnings.append(METADATA_ONLY)
    if request.inventory is not None:
        warnings.append(request.inventory.warning())
    cutoff = to_us(request.as_of) - request.min_age_seconds * 1_000_000
    if side.listing:
        warnings += history.warnings(cutoff) + side.staged.warnings(cutoff)
    for name, of in side.by_rule_set.items():
        if objects := of.totals.protected_by_alias.objects:
            warnings.append(
                f"{name}: {count_of(objects, 'object is', 'objects are')} kept only because addresses in"
                " kept commits have a different URL or an unusual spelling, and may therefore refer to"
                " stored objects"
                + ("" if request.storage_namespace else "; use --storage-namespace to resolve such addresses")
            )
    return warnings


def judge_all(request: SimulateRequest, history: CommitHistory) -> list[Judged]:
    return [judge(history.graph, r, request.as_of, request.zone) for r in request.rule_sets]


def simulate_commits(request: SimulateRequest, namespace: NamespaceReader) -> SimulateDocument:
    """The summary document without objects, for ``--commits-only``. Writes ``commits/`` and ``summary.json``
    when an output is requested. Raises what ``read_history`` raises, and UsageError for the output."""
    if request.output is not None:
        # Importing pyarrow takes longer than everything else here.
        from lakeplan.simulation import output

        output.check_target(request.output, overwrite=request.overwrite)
    history = read_history(namespace)
    judged = judge_all(request, history)
    document = summary(request, namespace.url, history, judged, None)
    if request.output is not None:
        with output.written(request.output, overwrite=request.overwrite) as folder:
            output.write_table(folder / "commits", output.commits_table(history.graph, judged))
            output.write_summary(folder, document)
    return document
