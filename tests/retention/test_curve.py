"""Days needed per commit: drawn histories, and every integer day against the verdict of that day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import (
    ALWAYS,
    MAX_DAYS,
    NEVER,
    Varied,
    days_needed,
    documented_verdict,
    limit_us,
    to_us,
)
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules

DAY = 86_400_000_000


def needed(graph: CommitGraph, now: datetime, rules: GcRules, branch: str | None = None) -> dict[str, int]:
    return dict(zip(graph.ids, days_needed(graph, rules, Varied(branch), now), strict=True))


class DescribeDrawnHistories:
    def it_needs_what_its_child_is_old(self, draw, now):
        graph = draw(
            """
            main -> c 1 b
                 -> b 10.5 a
                 -> a 40 root
                 -> root 50
            """
        )
        # b stays while c, its child, is younger than the limit: 1 day old, so from 2 days on
        assert needed(graph, now, GcRules(7)) == {"c": ALWAYS, "b": 2, "a": 11, "root": 41}

    def it_needs_one_more_day_at_the_limit_itself(self, draw, now):
        graph = draw(
            """
            main -> b 7 a
                 -> a 9
            """
        )
        assert limit_us(now, 7) == graph.creation_us[graph.index["b"]]  # not after it: 7 days do not keep
        assert needed(graph, now, GcRules(7))["a"] == 8

    def it_is_kept_whatever_varies_by_a_rule_that_does_not(self, draw, now):
        graph = draw(
            """
            main -> c 1 b
            dev  -> d 2 b
                 -> b 10 a
                 -> a 40 root
                 -> root 50
            """
        )
        rules = GcRules(7, {"main": 21})
        assert needed(graph, now, rules) == {"c": ALWAYS, "d": ALWAYS, "b": ALWAYS, "a": ALWAYS, "root": 41}
        # and as main's days vary, dev still keeps what 7 days of default keep
        assert needed(graph, now, rules, "main") == {
            "c": ALWAYS,
            "d": ALWAYS,
            "b": ALWAYS,
            "a": 11,
            "root": 41,
        }

    def it_needs_the_default_for_dangling_commits(self, draw, now):
        graph = draw(
            """
            main -> b 1 a
                 -> x 5 a
                 -> a 40
            """
        )
        assert needed(graph, now, GcRules(7, {"main": 1})) == {"a": 6, "b": ALWAYS, "x": 6}
        assert needed(graph, now, GcRules(3), "main") == {"a": 2, "b": ALWAYS, "x": NEVER}
        assert needed(graph, now, GcRules(9), "main") == {"a": ALWAYS, "b": ALWAYS, "x": ALWAYS}

    def it_says_never_beyond_the_longest_days(self, draw, now):
        graph = draw(
            f"""
            main -> c 1 b
                 -> b {MAX_DAYS} a
                 -> a {MAX_DAYS + 5}
            """
        )
        assert needed(graph, now, GcRules(7)) == {"c": ALWAYS, "b": 2, "a": NEVER}

    def it_needs_nothing_for_a_commit_of_tomorrow(self, draw, now):
        graph = draw(
            """
            main -> b -1 a
                 -> a 3
            """
        )
        assert needed(graph, now, GcRules(7))["a"] == 0

    def it_never_needs_days_on_a_branch_that_is_not_there(self, draw, now):
        graph = draw(
            """
            main -> b 1 a
                 -> a 40
            """
        )
        assert needed(graph, now, GcRules(1, {"gone": 30}), "gone")["a"] == NEVER


ZONES: list[tzinfo] = [
    timezone.utc,
    timezone(timedelta(hours=-3, minutes=-30)),
    ZoneInfo("America/New_York"),
    ZoneInfo("Europe/London"),
    ZoneInfo("Pacific/Apia"),  # had no 30 December 2011
]


@dataclass(frozen=True)
class Case:
    graph: CommitGraph
    rules: GcRules
    varied: Varied
    as_of: datetime
    zone: tzinfo


@st.composite
def cases(draw: st.DrawFn) -> Case:
    moments = [
        datetime(2022, 3, 31, 12, tzinfo=timezone.utc),
        datetime(2012, 1, 5, 6, tzinfo=timezone.utc),
    ]
    now = draw(st.sampled_from(moments))
    size = draw(st.integers(1, 16))
    ids = draw(st.permutations([f"{n:02d}" for n in range(size)]))
    commits = []
    for n in range(size):
        parents = [ids[draw(st.integers(max(0, n - 3), n - 1))]] if n and draw(st.booleans()) else []
        age = draw(st.integers(-1, 24)) * DAY
        age += draw(st.sampled_from([0, 0, 1, -1, 3_600_000_000, -3_600_000_000, DAY // 2]))
        commits.append(Commit(ids[n], to_us(now) - age, f"m{n}", tuple(parents)))
    heads = draw(st.lists(st.sampled_from(ids), max_size=4))
    branches = tuple(Branch(f"b{n}", head) for n, head in enumerate(heads))
    days = st.sampled_from([-2, 0, 1, 2, 3, 5, 7, 14, 2**31 - 1])
    own = draw(st.dictionaries(st.sampled_from([*(b.id for b in branches), "none"]), days))
    varied = Varied(draw(st.sampled_from([None, *own])))
    graph = CommitGraph.from_refs(Refs(tuple(commits), branches, ()))
    return Case(graph, GcRules(draw(days), own), varied, now, draw(st.sampled_from(ZONES)))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_every_integer_day_keeps_what_the_documented_rule_keeps(case: Case) -> None:
    found = days_needed(case.graph, case.rules, case.varied, case.as_of, case.zone)
    for days in [*range(28), MAX_DAYS]:
        rules = case.varied.at(case.rules, days)
        kept = documented_verdict(case.graph, rules, case.as_of, case.zone).active
        assert [n <= days for n in found] == [bool(flag) for flag in kept], days


@pytest.mark.parametrize(("branch", "days"), [(None, 7), ("main", 21), ("other", 7)])
def test_it_knows_the_days_that_stand_now(branch: str | None, days: int) -> None:
    rules = GcRules(7, {"main": 21})
    assert Varied(branch).in_rules(rules) == days
    assert Varied(branch).at(rules, 3).days_for(branch or "any") == 3
    assert Varied(branch).at(rules, 3).days_for("unnamed") == (3 if branch is None else 7)
