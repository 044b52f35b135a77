"""The document of a report page (``schemas/report.v1.json``): branches, a timeline, and the commit graph with
the reason why each commit is kept.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import cached_property, partial
from typing import Any

from lakeplan.branches.pin_records import with_rules_of
from lakeplan.branches.pins import with_pins
from lakeplan.plan.impact import Course, Missing, Verdicts, judge, outcome_of, side_bits
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import branch_sets
from lakeplan.retention.rules import (
    DANGLING,
    DAY_US,
    NEVER_EXPIRES,
    NOBODY,
    DocumentedRule,
    strongest_keepers,
    to_us,
)
from lakeplan.values.pins import Pin, PinState
from lakeplan.values.plan import BranchFate, Horizon, Plan, RepositoryPlan
from lakeplan.values.plan_document import to_document
from lakeplan.values.records import utc_text
from lakeplan.values.repository import Branch, Refs
from lakeplan.values.rules import GcRules
from lakeplan.values.units import count_of
from lakeplan.values.urls import path_digest


@dataclass(frozen=True)
class Drawing:
    """A drawn graph. ``order`` has the commit numbers from the top down, ``lane`` the lane of each commit
    number. ``lanes`` is the number of lanes."""

    order: list[int]
    lane: list[int]
    lanes: int


def draw(graph: CommitGraph, parents: Sequence[Sequence[int]]) -> Drawing:
    """The positions of all commits. ``parents`` has for each commit number the numbers of all its parents,
    including the main one."""
    order = _top_down(graph, parents)
    if len(order) < len(graph):
        # Other parents form a cycle. No server creates these, and retention ignores other parents.
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
    """The commits, newest first, but each above its parents even if its date is earlier."""
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
    """The commits of the branch with the longest line of main parents; of equal ones the first by name."""
    depth = [0] * len(graph)
    for commit in reversed(graph.order):
        parent = graph.main_parent[commit]
        depth[commit] = depth[parent] + 1 if parent >= 0 else 1
    # max returns the first of equal ones, and heads are in the order of their branches' names.
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

VERDICTS = ("kept", "released", "expires", "at_risk", "at_risk_already", "gone")
"""In the order of the page. A row has for each moment a digit, the verdict's place in this tuple."""
KEPT, RELEASED, EXPIRES, AT_RISK, RISKED, GONE = VERDICTS


@dataclass(frozen=True)
class History:
    """The history of a repository. ``source`` says for people where it was read. ``listed`` are the branches
    in the server's list, with dates on Enterprise, or nothing without a server."""

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
    """A history judged under the rules of a plan. ``graph`` has the existing and the new pins; ``before`` and
    ``after`` are the plan's rules with the entries of pins."""

    plan: RepositoryPlan
    history: History
    graph: CommitGraph
    before: GcRules | None
    after: GcRules | None
    verdicts: Verdicts
    as_of: datetime

    def without(self, moment: datetime, *, proposed: bool) -> CommitGraph:
        """The graph with the branches and pins at a moment, under the stored or the proposed settings."""
        gone = _gone(self.plan, moment, proposed)
        return self.graph.without_branches(gone) if gone else self.graph


def judge_history(plan: RepositoryPlan, history: History, as_of: datetime) -> Judged:
    """Judges a history like the plan: at its moment, by its rules, with the deletions of its policies and
    pins."""
    rows = plan.pins.pins if plan.pins is not None else ()
    before, after, graph = plan.before, plan.after, history.graph
    if rows:
        there = [Pin(row.commit_id) for row in rows if row.commit_id in graph.index]
        graph = CommitGraph.from_refs(with_pins(history.refs, there))
        before = _with_entries(before, {row.branch_id: row.stored_days for row in rows})
        after = _with_entries(
            after, {r.branch_id: r.retention_days for r in rows if r.state is not PinState.RETIRED}
        )
    missing = Missing(partial(_gone, plan), partial(_absent_pins, plan))
    verdicts = judge(graph, before, after, as_of, history.zone, missing=missing)
    return Judged(plan, history, graph, before, after, verdicts, as_of)


def _with_entries(rules: GcRules | None, days: Mapping[str, int | None]) -> GcRules | None:
    entries = {name: number for name, number in days.items() if number is not None}
    return None if rules is None else with_rules_of(rules, entries)


def _gone(plan: RepositoryPlan, moment: datetime, proposed: bool) -> frozenset[str]:
    """Branches that policies have deleted by then, and pins that do not exist before the apply, or after."""
    policies = plan.branch_lifecycle
    deleted = policies.deleted(moment, proposed) if policies is not None else frozenset()
    return deleted | _absent_pins(plan, proposed)


