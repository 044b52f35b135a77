"""Plan, review, apply: the stories the tool exists for."""

from __future__ import annotations

import json

import pytest

from lakeplan.values.plan_document import load_plan


def history(world, name: str) -> None:
    """Five commits on main, one object each, every one overwritten by the next but kept by its commit."""
    world.api.repository(name)
    for number, age in enumerate((60, 50, 40, 20, 1)):
        world.api.commit(name, "main", age, data=100 + number, **{f"only{number}": 10})


def it_warns_of_holds_on_branches_and_tags_that_are_not_there(world):
    world.api.repository("analytics")
    world.api.tag("analytics", "v1", "main")
    holds = (
        "{branch: main, reason: here}",
        "{branch: mian, reason: misspelt}",
        '{tag: "v*", reason: here}',
        "{tag: w1, reason: not here}",
        "{branch: old, until: 2020-01-01, reason: over}",
        "{prefix: raw/, reason: not known}",
    )
    lines = "".join(f"      - {hold}\n" for hold in holds)
    world.write(
        "repositories/analytics.yaml",
        f"apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    holds:\n{lines}",
    )
    (repository,) = world.lakeplan("plan", "--format", "json").json["repositories"]
    assert [w for w in repository["warnings"] if "keeps nothing" in w] == [
        f"repositories/analytics.yaml:{place}' keeps nothing, because the repository has no {kind} of"
        " that name. Nothing in this repository is deleted until you correct it"
        for place, kind in (
            ("6:18: the hold on branch 'mian", "branch"),
            ("8:15: the hold on tag 'w1", "tag"),
        )
    ]


def it_sets_the_first_rules_and_then_has_nothing_to_do(world):
    world.api.repository("analytics")
    world.api.commit("analytics", "main", 1, a=10)
    world.rules("analytics", 21, main=28)
    first = world.lakeplan("plan", "--detailed-exitcode")
    assert first.code == 2, first.err
    assert "1 to add" in first.out
    applied = world.lakeplan("apply", world.plan_file())
    assert applied.code == 0, applied.err
    assert world.api.rules("analytics") == {"*": 21, "main": 28}
    again = world.lakeplan("plan", "--detailed-exitcode")
    assert again.code == 0, again.out


def it_writes_nothing_while_planning(world):
    history(world, "analytics")
    world.rules("analytics", 5)
    world.handle.faults.forget()
    world.lakeplan("plan", "--no-simulate")
    writes = [r for r in world.handle.faults.requests if r.method not in ("GET", "HEAD")]
    assert [(r.method, r.path) for r in writes] == [("PUT", "/api/v1/repositories/analytics/refs/dump")]
    assert not (world.tree / ".lakeplan").exists()


def it_asks_only_gets_when_read_only(world):
    history(world, "analytics")
    world.rules("analytics", 5)
    world.handle.faults.forget()
    result = world.lakeplan("plan", "--read-only", "--no-simulate")
    assert {r.method for r in world.handle.faults.requests} <= {"GET", "HEAD"}
    assert "no refs dump" in result.out


def it_counts_what_goes_to_the_byte(world):
    history(world, "analytics")
    world.api.set_rules("analytics", 365)
    world.rules("analytics", 5)
    result = world.lakeplan("plan", "--format", "json", "--backlog")
    (repository,) = result.json["repositories"]
    now = repository["impact"]["horizons"]["now"]
    # 5 days keep the HEAD and the first commit past the limit (20 days): data and only of ages 60, 50, 40 go,
    # but the `only` files stay on main, so they are held by the HEAD too
    assert (now["commits_kept_before"], now["commits_kept_after"]) == (6, 2)
    assert (now["objects_expire"], now["bytes_expire"]) == (3, 100 + 101 + 102)
    assert (now["objects_kept"], repository["impact"]["backlog"]["objects"]) == (10, 0)
    assert repository["impact"]["status"] == "simulated"
    assert result.json["runner"]["name"] == "local"
    assert result.json["runner"]["reason"].endswith("entries do not exceed the threshold of 20,000,000")


