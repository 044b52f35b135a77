"""The commit graph of a report page: rows, lanes, and the reason that keeps each commit."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import cached_property
from typing import Any

from lakeplan.plan.impact import Verdicts, judge, side_bits
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keepers import branch_sets
from lakeplan.retention.rules import DANGLING, NEVER_EXPIRES, NOBODY, strongest_keepers
from lakeplan.values.plan import Horizon, RepositoryPlan
from lakeplan.values.repository import Branch, Refs
from lakeplan.values.rules import GcRules


@dataclass(frozen=True)
class Drawing:
    """``order``: commit numbers from the top down. ``lane``: per commit number. ``lanes``: how many."""

    order: list[int]
    lane: list[int]
    lanes: int


def draw(graph: CommitGraph, parents: Sequence[Sequence[int]]) -> Drawing:
    """Places for all commits. ``parents``: per commit number, the numbers of all its parents, the main one
    included."""
    order = _top_down(graph, parents)
    if len(order) < len(graph):
        # Other parents in a circle: no server makes them, and retention does not look at them.
        order = _top_down(graph, [[p] if p >= 0 else [] for p in graph.main_parent])
    lane = [-1] * len(graph)
    first = _longest_line(graph)
    free: list[int] = []
    lanes = 1
    # per commit number, the lanes that end at it
    waiting: dict[int, list[int]] = {}
    for commit in order:
        ends = waiting.pop(commit, [])
        if commit in first:
            lane[commit] = 0
        elif ends:
            lane[commit] = min(ends)
        elif free:
            lane[commit] = heapq.heappop(free)
        else:
            lane[commit], lanes = lanes, lanes + 1
        for other in ends:
            if other not in (lane[commit], 0):
                heapq.heappush(free, other)
        parent = graph.main_parent[commit]
        if parent >= 0:
            waiting.setdefault(parent, []).append(lane[commit])
        elif lane[commit]:
            heapq.heappush(free, lane[commit])
    return Drawing(order, lane, lanes)


def _top_down(graph: CommitGraph, parents: Sequence[Sequence[int]]) -> list[int]:
    """The newest first, but every commit above its parents, whatever their dates."""
    children = [0] * len(graph)
    for each in parents:
        for parent in set(each):
            children[parent] += 1
    ready = [(-graph.creation_us[n], n) for n, count in enumerate(children) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, commit = heapq.heappop(ready)
        order.append(commit)
        for parent in set(parents[commit]):
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, (-graph.creation_us[parent], parent))
    return order


def _longest_line(graph: CommitGraph) -> set[int]:
    """The commits of the branch with the longest line of main parents; of equals the first by name."""
    depth = [0] * len(graph)
    for commit in reversed(graph.order):
        parent = graph.main_parent[commit]
        depth[commit] = depth[parent] + 1 if parent >= 0 else 1
    # max takes the first of equals, and heads stand in the order of their branches' names
    commit = max(list(graph.heads) or list(graph.dangling), key=lambda n: depth[n], default=-1)
    line = set()
    while commit >= 0:
        line.add(commit)
        commit = graph.main_parent[commit]
    return line


MAX_COMMITS = 10_000
"""Commits that are drawn of one repository."""
MESSAGE_LENGTH = 120
SECOND_US = 1_000_000

KEPT, RELEASED, EXPIRES, AT_RISK, RISKED, GONE = (
    "kept",
    "released",
    "expires",
    "at_risk",
    "at_risk_already",
    "gone",
)
VERDICTS = (KEPT, RELEASED, EXPIRES, AT_RISK, RISKED, GONE)
"""In this order the page counts them; a row's verdicts are one digit a moment, the place in this tuple."""

Json = dict[str, Any]


@dataclass(frozen=True)
class History:
    """What was read of a repository. ``source`` says where, for people. ``listed``: branches as the server
    lists them, with the dates that Enterprise gives; empty where there is no server."""

    refs: Refs
    source: str
    zone: tzinfo
    blind_to: tuple[str, ...] = ()
    listed: tuple[Branch, ...] = ()

    @cached_property
    def graph(self) -> CommitGraph:
        """Raises LakeplanError for a damaged history."""
        return CommitGraph.from_refs(self.refs)


@dataclass(frozen=True)
class Judged:
    """A history under a plan's rules, before and after."""

    plan: RepositoryPlan
    history: History
    graph: CommitGraph
    verdicts: Verdicts
    as_of: datetime


def judge_history(plan: RepositoryPlan, history: History, as_of: datetime) -> Judged:
    """Judges as the plan did: its moment, its rules, and the branches that policies delete."""
    graph = history.graph
    policies = plan.branch_lifecycle
    deleted = policies.deleted if policies is not None else None
    verdicts = judge(graph, plan.before, plan.after, as_of, history.zone, deleted=deleted)
    return Judged(plan, history, graph, verdicts, as_of)


