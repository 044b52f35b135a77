"""Policies and object rules of an Enterprise server: plan, apply, nothing to do, edits on the server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from textwrap import dedent, indent

import jsonschema
import pytest

from lakeplan.cli.main import run
from lakeplan.lakefs.writers import LakeFSSettingsWriter
from lakeplan.sandbox.service import Options
from lakeplan.tree.schemas import load_schema
from tests.sandboxes import start_sandbox

DAY = 86400
POLICIES = "/repositories/analytics/settings/branch_lifecycle/policies"
OBJECTS = "/repositories/analytics/settings/object_lifecycle"


class Clock:
    """The sandbox's clock: now, less some days."""

    def __init__(self) -> None:
        self.days_ago = 0.0

    def __call__(self) -> datetime:
        return datetime.now(timezone.utc) - timedelta(days=self.days_ago)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def enterprise(tmp_path: Path, monkeypatch, capsys, make_world, clock: Clock) -> Iterator[object]:
    with start_sandbox(tmp_path / "sandbox", options=Options(flavor="enterprise", clock=clock)) as handle:
        world = make_world(handle)
        world.write(
            "lakeplan.yaml",
            "apiVersion: lakeplan/v1\n"
            f"servers: {{prod: {{endpoint_url: {handle.endpoint_url}, branch_lifecycle:"
            " {engine: server, schedule: '0 * * * *'}}}\n",
        )
        clock.days_ago = 40
        world.api.repository("analytics")
        world.api.branch("analytics", "keep")
        world.api.branch("analytics", "feature-old")
        clock.days_ago = 0
        world.api.branch("analytics", "feature-new")
        yield world


def tree(world, *policies: str, more: str = "") -> None:
    lines = "".join(f"        - {policy}\n" for policy in policies)
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    branch_lifecycle:\n"
        f"      policies:\n{lines}{more}",
    )


FEATURES = '{patterns: ["feature-*", "wip-*"], max_age: 60d, max_idle_age: 1w3d12h, description: quiet}'
OLD = "{id: old, patterns: [keep], max_age: 30d}"
QUICK = '{id: quick, patterns: ["feature-*"], max_age: 7d}'


def stored(world) -> list[dict]:
    return world.api.call("GET", POLICIES)["policies"]


def edit(world, **changes) -> None:
    """Somebody changes the first policy on the server."""
    policies = stored(world)
    policies[0] |= changes
    world.api.call("PUT", POLICIES, json={"policies": policies})


def undo(world, *arguments: str):
    """``branches undo``: a command below a command, so its tree option comes after both."""
    code = run(["branches", "undo", "-C", str(world.tree), *arguments])
    return int(code)


def state_files(world, pattern: str) -> list[dict]:
    return [json.loads(p.read_text()) for p in sorted((world.tree / ".lakeplan").glob(pattern))]


def it_sets_policies_and_then_has_nothing_to_do(enterprise):
    tree(enterprise, FEATURES)
    first = enterprise.lakeplan("plan", "--detailed-exitcode")
    assert first.code == 2, first.out + first.err
    assert "1 to add" in first.out
    applied = enterprise.lakeplan("apply", enterprise.plan_file())
    assert applied.code == 0, applied.out + applied.err
    (policy,) = stored(enterprise)
    assert policy.pop("id").startswith("pol-")
    assert policy == {
        "name_patterns": ["feature-*", "wip-*"],
        "max_age": 60 * DAY,
        "max_inactivity_time": 10 * DAY + 12 * 3600,
        "description": "quiet",
    }
    again = enterprise.lakeplan("plan", "--detailed-exitcode")
    assert again.code == 0, again.out
    # the same, written otherwise
    tree(
        enterprise,
        '{patterns: ["wip-*", "feature-*"], max_age: 8w4d, max_inactivity_time: 252h, description: quiet}',
    )
    assert enterprise.lakeplan("plan", "--detailed-exitcode").code == 0


