"""The document of ``lakeplan explain``, from which JSON and terminal output are made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict, cast

from lakeplan.explain.rules import Explanation, Judge, Outcome, Pass, Remedy, iso
from lakeplan.explain.rules import Kind as RemedyKind
from lakeplan.explain.rules import ReasonRow as ReasonRow
from lakeplan.explain.search import Holding, Kind
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import limit_us, server_verdict
from lakeplan.sweep.documents import TraceRow
from lakeplan.values.repository import StoredObject
from lakeplan.values.rules import RulesBody

SHOWN = 10
RuleSetName = Literal["stored", "proposed", "rules", "compare"]
Status = Literal[
    "kept",
    "no_rules",
    "staged",
    "young",
    "at_risk",
    "expired",
    "never_committed",
    "unknown",
    "outside",
    "elsewhere",
    "missing",
    "collected",
]


class CommitRef(TypedDict):
    commit_id: str
    creation_date: str


ProtectionKind = Literal["hold", "tag", "newest", "pin", "repository"]


class ProtectionRow(TypedDict):
    """Protection from lakeplan's sweeps that is independent of the rules. Every collector keeps a ``pin``,
    which is a branch. The other kinds count only for lakeplan's sweeps. ``prefix`` is set for a hold on a
    prefix. ``until`` is the last day of a hold."""

    kind: ProtectionKind
    name: str
    prefix: str | None
    until: str | None
    reason: str


class PassRow(TypedDict):
    branch: str | None
    start: str
    days: int
    outcome: Outcome
    stopped_at: str | None
    stopped_by: str | None


class RemedyRow(TypedDict):
    kind: RemedyKind
    branch: str | None
    days_now: int | None
    days: int | None
    commit_id: str | None


class Verdict(TypedDict):
    """The verdict of one rule set on an object or a commit."""

    rule_set: str
    status: Status
    server: bool
    documented: bool
    commits_kept_by_server: int
    commits_kept_documented: int
    commit_id: str | None
    reasons: list[ReasonRow]
    reason_count: int
    branches: list[str]
    branch_count: int
    kept_until: str | None
    gone_since: str | None
    walk: list[PassRow] | None
    walk_count: int
    to_stay: list[RemedyRow]
    to_go: list[RemedyRow]
    to_go_branches_left_out: int


class BranchVerdict(TypedDict):
    """The commits that a branch keeps under one rule set. ``commits_alone``: how many of them no other branch
    keeps. ``commits_lost_if_deleted``: how many commits the server would not keep if the branch were deleted.
    The commits of the branch would then be dangling, with the default days."""

    rule_set: str
    status: Literal["kept", "no_rules"]
    days: int | None
    is_default: bool
    source: str | None
    keeps_since: str | None
    commits: int
    commits_alone: int
    oldest_commit: CommitRef | None
    commits_lost_if_deleted: int


class ObjectSubject(TypedDict):
    kind: Literal["object"]
    address: str
    inside: bool
    maybe_inside: bool
    size_bytes: int | None
    paths: list[str]
    path_count: int
    commits: int
    first_commit: CommitRef | None
    last_commit: CommitRef | None
    only_by_alias: bool
    stored: bool | None
    stored_at: str | None
    staged: list[str]
    min_age_seconds: int | None
    protected_by: list[ProtectionRow]
    marks: list[TraceRow]
    verdicts: list[Verdict]


class CommitSubject(CommitRef):
    kind: Literal["commit"]
    via: str | None
    holds_data: bool
    head_of: list[str]
    tags: list[str]
    protected_by: list[ProtectionRow]
    verdicts: list[Verdict]


class BranchSubject(TypedDict):
    kind: Literal["branch"]
    branch: str
    head: CommitRef
    verdicts: list[BranchVerdict]


SubjectRow = ObjectSubject | CommitSubject | BranchSubject


class WhatRow(TypedDict):
    kind: Kind
    text: str
    ref: str | None
    ref_commit: str | None


class RuleSetRow(TypedDict):
    name: RuleSetName
    rules: RulesBody | None


class ReadRow(TypedDict):
    metaranges: int
    ranges: int
    entries: int


class ExplainDocument(TypedDict):
    """The document of ``schemas/explain.v1.json``."""

    format: Literal["lakeplan.explain/v1"]
    name: str
    as_of: str
    what: WhatRow
    rule_sets: list[RuleSetRow]
    subjects: Sequence[SubjectRow]
    subject_count: int
    read: ReadRow
    notes: list[str]


@dataclass(frozen=True)
class ObjectFacts:
    """Everything known about an object apart from the rules. If ``storage_seen`` and ``stored`` is None, the
    object is not in storage."""

    holding: Holding
    commits: Sequence[int]
    staged: tuple[str, ...]
    staged_complete: bool
    storage_seen: bool
    stored: StoredObject | None
    young: bool
    min_age_seconds: int | None = None
    protected_by: Sequence[ProtectionRow] = ()
    marks: Sequence[TraceRow] = ()


def object_document(
    graph: CommitGraph, facts: ObjectFacts, explained: Sequence[Explanation]
) -> ObjectSubject:
    holding = facts.holding
    by_date = sorted(facts.commits, key=lambda n: (graph.creation_us[n], n))
    stored = facts.stored
    return {
        "kind": "object",
        "address": text_of(holding.address),
        "inside": holding.inside,
        "maybe_inside": holding.maybe_inside,
        "size_bytes": stored.size if stored is not None else holding.size,
        "paths": sorted(holding.paths)[:SHOWN],
        "path_count": len(holding.paths),
        "commits": len(facts.commits),
        "first_commit": _commit_ref(graph, by_date[0]) if by_date else None,
        "last_commit": _commit_ref(graph, by_date[-1]) if by_date else None,
        "only_by_alias": bool(holding.aliases) and not holding.metaranges,
        "stored": stored is not None if facts.storage_seen and holding.inside else None,
        "stored_at": iso(stored.modified_us) if stored is not None else None,
        "staged": list(facts.staged),
        "min_age_seconds": facts.min_age_seconds,
        "protected_by": list(facts.protected_by),
        "marks": list(facts.marks),
        "verdicts": [
            _verdict(status, replace(e, to_stay=_to_stay(facts, status, e), to_go=_to_go(facts, status, e)))
            for e in explained
            for status in [_object_status(facts, e)]
        ],
    }


def _object_status(facts: ObjectFacts, explanation: Explanation) -> Status:
    """The status of an object, as a simulation judges it. One reason to keep the object is enough."""
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
        known = facts.storage_seen or facts.staged_complete
        return "never_committed" if known else "unknown"
    return "at_risk" if explanation.documented else "expired"


_BEYOND_RULES: Collection[Status] = (
    "outside",
    "elsewhere",
    "unknown",
    "missing",
    "collected",
    "never_committed",
)
"""No rule decides these statuses, so changing a rule is no remedy."""


def _to_stay(facts: ObjectFacts, status: Status, explanation: Explanation) -> tuple[Remedy, ...]:
    """Return the changes that would keep the object. If a sweep deleted it, there are none until it is
    restored."""
    away = any(row["state"] in ("deleted", "quarantined") for row in facts.marks)
    return () if away or status in _BEYOND_RULES else explanation.to_stay


def _to_go(facts: ObjectFacts, status: Status, explanation: Explanation) -> tuple[Remedy, ...]:
    if status in _BEYOND_RULES:
        return ()
    resets = (Remedy("reset", holder.partition("branch ")[2] or None) for holder in facts.staged)
    return (*explanation.to_go, *resets, *_protected(facts.protected_by))


def _protected(rows: Sequence[ProtectionRow]) -> tuple[Remedy, ...]:
    """Return the remedy that ends protections. Pins are branches and have a different remedy."""
    return (Remedy("end_protection"),) if any(row["kind"] != "pin" for row in rows) else ()


def commit_document(
    graph: CommitGraph,
    number: int,
    via: str | None,
    explained: Sequence[Explanation],
    protected_by: Sequence[ProtectionRow] = (),
) -> CommitSubject:
    commit = graph.ids[number]
    return {
        "kind": "commit",
        **_commit_ref(graph, number),
        "via": via,
        "holds_data": bool(graph.meta_range_ids[number]),
        "head_of": [b.id for b in graph.branches if b.commit_id == commit],
        "tags": sorted(t.id for t in graph.tags if t.commit_id == commit),
        "protected_by": list(protected_by),
        "verdicts": [
            _verdict(_commit_status(e), replace(e, to_go=(*e.to_go, *_protected(protected_by))))
            for e in explained
        ],
    }


def _commit_status(explanation: Explanation) -> Status:
    if explanation.server:
        return "kept" if explanation.has_rules else "no_rules"
    return "at_risk" if explanation.documented else "expired"


def branch_document(graph: CommitGraph, branch: str, judges: Sequence[Judge]) -> BranchSubject:
    head = next(head for each, head in zip(graph.branches, graph.heads, strict=True) if each.id == branch)
    return {
        "kind": "branch",
        "branch": branch,
        "head": _commit_ref(graph, head),
        "verdicts": [branch_verdict(judge, branch) for judge in judges],
    }


def branch_verdict(judge: Judge, branch: str) -> BranchVerdict:
    """Return the commits that a branch of the graph keeps under a judge's rules."""
    graph, rules, sets = judge.graph, judge.rules, judge.branches
    mine, alone, loses = list(range(len(graph))), 0, 0
    oldest = days = None
    if rules is not None and sets is not None:
        bit, days = 1 << sets.names.index(branch), rules.days_for(branch)
        mine = [n for n in mine if sets.masks[sets.of_commit[n]] & bit]
        alone = sum(sets.masks[sets.of_commit[n]] == bit for n in mine)
        after = server_verdict(graph.without_branches([branch]), rules, judge.as_of, judge.zone)
        loses = sum(before and not now for before, now in zip(judge.server, after, strict=True))
        oldest = min(mine, key=lambda n: (graph.creation_us[n], n), default=None)
    is_default = rules is not None and branch not in rules.branches
    return {
        "rule_set": judge.name,
        "status": "no_rules" if days is None else "kept",
        "days": days,
        "is_default": is_default,
        "source": judge.sources.get("" if days is None or is_default else branch),
        "keeps_since": None if days is None else iso(limit_us(judge.as_of, days, judge.zone)),
        "commits": len(mine),
        "commits_alone": alone,
        "oldest_commit": None if oldest is None else _commit_ref(graph, oldest),
        "commits_lost_if_deleted": loses,
    }


