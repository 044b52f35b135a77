"""``lakeplan explain`` against the sandbox over HTTP: only GET requests and one refs dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "explain.v1.json").read_text())


@pytest.fixture
def shop(world: Any) -> Any:
    """main: a.bin (40 days ago), then without it (20 days ago); dev from the first; one staged file."""
    api = world.api
    api.repository("shop")
    world.first = api.commit("shop", "main", 40, a=10, b=20)
    api.delete("shop", "main", "a.bin")
    world.second = api.commit("shop", "main", 20, c=30)
    api.tag("shop", "v1", world.first)
    api.upload("shop", "main", "staged.bin", b"not yet")
    api.set_rules("shop", 7, main=28)
    world.rules("shop", 7, main=14)
    return world


def explained(world: Any, *arguments: str) -> Any:
    result = world.lakeplan("explain", "--format", "json", "shop", *arguments)
    assert result.code == 0, result.err
    jsonschema.validate(result.json, SCHEMA)
    return result.json


def it_explains_a_path_under_the_stored_and_the_proposed_rules(shop: Any) -> None:
    document = explained(shop, "a.bin")
    subject = document["subjects"][0]
    stored, proposed = subject["verdicts"]
    assert (stored["rule_set"], stored["status"]) == ("stored", "kept")
    assert stored["reasons"][0]["branch"] == "main"
    assert stored["reasons"][0]["replaced_by"] == shop.second
    assert stored["kept_until"] is not None
    assert (proposed["rule_set"], proposed["status"]) == ("proposed", "expired")
    assert proposed["gone_since"] is not None
    assert proposed["reasons"][0]["source"].startswith("repositories/shop.yaml:")
    assert {"kind": "days", "branch": "main", "days_now": 14, "days": 21, "commit_id": None} in proposed[
        "to_stay"
    ]


def it_asks_nothing_but_gets_and_a_refs_dump(shop: Any) -> None:
    before = len(shop.handle.faults.requests)
    explained(shop, "a.bin")
    explained(shop, "staged.bin")
    others = {(r.method, r.path) for r in shop.handle.faults.requests[before:] if r.method != "GET"}
    assert others == {("PUT", "/api/v1/repositories/shop/refs/dump")}


def it_says_that_staged_data_protects(shop: Any) -> None:
    for what in ("staged.bin", "main:staged.bin"):
        subject = explained(shop, what)["subjects"][0]
        assert subject["staged"] == ["branch main"]
        assert [v["status"] for v in subject["verdicts"]] == ["staged", "staged"]
        again = explained(shop, subject["address"])["subjects"][0]
        assert [v["status"] for v in again["verdicts"]] == ["staged", "staged"]


def it_finds_an_address_that_is_uncommitted_at_another_path(shop: Any) -> None:
    address = explained(shop, "a.bin")["subjects"][0]["address"]
    shop.rules("shop", 7, main=7)
    shop.api.set_rules("shop", 7)
    shop.api.branch("shop", "later")
    body = {"physical_address": f"local://shop/{address}", "checksum": "x", "size_bytes": 10}
    path = "/repositories/shop/branches/later/objects"
    shop.api.call("PUT", path, params={"path": "again.bin"}, json=body)
    subject = explained(shop, address)["subjects"][0]
    assert subject["staged"] == ["branch later"]
    assert {v["status"] for v in subject["verdicts"]} == {"staged"}


def it_reads_only_ranges_that_can_hold_the_path(shop: Any) -> None:
    document = explained(shop, "c.bin")
    assert document["read"]["ranges"] < document["read"]["metaranges"] + 1
    assert document["subjects"][0]["verdicts"][0]["kept_until"] is None, "a HEAD holds it"


def it_finds_the_same_object_by_its_address_relative_or_full(shop: Any) -> None:
    address = explained(shop, "a.bin")["subjects"][0]["address"]
    for text in (address, f"local://shop/{address}"):
        subject = explained(shop, text)["subjects"][0]
        assert subject["address"] == address
        assert [v["status"] for v in subject["verdicts"]] == ["kept", "expired"]


def it_explains_commits_branches_and_tags(shop: Any) -> None:
    commit = explained(shop, shop.first[:12])["subjects"][0]
    assert (commit["commit_id"], commit["tags"]) == (shop.first, ["v1"])
    assert explained(shop, "v1")["subjects"][0]["via"] == "tag v1"
    branch = explained(shop, "main")["subjects"][0]
    assert [v["days"] for v in branch["verdicts"]] == [28, 14]
    assert branch["head"]["commit_id"] == shop.second


def it_keeps_everything_where_no_rules_are_set(world: Any) -> None:
    world.api.repository("shop")
    world.api.commit("shop", "main", 400, a=10)
    document = explained(world, "a.bin")
    assert [v["status"] for v in document["subjects"][0]["verdicts"]] == ["no_rules"]


def it_prints_for_people(shop: Any) -> None:
    result = shop.lakeplan("explain", "shop", "main:b.bin")
    assert result.code == 0
    assert "KEPT, for as long as the branch's HEAD does not move" in result.out
    assert "branch main" in result.out


def it_shows_what_only_sweeps_keep(world: Any) -> None:
    world.api.repository("shop")
    held = world.api.commit("shop", "main", 60, a=10)
    newest = world.api.commit("shop", "main", 50, b=20)
    for age in (40, 1):
        world.api.commit("shop", "main", age, c=age)
    world.api.tag("shop", "gone", held)
    world.api.set_rules("shop", 7, main=7)
    local = f"{{'': {{type: local, path: {world.folder / 'sandbox'}}}}}"
    root = (world.tree / "lakeplan.yaml").read_text()
    world.write("lakeplan.yaml", root.replace("}}", f", storages: {local}}}}}", 1))
    world.rules("shop", 7, main=7)
    entry = (world.tree / "repositories/shop.yaml").read_text()
    entry = entry.replace("retention_days: 7}", "retention_days: 7, min_commits: 3}")
    world.write("repositories/shop.yaml", entry + "    holds: [{tag: gone, reason: legal}]\n")
    assert world.lakeplan(("sweep", "mark")).code == 0
    world.api.call("DELETE", "/repositories/shop/tags/gone")
    world.write("repositories/shop.yaml", entry)
    for commit, kind, name in ((held, "hold", "tag gone"), (newest, "newest", "main")):
        (row,) = explained(world, commit)["subjects"][0]["protected_by"]
        assert (row["kind"], row["name"]) == (kind, name)
    assert "min_commits or keep of branch main" in world.lakeplan("explain", "shop", newest).out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["shop"], 64, "a repository and WHAT are required"),
        (["shop", "main:nope.bin"], 1, "the object 'nope.bin' does not exist at main"),
        (["shop", "nope.bin"], 1, "is not in any commit"),
        (["shop", "mian"], 1, "Did you mean the branch or tag main? Check the spelling."),
        (["shop", "mian:b.bin"], 1, "'mian' is not a branch, tag or commit"),
        (["shop", "mian:b.bin"], 1, "Did you mean main:b.bin?"),
        (["shop", "elsewhere:b.bin"], 1, "Check the name before the colon."),
        (["shop", "b.bin", "--ref", "mian"], 64, "Did you mean --ref main?"),
        (["shop", "a.bin", "--ref", "nope"], 64, "is not a branch, tag or commit"),
        (["shop", "a.bin", "--kind", "file"], 64, "unknown --kind"),
        (["shop", "a.bin", "--rules", "x.json"], 64, "--rules requires --namespace"),
        (["shop", "s3://elsewhere/data/x"], 1, "is unknown"),
        (["gone", "a.bin"], 64, "does not exist"),
        (["staging/shop", "a.bin"], 64, "no server 'staging'"),
    ],
)
def it_says_what_is_wrong(shop: Any, arguments: list[str], code: int, message: str) -> None:
    result = shop.lakeplan("explain", *arguments)
    assert (result.code, message in result.err) == (code, True), result.err
    assert "Traceback" not in result.err
