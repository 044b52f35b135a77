"""Who keeps a commit, why, and until when. That all commits agree with full walks is in test_properties."""

from __future__ import annotations

from typing import Any

import pytest

from lakeplan.core.retention import Keeper, branch_sets, kept_by_branch, reaching, to_us, why
from lakeplan.errors import LakeplanError
from lakeplan.model.rules import GcRules

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


def it_shows_the_ten_smallest_names_and_counts_all(draw: Any, now: Any) -> None:
    heads = " ".join(f"b{n:02d}" for n in reversed(range(25)))
    graph = draw(f"{heads} -> b 1 a\n a 2")
    sets = branch_sets(graph, GcRules(7, {"b03": 0}), now)
    count, names = list(sets.rows())[graph.index["a"]]
    assert count == 24
    assert names == tuple(f"b{n:02d}" for n in range(11) if n != 3)


def it_shares_sets_between_commits(draw: Any, now: Any) -> None:
    lines = [f"c{n:03d} {300 - n} c{n - 1:03d}" for n in range(1, 300)]
    graph = draw("\n".join(["c000 300", *lines, "main dev -> head 0 c299"]))
    sets = branch_sets(graph, GcRules(50, {"main": 100}), now)
    assert [sets.names_in(mask) for mask in sets.masks] == [(), ("dev", "main"), ("main",)]
    assert [sets.count(n) for n in range(len(graph))] == [0] * 200 + [1] * 50 + [2] * 51


def it_unites_the_branches_of_a_metarange_that_commits_share(draw: Any, now: Any) -> None:
    graph = draw("main -> b 1 a\n a 30\n dev -> c 20 z\n z 40")
    graph.meta_range_ids[:] = ["", "shared", "shared", "expired"]
    sets = branch_sets(graph, GcRules(7), now)
    masks = sets.by_metarange(graph)
    assert {key: sets.names_in(mask) for key, mask in masks.items()} == {"shared": ("dev", "main")}


def it_lists_what_a_branch_keeps(draw: Any, now: Any) -> None:
    graph = draw(PICTURE)
    kept = {b: [graph.ids[n] for n in commits] for b, commits in kept_by_branch(graph, RULES, now)}
    assert kept == {"feature": ["f"], "main": ["d", "c", "b", "a"], "twin": ["d", "c", "b"]}
    assert [b for b, _ in kept_by_branch(graph, RULES, now, ["twin", "main"])] == ["main", "twin"]
    with pytest.raises(LakeplanError, match="no branch gone"):
        list(kept_by_branch(graph, RULES, now, ["gone"]))


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


def it_gives_no_reason_for_an_expired_commit(draw: Any, now: Any) -> None:
    graph = draw("main -> c 20 b\n b 30 a\n a 40")
    assert why(graph, GcRules(7), "a", now) == []
    with pytest.raises(LakeplanError, match="no commit"):
        why(graph, GcRules(7), "nope", now)
