"""Both verdicts against literal walks, over generated histories."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import branch_sets, reaching, why
from lakeplan.retention.rules import NEVER_EXPIRES, DocumentedRule, ServerWalk, server_verdict, to_us
from lakeplan.values.repository import Refs
from lakeplan.values.rules import GcRules
from tests.retention.literal import DAY, NOW, World, literal_documented_walk, literal_server_walk, worlds


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


@given(worlds([timezone.utc]))
def test_the_server_keeps_a_commit_until_the_last_moment_that_its_walk_says(world: World) -> None:
    graph = CommitGraph.from_refs(world.refs)
    walk, microsecond = ServerWalk(graph, world.rules), timedelta(microseconds=1)
    for n, until in enumerate(walk.kept_until_us(world.zone)):
        if abs(until - to_us(NOW)) < 1000 * DAY:
            last = datetime(1970, 1, 1, tzinfo=timezone.utc) + until * microsecond
            assert walk.active(last, world.zone)[n]
            assert not walk.active(last + microsecond, world.zone)[n]
        else:
            kept = walk.active(world.as_of, world.zone)[n]
            assert kept == (until > to_us(world.as_of))


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


@given(worlds(), st.sets(st.sampled_from(["b0", "b1", "b2"])))
def test_a_graph_without_branches_equals_one_built_without_them(world: World, gone: set[str]) -> None:
    left = replace(world.refs, branches=tuple(b for b in world.refs.branches if b.id not in gone))
    derived = CommitGraph.from_refs(world.refs).without_branches(gone)
    assert _ids(
        derived, server_verdict(derived, world.rules, world.as_of, world.zone)
    ) == literal_server_walk(replace(world, refs=left))
    answer = _ids(derived, DocumentedRule(derived, world.rules).active(world.as_of, world.zone))
    assert answer == _documented(replace(world, refs=left))