def it_applies_two_pull_requests_planned_at_the_same_time_and_refuses_a_third_that_grew(world):
    for name in ("analytics", "events", "logs"):
        history(world, name)
        world.api.set_rules(name, 365)
        world.rules(name, 365)
    # three branches of the tree, each planned from its own checkout at the same moment
    plans = {}
    for name in ("analytics", "events", "logs"):
        world.rules(name, 30)
        plans[name] = world.plan_file(f"{name}.json")
        world.rules(name, 365)
    # all merged; commits arrive on the branches meanwhile
    for name in plans:
        world.rules(name, 30)
    world.api.commit("analytics", "main", 0, fresh=5)
    world.api.commit("events", "main", 0, fresh=5)
    # on logs, somebody deletes a branch's worth of data with back-dated commits: more would go than reviewed
    world.api.branch("logs", "extra")
    for number in range(5):
        world.api.commit("logs", "extra", 300 - number, data=1000 + number)
    world.api.commit("logs", "extra", 200, data=7)
    first = world.lakeplan("apply", plans["analytics"])
    assert first.code == 0, first.err
    assert "logs" in first.out  # in the tree, not in this plan: listed and not written
    assert world.lakeplan("apply", plans["events"]).code == 0
    third = world.lakeplan("apply", plans["logs"])
    assert third.code == 4, third.out + third.err
    assert "reviewed" in third.err
    assert world.api.rules("analytics") == {"*": 30}
    assert world.api.rules("events") == {"*": 30}
    assert world.api.rules("logs") == {"*": 365}


class DescribeStalePlans:
    @pytest.fixture
    def planned(self, world):
        world.api.repository("analytics")
        world.api.commit("analytics", "main", 1, a=10)
        world.rules("analytics", 21)
        return world.plan_file()

    def it_refuses_rules_that_changed_and_writes_them_when_forced(self, world, planned):
        world.api.set_rules("analytics", 99)
        refused = world.lakeplan("apply", planned)
        assert refused.code == 5
        assert "ETag" in refused.err
        assert world.api.rules("analytics") == {"*": 99}
        forced = world.lakeplan("apply", planned, "--force")
        assert forced.code == 0, forced.err
        assert world.api.rules("analytics") == {"*": 21}

    def it_refuses_a_tree_that_says_something_else(self, world, planned):
        world.rules("analytics", 22)
        refused = world.lakeplan("apply", planned)
        assert refused.code == 5
        assert "configuration" in refused.err
        assert world.lakeplan("apply", planned, "--force").code == 5
        assert world.api.rules("analytics") is None

    def it_refuses_the_plan_of_another_tree(self, world, planned):
        (world.tree / "repositories/analytics.yaml").unlink()
        world.rules("other", 21)
        refused = world.lakeplan("apply", planned)
        assert refused.code == 5
        assert "no longer has an entry for it" in refused.err

    def it_is_not_stale_when_another_repository_changed_in_the_tree(self, world, planned):
        world.api.repository("events")
        world.rules("events", 7)
        applied = world.lakeplan("apply", planned)
        assert applied.code == 0, applied.err
        assert "prod/events" in applied.out
        assert world.api.rules("events") is None

    def it_refuses_a_truncated_plan(self, world, planned):
        planned.write_text(planned.read_text()[:-200])
        refused = world.lakeplan("apply", planned)
        assert refused.code == 1
        assert str(planned) in refused.err.replace("\n", "")

    def it_refuses_an_edited_plan(self, world, planned):
        document = json.loads(planned.read_text())
        document["repositories"][0]["after"]["default_retention_days"] = 1
        planned.write_text(json.dumps(document))
        refused = world.lakeplan("apply", planned)
        assert refused.code == 1
        assert "changed after it was created" in refused.err

    def it_says_when_the_repository_is_gone(self, world, planned):
        world.api.call("DELETE", "/repositories/analytics")
        refused = world.lakeplan("apply", planned)
        assert refused.code == 1
        assert "prod/analytics" in refused.out + refused.err

    def it_refuses_another_repository_of_the_same_name(self, world, planned):
        world.api.call("DELETE", "/repositories/analytics")
        body = {"name": "analytics", "storage_namespace": "local://analytics-2", "default_branch": "main"}
        world.api.call("POST", "/repositories", json=body)
        refused = world.lakeplan("apply", planned)
        assert refused.code == 5
        assert "a different repository" in refused.err
        assert world.api.rules("analytics") is None

    def it_expands_patterns_over_the_planned_branches_only(self, world):
        world.api.repository("releases")
        world.api.branch("releases", "release-1")
        world.write(
            "repositories/releases.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  releases:\n    gc:\n      default_retention_days: 7\n"
            "      branches:\n        - {pattern: 'release-*', retention_days: 90}\n",
        )
        plan = world.plan_file("releases.json", "--target", "releases")
        world.api.branch("releases", "release-2")
        applied = world.lakeplan("apply", plan)
        assert applied.code == 0, applied.err
        assert "release-2" in applied.out
        assert world.api.rules("releases") == {"*": 7, "release-1": 90}
        again = world.lakeplan("plan", "--target", "releases")
        assert "the stored rules do not include yet: release-2" in " ".join(again.out.split())

    def it_gives_later_branches_their_days_on_request_and_never_fewer(self, world):
        world.api.repository("releases")
        world.api.branch("releases", "release-1")
        world.write(
            "repositories/releases.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  releases:\n    gc:\n      default_retention_days: 30\n"
            "      branches:\n        - {pattern: 'release-*', retention_days: 90}\n"
            "        - {pattern: 'tmp-*', retention_days: 5}\n",
        )
        plan = world.plan_file("releases.json", "--target", "releases")
        world.api.branch("releases", "release-2")
        world.api.branch("releases", "tmp-1")
        assert world.lakeplan("apply", plan, "--refresh-patterns").code == 0
        assert world.api.rules("releases") == {"*": 30, "release-1": 90, "release-2": 90}


