"""Branches in ``lakeplan plan`` where lakeplan itself deletes them (engine ``lakeplan``)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lakeplan.tree.schemas import load_schema
from lakeplan.values.plan_document import dump_plan, load_plan

LEDGER = ".lakeplan/branches/prod/analytics.json"
DAY = 86400


@pytest.fixture
def lake(world):
    """Two quiet feature branches, a young one, one that no policy names; all seen for four days but the
    young one."""
    world.api.repository("analytics")
    world.age_repository("analytics")
    root = (world.tree / "lakeplan.yaml").read_text()
    world.write("lakeplan.yaml", root.replace("}}", ", branch_lifecycle: {engine: lakeplan}}}", 1))
    tree(world)
    for branch in ("feature-1", "feature-2", "other"):
        world.api.branch("analytics", branch)
    assert world.lakeplan("branches", "run", "--format", "json").code == 0
    ledger = json.loads((world.tree / LEDGER).read_text())
    for record in (ledger, *ledger["branches"].values()):
        for key in {"began", "at", "first", "moved"} & record.keys():
            record[key] -= 4 * DAY
    (world.tree / LEDGER).write_text(json.dumps(ledger))
    world.api.branch("analytics", "feature-young")
    return world


def tree(world, gc: str = "", settings: str = "", pattern: str = "feature-*") -> None:
    settings = f", {settings[1:-1]}" if settings else ""
    rules = f"    gc: {gc}\n" if gc else ""
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    branch_lifecycle:\n"
        f'      {{policies: [{{id: quiet, patterns: ["{pattern}"], max_idle_age: 3d}}]{settings}}}\n{rules}',
    )


def limit(world, branches: int, more: str = "") -> None:
    root = (world.tree / "lakeplan.yaml").read_text()
    text = root.replace("safety: {", f"safety: {{max_deleted_branches: {branches}, ")
    world.write("lakeplan.yaml", text + more)


def planned(world, *arguments: str) -> Any:
    """The plan's document, checked against its schema, and the same after it was stored and loaded."""
    result = world.lakeplan("plan", "--format", "json", *arguments)
    Draft202012Validator(load_schema("plan")).validate(result.json)
    assert dump_plan(load_plan(result.out, where="plan")) == result.out
    return result.json


def branches_of(document: Any) -> Any:
    (repository,) = document["repositories"]
    return repository["lifecycle"]