def _verdict(status: Status, explanation: Explanation) -> Verdict:
    return {
        "rule_set": explanation.rule_set,
        "status": status,
        "server": explanation.server,
        "documented": explanation.documented,
        "commits_kept_by_server": explanation.kept_by_server,
        "commits_kept_documented": explanation.kept_by_documented,
        "commit_id": explanation.commit,
        "reasons": list(explanation.reasons),
        "reason_count": explanation.reason_count,
        "branches": list(explanation.branches),
        "branch_count": explanation.branch_count,
        "kept_until": None if explanation.until_us is None else iso(explanation.until_us),
        "gone_since": None if explanation.gone_since_us is None else iso(explanation.gone_since_us),
        "walk": None
        if explanation.walk is None
        else [cast("PassRow", {**vars(one)}) for one in _deciding(explanation.walk, explanation.reasons)],
        "walk_count": 0 if explanation.walk is None else len(explanation.walk),
        "to_stay": [cast("RemedyRow", {**vars(r)}) for r in explanation.to_stay],
        "to_go": [cast("RemedyRow", {**vars(r)}) for r in explanation.to_go],
        "to_go_branches_left_out": max(
            0, explanation.branch_count - sum(r.branch is not None for r in explanation.to_go)
        )
        if explanation.to_go
        else 0,
    }


def _deciding(walk: Sequence[Pass], reasons: Sequence[ReasonRow]) -> list[Pass]:
    """Return the first walks, the walk of the strongest reason, and the walk that stopped it."""
    starts = {reason["start"] for reason in reasons[:1]}
    starts |= {one.stopped_by for one in walk if one.start in starts and one.stopped_by is not None}
    return [one for n, one in enumerate(walk) if n < SHOWN or one.start in starts]


def _commit_ref(graph: CommitGraph, number: int) -> CommitRef:
    return {"commit_id": graph.ids[number], "creation_date": iso(graph.creation_us[number])}


def text_of(text: str) -> str:
    """Return a key as text for JSON, with bytes that are not UTF-8 escaped."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