class DescribeGates:
    def it_blocks_shows_and_records_what_opens_it(self, world):
        world.write(
            "lakeplan.yaml",
            f"apiVersion: lakeplan/v1\nservers: {{prod: {{endpoint_url: {world.handle.endpoint_url}}}}}\n",
        )
        history(world, "analytics")
        world.api.set_rules("analytics", 365)
        world.rules("analytics", 30)
        blocked = world.lakeplan("plan", "--no-simulate")
        assert blocked.code == 4
        assert "unknown-impact" in blocked.out
        plan = world.plan_file("plan.json", "--no-simulate")
        refused = world.lakeplan("apply", plan, "--no-simulate")
        assert refused.code == 4
        assert world.lakeplan("apply", plan, "--no-simulate", "--force").code == 4
        assert world.api.rules("analytics") == {"*": 365}
        allowed = world.plan_file("plan.json", "--no-simulate", "--allow", "unknown-impact")
        assert load_plan(allowed.read_text(), where="plan").allowed == ("unknown-impact",)
        refused = world.lakeplan("apply", allowed, "--no-simulate")
        assert refused.code == 4, "plan --allow only previews"
        assert "unknown-impact" in refused.err
        world.override("unknown-impact")
        assert world.lakeplan("apply", allowed, "--no-simulate").code == 0
        assert world.api.rules("analytics") == {"*": 30}

    def it_opens_by_a_reviewed_override(self, world):
        history(world, "analytics")
        world.api.set_rules("analytics", 365)
        world.write(
            "repositories/analytics.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    gc: clear\n"
            "overrides: [{repository: analytics, gate: clear, reason: moving away,"
            " expires: 2099-12-31}]\n",
        )
        plan = world.plan_file()
        assert world.lakeplan("apply", plan).code == 0
        assert world.api.rules("analytics") is None
        (entry,) = (world.tree / ".lakeplan/history").iterdir()
        assert "moving away" in " ".join(json.loads(entry.read_text())["overridden"])

    def it_takes_a_glob_that_newly_matches_for_an_adoption(self, world):
        world.api.repository("team-a-events")
        world.write(
            "repositories/team.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  'team-a-*':\n    gc: {default_retention_days: 30}\n",
        )
        assert world.lakeplan("plan").code == 4
        world.override("adoption")
        plan = world.plan_file()
        assert world.lakeplan("apply", plan).code == 0
        world.override()
        world.write(
            "repositories/team.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  'team-a-*':\n    gc: {default_retention_days: 40}\n",
        )
        assert world.lakeplan("plan").code == 0  # known since the apply

    def it_does_not_open_from_a_pipeline_by_a_flag_of_apply(self, world):
        world.rules("analytics", 30)
        assert world.lakeplan("apply", "--allow", "clear", "--auto-approve").code == 64


