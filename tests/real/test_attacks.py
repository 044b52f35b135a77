"""The attacks that once lost data, each against a real lakeFS server on an S3 store.

They skip without the LAKEPLAN_TEST_* variables (docs/sandbox.md). Each is named by what must happen.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests

from tests.real.conftest import ON_REAL, Command, Server
from tests.real.lake import Lake
from tests.real.proxy import Fault, proxied

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not ON_REAL, reason="no real lakeFS: set LAKEPLAN_TEST_ENDPOINT and the others"),
]
SOON = (datetime.now(timezone.utc) + timedelta(days=2)).date().isoformat()
NOW = {"min_age": "0s", "settle": "0s", "margin": "0s"}
REFUSED, STALE, PARTLY = 4, 5, 3


class Site:
    """A repository with expired, kept and staged objects, and a tree that may sweep it."""

    def __init__(self, server: Server, tree: Path, command: Command) -> None:
        self.server = server
        self.command = command
        self.tree = tree
        name = f"a-{uuid.uuid4().hex[:10]}"
        self.lake = Lake(server.url, server.auth, name, random.Random(name))
        self.lake.create(f"{server.prefix}{name}")
        self.endpoint = server.url
        self.fault: Fault = lambda method, path: None
        self.root: dict[str, Any] = {}
        self.safety: dict[str, Any] = {"max_expired_objects_percent": 100, "on_tag_loss": "warn"}
        self.entry: dict[str, Any] = {"gc": {"default_retention_days": 7}, "sweep": dict(NOW)}
        bucket, _, prefix = f"{server.prefix}{name}".removeprefix("s3://").partition("/")
        self.bucket, self.prefix = bucket, prefix
        self.s3 = boto3.client("s3", endpoint_url=server.storage["endpoint_url"])

    def history(self, objects: int = 6) -> None:
        """``objects`` that expired (``old``), as many that replaced them, and one that is staged."""
        for age in (40, 20, 1):
            for number in range(objects):
                self.lake.upload("main", f"old/{number}.bin")
            self.lake.commit("main", age)
        self.lake.upload("main", "staged.bin")
        self.lake.rules(7, {})
        log = self.lake.log("main")
        self.head, self.middle, self.oldest = log[0].id, log[1].id, log[2].id
        time.sleep(1.1)  # stores count whole seconds: what was just written may look newer than a mark

    def write(self, **entry: Any) -> None:
        """Writes the tree, with these blocks of the repository's entry in place of the present ones."""
        self.entry = {**self.entry, **entry}
        override = {"repository": self.lake.name, "gate": "min-age", "reason": "new data", "expires": SOON}
        server = {"endpoint_url": self.endpoint, "storages": {"": self.server.storage}}
        server |= {"branch_lifecycle": {"engine": "lakeplan"}}
        tree = {
            "apiVersion": "lakeplan/v1",
            "servers": {"prod": server},
            "safety": self.safety,
            "overrides": [override],
            "repositories": {self.lake.name: self.entry},
            **self.root,
        }
        (self.tree / "lakeplan.yaml").write_text(json.dumps(tree))

    def sweep(self, **settings: Any) -> dict[str, Any]:
        return {**self.entry["sweep"], **settings}

    def approved(self) -> str:
        _, marks = self.command("sweep", "mark", "--format", "json")
        mark_id = str(marks["marks"][0]["mark_id"])
        assert marks["marks"][0]["goes"]["objects"]
        self.command("sweep", "approve", mark_id, "--reason", "a test")
        return mark_id

    def run(self, mark_id: str, *codes: int) -> dict[str, Any]:
        _, document = self.command("sweep", "run", mark_id, "--format", "json", allowed=codes)
        return dict(document or {})

    def stored(self) -> set[str]:
        """Keys under ``data/``."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"{self.prefix}/"
        )
        keys = {o["Key"].removeprefix(f"{self.prefix}/") for page in pages for o in page.get("Contents", [])}
        return {key for key in keys if key.startswith("data/")}

    def readable(self, ref: str) -> bool:
        return all(self.lake.read(ref, path) is not None for path in self.lake.entries(ref))


@pytest.fixture
def site(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    spark: object,
) -> Iterator[Site]:
    """A site whose requests to the server pass a proxy that injects ``fault``."""
    tree = tmp_path / "tree"
    tree.mkdir()
    found = Site(server, tree, Command(tree, capsys))
    with proxied(server.url, lambda method, path: found.fault(method, path)) as endpoint:
        found.endpoint = endpoint
        monkeypatch.setenv("LAKEPLAN_PROD_ENDPOINT_URL", endpoint)
        found.write()
        yield found
    found.lake.delete()  # every sweep reads all repositories of a server


@pytest.fixture(autouse=True)
def real_only(request: pytest.FixtureRequest) -> None:
    if "sandbox" in request.node.callspec.params.values():
        pytest.skip("the sandbox's attacks are in the tests of each part")


@pytest.mark.parametrize(
    "tightened",
    [{"min_age": "365d"}, {"mode": "quarantine"}, {"engine": "lakefs-spark-client"}],
    ids=lambda t: next(iter(t)),
)
def it_keeps_to_settings_that_were_tightened_after_the_approval(
    site: Site, tightened: dict[str, str]
) -> None:
    site.history()
    mark = site.approved()
    before = site.stored()
    site.write(sweep=site.sweep(**tightened))
    site.run(mark, STALE)
    assert site.stored() == before


def it_judges_gates_again_before_it_deletes(site: Site) -> None:
    site.history()
    mark = site.approved()
    before = site.stored()
    site.safety["max_expired_objects_percent"] = 1
    site.write()
    site.run(mark, REFUSED)
    site.safety["max_expired_objects_percent"] = 100
    site.write(gc="clear")
    site.run(mark, REFUSED, STALE)
    assert site.stored() == before


def it_says_what_came_back_after_a_kill_and_restores_it(site: Site, tmp_path: Path) -> None:
    site.write(sweep=site.sweep(mode="quarantine", rate=40))
    site.history(objects=100)
    mark = site.approved()
    words = [sys.executable, "-P", "-m", "lakeplan", "sweep", "run", "-C", str(site.tree), mark]
    output = tmp_path / "killed.txt"
    with output.open("w") as said:
        killed = subprocess.Popen(words, start_new_session=True, stdout=said, stderr=said)
    copies = f"{site.prefix}/_lakeplan/quarantine/"
    before = len(site.stored())
    while killed.poll() is None:
        moved = site.s3.list_objects_v2(Bucket=site.bucket, Prefix=copies, MaxKeys=1).get("KeyCount", 0)
        if moved and len(site.stored()) < before:
            break
        time.sleep(0.05)
    assert killed.poll() is None, f"it ended before the kill: {output.read_text()}"
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    gone = not site.readable(site.oldest)
    assert gone, "the kill came before the first deletion"
    site.lake.branch("again", site.oldest)
    site.lake.branch("again2", site.middle)
    time.sleep(1)
    document = site.run(mark, PARTLY)
    assert document["came_back"]
    site.command("sweep", "restore", mark, "--format", "json")
    for head in ("main", "again", "again2"):
        assert site.readable(head), head


def it_purges_no_copy_that_a_branch_needs_again(site: Site) -> None:
    site.write(sweep=site.sweep(mode="quarantine", quarantine_age="0s"))
    site.history()
    mark = site.approved()
    site.run(mark, 0)
    site.lake.branch("again", site.oldest)
    site.command(
        "sweep", "purge", "--older-than", "0s", "--auto-approve", "--format", "json", allowed=(0, 3, 4)
    )
    site.command("sweep", "restore", mark, "--format", "json")
    assert site.readable("again")


def it_deletes_no_branch_that_a_hold_names_and_no_data_after_the_branch_went(site: Site) -> None:
    site.history()
    site.lake.branch("legal", site.oldest)
    policy = {"id": "all", "patterns": ["legal"], "max_age": "1s"}
    hold = {"branch": "legal", "reason": "a court"}
    lifecycle = {"assume_created": "head_commit"}
    site.write(holds=[hold], branch_lifecycle={"policies": [policy], **lifecycle})
    site.command("branches", "run", "--format", "json", allowed=(0, 3, 4))
    assert "legal" in site.lake.branches()
    site.command("sweep", "mark", "--format", "json")  # records what the hold keeps
    site.lake.call("DELETE", "/branches/legal")
    code, _ = site.command("sweep", "mark", "--format", "json", allowed=(1, 3, 4))
    assert code
    assert site.readable(site.oldest)


def it_waits_for_settle_when_rules_were_raised_and_lowered_again(site: Site) -> None:
    site.history()
    site.write(sweep=site.sweep(settle="1h"))
    site.command("apply", "--auto-approve", "--format", "json")
    mark = site.approved()
    site.run(mark, REFUSED)
    site.lake.rules(30, {})
    site.lake.rules(7, {})
    before = site.stored()
    site.run(mark, REFUSED, STALE)
    assert site.stored() == before


@pytest.mark.parametrize("hours", [25, -25])
def it_refuses_when_its_own_clock_is_wrong(site: Site, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    site.history()
    mark = site.approved()
    before = site.stored()
    wrong = timedelta(hours=hours)
    for name, module in list(sys.modules.items()):
        if name.startswith("lakeplan.cli") and hasattr(module, "now_utc"):
            monkeypatch.setattr(module, "now_utc", lambda: datetime.now(timezone.utc) + wrong)
    site.run(mark, 1, REFUSED, STALE)
    assert site.stored() == before


def it_deletes_automatically_only_what_the_reviewed_plan_showed(site: Site, tmp_path: Path) -> None:
    site.history()
    site.lake.rules(100, {})
    site.write(sweep=site.sweep(automatic=True))
    plan = tmp_path / "plan.json"
    site.command("plan", "--format", "json", "--out", str(plan), "-q", allowed=(0, 2))
    for number in range(6):  # as many others expire meanwhile
        site.lake.upload("main", f"other/{number}.bin")
    site.lake.commit("main", 39)
    site.lake.call("PUT", "/branches/main/hard_reset", params={"ref": site.head, "force": "true"})
    before = site.stored()
    site.command("apply", plan, "--sweep", "--format", "json", allowed=(0, 3, 4, 5))
    left = site.stored()
    others = {a for a in before - left if a not in shown(site)}
    assert not others


def shown(site: Site) -> set[str]:
    """Addresses that only the first history's expired commit holds."""
    kept = set(site.lake.entries(site.head).values()) | set(site.lake.entries(site.middle).values())
    address = set(site.lake.entries(site.oldest).values()) - kept
    return {a.removeprefix(f"s3://{site.bucket}/{site.prefix}/") for a in address}