def graph_document(judged: Judged, *, limit: int = MAX_COMMITS) -> Json:
    """``rows`` has a value per drawn commit in each of its columns. ``counts`` are of all commits."""
    graph, plan = judged.graph, judged.plan
    commits = {commit.id: commit for commit in judged.history.refs.commits}
    every = [commits[id] for id in graph.ids]
    parents = [[graph.index[p] for p in c.parents if p in graph.index] for c in every]
    drawing = draw(graph, parents)
    verdicts = [_verdicts(mask) for mask in judged.verdicts.masks]
    shown = _chosen(graph, drawing.order, verdicts, limit)
    row_of = {number: row for row, number in enumerate(shown)}
    position = {branch.id: n for n, branch in enumerate(graph.branches)}
    digest = plan.impact.commits_digest
    return {
        "key": plan.key,
        "source": judged.history.source,
        "blind_to": list(judged.history.blind_to),
        "same_as_plan": judged.verdicts.digest() == digest if digest else None,
        "as_of": int(judged.as_of.timestamp()),
        "commits": len(graph),
        "lanes": drawing.lanes,
        "counts": {horizon.value: _counts(verdicts, place) for place, horizon in enumerate(Horizon)},
        "branches": [_branch(b, graph, row_of, plan) for b in graph.branches],
        "tags": [
            [t.id, row_of.get(graph.index[t.commit_id], -1)]
            for t in sorted(graph.tags, key=lambda t: t.id)
            if t.commit_id in graph.index
        ],
        "default_days": [None if r is None else r.default_retention_days for r in (plan.before, plan.after)],
        "rows": {
            "id": [graph.ids[n] for n in shown],
            "at": [graph.creation_us[n] // SECOND_US for n in shown],
            "message": [_short(every[n].message) for n in shown],
            "lane": [drawing.lane[n] for n in shown],
            "parents": [_parent_rows(graph, n, parents[n], row_of) for n in shown],
            "verdicts": [verdicts[n] for n in shown],
            "stored": _reasons(judged, shown, row_of, position, proposed=False),
            "proposed": _reasons(judged, shown, row_of, position, proposed=True),
        },
    }


def _verdicts(mask: int) -> str:
    return "".join(str(VERDICTS.index(_verdict(mask, horizon))) for horizon in Horizon)


def _verdict(mask: int, horizon: Horizon) -> str:
    """What becomes of a commit at one moment. At risk: the server, under the proposed rules, lets go of what
    their documented meaning keeps; ``AT_RISK`` as the plan counts it, of what the stored rules keep."""
    stored, proposed = side_bits(horizon, proposed=False), side_bits(horizon, proposed=True)
    if mask & proposed.server:
        return KEPT if mask & stored.server else RELEASED
    newly = bool(mask & stored.server)
    if mask & proposed.documented:
        return AT_RISK if newly else RISKED
    return EXPIRES if newly else GONE


def _counts(verdicts: Sequence[str], place: int) -> dict[str, int]:
    found = Counter(one[place] for one in verdicts)
    return {name: found[str(n)] for n, name in enumerate(VERDICTS)}


def _chosen(graph: CommitGraph, order: Sequence[int], verdicts: Sequence[str], limit: int) -> list[int]:
    """At most ``limit`` commits in the order they are drawn: first those that change sides at some moment,
    then HEADs, then the newest."""
    if len(order) <= limit:
        return list(order)
    still = {str(VERDICTS.index(v)) for v in (KEPT, GONE, RISKED)}

    def weight(commit: int) -> int:
        return 0 if set(verdicts[commit]) - still else 1 if graph.is_head[commit] else 2

    ranked = sorted(range(len(order)), key=lambda place: (weight(order[place]), place))
    return [order[place] for place in sorted(ranked[:limit])]


def _parent_rows(
    graph: CommitGraph, commit: int, parents: Sequence[int], row_of: dict[int, int]
) -> list[int]:
    """Rows of the parents, the main one first; -1 where it is not drawn."""
    main = graph.main_parent[commit]
    others = [row_of[p] for p in dict.fromkeys(parents) if p != main and p in row_of]
    return ([row_of.get(main, -1)] if main >= 0 else []) + others


def _branch(branch: Branch, graph: CommitGraph, row_of: dict[int, int], plan: RepositoryPlan) -> list[Any]:
    """[name, row or -1, days before, days after, rule of its own before, after]; None: no rules are set."""
    sides = (plan.before, plan.after)
    days = [None if r is None else r.days_for(branch.id) for r in sides]
    own = [int(r is not None and branch.id in r.branches) for r in sides]
    return [branch.id, row_of.get(graph.index[branch.commit_id], -1), *days, *own]


def _reasons(
    judged: Judged, shown: Sequence[int], row_of: dict[int, int], position: dict[str, int], *, proposed: bool
) -> Json | None:
    """Per row, who keeps it the longest (``branch``: place in ``branches``, -2 a dangling commit, -1 nobody),
    from which commit's date the days count (``via``: a row, -1 itself, -2 not drawn), until when (epoch
    seconds, None: no end), how many branches keep it, and whether the ``server`` does so now (0 or 1): all
    but the last is the documented rule. None: no rules are set, so everything is kept."""
    plan = judged.plan
    rules: GcRules | None = plan.after if proposed else plan.before
    if rules is None:
        return None
    bit = side_bits(Horizon.NOW, proposed=proposed).server
    policies = plan.branch_lifecycle
    gone = policies.deleted(judged.as_of, proposed) if policies is not None else frozenset()
    graph = judged.graph.without_branches(gone) if gone else judged.graph
    found = strongest_keepers(graph, rules, judged.history.zone)
    sets = branch_sets(graph, rules, judged.as_of, judged.history.zone)
    names = [position[branch.id] for branch in graph.branches]
    return {
        "branch": [b if (b := found.branch[n]) in (NOBODY, DANGLING) else names[b] for n in shown],
        "via": [-1 if found.via[n] == n else row_of.get(found.via[n], -2) for n in shown],
        "until": [_seconds(found.until_us[n], found.branch[n]) for n in shown],
        "keepers": [sets.count(n) for n in shown],
        "server": "".join("01"[bool(judged.verdicts.masks[n] & bit)] for n in shown),
    }


def _seconds(until_us: int, branch: int) -> int | None:
    return None if until_us == NEVER_EXPIRES or branch == NOBODY else until_us // SECOND_US


def _short(message: str) -> str:
    line = message.strip().partition("\n")[0]
    return line if len(line) <= MESSAGE_LENGTH else line[: MESSAGE_LENGTH - 1] + "…"