def it_lists_policies_that_somebody_has_already_tightened_on_the_server(enterprise):
    world = enterprise
    tree(world, QUICK, OLD)
    world.git("init")
    world.git("add", "-A")
    world.git("commit", "-m", "base")
    policies = [
        {"id": "quick", "name_patterns": ["feature-*"], "max_age": DAY},
        {"id": "old", "name_patterns": ["keep"], "max_age": 30 * DAY},
    ]
    world.api.call("PUT", POLICIES, json={"policies": policies})
    for old, changes in ((OLD, 0), (OLD.replace("30d", "20d"), 1)):
        tree(world, QUICK.replace("7d", "1d"), old)
        plan = world.lakeplan("plan", "--base", "HEAD", "--format", "json").json
        assert [r["path"] for r in plan["loosenings"]] == ["branch_lifecycle.policies[quick]"]
        assert len(plan["repositories"][0]["branch_lifecycle"]["changes"]) == changes


def it_refuses_policies_that_were_edited_on_the_server_and_says_what_changed(enterprise):
    tree(enterprise, FEATURES)
    enterprise.lakeplan("apply", enterprise.plan_file())
    tree(enterprise, FEATURES.replace("60d", "50d"))
    planned = enterprise.plan_file()
    edit(enterprise, max_age=90 * DAY)
    refused = enterprise.lakeplan("apply", planned)
    assert refused.code == 5
    assert "max_age 60d to 90d" in " ".join(refused.err.split())
    assert stored(enterprise)[0]["max_age"] == 90 * DAY
    forced = enterprise.lakeplan("apply", planned, "--force")
    assert forced.code == 0, forced.out + forced.err
    assert stored(enterprise)[0]["max_age"] == 50 * DAY


class DescribeWritesInBetween:
    """Somebody writes after the last check: only the server's If-Match can tell."""

    @pytest.fixture
    def planned(self, enterprise):
        tree(enterprise, FEATURES)
        enterprise.lakeplan("apply", enterprise.plan_file())
        tree(enterprise, FEATURES.replace("60d", "50d"))
        return enterprise.plan_file()

    def it_ends_with_5_and_says_what_changed(self, enterprise, planned, monkeypatch):
        meanwhile(monkeypatch, lambda: edit(enterprise, max_age=90 * DAY))
        refused = enterprise.lakeplan("apply", planned)
        assert refused.code == 5
        assert "max_age 60d to 90d" in " ".join(refused.out.split())
        assert stored(enterprise)[0]["max_age"] == 90 * DAY

    def it_writes_over_it_when_forced(self, enterprise, planned, monkeypatch):
        meanwhile(monkeypatch, lambda: edit(enterprise, max_age=90 * DAY))
        assert enterprise.lakeplan("apply", planned, "--force").code == 0
        assert stored(enterprise)[0]["max_age"] == 50 * DAY

    def it_knows_its_own_write_when_the_first_answer_was_lost(self, enterprise, planned, monkeypatch):
        meanwhile(monkeypatch, lambda: edit(enterprise, max_age=50 * DAY))
        applied = enterprise.lakeplan("apply", planned)
        assert applied.code == 0, applied.out
        assert stored(enterprise)[0]["max_age"] == 50 * DAY


def meanwhile(monkeypatch, act) -> None:
    """Lets something happen just before the next list is sent."""
    send = LakeFSSettingsWriter.set_items

    def first_act(self, *arguments, **more):
        act()
        return send(self, *arguments, **more)

    monkeypatch.setattr(LakeFSSettingsWriter, "set_items", first_act)


def it_asks_first_whether_it_may(enterprise):
    tree(enterprise, FEATURES)
    planned = enterprise.plan_file()
    enterprise.handle.faults.deny("GET .*/branch_lifecycle/set_allowed")
    refused = enterprise.lakeplan("apply", planned)
    assert refused.code == 1
    assert "branches:SetBranchLifecyclePolicies" in " ".join(refused.out.split())
    assert stored(enterprise) == []
    assert state_files(enterprise, "deletions/**/*.json") == []


def it_writes_nothing_while_planning(enterprise):
    tree(enterprise, FEATURES)
    enterprise.handle.faults.forget()
    enterprise.lakeplan("plan", "--read-only")
    assert {r.method for r in enterprise.handle.faults.requests} <= {"GET", "HEAD"}
    assert not (enterprise.tree / ".lakeplan").exists()