def _absent_pins(plan: RepositoryPlan, proposed: bool) -> frozenset[str]:
    """Pins that do not exist before the apply, or after it."""
    if plan.pins is None:
        return frozenset()
    absent = PinState.RETIRED if proposed else PinState.MISSING
    return frozenset(row.branch_id for row in plan.pins.of(absent))


def graph_document(judged: Judged, *, limit: int = MAX_COMMITS) -> Json:
    """The document of a graph. Each column of ``rows`` has a value per drawn commit. ``counts`` cover all
    commits."""
    graph, plan = judged.graph, judged.plan
    commits = {commit.id: commit for commit in judged.history.refs.commits}
    in_order = [commits[id] for id in graph.ids]
    parents = [[graph.index[p] for p in c.parents if p in graph.index] for c in in_order]
    drawing = draw(graph, parents)
    verdicts = [
        "".join(str(VERDICTS.index(_verdict(mask, horizon))) for horizon in Horizon)
        for mask in judged.verdicts.masks
    ]
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
        "branches": [_branch(b, judged, row_of) for b in graph.branches],
        "tags": [
            [t.id, row_of.get(graph.index[t.commit_id], -1)]
            for t in sorted(graph.tags, key=lambda t: t.id)
            if t.commit_id in graph.index
        ],
        "default_days": [
            None if r is None else r.default_retention_days for r in (judged.before, judged.after)
        ],
        "rows": {
            "id": [graph.ids[n] for n in shown],
            "at": [graph.creation_us[n] // SECOND_US for n in shown],
            "message": [_short(in_order[n].message) for n in shown],
            "lane": [drawing.lane[n] for n in shown],
            "parents": [_parent_rows(graph, n, parents[n], row_of) for n in shown],
            "verdicts": [verdicts[n] for n in shown],
            "stored": _reasons(judged, shown, row_of, position, proposed=False),
            "proposed": _reasons(judged, shown, row_of, position, proposed=True),
        },
    }


def _verdict(mask: int, horizon: Horizon) -> str:
    """The verdict on a commit at one moment. A commit is at risk if it expires on the server although the
    documented meaning of the proposed rules keeps it. Like the plan, ``AT_RISK`` counts only commits that the
    stored rules keep."""
    one = outcome_of(mask, horizon)
    if one.kept_after:
        return KEPT if one.kept_before else RELEASED
    if one.at_risk:
        return AT_RISK if one.expires else RISKED
    return EXPIRES if one.expires else GONE


def _counts(verdicts: Sequence[str], place: int) -> dict[str, int]:
    counts = Counter(one[place] for one in verdicts)
    return {name: counts[str(n)] for n, name in enumerate(VERDICTS)}


def _chosen(graph: CommitGraph, order: Sequence[int], verdicts: Sequence[str], limit: int) -> list[int]:
    """At most ``limit`` commits, in the order of drawing. Those whose verdict changes are chosen first, then
    HEADs, then the newest."""
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
    """The rows of the parents, the main one first, or -1 if that is not drawn."""
    main = graph.main_parent[commit]
    others = [row_of[p] for p in dict.fromkeys(parents) if p != main and p in row_of]
    return ([row_of.get(main, -1)] if main >= 0 else []) + others


def _branch(branch: Branch, judged: Judged, row_of: dict[int, int]) -> list[Any]:
    """[name, row or -1, days before, days after, whether it has a rule before, after]; None: no rules."""
    sides, graph = (judged.before, judged.after), judged.graph
    days = [None if r is None else r.days_for(branch.id) for r in sides]
    flags = [int(r is not None and branch.id in r.branches) for r in sides]
    return [branch.id, row_of.get(graph.index[branch.commit_id], -1), *days, *flags]


def _reasons(
    judged: Judged, shown: Sequence[int], row_of: dict[int, int], position: dict[str, int], *, proposed: bool
) -> Json | None:
    """For each row, by the documented rule: what keeps it the longest (``branch``: its place in ``branches``,
    -2 a dangling commit, -1 nothing), from which commit's date the days count (``via``: a row, -1 itself, -2
    not drawn), until when (epoch seconds, None: no end), and how many branches keep it. ``server``: whether
    the server keeps it now (0 or 1). None: no rules are set, so everything is kept."""
    rules = judged.after if proposed else judged.before
    if rules is None:
        return None
    bit = side_bits(Horizon.NOW, proposed=proposed, course=Course.DELETE).server
    graph = judged.without(judged.as_of, proposed=proposed)
    strongest = strongest_keepers(graph, rules, judged.history.zone)
    sets = branch_sets(graph, rules, judged.as_of, judged.history.zone)
    names = [position[branch.id] for branch in graph.branches]
    return {
        "branch": [b if (b := strongest.branch[n]) in (NOBODY, DANGLING) else names[b] for n in shown],
        "via": [-1 if strongest.via[n] == n else row_of.get(strongest.via[n], -2) for n in shown],
        "until": [_seconds(strongest.until_us[n], strongest.branch[n]) for n in shown],
        "keepers": [sets.count(n) for n in shown],
        "server": "".join("01"[bool(judged.verdicts.masks[n] & bit)] for n in shown),
    }


