"""Who keeps a commit, why, and until when. That all commits agree with full walks is in test_properties."""

from __future__ import annotations

from typing import Any

import pytest

from lakeplan.errors import LakeplanError
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import Keeper, branch_sets, reaching, why
from lakeplan.retention.rules import to_us
from lakeplan.values.rules import GcRules
from tests.retention.literal import fixed_worlds, literal_documented_walk

DAY = 86_400_000_000
PICTURE = """
    main twin ->  d   1  c
                  c   5  b
                  b   9  a
                  a  12
    feature ->    f   2  b
                  x   3  b
"""
RULES = GcRules(7, {"main": 28, "feature": 1})


def it_names_the_branches_of_every_commit(draw: Any, now: Any) -> None:
    graph = draw(PICTURE)
    sets = branch_sets(graph, RULES, now)
    assert sets.names == ("feature", "main", "twin")
    assert {graph.ids[n]: names for n, (_, names) in enumerate(sets.rows())} == {
        "a": ("main",),
        "b": ("main", "twin"),
        "c": ("main", "twin"),
        "d": ("main", "twin"),
        "f": ("feature",),
        "x": (),
    }
    assert sets.masks[0] == 0
    assert sets.branches(graph.index["b"]) == ("main", "twin")
    assert sets.branches(graph.index["b"], 1) == ("main",)
    assert sets.branches(graph.index["b"], 0) == ()


def it_shows_the_ten_smallest_names_and_counts_all(draw: Any, now: Any) -> None:
    heads = " ".join(f"b{n:02d}" for n in reversed(range(25)))
    graph = draw(f"{heads} -> b 1 a\n a 2")
    sets = branch_sets(graph, GcRules(7, {"b03": 0}), now)
    count, names = list(sets.rows(10))[graph.index["a"]]
    assert count == 24
    assert names == tuple(f"b{n:02d}" for n in range(11) if n != 3)


def it_shares_sets_between_commits(draw: Any, now: Any) -> None:
    lines = [f"c{n:03d} {300 - n} c{n - 1:03d}" for n in range(1, 300)]
    graph = draw("\n".join(["c000 300", *lines, "main dev -> head 0 c299"]))
    sets = branch_sets(graph, GcRules(50, {"main": 100}), now)
    assert [sets.names_in(mask) for mask in sets.masks] == [(), ("dev", "main"), ("main",)]
    assert [sets.count(n) for n in range(len(graph))] == [0] * 200 + [1] * 50 + [2] * 51


def it_says_why_a_commit_is_kept(draw: Any, now: Any) -> None:
    graph, then = draw(PICTURE), to_us(now)
    keepers = why(graph, RULES, "b", now)
    assert keepers == [
        Keeper("main", "d", 28, False, then + 23 * DAY - 1),
        Keeper("twin", "d", 7, True, then + 2 * DAY - 1),
        Keeper(None, "x", 7, True, then + 4 * DAY - 1),
    ]
    assert [k.rule for k in keepers] == ["28 days (branch main)", "7 days (default)", "7 days (default)"]
    assert why(graph, RULES, "f", now) == [Keeper("feature", "f", 1, False, None)]
    assert why(graph, RULES, "f", now)[0].rule == "1 day (branch feature)"


def it_says_who_no_longer_keeps_a_commit(draw: Any, now: Any) -> None:
    graph, then = draw(PICTURE), to_us(now)
    reached = reaching(graph, RULES, "b")
    assert Keeper("feature", "f", 1, False, then - DAY - 1) in reached
    assert [k for k in reached if k not in why(graph, RULES, "b", now)] == [
        Keeper("feature", "f", 1, False, then - DAY - 1)
    ]


def it_names_dangling_starts_after_branches_the_longest_first(draw: Any, now: Any) -> None:
    graph, then = draw("main -> m 2 p\n x 3 p\n y 1 p\n z 1 p\n p 9"), to_us(now)
    assert why(graph, GcRules(7), "p", now) == [
        Keeper("main", "m", 7, True, then + 5 * DAY - 1),
        Keeper(None, "y", 7, True, then + 6 * DAY - 1),
        Keeper(None, "z", 7, True, then + 6 * DAY - 1),
        Keeper(None, "x", 7, True, then + 4 * DAY - 1),
    ]
    assert why(graph, GcRules(7), "x", now) == [Keeper(None, "x", 7, True, then + 4 * DAY - 1)]
    assert why(graph, GcRules(2), "x", now) == []


def it_gives_no_reason_for_an_expired_commit(draw: Any, now: Any) -> None:
    graph = draw("main -> c 20 b\n b 30 a\n a 40")
    assert why(graph, GcRules(7), "a", now) == []
    with pytest.raises(LakeplanError, match="does not contain commit nope"):
        why(graph, GcRules(7), "nope", now)


def it_names_those_that_a_full_walk_from_every_start_finds() -> None:
    for world in fixed_worlds():
        graph = CommitGraph.from_refs(world.refs)
        found = literal_documented_walk(world)
        expected = {c: sorted(b for b in found.get(c, ()) if b is not None) for c in graph.ids}
        moment = (world.rules, world.as_of, world.zone)
        sets = branch_sets(graph, *moment)
        for n, commit in enumerate(graph.ids):
            assert list(sets.branches(n)) == expected[commit]
            assert sets.count(n) == len(expected[commit])
            assert [k.branch for k in why(graph, world.rules, commit, *moment[1:]) if k.branch] == (
                expected[commit]
            )


def it_says_until_when_each_of_those_keeps_a_commit() -> None:
    for world in fixed_worlds():
        graph = CommitGraph.from_refs(world.refs)
        for commit in graph.ids:
            keepers = why(graph, world.rules, commit, world.as_of, world.zone)
            everyone = reaching(graph, world.rules, commit, world.zone)
            assert keepers == [k for k in everyone if k.until_us is None or k.until_us >= to_us(world.as_of)]
            for k in everyone:
                assert (k.until_us is None) == (k.branch is not None and k.start == commit)
                assert k.days == world.rules.days_for(k.branch or "")
                assert k.is_default == (k.branch not in world.rules.branches)
