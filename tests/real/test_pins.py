"""Pins on a whole server, judged by the server's own walk (``prepare_commits``): the sandbox always, a real
lakeFS when the LAKEPLAN_TEST_* variables name one."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.commits_csv import read_commits_csv
from tests.real.conftest import Command, Server
from tests.real.lake import Lake


@dataclass
class Site:
    lake: Lake
    command: Command
    tree: Path
    server: Server

    def asks(self, pins: str, default: int = 7, gc: str = "") -> None:
        (self.tree / "lakeplan.yaml").write_text(
            "apiVersion: lakeplan/v1\n"
            f"servers: {{prod: {{endpoint_url: {self.server.url}}}}}\n"
            "safety: {max_expired_objects_percent: 100, on_tag_loss: warn}\n"
            f"repositories:\n  {self.lake.name}:\n    gc: {{default_retention_days: {default}{gc}}}\n"
            + (f"    pins: {pins}\n" if pins else "")
        )

    def apply(self) -> Any:
        self.command("apply", "--auto-approve")

    def states(self) -> dict[str, str]:
        (repository,) = self.command("plan", "--format", "json")[1]["repositories"]
        pins = repository.get("pins") or {"pins": []}
        return {pin["commit_id"]: pin["state"] for pin in pins["pins"]}

    def hidden(self) -> dict[str, str]:
        visible = {b["id"] for b in self.lake.pages("/branches")}
        return {name: head for name, head in self.lake.branches().items() if name not in visible}

    def days(self) -> dict[str, int]:
        body = self.lake.call("GET", "/settings/gc_rules").json()
        return {b["branch_id"]: b["retention_days"] for b in body["branches"] or ()}

    def kept(self) -> set[str]:
        """The commits that the server's own collection keeps."""
        answer = self.lake.call("POST", "/gc/prepare_commits").json()
        link = answer.get("gc_commits_presigned_url")
        assert link, "the server presigns no addresses: LAKEFS_BLOCKSTORE_S3_PRE_SIGNED…"
        return set(read_commits_csv(requests.get(link, timeout=60).content))


@pytest.fixture
def site(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    name = f"pins-{uuid.uuid4().hex[:10]}"
    lake = Lake(server.url, server.auth, name, random.Random(1))
    lake.create(f"{server.prefix}{name}")
    tree = tmp_path / "tree"
    tree.mkdir()
    yield Site(lake, Command(tree, capsys), tree, server)
    lake.delete()


def pin_of(commit: str) -> str:
    return f"lakeplan-pin-{commit[:12]}"


def line(lake: Lake, *ages: float, branch: str = "main") -> list[str]:
    return [lake.change(branch, age) for age in ages]


def eventually(check: Callable[[], bool]) -> None:
    for _ in range(40):
        if check():
            return
        time.sleep(0.5)
    raise AssertionError("not within 20 seconds")


def test_a_tagged_commit_is_kept_with_a_pin_and_without_it_is_not(site: Site) -> None:
    lake = site.lake
    c1, c2, c3, _ = line(lake, 400, 300, 200, 0)
    lake.call("POST", "/tags", json={"id": "v1", "ref": c2})
    site.asks("")
    site.apply()
    assert not {c1, c2} & site.kept()
    site.asks('{tags: ["v*"]}')
    site.apply()
    assert site.hidden() == {pin_of(c2): c2}
    assert site.days() == {pin_of(c2): 0}
    kept = site.kept()
    assert c2 in kept
    assert c1 not in kept
    assert c3 in kept
    assert site.states() == {c2: "kept"}
    site.asks("")
    assert site.states() == {c2: "retired"}
    site.apply()
    assert site.hidden() == {}
    assert site.days() == {}
    eventually(lambda: c2 not in site.kept())


def test_a_tag_on_a_commit_that_no_branch_leads_to_is_kept_with_its_young_ancestors(site: Site) -> None:
    lake = site.lake
    line(lake, 400)
    lake.branch("dev", "main")
    x1, x2 = line(lake, 9, 8, branch="dev")
    line(lake, 0)
    lake.call("DELETE", "/branches/dev")
    lake.call("POST", "/tags", json={"id": "v1", "ref": x2})
    site.asks('{tags: ["v*"]}', default=12)
    site.apply()
    assert site.hidden() == {pin_of(x2): x2}
    assert site.days() == {}  # the default days
    assert {x1, x2} <= site.kept()
    site.asks('{tags: ["v*"]}', default=3)
    site.command("apply", "--auto-approve")
    kept = site.kept()
    assert x2 in kept
    assert x1 not in kept


def test_what_the_documented_rule_keeps_is_kept_by_the_server_too(site: Site) -> None:
    lake = site.lake
    line(lake, 40, 30)
    below, top = line(lake, 12, 11)
    lake.branch("a-short", top)
    lake.change("a-short", 1)
    lake.change("main", 0)
    site.asks("", default=30, gc=", branches: [{branch_id: a-short, retention_days: 2}]")
    site.apply()
    before = site.kept()
    site.asks("{at_risk: true}", default=30, gc=", branches: [{branch_id: a-short, retention_days: 2}]")
    site.apply()
    after = site.kept()
    assert before <= after
    assert {below, top} <= after
    assert set(site.states().values()) <= {"kept"}


def test_the_newest_commits_are_kept_while_new_ones_are_made(site: Site) -> None:
    lake = site.lake
    commits = line(lake, 90, 60, 50, 40)
    gc = ", branches: [{branch_id: main, retention_days: 1, min_commits: 3, keep: {monthly: 2}}]"
    site.asks("", default=1, gc=gc)
    site.apply()
    assert set(commits[1:]) <= site.kept()
    commits += line(lake, 20, 10)
    site.command("pins", "sync")
    kept = site.kept()
    assert set(commits[-3:]) <= kept
    assert commits[0] not in kept


def test_rules_that_lakectl_sets_over_it_are_noticed_and_mended(site: Site) -> None:
    lake = site.lake
    _, c2, _, _ = line(lake, 400, 300, 200, 0)
    lake.call("POST", "/tags", json={"id": "v1", "ref": c2})
    site.asks('{tags: ["v*"]}')
    site.apply()
    lake.rules(7, {})
    code, drift = site.command("drift", "--fail-on", "pins-missing", "--format", "json", allowed=(2,))
    assert code == 2
    assert drift["repositories"][0]["classes"] == ["pins-missing"]
    site.command("pins", "sync")
    assert site.days() == {pin_of(c2): 0}
    site.command("drift", "--fail-on", "any")


def test_lakectl_shows_no_pin_and_a_dump_has_them(site: Site) -> None:
    lake = site.lake
    _, c2, _, _ = line(lake, 400, 300, 200, 0)
    lake.call("POST", "/tags", json={"id": "v1", "ref": c2})
    site.asks('{tags: ["v*"]}')
    site.apply()
    assert pin_of(c2) not in {b["id"] for b in lake.pages("/branches")}
    assert lake.call("GET", f"/branches/{pin_of(c2)}").json()["commit_id"] == c2