class DescribeListing:
    def it_lists_every_branch_as_branches_plan_does(self, lake):
        document = planned(lake, "--no-simulate")
        other = lake.lakeplan("branches", "plan", "--format", "json", "--no-simulate").json
        one, two = branches_of(document)["branches"], other["repositories"][0]["branches"]
        young = 2  # first seen now, which is a moment later in the second
        assert one[young]["branch_id"] == two[young]["branch_id"] == "feature-young"
        assert [*one[:young], *one[young + 1 :]] == [*two[:young], *two[young + 1 :]]
        assert {b["branch_id"]: b["reason"] for b in branches_of(document)["branches"]} == {
            "feature-1": "policy",
            "feature-2": "policy",
            "feature-young": "not_crossed",
            "main": "default_branch",
            "other": "no_policy",
        }
        assert branches_of(document)["deletions"] == {"now": 2, "plus_7_days": 3, "plus_30_days": 3}
        summary = document["summary"]
        assert (summary["branches_delete"], summary["branches_keep"]) == (2, 3)

    def it_heeds_what_is_held_under_another_name_of_the_host(self, lake, monkeypatch):
        lake.name_again(monkeypatch, lake.handle.endpoint_url.replace("127.0.0.1", "localhost"))
        lake.write(
            "repositories/held.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  lake/analytics:\n"
            "    holds: [{branch: feature-1, reason: legal}]\n",
        )
        document = planned(lake, "--no-simulate", "--server", "prod")
        reasons = {b["branch_id"]: b["reason"] for b in branches_of(document)["branches"]}
        assert (reasons["feature-1"], reasons["feature-2"]) == ("held", "policy")

    def it_shows_what_is_uncommitted_pull_requests_and_tags(self, lake):
        settings = "{keep_with_uncommitted: false, keep_with_open_pull_request: false}"
        lake.api.upload("analytics", "feature-1", "new", b"x")
        tree(lake, settings=settings)
        body = {"source_branch": "feature-2", "destination_branch": "main", "title": "mine"}
        pull = lake.api.call("POST", "/repositories/analytics/pulls", json=body)["id"]
        lake.api.commit("analytics", "feature-2", 0, data=3)
        lake.api.tag("analytics", "v1", "feature-2")
        later = planned(lake, "--no-simulate", "--as-of", "2099-01-01T00:00:00Z")
        found = {b["branch_id"]: b for b in branches_of(later)["branches"]}
        assert (found["feature-1"]["verdict"], found["feature-1"]["uncommitted"]) == ("delete", 1)
        assert (found["feature-2"]["pulls"], found["feature-2"]["tags"]) == ([pull], ["v1"])

    def it_asks_with_get_and_for_one_refs_dump(self, lake):
        tree(lake, gc="{default_retention_days: 21}")
        before = {p: p.read_bytes() for p in lake.tree.rglob("*") if p.is_file()}
        lake.handle.faults.forget()
        planned(lake, "--no-simulate")
        writes = [(r.method, r.path) for r in lake.handle.faults.requests if r.method != "GET"]
        assert writes == [("PUT", "/api/v1/repositories/analytics/refs/dump")]
        assert {p: p.read_bytes() for p in lake.tree.rglob("*") if p.is_file()} == before
        lake.handle.faults.forget()
        planned(lake, "--no-simulate", "--read-only")
        assert {r.method for r in lake.handle.faults.requests} == {"GET"}

    def it_looks_only_where_there_are_policies(self, lake):
        lake.rules("analytics", 21)
        lake.handle.faults.forget()
        document = planned(lake, "--no-simulate")
        assert branches_of(document) is None
        assert document["summary"]["branches_delete"] is None
        asked = [r.path.partition("?")[0] for r in lake.handle.faults.requests]
        assert not [path for path in asked if path.endswith(("/pulls", "/diff"))]
        tree(lake)
        planned(lake, "--no-simulate")
        asked = [r.path.partition("?")[0] for r in lake.handle.faults.requests]
        assert [path for path in asked if path.endswith("/pulls")]

    def it_shows_what_the_policies_do_by_a_future_date(self, lake):
        document = planned(lake, "--no-simulate", "--as-of", "2099-01-01T00:00:00Z")
        assert document["summary"]["branches_delete"] == 3

    def it_plans_the_rules_all_the_same_when_branches_cannot_be_looked_at(self, lake):
        (lake.tree / LEDGER).write_text("{}")
        tree(lake, gc="{default_retention_days: 21}")
        document = planned(lake, "--no-simulate", "--allow", "unknown-impact")
        assert "damaged" in branches_of(document)["unknown"]
        assert document["summary"]["add"] == 1
        assert document["summary"]["branches_delete"] is None
        shown = lake.lakeplan("plan", "--no-simulate").out
        assert "could not be determined" in shown
        assert "Branches to delete: UNKNOWN in 1 repository." in shown
        assert "none to delete" not in shown

    def it_tells_a_person_which_command_deletes_them(self, lake):
        result = lake.lakeplan("plan", "--no-simulate")
        assert result.code == 0, result.err
        assert "deleted by `lakeplan branches run`, not by apply" in result.out
        assert "Branches: 2 to be deleted by `lakeplan branches run`, 3 kept" in result.out
        for text in ("feature-1", "quiet", "no policy matches", "the default branch"):
            assert text in result.out
        comment = lake.lakeplan("plan", "--no-simulate", "--format", "markdown").out
        assert "<code>feature-1</code>" in comment
        assert "not by apply" in comment

    def it_does_not_flood(self, lake):
        for number in range(40):
            lake.api.branch("analytics", f"quiet-{number:02}")
        result = lake.lakeplan("plan", "--no-simulate")
        assert "quiet-07" not in result.out
        assert "43 branches kept: no policy matches (41)" in result.out
        assert len(branches_of(planned(lake, "--no-simulate"))["branches"]) == 45

    def it_says_nothing_new_of_a_branch_that_the_tree_exempts(self, lake):
        tree(lake, settings="{exempt: [feature-*]}")
        assert branches_of(planned(lake, "--no-simulate"))["deletions"] == {
            "now": 0,
            "plus_7_days": 0,
            "plus_30_days": 0,
        }


