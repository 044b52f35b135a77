"""A cache over a history that grows and loses commits: every run answers as without a cache."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeplan.simulation.cache import FolderCache
from lakeplan.simulation.runners import Runners
from lakeplan.values.rules import GcRules
from tests.simulation.namespaces import SERVER_URL, History
from tests.simulation.reference import Reference
from tests.simulation.test_run import assert_same, histories, rule_sets, run


def until(history: History, count: int, *, staged: bool) -> History:
    """Its first commits, with branches at the last of them that each had."""
    commits = history.commits[:count]
    names = [commit.name for commit in commits]
    branches = {branch: at if at in names else names[-1] for branch, at in history.branches.items()}
    return replace(history, commits=commits, branches=branches, staged=history.staged if staged else None)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), histories(), rule_sets, st.booleans())
def test_a_history_that_changes_is_simulated_as_if_nothing_had_been_known(
    runners: Runners, data: st.DataObject, history: History, rules: GcRules, url_known: bool
) -> None:
    url = SERVER_URL if url_known else None
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder), FolderCache(f"{folder}/cache", 10**9)
        for _ in range(3):
            count = data.draw(st.integers(1, len(history.commits)))
            now = until(history, count, staged=data.draw(st.booleans()))
            listing = data.draw(st.booleans())
            result = run(
                now, runners, rules, folder=root, listing=listing, storage_namespace=url, cache=cache
            )
            shutil.rmtree(root / "ns")
            assert_same(result, Reference(now, rules, listing=listing, url_known=url_known).answer())