class DescribeBranchesThatGo:
    def it_names_them_and_when_the_first_deletion_can_come(self, enterprise):
        tree(enterprise, QUICK, OLD)
        result = enterprise.lakeplan("plan")
        flat = " ".join(result.out.split())
        assert "feature-old" in flat
        assert "newly deleted: 2 now, 3 in 7 days, 3 in 30 days" in flat
        following = datetime.now(timezone.utc).replace(minute=0) + timedelta(hours=1)
        assert f"can delete the first branch at {following:%Y-%m-%dT%H:00Z}" in flat

    def it_puts_the_everest_caveat_beside_idle_verdicts(self, enterprise):
        tree(enterprise, QUICK)
        assert "Everest" not in enterprise.lakeplan("plan").out
        tree(enterprise, FEATURES)
        assert "Everest" in enterprise.lakeplan("plan").out

    def it_stops_at_the_gate(self, enterprise):
        text = (enterprise.tree / "lakeplan.yaml").read_text()
        enterprise.write("lakeplan.yaml", text + "safety: {max_deleted_branches: 1}\n")
        tree(enterprise, QUICK, OLD)
        planned = enterprise.plan_file()
        refused = enterprise.lakeplan("apply", planned)
        assert refused.code == 4
        assert "deleted-branches" in refused.err
        assert stored(enterprise) == []
        enterprise.override("deleted-branches")
        opened = enterprise.plan_file("opened.json")
        assert enterprise.lakeplan("apply", opened).code == 0
        assert len(stored(enterprise)) == 2

    def it_records_the_heads_before_it_pushes(self, enterprise):
        head = enterprise.api.call("GET", "/repositories/analytics/branches/feature-old")["commit_id"]
        tree(enterprise, QUICK)
        assert enterprise.lakeplan("apply", enterprise.plan_file()).code == 0
        (record,) = state_files(enterprise, "deletions/**/*.json")
        assert set(record["branches"]) == {"feature-old", "feature-new"}
        assert record["branches"]["feature-old"]["head"] == head
        assert record["branches"]["feature-old"]["fate"] == "seen"

    def it_can_undo_what_the_job_of_the_server_deletes(self, enterprise):
        head = enterprise.api.call("GET", "/repositories/analytics/branches/feature-old")["commit_id"]
        tree(enterprise, QUICK)
        assert enterprise.lakeplan("apply", enterprise.plan_file()).code == 0
        enterprise.api.call("DELETE", "/repositories/analytics/branches/feature-old")  # the job's work
        assert undo(enterprise, "--branch", "feature-old") == 0
        again = enterprise.api.call("GET", "/repositories/analytics/branches/feature-old")
        assert again["commit_id"] == head

    def it_refuses_a_plan_that_would_delete_more_than_was_reviewed(self, enterprise, clock):
        tree(enterprise, QUICK)
        planned = enterprise.plan_file()
        clock.days_ago = 20
        enterprise.api.branch("analytics", "feature-2")
        clock.days_ago = 0
        refused = enterprise.lakeplan("apply", planned)
        assert refused.code == 4, refused.out + refused.err
        assert "2 branches would be deleted, but the reviewed plan shows 1" in " ".join(refused.err.split())


