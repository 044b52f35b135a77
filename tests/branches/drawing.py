"""Short ways to draw branches and policies."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.branches.verdicts import judge_branch
from lakeplan.values.branches import BranchVerdict
from lakeplan.values.desired import BranchFacts, Evidence, Policy

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
DAY = 86400


class Drawing:
    """Ages in days before ``now``; thresholds in days."""

    now = NOW

    def branch(
        self, name: str = "feature-1", age: float | None = 10, idle: float | None = None, head: str = "c1"
    ) -> BranchFacts:
        seen = Evidence.OBSERVED
        return BranchFacts(
            name,
            head,
            None if age is None else NOW - timedelta(days=age),
            None if age is None else seen,
            None if idle is None else NOW - timedelta(days=idle),
            None if idle is None else seen,
        )

    def policy(
        self,
        *patterns: str,
        age: float | None = None,
        idle: float | None = None,
        id: str | None = "p",
    ) -> Policy:
        return Policy(
            id,
            patterns or ("feature-*",),
            None if age is None else int(age * DAY),
            None if idle is None else int(idle * DAY),
        )

    def judge(
        self, facts: BranchFacts, *policies: Policy, default: str = "main", read_only: bool = False
    ) -> BranchVerdict:
        return judge_branch(facts, policies, NOW, default_branch=default, read_only=read_only)


@pytest.fixture(scope="session")
def draw() -> Drawing:
    return Drawing()
