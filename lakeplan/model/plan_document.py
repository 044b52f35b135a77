"""The JSON form of a plan: every dataclass field under its own name, nothing else.

``digest`` is the SHA-256 of the canonical document without itself: a cut or edited file is told at once.
"""

from __future__ import annotations

import hashlib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum

from lakeplan.errors import LakeplanError
from lakeplan.model.plan import PLAN_FORMAT, Action, Plan
from lakeplan.model.rules import GcRules

Json = typing.Any


def to_document(plan: Plan) -> dict[str, Json]:
    """The document as plain JSON data: the plan's fields, ``format``, a ``summary`` and its ``digest``."""
    document: dict[str, Json] = {"format": PLAN_FORMAT, **_encode(plan)}
    for encoded, repository in zip(document["repositories"], plan.repositories, strict=True):
        encoded["before_etag"] = repository.before_etag
        encoded["after_etag"] = repository.after_etag
    document["summary"] = summarise(plan)
    document["digest"] = digest_of(document)
    return document


def summarise(plan: Plan) -> dict[str, Json]:
    """Totals over the repositories: what the first line of every output says."""
    now = [r.impact.now for r in plan.writes if r.impact.now is not None]
    known = [h for h in now if h.objects_expire is not None]
    return {
        "add": plan.count(Action.ADD),
        "change": plan.count(Action.CHANGE),
        "clear": plan.count(Action.CLEAR),
        "unchanged": plan.count(Action.NONE),
        "failed": len(plan.failed),
        "refused_gates": len(plan.refused),
        "commits_expire": sum(h.commits_expire for h in now),
        "objects_expire": sum(h.objects_expire or 0 for h in known),
        "bytes_expire": sum(h.bytes_expire or 0 for h in known),
        "objects_at_risk": sum(h.objects_at_risk or 0 for h in known),
        "impact_known": len(known) == len(plan.writes),
    }


def dump_plan(plan: Plan) -> str:
    return json.dumps(to_document(plan), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def load_plan(text: str, *, where: str) -> Plan:
    """Reads a plan file. Raises LakeplanError (naming the file) when it is cut, edited or of another kind."""
    hint = "make it again with: lakeplan plan --out FILE"
    try:
        document = json.loads(text)
    except ValueError as error:
        raise LakeplanError(
            "not a whole plan file (it is cut or is not JSON)", where=where, hint=hint, detail=str(error)
        ) from None
    if not isinstance(document, dict) or document.get("format") != PLAN_FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise LakeplanError(f"not a plan of this version: its format is {found!r}", where=where, hint=hint)
    if document.get("digest") != digest_of(document):
        raise LakeplanError("the plan was changed after it was made", where=where, hint=hint)
    try:
        return typing.cast(Plan, _decode(document, Plan))
    except (KeyError, TypeError, ValueError) as error:
        raise LakeplanError(
            "the plan lacks a field or has one of another kind", where=where, hint=hint, detail=repr(error)
        ) from None


def digest_of(document: Mapping[str, Json]) -> str:
    rest = {k: v for k, v in document.items() if k != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def rules_from_body(body: Mapping[str, Json]) -> GcRules:
    branches = {b["branch_id"]: int(b["retention_days"]) for b in body["branches"]}
    return GcRules(int(body["default_retention_days"]), branches)


def _encode(value: Json) -> Json:
    if isinstance(value, GcRules):
        return value.to_body()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(v) for v in value]
    return value


def _decode(data: Json, kind: Json) -> Json:
    """JSON data as a value of type ``kind``: the dataclasses of a plan and what stands in them."""
    origin: Json = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        return _decode(data, next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        return tuple(_decode(item, arguments[0]) for item in data)
    if origin is not None:  # Mapping[str, X]
        return {k: _decode(v, arguments[1]) for k, v in data.items()}
    if kind is GcRules:
        return rules_from_body(data)
    if kind is datetime:
        return datetime.fromisoformat(data.replace("Z", "+00:00"))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if is_dataclass(kind):
        return _decode_dataclass(data, kind)
    if kind is float and isinstance(data, int):
        return float(data)
    if not isinstance(data, kind):
        raise TypeError(f"{data!r} is not a {kind.__name__}")
    return data


def _decode_dataclass(data: Json, kind: Json) -> Json:
    hints = typing.get_type_hints(kind)
    values = {}
    for f in fields(kind):
        if f.name in data:
            values[f.name] = _decode(data[f.name], hints[f.name])
        elif f.default is MISSING and f.default_factory is MISSING:
            raise KeyError(f.name)
    return kind(**values)