class DescribeOrderAndClear:
    @pytest.fixture
    def two(self, enterprise):
        tree(enterprise, OLD, FEATURES)
        assert enterprise.lakeplan("apply", enterprise.plan_file()).code == 0
        return enterprise

    def it_shows_a_reordering_as_no_effect(self, two):
        ids = [p["id"] for p in stored(two)]
        tree(two, FEATURES, OLD)
        plan = two.lakeplan("plan", "--detailed-exitcode")
        assert plan.code == 2
        assert "no effect on which branches are deleted" in plan.out
        assert two.lakeplan("apply", two.plan_file()).code == 0
        assert [p["id"] for p in stored(two)] == ids[::-1]
        assert two.lakeplan("plan", "--detailed-exitcode").code == 0

    def it_clears_only_through_its_gate(self, two):
        two.write(
            "repositories/analytics.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    branch_lifecycle: clear\n",
        )
        assert two.lakeplan("apply", two.plan_file()).code == 4
        assert len(stored(two)) == 2
        two.override("clear")
        opened = two.plan_file("opened.json")
        assert two.lakeplan("apply", opened).code == 0
        assert stored(two) == []
        assert two.lakeplan("plan", "--detailed-exitcode").code == 0

    def it_takes_the_files_that_people_have_for_lakectl(self, two):
        two.write(
            "repositories/policies.yml",
            "policies:\n  - {id: old, patterns: [keep], max_age: 720h}\n"
            "  - {patterns: ['wip-*', 'feature-*'], max_age: 60d, max_inactivity_time: 10d12h,"
            " description: quiet}\n",
        )
        two.write(
            "repositories/analytics.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n"
            "    branch_lifecycle: {file: policies.yml}\n",
        )
        result = two.lakeplan("plan", "--detailed-exitcode")
        assert result.code == 0, result.out + result.err


class DescribeServersWithoutPolicies:
    """A lapsed licence must not turn lakeplan into the deleter."""

    def it_is_an_error_under_the_engine_server(self, world):
        world.api.repository("analytics")
        text = (world.tree / "lakeplan.yaml").read_text()
        url = world.handle.endpoint_url
        world.write("lakeplan.yaml", text.replace(url, f"{url}, branch_lifecycle: {{engine: server}}"))
        tree(world, QUICK)
        result = world.lakeplan("plan")
        assert result.code == 1
        flat = " ".join(result.out.split())
        assert "but this server does not support branch policies" in flat
        assert "license" in flat

    def it_says_under_the_engine_lakeplan_that_branches_run_enforces_them(self, world):
        world.api.repository("analytics")
        text = (world.tree / "lakeplan.yaml").read_text()
        url = world.handle.endpoint_url
        world.write("lakeplan.yaml", text.replace(url, f"{url}, branch_lifecycle: {{engine: lakeplan}}"))
        tree(world, QUICK, more="    gc: {default_retention_days: 21}\n")
        assert "`lakeplan branches run` enforces" in " ".join(world.lakeplan("plan").out.split())
        applied = world.lakeplan("apply", world.plan_file())
        assert applied.code == 0, applied.err
        assert "Enforced by lakeplan" in applied.out
        assert "prod/analytics" in applied.out

    def it_is_an_error_for_object_rules(self, world):
        world.api.repository("analytics")
        rules(world)
        result = world.lakeplan("plan")
        assert result.code == 1
        assert "does not support object rules" in " ".join(result.out.split())


def rules(world, days: int = 90, more: str = "") -> None:
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    object_lifecycle:\n      rules:\n"
        f"        - {{id: raw, branches: [main], prefix: raw/, expire_after_days: {days}}}\n{more}",
    )


class DescribeObjectRules:
    def it_stops_at_the_gate_because_what_goes_is_not_simulated(self, enterprise):
        rules(enterprise)
        result = enterprise.lakeplan("plan")
        assert result.code == 4
        assert (
            "object lifecycle rules are not simulated, so it is unknown which objects they would expire"
            in " ".join(result.out.split())
        )
        assert "UNKNOWN in 1 repository" in result.out

    def it_sets_changes_and_clears_them(self, enterprise):
        for days in (90, 30):
            rules(enterprise, days)
            enterprise.override("unknown-impact")
            planned = enterprise.plan_file()
            applied = enterprise.lakeplan("apply", planned)
            assert applied.code == 0, applied.out + applied.err
            (rule,) = enterprise.api.call("GET", OBJECTS)["rules"]
            assert rule == {"id": "raw", "branches": ["main"], "prefix": "raw/", "expire_after_days": days}
            assert enterprise.lakeplan("plan", "--detailed-exitcode").code == 0
        enterprise.write(
            "repositories/analytics.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    object_lifecycle: clear\n",
        )
        enterprise.override("clear")
        planned = enterprise.plan_file()
        assert enterprise.lakeplan("apply", planned).code == 0
        assert enterprise.api.session.get(f"{enterprise.api.root}{OBJECTS}", timeout=30).status_code == 404

    def it_refuses_rules_that_were_edited_on_the_server(self, enterprise):
        rules(enterprise)
        enterprise.override("unknown-impact")
        enterprise.lakeplan("apply", enterprise.plan_file())
        rules(enterprise, 60)
        planned = enterprise.plan_file()
        edited = {"id": "raw", "branches": ["main", "keep"], "prefix": "raw/", "expire_after_days": 90}
        enterprise.api.call("PUT", OBJECTS, json={"rules": [edited]})
        refused = enterprise.lakeplan("apply", planned)
        assert refused.code == 5
        assert "branches main to keep, main" in " ".join(refused.err.split())
        assert enterprise.lakeplan("apply", planned, "--force").code == 0


