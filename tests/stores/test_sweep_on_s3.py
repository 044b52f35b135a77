"""A whole sweep over a real HTTP S3 server that has bad days: every object has its end, and the next run
finishes what this one could not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lakeplan.stores.open import SweepStore, open_sweep_store
from lakeplan.sweep import deleting
from lakeplan.sweep.mark_record import Mark
from lakeplan.values.simulation import Status
from tests.faulty_store import EXPIRED, SLOW_DOWN, Answer, Cut, FailKeys, FaultyStore, Rule
from tests.storage_servers import s3_client
from tests.sweeping.lake import Clock, Lake, LakeRepository
from tests.sweeping.stores import FakeTime
from tests.sweeping.world import SweepWorld

BUSY = Answer(503, SLOW_DOWN)
DELETE = {"method": "POST", "query": "delete"}
OBJECTS = 8
NO_ROOM = "<Error><Code>InsufficientStorage</Code></Error>"
DENIED = "<Error><Code>AccessDenied</Code></Error>"


class OnS3:
    """A sandbox whose namespace is a bucket: what the server writes is copied there, and what is asked of the
    store goes through a proxy."""

    def __init__(self, folder: Path, bucket: str, faulty: FaultyStore) -> None:
        clock = Clock()
        clock.at = datetime.now(timezone.utc)
        self.faulty = faulty
        self.world = SweepWorld(folder, Lake(folder / "lake", clock))
        # a server of S3 tells its own times: the objects are as old as this test
        self.world.sweep |= {"min_age": "0s", "verify": "all"}
        self.world.allowed = frozenset({"min-age"})
        self.store: SweepStore = open_sweep_store(f"s3://{bucket}/repo1", endpoint_url=faulty.url)
        # the folders above are the sandbox's own
        self.world.wrap = lambda store: self.store if store.url.rstrip("/").endswith("/repo1") else store
        self.world.between = self._copy
        self._client = s3_client()
        self._bucket = bucket
        self._copied: set[str] = set()
        self.repo: LakeRepository = self.world.lake.repository("repo1")

    def mark(self) -> Mark:
        """An approved mark, in two parts, of objects whose commits are all old."""
        self.repo.commit(40, **{f"o{n}": b"old" for n in range(OBJECTS)})
        for n in range(OBJECTS):
            self.repo.delete(f"o{n}.bin")
        self.repo.commit(30)
        self.repo.commit(1, kept=b"kept")
        self.repo.set_rules(7)
        self._copy()
        time.sleep(1.1)  # times of S3 are whole seconds
        self.world.lake.clock.at = datetime.now(timezone.utc)
        self.world.marker.rows = OBJECTS // 2
        mark = self.world.mark()
        assert mark.to_delete.objects == OBJECTS
        self.world.approve(mark)
        return mark

    def _copy(self) -> None:
        for path in self.repo.folder.rglob("*"):
            if path.is_file():
                key = path.relative_to(self.repo.folder).as_posix()
                if key.startswith("data/") and key in self._copied:
                    continue
                self._client.put_object(Bucket=self._bucket, Key=f"repo1/{key}", Body=path.read_bytes())
                self._copied.add(key)

    def data(self) -> set[str]:
        return {found.key for found in self.store.list_objects("data/")}

    def check_the_end(self, mark: Mark) -> None:
        ends = self.world.ends(mark)
        assert set(ends) == set(self.world.going(mark))
        assert self.data().isdisjoint(a for a, (status, _) in ends.items() if status == "deleted")
        assert b"kept" in {self.store.read(key) for key in self.data()}


@pytest.fixture
def s3(tmp_path: Path, s3_bucket: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnS3]:
    monkeypatch.setattr(deleting, "time", FakeTime())
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    with FaultyStore(s3_endpoint) as faulty:
        there = OnS3(tmp_path, s3_bucket, faulty)
        yield there
        there.world.lake.close()


def it_sweeps_a_bucket(s3: OnS3) -> None:
    mark = s3.mark()
    end = s3.world.run(mark)
    assert end.problem == ""
    assert s3.world.finish(end)["deleted"]["objects"] == OBJECTS
    assert len(s3.data()) == 1
    s3.check_the_end(mark)


@pytest.mark.extended
@pytest.mark.parametrize(
    "rule",
    [
        Rule(BUSY, **DELETE, times=3),
        Rule(Cut(asked=False), **DELETE, times=1),
        Rule(Cut(asked=True, sent=0), **DELETE, times=1),
        Rule(Cut(asked=True, sent=25), **DELETE, times=1),
        Rule(FailKeys(lambda key: True, "SlowDown"), **DELETE, times=2),
        Rule(FailKeys(lambda key: key[-1] in "02468acegikmoqs", "InternalError"), **DELETE, times=2),
        Rule(FailKeys(lambda key: True, ""), **DELETE, times=1),
    ],
    ids=["slow-down", "cut-before", "cut-without-answer", "cut-answer", "each-slow", "half", "silent"],
)
def it_waits_and_asks_again(s3: OnS3, rule: Rule) -> None:
    mark = s3.mark()
    s3.faulty.arm(rule)
    end = s3.world.run(mark)
    assert end.problem == ""
    assert end.amount(Status.DELETED).objects == OBJECTS
    s3.check_the_end(mark)


def it_tells_of_the_half_that_the_store_refuses(s3: OnS3) -> None:
    mark = s3.mark()
    locked = {f"repo1/{key}" for key in sorted(s3.world.going(mark))[::2]}
    s3.faulty.arm(Rule(FailKeys(lambda key: key in locked, "AccessDenied"), **DELETE))
    document = s3.world.finish(s3.world.run(mark))
    assert document["finished"]
    assert document["deleted"]["objects"] == document["failed"]["objects"] == OBJECTS // 2
    assert sum(document["reasons"].values()) == OBJECTS // 2
    assert len(s3.data()) == 1 + OBJECTS // 2
    s3.check_the_end(mark)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (Rule(Answer(400, EXPIRED), **DELETE, skip=1), "credentials"),
        (Rule(BUSY, **DELETE, skip=1), "overloaded"),
        (Rule(Answer(507, NO_ROOM), method="PUT", path="results/"), ""),
    ],
    ids=["credentials-expire", "busy-for-ever", "no-room-for-the-record"],
)
def it_stops_and_the_next_run_finishes(s3: OnS3, rule: Rule, word: str) -> None:
    mark = s3.mark()
    s3.faulty.arm(rule)
    end = s3.world.run(mark)
    assert not end.finished
    assert word in end.problem
    assert end.problem
    s3.faulty.clear()
    document = s3.world.finish(s3.world.run(mark))
    assert document["finished"]
    assert document["deleted"]["objects"] == OBJECTS
    s3.check_the_end(mark)


def it_deletes_nothing_whose_copy_failed(s3: OnS3) -> None:
    s3.world.sweep["mode"] = "quarantine"
    mark = s3.mark()
    s3.faulty.arm(Rule(Answer(403, DENIED), method="PUT", path="quarantine/"))
    document = s3.world.finish(s3.world.run(mark))
    assert document["failed"]["objects"] == OBJECTS
    assert len(s3.data()) == OBJECTS + 1
