"""The branches of one repository by age and idleness, from the plan alone or with a history."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lakeplan.app.report_page.graph import SECOND_US, Judged
from lakeplan.core.retention import CommitGraph
from lakeplan.model.moments import utc_text
from lakeplan.model.plan import RepositoryPlan
from lakeplan.model.refs import Branch
from lakeplan.model.setting_plan import BranchFate

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
        own = own_commits(judged.graph)
        listed = {branch.id: branch for branch in judged.history.listed}
        rows = [
            _row(plan, b.id, b.commit_id, fates.get(b.id), now, judged.graph, own[b.id], listed.get(b.id))
            for b in judged.graph.branches
        ]
    rows.sort(key=_most_pressing_first)
    return {"key": plan.key, "rows": rows, "dated": judged is not None}


def _row(
    plan: RepositoryPlan,
    name: str,
    head: str,
    fate: BranchFate | None,
    now: int,
    graph: CommitGraph | None = None,
    own: tuple[int, int | None] = (0, None),
    listed: Branch | None = None,
) -> Json:
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
