"""Pins while people work on a repository, runs are killed and requests fail: no write of lakeplan makes
a collection keep less, and no branch is deleted but lakeplan's own pins."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from lakeplan.errors import LakeplanError
from lakeplan.plan.apply import ApplyOptions, apply_plan
from lakeplan.plan.pin_sync import SyncOptions, sync_pins
from lakeplan.plan.planning import PlanOptions, Ports, make_plan
from lakeplan.review.run import ApplyPorts
from lakeplan.review.selection import Selection
from lakeplan.sandbox.messages import Request
from lakeplan.values.gates import GATES
from lakeplan.values.repository import Refs
from lakeplan.values.rules import GcRules
from tests.chaos import faults
from tests.chaos.faults import Killed
from tests.chaos.truth import PIN, stands
from tests.chaos.users import Users
from tests.chaos.wire import no_threads_no_waiting
from tests.chaos.world import REPOSITORY, ChaosWorld, Process, Watcher
from tests.retention.literal import World, literal_documented_walk, literal_server_walk

BRANCH = re.compile(rf"/api/v1/repositories/{REPOSITORY}/branches/([^/]+)")
Lost = frozenset[tuple[str, int, str]]


@dataclass
class PinWatcher(Watcher):
    """Judges by the literal walks: what the rules keep without any pin is kept with them, before a write of
    lakeplan's as after it. ``seen`` counts writes. ``only_pins``: no other branch may be deleted."""

    world: ChaosWorld
    seen: Counter[str] = field(default_factory=Counter)
    before: Lost = frozenset()
    problems: list[str] = field(default_factory=list)
    only_pins: bool = True

    def refs(self) -> Refs:
        return self.world.lake.handle._sandbox.service.open(REPOSITORY).refs()

    def lost(self) -> Lost:
        """Commits that the same rules would keep without pins, by verdict and day."""
        days, refs = self.world.truth.days(REPOSITORY), self.refs()
        if days is None:
            return frozenset()
        pins = {b.id for b in refs.branches if stands(b.id, b.commit_id)}
        there = {b.id for b in refs.branches}
        rules = GcRules(*days)
        entries = {
            name for name in rules.branches if name in pins or (PIN.fullmatch(name) and name not in there)
        }
        bare = GcRules(days[0], {name: d for name, d in rules.branches.items() if name not in entries})
        without = replace(refs, branches=tuple(b for b in refs.branches if b.id not in pins))
        now, found = self.world.lake.clock(), set()
        for ahead in (0, 7, 30):
            moment = now + timedelta(days=ahead)
            with_pins = World(refs, rules, moment, timezone.utc)
            no_pins = World(without, bare, moment, timezone.utc)
            for name, walk in (("server", literal_server_walk), ("documented", literal_documented_walk)):
                found |= {(name, ahead, id) for id in set(walk(no_pins)) - set(walk(with_pins))}
        return frozenset(found)

    def before_server(self, process: Process, request: Request) -> None:
        if request.method == "GET" or request.path.endswith("/refs/dump"):
            return
        self.before = self.lost()
        branch = BRANCH.fullmatch(request.path)
        if request.method == "DELETE" and branch is not None:
            self._deletes(branch[1])

    def _deletes(self, name: str) -> None:
        sql = "SELECT commit_id, hidden FROM branches WHERE repository = ? AND id = ?"
        rows = self.world.wire.rows(sql, REPOSITORY, name)
        recorded = self.world.memory.records.get(f"pins/prod/{REPOSITORY}.json")
        known = json.loads(recorded.data)["pins"] if recorded is not None else {}
        for head, hidden in rows:
            if not (self.only_pins or PIN.fullmatch(name)):
                continue
            if not (hidden and stands(name, head) and head in known):
                self.problems.append(f"{name} at {head[:12]} is deleted, and is no pin on record")

    def after_server(self, process: Process, request: Request) -> None:
        if request.method == "GET" or request.path.endswith("/refs/dump"):
            return
        self.seen[f"{request.method} {'rules' if 'gc_rules' in request.path else 'branch'}"] += 1
        if worse := self.lost() - self.before:
            self.problems.append(f"{request.method} {request.path} keeps less: {sorted(worse)[:3]}")


