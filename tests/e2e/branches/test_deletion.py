"""Deletion: branch-lifecycle.md on the sandbox."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

ENGINE = ", branch_lifecycle: {engine: lakeplan}"


class DescribeDeletion:
    def it_takes_the_standard_path_so_a_pre_hook_that_refuses_keeps_the_branch(self, lake):
        lake.observed("feature-1", "feature-2")
        lake.handle.faults.deny(
            "DELETE .*/branches/feature-1", status=412, message="pre-delete-branch hook failed: no"
        )
        result = lake.branches("run")
        assert result.code == 0
        ends = {b["branch_id"]: b for b in result.json["repositories"][0]["branches"]}
        assert ends["feature-1"]["outcome"] == "hook_refused"
        assert "pre-delete-branch hook failed" in ends["feature-1"]["message"]
        assert lake.live() == {"main", "feature-1"}

    def it_deletes_nothing_with_an_older_tree(self, lake):
        lake.observed("feature-1")
        file = lake.tree / "repositories/analytics.yaml"
        checkout = file.read_text()
        assert lake.lakeplan("apply", "--auto-approve").code == 0
        file.write_text(f"{checkout}    holds: [{{branch: feature-1, reason: a case}}]\n")
        assert lake.lakeplan("apply", "--auto-approve").code == 0
        file.write_text(checkout)
        result = lake.branches("run")
        assert result.code == 3
        (branch,) = result.json["repositories"][0]["branches"]
        assert "has applied a newer version of the tree" in branch["message"]
        assert lake.live() == {"main", "feature-1"}

    def it_asks_for_the_deletion_that_fires_both_hooks(self, lake):
        lake.observed("feature-1")
        lake.handle.faults.forget()
        assert lake.branches("run").json["summary"]["deleted"] == 1
        asked = [(r.method, r.path.partition("?")[0]) for r in lake.handle.faults.requests]
        deletions = [path for method, path in asked if method == "DELETE"]
        assert deletions == ["/api/v1/repositories/analytics/branches/feature-1"]
        assert not [r.path for r in lake.handle.faults.requests if "force" in r.path]

    def it_loses_uncommitted_changes_and_says_how_many(self, lake):
        lake.policies("{id: quiet, patterns: [feature-*], max_age: 3d}", "{keep_with_uncommitted: false}")
        lake.api.branch("analytics", "feature-1")
        for n in range(3):
            lake.api.upload("analytics", "feature-1", f"new{n}", b"x")
        lake.observed()
        (branch,) = [
            b
            for b in lake.branches("plan", "--no-simulate").json["repositories"][0]["branches"]
            if b["branch_id"] == "feature-1"
        ]
        assert (branch["verdict"], branch["uncommitted"]) == ("delete", 3)
        assert lake.branches("run").json["summary"]["deleted"] == 1
        (back,) = lake.branches("undo").json["repositories"][0]["branches"]
        assert back["uncommitted_lost"] == 3
        assert "cannot be restored" in back["warnings"][0]

    def it_leaves_tags_and_commits_untouched(self, lake):
        lake.api.branch("analytics", "feature-1")
        head = lake.api.commit("analytics", "feature-1", 0, data=3)
        lake.api.tag("analytics", "v1", "feature-1")
        lake.observed()
        (branch,) = [
            b
            for b in lake.branches("plan", "--no-simulate").json["repositories"][0]["branches"]
            if b["verdict"] == "delete"
        ]
        assert branch["tags"] == ["v1"]
        assert lake.branches("run").json["summary"]["deleted"] == 1
        assert lake.api.call("GET", "/repositories/analytics/tags/v1")["commit_id"] == head
        assert lake.api.call("GET", f"/repositories/analytics/commits/{head}")["id"] == head

    def it_keeps_branches_with_open_pull_requests(self, lake):
        lake.observed("feature-1", "feature-2")
        body = {"source_branch": "feature-1", "destination_branch": "main", "title": "mine"}
        lake.api.call("POST", "/repositories/analytics/pulls", json=body)
        assert lake.verdicts()["feature-1"] == ("keep", "open_pull_request")
        assert lake.verdicts()["feature-2"] == ("delete", "policy")

    def it_keeps_a_branch_whose_pull_request_was_opened_during_the_run(self, lake, monkeypatch):
        monkeypatch.setattr("lakeplan.branches.survey.FRESH_SECONDS", 1.0)
        lake.observed("feature-1", "feature-2")

        def open_pull_request():
            for name in lake.live() - {"main"}:
                body = {"source_branch": name, "destination_branch": "main", "title": "mine"}
                lake.api.call("POST", "/repositories/analytics/pulls", json=body)
            time.sleep(1.1)

        lake.handle.faults.lose_next(None, "DELETE .*/branches/feature-", open_pull_request)
        lake.branches("run")
        assert len(lake.live()) == 2

    @pytest.mark.parametrize("name", ["name: team-a\n", ""])
    def it_stops_when_another_tree_takes_the_repository_over_during_the_run(self, lake, monkeypatch, name):
        lake.write("lakeplan.yaml", (lake.tree / "lakeplan.yaml").read_text() + name)
        lake.observed("feature-1", "feature-2")
        passed = 0

        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.now(tz) + timedelta(seconds=passed)

        def take_over():
            nonlocal passed
            passed = 60
            body = {"metadata": {"lakeplan.tree.team-b": "2026-01-01T00:00:00Z"}}
            lake.api.call("POST", "/repositories/analytics/metadata", json=body)

        monkeypatch.setattr("lakeplan.cli.process.datetime", Clock)
        lake.handle.faults.lose_next(204, "DELETE .*/branches/feature-", take_over)
        result = lake.branches("run")
        assert "another tree manages this repository: 'team-b'" in result.out
        assert len(lake.live()) == 2

    def it_keeps_protected_branches_which_the_server_would_let_be_deleted(self, lake):
        lake.observed("feature-1", "feature-2")
        path = "/repositories/analytics/settings/branch_protection"
        lake.api.call("PUT", path, json=[{"pattern": "*-1"}])
        assert lake.verdicts()["feature-1"] == ("keep", "protected")
        assert lake.branches("run").json["summary"]["deleted"] == 1
        assert lake.live() == {"main", "feature-1"}

    @pytest.mark.parametrize("status", [None, 500, 503])
    @pytest.mark.parametrize("work", ["commit", "upload"])
    def it_leaves_a_branch_made_again_with_new_work_when_an_answer_was_lost(self, lake, status, work):
        lake.observed("feature-1")

        def make_again():
            lake.api.branch("analytics", "feature-1")
            if work == "commit":
                lake.api.commit("analytics", "feature-1", 0, new=3)
            else:
                lake.api.upload("analytics", "feature-1", "new", b"x")

        lake.handle.faults.lose_next(status, "DELETE .*/branches/feature-1", make_again)
        lake.handle.faults.forget()
        lake.branches("run")
        deletions = [r for r in lake.handle.faults.requests if r.method == "DELETE"]
        assert len(deletions) == 1
        assert lake.live() == {"main", "feature-1"}
        assert lake.branches("undo").json["summary"]["exists"] == 1

    def it_refuses_policies_that_match_the_default_branch(self, lake):
        lake.policies('{id: all, patterns: ["m*"], max_age: 1d}')
        result = lake.branches("run")
        assert result.code == 1
        failure = result.json["repositories"][0]["failure"]
        assert "'m*' matches the default branch 'main'" in failure["message"]
        assert "repositories/analytics.yaml" in failure["where"]

    def it_leaves_read_only_repositories_alone(self, lake):
        body = {"name": "frozen", "storage_namespace": "local://frozen", "read_only": True}
        lake.api.call("POST", "/repositories", json=body)
        lake.write(
            "repositories/analytics.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  frozen:\n    branch_lifecycle:\n"
            "      policies: [{patterns: [feature-*], max_age: 1s}]\n",
        )
        document = lake.branches("plan", "--no-simulate", "--read-only").json
        assert document["repositories"][0]["read_only"] is True
        assert document["summary"]["delete"] == 0


class DescribeHolds:
    """A branch that a hold names, or that alone leads to what one names, is never deleted."""

    def hold(self, lake, *holds: str) -> None:
        path = lake.tree / "repositories" / "analytics.yaml"
        path.write_text(path.read_text() + f"    holds: [{', '.join(holds)}]\n")

    def it_keeps_a_held_branch(self, lake):
        lake.observed("feature-1", "feature-2")
        self.hold(lake, "{branch: feature-1, reason: legal}")
        assert lake.verdicts()["feature-1"] == ("keep", "held")
        assert "kept by a legal hold" in lake.lakeplan("branches", "plan", "--no-simulate").out
        assert lake.branches("run").json["summary"]["deleted"] == 1
        assert lake.live() == {"main", "feature-1"}

    def it_keeps_branches_that_alone_lead_to_a_held_commit_or_path(self, lake):
        for n in (1, 2, 3):
            lake.api.branch("analytics", f"feature-{n}")
        head = lake.api.commit("analytics", "feature-1", 0, data=3)
        lake.api.upload("analytics", "feature-2", "legal/a", b"x")
        lake.api.commit("analytics", "feature-2", 0)
        lake.api.commit("analytics", "feature-3", 0, other=3)
        lake.observed()
        self.hold(lake, f"{{commit: '{head[:8]}', reason: r}}", "{prefix: legal/, reason: r}")
        assert lake.branches("run").json["summary"]["deleted"] == 1
        assert lake.live() == {"main", "feature-1", "feature-2"}

    def it_deletes_nothing_of_a_held_repository_under_another_name_of_its_server(self, lake, monkeypatch):
        lake.observed("feature-1")
        self.hold(lake, "{branch: feature-1, reason: legal}")
        lake.name_again(monkeypatch, f"{lake.handle.endpoint_url}/", ENGINE)
        entry = (lake.tree / "repositories" / "analytics.yaml").read_text()
        entry = entry.replace("  prod/analytics:", "  lake/analytics:").partition("    holds:")[0]
        lake.write("repositories/lake.yaml", entry)
        result = lake.lakeplan("branches", "run")
        assert result.code == 1
        assert "prod and lake are two names for the same server" in result.err.replace("\n", " ")
        assert lake.live() == {"main", "feature-1"}

    def it_heeds_what_is_held_under_another_name_of_the_host(self, lake, monkeypatch):
        other = lake.handle.endpoint_url.replace("127.0.0.1", "localhost")
        lake.name_again(monkeypatch, other, ENGINE, owner="lake")
        lake.write(
            "repositories/held.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  prod/analytics:\n"
            "    holds: [{branch: feature-1, reason: legal}]\n",
        )
        ledger = lake.ledger.parents[1] / "lake" / "analytics.json"
        monkeypatch.setattr(type(lake), "ledger", ledger)
        lake.observed("feature-1", "feature-2")
        assert lake.verdicts()["feature-1"] == ("keep", "held")
        assert lake.branches("run").code == 0
        assert lake.live() == {"main", "feature-1"}

    def it_deletes_nothing_while_a_hold_is_misspelt(self, lake):
        lake.observed("feature-1")
        self.hold(lake, "{branch: faeture-1, reason: legal}")
        result = lake.branches("run")
        assert result.code == 1
        assert "'faeture-1' keeps nothing" in result.json["repositories"][0]["failure"]["message"]
        assert lake.live() == {"main", "feature-1"}


def it_claims_a_repository_before_it_deletes_a_branch(lake):
    """Each of two trees has exemptions of its own: only one may delete."""
    root = (lake.tree / "lakeplan.yaml").read_text()

    def tree_of(team: str) -> None:
        lake.write("lakeplan.yaml", f"{root}name: {team}\nstate: {{url: 'file://.{team}'}}\n")

    tree_of("team-a")
    lake.api.branch("analytics", "feature-1")
    assert lake.branches("run").code == 0
    ledger = lake.tree / ".team-a" / "branches" / "prod" / "analytics.json"
    ledger.parent.parent.parent.rename(lake.tree / ".lakeplan")
    lake.grow_older(4)
    (lake.tree / ".lakeplan").rename(lake.tree / ".team-a")
    assert lake.branches("run").code == 0
    assert lake.live() == {"main"}
    metadata = lake.api.call("GET", "/repositories/analytics/metadata")
    assert "lakeplan.tree.team-a" in metadata
    tree_of("team-b")
    refused = lake.branches("run")
    assert "another tree manages this repository: 'team-a'" in refused.out


def it_asks_about_uncommitted_changes_that_came_after_the_review(lake):
    """They cannot be brought back: the plan said that there were none."""
    lake.policies("{id: old, patterns: [feature-*], max_age: 3d}", "{keep_with_uncommitted: false}")
    lake.observed("feature-1", "feature-2")
    plan = lake.folder / "branches.json"
    options = ("--no-simulate", "--format", "json", "--out", plan, "-q")
    assert lake.lakeplan("branches", "plan", *options).code == 0
    lake.api.upload("analytics", "feature-1", "work.bin", b"of a week")
    done = lake.branches("run", str(plan))
    (repository,) = done.json["repositories"]
    assert {b["branch_id"]: b["outcome"] for b in repository["branches"]} == {
        "feature-1": "written",
        "feature-2": "deleted",
    }
    assert lake.live() == {"main", "feature-1"}
