"""Attacks on a plan that is made again: what somebody saved after the review is not taken back unseen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeplan.sandbox.service import Options
from tests.e2e.conftest import DAY
from tests.e2e.test_server_branches import Clock
from tests.sandboxes import start_sandbox

NAME = "analytics"
PATH = f"/repositories/{NAME}/settings/branch_lifecycle/policies"
WIP = {"name_patterns": ["wip-*"], "max_age": 7 * DAY, "id": "wip"}


def aged(world, *ages: float) -> None:
    world.api.repository(NAME)
    for size, age in enumerate(ages, 1):
        world.api.commit(NAME, "main", age, data=99 + size)


def it_asks_when_somebody_lengthened_what_nothing_expires_by_yet(world):
    """Nothing expires at once, so no object is named; in a week the saved commits would go."""
    aged(world, 16, 15, 1)
    world.api.set_rules(NAME, 21)
    world.rules(NAME, 20)
    plan = world.plan_file()
    world.api.set_rules(NAME, 365)
    refused = world.lakeplan("apply", plan, "--replan")
    assert refused.code == 5, refused.out
    assert world.api.rules(NAME) == {"*": 365}


def it_asks_when_somebody_took_all_rules_away(world):
    """Without rules no collector runs."""
    aged(world, 16, 15, 1)
    world.api.set_rules(NAME, 21)
    world.rules(NAME, 20)
    plan = world.plan_file()
    world.api.call("DELETE", f"/repositories/{NAME}/settings/gc_rules")
    assert world.lakeplan("apply", plan, "--replan").code == 5
    assert world.api.rules(NAME) is None


def it_asks_when_somebody_lengthened_one_branch(world):
    aged(world, 16, 15, 1)
    world.api.set_rules(NAME, 21)
    world.rules(NAME, 20)
    plan = world.plan_file()
    world.api.set_rules(NAME, 21, main=90)
    assert world.lakeplan("apply", plan, "--replan").code == 5
    assert world.api.rules(NAME) == {"*": 21, "main": 90}


class DescribePolicies:
    @pytest.fixture
    def enterprise(self, tmp_path: Path, make_world) -> Iterator[object]:
        clock = Clock()
        options = Options(flavor="enterprise", clock=clock)
        with start_sandbox(tmp_path / "sandbox", options=options) as handle:
            world = make_world(handle)
            world.clock = clock
            world.write(
                "lakeplan.yaml",
                "apiVersion: lakeplan/v1\n"
                f"servers: {{prod: {{endpoint_url: {handle.endpoint_url},"
                " branch_lifecycle: {engine: server}}}\n",
            )
            clock.days_ago = 40
            world.api.repository(NAME)
            world.api.branch(NAME, "feature-1")
            clock.days_ago = 3
            world.api.branch(NAME, "wip-1")
            clock.days_ago = 0
            world.write(
                "repositories/analytics.yaml",
                "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    branch_lifecycle: {policies: ["
                '{id: quick, patterns: ["feature-*"], max_age: 7d}, '
                '{id: wip, patterns: ["wip-*"], max_age: 7d}'
                "]}\n",
            )
            yield world

    def put(self, world, *policies: dict) -> None:
        """Policies of a hand on the server, in place of those that are there."""
        world.api.call("PUT", PATH, json={"policies": list(policies)})

    def it_asks_when_new_work_was_pushed_to_a_branch_that_goes(self, enterprise):
        world = enterprise
        plan = world.plan_file()
        world.api.commit(NAME, "feature-1", 0, data=5)
        self.put(world, {"name_patterns": ["other-*"], "max_age": 3 * DAY, "id": "other"})
        refused = world.lakeplan("apply", plan, "--replan")
        assert refused.code == 5, refused.out
        assert "now point to commits that were not reviewed: feature-1" in refused.err

    def it_asks_when_somebody_let_a_policy_wait_longer(self, enterprise):
        """No branch goes at once; in four days one that was saved would."""
        world = enterprise
        self.put(world, WIP)
        plan = world.plan_file()
        self.put(world, {**WIP, "max_age": 60 * DAY})
        refused = world.lakeplan("apply", plan, "--replan")
        assert refused.code == 5, refused.out
        assert "policies would change in ways that were not reviewed: wip" in refused.err

    def it_removes_what_a_hand_added(self, enterprise):
        world = enterprise
        plan = world.plan_file()
        self.put(world, {"name_patterns": ["other-*"], "max_age": 3 * DAY, "id": "other"})
        applied = world.lakeplan("apply", plan, "--replan", "--format", "json")
        assert applied.code == 0, applied.err
        assert applied.json["planned_again"]
