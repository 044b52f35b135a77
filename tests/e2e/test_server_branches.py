"""Branches that a server's own job deletes: what plan says of them, and what drift remembers for undo."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import jsonschema
import pytest

from lakeplan.lakefs.client import LakeFSServer
from lakeplan.sandbox.service import Options
from lakeplan.tree.schemas import load_schema
from tests.sandboxes import start_sandbox

POLICIES = "/repositories/analytics/settings/branch_lifecycle/policies"
QUICK = '{id: quick, patterns: ["feature-*"], max_age: 7d}'


class Clock:
    """The sandbox's clock: now, less some days."""

    def __init__(self) -> None:
        self.days_ago = 0.0

    def __call__(self) -> datetime:
        return datetime.now(timezone.utc) - timedelta(days=self.days_ago)


@pytest.fixture
def enterprise(tmp_path: Path, make_world) -> Iterator[object]:
    """Two branches of forty days, and one of today."""
    clock = Clock()
    with start_sandbox(tmp_path / "sandbox", options=Options(flavor="enterprise", clock=clock)) as handle:
        world = make_world(handle)
        world.write(
            "lakeplan.yaml",
            "apiVersion: lakeplan/v1\n"
            f"servers: {{prod: {{endpoint_url: {handle.endpoint_url},"
            " branch_lifecycle: {engine: server}}}\n",
        )
        clock.days_ago = 40
        world.api.repository("analytics")
        for branch in ("feature-1", "feature-2"):
            world.api.branch("analytics", branch)
        clock.days_ago = 0
        world.api.branch("analytics", "keep")
        tree(world)
        yield world


def tree(world, settings: str = "", policy: str = QUICK) -> None:
    settings = f", {settings[1:-1]}" if settings else ""
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n"
        f"    branch_lifecycle: {{policies: [{policy}]{settings}}}\n",
    )


def fates(world, *arguments: str) -> dict[str, dict]:
    document = world.lakeplan("plan", "--format", "json", "--no-simulate", *arguments).json
    jsonschema.Draft202012Validator(load_schema("plan")).validate(document)
    return {f["branch_id"]: f for f in document["repositories"][0]["branch_lifecycle"]["fates"]}


def records(world) -> list[dict]:
    folder = world.tree / ".lakeplan" / "deletions" / "prod" / "analytics"
    return [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))]


def drift(world, *arguments: str) -> dict:
    result = world.lakeplan("drift", "--format", "json", *arguments)
    assert result.code == 0, result.out + result.err
    jsonschema.Draft202012Validator(load_schema("drift")).validate(result.json)
    return result.json


class DescribeAPlan:
    def it_lists_uncommitted_changes_pull_requests_and_tags_of_branches_that_go(self, enterprise):
        api = enterprise.api
        head = api.commit("analytics", "feature-1", 0, data=3)
        api.upload("analytics", "feature-1", "new", b"x")
        api.tag("analytics", "v1", head)
        body = {"source_branch": "feature-2", "destination_branch": "main", "title": "mine"}
        pull = api.call("POST", "/repositories/analytics/pulls", json=body)["id"]
        found = fates(enterprise)
        assert {name: (f["uncommitted"], f["pulls"], f["tags"]) for name, f in found.items()} == {
            "feature-1": (1, [], ["v1"]),
            "feature-2": (0, [pull], []),
        }
        page = enterprise.lakeplan("plan", "--no-simulate").out
        assert "feature-1  has 1 uncommitted change, tag v1" in page
        comment = enterprise.lakeplan("plan", "--no-simulate", "--format", "markdown").out
        assert "feature-1 (1 uncommitted change, tag v1)" in comment

    def it_asks_with_get_apart_from_the_refs_dump(self, enterprise):
        enterprise.handle.faults.forget()
        fates(enterprise)
        asked = enterprise.handle.faults.requests
        assert [(r.method, r.path) for r in asked if r.method != "GET"] == [
            ("PUT", "/api/v1/repositories/analytics/refs/dump")
        ]
        diffs = [p for r in asked if (p := r.path.partition("?")[0]).endswith("/diff")]
        assert sorted(diffs) == [f"/api/v1/repositories/analytics/branches/feature-{n}/diff" for n in (1, 2)]

    def it_says_what_it_could_not_read_and_plans_all_the_same(self, enterprise):
        enterprise.handle.faults.deny("GET .*/pulls", status=403, message="insufficient permissions")
        assert fates(enterprise)["feature-1"]["uncommitted"] is None
        page = enterprise.lakeplan("plan", "--no-simulate").out
        assert "uncommitted changes and pull requests could not be read" in page

    @pytest.mark.parametrize(
        "settings",
        [
            "{exempt: [keep-*]}",
            "{require_merged: true}",
            "{min_keep: 3}",
            "{keep_with_uncommitted: true}",
            "{keep_with_open_pull_request: false}",
            "{assume_created: head_commit}",
        ],
    )
    def it_warns_that_the_server_s_job_heeds_no_branch_settings(self, enterprise, settings):
        document = enterprise.lakeplan("plan", "--format", "json", "--no-simulate").json
        assert not any("has no effect" in w for w in document["repositories"][0]["warnings"])
        tree(enterprise, settings)
        (warning,) = enterprise.lakeplan("plan", "--format", "json", "--no-simulate").json["repositories"][0][
            "warnings"
        ]
        name = settings.strip("{").partition(":")[0]
        assert f"lifecycle.{name} has no effect with engine: server" in warning
        assert warning.startswith("repositories/analytics.yaml:4:")

    def it_takes_the_server_s_job_for_hourly_unless_the_tree_tells_its_schedule(self, enterprise):
        page = " ".join(enterprise.lakeplan("plan", "--no-simulate").out.split())
        assert "deletes these branches at its next run (hourly unless configured otherwise)" in page


