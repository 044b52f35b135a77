"""Rows and lanes of drawn histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.plan.page import Drawing, draw
from lakeplan.retention.graph import CommitGraph
from lakeplan.values.repository import Branch, Commit, Refs

DAY = 86_400_000_000


def history(
    lines: dict[str, tuple[int, tuple[str, ...]]], **heads: str
) -> tuple[CommitGraph, list[list[int]]]:
    commits = [Commit(id, age * -DAY, f"m{id}", parents) for id, (age, parents) in lines.items()]
    graph = CommitGraph.from_refs(Refs(tuple(commits), tuple(Branch(b, c) for b, c in heads.items()), ()))
    return graph, [[graph.index[p] for p in lines[id][1]] for id in graph.ids]


def named(graph: CommitGraph, drawing: Drawing) -> dict[str, int]:
    return {graph.ids[n]: drawing.lane[n] for n in drawing.order}


def it_gives_the_longest_line_the_first_lane_and_uses_lanes_again() -> None:
    graph, parents = history(
        {
            "a": (9, ()),
            "b": (8, ("a",)),
            "old": (7, ("b",)),
            "c": (6, ("b",)),
            "d": (5, ("c",)),
            "new": (4, ("d",)),
            "e": (3, ("d",)),
        },
        main="e",
        new="new",
        old="old",
    )
    drawing = draw(graph, parents)
    assert named(graph, drawing) == {"e": 0, "new": 1, "d": 0, "c": 0, "old": 1, "b": 0, "a": 0}
    assert drawing.lanes == 2
    assert [graph.ids[n] for n in drawing.order] == ["e", "new", "d", "c", "old", "b", "a"]


def it_keeps_a_parent_below_its_children_whatever_its_date() -> None:
    graph, parents = history({"a": (1, ()), "b": (5, ("a",)), "c": (3, ("b",))}, main="c")
    assert [graph.ids[n] for n in draw(graph, parents).order] == ["c", "b", "a"]


def it_draws_a_history_whose_other_parents_go_in_a_circle() -> None:
    graph, _ = history({"a": (3, ()), "b": (2, ("a",))}, main="b")
    assert len(draw(graph, [[1], [0]]).order) == 2


def it_draws_nothing_of_nothing() -> None:
    graph = CommitGraph.from_refs(Refs((), (), ()))
    assert draw(graph, []) == Drawing([], [], 1)


@given(st.data())
def it_never_lets_two_lines_cross_a_commit_of_another(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 18))
    ids = data.draw(st.permutations([f"{n:02d}" for n in range(size)]))
    lines = {}
    for n in range(size):
        parents = data.draw(st.lists(st.integers(0, n - 1), max_size=2, unique=True)) if n else []
        lines[ids[n]] = (data.draw(st.integers(0, 9)), tuple(ids[p] for p in parents))
    heads = data.draw(st.lists(st.sampled_from(ids), max_size=4))
    graph, parents_of = history(lines, **{f"b{n}": head for n, head in enumerate(heads)})
    drawing = draw(graph, parents_of)
    row = {commit: n for n, commit in enumerate(drawing.order)}
    assert sorted(drawing.order) == list(range(size))
    assert all(row[p] > row[n] for n in range(size) for p in parents_of[n])
    assert drawing.lanes == max(drawing.lane) + 1 or (drawing.lanes == 1)
    for child, parent in enumerate(graph.main_parent):
        if parent < 0:
            continue
        between = drawing.order[row[child] + 1 : row[parent]]
        assert all(drawing.lane[n] != drawing.lane[child] for n in between)