def it_makes_no_branch_older_when_its_record_is_lost(site: Site) -> None:
    site.history()
    policy = {"id": "all", "patterns": ["young-*"], "max_age": "14d"}
    lifecycle = {"assume_created": "head_commit"}
    site.write(branch_lifecycle={"policies": [policy], **lifecycle})
    site.command("branches", "run", "--format", "json", allowed=(0, 3))
    site.lake.branch("young-1", site.oldest)
    site.command("branches", "run", "--format", "json", allowed=(0, 3))
    assert "young-1" in site.lake.branches()
    site.root["state"] = {"url": f"file://{site.tree}/other-state"}
    site.write()
    site.command("branches", "run", "--format", "json", allowed=(0, 1, 3))
    assert "young-1" in site.lake.branches()


def doomed(site: Site) -> None:
    site.history()
    site.lake.branch("wip-1", site.oldest)
    policy = {"id": "all", "patterns": ["wip-*"], "max_age": "1s"}
    site.write(branch_lifecycle={"policies": [policy], "assume_created": "head_commit"})
    # the first run of a repository deletes nothing that only an assumption makes old
    site.command("branches", "run", "--format", "json", allowed=(0, 3))
    time.sleep(2)


def it_does_not_delete_a_branch_that_was_made_again_after_a_lost_answer(site: Site) -> None:
    doomed(site)
    deletes: list[str] = []
    again: list[str] = []

    def fault(method: str, path: str) -> str | None:
        if method == "DELETE" and "/branches/wip-1" in path:
            deletes.append(path)
            return "lose"
        if deletes and not again:
            again.append("made")
            site.lake.branch("wip-1", site.head)
        return None

    site.fault = fault
    site.command("branches", "run", "--format", "json", allowed=(0, 1, 3))
    assert deletes, "nothing was deleted: the attack did not run"
    assert len(deletes) == 1
    if again:
        assert site.lake.branches()["wip-1"] == site.head


