"""Branches at pinned commits."""

from __future__ import annotations

import pytest

PATH = "/repositories/analytics"


@pytest.fixture
def pinned(lake):
    """A tagged commit that only feature-1 is at, pinned with 0 days as another commit followed it once."""
    api = lake.api
    api.commit("analytics", "main", 400, a=1)
    api.branch("analytics", "dev")
    commit = api.commit("analytics", "dev", 300, b=2)
    api.commit("analytics", "main", 0, c=3)
    api.tag("analytics", "v1", commit)
    api.call("DELETE", f"{PATH}/branches/dev")
    lake.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    gc: {default_retention_days: 7}\n"
        '    pins: {tags: ["v*"]}\n'
        "    branch_lifecycle: {policies: [{id: quiet, patterns: ['[fl]*'], max_age: 3d}]}\n",
    )
    assert lake.lakeplan("apply", "--auto-approve").code == 0
    name = f"lakeplan-pin-{commit[:12]}"
    assert api.rules("analytics") == {"*": 7}  # nothing follows the commit: the default days
    api.branch("analytics", "feature-1", commit)
    assert lake.lakeplan(("pins", "sync")).code == 0
    assert api.rules("analytics") == {"*": 7, name: 0}
    return name


def it_deletes_no_pin_and_counts_none(lake, pinned):
    lake.observed()
    plan = lake.branches("plan", "--no-simulate").json["repositories"][0]
    assert {b["branch_id"] for b in plan["branches"]} == {"main", "feature-1"}
    assert lake.branches("run").json["summary"]["deleted"] == 1
    assert lake.live() == {"main", pinned}


def it_takes_the_rule_of_no_days_out_before_the_branch_goes(lake, pinned):
    lake.observed()
    lake.handle.faults.forget()
    assert lake.branches("run").json["summary"]["deleted"] == 1
    assert lake.api.rules("analytics") == {"*": 7}
    asked = [(r.method, r.path.rpartition("/")[2]) for r in lake.handle.faults.requests]
    writes = [one for one in asked if one in (("PUT", "gc_rules"), ("DELETE", "feature-1"))]
    assert writes == [("PUT", "gc_rules"), ("DELETE", "feature-1")]
    assert lake.lakeplan("drift").code == 0
    assert lake.lakeplan("plan", "--detailed-exitcode").code == 0


def it_leaves_the_rule_where_another_branch_is_at_the_commit(lake, pinned):
    lake.observed()
    lake.api.branch("analytics", "later", "feature-1")
    assert lake.branches("run").json["summary"]["deleted"] == 1
    assert lake.api.rules("analytics") == {"*": 7, pinned: 0}


def it_keeps_the_branch_when_the_rule_cannot_be_written(lake, pinned):
    lake.observed()
    lake.handle.faults.deny("PUT .*/settings/gc_rules", status=403, message="no")
    (branch,) = lake.branches("run").json["repositories"][0]["branches"]
    assert (branch["branch_id"], branch["outcome"]) == ("feature-1", "failed")
    assert "feature-1" in lake.live()


def it_keeps_the_branch_at_a_pin_with_a_rule_that_the_state_has_no_record_of(lake, pinned):
    lake.observed()
    (
        lake.tree / ".lakeplan/pins/prod/analytics.json"
    ).unlink()  # lost, or under an earlier name of the server
    (branch,) = lake.branches("run").json["repositories"][0]["branches"]
    assert (branch["branch_id"], branch["outcome"]) == ("feature-1", "failed")
    assert "the state has no record" in branch["message"]
    assert "feature-1" in lake.live()
    assert lake.lakeplan(("pins", "sync"), "--adopt").code == 0
    assert lake.branches("run").json["summary"]["deleted"] == 1
    assert lake.api.rules("analytics") == {"*": 7}


@pytest.mark.parametrize("how", ["moved", "visible"])
def it_deletes_no_branch_that_is_named_like_a_pin(lake, pinned, how):
    """Somebody committed to the pin; or a restore from a refs dump lost that it is hidden."""
    if how == "moved":
        lake.api.commit("analytics", pinned, 200, more=1)
    else:
        commit = lake.api.call("GET", f"{PATH}/branches/{pinned}")["commit_id"]
        lake.api.call("DELETE", f"{PATH}/branches/{pinned}")
        lake.api.branch("analytics", pinned, commit)
    lake.observed()
    assert lake.branches("run").code == 0
    assert pinned in lake.live()