def it_names_both_when_a_pattern_matches_the_default_branch(enterprise):
    tree(enterprise, '{id: all, patterns: ["m*"], max_age: 7d}')
    result = enterprise.lakeplan("plan")
    assert result.code == 1
    flat = " ".join(result.out.split())
    assert "all: its pattern 'm*' matches the default branch 'main'" in flat


def it_feeds_deletions_into_the_retention_simulation(enterprise, clock):
    """What only a deleted branch reached falls to the default days."""
    api = enterprise.api
    clock.days_ago = 40
    api.branch("analytics", "feature-data")
    api.upload("analytics", "feature-data", "big", b"x" * 1000)
    body = {"message": "data", "date": int(time.time() - 40 * DAY)}
    api.call("POST", "/repositories/analytics/branches/feature-data/commits", json=body)
    clock.days_ago = 0
    api.set_rules("analytics", 10)
    tree(enterprise, QUICK)
    result = enterprise.lakeplan("plan", "--format", "json")
    assert result.code in (0, 4), result.err
    (repository,) = result.json["repositories"]
    now = repository["impact"]["horizons"]["now"]
    assert (now["commits_expire"], now["objects_expire"], now["bytes_expire"]) == (1, 1, 1000)
    fates = {f["branch_id"]: f["goes_at"] for f in repository["branch_lifecycle"]["fates"]}
    assert set(fates) == {"feature-old", "feature-data", "feature-new"}


@pytest.mark.parametrize("managed", [True, False])
def it_counts_what_expires_once_policies_that_stay_have_deleted_a_branch(enterprise, clock, managed):
    """A rule of its own keeps the branch's data only until the server's job deletes the branch, also if the
    tree does not manage the policies."""
    api = enterprise.api
    clock.days_ago = 40
    api.branch("analytics", "feature-data")
    api.commit("analytics", "feature-data", 40, big=1000)
    clock.days_ago = 0
    policy = "{id: quick, patterns: ['feature-d*'], max_age: 43d}"
    tree(enterprise, policy, more="    gc: {default_retention_days: 90}\n")
    assert enterprise.lakeplan("apply", "--auto-approve").code == 0
    gc = "    gc: {default_retention_days: 10, branches: [{branch_id: feature-data, retention_days: 90}]}\n"
    if managed:
        tree(enterprise, policy, more=gc)
    else:
        head = "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n"
        enterprise.write("repositories/analytics.yaml", head + gc)
    (repository,) = enterprise.lakeplan("plan", "--format", "json").json["repositories"]
    assert (repository["branch_lifecycle"] or {"action": "none"})["action"] == "none"
    found = {name: h["objects_expire"] for name, h in repository["impact"]["horizons"].items()}
    assert found == {"now": 0, "plus_7_days": 1, "plus_30_days": 1}


def it_says_that_policies_which_the_tree_does_not_manage_could_not_be_read(enterprise):
    gc = "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    gc: {default_retention_days: 10}\n"
    enterprise.write("repositories/analytics.yaml", gc)
    enterprise.handle.faults.deny("GET .*/branch_lifecycle/policies")
    result = enterprise.lakeplan("plan", "--format", "json")
    assert result.code in (0, 4), result.err
    (repository,) = result.json["repositories"]
    assert repository["impact"]["status"] != "unknown"
    assert any(
        "branches that the server's policies delete" in text for text in repository["impact"]["blind_to"]
    )