class DescribeDrift:
    def it_records_heads_so_that_undo_brings_back_what_the_job_deletes(self, enterprise):
        head = enterprise.api.commit("analytics", "feature-1", 0, data=3)
        drift(enterprise)
        (record,) = records(enterprise)
        assert {name: b["fate"] for name, b in record["branches"].items()} == {
            "feature-1": "seen",
            "feature-2": "seen",
        }
        enterprise.api.call("DELETE", "/repositories/analytics/branches/feature-1")  # the server's job
        drift(enterprise)
        undone = enterprise.lakeplan("branches", "undo", "--branch", "feature-1")
        assert undone.code == 0, undone.out + undone.err
        assert enterprise.api.call("GET", "/repositories/analytics/branches/feature-1")["commit_id"] == head

    def it_records_again_only_when_something_changed(self, enterprise):
        drift(enterprise)
        drift(enterprise)
        assert len(records(enterprise)) == 1
        enterprise.api.commit("analytics", "feature-1", 0, data=3)
        drift(enterprise)
        assert len(records(enterprise)) == 2

    def it_forgets_heads_long_after_newer_ones_took_their_place(self, enterprise):
        def look(days_ago: int) -> None:
            """Runs one drift and makes its record this old."""
            enterprise.api.commit("analytics", "feature-1", 0, **{f"data{days_ago}": 3})
            drift(enterprise)
            path = sorted(folder.glob("*.json"))[-1]
            record = json.loads(path.read_text())
            at = datetime.now(timezone.utc) - timedelta(days=days_ago)
            record["at"] = at.isoformat(timespec="seconds").replace("+00:00", "Z")
            path.unlink()
            record["run_id"] = f"{at:%Y%m%dT%H%M%S.%fZ}-{days_ago:08d}"
            path.with_stem(record["run_id"]).write_text(json.dumps(record))

        folder = enterprise.tree / ".lakeplan" / "deletions" / "prod" / "analytics"
        for days_ago in (200, 120, 91, 10):
            look(days_ago)
        look(0)
        ages = [
            (datetime.now(timezone.utc) - datetime.fromisoformat(r["at"][:19] + "+00:00")).days
            for r in records(enterprise)
        ]
        assert ages == [91, 10, 0]

    def it_covers_policies_that_only_the_server_has(self, enterprise):
        body = {"policies": [{"name_patterns": ["kee*"], "max_age": 1}]}
        enterprise.api.call("PUT", POLICIES, json=body)
        drift(enterprise)
        assert set(records(enterprise)[0]["branches"]) == {"feature-1", "feature-2", "keep"}

    def it_asks_with_get_only(self, enterprise):
        enterprise.handle.faults.forget()
        drift(enterprise)
        assert {r.method for r in enterprise.handle.faults.requests} == {"GET"}

    def it_records_only_what_is_selected(self, enterprise):
        enterprise.api.repository("other")
        enterprise.write(
            "repositories/other.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  other:\n    gc: {default_retention_days: 21}\n",
        )
        drift(enterprise, "--target", "other")
        assert records(enterprise) == []

    def it_is_no_failure_when_the_state_cannot_be_written(self, enterprise):
        (enterprise.tree / ".lakeplan").mkdir(exist_ok=True)
        (enterprise.tree / ".lakeplan" / "deletions").write_text("in the way")
        (note,) = drift(enterprise, "--fail-on", "server-edited")["notes"]
        assert note.startswith("prod/analytics: the HEADs of its branches could not be recorded")
        assert "could not be recorded" in enterprise.lakeplan("drift").out

    def it_records_nothing_that_would_vanish_with_a_runner(self, enterprise, monkeypatch):
        monkeypatch.setenv("CI", "true")
        (note,) = drift(enterprise)["notes"]
        assert "would be lost when the job ends" in note
        assert records(enterprise) == []

    def it_does_not_take_a_server_that_lost_its_policies_for_one_without_drift(self, enterprise):
        enterprise.handle.faults.deny(
            "GET .*/branch_lifecycle/.*", status=404, message="invalid API endpoint"
        )
        result = enterprise.lakeplan("drift", "--format", "json")
        assert result.code == 1
        assert result.json["summary"]["failed"] == 1
        assert "could not be recorded" in result.json["notes"][0]

    def it_does_not_take_a_repository_with_policies_alone_for_a_damaged_record(self, enterprise):
        assert enterprise.lakeplan("apply", "--auto-approve").code == 0
        assert drift(enterprise)["summary"]["failed"] == 0

    def it_records_nothing_where_lakeplan_is_the_engine(self, enterprise):
        root = (enterprise.tree / "lakeplan.yaml").read_text()
        enterprise.write("lakeplan.yaml", root.replace("engine: server", "engine: lakeplan"))
        drift(enterprise)
        assert records(enterprise) == []