def _seconds(until_us: int, branch: int) -> int | None:
    return None if until_us == NEVER_EXPIRES or branch == NOBODY else until_us // SECOND_US


def _short(message: str) -> str:
    line = message.strip().partition("\n")[0]
    return line if len(line) <= MESSAGE_LENGTH else line[: MESSAGE_LENGTH - 1] + "…"


Json = dict[str, Any]


def branches_document(plan: RepositoryPlan, judged: Judged | None, as_of: datetime) -> Json:
    """The document of a repository's branches. ``rows``: first those that policies delete, then by idle time.

    ``created_at`` is the server's date, if it has one. ``first_commit_at`` is the date of the oldest commit
    that only this branch leads to, so the branch is at least that old. ``idle_seconds`` counts from the last
    write on the server, or else from the HEAD's date. All are None without a history.
    """
    now = int(as_of.timestamp())
    policies = plan.branch_lifecycle
    fates = {fate.branch_id: fate for fate in policies.fates} if policies is not None else {}
    pins = {row.branch_id for row in plan.pins.pins} if plan.pins is not None else set()
    if judged is None:
        rows = [_row(plan, name, head, fates.get(name), now) for name, head in plan.branches.items()]
    else:
        graph, commits = judged.graph, own_commits(judged.graph)
        listed = {branch.id: branch for branch in judged.history.listed}
        rows = [
            _row(
                plan,
                b.id,
                b.commit_id,
                fates.get(b.id),
                now,
                _BranchDetails(graph, commits[b.id], listed.get(b.id)),
            )
            for b in graph.branches
            if b.id not in pins
        ]
    rows.sort(key=_most_pressing_first)
    return {"key": plan.key, "rows": rows, "dated": judged is not None}


@dataclass(frozen=True)
class _BranchDetails:
    """Details of a branch. ``own``: how many commits only it leads to, and the date of the oldest."""

    graph: CommitGraph | None = None
    own: tuple[int, int | None] = (0, None)
    listed: Branch | None = None


