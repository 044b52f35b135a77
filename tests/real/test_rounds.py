"""Sweeps of random repositories on a whole server, with writers beside them and a checker of its own.

Against the sandbox always (one repository, two rounds), and against a real lakeFS when the LAKEPLAN_TEST_*
variables name one (LAKEPLAN_TEST_REPOSITORIES and LAKEPLAN_TEST_ROUNDS say how many). The real server's
object store is found as boto3 finds it, and LAKEPLAN_TEST_STORAGE_ENDPOINT names its endpoint.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.real.checker import Kept, kept_now, lost, lost_staged
from tests.real.conftest import ON_REAL, Command, Server
from tests.real.lake import Lake

pytestmark = pytest.mark.spark
REPOSITORIES = int(os.environ.get("LAKEPLAN_TEST_REPOSITORIES", "3" if ON_REAL else "1"))
ROUNDS = int(os.environ.get("LAKEPLAN_TEST_ROUNDS", "3" if ON_REAL else "2"))
SEED = int(os.environ.get("LAKEPLAN_TEST_SEED", "1"))
MINUTES = float(os.environ.get("LAKEPLAN_TEST_MINUTES", "inf"))
"""No repository is begun later."""


@dataclass
class Asked:
    """What a round's tree asks for."""

    default: int
    days: dict[str, int]
    protected: list[str]
    held_branch: str
    mode: str
    verify: str
    never_committed: str

    @classmethod
    def drawn(cls, draw: random.Random, branches: list[str]) -> Asked:
        named = draw.sample(branches, min(2, len(branches)))
        return cls(
            default=draw.choice([1, 7, 20]),
            days={name: draw.choice([1, 3, 15, 40]) for name in named},
            protected=draw.choice([[], ["v0"], ["v*"]]),
            held_branch=draw.choice(["", "", "", "", "main"]),
            mode=draw.choice(["delete", "quarantine"]),
            verify=draw.choice(["sample", "all"]),
            never_committed=draw.choice(["keep", "collect"]),
        )

    def tree(self, server: Server, name: str) -> str:
        soon = (datetime.now(timezone.utc) + timedelta(days=2)).date().isoformat()
        rules = [{"branch_id": b, "retention_days": d} for b, d in self.days.items()]
        holds = [{"branch": self.held_branch, "reason": "a test"}] if self.held_branch else []
        sweep = {
            "min_age": "0s",
            "settle": "0s",
            "margin": "0s",
            "mode": self.mode,
            "verify": self.verify,
            "never_committed": self.never_committed,
        }
        gc = {"default_retention_days": self.default, "branches": rules}
        override = {"repository": name, "gate": "min-age", "reason": "test data is new", "expires": soon}
        safety = {
            "max_expired_objects_percent": 100,
            "protected_tags": self.protected,
            "on_tag_loss": "warn",
            "on_server_divergence": "warn",
        }
        entry = {"gc": gc, "holds": holds, "sweep": sweep} if holds else {"gc": gc, "sweep": sweep}
        servers = {"prod": {"endpoint_url": server.url, "storages": {"": server.storage}}}
        tree = {"apiVersion": "lakeplan/v1", "servers": servers, "safety": safety}
        return json.dumps({**tree, "overrides": [override], "repositories": {name: entry}})


NOTHING: dict[str, Any] = {"came_back": 0, "deleted": {"objects": 0}}


@dataclass
class Counts:
    """What all rounds did, printed after each repository."""

    repositories: int = 0
    rounds: int = 0
    swept: int = 0
    deleted: int = 0
    entries: int = 0
    came_back: int = 0
    refused: int = 0
    unfinished: list[str] = field(default_factory=list)