def it_counts_what_expires_on_a_branch_that_is_due_to_be_deleted(enterprise, clock):
    """A hook or an idle job may keep the branch, which keeps what the stored rule of its own keeps."""
    api = enterprise.api
    clock.days_ago = 40
    api.branch("analytics", "feature-data")
    api.commit("analytics", "feature-data", 40, big=1000)
    api.call("DELETE", "/repositories/analytics/branches/feature-data/objects?path=big.bin")
    api.commit("analytics", "feature-data", 35, small=1)
    clock.days_ago = 0
    tree(enterprise, QUICK, more=_default_90(feature=90))
    assert enterprise.lakeplan("apply", "--auto-approve").code == 0
    tree(enterprise, QUICK.replace("7d", "8d"), more=_default_90(feature=1))
    (repository,) = enterprise.lakeplan("plan", "--format", "json").json["repositories"]
    found = {name: h["objects_expire"] for name, h in repository["impact"]["horizons"].items()}
    assert found == {"now": 1, "plus_7_days": 1, "plus_30_days": 1}


def _default_90(*, feature: int) -> str:
    own = f"branches: [{{branch_id: feature-data, retention_days: {feature}}}]"
    return f"    gc: {{default_retention_days: 90, {own}}}\n"


class DescribeImport:
    """Policies and object rules that somebody has set by hand."""

    @pytest.fixture
    def by_hand(self, enterprise):
        (enterprise.tree / "lakeplan.yaml").unlink()
        policies = [
            {"name_patterns": ["feature-*", "w[i]p"], "max_age": 60 * DAY, "max_inactivity_time": 90061},
            {"id": "old", "name_patterns": ["keep"], "max_age": DAY, "description": 'it\'s: "old"'},
        ]
        rules = [{"id": "raw", "branches": ["main"], "prefix": "raw/", "expire_after_days": 90}]
        enterprise.api.call("PUT", POLICIES, json={"policies": policies})
        enterprise.api.call("PUT", OBJECTS, json={"rules": rules})
        enterprise.api.repository("plain")
        enterprise.api.set_rules("plain", 21)
        return enterprise

    def load(self, world):
        return world.lakeplan("import", "--endpoint", f"prod={world.handle.endpoint_url}")

    def it_writes_a_tree_after_which_a_plan_shows_no_changes(self, by_hand):
        by_hand.handle.faults.forget()
        result = self.load(by_hand)
        assert result.code == 0, result.out + result.err
        assert {r.method for r in by_hand.handle.faults.requests} == {"GET"}
        plan = by_hand.lakeplan("plan", "--detailed-exitcode", "--format", "json")
        assert plan.code == 0, plan.err
        found = {r["name"]: r for r in plan.json["repositories"]}
        assert len(found["analytics"]["branch_lifecycle"]["after"]) == 2
        assert len(found["analytics"]["object_lifecycle"]["after"]) == 1
        assert found["plain"]["branch_lifecycle"] is None

    def it_imports_the_rules_where_policies_may_not_be_read(self, by_hand):
        by_hand.handle.faults.deny("GET .*/branch_lifecycle/.*", status=403, message="no permission")
        result = self.load(by_hand)
        assert result.code == 3
        assert "prod/plain: its branch lifecycle policies" in result.out
        assert (by_hand.tree / "repositories/plain.yaml").exists()