def _row(
    plan: RepositoryPlan,
    name: str,
    head: str,
    fate: BranchFate | None,
    now: int,
    details: _BranchDetails = _BranchDetails(),
) -> Json:
    graph, commits, listed = details.graph, details.own, details.listed
    head_at = None if graph is None else graph.creation_us[graph.index[head]] // SECOND_US
    created = listed.creation_date if listed is not None else None
    written = listed.update_date if listed is not None else None
    if fate is not None:
        created = created or int(fate.created.timestamp())
        written = written or (int(fate.last_write.timestamp()) if fate.last_write else None)
    since = head_at if written is None else written
    oldest = created if created is not None else commits[1]
    return {
        "branch": name,
        "commit_id": head,
        "created_at": created,
        "first_commit_at": commits[1],
        "own_commits": commits[0] if graph is not None else None,
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
    """For each branch, the number of commits that only its main line contains, and the date of the oldest
    (epoch seconds, or None if there are none)."""
    leading = [0] * len(graph)
    for head in graph.heads:
        leading[head] += 1
    for commit in graph.order:
        parent = graph.main_parent[commit]
        if parent >= 0:
            leading[parent] += leading[commit]
    commits: dict[str, tuple[int, int | None]] = {}
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        count, oldest, commit = 0, None, head
        while commit >= 0 and leading[commit] == 1:
            at = graph.creation_us[commit] // SECOND_US
            count, oldest = count + 1, at if oldest is None else min(oldest, at)
            commit = graph.main_parent[commit]
        commits[branch.id] = (count, oldest)
    return commits


DAYS = 90
"""The days of the timeline. Deletions of branches are known for 30 days only, as in the plan."""


def timeline_document(
    plan: RepositoryPlan, judged: Judged | None, curve: Mapping[str, Any] | None, as_of: datetime
) -> Json:
    """The document of a timeline. ``days`` has a row per day on which something expires. Day 0 is now; day n
    ends n times 24 hours later. Commits expire by the documented rule, under the stored and the proposed
    rules (None: no history, or no rules, so nothing expires). ``objects`` come from the forecast of a
    curve."""
    stored = None if judged is None else _commits(judged, as_of, proposed=False)
    proposed = None if judged is None else _commits(judged, as_of, proposed=True)
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


def _commits(judged: Judged, as_of: datetime, *, proposed: bool) -> dict[int, int] | None:
    """Day → number of commits that expire on it, from day 1 on."""
    rules = judged.after if proposed else judged.before
    if rules is None:
        return None
    now = to_us(as_of)
    pins = _absent_pins(judged.plan, proposed)
    graph = judged.graph.without_branches(pins) if pins else judged.graph
    kept_until = DocumentedRule(graph, rules).kept_until_us(judged.history.zone)
    last = now + DAYS * DAY_US
    return dict(Counter((until - now) // DAY_US + 1 for until in kept_until if now <= until < last))


def _branches(plan: RepositoryPlan, as_of: datetime) -> dict[int, list[list[str]]]:
    """Day → [branch, policy] of branches that the proposed policies delete on it."""
    by_day: dict[int, list[list[str]]] = {}
    policies = plan.branch_lifecycle
    for fate in policies.fates if policies is not None else ():
        if fate.goes_at is not None:
            day = max(0, -(-(to_us(fate.goes_at) - to_us(as_of)) // DAY_US))
            by_day.setdefault(day, []).append([fate.branch_id, fate.policy])
    return by_day


def _objects(curve: Mapping[str, Any] | None) -> dict[int, Mapping[str, int]]:
    if curve is None or curve["horizon"] is None:
        return {}
    return {loss["day"]: loss for loss in curve["horizon"]["days_with_losses"] if loss["day"] <= DAYS}


REPORT_FORMAT = "lakeplan.report/v1"
MAX_DRAWN = 20_000
"""Commits that are drawn of all repositories together, so that the page opens quickly."""
MAX_DETAILED = 25
"""Repositories with a timeline and a table of branches."""


def shown_repositories(plan: Plan, targets: Sequence[str] = ()) -> list[RepositoryPlan]:
    """The repositories of the page: those with the keys in ``targets``, or all with writes. Those where most
    bytes expire come first."""
    shown = [
        r for r in plan.repositories if r.failure is None and (r.key in targets if targets else r.writes)
    ]
    return sorted(shown, key=_largest_first)


def _largest_first(repository: RepositoryPlan) -> tuple[bool, int, str]:
    now = repository.impact.now
    expires = now.bytes_expire if now is not None else None
    return (expires is not None, -(expires or 0), repository.key)


def report_page_document(
    plan: Plan,
    *,
    targets: Sequence[str] = (),
    histories: Mapping[str, History] | None = None,
    curves: Sequence[Mapping[str, Any]] = (),
    other_names: Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """The document of a page. ``histories`` are by key (``server/name``). ``curves`` are documents of
    ``schemas/curve.v1.json``. ``other_names`` maps another name in a curve to its key. ``missing`` says what
    the page does not show, and why. What is left out for its size is added. Raises LakeplanError if a history
    is damaged."""
    shown = shown_repositories(plan, targets)
    document = to_document(plan)
    by_key = {f"{r['server']}/{r['name']}": r for r in document["repositories"]}
    known = histories or {}
    placed = [_placed(curve, plan, other_names or {}) for curve in curves]
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
            left_out.append(
                f"the commit graph of {repository.key}, because the page would be too large (use --target to"
                " show it alone)"
            )
        curve = next(
            (c["curve"] for c in placed if c["key"] == repository.key and c["rules"] == "after"), None
        )
        timelines.append(timeline_document(repository, judged, curve, plan.as_of))
        branches.append(branches_document(repository, judged, plan.as_of))
    if len(shown) > MAX_DETAILED:
        rest = count_of(len(shown) - MAX_DETAILED, "more repository")
        left_out.append(f"the timeline and branches of {rest} (use --target to show them)")
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


def _placed(curve: Mapping[str, Any], plan: Plan, other_names: Mapping[str, str]) -> dict[str, Any]:
    """Return a curve with the key of its repository in the plan, if any, and the rules that it was made with:
    ``after``, ``before``, or None for others."""
    name = other_names.get(curve["repository"], curve["repository"])
    for repository in plan.repositories:
        namespace = repository.storage_namespace
        if name == repository.key or (namespace and namespace in (name, path_digest(repository.key, name))):
            etags = {"after": repository.after_etag, "before": repository.before_etag}
            rules = next((word for word, etag in etags.items() if etag == curve["etag"]), None)
            return {"key": repository.key, "rules": rules, "curve": curve}
    return {"key": None, "rules": None, "curve": curve}
