"""Which commits a server keeps, over random histories: its own answer against ``core.retention``.

Ages lie half a day off the limits, so that neither the moment of asking nor a clock a few hours off decides;
the server is taken to be in UTC.
"""

from __future__ import annotations

import random
import time
from datetime import datetime, timezone

import pytest
import requests

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import server_verdict
from lakeplan.values.rules import GcRules
from tests.commits_csv import read_commits_csv

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
                name = f"x{step}"
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


@pytest.fixture
def active(repo, server, eventually):
    """The commits that the server keeps: id → metarange id."""

    def ask():
        if server.presigns:
            link = repo.post("/gc/prepare_commits").json()["gc_commits_presigned_url"]
            return read_commits_csv(requests.get(link, timeout=60).content)
        task = repo.post("/gc/prepare_commits/async").json()["id"]
        eventually(lambda: repo.get("/gc/prepare_commits/status", id=task).json()["completed"])
        result = repo.get("/gc/prepare_commits/status", id=task).json()["result"]
        return read_commits_csv(server.read_location(result["gc_commits_location"]))

    return ask


@pytest.mark.parametrize("seed", range(6))
def it_keeps_exactly_what_the_server_verdict_says(repo, active, seed):
    branches = grow(repo, seed)
    refs = repo.refs()
    graph = CommitGraph.from_refs(refs)
    choose = random.Random(f"rules {seed}")
    for _ in range(6):
        of_branch, default = random_rules(choose, branches)
        if not of_branch and default == 0:
            continue  # stored as no rules at all
        repo.set_rules(default, **of_branch)
        flags = server_verdict(graph, GcRules(default, of_branch), datetime.now(timezone.utc))
        expected = {graph.ids[i]: graph.meta_range_ids[i] for i, flag in enumerate(flags) if flag}
        assert active() == expected, (default, of_branch)


def aged(days):
    return int(time.time()) - days * DAY - DAY // 2


class DescribeTheEarlyStop:
    """main (100 days) and dev (7 days) share a commit that was the HEAD of dev 7 days ago."""

    @pytest.fixture
    def shared(self, repo):
        shared = repo.commit("main", "shared", date=aged(20), allow_empty=True)["id"]
        repo.branch("dev")
        repo.commit("dev", "dev", date=aged(3), allow_empty=True)
        repo.commit("main", "main", date=aged(120), allow_empty=True)
        repo.set_rules(30, main=100, dev=7)
        return shared

    def in_order(self, repo, first, then):
        """Empty commits on main, all of them old, until the ids of the two HEADs are in this order."""
        number = 0
        while repo.head(first) > repo.head(then):
            number += 1
            repo.commit("main", f"again {number}", date=aged(120), allow_empty=True)

    def it_loses_the_shared_commit_when_the_longer_walk_comes_first(self, repo, active, shared):
        self.in_order(repo, "main", "dev")
        assert shared not in active()

    def it_keeps_it_when_the_longer_walk_comes_last(self, repo, active, shared):
        self.in_order(repo, "dev", "main")
        assert shared in active()


class DescribeWhatProtects:
    def it_keeps_nothing_for_a_tag(self, repo, active):
        repo.branch("dev")
        tagged = repo.commit("dev", "tagged", date=aged(40), allow_empty=True)["id"]
        assert repo.post("/tags", {"id": "v1", "ref": "dev"}).status_code == 201
        repo.set_rules(30)
        assert tagged in active()
        assert repo.delete("/branches/dev").status_code == 204
        assert tagged not in active()

    def it_keeps_hidden_branches(self, repo, active):
        repo.branch("secret", hidden=True)
        head = repo.commit("secret", "old", date=aged(400), allow_empty=True)["id"]
        repo.set_rules(1)
        assert head in active()

    def it_keeps_a_dangling_commit_while_younger_than_the_default(self, repo, active):
        repo.branch("dev")
        lost = repo.commit("dev", "lost", date=aged(10), allow_empty=True)["id"]
        assert repo.put("/branches/dev/hard_reset", ref="dev~1").status_code == 204
        repo.set_rules(30, dev=1)
        assert lost in active()
        repo.set_rules(5, dev=30)
        assert lost not in active()
