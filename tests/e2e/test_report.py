"""``lakeplan report`` of a real plan against the sandbox over HTTP: GET requests and one refs dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VERDICTS = ("kept", "released", "expires", "at_risk", "at_risk_already", "gone")


@pytest.fixture
def shop(world: Any) -> Any:
    """main with three commits, a feature branch, and a commit that only a deleted branch had."""
    api = world.api
    api.repository("shop")
    world.first = api.commit("shop", "main", 40, a=10, b=20)
    api.delete("shop", "main", "a.bin")
    world.second = api.commit("shop", "main", 20, c=30)
    api.branch("shop", "feature")
    world.own = api.commit("shop", "feature", 15, d=5)
    world.third = api.commit("shop", "main", 2, e=5)
    api.set_rules("shop", 30, main=60)
    world.rules("shop", 7, main=14)
    return world


def graph_of(page: Path) -> Any:
    text = page.read_text(encoding="utf-8")
    start = text.index('id="graph-0">') + len('id="graph-0">')
    return json.loads(text[start : text.index("</script>", start)])


def report(world: Any, plan: Path, *more: str) -> tuple[Any, Path]:
    page = world.folder / "page.html"
    return world.lakeplan("report", plan, "--html", page, *more), page


def it_draws_what_the_plan_judged(shop: Any) -> None:
    plan = shop.plan_file()
    result, page = report(shop, plan, "--with-curves")
    assert (result.code, result.err) == (0, "")
    assert "proposed: 7 days, 10 B" in page.read_text(encoding="utf-8")
    graph = graph_of(page)
    assert graph["same_as_plan"] is True
    now = json.loads(plan.read_text())["repositories"][0]["impact"]["horizons"]["now"]
    counts = graph["counts"]["now"]
    assert counts["expires"] + counts["at_risk"] == now["commits_expire"] == 2
    verdicts = dict(zip(graph["rows"]["id"], graph["rows"]["verdicts"], strict=True))
    assert VERDICTS[int(verdicts[shop.first][0])] == "expires"
    assert VERDICTS[int(verdicts[shop.second][0])] == "kept", "main moved on from it two days ago"
    assert VERDICTS[int(verdicts[shop.own][0])] == "kept", "a HEAD"
    assert "20 days" in page.read_text(encoding="utf-8"), "idle"


def it_asks_nothing_but_gets_and_a_refs_dump(shop: Any) -> None:
    plan = shop.plan_file("plan.json", "--no-simulate")
    before = len(shop.handle.faults.requests)
    assert report(shop, plan)[0].code == 0
    others = {(r.method, r.path) for r in shop.handle.faults.requests[before:] if r.method != "GET"}
    assert others == {("PUT", "/api/v1/repositories/shop/refs/dump")}
    before = len(shop.handle.faults.requests)
    result, page = report(shop, plan, "--read-only")
    assert result.code == 0
    assert {r.method for r in shop.handle.faults.requests[before:]} == {"GET"}
    assert "Not included: commits that no branch or tag reaches" in page.read_text(encoding="utf-8")


def it_says_when_the_history_has_moved(shop: Any) -> None:
    plan = shop.plan_file("plan.json", "--no-simulate")
    shop.api.commit("shop", "main", 0, f=1)
    result, page = report(shop, plan)
    assert result.code == 0
    assert graph_of(page)["same_as_plan"] is False
    assert "This history differs from the one that the plan evaluated" in page.read_text(encoding="utf-8")


def it_does_not_draw_another_repository_of_the_same_name(shop: Any) -> None:
    plan = shop.plan_file("plan.json", "--no-simulate")
    shop.api.call("DELETE", "/repositories/shop")
    body = {"name": "shop", "storage_namespace": "local://shop-again", "default_branch": "main"}
    shop.api.call("POST", "/repositories", json=body)
    result, page = report(shop, plan)
    assert result.code == 3
    assert "was deleted and created again" in result.err
    assert "graph-0" not in page.read_text(encoding="utf-8")


def it_writes_the_page_when_the_server_is_away(shop: Any) -> None:
    plan = shop.plan_file("plan.json", "--no-simulate")
    shop.handle.stop()
    result, page = report(shop, plan)
    assert result.code == 3
    assert "warning: prod/shop: no commit graph" in result.err
    assert "Impact by repository" in page.read_text(encoding="utf-8")


def it_asks_no_server_that_is_not_the_plans(shop: Any) -> None:
    plan = shop.plan_file("plan.json", "--no-simulate")
    text = (shop.tree / "lakeplan.yaml").read_text().replace("127.0.0.1", "localhost")
    shop.write("lakeplan.yaml", text)
    before = len(shop.handle.faults.requests)
    result, page = report(shop, plan)
    assert result.code == 3
    assert len(shop.handle.faults.requests) == before
    assert "has no server 'prod' at the address in the plan" in result.err
    assert "at the address in the plan" in page.read_text(encoding="utf-8")
