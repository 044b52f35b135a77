"""A plan that only the servers made stale is made again, and deletes nothing that was not reviewed."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest

from lakeplan.values.plan import Bit
from lakeplan.values.shown_records import Records, object_digests
from tests.commits_csv import read_commits_csv

NAME = "analytics"
ENTRY = """\
apiVersion: lakeplan/v1
repositories:
  analytics:
    gc:
      default_retention_days: 20
      branches:
        - {{branch_id: main, retention_days: {main}}}
        - {{pattern: "release-*", retention_days: {release}}}
"""


class Server:
    """A repository in which every commit has a separate object, which the next one replaces."""

    def __init__(self, world) -> None:
        self.world = world
        self.objects: dict[str, str] = {}
        world.api.repository(NAME)

    def commit(self, branch: str, age: float) -> None:
        commit = self.world.api.commit(NAME, branch, age, data=100 + len(self.objects))
        path = f"/repositories/{NAME}/refs/{commit}/objects/stat"
        self.objects[commit] = self.world.api.call("GET", path, params={"path": "data.bin"})[
            "physical_address"
        ]

    def kept(self) -> set[str]:
        """Commits that the collector keeps under the rules as they are stored now."""
        answer = self.world.api.call("POST", f"/repositories/{NAME}/gc/prepare_commits")
        place = answer["gc_commits_location"].partition("://")[2]
        return set(read_commits_csv((self.world.lake / place).read_bytes()))

    def digests(self, commits: set[str]) -> set[bytes]:
        addresses = [self.objects[c].removeprefix(f"local://{NAME}/") for c in commits if c in self.objects]
        return set(object_digests(f"prod/{NAME}", addresses).tolist())


@pytest.fixture
def server(world) -> Server:
    world.lake = world.folder / "sandbox"
    return Server(world)


def entry(world, main: int = 30, release: int = 60) -> None:
    world.write("repositories/analytics.yaml", ENTRY.format(main=main, release=release))


def reviewed_objects(plan: Path) -> set[bytes]:
    (repository,) = json.loads(plan.read_text())["repositories"]
    shown = repository["impact"]["shown"]
    return set(Records(base64.b64decode(shown["inline"])).of(Bit.NOW).tolist()) if shown else set()


@pytest.mark.parametrize("seed", range(10))
def it_deletes_nothing_that_was_not_reviewed_however_the_server_moved(world, server, seed):
    draw = random.Random(seed)
    for age in sorted((draw.randrange(2, 90) for _ in range(5)), reverse=True):
        server.commit("main", age)
    world.api.branch(NAME, "release-1")
    server.commit("release-1", draw.randrange(1, 50))
    world.api.set_rules(NAME, draw.choice((40, 365)), main=draw.choice((25, 45, 365)))
    entry(world)
    plan = world.tree / "plan.json"
    assert world.lakeplan("plan", "--out", str(plan), "-q").code == 0
    reviewed = reviewed_objects(plan)

    for move in draw.sample(("rules", "branch", "commit", "main"), draw.randrange(1, 4)):
        if move == "rules":
            world.api.set_rules(NAME, draw.choice((10, 25, 60, 365)), main=draw.choice((15, 35, 400)))
        elif move == "main":
            world.api.set_rules(NAME, draw.choice((5, 50)), **{"main": 33, "release-1": draw.choice((3, 90))})
        elif move == "branch":
            world.api.branch(NAME, f"release-{draw.randrange(2, 9)}")
        else:
            server.commit(draw.choice(("main", "release-1")), draw.choice((0, 1)))
    before = server.kept()
    applied = world.lakeplan("apply", str(plan), "--replan", "--format", "json")
    lost = server.digests(before - server.kept())
    assert applied.code in (0, 5), applied.err
    assert applied.code == 0 or not lost
    assert lost <= reviewed


def it_applies_what_a_hand_on_the_server_made_stale_and_says_so(world, server):
    for age in (60, 50, 1):
        server.commit("main", age)
    world.api.set_rules(NAME, 365)
    entry(world)
    plan = world.plan_file()
    world.api.set_rules(NAME, 300, main=350)
    world.api.branch(NAME, "release-7")
    refused = world.lakeplan("apply", plan)
    assert refused.code == 5
    applied = world.lakeplan("apply", plan, "--replan", "--format", "json")
    assert applied.code == 0, applied.err
    assert applied.json["end"] == "applied"
    assert "the rules on the server have changed" in applied.json["planned_again"][0]
    # Planned again over the branches that there are: the new one has its days.
    assert world.api.rules(NAME) == {"*": 20, "main": 30, "release-7": 60}
    world.api.set_rules(NAME, 300)
    shown = world.lakeplan("apply", plan, "--replan")
    assert shown.code == 0
    assert "Planned again" in shown.out


def it_asks_when_the_tree_changed_too(world, server):
    server.commit("main", 1)
    world.api.set_rules(NAME, 365)
    entry(world)
    plan = world.plan_file()
    world.api.set_rules(NAME, 300)
    entry(world, main=29)
    refused = world.lakeplan("apply", plan, "--replan")
    assert refused.code == 5
    assert "its configuration in the tree differs" in refused.err
    assert world.api.rules(NAME) == {"*": 300}


def it_asks_when_one_object_more_would_be_deleted_whatever_the_tolerance(world, server):
    """Somebody lengthened the retention after the review: what that saved was not reviewed."""
    (world.tree / "lakeplan.yaml").write_text(
        (world.tree / "lakeplan.yaml")
        .read_text()
        .replace("safety: {", "safety: {impact_tolerance_percent: 100, ")
    )
    for age in (80, 60, 50, 40, 1):
        server.commit("main", age)
    world.api.set_rules(NAME, 55)
    entry(world)
    plan = world.plan_file()
    world.api.set_rules(NAME, 365)
    out = world.tree / "apply.json"
    refused = world.lakeplan("apply", plan, "--replan", "--format", "json", "--out", str(out))
    assert refused.code == 5
    assert "after planning again" in refused.err
    assert "not reviewed would expire (the plan lists" in refused.err
    document = json.loads(out.read_text())
    assert (document["end"], document["results"]) == ("stale", [])
    assert any("after planning again" in reason for reason in document["refusals"])
    assert world.api.rules(NAME) == {"*": 365}


def it_leaves_a_plan_that_is_not_stale_as_it_was(world, server):
    server.commit("main", 1)
    world.api.set_rules(NAME, 365)
    entry(world)
    plan = world.plan_file()
    world.api.branch(NAME, "release-7")
    applied = world.lakeplan("apply", plan, "--replan", "--format", "json")
    assert applied.json["planned_again"] == []
    assert world.api.rules(NAME) == {"*": 20, "main": 30}