class DescribeHeldBranches:
    HOLD = "    holds: [{branch: feature-1, reason: legal}]\n"

    def it_refuses_policies_that_would_delete_one(self, enterprise):
        path = enterprise.tree / "repositories" / "analytics.yaml"
        path.write_text(path.read_text() + self.HOLD)
        refused = enterprise.lakeplan("apply", "--auto-approve", "--no-simulate")
        assert refused.code == 4
        assert "held-branch" in refused.err + refused.out
        assert enterprise.api.call("GET", POLICIES)["policies"] == []

    @pytest.mark.parametrize("kind", ["commit", "prefix"])
    @pytest.mark.parametrize("arguments", [(), ("--read-only",)])
    def it_refuses_policies_that_would_delete_what_alone_leads_to_it(self, enterprise, kind, arguments):
        head = enterprise.api.commit("analytics", "feature-1", 0, legal=3)
        hold = f"commit: '{head}'" if kind == "commit" else "prefix: legal"
        path = enterprise.tree / "repositories" / "analytics.yaml"
        path.write_text(path.read_text() + f"    holds: [{{{hold}, reason: legal}}]\n")
        planned = enterprise.lakeplan("plan", "--no-simulate", "--format", "json", *arguments)
        assert planned.code == 4
        held = [g for g in planned.json["repositories"][0]["gates"] if g["gate"] == "held-branch"]
        assert [(g["outcome"], g["value"]) for g in held] == [("refused", 1)]
        assert "feature-1 (quick) is needed to reach data that a hold protects" in held[0]["message"]
        enterprise.api.branch("analytics", "stays", "feature-1")
        assert enterprise.lakeplan("plan", "--no-simulate", *arguments).code == 0

    def it_needs_no_branch_that_goes_after_the_end_of_its_hold(self, enterprise):
        """Another hold lasts longer."""
        head = enterprise.api.commit("analytics", "feature-1", 0, legal=3)
        main = enterprise.api.call("GET", f"{POLICIES.partition('/settings')[0]}/branches/main")["commit_id"]
        path = enterprise.tree / "repositories" / "analytics.yaml"
        before = path.read_text().replace("max_age: 7d", "max_age: 70d")
        today = datetime.now(timezone.utc).date()
        for days, code in ((1, 0), (100, 4)):
            ending = f"{{commit: '{head}', reason: legal, until: {today + timedelta(days=days)}}}"
            path.write_text(before + f"    holds: [{ending}, {{commit: '{main}', reason: legal}}]\n")
            assert enterprise.lakeplan("plan", "--no-simulate").code == code

    def it_reads_the_history_once(self, enterprise, monkeypatch):
        head = enterprise.api.commit("analytics", "feature-1", 0, legal=3)
        path = enterprise.tree / "repositories" / "analytics.yaml"
        path.write_text(path.read_text() + f"    holds: [{{commit: '{head}', reason: legal}}]\n")
        dumped = []
        dump = LakeFSServer.dump_refs
        monkeypatch.setattr(LakeFSServer, "dump_refs", lambda *args: (dumped.append(args[1]), dump(*args))[1])
        assert enterprise.lakeplan("plan").code == 4
        assert dumped == ["analytics"]

    def it_refuses_where_the_hold_is_newer_than_the_policies(self, enterprise):
        assert enterprise.lakeplan("apply", "--auto-approve", "--no-simulate").code == 0
        enterprise.write(
            "repositories/analytics.yaml",
            f"apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n{self.HOLD}",
        )
        planned = enterprise.lakeplan("plan", "--format", "json")
        assert planned.code == 4
        (gate,) = planned.json["repositories"][0]["gates"]
        assert (gate["gate"], gate["outcome"]) == ("held-branch", "refused")
        assert "feature-1 (quick, at " in gate["message"]

    def it_refuses_where_the_same_change_drops_the_hold(self, enterprise):
        enterprise.write(
            "repositories/analytics.yaml",
            f"apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n{self.HOLD}",
        )
        for words in (("init",), ("add", "-A"), ("commit", "-m", "base")):
            enterprise.git(*words)
        tree(enterprise)
        assert enterprise.lakeplan("plan", "--no-simulate").code == 0
        planned = enterprise.lakeplan("plan", "--no-simulate", "--base", "HEAD", "--format", "json")
        assert planned.code == 4
        assert "held-branch" in {gate["gate"] for gate in planned.json["repositories"][0]["gates"]}
        assert "holds[branch feature-1]" in {item["path"] for item in planned.json["loosenings"]}