class DescribeHistory:
    """Runs that wrote policies and object rules."""

    @pytest.fixture
    def changed(self, enterprise):
        """A second apply that made a policy's age longer and removed the other one."""
        tree(enterprise, FEATURES, OLD)
        assert enterprise.lakeplan("apply", enterprise.plan_file()).code == 0
        tree(enterprise, FEATURES.replace("60d", "90d"))
        assert enterprise.lakeplan("apply", enterprise.plan_file("second.json")).code == 0
        return enterprise

    def it_lists_and_shows_what_a_run_replaced(self, changed):
        listed = changed.lakeplan("history", "--format", "json")
        jsonschema.Draft202012Validator(load_schema("history")).validate(listed.json)
        assert (listed.code, listed.json["damaged"]) == (0, [])
        (step,) = listed.json["runs"][0]["repositories"]
        (setting,) = step["settings"]
        assert (step["status"], setting["setting"], setting["replaced"]) == (
            "applied",
            "branch_lifecycle",
            True,
        )
        assert [(c["item"], c["action"]) for c in setting["changes"]] == [
            ("feature-*, wip-*", "change"),
            ("old", "clear"),
        ]
        assert "max_age 60d" in changed.lakeplan(("history", "show"), "last").out

    def it_rolls_them_back_by_a_plan_once_the_tree_asks_for_them(self, changed):
        out = changed.folder / "back.json"
        back = (("history", "rollback"), "last", "--format", "json", "--out", str(out), "-q")
        asked = changed.lakeplan(*back)
        assert asked.code == 5
        assert "patterns: [keep], max_age: 30d}" in asked.err
        assert "replace branch_lifecycle with:" in asked.err
        by_hand = changed.lakeplan(*back, "--edit-tree")
        assert by_hand.code == 5
        assert "does not edit policies" in by_hand.err
        assert not out.exists()
        tree(changed, FEATURES, OLD)  # what `git revert` gives
        made = changed.lakeplan(*back)
        assert made.code == 0, made.err
        assert len(stored(changed)) == 1
        applied = changed.lakeplan("apply", out)
        assert applied.code == 0, applied.err
        assert [p["max_age"] for p in stored(changed)] == [60 * DAY, 30 * DAY]

    def it_takes_the_printed_edits(self, changed):
        """What is printed, put into the tree, is what the rollback asks for."""
        asked = changed.lakeplan(("history", "rollback"), "last")
        block = asked.err.partition("replace branch_lifecycle with:\n")[2].partition("hint:")[0]
        lines = indent(dedent(block), "    ")
        changed.write(
            "repositories/analytics.yaml",
            f"apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n{lines}",
        )
        made = changed.lakeplan(("history", "rollback"), "last")
        assert made.code == 0, made.err


class DescribeDrift:
    """Changes of policies and object rules on the server after an apply."""

    @pytest.fixture
    def applied(self, enterprise):
        rule = "{id: raw, branches: [main], prefix: raw/, expire_after_days: 90}"
        tree(enterprise, FEATURES, OLD, more=f"    object_lifecycle: {{rules: [{rule}]}}\n")
        enterprise.override("unknown-impact")
        result = enterprise.lakeplan("apply", enterprise.plan_file(), "--auto-approve")
        assert result.code == 0, result.out + result.err
        return enterprise

    def found(self, world, *more):
        result = world.lakeplan("drift", "--format", "json", *more)
        jsonschema.Draft202012Validator(load_schema("drift")).validate(result.json)
        return [
            (i["class"], i["setting"], i["item"]) for r in result.json["repositories"] for i in r["items"]
        ]

    def it_is_none_after_an_apply_and_after_a_reordering(self, applied):
        assert self.found(applied) == []
        applied.api.call("PUT", POLICIES, json={"policies": stored(applied)[::-1]})
        assert self.found(applied) == []

    def it_is_a_hand_edit_of_a_policy(self, applied):
        edit(applied, max_age=90 * DAY)
        assert self.found(applied) == [("server-edited", "branch_lifecycle", "feature-*, wip-*")]
        page = applied.lakeplan("drift", "--fail-on", "server-edited")
        assert page.code == 2
        assert "max_age 90d" in page.out

    def it_is_object_rules_that_somebody_removed(self, applied):
        applied.api.call("DELETE", OBJECTS)
        assert self.found(applied) == [("server-edited", "object_lifecycle", "raw")]

    def it_is_a_tree_that_asks_for_more(self, applied):
        tree(applied, FEATURES, OLD.replace("30d", "60d"))
        assert self.found(applied) == [
            ("tree-ahead", "branch_lifecycle", "old"),
            ("released", "object_lifecycle", "raw"),
        ]

    def it_is_what_stays_when_the_entry_goes(self, applied):
        (applied.tree / "repositories/analytics.yaml").unlink()
        assert {found[0] for found in self.found(applied)} == {"released"}
        assert "the tree no longer manages its branch lifecycle policies, its object" in " ".join(
            applied.lakeplan("drift").out.split()
        )
