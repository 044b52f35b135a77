"""The JSON of a plan: the fields of its dataclasses under their names.

``digest`` is the SHA-256 of the canonical document without itself, so that lakeplan notices an incomplete or
edited file.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lakeplan.errors import LakeplanError
from lakeplan.limits import PLAN_BYTES, TooLarge, parse_json
from lakeplan.values.branches import SETTLED
from lakeplan.values.documents import decode, encode, format_problem
from lakeplan.values.plan import (
    INLINE_RECORDS,
    PLAN_FORMAT,
    RECORD_BYTES,
    Horizon,
    Plan,
    RepositoryPlan,
    Shown,
)
from lakeplan.values.records import json_digest, without_duplicates
from lakeplan.values.rules import Action

Json = typing.Any
OBJECTS_HEAD = b"lakeplan.plan-objects/v1\n"


def to_document(plan: Plan) -> dict[str, Json]:
    """Return the document as JSON data: the plan's fields, ``format``, a ``summary`` and its ``digest``."""
    document: dict[str, Json] = {"format": PLAN_FORMAT, **encode(plan)}
    for encoded, repository in zip(document["repositories"], plan.repositories, strict=True):
        encoded["before_etag"] = repository.before_etag
        encoded["after_etag"] = repository.after_etag
        for setting in repository.settings:
            encoded[setting.kind.value]["before_etag"] = setting.before_etag
            encoded[setting.kind.value]["after_etag"] = setting.after_etag
    document["summary"] = summarise(plan)
    document["digest"] = digest_of(document)
    return document


def summarise(plan: Plan) -> dict[str, Json]:
    """Return the totals over the repositories that are written. Unknown impacts count as 0 here.
    ``impact_unknown`` is the number of repositories with an unknown impact."""
    writes = plan.writes
    now = [h for r in writes if (h := r.impact.now) is not None]
    month = [h for r in writes if (h := r.impact.horizons.get(Horizon.MONTH.value)) is not None]
    known = [r for r in writes if r.impact_known]
    read = [h for h in now if h.objects_expire is not None]
    return {
        "add": plan.count(Action.ADD),
        "change": plan.count(Action.CHANGE),
        "clear": plan.count(Action.CLEAR),
        "unchanged": plan.count(Action.NONE),
        "failed": len(plan.failed),
        "refused_gates": len(plan.refused),
        "commits_expire": sum(h.commits_expire for h in now),
        "objects_expire": sum(h.objects_expire or 0 for h in read),
        "bytes_expire": sum(h.bytes_expire or 0 for h in read),
        "objects_at_risk": sum(h.objects_at_risk or 0 for h in read),
        "objects_expire_plus_30_days": sum(h.objects_expire or 0 for h in month),
        "bytes_expire_plus_30_days": sum(h.bytes_expire or 0 for h in month),
        "impact_known": len(known) == len(writes),
        "impact_unknown": len(writes) - len(known),
        **_branches(plan),
        "cost_expire": _costs(writes),
    }


def _costs(writes: Sequence[RepositoryPlan]) -> list[dict[str, Json]]:
    """Return the monthly cost of the bytes that expire, by currency, on servers that have a price."""
    by_currency: dict[str, dict[str, Json]] = {}
    for repository in writes:
        price = repository.cost_per_gb_month
        if price is None:
            continue
        sums = by_currency.setdefault(
            price.currency, {"currency": price.currency, "per_month": 0.0, "per_month_plus_30_days": 0.0}
        )
        for key, horizon in (("per_month", Horizon.NOW), ("per_month_plus_30_days", Horizon.MONTH)):
            figures = repository.impact.horizons.get(horizon.value)
            sums[key] += price.monthly((figures.bytes_expire or 0) if figures is not None else 0)
    return [by_currency[currency] for currency in sorted(by_currency)]


def _branches(plan: Plan) -> dict[str, Json]:
    """Return what the next ``branches run`` does. All figures are None if the plan could not list any
    branches for it. Figures of objects are None if not all were read."""
    listed = [r.lifecycle for r in plan.repositories if r.failure is None and r.lifecycle is not None]
    settled = [b.totals[SETTLED] for b in listed if SETTLED in b.totals]
    known = not any(b.unknown for b in listed) and all(t.objects is not None for t in settled)
    counted = [b for b in listed if not b.unknown]
    expired = sum(b.expired for b in counted)
    return {
        "branches_delete": expired if counted else None,
        "branches_keep": sum(len(b.branches) for b in counted) - expired if counted else None,
        "objects_follow": sum(t.objects or 0 for t in settled) if listed and known else None,
        "bytes_follow": sum(t.size_bytes or 0 for t in settled) if listed and known else None,
    }


