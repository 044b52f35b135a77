"""Explanations against the verdicts they explain, over generated histories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.errors import UsageError
from lakeplan.explain.documents import branch_verdict
from lakeplan.explain.rules import Judge, days_needed, trace
from lakeplan.explain.search import read_subject
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import documented_verdict, limit_us, server_verdict
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from lakeplan.values.rules import GcRules
from tests.retention.literal import World, worlds


@given(worlds())
@settings(deadline=None)
def it_follows_the_servers_walk_to_the_servers_verdict(world: World) -> None:
    graph = CommitGraph.from_refs(world.refs)
    active = server_verdict(graph, world.rules, world.as_of, world.zone)
    for commit in range(len(graph)):
        passes = trace(graph, world.rules, commit, world.as_of, world.zone)
        assert passes is not None
        marked = any(p.outcome in ("head", "young", "marks") for p in passes)
        assert marked == bool(active[commit])


@given(worlds(), st.data())
@settings(deadline=None)
def it_says_what_the_verdicts_say(world: World, data: st.DataObject) -> None:
    graph = CommitGraph.from_refs(world.refs)
    holders = data.draw(st.lists(st.integers(0, len(graph) - 1), unique=True, min_size=1))
    said = Judge(graph, "rules", world.rules, world.as_of, world.zone).explain(holders)
    server = server_verdict(graph, world.rules, world.as_of, world.zone)
    documented = documented_verdict(graph, world.rules, world.as_of, world.zone).active
    assert said.kept_by_server == sum(server[n] for n in holders)
    assert said.kept_by_documented == sum(documented[n] for n in holders)
    assert said.server == any(server[n] for n in holders)
    assert said.documented == any(documented[n] for n in holders)
    assert (said.gone_since_us is None) or not said.documented
    if said.documented:
        assert said.reasons
        assert graph.index[said.commit or ""] in holders


@given(worlds(), st.data())
@settings(deadline=None)
def it_names_only_changes_that_work(world: World, data: st.DataObject) -> None:
    graph = CommitGraph.from_refs(world.refs)
    holders = data.draw(st.lists(st.integers(0, len(graph) - 1), unique=True, min_size=1, max_size=4))
    said = Judge(graph, "rules", world.rules, world.as_of, world.zone).explain(holders)
    for remedy in said.to_stay:
        if remedy.kind == "branch_here":
            branches = (*world.refs.branches, Branch("new", remedy.commit_id or ""))
            changed, rules = CommitGraph.from_refs(replace(world.refs, branches=branches)), world.rules
        else:
            changed, rules = graph, with_days(world.rules, remedy.branch, remedy.days)
        active = server_verdict(changed, rules, world.as_of, world.zone)
        assert active[graph.index[said.commit or ""]]
        assert documented_verdict(changed, rules, world.as_of, world.zone).active[
            graph.index[said.commit or ""]
        ]
    if said.to_go and all(r.kind == "days" for r in said.to_go):
        rules = world.rules
        default = min([r.days for r in said.to_go if r.branch is None and r.days], default=None)
        if default is not None:
            pinned = {b.id: rules.days_for(b.id) for b in graph.branches}
            rules = GcRules(default, {**rules.branches, **pinned})
        for remedy in said.to_go:
            if remedy.branch is not None:
                rules = with_days(rules, remedy.branch, remedy.days)
        active = documented_verdict(graph, rules, world.as_of, world.zone).active
        assert not any(active[n] for n in holders)


def with_days(rules: GcRules, branch: str | None, days: int | None) -> GcRules:
    assert days is not None
    if branch is None:
        return replace(rules, default_retention_days=days)
    return replace(rules, branches={**rules.branches, branch: days})


@given(worlds())
@settings(deadline=None)
def it_finds_the_fewest_days_that_reach_a_date(world: World) -> None:
    for commit in world.refs.commits:
        days = days_needed(commit.creation_us, world.as_of, world.zone)
        assert days is not None
        assert limit_us(world.as_of, days, world.zone) < commit.creation_us
        assert days == 1 or limit_us(world.as_of, days - 1, world.zone) >= commit.creation_us


@given(worlds())
@settings(deadline=None)
def it_says_what_deleting_a_branch_would_let_go(world: World) -> None:
    graph = CommitGraph.from_refs(world.refs)
    judge = Judge(graph, "rules", world.rules, world.as_of, world.zone)
    for branch in graph.branches:
        said = branch_verdict(judge, branch.id)
        left = server_verdict(graph.without_branches([branch.id]), world.rules, world.as_of, world.zone)
        before = server_verdict(graph, world.rules, world.as_of, world.zone)
        assert said["commits_lost_if_deleted"] == sum(
            1 for a, b in zip(before, left, strict=True) if a and not b
        )
        assert said["commits"] >= 1
        assert said["commits_alone"] <= said["commits"]


GRAPH = CommitGraph.from_refs(
    Refs(
        tuple(
            Commit(i, n, "m" * 64) for n, i in enumerate(["abcdef11", "abcdef22", "123456ff", "ffff000000"])
        ),
        (Branch("main", "abcdef11"), Branch("ffff000000", "abcdef22")),
        (Tag("v1", "123456ff"),),
    )
)


@pytest.mark.parametrize(
    ("text", "kind", "meant", "ref"),
    [
        ("main", "branch", "main", None),
        ("main:raw/a.csv", "path", "raw/a.csv", "main"),
        ("v1:raw/a.csv", "path", "raw/a.csv", "v1"),
        ("abcdef2:a:b", "path", "a:b", "abcdef2"),
        ("raw:a.csv", "path", "raw:a.csv", None),
        ("123456", "commit", "123456ff", None),
        ("12345", "path", "12345", None),
        ("v1", "commit", "123456ff", None),
        ("ffff000000", "branch", "ffff000000", None),
        ("s3://b/ns/data/x", "address", "s3://b/ns/data/x", None),
        (f"data/{'0' * 20}/{'v' * 19}g", "address", f"data/{'0' * 20}/{'v' * 19}g", None),
        (f"data/{'0' * 20}/{'v' * 20},a-_9", "address", f"data/{'0' * 20}/{'v' * 20},a-_9", None),
        (f"data/!ab/c/{'0' * 20}/{'v' * 20}", "address", f"data/!ab/c/{'0' * 20}/{'v' * 20}", None),
        ("data/2026/a.csv", "path", "data/2026/a.csv", None),
        ("decade", "path", "decade", None),
    ],
)
def it_understands_what_is_meant(text: str, kind: str, meant: str, ref: str | None) -> None:
    what = read_subject(text, GRAPH)
    assert (what.kind, what.text, what.ref) == (kind, meant, ref)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "WHAT is empty"),
        ("abcdef", {}, "2 commit ids begin with"),
        ("abcdef:path", {}, "2 commit ids begin with"),
        ("deadbeef", {"kind": "commit"}, "does not exist"),
        ("nope", {"kind": "branch"}, "does not exist"),
        ("a.csv", {"ref": "nope"}, "is not a branch, tag or commit"),
        ("main", {"ref": "main", "kind": "branch"}, "--ref can only be used with a path"),
    ],
)
def it_refuses_what_it_cannot_understand(text: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_subject(text, GRAPH, **options)  # type: ignore[arg-type]
