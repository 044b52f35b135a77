"""The JSON documents and exit codes of ``branches plan``, ``run``, ``undo`` and ``exempt``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NotRequired, TypedDict

from lakeplan.branches.announce import Exempted
from lakeplan.branches.deleting import (
    BranchEnd,
    BranchesReport,
    BranchRestored,
    Outcome,
    RepositoryEnd,
    Restored,
    ReviewedBranch,
    UndoReport,
    is_held_elsewhere,
)
from lakeplan.branches.plan import EVEREST, BranchPolicyPlan, RepositoryOutlook
from lakeplan.branches.run import Reviewed
from lakeplan.errors import ExitCode, FormatError
from lakeplan.review.base import ReviewedSettings
from lakeplan.values.branches import MomentTotal, branch_row
from lakeplan.values.desired import PriceRow
from lakeplan.values.documents import (
    BranchEntry,
    FailureRow,
    Following,
    GateRow,
    TotalRow,
    decode,
    encode,
    failure_row,
    format_problem,
    gate_row,
)
from lakeplan.values.plan import GateOutcome
from lakeplan.values.records import any_moment, moment_in, moment_of, utc_second_text

PLAN_FORMAT: Final = "lakeplan.lifecycle-plan/v1"


# ---- plan
class PlanSummary(TypedDict):
    branches: int
    delete: int
    keep: int
    failed: int


class PlannedRepository(Following):
    """``default_branch``, ``read_only`` and ``observed_since`` are None if there is a ``failure``."""

    repository: str
    owner: str | None
    default_branch: str | None
    read_only: bool | None
    observed_since: str | None
    branches: list[BranchEntry]
    gates: list[GateRow]
    settings: Mapping[str, object]
    warnings: list[str]
    blind_to: list[str]
    failure: FailureRow | None
    cost_per_gb_month: NotRequired[PriceRow]


class PlanDocument(TypedDict):
    """The document of ``schemas/lifecycle.v1.json``, which also has the next two documents."""

    format: Literal["lakeplan.lifecycle-plan/v1"]
    now: str
    as_of: str
    repositories: list[PlannedRepository]
    gates: list[GateRow]
    not_ours: list[str]
    caveats: list[str]
    summary: PlanSummary


def plan_document(plan: BranchPolicyPlan) -> PlanDocument:
    branches = [o for r in plan.repositories for o in r.outlooks]
    return {
        "format": PLAN_FORMAT,
        "now": utc_second_text(plan.now),
        "as_of": utc_second_text(plan.as_of),
        "repositories": [_repository(r) for r in plan.repositories],
        "gates": [gate_row(g) for g in plan.gates],
        "not_ours": list(plan.not_ours),
        "caveats": [EVEREST],
        "summary": {
            "branches": len(branches),
            "delete": sum(1 for b in branches if b.verdict.deletes),
            "keep": sum(1 for b in branches if not b.verdict.deletes),
            "failed": len(plan.failed),
        },
    }


def _repository(repository: RepositoryOutlook) -> PlannedRepository:
    survey = repository.survey
    return {
        "repository": repository.key,
        "owner": repository.desired.owner,
        "default_branch": survey.repository.default_branch if survey else None,
        "read_only": survey.repository.read_only if survey else None,
        "observed_since": utc_second_text(moment_of(survey.ledger.began * 1_000_000)) if survey else None,
        "branches": [encode(branch_row(o)) for o in repository.outlooks],
        "totals": {name: _total(t) for name, t in survey.totals.items()} if survey else {},
        "objects_unknown": survey.objects_unknown if survey else "",
        "gates": [gate_row(g) for g in repository.gates],
        "settings": encode(ReviewedSettings(repository.desired.branch_settings, repository.desired.safety)),
        "warnings": list(repository.warnings),
        "blind_to": list(survey.blind_to) if survey else [],
        "failure": failure_row(repository.failure),
    }


def _total(total: MomentTotal) -> TotalRow:
    return {
        "as_of": utc_second_text(total.as_of),
        "commits": total.commits,
        "objects": total.objects,
        "size_bytes": total.size_bytes,
    }


@dataclass(frozen=True)
class ReviewedPlan:
    """A reviewed plan. ``branches`` are the deletions of the plan. ``settings`` by ``server/name``."""

    branches: Reviewed
    settings: Mapping[str, ReviewedSettings]


MAKE_A_PLAN = "Run `lakeplan branches plan --out FILE` to create a plan."


def reviewed_of(document: Any, where: str) -> ReviewedPlan:
    """The deletions of a plan document and the settings with which it was made. Raises FormatError for any
    other document."""
    try:
        if foreign := format_problem(document, PLAN_FORMAT):
            raise ValueError(foreign)
        branches = {
            str(r["repository"]): {
                str(b["branch_id"]): ReviewedBranch(
                    str(b["commit_id"]),
                    None if b["uncommitted_more"] else int(b["uncommitted"] or 0),
                    _written(b["last_write"]),
                )
                for b in r["branches"]
                if b["verdict"] == "delete"
            }
            for r in document["repositories"]
        }
        settings = {
            str(r["repository"]): decode(r["settings"], ReviewedSettings) for r in document["repositories"]
        }
        return ReviewedPlan(branches, settings)
    except (KeyError, TypeError, ValueError) as error:
        why = str(error) if isinstance(error, ValueError) else f"{error} is missing"
        why = "a value has the wrong type" if isinstance(error, TypeError) else why
        raise FormatError(
            f"cannot read the branch plan: {why[:200]}", where=where, hint=MAKE_A_PLAN
        ) from None


def _written(text: Any) -> datetime | None:
    """A moment of a document, if any. Raises ValueError for anything but a moment with a zone."""
    if text is None:
        return None
    any_moment(text, "last_write")
    return moment_in(text)


def plan_exit_code(plan: BranchPolicyPlan, *, detailed: bool) -> ExitCode:
    if plan.failed:
        return ExitCode.ERROR if len(plan.failed) == len(plan.repositories) else ExitCode.PARTLY_DONE
    if plan.refused:
        return ExitCode.REFUSED
    return ExitCode.CHANGES_PENDING if detailed and plan.deletions else ExitCode.OK


# ---- run
class RunBranch(TypedDict):
    branch_id: str
    commit_id: str
    hidden: bool
    outcome: str
    policy: str | None
    since: str | None
    safe_until: str | None
    uncommitted: int
    message: str


class NoticedBranch(TypedDict):
    """A branch whose deletion the run announced. It may be deleted from ``deleted_from`` on."""

    branch_id: str
    commit_id: str
    policy: str | None
    channel: str
    deleted_from: str


class RunRepository(TypedDict):
    """The results in one repository. ``kept`` and ``observed`` count branches."""

    repository: str
    branches: list[RunBranch]
    noticed: list[NoticedBranch]
    kept: int
    observed: int
    gates: list[GateRow]
    warnings: list[str]
    failure: FailureRow | None


class RunDocument(TypedDict):
    """The document of a run. ``summary`` counts branches by ``Outcome``, those ``kept``, and
    ``repositories_failed``."""

    format: Literal["lakeplan.lifecycle-run/v1"]
    run_id: str
    at: str
    repositories: list[RunRepository]
    gates: list[GateRow]
    not_ours: list[str]
    summary: dict[str, int]


def run_document(report: BranchesReport) -> RunDocument:
    results = [b for r in report.repositories for b in r.branches]
    return {
        "format": "lakeplan.lifecycle-run/v1",
        "run_id": report.run_id,
        "at": utc_second_text(report.at),
        "repositories": [_end(r) for r in report.repositories],
        "gates": [gate_row(g) for g in report.gates],
        "not_ours": list(report.not_ours),
        "summary": {
            **{o.value: sum(1 for e in results if e.outcome is o) for o in Outcome},
            "kept": sum(r.kept for r in report.repositories),
            "noticed": sum(len(r.noticed) for r in report.repositories),
            "repositories_failed": sum(1 for r in report.repositories if r.failure is not None),
        },
    }


def _end(repository: RepositoryEnd) -> RunRepository:
    return {
        "repository": repository.key,
        "branches": [_branch_end(e) for e in repository.branches],
        "noticed": encode(repository.noticed),
        "kept": repository.kept,
        "observed": repository.observed,
        "gates": [gate_row(g) for g in repository.gates],
        "warnings": list(repository.warnings),
        "failure": failure_row(repository.failure),
    }


def _branch_end(end: BranchEnd) -> RunBranch:
    outlook = end.outlook
    return {
        "branch_id": outlook.id,
        "commit_id": outlook.facts.commit_id,
        "hidden": outlook.facts.hidden,
        "outcome": end.outcome.value,
        "policy": outlook.verdict.policy,
        "since": utc_second_text(outlook.verdict.since),
        "safe_until": utc_second_text(outlook.safe_until),
        "uncommitted": len(outlook.staged.changes) if outlook.staged else 0,
        "message": end.message,
    }


def run_exit_code(report: BranchesReport) -> ExitCode:
    """The exit code for the worst result: an error, another run, a gate that refused, a partial failure."""
    failed = [r for r in report.repositories if r.failure is not None]
    gates = (*report.gates, *(g for r in report.repositories for g in r.gates))
    if failed:
        if len(failed) < len(report.repositories):
            return ExitCode.PARTLY_DONE
        return ExitCode.STALE if all(map(is_held_elsewhere, failed)) else ExitCode.ERROR
    if any(g.outcome is GateOutcome.REFUSED for g in gates):
        return ExitCode.REFUSED
    outcomes = [b.outcome for r in report.repositories for b in r.branches]
    partly = {Outcome.FAILED, Outcome.UNCERTAIN, Outcome.STOPPED}
    return ExitCode.PARTLY_DONE if partly & set(outcomes) else ExitCode.OK


# ---- undo
class UndoneBranch(TypedDict):
    branch_id: str
    commit_id: str
    hidden: bool
    outcome: str
    message: str
    warnings: list[str]
    safe_until: str | None
    uncommitted_lost: int
    objects_sampled: int
    objects_gone: int


class UndoneRepository(TypedDict):
    """The restored branches of one repository. ``of_run`` is the run that is undone, ``at`` its time."""

    repository: str
    of_run: str
    at: str
    branches: list[UndoneBranch]
    failure: FailureRow | None


class UndoDocument(TypedDict):
    """The document of an undo. ``summary`` counts branches by ``Restored``."""

    format: Literal["lakeplan.lifecycle-undo/v1"]
    run_id: str
    repositories: list[UndoneRepository]
    summary: dict[str, int]


def undo_document(report: UndoReport) -> UndoDocument:
    results = [b for r in report.repositories for b in r.branches]
    return {
        "format": "lakeplan.lifecycle-undo/v1",
        "run_id": report.run_id,
        "repositories": [
            {
                "repository": r.repository,
                "of_run": r.run_id,
                "at": r.at,
                "branches": [_restored(b) for b in r.branches],
                "failure": failure_row(r.failure),
            }
            for r in report.repositories
        ],
        "summary": {o.value: sum(1 for e in results if e.outcome is o) for o in Restored},
    }


def _restored(end: BranchRestored) -> UndoneBranch:
    return {
        "branch_id": end.branch_id,
        "commit_id": end.deletion.head,
        "hidden": end.deletion.hidden,
        "outcome": end.outcome.value,
        "message": end.message,
        "warnings": list(end.warnings),
        "safe_until": end.deletion.safe_until,
        "uncommitted_lost": end.deletion.uncommitted,
        "objects_sampled": end.sampled,
        "objects_gone": end.gone,
    }


def undo_exit_code(report: UndoReport) -> ExitCode:
    outcomes = [b.outcome for r in report.repositories for b in r.branches]
    if Restored.UNCERTAIN in outcomes:
        return ExitCode.PARTLY_DONE
    if Restored.FAILED in outcomes or any(r.failure is not None for r in report.repositories):
        return ExitCode.PARTLY_DONE if Restored.RESTORED in outcomes else ExitCode.ERROR
    return ExitCode.OK


# ---- exempt
class ExemptionDocument(TypedDict):
    """The document of an exemption. ``until`` is the end of the exemption. With ``removed``, it is the moment
    of its removal."""

    format: Literal["lakeplan.exemption/v1"]
    repository: str
    branch_id: str
    at: str
    until: str
    by: str
    reason: str
    removed: bool


def exemption_document(done: Exempted) -> ExemptionDocument:
    exemption = done.exemption
    return {
        "format": "lakeplan.exemption/v1",
        "repository": done.repository,
        "branch_id": done.branch,
        "at": utc_second_text(exemption.at),
        "until": utc_second_text(exemption.end),
        "by": exemption.by,
        "reason": exemption.reason,
        "removed": exemption.removed,
    }
