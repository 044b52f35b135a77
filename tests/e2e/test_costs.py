"""``servers.*.cost_per_gb_month``, from the tree to the documents."""

from __future__ import annotations

import json

import jsonschema
import pytest

from lakeplan.tree.schemas import load_schema
from tests.openmetrics import samples

PRICE = {"amount": 0.023, "currency": "USD"}


@pytest.fixture
def priced(world):
    """A tree with a price and one repository, whose branches lakeplan deletes."""
    world.write(
        "lakeplan.yaml",
        "apiVersion: lakeplan/v1\nservers:\n  prod:\n"
        f"    endpoint_url: {world.handle.endpoint_url}\n    cost_per_gb_month: 0.023 USD\n"
        "    branch_lifecycle: {engine: lakeplan}\n",
    )
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    gc: {default_retention_days: 21}\n"
        "    branch_lifecycle: {policies: [{id: old, patterns: [feature-*], max_age: 1d}]}\n",
    )
    world.api.repository("analytics")
    return world


def valid(name, document):
    jsonschema.Draft202012Validator(load_schema(name)).validate(document)
    return document


def it_shows_where_the_price_comes_from(priced):
    shown = priced.lakeplan("show", "--resolved", "analytics").out
    assert "servers.prod.cost_per_gb_month" in shown
    assert "0.023 USD" in shown
    assert "lakeplan.yaml:5" in shown
    document = priced.lakeplan("show", "--resolved", "analytics", "--format", "json").json
    (value,) = document["repositories"][0]["server_values"]
    assert (value["value"], value["line"]) == ("0.023 USD", 5)


def it_is_in_the_plan_file_and_survives_its_apply(priced):
    priced.override("unknown-impact")
    path = priced.plan_file("plan.json", "--no-simulate")
    plan = valid("plan", json.loads(path.read_text()))
    assert plan["repositories"][0]["cost_per_gb_month"] == PRICE
    text = (priced.tree / "lakeplan.yaml").read_text()
    priced.write("lakeplan.yaml", text.replace("0.023 USD", "9"))  # a new price makes no plan stale
    assert priced.lakeplan("apply", path, "--no-simulate").code == 0


def it_is_in_the_documents_of_branches_and_drift(priced):
    plan = valid("lifecycle", priced.lakeplan("branches", "plan", "--no-simulate", "--format", "json").json)
    assert plan["repositories"][0]["cost_per_gb_month"] == PRICE
    valid("lifecycle", priced.lakeplan("branches", "run", "--format", "json").json)
    drift = valid("drift", priced.lakeplan("drift", "--format", "json").json)
    assert drift["recorded"][0]["cost_per_gb_month"] == PRICE
    metrics = samples(priced.lakeplan("drift", "--format", "openmetrics").out)
    assert metrics["lakeplan_drift_cost_per_gb_month"] == {("prod", "analytics", "", "USD"): 0.023}


def it_is_in_a_curve(priced):
    priced.api.commit("analytics", "main", 40, a=10)
    priced.api.commit("analytics", "main", 1, b=20)
    result = priced.lakeplan("curve", "analytics", "--format", "json")
    assert valid("curve", result.json)["cost_per_gb_month"] == PRICE, result.err
    shown = priced.lakeplan("curve", "analytics").out
    assert "USD" in shown


def it_reads_storage_where_the_tree_says_that_it_is(priced, monkeypatch):
    def figures(storages):
        root = (priced.tree / "lakeplan.yaml").read_text().partition("    storages:")[0]
        priced.write("lakeplan.yaml", f"{root}    storages: {storages}\n")
        (row,) = valid("storage", priced.lakeplan("storage", "--format", "json").json)["repositories"]
        return row

    assert figures('{"": {type: local, path: %s}}' % (priced.folder / "sandbox"))["stored"] is not None
    monkeypatch.delenv("LAKEPLAN_PROD_STORAGE_URL", raising=False)
    row = figures('{"": {type: s3, endpoint_url: "https://elsewhere.example"}}')
    assert row["stored"] is None
    assert row["not_listed"].startswith("LAKEPLAN_PROD_STORAGE_URL: ")
    assert row["not_listed"].endswith("nothing was sent")


def it_is_the_trees_for_storage_unless_another_is_given(priced):
    place = ("storage", "--storage-path", priced.folder / "sandbox", "--format", "json")
    (row,) = valid("storage", priced.lakeplan(*place).json)["repositories"]
    assert (row["cost_per_gb_month"], row["owner"]) == (PRICE, None)
    (row,) = priced.lakeplan(*place, "--price", "2 EUR").json["repositories"]
    assert row["cost_per_gb_month"] == {"amount": 2.0, "currency": "EUR"}
    text = (priced.tree / "repositories/analytics.yaml").read_text()
    priced.write(
        "repositories/analytics.yaml", text.replace("analytics:\n", "analytics:\n    owner: data\n", 1)
    )
    found = valid("storage", priced.lakeplan(*place, "--by-class").json)
    assert [owner["owner"] for owner in found["owners"]] == ["data"]
    assert found["repositories"][0]["classes"] is None


@pytest.mark.parametrize("price", ["1e308", "1000000000", "1e9"])
def it_refuses_a_price_whose_cost_may_be_no_number(priced, price):
    text = (priced.tree / "lakeplan.yaml").read_text()
    priced.write("lakeplan.yaml", text.replace("0.023 USD", price))
    result = priced.lakeplan("validate")
    assert result.code == 1
    assert "expected a price such as 0.023 or 0.023 USD, below 1000000000" in result.err
