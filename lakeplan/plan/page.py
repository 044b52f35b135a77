"""The document of a report page: branches, timeline, graph (``schemas/report.v1.json``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lakeplan.plan.graph import MAX_COMMITS, SECOND_US, History, Judged, graph_document, judge_history
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import DAY_US, DocumentedRule, to_us
from lakeplan.values.plan import Horizon, Plan, RepositoryPlan
from lakeplan.values.plan_document import to_document
from lakeplan.values.plan_parts import BranchFate
from lakeplan.values.records import utc_text
from lakeplan.values.repository import Branch
from lakeplan.values.rules import GcRules
from lakeplan.values.urls import path_digest

Json = dict[str, Any]


def branches_document(plan: RepositoryPlan, judged: Judged | None, as_of: datetime) -> Json:
    """``rows``: those that policies delete first, then the idlest.

    ``created_at`` is the server's own date, where it has one. ``first_commit_at`` is the oldest commit that
    this branch alone leads to: the branch is at least that old. ``idle_seconds`` counts from the last write
    where the server has it, else from the HEAD's date; both None without a history.
    """
    now = int(as_of.timestamp())
    policies = plan.branch_lifecycle
    fates = {fate.branch_id: fate for fate in policies.fates} if policies is not None else {}
    if judged is None:
        rows = [_row(plan, name, head, fates.get(name), now) for name, head in plan.branches.items()]
    else:
        graph, own = judged.graph, own_commits(judged.graph)
        listed = {branch.id: branch for branch in judged.history.listed}
        rows = [
            _row(plan, b.id, b.commit_id, fates.get(b.id), now, _Seen(graph, own[b.id], listed.get(b.id)))
            for b in graph.branches
        ]
    rows.sort(key=_most_pressing_first)
    return {"key": plan.key, "rows": rows, "dated": judged is not None}


@dataclass(frozen=True)
class _Seen:
    """Of one branch: ``own`` are how many commits it alone leads to, and the date of the oldest."""

    graph: CommitGraph | None = None
    own: tuple[int, int | None] = (0, None)
    listed: Branch | None = None


def _row(
    plan: RepositoryPlan, name: str, head: str, fate: BranchFate | None, now: int, seen: _Seen = _Seen()
) -> Json:
    graph, own, listed = seen.graph, seen.own, seen.listed
    head_at = None if graph is None else graph.creation_us[graph.index[head]] // SECOND_US
    created = listed.creation_date if listed is not None else None
    written = listed.update_date if listed is not None else None
    if fate is not None:
        created = created or int(fate.created.timestamp())
        written = written or (int(fate.last_write.timestamp()) if fate.last_write else None)
    since = head_at if written is None else written
    oldest = created if created is not None else own[1]
    return {
        "branch": name,
        "commit_id": head,
        "created_at": created,
        "first_commit_at": own[1],
        "own_commits": own[0] if graph is not None else None,
        "age_seconds": None if oldest is None else max(0, now - oldest),
        "idle_seconds": None if since is None else max(0, now - since),
        "days_before": None if plan.before is None else plan.before.days_for(name),
        "days_after": None if plan.after is None else plan.after.days_for(name),
        "goes_at": utc_text(fate.goes_at) if fate is not None and fate.goes_at else None,
        "before_at": utc_text(fate.before_at) if fate is not None and fate.before_at else None,
        "policy": fate.policy if fate is not None else None,
    }


def _most_pressing_first(row: Mapping[str, Any]) -> tuple[bool, str, int, str]:
    return (row["goes_at"] is None, row["goes_at"] or "", -(row["idle_seconds"] or 0), row["branch"])


def own_commits(graph: CommitGraph) -> dict[str, tuple[int, int | None]]:
    """Per branch, how many commits of its main line no other branch's leads to, and the date of the oldest
    (epoch seconds; None when there are none)."""
    leading = [0] * len(graph)
    for head in graph.heads:
        leading[head] += 1
    for commit in graph.order:
        parent = graph.main_parent[commit]
        if parent >= 0:
            leading[parent] += leading[commit]
    found: dict[str, tuple[int, int | None]] = {}
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        count, oldest, commit = 0, None, head
        while commit >= 0 and leading[commit] == 1:
            at = graph.creation_us[commit] // SECOND_US
            count, oldest = count + 1, at if oldest is None else min(oldest, at)
            commit = graph.main_parent[commit]
        found[branch.id] = (count, oldest)
    return found


DAYS = 90
"""How far the page looks. Branches are known for thirty days only, as the plan has them."""


def timeline_document(
    plan: RepositoryPlan, judged: Judged | None, curve: Mapping[str, Any] | None, as_of: datetime
) -> Json:
    """``days``: one row per day on which something goes. Day 0 is now; day n ends n times 24 hours later.
    Commits go by the documented rule, under the stored and the proposed rules (None: no history, or no rules
    are set, so that nothing goes). ``objects`` come from the horizon of a curve, when one was given."""
    stored = None if judged is None else _commits(judged, plan.before, as_of)
    proposed = None if judged is None else _commits(judged, plan.after, as_of)
    branches = _branches(plan, as_of)
    objects = _objects(curve)
    days = sorted({*(stored or ()), *(proposed or ()), *branches, *objects})
    return {
        "key": plan.key,
        "start": utc_text(as_of),
        "span": DAYS,
        "has_commits": judged is not None,
        "has_objects": curve is not None and curve["horizon"] is not None,
        "moments": [
            {
                "day": horizon.days,
                "commits": h.commits_expire,
                "objects": h.objects_expire,
                "size_bytes": h.bytes_expire,
            }
            for horizon in Horizon
            if (h := plan.impact.horizons.get(horizon.value)) is not None
        ],
        "days": [
            {
                "day": day,
                "until": utc_text(as_of + timedelta(days=day)),
                "stored": None if stored is None else stored.get(day, 0),
                "proposed": None if proposed is None else proposed.get(day, 0),
                "branches": branches.get(day, []),
                "objects": objects.get(day, {}).get("objects"),
                "size_bytes": objects.get(day, {}).get("size_bytes"),
            }
            for day in days
        ],
    }


def _commits(judged: Judged, rules: GcRules | None, as_of: datetime) -> dict[int, int] | None:
    """Day → commits that stop being kept on it, from tomorrow's on."""
    if rules is None:
        return None
    now = to_us(as_of)
    kept_until = DocumentedRule(judged.graph, rules).kept_until_us(judged.history.zone)
    last = now + DAYS * DAY_US
    return dict(Counter((until - now) // DAY_US + 1 for until in kept_until if now <= until < last))


def _branches(plan: RepositoryPlan, as_of: datetime) -> dict[int, list[list[str]]]:
    """Day → [branch, policy] of branches that the proposed policies let go by its end."""
    found: dict[int, list[list[str]]] = {}
    policies = plan.branch_lifecycle
    for fate in policies.fates if policies is not None else ():
        if fate.goes_at is not None:
            day = max(0, -(-(to_us(fate.goes_at) - to_us(as_of)) // DAY_US))
            found.setdefault(day, []).append([fate.branch_id, fate.policy])
    return found


def _objects(curve: Mapping[str, Any] | None) -> dict[int, Mapping[str, int]]:
    if curve is None or curve["horizon"] is None:
        return {}
    return {loss["day"]: loss for loss in curve["horizon"]["days_with_losses"] if loss["day"] <= DAYS}


REPORT_FORMAT = "lakeplan.report/v1"
MAX_DRAWN = 20_000
"""Commits that are drawn of all repositories together: the page stays small enough to open at once."""
MAX_DETAILED = 25
"""Repositories with a timeline and a table of branches."""


def shown_repositories(plan: Plan, targets: Sequence[str] = ()) -> list[RepositoryPlan]:
    """What the page is about: the repositories with these keys, or without any all that the plan would write;
    those where most expires first."""
    found = [
        r for r in plan.repositories if r.failure is None and (r.key in targets if targets else r.writes)
    ]
    return sorted(found, key=_largest_first)


def _largest_first(repository: RepositoryPlan) -> tuple[bool, int, str]:
    now = repository.impact.now
    goes = now.bytes_expire if now is not None else None
    return (goes is not None, -(goes or 0), repository.key)


def report_page_document(
    plan: Plan,
    *,
    targets: Sequence[str] = (),
    histories: Mapping[str, History] | None = None,
    curves: Sequence[Mapping[str, Any]] = (),
    also: Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """``histories`` by key (``server/name``). ``curves`` are documents of ``schemas/curve.v1.json``; ``also``
    gives the key of a curve that goes by another name. ``missing`` says in words what the page does not show,
    and why; what had to be left out for its size is added. Raises LakeplanError when a history is damaged."""
    shown = shown_repositories(plan, targets)
    document = to_document(plan)
    by_key = {f"{r['server']}/{r['name']}": r for r in document["repositories"]}
    known = histories or {}
    placed = [_placed(curve, plan, also or {}) for curve in curves]
    graphs, timelines, branches, left_out = [], [], [], list(missing)
    room = MAX_DRAWN
    for repository in shown[:MAX_DETAILED]:
        history = known.get(repository.key)
        judged = None if history is None else judge_history(repository, history, plan.as_of)
        if judged is not None and room:
            graph = graph_document(judged, limit=min(room, MAX_COMMITS))
            room -= len(graph["rows"]["id"])
            graphs.append(graph)
        elif judged is not None:
            left_out.append(f"{repository.key}: its graph, for the size of the page: --target draws it alone")
        curve = next(
            (c["curve"] for c in placed if c["key"] == repository.key and c["rules"] == "after"), None
        )
        timelines.append(timeline_document(repository, judged, curve, plan.as_of))
        branches.append(branches_document(repository, judged, plan.as_of))
    if len(shown) > MAX_DETAILED:
        rest = len(shown) - MAX_DETAILED
        left_out.append(f"timeline and branches of {rest:,} more repositories: --target shows them")
    return {
        "format": REPORT_FORMAT,
        "plan": document,
        "repositories": [by_key[r.key] for r in shown],
        "curves": placed,
        "timelines": timelines,
        "graphs": graphs,
        "branches": branches,
        "missing": left_out,
    }


def _placed(curve: Mapping[str, Any], plan: Plan, also: Mapping[str, str]) -> dict[str, Any]:
    """A curve with the repository of the plan it is about (``key``, None for none), and which of its rules it
    was made with: ``after``, ``before``, or None for others."""
    name = also.get(curve["repository"], curve["repository"])
    for repository in plan.repositories:
        namespace = repository.storage_namespace
        if name == repository.key or (namespace and namespace in (name, path_digest(repository.key, name))):
            etags = {"after": repository.after_etag, "before": repository.before_etag}
            rules = next((word for word, etag in etags.items() if etag == curve["etag"]), None)
            return {"key": repository.key, "rules": rules, "curve": curve}
    return {"key": None, "rules": None, "curve": curve}
