"""Parts of JSON documents that several rooms write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Literal, TypedDict, cast

from lakeplan.errors import LakeplanError
from lakeplan.values.plan import Failure, GateResult


class GateRow(TypedDict):
    gate: str
    scope: str
    outcome: Literal["passed", "warned", "refused", "allowed", "overridden"]
    message: str
    value: float | None
    limit: float | None
    unit: str
    opens_with: str


def gate_row(gate: GateResult) -> GateRow:
    return {
        "gate": gate.gate,
        "scope": gate.scope,
        "outcome": gate.outcome.value,
        "message": gate.message,
        "value": gate.value,
        "limit": gate.limit,
        "unit": gate.unit,
        "opens_with": gate.opens_with,
    }


class ErrorRow(TypedDict):
    message: str
    where: str
    hint: str


class FailureRow(ErrorRow):
    """A repository that could not be planned or written to."""

    exit_code: int


class ProblemRow(TypedDict):
    """A problem of a tree, and where it is."""

    file: str
    line: int
    column: int
    path: str
    message: str


class ProblemsDocument(TypedDict):
    """The part that all documents of ``validate`` share."""

    problems: list[ProblemRow]


def format_problem(document: object, expected: str) -> str:
    """Return why a JSON document does not have a format such as ``lakeplan.plan/v1``, or "" if it does."""
    name = document.get("format") if isinstance(document, dict) else None
    if name == expected:
        return ""
    if not isinstance(name, str) or not name.startswith("lakeplan."):
        return "it is not a lakeplan document"
    if name.partition("/")[0] == expected.partition("/")[0]:
        return f"its format is {name[:60]}, but this version of lakeplan reads {expected}"
    return f"it is a different kind of lakeplan document: {name[:60]}"


def error_rows(errors: Mapping[str, LakeplanError]) -> dict[str, ErrorRow]:
    """Return the errors by ``server/name`` in the form that documents have."""
    return {
        key: {"message": error.message, "where": error.where, "hint": error.hint}
        for key, error in errors.items()
    }


def failure_row(failure: Failure | None) -> FailureRow | None:
    return None if failure is None else cast(FailureRow, asdict(failure))


class _Counts(TypedDict):
    commits: int
    objects: int | None
    size_bytes: int | None


class FollowsRow(_Counts):
    """``values.branches.Consequence``."""

    tags: list[str]


class OnlyHereRow(_Counts):
    """``values.branches.OnlyHere``."""

    idle_since: str


class TotalRow(_Counts):
    """``values.branches.MomentTotal``."""

    as_of: str


class Following(TypedDict):
    """The consequences of deleting branches, by moment. ``objects_unknown`` says why objects were not
    read."""

    totals: Mapping[str, TotalRow]
    objects_unknown: str


class Losses(TypedDict):
    """The data that is lost with a branch. ``uncommitted`` is None if it was not read."""

    uncommitted: int | None
    uncommitted_more: bool
    pulls: list[str]
    tags: list[str]


class BranchEntry(Losses):
    """``values.branches.BranchRow``."""

    branch_id: str
    commit_id: str
    hidden: bool
    verdict: Literal["delete", "keep"]
    reason: str
    policy: str | None
    since: str | None
    due: str | None
    created: str | None
    created_evidence: str | None
    last_write: str | None
    last_write_evidence: str | None
    safe_until: str | None
    follows: FollowsRow | None
    notes: list[str]
    only_here: OnlyHereRow | None