class PinLife:
    """A repository that people and lakeplan change. ``diary`` is what happened."""

    def __init__(self, world: ChaosWorld, seed: int) -> None:
        self.world, self.random = world, Random(seed)
        self.watcher = PinWatcher(world)
        self.ends: Counter[str] = Counter()
        self.diary: list[str] = []
        self._tree()
        world.safety = {"max_expired_objects_percent": 100, "on_tag_loss": "warn"}
        self.users = Users(world, self.random)
        self.users.begin()
        world.watcher = self.watcher

    def _tree(self) -> None:
        gc: dict[str, Any] = {"default_retention_days": self.random.choice((1, 3, 7, 30))}
        if self.random.random() < 0.7:
            gc["branches"] = [{"pattern": "*", "retention_days": self.random.choice((1, 3, 7))}]
            if self.random.random() < 0.5:
                gc["branches"][0] |= {"min_commits": 2, "keep": {"weekly": 2}}
        self.world.gc = gc
        self.world.pins = self.random.choice(({"tags": ["*"], "at_risk": True}, {"tags": ["v*"]}, {}))

    def step(self) -> None:
        for _ in range(self.random.randint(0, 3)):
            self.random.choice(
                (self.users.act, self.users.act, self.users.tag, self._meddle, self.users.leave_tagged)
            )()
        if self.random.random() < 0.3:
            self._tree()
        if self.random.random() < 0.05:
            self.world.memory.records.clear()
            self.diary.append("the state is lost")
        self.world.lake.clock.advance(hours=self.random.choice((0, 1, 25, 24 * 8)))
        command = self.random.choice((self._sync, self._sync, self._apply))
        interruption = faults.draw(self.random, self.users.act, ("gc_rules", "branches"))
        try:
            with self.world.running(interruption):
                command()
            end = "fine"
        except Killed:
            end = "killed"
        except LakeplanError as error:
            end = type(error).__name__
        self.ends[end] += 1
        self.diary.append(f"{command.__name__} {interruption}: {end}")
        assert self.watcher.problems == [], self.diary[-12:]

    def _meddle(self) -> None:
        """Somebody does to a pin what nobody should."""
        pins = [b for b in self.watcher.refs().branches if PIN.fullmatch(b.id)]
        if not pins:
            return
        pin, repo = self.random.choice(pins), self.users.repo
        kind = self.random.choice(("delete", "move", "branch", "rules"))
        self.diary.append(f"{kind} {pin.id}")
        act = {
            "delete": lambda: repo.drop_branch(pin.id),
            "move": lambda: repo.hard_reset(self.users.any_commit(), pin.id),
            "branch": lambda: repo.branch(self.random.choice(("dev", "fix")), pin.commit_id),
            "rules": lambda: repo.set_rules(self.random.choice((1, 7, 30))),
        }[kind]
        self.users.attempt(act)

    # ---- commands
    def _ports(self) -> tuple[Ports, ApplyPorts]:
        return self.world.pin_ports(_NoSimulator())

    def _sync(self) -> None:
        options = SyncOptions(Selection(), frozenset(GATES), adopt=self.random.random() < 0.1)
        report = sync_pins(self.world.tree(), options, *self._ports(), self.world.run_of())
        self.ends.update(f"sync {one.outcome.value}" for one in report.results)

    def _apply(self) -> None:
        world, allowed = self.world, frozenset(GATES)
        ports, apply_ports = self._ports()
        plan = make_plan(
            world.tree(), PlanOptions(as_of=world.now(), simulate="none", allowed=allowed), ports
        )
        report = apply_plan(
            *(plan, world.tree(), ApplyOptions(allowed=allowed), ports, apply_ports, world.run_of()),
            plan_digest="chaos",
        )
        self.ends.update(f"apply {one.setting} {one.outcome.value}" for one in report.results)


class _NoSimulator:
    def impact(self, requests: Any) -> Any:
        return {request.key: LakeplanError("nothing is simulated here") for request in requests}


def live(folder: Path, seed: int, steps: int) -> PinLife:
    """Runs this many steps of one repository. Raises AssertionError if something is kept for less time."""
    world = ChaosWorld(folder)
    with mock.patch.object(os, "fsync", return_value=None), no_threads_no_waiting(lambda: world.wire):
        life = PinLife(world, seed)
        for _ in range(steps):
            life.step()
    world.lake.close()
    return life
