"""Both verdicts against literal walks, over generated histories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.core.retention import (
    NEVER_EXPIRES,
    CommitGraph,
    DocumentedRule,
    ServerWalk,
    branch_sets,
    kept_by_branch,
    limit_us,
    reaching,
    server_verdict,
    to_us,
    why,
)
from lakeplan.model.refs import Branch, Commit, Refs
from lakeplan.model.rules import GcRules

NOW = datetime(2022, 3, 31, 12, tzinfo=timezone.utc)
DAY = 86_400_000_000
ZONES: list[tzinfo] = [
    timezone.utc,
    timezone(timedelta(hours=-3, minutes=-30)),
    ZoneInfo("America/New_York"),  # clocks went forward on 2022-03-13
    ZoneInfo("Europe/London"),  # on 2022-03-27
]
DAYS = st.sampled_from([-2, 0, 1, 2, 3, 4, 5, 7, 10, 14, 21, 2**31 - 1, 2**40])


@dataclass(frozen=True)
class World:
    """A history, rules and a moment. ``as_of`` and ages are chosen to meet limits exactly now and then."""

    refs: Refs
    rules: GcRules
    as_of: datetime
    zone: tzinfo

    def __post_init__(self) -> None:
        assert len({c.id for c in self.refs.commits}) == len(self.refs.commits)


@st.composite
def worlds(draw: st.DrawFn, zones: list[tzinfo] = ZONES) -> World:
    size = draw(st.integers(1, 24))
    ids = draw(st.permutations([f"{n:02d}" for n in range(size)]))
    commits = []
    for n in range(size):
        near = st.integers(max(0, n - 3), n - 1) | st.integers(0, n - 1)
        parents = draw(st.lists(near, min_size=draw(st.sampled_from([0, 1, 1, 1])), max_size=3)) if n else []
        age = draw(st.integers(-1, 22)) * DAY + draw(st.sampled_from([0, 0, 1, -1, 3_600_000_000, DAY // 2]))
        version = draw(st.sampled_from([0, 1, 1]))
        commits.append(Commit(ids[n], to_us(NOW) - age, f"m{n}", tuple(ids[p] for p in parents), version))
    heads = draw(st.lists(st.sampled_from(ids), max_size=6))
    branches = tuple(Branch(f"b{n}", head) for n, head in enumerate(heads))
    own = draw(st.dictionaries(st.sampled_from([*(b.id for b in branches), "no-such-branch"]), DAYS))
    as_of = NOW + timedelta(days=draw(st.integers(-3, 3)), microseconds=draw(st.sampled_from([0, 0, 1])))
    shuffled = tuple(draw(st.permutations(commits)))
    zone = draw(st.sampled_from(zones))
    return World(Refs(shuffled, branches, ()), GcRules(draw(DAYS), own), as_of, zone)


def _starts(world: World, twins_reversed: bool = False) -> Iterator[tuple[str, str | None]]:
    """(commit, branch) by commit id; the order of branches that share a HEAD is anyone's guess."""
    commits, branches = world.refs.commits, world.refs.branches
    # what a server takes for a parent when it looks for dangling commits: of version 0, the second
    parents = {c.parents[0 if c.version >= 1 or len(c.parents) == 1 else 1] for c in commits if c.parents}
    heads = {b.commit_id for b in branches}
    dangling = [(c.id, None) for c in commits if c.id not in parents | heads]
    ordered = branches[::-1] if twins_reversed else branches
    yield from sorted([*((b.commit_id, b.id) for b in ordered), *dangling], key=lambda start: start[0])


def _limit(world: World, branch: str | None) -> int:
    days = world.rules.default_retention_days if branch is None else world.rules.days_for(branch)
    return limit_us(world.as_of, days, world.zone)


