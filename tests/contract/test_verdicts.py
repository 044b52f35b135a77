"""Which commits a server keeps, over random histories: its own answer against ``core.retention``.

Ages lie half a day off the limits, so that neither the moment of asking nor a clock a few hours off decides;
the server is taken to be in UTC.
"""

from __future__ import annotations

import random
import time
from datetime import datetime, timezone

import pytest

from lakeplan.core.retention.graph import CommitGraph
from lakeplan.core.retention.server import server_verdict
from lakeplan.formats.commits_csv import read_commits_csv
from lakeplan.model.rules import GcRules

DAY = 86400


def grow(repo, seed):
    """About thirty commits on some branches: back-dated, merged, reset, deleted."""
    choose = random.Random(seed)
    branches = ["main"]
    age = 40
    now = int(time.time())
    for step in range(30):
        age = max(0, age - choose.choice([0, 0, 1, 2, 4]))
        date = now - age * DAY - DAY // 2 - choose.choice([0, 0, 0, 9]) * DAY
        branch = choose.choice(branches)
        match choose.choice(["commit"] * 6 + ["branch"] * 3 + ["merge", "reset", "drop"]):
            case "branch":
                name = f"b{step}"
                repo.branch(name, choose.choice(branches), hidden=choose.random() < 0.2)
                branches.append(name)
            case "merge" if len(branches) > 1:
                source = choose.choice(branches)
                repo.post(f"/refs/{source}/merge/{branch}", {"allow_empty": True, "strategy": "source-wins"})
            case "reset" if len(repo.log(branch)) > 2:
                repo.put(f"/branches/{branch}/hard_reset", ref=f"{branch}~1")
            case "drop" if branch != "main":
                assert repo.delete(f"/branches/{branch}").status_code == 204
                branches.remove(branch)
            case _:
                repo.commit(branch, f"step {step}", date=date, allow_empty=True)
    return branches


def random_rules(choose, branches):
    days = [-1, 0, 1, 2, 5, 10, 20, 30, 60, 30_000]
    named = choose.sample(branches, k=choose.randint(0, len(branches)))
    return {b: choose.choice(days) for b in named}, choose.choice(days)


@pytest.mark.parametrize("seed", range(6))
def it_keeps_exactly_what_the_server_verdict_says(repo, server, eventually, seed):
    branches = grow(repo, seed)
    refs = repo.refs()
    graph = CommitGraph.from_refs(refs)
    choose = random.Random(f"rules {seed}")
    for _ in range(6):
        of_branch, default = random_rules(choose, branches)
        if not of_branch and default == 0:
            continue  # stored as no rules at all
        repo.set_rules(default, **of_branch)
        task = repo.post("/gc/prepare_commits/async").json()["id"]
        eventually(lambda t=task: repo.get("/gc/prepare_commits/status", id=t).json()["completed"])
        result = repo.get("/gc/prepare_commits/status", id=task).json()["result"]
        csv = server.read_location(result["gc_commits_location"])
        flags = server_verdict(graph, GcRules(default, of_branch), datetime.now(timezone.utc))
        expected = {graph.ids[i]: graph.meta_range_ids[i] for i, flag in enumerate(flags) if flag}
        assert read_commits_csv(csv, name="commits.csv") == expected, (default, of_branch)