def it_does_not_write_over_a_colleague_after_a_lost_answer(site: Site) -> None:
    site.history()
    puts: list[str] = []
    raised: list[bool] = []

    def fault(method: str, path: str) -> str | None:
        if method == "PUT" and path.endswith("/gc_rules"):
            puts.append(path)
            return "lose"
        if puts and not raised:
            raised.append(True)
            site.lake.rules(90, {})
        return None

    site.write(gc={"default_retention_days": 5})
    site.fault = fault
    site.command("apply", "--auto-approve", "--format", "json", allowed=(1, 3, 5))
    assert len(puts) == 1
    rules = site.lake.call("GET", "/settings/gc_rules").json()
    assert rules["default_retention_days"] == (90 if raised else 5)


def it_reports_a_write_that_was_answered_500_as_applied(site: Site) -> None:
    site.history()
    puts: list[str] = []

    def fault(method: str, path: str) -> str | None:
        if method == "PUT" and path.endswith("/gc_rules"):
            puts.append(path)
            return "500"
        return None

    site.write(gc={"default_retention_days": 5})
    site.fault = fault
    code, document = site.command("apply", "--auto-approve", "--format", "json", allowed=(0,))
    assert len(puts) == 1
    assert "applied" in json.dumps(document)
    assert code == 0


