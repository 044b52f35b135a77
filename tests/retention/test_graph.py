"""Commit records as integers, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakeplan.errors import LakeplanError
from lakeplan.retention.graph import NO_PARENT, CommitGraph, by_date, missing_heads
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from tests.retention.literal import fixed_worlds, starts

PICTURE = """
    main twin ->  d   1  c b
                  c   5  a
    other ->      b   9  a
                  a  12
                  x   3  b
"""


def it_numbers_commits_by_id_and_follows_main_parents(draw: Any) -> None:
    graph = draw(PICTURE)
    assert graph.ids == ["a", "b", "c", "d", "x"]
    assert [graph.index[i] for i in graph.ids] == [0, 1, 2, 3, 4]
    assert list(graph.main_parent) == [NO_PARENT, 0, 0, 2, 1]
    assert graph.meta_range_ids[3] == "mr-d"
    assert graph.creation_us[3] - graph.creation_us[2] == 4 * 86_400_000_000
    assert [(b.id, graph.ids[h]) for b, h in zip(graph.branches, graph.heads, strict=True)] == [
        ("main", "d"),
        ("other", "b"),
        ("twin", "d"),
    ]
    assert list(graph.is_head) == [0, 1, 0, 1, 0]
    assert [graph.ids[n] for n in graph.dangling] == ["x"]
    assert graph.server_dangling == graph.dangling
    assert len(graph) == 5


def it_orders_children_before_parents(draw: Any) -> None:
    graph = draw(PICTURE)
    place = {commit: n for n, commit in enumerate(graph.order)}
    assert sorted(place) == [0, 1, 2, 3, 4]
    assert all(place[c] < place[p] for c, p in enumerate(graph.main_parent) if p != NO_PARENT)


def it_sorts_by_date_then_id(draw: Any) -> None:
    graph = draw("main -> c 1 a\n other -> b 5 d\n a 5\n d 9")
    assert list(zip(graph.ids, by_date(graph), strict=True)) == [("a", 1), ("b", 2), ("c", 3), ("d", 0)]


def it_knows_children_and_descendants(draw: Any) -> None:
    graph = draw(PICTURE)
    assert [graph.ids[n] for n in graph.children(0)] == ["b", "c"]
    assert sorted(graph.ids[n] for n in graph.descendants(0)) == ["a", "b", "c", "d", "x"]
    assert sorted(graph.ids[n] for n in graph.descendants(2)) == ["c", "d"]


def it_makes_the_commits_of_a_deleted_branch_dangling(draw: Any) -> None:
    graph = draw(PICTURE)
    left = graph.without_branches({"main", "no-such-branch"})
    assert [b.id for b in left.branches] == ["other", "twin"]
    assert left.is_head[3]
    left = left.without_branches(["twin"])
    assert not left.is_head[3]
    assert [left.ids[n] for n in left.dangling] == ["d", "x"]
    assert [graph.ids[n] for n in graph.dangling] == ["x"]


def it_keeps_tags_and_accepts_no_commits_at_all(refs: Any) -> None:
    tags = (Tag("v1", "a"),)
    assert CommitGraph.from_refs(replace(refs(PICTURE), tags=tags)).tags == tags
    assert len(CommitGraph.from_refs(Refs((), (), ()))) == 0


def it_names_the_heads_that_a_dump_lacks(refs: Any) -> None:
    whole = refs(PICTURE)
    assert missing_heads(whole) == []
    late = replace(whole, branches=(*whole.branches, Branch("late", "z"), Branch("later", "y")))
    assert missing_heads(late) == ["y", "z"]


@pytest.mark.parametrize(
    ("commits", "branches", "message"),
    [
        ([Commit("b", 0, "", ("a",))], [], "the main parent a of commit b is missing"),
        ([Commit("a", 0, "")], [Branch("main", "b")], "the HEAD b of branch main is missing"),
        ([Commit("a", 0, ""), Commit("a", 1, "")], [], "commit a is listed twice"),
        ([Commit("a", 0, "")], [Branch("main", "a"), Branch("main", "a")], "branch main is listed twice"),
        ([Commit("a", 0, "", ("a",))], [], "commit a is its own ancestor"),
        (
            [Commit("a", 0, "", ("b",)), Commit("b", 0, "", ("a",)), Commit("c", 0, "", ("b",))],
            [Branch("main", "c")],
            "commit a is its own ancestor",
        ),
        (
            [Commit("a", -(2**63), ""), Commit("b", 2**63 - 1, ""), Commit("c", 2**63, "")],
            [],
            "the creation date of commit c",
        ),
        ([Commit("a", 5, ""), Commit("b", -(2**63) - 1, "")], [], "the creation date of commit b"),
    ],
)
def it_refuses_by_name(commits: list[Commit], branches: list[Branch], message: str) -> None:
    with pytest.raises(LakeplanError, match=message) as refused:
        CommitGraph.from_refs(Refs(tuple(commits), tuple(branches), ()))
    assert refused.value.hint


def it_does_without_parents_that_no_walk_follows() -> None:
    # A server never reads the other parents of a merge, so a dump without them still has one answer.
    graph = CommitGraph.from_refs(Refs((Commit("b", 0, "", ("a", "gone")), Commit("a", 0, "")), (), ()))
    assert list(graph.main_parent) == [NO_PARENT, 0]
    octopus = Commit("b", 0, "", ("a", "gone", "a"), 0)
    graph = CommitGraph.from_refs(Refs((octopus, Commit("a", 0, "")), (), ()))
    assert list(graph.main_parent) == [NO_PARENT, 0]


def it_names_an_unknown_commit(draw: Any) -> None:
    with pytest.raises(LakeplanError, match="does not contain commit zz"):
        draw(PICTURE).number_of("zz")


def it_is_not_limited_by_the_depth_of_a_history() -> None:
    ids = [f"{n:06d}" for n in range(50_000)]
    commits = [Commit(i, n, "", (ids[n - 1],) if n else ()) for n, i in enumerate(ids)]
    graph = CommitGraph.from_refs(Refs(tuple(commits), (Branch("main", ids[-1]),), ()))
    assert list(graph.order) == list(range(49_999, -1, -1))
    assert sum(1 for _ in graph.descendants(0)) == 50_000


def it_finds_the_starts_the_children_and_the_ancestors_that_a_search_finds() -> None:
    for world in fixed_worlds():
        refs = world.refs
        graph = CommitGraph.from_refs(refs)
        main = {commit.id: commit.main_parent for commit in refs.commits}
        by_server = {commit for commit, branch in starts(world) if branch is None}
        leaves = {c for c in main if c not in {*main.values()} and not graph.is_head[graph.index[c]]}
        assert [graph.ids[n] for n in graph.server_dangling] == sorted(by_server), world
        assert [graph.ids[n] for n in graph.dangling] == sorted(by_server | leaves), world
        for n, commit in enumerate(graph.ids):
            ancestors = [commit]
            while (parent := main[ancestors[-1]]) is not None:
                ancestors.append(parent)
            dates = [graph.creation_us[graph.index[a]] for a in ancestors]
            assert graph.newest_ancestor_us[n] == max(dates)
            assert all(n in graph.descendants(graph.index[a]) for a in ancestors)
            assert [graph.ids[c] for c in graph.children(n)] == sorted(c for c in main if main[c] == commit)
            assert graph.child_count[n] == len(graph.children(n))


def it_is_without_branches_what_it_would_be_had_they_never_been() -> None:
    for world in fixed_worlds():
        gone = {branch.id for branch in world.refs.branches[::2]}
        kept = tuple(branch for branch in world.refs.branches if branch.id not in gone)
        left = CommitGraph.from_refs(world.refs).without_branches(gone)
        built = CommitGraph.from_refs(replace(world.refs, branches=kept))
        assert [*left.heads, *left.dangling] == [*built.heads, *built.dangling]
        assert (left.server_dangling, left.branches) == (built.server_dangling, built.branches)
        assert left.is_head == built.is_head
