"""One document for the page, from the plan file and whatever else was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakeplan.app.report_page.branches import branches_document
from lakeplan.app.report_page.graph import MAX_COMMITS, History, graph_document, judge_history
from lakeplan.app.report_page.timeline import timeline_document
from lakeplan.model.plan import Plan, RepositoryPlan
from lakeplan.model.plan_document import to_document
from lakeplan.model.redaction import path_digest

Json = Mapping[str, Any]
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
    curves: Sequence[Json] = (),
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


def _placed(curve: Json, plan: Plan, also: Mapping[str, str]) -> dict[str, Any]:
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
