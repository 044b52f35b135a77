"""Notifications: every event, from the command line to a webhook on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from lakeplan.tree.schemas import load_schema
from tests.e2e.test_sweep import NOW, Site
from tests.sandboxes import start_sandbox
from tests.webhooks import SECRET, Receiver, receiver

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import World

NOTIFY = "notify: {channels: {ops: {kind: json}, team: {kind: json}}, owners: {data: team}, default: ops}\n"


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiver() as made:
        monkeypatch.setenv("LAKEPLAN_NOTIFY_OPS_URL", made.url)
        yield made


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """The channel of the owner ``data``."""
    with receiver() as made:
        monkeypatch.setenv("LAKEPLAN_NOTIFY_TEAM_URL", made.url)
        yield made


def told(hook: Receiver) -> list[Any]:
    """The notifications since the last call, each valid by the schema."""
    documents = [request.json for request in hook.received]
    hook.received.clear()
    for document in documents:
        Draft202012Validator(load_schema("notification")).validate(document)
    return documents


def entry(world: World, days: int, owner: str = "data") -> None:
    world.write(
        "repositories/analytics.yaml",
        f"apiVersion: lakeplan/v1\nrepositories: {{analytics: {{owner: {owner}, gc: "
        f"{{default_retention_days: {days}}}}}}}\n",
    )


@pytest.fixture
def tree(world: World) -> World:
    """A repository whose old commits expire when its rules are set."""
    world.append("lakeplan.yaml", NOTIFY)
    world.api.repository("analytics")
    for age in (90, 60, 1):
        world.api.commit("analytics", "main", age, a=age)
    entry(world, 7)
    return world


class DescribeAPlan:
    def it_tells_the_owner_which_gates_refuse(self, tree: World, ops: Receiver, team: Receiver) -> None:
        result = tree.lakeplan("plan", "--no-simulate")
        assert result.code == 4
        (document,) = told(team)
        assert document["event"] == "plan-refused"
        (item,) = document["items"]
        assert item["subject"] == "prod/analytics unknown-impact"
        assert item["owner"] == "data"
        assert item["facts"]["gate"] == "unknown-impact"
        assert told(ops) == []

    def it_tells_nobody_when_nothing_refuses(self, tree: World, ops: Receiver, team: Receiver) -> None:
        assert tree.lakeplan("plan").code == 0
        assert (told(ops), told(team)) == ([], [])

    def it_asks_nobody_where_the_tree_has_no_channels(self, tree: World, ops: Receiver) -> None:
        root = (tree.tree / "lakeplan.yaml").read_text()
        tree.write("lakeplan.yaml", root.replace(NOTIFY, ""))
        result = tree.lakeplan("plan", "--no-simulate")
        assert result.code == 4
        assert "notif" not in result.err
        assert told(ops) == []

    def it_ends_as_without_a_channel_that_fails_and_says_so(
        self, tree: World, team: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        team.answers = [(404, {}, SECRET.encode())]
        result = tree.lakeplan("plan", "--no-simulate", "--format", "json")
        assert result.code == 4
        assert result.json["repositories"]
        assert (
            "warning: the notification of plan-refused could not be delivered: the webhook returned status"
            " 404 (channel team)" in result.err
        )
        assert SECRET not in result.out + result.err

    def it_tells_those_of_the_base_what_a_pull_request_would_keep_from_them(
        self, tree: World, ops: Receiver, team: Receiver
    ) -> None:
        tree.git("init", "-q")
        tree.git("add", ".")
        tree.git("commit", "-qm", "base")
        root = (tree.tree / "lakeplan.yaml").read_text()
        tree.write("lakeplan.yaml", root.replace(NOTIFY, ""))
        result = tree.lakeplan("plan", "--no-simulate", "--base", "HEAD", "--format", "json")
        assert result.code == 4, result.err
        (document,) = told(team)
        assert document["event"] == "plan-refused"
        assert any(weaker["path"] == "notify" for weaker in result.json["loosenings"])

    def it_tells_the_owner_of_the_base(self, tree: World, ops: Receiver, team: Receiver) -> None:
        tree.git("init", "-q")
        tree.git("add", ".")
        tree.git("commit", "-qm", "base")
        entry(tree, 7, owner="nobody")
        assert tree.lakeplan("plan", "--no-simulate", "--base", "HEAD").code == 4
        (document,) = told(team)
        assert document["items"][0]["owner"] == "data"
        assert told(ops) == []


class DescribeAnApply:
    def it_tells_the_default_channel_of_a_stale_plan(
        self, tree: World, ops: Receiver, team: Receiver
    ) -> None:
        plan = tree.plan_file()
        entry(tree, 9)
        result = tree.lakeplan("apply", plan)
        assert result.code == 5
        (document,) = told(ops)
        assert document["event"] == "apply-failed"
        assert document["items"][0]["facts"] == {"exit_code": 5}
        assert document["hint"]

    def it_tells_of_writes_that_failed(self, tree: World, ops: Receiver, team: Receiver) -> None:
        plan = tree.plan_file()
        tree.handle.faults.deny("PUT .*/settings/gc_rules")
        result = tree.lakeplan("apply", plan)
        assert result.code not in (0, 64), result.err
        (document,) = told(team)
        assert document["event"] == "apply-failed"
        assert document["items"][0]["facts"]["repository"] == "prod/analytics"
        assert document["items"][0]["facts"]["outcome"] == "failed"

    def it_tells_of_a_plan_that_is_refused_right_there(
        self, tree: World, ops: Receiver, team: Receiver
    ) -> None:
        assert tree.lakeplan("apply", "--auto-approve", "--no-simulate").code == 4
        (document,) = told(team)
        assert document["event"] == "plan-refused"

    def it_tells_nobody_that_all_is_well(self, tree: World, ops: Receiver, team: Receiver) -> None:
        assert tree.lakeplan("apply", tree.plan_file()).code == 0
        assert (told(ops), told(team)) == ([], [])


class DescribeDrift:
    @pytest.fixture
    def edited(self, tree: World) -> World:
        assert tree.lakeplan("apply", "--auto-approve").code == 0
        tree.api.set_rules("analytics", 3)
        return tree

    def it_tells_the_owner(self, edited: World, ops: Receiver, team: Receiver) -> None:
        assert edited.lakeplan("drift").code == 0
        (document,) = told(team)
        assert document["event"] == "drift"
        assert document["items"][0]["facts"]["classes"] == "server-edited"

    def it_tells_only_of_the_classes_that_fail_the_command(
        self, edited: World, ops: Receiver, team: Receiver
    ) -> None:
        assert edited.lakeplan("drift", "--fail-on", "tree-ahead").code == 0
        assert told(team) == []
        assert edited.lakeplan("drift", "--fail-on", "server-edited").code == 2
        assert len(told(team)) == 1


@pytest.fixture
def site(tmp_path: Path, make_world: Callable[..., World]) -> Iterator[Site]:
    with start_sandbox(tmp_path / "sandbox") as handle:
        made = Site(make_world(handle), tmp_path / "sandbox", NOW)
        made.world.append("lakeplan.yaml", NOTIFY)
        yield made


class DescribeASweep:
    def it_tells_of_a_mark_and_of_the_end(self, site: Site, ops: Receiver, team: Receiver) -> None:
        mark = site.mark()
        (document,) = told(ops)
        assert document["event"] == "mark-awaiting-approval"
        (item,) = document["items"]
        assert item["command"] == f"lakeplan sweep show {mark['mark_id']}"
        assert (item["facts"]["objects"], item["facts"]["size_bytes"]) == (2, 21)
        site.sweep(mark["mark_id"])
        (document,) = told(ops)
        assert document["event"] == "sweep-finished"
        (item,) = document["items"]
        assert item["facts"]["deleted_objects"] == 2
        assert item["facts"]["finished"] == 1
        assert told(team) == []

    def it_tells_of_the_end_once(self, site: Site, ops: Receiver) -> None:
        mark = site.mark()
        site.sweep(mark["mark_id"])
        told(ops)
        assert site.world.lakeplan(("sweep", "run"), mark["mark_id"], "--format", "json").code == 0
        assert told(ops) == []

    def it_does_not_tell_of_a_mark_without_objects(self, site: Site, ops: Receiver) -> None:
        site.sweep(site.mark()["mark_id"])
        told(ops)
        site.mark()
        assert told(ops) == []


@pytest.mark.parametrize(("kind", "key"), [("slack", "blocks"), ("teams", "attachments")])
def it_posts_to_slack_and_teams_too(tree: World, ops: Receiver, kind: str, key: str) -> None:
    root = (tree.tree / "lakeplan.yaml").read_text()
    tree.write("lakeplan.yaml", root.replace(NOTIFY, f"notify: {{channels: {{ops: {{kind: {kind}}}}}}}\n"))
    assert tree.lakeplan("plan", "--no-simulate").code == 4
    (request,) = ops.received
    assert request.json[key]
    assert "unknown-impact" in request.body.decode()


def it_links_the_run_in_ci(tree: World, team: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    monkeypatch.setenv("GITHUB_RUN_ID", "17")
    assert tree.lakeplan("plan", "--no-simulate").code == 4
    assert told(team)[0]["link"] == "https://github.com/o/r/actions/runs/17"
