"""Sweeps random repositories on a real server while others write, with an independent checker.

Against the sandbox always (one repository, two rounds), and against a real lakeFS when the LAKEPLAN_TEST_*
variables name one (LAKEPLAN_TEST_REPOSITORIES and LAKEPLAN_TEST_ROUNDS say how many). The real server's
object store is found as boto3 finds it, and LAKEPLAN_TEST_STORAGE_ENDPOINT names its endpoint. One round in
LAKEPLAN_TEST_SPARK_EVERY (0: none) runs on Spark; the others are marked by the loops of
``tests.sweeping.plain``, which take a tenth of the time.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import requests

from lakeplan.simulation import marking
from lakeplan.stores.s3_client import S3Client
from lakeplan.sweep import rounds as sweep_rounds
from tests.real.checker import Kept, Reads, entries_of, kept_now, kept_throughout, lost_staged
from tests.real.conftest import ON_REAL, Command, Server
from tests.real.lake import Lake, Moment
from tests.sweeping.plain import PlainMarker, PlainSweeper

pytestmark = pytest.mark.spark
REPOSITORIES = int(os.environ.get("LAKEPLAN_TEST_REPOSITORIES", "3" if ON_REAL else "1"))
ROUNDS = int(os.environ.get("LAKEPLAN_TEST_ROUNDS", "3" if ON_REAL else "2"))
SEED = int(os.environ.get("LAKEPLAN_TEST_SEED", "1"))
SPARK_EVERY = int(os.environ.get("LAKEPLAN_TEST_SPARK_EVERY", "2"))
MINUTES = float(os.environ.get("LAKEPLAN_TEST_MINUTES", "inf"))
"""No repository is begun later."""
PAUSE = 0.8
"""The longest time, in seconds, between two steps of a writer."""
PARTLY = 3


@dataclass
class Asked:
    """The settings of a round's tree."""

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

    def tree(self, server: Server, name: str, *, on_spark: bool) -> str:
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
        runner = {"runner": "spark" if on_spark else "local"}
        tree = {"apiVersion": "lakeplan/v1", "servers": servers, "safety": safety, "simulation": runner}
        return json.dumps({**tree, "overrides": [override], "repositories": {name: entry}})


NOTHING: dict[str, Any] = {"came_back": 0, "deleted": {"objects": 0}, "saved": {"objects": 0}}


@dataclass
class Counts:
    """What all rounds did, printed after each repository. ``came_back``: objects that were deleted before a
    writer referred to them again; ``reads``: objects that the checker read."""

    repositories: int = 0
    rounds: int = 0
    on_spark: int = 0
    swept: int = 0
    deleted: int = 0
    kept_again: int = 0
    came_back: int = 0
    restored: int = 0
    refused: int = 0
    entries: int = 0
    reads: int = 0
    certain: int = 0
    lost: int = 0
    writes: Counter[str] = field(default_factory=Counter)
    """Steps of the writers beside the sweeps; ``stage`` is data that nobody committed."""
    unfinished: list[str] = field(default_factory=list)


