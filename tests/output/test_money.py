"""The cost of bytes is shown next to them if the tree has a price, and nowhere else."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from lakeplan.output.comments import render_markdown
from lakeplan.output.explain import render_repository
from lakeplan.output.plan import render_plan
from lakeplan.output.report import render_report
from lakeplan.output.sweep import render_sweep
from lakeplan.output.text import Money, money, sums
from lakeplan.values.desired import Price
from lakeplan.values.plan import Backlog
from lakeplan.values.plan_document import to_document
from tests.output import report_pages

USD = Price(0.023, "USD")


def priced(plan: Any, *prices: Price | None) -> Any:
    """The plan with the prices on its first repositories, in order, and a backlog that was read."""
    repositories = [
        replace(
            repository,
            cost_per_gb_month=price,
            impact=replace(repository.impact, backlog=Backlog(5, 7, 500 * 10**9)),
        )
        for repository, price in zip(plan.repositories, prices, strict=False)
    ]
    return replace(plan, repositories=(*repositories, *plan.repositories[len(prices) :]))


@pytest.mark.parametrize("width", [80, 160])
def it_looks_as_reviewed(plans: Any, show: Any, golden_output: Any, width: int) -> None:
    document = to_document(priced(plans.full(), USD))
    text = show(render_plan, document, width)
    golden_output(f"plan-money-{width}", text)
    assert max(map(len, text.splitlines())) <= width


def it_looks_as_reviewed_in_a_comment(plans: Any, golden_output: Any) -> None:
    golden_output("plan-money-markdown", render_markdown(to_document(priced(plans.full(), USD))))


def it_counts_a_gb_as_a_thousand_million_bytes(plans: Any, show: Any) -> None:
    document = to_document(priced(plans.full(), USD))
    (cost,) = document["summary"]["cost_expire"]
    assert cost["currency"] == "USD"
    assert cost["per_month"] == pytest.approx(1_204_331 * 2_574_000 / 10**9 * 0.023)
    assert "3.1 TB, 71.30 USD a month" in " ".join(show(render_plan, document, 160).split())
    assert "500.0 GB, 11.50 USD a month" in show(render_repository, document["repositories"][0], 160)


def it_says_nothing_without_a_price(plans: Any, show: Any) -> None:
    document = to_document(plans.full())
    assert document["summary"]["cost_expire"] == []
    assert "a month" not in show(render_plan, document, 160) + render_markdown(document)


def it_keeps_currencies_apart_and_rows_without_a_price_empty(plans: Any, show: Any) -> None:
    first = plans.full().repositories[0]
    others = [replace(first, name=f"lake-{i}", server=f"s{i}") for i in range(12)]
    prices = [USD, Price(0.02, "EUR"), None, *[USD] * 9]
    document = to_document(priced(plans.make(*others), *prices))
    assert [cost["currency"] for cost in document["summary"]["cost_expire"]] == ["EUR", "USD"]
    text = show(render_plan, document, 160)
    row = next(line for line in text.splitlines() if line.startswith("s1/lake-1 "))
    assert "62.00 EUR" in row
    assert not re.search("EUR|USD", next(line for line in text.splitlines() if line.startswith("s2/lake-2 ")))
    assert "37.2 TB, 62.00 EUR and 712.99 USD a month" in " ".join(text.split())


def it_tells_what_a_sweep_freed(show: Any) -> None:
    none = {"objects": 0, "size_bytes": 0}
    document = {
        "repository": "prod/lake",
        "mark_id": "m",
        "deleted": {"objects": 2, "size_bytes": 10**12},
        **dict.fromkeys(("saved", "failed", "pending"), none),
        "reasons": {},
        "came_back": 0,
        "problem": "",
        "settings": {},
        "settings_from": {},
        "not_yet_reclaimed": "",
        "verified": 2,
        "finished": True,
        "cost_per_gb_month": {"amount": 0.1, "currency": ""},
    }
    text = show(render_sweep, document, 80)
    assert "a month" in text
    assert "1.0 TB, 100.00 a month" in text


def it_is_on_the_page_beside_every_figure_of_bytes() -> None:
    document = report_pages.full()
    assert "a month" not in render_report(document)
    price = {"amount": 0.1, "currency": "USD"}
    for repository in (*document["repositories"], *document["plan"]["repositories"]):
        repository["cost_per_gb_month"] = price
    page = render_report(document)
    headers = re.findall(r"<thead>.*?</thead>", page, re.DOTALL)
    of_bytes = [head for head in headers if ">bytes" in head]
    assert len(of_bytes) >= 4
    assert [head for head in of_bytes if "a month" not in head] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00 USD"), (0.001, "<0.01 USD"), (0.005, "0.01 USD"), (1234.5, "1,234.50 USD")],
)
def it_never_shows_something_as_nothing(value: float, text: str) -> None:
    assert money(value, "USD") == text


def it_tells_an_unknown_amount_from_none() -> None:
    assert Money(USD).cells(None) == ("unknown",)
    assert Money(USD).words(None) == Money(USD).words(0) == ""
    assert sums([], "per_month") == ""
