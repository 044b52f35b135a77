"""The document of ``lakeplan explain`` (``schemas/explain.v1.json``), for JSON and for the terminal alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any

from lakeplan.explain.rules import BranchExplanation, Explanation, Pass, Reason, Remedy
from lakeplan.explain.search import Holding
from lakeplan.explain.what import What
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import NEVER_EXPIRES, limit_us
from lakeplan.values.objects import StoredObject
from lakeplan.values.rules import GcRules

FORMAT = "lakeplan.explain/v1"
SHOWN = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Json = dict[str, Any]
Explained = tuple[Explanation, Mapping[str, str]]


@dataclass(frozen=True)
class ObjectFacts:
    """Everything that is known of an object besides the rules. ``stored`` None with ``storage_seen``: it is
    not in storage."""

    holding: Holding
    commits: Sequence[int]
    staged: tuple[str, ...]
    staged_complete: bool
    storage_seen: bool
    stored: StoredObject | None
    young: bool


def document_head(
    name: str, as_of: datetime, what: What, rule_sets: Sequence[tuple[str, GcRules | None]]
) -> Json:
    """What was asked, and of which rules."""
    return {
        "format": FORMAT,
        "name": name,
        "as_of": _iso((as_of - _EPOCH) // timedelta(microseconds=1)),
        "what": {"kind": what.kind, "text": _text(what.text), "ref": what.ref, "ref_commit": what.ref_commit},
        "rule_sets": [{"name": n, "rules": None if r is None else r.to_body()} for n, r in rule_sets],
    }


def object_document(graph: CommitGraph, facts: ObjectFacts, explained: Sequence[Explained]) -> Json:
    holding = facts.holding
    by_date = sorted(facts.commits, key=lambda n: (graph.creation_us[n], n))
    stored = facts.stored
    return {
        "kind": "object",
        "address": _text(holding.address),
        "inside": holding.inside,
        "maybe_inside": holding.maybe_inside,
        "size_bytes": stored.size if stored is not None else holding.size,
        "paths": sorted(holding.paths)[:SHOWN],
        "path_count": len(holding.paths),
        "commits": len(facts.commits),
        "first_commit": _commit_ref(graph, by_date[0]) if by_date else None,
        "last_commit": _commit_ref(graph, by_date[-1]) if by_date else None,
        "only_by_alias": bool(holding.aliases) and not holding.metaranges,
        "stored": stored is not None if facts.storage_seen else None,
        "stored_at": _iso(stored.modified_us) if stored is not None else None,
        "staged": list(facts.staged),
        "verdicts": [_verdict(_object_status(facts, e), e, sources) for e, sources in explained],
    }


def _object_status(facts: ObjectFacts, explanation: Explanation) -> str:
    """As the simulation judges (the collector's order does not matter: one reason to stay is enough)."""
    if not facts.holding.inside:
        return "unknown" if facts.holding.maybe_inside else "outside"
    if facts.storage_seen and facts.stored is None:
        return "missing" if explanation.server or explanation.documented else "collected"
    if not explanation.has_rules:
        return "no_rules"
    if explanation.server:
        return "kept"
    if facts.staged:
        return "staged"
    if facts.young:
        return "young"
    if not is_candidate_key(facts.holding.address):
        return "elsewhere"
    if not facts.commits:
        seen = facts.storage_seen or facts.staged_complete
        return "never_committed" if seen else "unknown"
    return "at_risk" if explanation.documented else "expired"


def commit_document(graph: CommitGraph, number: int, via: str | None, explained: Sequence[Explained]) -> Json:
    commit = graph.ids[number]
    return {
        "kind": "commit",
        **_commit_ref(graph, number),
        "via": via,
        "holds_data": bool(graph.meta_range_ids[number]),
        "head_of": [b.id for b in graph.branches if b.commit_id == commit][:SHOWN],
        "tags": sorted(t.id for t in graph.tags if t.commit_id == commit)[:SHOWN],
        "verdicts": [_verdict(_commit_status(e), e, sources) for e, sources in explained],
    }


def _commit_status(explanation: Explanation) -> str:
    if explanation.server:
        return "kept" if explanation.has_rules else "no_rules"
    return "at_risk" if explanation.documented else "expired"


def branch_document(
    graph: CommitGraph,
    branch: str,
    head: int,
    as_of: datetime,
    zone: tzinfo,
    kept: Sequence[tuple[BranchExplanation, str | None]],
) -> Json:
    return {
        "kind": "branch",
        "branch": branch,
        "head": _commit_ref(graph, head),
        "verdicts": [
            {
                "rule_set": one.rule_set,
                "status": "no_rules" if one.days is None else "kept",
                "days": one.days,
                "is_default": one.is_default,
                "source": source,
                "keeps_since": None if one.days is None else _iso(limit_us(as_of, one.days, zone)),
                "commits": one.commits,
                "commits_alone": one.alone,
                "oldest_commit": None if one.oldest is None else _commit_ref(graph, graph.index[one.oldest]),
                "commits_lost_if_deleted": one.loses,
            }
            for one, source in kept
        ],
    }


def _verdict(status: str, explanation: Explanation, sources: Mapping[str, str]) -> Json:
    return {
        "rule_set": explanation.rule_set,
        "status": status,
        "server": explanation.server,
        "documented": explanation.documented,
        "commits_kept_by_server": explanation.kept_by_server,
        "commits_kept_documented": explanation.kept_by_documented,
        "commit_id": explanation.commit,
        "reasons": [_reason(reason, sources) for reason in explanation.reasons],
        "reason_count": explanation.reason_count,
        "branches": list(explanation.branches),
        "branch_count": explanation.branch_count,
        "kept_until": None if explanation.until_us is None else _iso(explanation.until_us),
        "gone_since": None if explanation.gone_since_us is None else _iso(explanation.gone_since_us),
        "walk": None if explanation.walk is None else [_pass(one) for one in _deciding(explanation)],
        "walk_count": 0 if explanation.walk is None else len(explanation.walk),
        "to_stay": [_remedy(r) for r in explanation.to_stay],
        "to_go": [_remedy(r) for r in explanation.to_go],
        "to_go_branches_left_out": max(
            0, explanation.branch_count - sum(r.branch is not None for r in explanation.to_go)
        )
        if explanation.to_go
        else 0,
    }


def _deciding(explanation: Explanation) -> list[Pass]:
    """The first walks, and those of whoever keeps it and of whoever stopped them."""
    walk = explanation.walk or ()
    asked = {reason.keeper.start for reason in explanation.reasons[:1]}
    asked |= {one.stopped_by for one in walk if one.start in asked and one.stopped_by is not None}
    return [one for n, one in enumerate(walk) if n < SHOWN or one.start in asked]


def _reason(reason: Reason, sources: Mapping[str, str]) -> Json:
    keeper = reason.keeper
    return {
        "branch": keeper.branch,
        "start": keeper.start,
        "days": keeper.days,
        "is_default": keeper.is_default,
        "source": sources.get("" if keeper.is_default else keeper.branch or ""),
        "replaced_by": reason.replaced_by,
        "counted_from": None if reason.replaced_us is None else _iso(reason.replaced_us),
        "until": None if reason.until_us is None else _iso(reason.until_us),
    }


def _pass(one: Pass) -> Json:
    return {
        "branch": one.branch,
        "start": one.start,
        "days": one.days,
        "outcome": one.outcome,
        "stopped_at": one.stopped_at,
        "stopped_by": one.stopped_by,
    }


def _remedy(remedy: Remedy) -> Json:
    return {
        "kind": remedy.kind,
        "branch": remedy.branch,
        "days_now": remedy.days_now,
        "days": remedy.days,
        "commit_id": remedy.commit,
    }


def _commit_ref(graph: CommitGraph, number: int) -> Json:
    return {"commit_id": graph.ids[number], "creation_date": _iso(graph.creation_us[number])}


def _iso(us: int) -> str:
    """ISO 8601 with a Z; what no calendar has is shown at its end."""
    if us >= NEVER_EXPIRES:
        return "9999-12-31T23:59:59Z"
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return "9999-12-31T23:59:59Z" if us > 0 else "0001-01-01T00:00:00Z"
    return moment.isoformat().replace("+00:00", "Z")


def _text(text: str) -> str:
    """Keys that are not UTF-8 as text that JSON takes."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