def dump_plan(plan: Plan) -> str:
    """Return the plan file: JSON in UTF-8, with lone surrogates as escapes."""
    text = json.dumps(to_document(plan), indent=2, sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def load_plan(text: str, *, where: str, problem: Callable[[Json], str] | None = None) -> Plan:
    """Return the plan in the text of a plan file, which may come from a stranger. ``problem`` returns what a
    schema finds wrong with the document, or "".

    Raises LakeplanError, which names the file, if the file is incomplete, was edited, is not a plan, or has
    anything that lakeplan does not write. Totals and ETags must match the rest of the document.
    """
    hint = "Run `lakeplan plan --out FILE` to create it again."
    try:
        document = parse_json(text, limit=PLAN_BYTES, pairs=without_duplicates)
    except ValueError as error:
        what = str(error) if isinstance(error, TooLarge) else "it is truncated or not JSON"
        raise LakeplanError(
            f"cannot read the plan file: {what}", where=where, hint=hint, detail=str(error)
        ) from None
    if foreign := format_problem(document, PLAN_FORMAT):
        raise LakeplanError(f"cannot read the plan file: {foreign}", where=where, hint=hint)
    if document.get("digest") != digest_of(document):
        raise LakeplanError("the plan was changed after it was created", where=where, hint=hint)
    try:
        if problem is not None and (why := problem(document)):
            raise ValueError(why)
        plan = typing.cast(Plan, decode(document, Plan))
        if len({r.key for r in plan.repositories}) != len(plan.repositories):
            raise ValueError("it lists a repository twice")
        if to_document(plan)["digest"] != document["digest"]:
            raise ValueError("its totals or ETags do not match its repositories")
        for repository in plan.repositories:
            _check_shown(repository)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise LakeplanError(
            f"lakeplan did not write this plan file: {_briefly(error)}", where=where, hint=hint
        ) from None
    return plan


def _check_shown(plan: RepositoryPlan) -> None:
    """Raise ValueError if the records in the plan file do not match its counts."""
    shown = plan.impact.shown
    if shown is None:
        return
    if bool(shown.inline) != (0 < shown.records <= INLINE_RECORDS):
        raise ValueError(f"the objects of {plan.key} are stored in the wrong file")
    shown.read()


def dump_objects(plan: Plan) -> bytes:
    """Return the file beside a plan file: the records of the repositories that have too many for the plan
    file, in the plan's order. Empty if there are none."""
    parts = [r.impact.shown.data or b"" for r in _stored_apart(plan) if r.impact.shown is not None]
    return b"".join((OBJECTS_HEAD, *parts)) if parts else b""


def with_objects(plan: Plan, data: bytes) -> Plan:
    """Return the plan with the records of the file beside it. Raises ValueError if they belong to another
    plan."""
    head, at = len(OBJECTS_HEAD), len(OBJECTS_HEAD)
    known: dict[str, Shown] = {}
    for repository in _stored_apart(plan):
        shown = repository.impact.shown
        assert shown is not None
        end = at + shown.records * RECORD_BYTES
        known[repository.key] = replace(shown, data=data[at:end])
        at = end
    if data[:head] != OBJECTS_HEAD or at != len(data) or not all(s.read() for s in known.values()):
        raise ValueError("it does not belong to the plan")
    return with_shown(plan, known)


def with_shown(plan: Plan, known: Mapping[str, Shown]) -> Plan:
    """Return the plan with these records, by ``server/name``."""
    repositories = (
        replace(r, impact=replace(r.impact, shown=known[r.key])) if r.key in known else r
        for r in plan.repositories
    )
    return replace(plan, repositories=tuple(repositories))


def needs_objects_file(plan: Plan) -> bool:
    """Return whether a plan has too many records for the plan file."""
    return bool(_stored_apart(plan))


def _stored_apart(plan: Plan) -> list[RepositoryPlan]:
    return [r for r in plan.repositories if r.impact.shown and r.impact.shown.records > INLINE_RECORDS]


def _briefly(error: Exception) -> str:
    text = f"it has no key {error}" if isinstance(error, KeyError) else str(error)
    return text if len(text) <= 300 else text[:299] + "…"


def digest_of(document: Mapping[str, Json]) -> str:
    return json_digest({key: value for key, value in document.items() if key != "digest"})