class Engine:
    """The engine of marks and deletions: Spark, or else ``tests.sweeping.plain``. Rounds without Spark call
    ``after`` between the deletion and the last inspection, and this process makes one S3 client."""

    def __init__(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        self._request = request
        self._patch = monkeypatch
        self._real = marking.StepMarker, sweep_rounds.PartSweeper
        self.after: Callable[[], None] = lambda: None
        self.on_spark = False
        monkeypatch.setattr(S3Client, "_make", cache_of_clients(S3Client._make))

    def choose(self, *, on_spark: bool) -> None:
        self.on_spark = on_spark
        if on_spark:
            self._request.getfixturevalue("spark")
        marker, sweeper = self._real if on_spark else (lambda *_, **__: PlainMarker(rows=4), self._plain)
        self._patch.setattr(marking, "StepMarker", marker)
        self._patch.setattr(sweep_rounds, "PartSweeper", sweeper)

    def _plain(self, *_: object, **__: object) -> PlainSweeper:
        sweeper = PlainSweeper()
        sweeper.by_the_clock = True
        sweeper.after_round = lambda _: self.after()
        return sweeper


def cache_of_clients(make: Callable[[S3Client], Any]) -> Callable[[S3Client], Any]:
    made: dict[object, Any] = {}

    def cached(client: S3Client) -> Any:
        key = client._made_with
        if key not in made:
            made[key] = make(client)
        return made[key]

    return cached


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(request, monkeypatch)


@pytest.mark.extended
def it_loses_nothing_beside_random_writers(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: Engine
) -> None:
    counts = Counts()
    end = time.monotonic() + MINUTES * 60
    neighbours: list[Lake] = []
    for number in range(REPOSITORIES):
        if time.monotonic() > end:
            break
        draw = random.Random(SEED * 1000 + number)
        name = f"r{number}-{uuid.uuid4().hex[:8]}"
        lake = Lake(server.url, server.auth, name, draw)
        lake.create(f"{server.prefix}{name}")
        lake.first_history()
        lake.steps.clear()
        tree = tmp_path / name
        tree.mkdir()
        rounds = Rounds(lake, server, Command(tree, capsys), engine, counts)
        for _ in range(ROUNDS):
            rounds.next()
        rounds.end()
        neighbours.append(lake)
        for other in neighbours[:-1]:  # every sweep reads all repositories of the server
            other.delete()
        del neighbours[:-1]
        with capsys.disabled():
            print(f"\n{server.url}: seed {SEED}: {counts}", flush=True)
    neighbours[-1].delete()
    assert counts.entries
    assert counts.deleted or not ON_REAL


class Rounds:
    """Sweeps of one repository, one after the other."""

    def __init__(self, lake: Lake, server: Server, command: Command, engine: Engine, counts: Counts) -> None:
        self.engine = engine
        self.lake = lake
        self.server = server
        self.command = command
        self.counts = counts
        self.reads = Reads(lake)
        self.asked = Asked(7, {}, [], "", "delete", "sample", "keep")

    def next(self) -> None:
        """Writers write beside mark and approve, and beside the deletion; what is kept is judged before,
        between and after."""
        lake, draw = self.lake, self.lake.draw
        on_spark = bool(SPARK_EVERY) and self.counts.rounds % SPARK_EVERY == 0
        self.engine.choose(on_spark=on_spark)
        self.counts.on_spark += on_spark
        self.counts.rounds += 1
        for _ in range(draw.randint(0, 4)):
            lake.next_step()
        self.asked = asked = Asked.drawn(draw, sorted(lake.branches()))
        (self.command.tree / "lakeplan.yaml").write_text(
            asked.tree(self.server, lake.name, on_spark=on_spark)
        )
        if on_spark:
            self.command("apply", "--auto-approve", "--format", "json")
        else:
            lake.rules(asked.default, asked.days)
        with Writing(lake):
            marks = self.mark()
            goes = marks["marks"][0]["goes"]["objects"]
            mark_id = marks["marks"][0]["mark_id"]
            if goes:
                self.command("sweep", "approve", mark_id, "--reason", "a test")
        if not goes:
            return
        for _ in range(draw.randint(0, 5)):
            lake.next_step()
        gone = set(self.reads.lost)  # by earlier rounds, whose rules let it expire
        self.reads.read(entries_of(lake, [*lake.commits]))
        assert self.reads.lost == gone  # only a sweep deletes
        also = protected_commits(lake, asked)
        lake.note()
        first = lake.moments[-1]
        with Writing(lake) as writing:
            self.engine.after = writing.end
            code, document = self.sweep(mark_id, "--format", "json", allowed=(0, 1, 3, 4, 5))
        if document is None:  # refused: a hold lost its branch, for one
            self.counts.refused += 1
            code, document = self.abort(mark_id, allowed=(0, 3, 64))
        elif not document["finished"]:
            self.counts.unfinished.append(document["problem"])
            code, document = self.abort(mark_id, allowed=(0, 3))
        if document is not None and document["came_back"] is None:  # the last inspection failed
            code, document = self.sweep(mark_id, "--format", "json", allowed=(0, 3))
        document = document or NOTHING
        self.counts.swept += bool(document["deleted"]["objects"])
        self.counts.deleted += document["deleted"]["objects"]
        self.counts.kept_again += document["saved"]["objects"]
        certain = kept_throughout(lake, [first, *writing.moments], asked.default, asked.days, also)
        self.check(certain, gone, mark_id, document["came_back"] if code == PARTLY else 0)

    def mark(self) -> dict[str, Any]:
        """The server refuses to list uncommitted data of a branch that is deleted meanwhile. Nothing is
        old yet in a repository that was made within this second."""
        while True:
            code, marks = self.command("sweep", "mark", "--format", "json", allowed=(0, 1))
            if code == 0 and marks["marks"]:
                return dict(marks)
            if code == 0:
                time.sleep(1)
                continue
            assert marks is not None, self.command.said
            assert "branch not found" in json.dumps(marks["failed"]), marks
            self.counts.refused += 1

    def sweep(self, *words: str, allowed: tuple[int, ...]) -> tuple[int, Any]:
        return self.command("sweep", "run", *words, allowed=allowed)

    def abort(self, mark_id: str, *, allowed: tuple[int, ...]) -> tuple[int, Any]:
        return self.command("sweep", "abort", mark_id, "--format", "json", allowed=allowed)

    def kept(self) -> Kept:
        also = protected_commits(self.lake, self.asked)
        return kept_now(self.lake, self.asked.default, self.asked.days, also=also)

    def check(self, certain: set[str], gone: set[str], mark_id: str, reported: int) -> None:
        """What was kept throughout (``certain``) and what is staged is readable. What a writer let expire and
        then referred to again may be lost: the sweep reports exactly that (on Spark writers come after its
        last inspection), and quarantine restores it."""
        now = self.kept()
        everything = entries_of(self.lake, [*self.lake.commits])
        self.reads.forget()
        self.reads.read(everything)
        lost = self.reads.lost - gone
        self.counts.certain += len(certain)
        self.counts.lost += len(lost & certain)
        assert not lost & certain
        assert not lost_staged(self.lake, now.staged)
        came_back = lost & now.addresses()
        self.counts.came_back += len(came_back)
        assert reported == len(came_back) or self.engine.on_spark
        if came_back and self.asked.mode == "quarantine":
            self.command("sweep", "restore", mark_id, "--format", "json")
            self.reads.forget(lost=True)
            self.reads.read(everything)
            assert not self.reads.lost & came_back
            self.counts.restored += len(came_back)
        self.counts.entries += len(everything)

    def end(self) -> None:
        """Reads every entry of every kept commit, by listings that are made anew."""
        self.lake.listings.clear()
        kept = self.kept()
        self.reads.read(kept.entries)
        self.reads.read_every_entry(kept)
        self.counts.repositories += 1
        self.counts.reads += self.reads.count
        self.counts.writes += self.lake.steps


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

    def __init__(self, lake: Lake) -> None:
        self._over = threading.Event()
        self._beside = lake.beside(random.Random(lake.draw.random()))
        self._thread = threading.Thread(target=self._write, args=(self._beside,))
        self._failed: list[BaseException] = []

    def _write(self, beside: Lake) -> None:
        try:
            while not self._over.wait(beside.draw.uniform(0.01, PAUSE)):
                beside.next_step()
        except (AssertionError, requests.RequestException) as error:
            self._failed.append(error)

    @property
    def moments(self) -> list[Moment]:
        return self._beside.moments

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def end(self) -> None:
        """Ends the writing, once a branch was made at an old commit."""
        if self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        if not self._failed:
            self._beside.step("again")

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failed:
            raise self._failed[0]
