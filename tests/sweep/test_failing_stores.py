"""A run whose store fails as a whole: what it says, and what a later run does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lakeplan.errors import StorageDenied, StorageError, StoreBusy
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.mark_record import Mark
from lakeplan.values.simulation import Status
from lakeplan.values.sweep import Deletion
from tests.sweeping.lake import LakeRepository
from tests.sweeping.stores import FaultyStore, Killed, killing_at, raising
from tests.sweeping.world import SweepWorld


class DescribeFaultsOfAWholeRun:
    @pytest.fixture
    def mark(self, world: SweepWorld, repo: LakeRepository) -> Mark:
        world.marker.rows = 1
        mark = world.mark()
        world.approve(mark)
        return mark

    def it_goes_on_after_the_store_was_busy_for_too_long(self, world: SweepWorld, mark: Mark) -> None:
        world.wrap = _wrapped(raising(StoreBusy("SlowDown"), on="delete"))
        end = world.run(mark)
        assert "SlowDown" in end.problem
        assert end.pending.objects == 2
        assert world.finish(end)["finished"] is False
        world.wrap = lambda store: store
        assert world.finish(world.run(mark))["finished"] is True

    def it_goes_on_after_credentials_expired(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark
    ) -> None:
        second = next(
            iter(world.going(replace(mark, marked=replace(mark.marked, going=mark.marked.going[1:]))))
        )
        world.wrap = _wrapped(raising(StorageDenied("no usable credentials"), on="delete", key=second))
        end = world.run(mark)
        assert end.amount(Status.DELETED).objects == 1
        assert end.pending.objects == 1
        assert "no usable credentials" in end.problem
        world.wrap = lambda store: store
        world.finish(world.run(mark))
        assert {status for status, _ in world.ends(mark).values()} == {"deleted"}

    def it_tells_of_what_failed(self, world: SweepWorld, repo: LakeRepository, mark: Mark) -> None:
        locked = next(iter(world.going(mark)))

        def wrap(store: SweepStore) -> FaultyStore:
            faulty = FaultyStore(store)
            faulty.refuses = lambda key: (
                Deletion(key, "AccessDenied: the object is locked") if key == locked else None
            )
            return faulty

        world.wrap = wrap
        document = world.finish(world.run(mark))
        assert document["failed"]["objects"] == 1
        assert document["reasons"] == {"failed: AccessDenied: the object is locked": 1}
        assert document["finished"]
        assert locked in repo.stored()

    @pytest.mark.parametrize("file", ["/sweeps/", "official.json", "unified/"])
    def it_loses_no_record_when_the_disk_is_full_for_the_report(
        self, world: SweepWorld, mark: Mark, file: str
    ) -> None:
        end = world.run(mark)
        fault = StorageError("cannot be used: No space left on device")

        def wrap(store: SweepStore) -> FaultyStore:
            faulty = FaultyStore(store)
            puts, creates = raising(fault, on="put", key=file), raising(fault, on="create", key=file)
            faulty.before, faulty.after = puts, creates
            return faulty

        world.wrap = wrap
        with pytest.raises(StorageError, match=r"on device\. The sweep has deleted 2 objects") as raised:
            world.finish(end)
        assert raised.value.hint == f"Run `lakeplan sweep run {mark.mark_id}` again to write the summary."
        world.wrap = lambda store: store
        again = world.run(mark)
        assert again.amount(Status.DELETED).objects == 2
        document = world.finish(again)
        assert document["finished"]
        reports = world.site().store.list_prefixes("_lakefs/retention/gc/unified/")
        assert len(reports) == 1, "one report a sweep"

    def it_may_be_killed_at_any_call_of_the_store(self, world: SweepWorld, repo: LakeRepository) -> None:
        world.marker.rows = 1
        number = 0
        while True:
            number += 7
            repo.hard_reset("main~1")
            for n in range(2):
                repo.commit(30, z=f"{number} {n}".encode())
            repo.commit(1, z=f"{number} end".encode())
            world.lake.clock.advance(days=2)
            mark = world.mark()
            world.approve(mark)
            fault = killing_at(number)
            world.wrap = _wrapped(fault)
            try:
                world.finish(world.run(mark))
                finished = True
            except Killed:
                finished = False
            world.wrap = lambda store: store
            document = world.finish(world.run(mark))
            assert document["finished"], number
            assert set(world.ends(mark)) == set(world.going(mark)), number
            assert not set(world.ends(mark)) & repo.stored(), number
            if finished:
                break
        assert number > 20

    def it_stops_between_rounds_when_it_is_told_to(self, world: SweepWorld, mark: Mark) -> None:
        world.sweeper.parts_a_round = 1
        world.stop = lambda: world.sweeper.rounds == 1
        end = world.run(mark)
        assert end.problem == "stopped by a signal"
        assert end.pending.objects == 1
        world.stop = lambda: False
        assert world.run(mark).finished

    def it_ends_when_rounds_get_nothing_done(self, world: SweepWorld, mark: Mark) -> None:
        """Workers whose clock is ahead begin no part: that must not go on for ever."""
        world.sweeper.parts_a_round = 0
        end = world.run(mark)
        assert "clock" in end.problem
        assert end.pending.objects == 2
        assert world.sweeper.rounds == 1


def _wrapped(fault: Callable[[str, tuple[object, ...]], None]) -> Callable[[SweepStore], FaultyStore]:
    def wrap(store: SweepStore) -> FaultyStore:
        faulty = FaultyStore(store)
        faulty.before = fault
        return faulty

    return wrap