def literal_server_walk(world: World, twins_reversed: bool = False) -> set[str]:
    commits = {c.id: c for c in world.refs.commits}
    visited: dict[str, int] = {}
    active = set()
    for start, branch in _starts(world, twins_reversed):
        limit = _limit(world, branch)
        child, parent = commits[start], commits[start].main_parent
        if branch is None:
            parent = start
        else:
            active.add(start)
            visited[start] = limit
        while parent is not None:
            if parent in visited and visited[parent] <= limit:
                break
            if child.creation_us > limit:
                active.add(parent)
            visited[parent] = limit
            child = commits[parent]
            parent = child.main_parent
    return active


def literal_documented_walk(world: World) -> dict[str, set[str | None]]:
    """Per kept commit, who keeps it (None: a dangling start). No early stop; no start that either way of
    looking for dangling commits finds is left out."""
    commits = {c.id: c for c in world.refs.commits}
    mains = {c.main_parent for c in commits.values()}
    heads = {b.commit_id for b in world.refs.branches}
    leaves = {(c, None) for c in commits if c not in mains | heads}
    kept: dict[str, set[str | None]] = {}
    for start, branch in {*_starts(world), *leaves}:
        limit = _limit(world, branch)
        child = commits[start]
        parent = start if branch is None else child.main_parent
        if branch is not None:
            kept.setdefault(start, set()).add(branch)
        while parent is not None:
            if child.creation_us > limit:
                kept.setdefault(parent, set()).add(branch)
            child = commits[parent]
            parent = child.main_parent
    return kept


def _ids(graph: CommitGraph, flags: bytearray) -> set[str]:
    return {graph.ids[n] for n, flag in enumerate(flags) if flag}


def _documented(world: World) -> set[str]:
    graph = CommitGraph.from_refs(world.refs)
    return _ids(graph, DocumentedRule(graph, world.rules).active(world.as_of, world.zone))


@given(worlds())
@settings(max_examples=400)
def test_the_server_verdict_equals_the_literal_walk_whatever_the_order_of_twins(world: World) -> None:
    graph = CommitGraph.from_refs(world.refs)
    answer = _ids(graph, server_verdict(graph, world.rules, world.as_of, world.zone))
    assert answer == literal_server_walk(world)
    assert answer == literal_server_walk(world, twins_reversed=True)


@given(worlds())
@settings(max_examples=400)
def test_the_documented_verdict_equals_a_full_walk_from_every_start(world: World) -> None:
    assert _documented(world) == set(literal_documented_walk(world))


@given(worlds())
def test_the_server_keeps_nothing_that_the_documented_rule_does_not(world: World) -> None:
    graph = CommitGraph.from_refs(world.refs)
    server = _ids(graph, server_verdict(graph, world.rules, world.as_of, world.zone))
    assert server <= _documented(world)
    assert {b.commit_id for b in world.refs.branches} <= server


@given(worlds(), st.integers(0, 40))
def test_more_days_never_keep_less(world: World, more: int) -> None:
    rules = world.rules
    longer = GcRules(rules.default_retention_days + more, {b: d + more for b, d in rules.branches.items()})
    assert _documented(world) <= _documented(replace(world, rules=longer))
    for branch, days in rules.branches.items():
        one = GcRules(rules.default_retention_days, {**rules.branches, branch: days + more})
        assert _documented(world) <= _documented(replace(world, rules=one))


@given(worlds([timezone.utc]), st.timedeltas(timedelta(0), timedelta(days=30)))
def test_time_alone_never_brings_a_commit_back(world: World, later: timedelta) -> None:
    assert _documented(replace(world, as_of=world.as_of + later)) <= _documented(world)