def it_keeps_a_branch_whose_pull_request_was_opened_after_the_inspection(site: Site) -> None:
    doomed(site)
    site.lake.branch("wip-2", site.oldest)
    deletes: list[str] = []

    def fault(method: str, path: str) -> str | None:
        if method == "DELETE" and "/branches/" in path:
            deletes.append(path)
            if len(deletes) == 1:
                other = "wip-2" if "wip-1" in path else "wip-1"
                body = {"title": "t", "source_branch": other, "destination_branch": "main"}
                site.lake.call("POST", "/pulls", json=body)
                time.sleep(16)
        return None

    site.fault = fault
    site.command("branches", "run", "--format", "json", allowed=(0, 3))
    assert len(deletes) == 1


@pytest.mark.parametrize("tail", ["?x=1", "#part", "?", "?versionId=null"])
def it_keeps_an_object_that_another_repository_names_in_another_spelling(site: Site, tail: str) -> None:
    site.history()
    old = site.lake.entries(site.oldest)["old/0.bin"]
    other = Lake(site.server.url, site.server.auth, f"b-{uuid.uuid4().hex[:10]}", random.Random(1))
    other.create(f"{site.server.prefix}{other.name}")
    size = len(site.lake.read(site.oldest, "old/0.bin") or b"")
    body = {"physical_address": old + tail, "checksum": "x", "size_bytes": size}
    staged = other.call("PUT", "/branches/main/objects", ok=False, params={"path": "it.bin"}, json=body)
    assert staged.ok, staged.text
    head = other.commit("main", 0)
    served = other.read(head, "it.bin") is not None
    _, marks = site.command("sweep", "mark", "--format", "json", allowed=(0, 1, 3))
    if marks and marks.get("marks"):
        mark = marks["marks"][0]["mark_id"]
        site.command("sweep", "approve", mark, "--reason", "a test")
        site.run(mark, 0, 3)
    if served:
        assert other.read(head, "it.bin") is not None
    other.delete()


def it_keeps_an_object_that_was_written_again_after_the_mark(site: Site) -> None:
    site.history()
    mark = site.approved()
    address = sorted(shown(site))[0]
    time.sleep(1.1)
    site.s3.put_object(Bucket=site.bucket, Key=f"{site.prefix}/{address}", Body=b"written again")
    document = site.run(mark, 0, 3)
    assert address in site.stored()
    assert document["deleted"]["objects"]


def it_refuses_a_repository_that_was_made_again_under_its_name(site: Site) -> None:
    site.history()
    mark = site.approved()
    url = f"{site.server.url}/api/v1/repositories/{site.lake.name}"
    requests.delete(url, auth=site.server.auth, timeout=60).raise_for_status()
    body = {
        "name": site.lake.name,
        "storage_namespace": f"s3://{site.bucket}/{site.prefix}",
        "default_branch": "main",
    }
    made = requests.post(
        f"{site.server.url}/api/v1/repositories", json=body, auth=site.server.auth, timeout=60
    )
    before = site.stored()
    site.run(mark, 1, REFUSED, STALE, PARTLY)
    assert site.stored() == before, made.text


def it_makes_no_broken_branch_of_a_commit_that_was_cherry_picked(site: Site) -> None:
    """The server mistakes such a commit for one that does not exist (lakefs/api.md)."""
    site.history()
    lake = site.lake
    made = lake.call("POST", "/branches/main/commits", json={"message": "m", "metadata": {"a": "b"}}).json()
    lake.branch("other", site.oldest)
    lake.upload("other", "other.bin")
    lake.commit("other", 0)
    lake.upload("main", "last.bin")
    lake.commit("main", 0)
    lake.call("POST", "/tags", json={"id": "v1", "ref": made["id"]})
    lake.call("POST", "/branches/other/cherry-pick", json={"ref": made["id"]})
    site.write(pins={"tags": ["v1"]})
    code, document = site.command("apply", "--auto-approve", "--format", "json", allowed=(0, 1, 3))
    known = set(lake.commits) | {commit.id for name in lake.branches() for commit in lake.log(name)}
    assert set(lake.branches().values()) <= known
    if code:
        assert "commit not found" in json.dumps(document)
