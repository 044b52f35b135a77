"""Carries out the remedies that ``explain`` names and checks that its answer changes as promised."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any, get_args

import pytest

from lakeplan.explain.rules import Kind
from tests.e2e.test_explain import explained

TRIED: dict[str, str] = {
    "days": "at least 21 days (now 14)",
    "branch_here": "create a branch at",
    "move_head": (
        "its HEAD contains the object; create a commit without the object, and it expires 28 days later"
    ),
    "remove_pin": "remove the pin from `pins` in the tree, then apply",
    "too_young": "today, even a retention of 1 day keeps it",
    "set_rules": "set rules, then run `lakeplan explain` again",
    "reset": "branch main: reset the uncommitted change",
    "end_protection": "end its protection",
}
"""Every remedy that there is, and how it is printed in its test below."""


@pytest.fixture
def shop(world: Any) -> Any:
    """main: a.bin and b.bin (40 days ago), then without a.bin (20 days ago), then with d.bin, today."""
    api = world.api
    api.repository("shop")
    world.first = api.commit("shop", "main", 40, a=10, b=20)
    api.delete("shop", "main", "a.bin")
    api.commit("shop", "main", 20, c=30)
    api.set_rules("shop", 7, main=28)
    world.rules("shop", 7, main=14)
    return world


def asked(world: Any, what: str, rule_set: str, *more: str) -> Any:
    (found,) = [
        v for v in explained(world, what, *more)["subjects"][0]["verdicts"] if v["rule_set"] == rule_set
    ]
    return found


def only(remedies: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [remedy for remedy in remedies if remedy["kind"] == kind]
    return found


def says(world: Any, what: str, kind: str) -> None:
    assert TRIED[kind] in " ".join(world.lakeplan("explain", "shop", what).out.split())


def commit(world: Any) -> None:
    world.api.call(
        "POST",
        "/repositories/shop/branches/main/commits",
        json={"message": "without", "date": int(time.time())},
    )


def it_tries_every_remedy_that_there_is() -> None:
    tests = "".join(name for name in globals() if name.startswith("it_"))
    assert set(TRIED) == set(get_args(Kind))
    assert [kind for kind in TRIED if f"__{kind}__" not in tests] == []


def it_stays_with__days__and_not_with_one_less(shop: Any) -> None:
    says(shop, "a.bin", "days")
    remedy = only(asked(shop, "a.bin", "proposed")["to_stay"], "days")
    shop.rules("shop", 7, main=remedy["days"] - 1)
    assert asked(shop, "a.bin", "proposed")["status"] == "expired"
    shop.rules("shop", 7, main=remedy["days"])
    assert asked(shop, "a.bin", "proposed")["status"] == "kept"


def it_goes_with__days__and_not_with_one_more(shop: Any) -> None:
    (remedy,) = asked(shop, "a.bin", "stored")["to_go"]
    assert (remedy["kind"], remedy["branch"], remedy["days"]) == ("days", "main", 20)
    shop.api.set_rules("shop", 7, main=remedy["days"] + 1)
    assert asked(shop, "a.bin", "stored")["status"] == "kept"
    shop.api.set_rules("shop", 7, main=remedy["days"])
    assert asked(shop, "a.bin", "stored")["status"] == "expired"


def it_stays_with__days__of_the_default(shop: Any) -> None:
    shop.api.branch("shop", "old")
    lost = shop.api.commit("shop", "old", 10, e=5)
    shop.api.call("DELETE", "/repositories/shop/branches/old")
    verdict = asked(shop, lost, "stored")
    assert verdict["status"] == "expired"
    remedy = only(verdict["to_stay"], "days")
    assert remedy["branch"] is None
    shop.api.set_rules("shop", remedy["days"], main=28)
    assert asked(shop, lost, "stored")["status"] == "kept"


def it_stays_with_a__branch_here__under_every_rule(shop: Any) -> None:
    says(shop, "a.bin", "branch_here")
    remedy = only(asked(shop, "a.bin", "proposed")["to_stay"], "branch_here")
    shop.api.branch("shop", "keep", remedy["commit_id"])
    for rule_set in ("stored", "proposed"):
        verdict = asked(shop, "a.bin", rule_set, "--as-of", later(3000))
        assert (verdict["status"], verdict["kept_until"]) == ("kept", None)


def later(days: float) -> str:
    return (datetime.now(timezone.utc) + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


def it_goes_after_a__move_head__and_the_days_that_follow(shop: Any) -> None:
    says(shop, "main:c.bin", "move_head")
    (remedy,) = asked(shop, "c.bin", "stored")["to_go"]
    assert (remedy["kind"], remedy["branch"], remedy["days_now"]) == ("move_head", "main", 28)
    shop.api.delete("shop", "main", "c.bin")
    commit(shop)
    verdict = asked(shop, "c.bin", "stored")
    assert verdict["status"] == "kept"
    assert later(27) < verdict["kept_until"] < later(30)
    assert asked(shop, "c.bin", "stored", "--as-of", later(27))["status"] == "kept"
    assert asked(shop, "c.bin", "stored", "--as-of", later(30))["status"] == "expired"


def it_is__too_young__for_any_rule_today_and_not_tomorrow(shop: Any) -> None:
    shop.api.delete("shop", "main", "c.bin")
    commit(shop)
    says(shop, "c.bin", "too_young")
    assert only(asked(shop, "c.bin", "stored")["to_go"], "too_young")["branch"] == "main"
    shop.api.set_rules("shop", 1, main=1)
    assert asked(shop, "c.bin", "stored")["status"] == "kept"
    assert asked(shop, "c.bin", "stored", "--as-of", later(3))["status"] == "expired"


def it_has_to__set_rules__first(shop: Any) -> None:
    shop.api.call("DELETE", "/repositories/shop/settings/gc_rules")
    says(shop, "c.bin", "set_rules")
    verdict = asked(shop, "c.bin", "stored")
    assert [r["kind"] for r in verdict["to_go"]] == ["set_rules", "move_head"]
    assert [r["kind"] for r in asked(shop, "a.bin", "stored")["to_go"]] == ["set_rules"]
    shop.api.set_rules("shop", 1, main=1)
    assert asked(shop, "a.bin", "stored")["status"] == "expired"
    assert [r["kind"] for r in asked(shop, "c.bin", "stored")["to_go"]] == ["move_head"]


def it_has_to__reset__what_is_uncommitted(shop: Any) -> None:
    shop.api.upload("shop", "main", "new.bin", b"new")
    says(shop, "new.bin", "reset")
    subject = explained(shop, "new.bin")["subjects"][0]
    remedy = only(subject["verdicts"][0]["to_go"], "reset")
    shop.api.call("PUT", f"/repositories/shop/branches/{remedy['branch']}", json={"type": "reset"})
    assert asked(shop, subject["address"], "stored")["status"] == "never_committed"


def it_goes_from_sweeps_after_an__end_protection__(shop: Any) -> None:
    hold = "    holds: [{prefix: a, until: 2099-01-01, reason: legal}]\n"
    file = shop.tree / "repositories/shop.yaml"
    text = file.read_text()
    file.write_text(text.replace("    gc:\n", f"{hold}    gc:\n"))
    says(shop, "a.bin", "end_protection")
    verdict = asked(shop, "a.bin", "proposed")
    assert (verdict["status"], [r["kind"] for r in verdict["to_go"]]) == ("expired", ["end_protection"])
    file.write_text(text)
    subject = explained(shop, "a.bin")["subjects"][0]
    assert (subject["protected_by"], subject["verdicts"][1]["to_go"]) == ([], [])


def it_has_to__remove_pin__from_the_tree(shop: Any) -> None:
    shop.api.tag("shop", "v1", shop.first)
    shop.override("tag-loss", "expired-objects")
    file = shop.tree / "repositories/shop.yaml"
    text = file.read_text()
    file.write_text(f"{text}    pins: {{tags: [v1]}}\n")
    applied = shop.lakeplan("apply", "--auto-approve", "-q")
    assert applied.code == 0, applied.err
    says(shop, "v1", "remove_pin")
    remedy = only(asked(shop, "v1", "stored")["to_go"], "remove_pin")
    assert remedy["commit_id"] == shop.first
    file.write_text(text)
    applied = shop.lakeplan("apply", "--auto-approve", "-q")
    assert applied.code == 0, applied.err
    assert asked(shop, "v1", "stored")["status"] == "expired"