@given(worlds(), st.randoms(use_true_random=False))
def test_other_commit_ids_change_nothing_in_the_documented_verdict(world: World, random: object) -> None:
    ids = sorted(c.id for c in world.refs.commits)
    others = list(ids)
    random.shuffle(others)  # type: ignore[attr-defined]
    name = dict(zip(ids, others, strict=True))
    commits = tuple(
        replace(c, id=name[c.id], parents=tuple(name[p] for p in c.parents)) for c in world.refs.commits
    )
    branches = tuple(replace(b, commit_id=name[b.commit_id]) for b in world.refs.branches)
    renamed = replace(world, refs=Refs(commits, branches, ()))
    assert _documented(renamed) == {name[c] for c in _documented(world)}


@given(worlds(), st.lists(st.integers(-20, 20), min_size=1, max_size=3))
def test_a_prepared_rule_answers_every_moment_as_a_fresh_one(world: World, moments: list[int]) -> None:
    graph = CommitGraph.from_refs(world.refs)
    documented, server = DocumentedRule(graph, world.rules), ServerWalk(graph, world.rules)
    for days in moments:
        there = replace(world, as_of=world.as_of + timedelta(days=days))
        assert _ids(graph, documented.active(there.as_of, there.zone)) == _documented(there)
        assert _ids(graph, server.active(there.as_of, there.zone)) == literal_server_walk(there)


@given(worlds())
def test_kept_until_is_the_last_moment_of_the_documented_rule(world: World) -> None:
    graph = CommitGraph.from_refs(world.refs)
    rule = DocumentedRule(graph, world.rules)
    heads = {b.commit_id for b in world.refs.branches}
    microsecond = timedelta(microseconds=1)
    for n, until in enumerate(rule.kept_until_us(world.zone)):
        assert (until == NEVER_EXPIRES) == (graph.ids[n] in heads)
        if abs(until - to_us(NOW)) < 1000 * DAY:
            last = datetime(1970, 1, 1, tzinfo=timezone.utc) + until * microsecond
            assert rule.active(last, world.zone)[n]
            assert not rule.active(last + microsecond, world.zone)[n]
            assert not rule.active(last + timedelta(hours=2), world.zone)[n]


@given(worlds())
def test_every_commit_names_the_branches_that_a_full_walk_finds(world: World) -> None:
    graph = CommitGraph.from_refs(world.refs)
    expected = literal_documented_walk(world)
    sets = branch_sets(graph, world.rules, world.as_of, world.zone)
    rows = list(sets.rows(limit=2))
    for n, commit in enumerate(graph.ids):
        branches = sorted(b for b in expected.get(commit, ()) if b is not None)
        assert sets.branches(n) == tuple(branches)
        assert rows[n] == (len(branches), tuple(branches[:2]))
        assert sets.count(n) == len(branches)
        keepers = why(graph, world.rules, commit, world.as_of, world.zone)
        assert {k.branch for k in keepers} == expected.get(commit, set())
        assert [k.branch for k in keepers if k.branch is not None] == branches
        assert [k for k in reaching(graph, world.rules, commit, world.zone) if k in keepers] == keepers


@given(worlds())
def test_a_branch_lists_the_commits_that_name_it(world: World) -> None:
    graph = CommitGraph.from_refs(world.refs)
    expected = literal_documented_walk(world)
    for branch, commits in kept_by_branch(graph, world.rules, world.as_of, zone=world.zone):
        assert len(set(commits)) == len(commits)
        assert {graph.ids[n] for n in commits} == {c for c, keepers in expected.items() if branch in keepers}


@given(worlds(), st.sets(st.sampled_from(["b0", "b1", "b2"])))
def test_a_graph_without_branches_equals_one_built_without_them(world: World, gone: set[str]) -> None:
    left = replace(world.refs, branches=tuple(b for b in world.refs.branches if b.id not in gone))
    derived = CommitGraph.from_refs(world.refs).without_branches(gone)
    assert _ids(
        derived, server_verdict(derived, world.rules, world.as_of, world.zone)
    ) == literal_server_walk(replace(world, refs=left))
    answer = _ids(derived, DocumentedRule(derived, world.rules).active(world.as_of, world.zone))
    assert answer == _documented(replace(world, refs=left))
