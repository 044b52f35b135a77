"""Nothing that is kept is ever lost: random lakeFS operations, marks and sweeps over the sandbox.

Everything is judged by literal walks (``tests/core/retention/literal.py``) over the server's own records, and
by what is on disk and what GET answers; nothing here asks lakeplan what should be kept.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakeplan.app.sweep.restore import RestoreOptions, restore
from lakeplan.errors import GateRefused, StalePlan
from lakeplan.model.mark import Mark
from lakeplan.model.objects import AddressType, Entry
from lakeplan.model.refs import Refs
from lakeplan.model.rules import GcRules
from lakeplan.sweep import deleting
from tests.core.retention.literal import World, literal_documented_walk, literal_server_walk
from tests.sweeping.lake import Lake, LakeRepository, Refused
from tests.sweeping.stores import FakeTime, FaultyStore, Killed, killing_at
from tests.sweeping.world import SweepWorld

PATHS = st.sampled_from(["a", "b", "c/d"])
BRANCHES = st.sampled_from(["main", "dev", "fix"])
DAYS = st.sampled_from([1, 3, 7, 30])
BRANCH_DAYS = st.dictionaries(BRANCHES, DAYS | st.just(0), max_size=2)
AGES = st.sampled_from([0, 0, 0.5, 2, 5, 10, 20])
PICK = st.integers(0, 1 << 20)
SEEN: Counter[str] = Counter()
"""What the runs of this process did: a test that never deletes anything would prove nothing."""


@dataclass(frozen=True)
class Held:
    """What something holds now: address → where it can be read (reference, path)."""

    places: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __contains__(self, address: str) -> bool:
        return address in self.places


class Sweeping(RuleBasedStateMachine):
    """``swept`` are addresses whose objects went when nothing held them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lakeplan-stateful-"))
        self._patches = [
            mock.patch.object(deleting, "time", FakeTime()),
            mock.patch.object(os, "fsync", return_value=None),
        ]
        for patch in self._patches:
            patch.start()
        self.world = SweepWorld(self.folder, Lake(self.folder / "lake"))
        self.world.marker.rows = 1
        self.lake = self.world.lake
        self.repo: LakeRepository = self.lake.repository("repo1")
        self.data: dict[str, bytes] = {}
        self.swept: set[str] = set()
        self.ever_swept: set[str] = set()
        self.marks: list[Mark] = []
        self._numbers = itertools.count(1)
        self._trees: dict[str, dict[str, Entry]] = {}
        self._before: tuple[Held, set[str]] | None = None
        self.world.sweeper.before_round = self._round_begins

    def teardown(self) -> None:
        self.lake.close()
        for patch in self._patches:
            patch.stop()
        shutil.rmtree(self.folder)
        SEEN["runs"] += 1

    # ---- what is held, by the server's own records
    def held(self) -> Held:
        service = self.lake.handle._sandbox.service
        with service.store.transaction():
            refs: Refs = service.records.refs("repo1")
            staged = {
                (branch.id, path): entry
                for branch in refs.branches
                for path, entry in service.staging.changes("repo1", branch.id).items()
                if entry is not None
            }
            for commit in refs.commits:
                if commit.meta_range_id not in self._trees:
                    record = service.records.repository("repo1")
                    tree = service.trees.load(service.namespace(record), commit.meta_range_id)
                    self._trees[commit.meta_range_id] = dict(tree)
        metaranges = {commit.id: commit.meta_range_id for commit in refs.commits}
        places: dict[str, tuple[str, str]] = {}
        for id in self.kept_commits(refs):
            for path, entry in self._trees[metaranges[id]].items():
                places.setdefault(self._address(entry), (id, path))
        for (branch, path), entry in staged.items():
            places[self._address(entry)] = (branch, path)
        return Held(places)

    def kept_commits(self, refs: Refs) -> set[str]:
        """Whatever the documented rule or the server's walk keeps, and whatever the tree protects."""
        kept = {branch.commit_id for branch in refs.branches}
        kept |= {tag.commit_id for tag in refs.tags if tag.id.startswith("v")}
        rules = self.stored_rules
        for at in (self.world.now(), self.world.now() - timedelta(seconds=self.margin)):
            view = World(refs, rules, at, timezone.utc)
            kept |= set(literal_documented_walk(view)) | literal_server_walk(view)
        return kept

    @property
    def stored_rules(self) -> GcRules:
        body = self.repo.call("GET", "/settings/gc_rules").json()
        days = {b["branch_id"]: b["retention_days"] for b in body["branches"] or []}
        return GcRules(body["default_retention_days"], days)

    @property
    def margin(self) -> int:
        return 26 * 3600 if self.world.sweep["margin"] == "26h" else 0

    @staticmethod
    def _address(entry: Entry) -> str:
        assert entry.address_type is AddressType.RELATIVE
        return entry.address

    # ---- what must hold
    @invariant()
    def everything_held_is_stored_as_it_was_written(self) -> None:
        for address, place in self.held().places.items():
            if address not in self.swept:
                path = self.repo.folder / address
                assert path.is_file(), f"{address} at {place} is gone"
                assert path.read_bytes() == self.data[address], address

    def _everything_held_can_be_read(self) -> None:
        for address, (ref, path) in self.held().places.items():
            if address not in self.swept:
                assert self.repo.get(ref, path) == self.data[address], (ref, path)
                SEEN["read"] += 1

    def _round_begins(self, number: int) -> None:
        self._before = (self.held(), self.repo.stored())

    def _round_ends(self) -> None:
        """What went in a round was held by nothing when the round began."""
        if self._before is None:
            return
        held, stored = self._before
        self._before = None
        gone = stored - self.repo.stored()
        lost = {address: held.places[address] for address in gone if address in held}
        assert not lost, f"a sweep took what was held: {lost}"
        self.swept |= gone
        self.ever_swept |= gone
        SEEN["deleted"] += len(gone)

    # ---- lakeFS operations
    @initialize(days=DAYS, more=BRANCH_DAYS)
    def begin(self, days: int, more: dict[str, int]) -> None:
        self.repo.set_rules(days, **more)
        for age in (30, 20, 10):
            self.put("main", "a", same=False)
            self.commit("main", age)

    def _try(self, operation: Callable[[], Any]) -> None:
        """What a server refuses (a conflict, nothing to commit, no such branch) changes nothing."""
        try:
            operation()
        except Refused as refused:
            if refused.status not in (400, 404, 409, 412):
                raise
            SEEN["refused by the server"] += 1

    @rule(branch=BRANCHES, path=PATHS, same=st.booleans())
    def put(self, branch: str, path: str, same: bool) -> None:
        data = b"the same again" if same else f"{next(self._numbers)}".encode()

        def upload() -> None:
            self.data[self.repo.upload(path, data, branch)] = data

        self._try(upload)

    @rule(branch=BRANCHES, path=PATHS)
    def upload_that_looks_old(self, branch: str, path: str) -> None:
        data = f"long {next(self._numbers)}".encode()

        def upload() -> None:
            address = self.repo.upload(path, data, branch)
            self.data[address] = data
            self.repo.touch(address, age_hours=100)

        self._try(upload)

    @rule()
    def upload_without_a_path(self) -> None:
        """Direct uploads, aborted clients: an old object that nobody staged, yet."""
        data = f"stray {next(self._numbers)}".encode()
        address = f"data/stray/{next(self._numbers)}"
        path = self.repo.folder / address
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.repo.touch(address, age_hours=100)
        self.data[address] = data

    @rule(branch=BRANCHES, path=PATHS, pick=PICK)
    def stage_an_address_again(self, branch: str, path: str, pick: int) -> None:
        known = sorted(self.data)
        if known:
            address = known[pick % len(known)]
            self._try(lambda: self.repo.stage(path, address, branch, checksum=str(next(self._numbers))))

    @rule(branch=BRANCHES, path=PATHS)
    def delete(self, branch: str, path: str) -> None:
        self._try(lambda: self.repo.delete(path, branch))

    @rule(branch=BRANCHES, age=AGES)
    def commit(self, branch: str, age: float) -> None:
        self._try(lambda: self.repo.commit(age, branch))

    @rule(branch=BRANCHES)
    def reset(self, branch: str) -> None:
        self._try(lambda: self.repo.reset(branch))

    def _commits(self) -> list[str]:
        service = self.lake.handle._sandbox.service
        with service.store.transaction():
            return [commit.id for commit in service.records.refs("repo1").commits]

    def _commit(self, pick: int) -> str:
        commits = self._commits()
        return commits[pick % len(commits)]

    @rule(name=BRANCHES, pick=PICK)
    def branch(self, name: str, pick: int) -> None:
        self._try(lambda: self.repo.branch(name, self._commit(pick)))

    @rule(name=st.sampled_from(["dev", "fix"]))
    def drop_branch(self, name: str) -> None:
        self._try(lambda: self.repo.drop_branch(name))

    @rule(pick=PICK, protected=st.booleans())
    def tag(self, pick: int, protected: bool) -> None:
        name = f"{'v' if protected else 'n'}{next(self._numbers)}"
        self._try(lambda: self.repo.tag(name, self._commit(pick)))

    @rule(branch=BRANCHES, pick=PICK)
    def hard_reset(self, branch: str, pick: int) -> None:
        self._try(lambda: self.repo.hard_reset(self._commit(pick), branch))

    @rule(branch=BRANCHES, back=st.integers(0, 2))
    def revert(self, branch: str, back: int) -> None:
        self._try(lambda: self.repo.revert(f"{branch}~{back}", branch))

    @rule(source=BRANCHES, branch=BRANCHES)
    def merge(self, source: str, branch: str) -> None:
        self._try(lambda: self.repo.merge(source, branch))

    @rule(days=DAYS, more=BRANCH_DAYS)
    def set_rules(self, days: int, more: dict[str, int]) -> None:
        self.repo.set_rules(days, **more)

    @rule(hours=st.sampled_from([1, 12, 25, 25, 50, 24 * 8]))
    def time_passes(self, hours: float) -> None:
        self.lake.clock.advance(hours=hours)

    # ---- marks and sweeps
    @rule(
        never=st.sampled_from(["keep", "collect"]),
        mode=st.sampled_from(["delete", "quarantine"]),
        settle=st.sampled_from(["0s", "0s", "24h"]),
        margin=st.sampled_from(["0s", "26h"]),
    )
    def mark(self, never: str, mode: str, settle: str, margin: str) -> None:
        self.world.sweep = {"never_committed": never, "mode": mode, "settle": settle, "margin": margin}
        stored = self.repo.stored()
        mark = self.world.mark()
        assert self.repo.stored() == stored, "a mark deletes nothing"
        SEEN["marks"] += 1
        if mark.goes.objects:
            self.world.approve(mark)
            self.marks.append(mark)

    @precondition(lambda self: self.marks)
    @rule(pick=PICK, change=st.integers(0, 5), killed_at=st.none() | st.integers(1, 30), path=PATHS)
    def sweep(self, pick: int, change: int, killed_at: int | None, path: str) -> None:
        """One of the last marks, with a change of the repository after the first of its rounds, killed at a
        call of the store or not."""
        mark = self.marks[-1 - pick % min(2, len(self.marks))]
        self.world.sweeper.parts_a_round = 1
        self.world.sweeper.rounds = 0
        self.world.sweeper.after_round = lambda number: self._between(number, change, mark, path)
        if killed_at is not None:
            self.world.wrap = lambda store: _wrapped(store, killing_at(killed_at))
        try:
            self._run(mark)
        finally:
            self.world.wrap = lambda store: store
        self._everything_held_can_be_read()

    @rule(hours=st.sampled_from([25, 25, 24 * 8]))
    def mark_and_sweep(self, hours: float) -> None:
        self.lake.clock.advance(hours=hours)
        self.mark(never="collect", mode="delete", settle="0s", margin="0s")
        self.world.sweeper.parts_a_round = None
        self.world.sweeper.after_round = lambda number: self._round_ends()
        if self.marks:
            self._run(self.marks[-1])
        self._everything_held_can_be_read()

    def _run(self, mark: Mark) -> None:
        try:
            end = self.world.run(mark)
        except Killed:
            SEEN["killed"] += 1
            self._round_ends()
            return
        except (GateRefused, StalePlan) as refused:
            SEEN[type(refused).__name__] += 1
            return
        assert end.problem == ""
        assert end.finished
        ends = self.world.ends(mark)
        assert set(ends) == set(self.world.going(mark))
        for address, (status, _) in ends.items():
            SEEN[status] += 1
            if status == "deleted":
                assert address in self.ever_swept
        try:
            document = self.world.finish(end)
        except Killed:
            SEEN["killed"] += 1
            return
        assert document["deleted"]["objects"] == sum(status == "deleted" for status, _ in ends.values())
        SEEN["finished"] += 1

    def _between(self, number: int, change: int, mark: Mark, path: str) -> None:
        self._round_ends()
        if number != 1:
            return
        going = sorted(self.world.going(mark))
        if change == 0:
            self._try(lambda: self.repo.stage(path, going[-1], "main", checksum=str(next(self._numbers))))
        elif change == 1:
            self._try(lambda: self.repo.stage(path, going[0], "main", checksum=str(next(self._numbers))))
            self._try(lambda: self.repo.commit(0, "main"))
        elif change == 2:
            self.repo.set_rules(30)
        elif change == 3:
            self.branch("fix", number + len(going))
        elif change == 4:
            self.revert("main", 1)

    @precondition(lambda self: any(m.settings.mode == "quarantine" for m in self.marks))
    @rule(pick=PICK)
    def bring_back(self, pick: int) -> None:
        """Out of quarantine, byte for byte."""
        quarantined = [m for m in self.marks if m.settings.mode == "quarantine"]
        mark = quarantined[pick % len(quarantined)]
        deleted = {a for a, (status, _) in self.world.ends(mark).items() if status == "deleted"}
        if not deleted:
            return
        document = restore(
            self.world.site(),
            self.world.stored(mark),
            self.world.ports(),
            self.world.run_of(),
            RestoreOptions(),
        )
        assert document["failed"] == 0
        for address in deleted:
            assert (self.repo.folder / address).read_bytes() == self.data[address]
            # the plain files get this machine's time; the clock of this world is another
            self.repo.touch(address)
        self.swept -= deleted
        SEEN["restored"] += len(deleted)


def _wrapped(store: Any, fault: Any) -> FaultyStore:
    faulty = FaultyStore(store)
    faulty.before = fault
    return faulty


def test_nothing_that_is_kept_is_ever_lost() -> None:
    """About half a minute. A longer run: more ``max_examples``."""
    run_state_machine_as_test(
        Sweeping,
        settings=settings(
            max_examples=12,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking would take minutes
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    assert SEEN["deleted"] > 0
    assert SEEN["finished"] > 0
