"""``plan --set``: the plan of a change that is not written yet."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from lakeplan.tree.schemas import load_schema

SET = ("--set", "gc.default_retention_days=14")
ASSUMED = "What if gc.default_retention_days=14? The tree does not contain this change"


@pytest.fixture
def lake(world):
    world.api.repository("analytics")
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics: {gc: {default_retention_days: 21}}\n",
    )
    assert world.lakeplan("apply", world.plan_file()).code == 0
    return world


def it_plans_what_the_tree_does_not_say(lake):
    assert lake.lakeplan("plan", "--detailed-exitcode").code == 0
    result = lake.lakeplan("plan", "--detailed-exitcode", "--format", "json", *SET)
    assert result.code == 2
    Draft202012Validator(load_schema("plan")).validate(result.json)
    assert result.json["what_if"] == ["gc.default_retention_days=14"]
    (analytics,) = result.json["repositories"]
    assert analytics["after"]["default_retention_days"] == 14
    assert "what_if" not in lake.lakeplan("plan", "--format", "json").json


def it_says_so_first_in_every_format(lake):
    assert " ".join(lake.lakeplan("plan", *SET).out.split()).startswith(ASSUMED)
    marker, first, *_ = lake.lakeplan("plan", "--format", "markdown", *SET).out.splitlines()
    assert marker == "<!-- lakeplan:what-if:. -->"  # the comment with the real plan stays
    assert first.startswith("**What if** <code>gc.default")
    first = lake.lakeplan("plan", "--format", "github", *SET).out.splitlines()[0]
    assert ASSUMED in first
    plan, page = lake.plan_file("assumed.json", *SET), lake.tree / "page.html"
    assert " ".join(lake.lakeplan("show", plan).out.split()).startswith(ASSUMED)
    assert lake.lakeplan("report", plan, "--html", page).code == 0
    assert ASSUMED in page.read_text()


def it_is_never_applied(lake):
    path = lake.plan_file("assumed.json", *SET)
    for more in ((), ("--force",), ("--replan",), ("--refresh-patterns",)):
        refused = lake.lakeplan("apply", path, *more)
        assert refused.code == 64
        assert "this plan assumes gc.default_retention_days=14 (--set)" in refused.err
        assert "Make the change in the tree" in refused.err
    # without the word, it is the plan of another tree
    plan = json.loads(path.read_text())
    del plan["what_if"]
    path.write_text(json.dumps(plan))
    assert lake.lakeplan("apply", path).code in (1, 5)
    assert lake.api.rules("analytics")["*"] == 21


def it_is_no_part_of_a_review(lake):
    refused = lake.lakeplan("plan", "--base", "HEAD", *SET)
    assert refused.code == 64
    assert "--set and --base cannot be combined" in refused.err


def it_leaves_no_values_in_a_redacted_plan(lake):
    hold = "holds=[{prefix: secret/, reason: private}]"
    result = lake.lakeplan("plan", "--redact-paths", "--format", "json", *SET, "--set", hold)
    assert result.json["what_if"] == ["gc.default_retention_days=…", "holds=…"]
    assert "secret/" not in result.out
