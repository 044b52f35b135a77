"""JSON documents: values as JSON data, and parts that several rooms write."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Literal, TypedDict, cast

from lakeplan.errors import LakeplanError
from lakeplan.values.plan import Failure, GateResult
from lakeplan.values.records import moment_in, utc_text
from lakeplan.values.rules import GcRules, rules_from_body

Json = Any


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
    return cast(GateRow, {name: encode(getattr(gate, name)) for name in GateRow.__annotations__})


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


def encode(value: Json) -> Json:
    """Return a dataclass as JSON data, with its fields under their names."""
    if isinstance(value, GcRules):
        return value.to_body()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value) if not _is_left_out(f, value)}
    if isinstance(value, Mapping):
        return {str(encode(k)): encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    return value


def _is_left_out(of: Field[Json], value: Json) -> bool:
    missing = of.metadata.get("optional") and getattr(value, of.name) is None
    return bool(of.metadata.get("not_in_document") or missing)


def decode(data: Json, kind: Json) -> Json:
    """Return the value of type ``kind`` that ``encode`` wrote as this JSON data. A missing field has its
    default. Raises TypeError, KeyError or ValueError."""
    origin: Json = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        return decode(data, next(a for a in arguments if a is not type(None)))
    if origin is typing.Literal:
        if data not in arguments:
            raise ValueError(f"{data!r} is not one of {', '.join(map(repr, arguments))}")
        return data
    if origin is tuple:
        return tuple(decode(item, arguments[0]) for item in _typed(data, list))
    if origin is not None:  # Mapping[str, X], or of words
        return {decode(k, arguments[0]): decode(v, arguments[1]) for k, v in _typed(data, dict).items()}
    if kind is typing.Any:
        return data
    if kind is GcRules:
        return rules_from_body(data)
    if kind is datetime:
        return moment_in(_typed(data, str))
    if kind is date:
        return date.fromisoformat(_typed(data, str))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if is_dataclass(kind):
        return _decode_dataclass(_typed(data, dict), kind)
    if kind is float and isinstance(data, int):
        return _typed(data, int)  # unchanged, so that a plan that is loaded and stored has the same digest
    return _typed(data, kind)


def _typed(data: Json, kind: type) -> Json:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise TypeError(f"{data!r} is not a {kind.__name__}")
    return data


def _decode_dataclass(data: Json, kind: Json) -> Json:
    hints = typing.get_type_hints(kind)
    values = {}
    for f in fields(kind):
        if f.metadata.get("not_in_document"):
            continue
        if f.name in data:
            values[f.name] = decode(data[f.name], hints[f.name])
        elif f.default is MISSING and f.default_factory is MISSING:
            raise KeyError(f.name)
    return kind(**values)