def it_loses_nothing_beside_random_writers(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: object
) -> None:
    counts = Counts()
    end = time.monotonic() + MINUTES * 60
    for number in range(REPOSITORIES):
        if time.monotonic() > end:
            break
        draw = random.Random(SEED * 1000 + number)
        name = f"r{number}-{uuid.uuid4().hex[:8]}"
        lake = Lake(server.url, server.auth, name, draw)
        lake.create(f"{server.prefix}{name}")
        lake.first_history()
        tree = tmp_path / name
        tree.mkdir()
        for _ in range(ROUNDS):
            one_round(lake, server, Command(tree, capsys), draw, counts)
        counts.repositories += 1
        with capsys.disabled():
            print(f"\n{server.url}: seed {SEED}: {counts}")
    assert counts.entries
    assert counts.deleted or not ON_REAL


def one_round(lake: Lake, server: Server, command: Command, draw: random.Random, counts: Counts) -> None:
    for _ in range(draw.randint(0, 4)):
        lake.next_step()
    asked = Asked.drawn(draw, sorted(lake.branches()))
    (command.tree / "lakeplan.yaml").write_text(asked.tree(server, lake.name))
    command("apply", "--auto-approve", "--format", "json")
    also = protected_commits(lake, asked)
    _, marks = command("sweep", "mark", "--format", "json")
    counts.rounds += 1
    if not marks["marks"][0]["goes"]["objects"]:
        return
    mark_id = marks["marks"][0]["mark_id"]
    before = kept_now(lake, asked.default, asked.days, also=also)
    gone = lost(lake, before)  # by earlier rounds, whose rules let it expire
    command("sweep", "approve", mark_id, "--reason", "a test")
    with Writing(lake, draw):
        code, document = command("sweep", "run", mark_id, "--format", "json", allowed=(0, 1, 3, 4, 5))
    if document is None:  # refused: a hold lost its branch, for one
        counts.refused += 1
        code, document = command("sweep", "run", mark_id, "--close", "--format", "json", allowed=(0, 3, 64))
    elif not document["finished"]:
        counts.unfinished.append(document["problem"])
        code, document = command("sweep", "run", mark_id, "--close", "--format", "json", allowed=(0, 3))
    check(lake, asked, (before, gone), document or NOTHING, code, counts)


def check(
    lake: Lake,
    asked: Asked,
    at_start: tuple[Kept, frozenset[str]],
    document: dict[str, Any],
    code: int,
    counts: Counts,
) -> None:
    """What was kept when the sweep began is readable; what is kept now is too, unless the report says that
    data came back too late, and then the exit code is 3."""
    before, gone = at_start
    assert not lost(lake, before) - gone
    assert not lost_staged(lake, before)
    now = kept_now(lake, asked.default, asked.days)
    missing = lost(lake, now) - gone
    came_back = document["came_back"] or 0
    assert not missing or (came_back and code == 3), missing
    deleted = document["deleted"]["objects"]
    counts.swept += bool(deleted)
    counts.deleted += deleted
    counts.came_back += came_back
    counts.entries += len(before.entries) + len(now.entries)


def protected_commits(lake: Lake, asked: Asked) -> frozenset[str]:
    """Commits of protected tags, and all that a held branch's HEAD descends from."""
    prefix = {"v*": "v"}
    found = {
        commit
        for tag, commit in lake.tags().items()
        if any(tag.startswith(prefix[g]) if g in prefix else tag == g for g in asked.protected)
    }
    pending = [lake.branches()[asked.held_branch]] if asked.held_branch else []
    while pending:
        commit = pending.pop()
        if commit in found or commit not in lake.commits:
            continue
        found.add(commit)
        pending += lake.commits[commit].parents
    return frozenset(found)


class Writing:
    """While the block runs, somebody else commits, stages, branches, merges, resets and deletes branches."""

    def __init__(self, lake: Lake, draw: random.Random) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(lake, random.Random(draw.random())))
        self._failed: list[BaseException] = []

    def _write(self, lake: Lake, draw: random.Random) -> None:
        beside = Lake(lake.url, lake.auth, lake.name, draw, lake.commits, lake.uploads)
        try:
            while not self._over.wait(draw.uniform(0.01, 0.2)):
                beside.next_step()
        except (AssertionError, requests.RequestException) as error:
            self._failed.append(error)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failed:
            raise self._failed[0]
