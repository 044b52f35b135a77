"""The strongest keeper of all commits at once, against ``reaching`` commit by commit."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import reaching
from lakeplan.retention.rules import (
    DANGLING,
    NEVER_EXPIRES,
    NEVER_KEPT,
    NOBODY,
    DocumentedRule,
    strongest_keepers,
    to_us,
)
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules
from tests.retention.literal import fixed_worlds

NOW = datetime(2022, 3, 31, 12, tzinfo=timezone.utc)
DAY = 86_400_000_000
ZONES: list[tzinfo] = [timezone.utc, ZoneInfo("America/New_York"), ZoneInfo("Europe/London")]
DAYS = st.sampled_from([-2, 0, 1, 2, 5, 7, 14, 21, 2**31 - 1, 2**40])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[CommitGraph, GcRules, tzinfo]:
    size = draw(st.integers(1, 20))
    ids = draw(st.permutations([f"{n:02d}" for n in range(size)]))
    commits = []
    for n in range(size):
        parents = (
            draw(st.lists(st.integers(0, n - 1), min_size=draw(st.integers(0, 1)), max_size=3)) if n else []
        )
        age = draw(st.integers(-1, 22)) * DAY + draw(st.sampled_from([0, 1, 3_600_000_000]))
        version = draw(st.sampled_from([0, 1]))
        commits.append(Commit(ids[n], to_us(NOW) - age, f"m{n}", tuple(ids[p] for p in parents), version))
    heads = draw(st.lists(st.sampled_from(ids), max_size=5))
    branches = tuple(Branch(f"b{n}", head) for n, head in enumerate(heads))
    own = draw(st.dictionaries(st.sampled_from([f"b{n}" for n in range(5)]), DAYS))
    graph = CommitGraph.from_refs(Refs(tuple(commits), branches, ()))
    return graph, GcRules(draw(DAYS), own), draw(st.sampled_from(ZONES))


@given(worlds())
def it_agrees_with_every_keeper_of_every_commit(world: tuple[CommitGraph, GcRules, tzinfo]) -> None:
    graph, rules, zone = world
    found = strongest_keepers(graph, rules, zone)
    assert found.until_us == DocumentedRule(graph, rules).kept_until_us(zone)
    for n, commit in enumerate(graph.ids):
        keepers = {(k.branch, k.until_us) for k in reaching(graph, rules, commit, zone)}
        until = found.until_us[n]
        if found.branch[n] == NOBODY:
            assert (keepers, until) == (set(), NEVER_KEPT)
            continue
        name = None if found.branch[n] == DANGLING else graph.branches[found.branch[n]].id
        assert (name, None if until == NEVER_EXPIRES else until) in keepers
        via = found.via[n]
        assert via == n or graph.main_parent[via] == n


def it_names_the_first_of_those_that_keep_a_commit_the_longest() -> None:
    for world in fixed_worlds():
        graph, zone = CommitGraph.from_refs(world.refs), world.zone
        found = strongest_keepers(graph, world.rules, zone)
        assert found.until_us == DocumentedRule(graph, world.rules).kept_until_us(zone)
        for n, commit in enumerate(graph.ids):
            longest = {
                k.branch
                for k in reaching(graph, world.rules, commit, zone)
                if (NEVER_EXPIRES if k.until_us is None else k.until_us) == found.until_us[n]
            }
            branch, via = found.branch[n], found.via[n]
            if branch >= 0:
                assert graph.branches[branch].id in longest
            else:
                assert longest == ({None} if branch == DANGLING else set())
            assert via == n if graph.is_head[n] or not longest else via == n or graph.main_parent[via] == n


@pytest.mark.parametrize(
    ("picture", "branch", "via"),
    [
        ("b -> m 2 p\n a -> n 2 p\n x 2 p\n p 9", "a", "n"),
        ("a -> m 2 p\n b -> n 2 p\n x 2 p\n p 9", "a", "m"),
        ("c 2 p\n b -> n 2 p\n a -> o 9\n p 9", "b", "n"),
        ("c 2 p\n d 2 p\n a -> o 9\n p 9", None, "c"),
    ],
)
def it_prefers_branches_by_name_to_dangling_commits_of_the_same_date(
    picture: str, branch: str | None, via: str, draw: Any
) -> None:
    graph = draw(picture)
    found, p = strongest_keepers(graph, GcRules(7)), graph.index["p"]
    assert found.branch[p] == (DANGLING if branch is None else [b.id for b in graph.branches].index(branch))
    assert graph.ids[found.via[p]] == via


def it_names_the_branch_and_the_commit_that_followed(draw: Any, now: Any) -> None:
    graph = draw("main -> c 5 b\n b 9 a\n a 12\n feature -> f 2 b\n x 3 b")
    found = strongest_keepers(graph, GcRules(7, {"main": 28, "feature": 1}))
    at = {graph.ids[n]: n for n in range(len(graph))}
    names = [branch.id for branch in graph.branches]
    assert names[found.branch[at["b"]]] == "main"
    assert graph.ids[found.via[at["b"]]] == "c"
    assert found.until_us[at["b"]] == to_us(now - timedelta(days=5) + timedelta(days=28)) - 1
    assert found.branch[at["x"]] == DANGLING
    assert found.via[at["x"]] == at["x"]
    assert found.until_us[at["f"]] == NEVER_EXPIRES