class DescribeApplyWithoutAFile:
    def it_needs_somebody_to_say_yes(self, world):
        world.api.repository("analytics")
        world.rules("analytics", 30)
        before = len(world.handle.faults.requests)
        assert world.lakeplan("apply").code == 64
        assert len(world.handle.faults.requests) == before, "it asks nothing that it could not use"
        assert world.lakeplan("apply", "--auto-approve").code == 0
        assert world.api.rules("analytics") == {"*": 30}

    def it_applies_the_rest_when_one_repository_is_missing(self, world):
        world.api.repository("analytics")
        world.rules("analytics", 30)
        world.rules("missing-one", 30)
        result = world.lakeplan("apply", "--auto-approve")
        assert result.code == 3
        assert world.api.rules("analytics") == {"*": 30}


class DescribeALostAnswer:
    """A write takes effect, its answer never arrives, and something happens before lakeplan reads again."""

    @pytest.fixture(params=[None, 500, 503])
    def status(self, request):
        return request.param

    def it_is_applied_and_nobody_is_blamed(self, world, status):
        world.api.repository("lake")
        world.api.set_rules("lake", 30)
        world.rules("lake", 7)
        world.handle.faults.lose_next(status, "PUT .*/settings/gc_rules")
        result = world.lakeplan("apply", "--auto-approve", "--format", "json")
        assert result.code == 0, result.err
        assert result.json["summary"] == {"applied": 1, "already": 0, "failed": 0, "uncertain": 0}
        assert world.lakeplan("drift").code == 0

    def it_leaves_what_a_colleague_raised_meanwhile_and_says_what_it_found(self, world, status):
        world.api.repository("lake")
        world.api.set_rules("lake", 30)
        world.rules("lake", 7)
        raised = lambda: world.api.set_rules("lake", 365)  # noqa: E731
        world.handle.faults.lose_next(status, "PUT .*/settings/gc_rules", raised)
        result = world.lakeplan("apply", "--auto-approve", "--format", "json")
        assert result.code == 5
        assert world.api.rules("lake") == {"*": 365}
        (run,) = world.lakeplan(("history", "list"), "--format", "json").json["runs"]
        (step,) = run["repositories"]
        assert step["found"] == {"body": {"default_retention_days": 365, "branches": []}}

    def it_is_uncertain_when_the_server_stays_away_and_drift_blames_nobody(self, world, status):
        world.api.repository("lake")
        world.rules("lake", 30)
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("lake", 7)
        faults = world.handle.faults
        gone = lambda: faults.deny("GET .*/settings/gc_rules", status=502)  # noqa: E731
        faults.lose_next(status, "PUT .*/settings/gc_rules", gone)
        result = world.lakeplan("apply", "--auto-approve", "--format", "json")
        assert result.code == 3, result.err
        assert [r["outcome"] for r in result.json["results"]] == ["uncertain"]
        faults.clear()
        assert world.api.rules("lake") == {"*": 7}
        assert world.lakeplan("drift", "--format", "json").json["repositories"] == []
        world.rules("lake", 6)
        assert world.lakeplan("apply", "--auto-approve").code == 0
        assert world.lakeplan("drift").code == 0