class DescribeRetention:
    @pytest.fixture
    def heavy(self, lake):
        """feature-1 holds 200 bytes that main does not, 15 days old; 1,000 shared."""
        lake.api.commit("analytics", "main", 60, shared=1000)
        tree(lake, pattern="heavy-*")
        lake.api.branch("analytics", "heavy-1")
        lake.api.commit("analytics", "heavy-1", 15, mine=200)
        lake.api.set_rules("analytics", 30)
        return lake

    def it_warns_of_tags_that_only_such_a_branch_leads_to(self, heavy):
        late = ("--as-of", "2099-01-01T00:00:00Z", "--no-simulate")
        heavy.api.tag("analytics", "v-main", "main")
        assert "tag-loss" not in heavy.lakeplan("plan", *late).out
        heavy.api.tag("analytics", "v1", "heavy-1")
        result = heavy.lakeplan("plan", *late)
        page = " ".join(result.out.split())
        assert "1 tag (v1) may lose data once `lakeplan branches run` deletes heavy-1" in page
        assert result.code == 0

    def it_says_what_follows_under_the_rules_that_the_plan_leaves(self, heavy):
        late = "2099-01-01T00:00:00Z"  # everything is idle by then, and past any days
        shown = branches_of(planned(heavy, "--as-of", late))
        (branch,) = [b for b in shown["branches"] if b["verdict"] == "delete"]
        assert branch["follows"] == {"commits": 1, "objects": 1, "size_bytes": 200, "tags": []}
        assert shown["totals"]["now"]["size_bytes"] == 200
        assert shown["objects_unknown"] == ""

    def it_counts_the_days_of_the_proposed_rules(self, heavy):
        late = ("--as-of", "2099-01-01T00:00:00Z", "--no-simulate")
        (before,) = [b for b in branches_of(planned(heavy, *late))["branches"] if b["safe_until"]]
        tree(heavy, gc="{default_retention_days: 50}", pattern="heavy-*")
        (after,) = [b for b in branches_of(planned(heavy, *late))["branches"] if b["safe_until"]]
        assert before["safe_until"] < after["safe_until"]
        assert branches_of(planned(heavy, *late))["objects_unknown"].startswith("not simulated")

    def it_promises_no_end_without_rules(self, lake):
        found = branches_of(planned(lake, "--no-simulate"))
        assert found["totals"] == {}
        assert not any(b["safe_until"] for b in found["branches"])


class DescribeTheGate:
    def it_counts_what_one_run_would_delete_and_says_which_command(self, lake):
        limit(lake, 1)
        result = lake.lakeplan("plan", "--no-simulate", "--format", "json")
        assert result.code == 4
        (gate,) = [g for g in result.json["repositories"][0]["gates"] if g["gate"] == "deleted-branches"]
        assert (gate["value"], gate["limit"], gate["stops"]) == (2, 1, "lifecycle run")
        assert "`lakeplan branches run`" in gate["message"]
        # one cause is refused once: not for the plan as a whole as well
        assert not [g for g in result.json["gates"] if g["gate"] == "deleted-branches"]
        assert lake.lakeplan("branches", "run").code == 4

    def it_does_not_stop_an_apply_which_deletes_no_branch(self, lake):
        limit(lake, 1)
        tree(lake, gc="{default_retention_days: 21}")
        file = lake.plan_file()
        applied = lake.lakeplan("apply", file)
        assert applied.code == 0, applied.out + applied.err
        assert lake.api.rules("analytics") == {"*": 21}
        names = {b["id"] for b in lake.api.call("GET", "/repositories/analytics/branches")["results"]}
        assert {"feature-1", "feature-2"} <= names

    def it_does_not_stop_an_apply_without_a_plan_file_either(self, lake):
        limit(lake, 1)
        tree(lake, gc="{default_retention_days: 21}")
        applied = lake.lakeplan("apply", "--auto-approve")
        assert applied.code == 0, applied.out + applied.err
        assert lake.api.rules("analytics") == {"*": 21}

    def it_opens_by_an_override_in_the_tree_up_to_its_number(self, lake):
        note = (
            "overrides: [{{repository: analytics, gate: deleted-branches, max: {}, reason: spring,"
            " expires: 2099-12-31}}]\n"
        )
        limit(lake, 1, note.format(2))
        assert lake.lakeplan("plan", "--no-simulate").code == 0
        root = (lake.tree / "lakeplan.yaml").read_text()
        lake.write("lakeplan.yaml", root.replace("max: 2", "max: 1"))
        assert lake.lakeplan("plan", "--no-simulate").code == 4
