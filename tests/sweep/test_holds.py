"""Held data stays kept: the namespace records holds, whatever happens to branches, tags and state."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from typing import Any

import pytest

from lakeplan.errors import FormatError, LakeplanError
from lakeplan.formats.namespace import HOLDS_PREFIX
from lakeplan.sweep import hold_records
from lakeplan.sweep.restore import RestoreOptions, restore
from lakeplan.values.simulation import Status
from tests.sweeping.lake import LakeRepository
from tests.sweeping.world import SweepWorld


@pytest.fixture
def held(world: SweepWorld) -> LakeRepository:
    """The branches ``legal-1``, with its own data, and ``legal-2``, without. All data has expired once
    its branch is deleted."""
    repository = world.lake.repository("repo1")
    repository.commit(90, a=b"first")
    for name in ("legal-1", "legal-2"):
        repository.branch(name)
    repository.commit(80, "legal-1", evidence=b"evidence")
    repository.commit(79, "legal-1", evidence=b"newer")
    repository.commit(78, "legal-1", cover=b"cover")
    repository.set_rules(7)
    world.lake.clock.advance(days=2)
    return repository


def hold(world: SweepWorld, **what: Any) -> None:
    world.holds = [{**what, "reason": "legal"}]


def sweep(world: SweepWorld) -> None:
    mark = world.mark()
    if mark.to_delete.objects:
        world.sweep_of(mark)


def records(world: SweepWorld) -> list[dict[str, Any]]:
    store = world.site().store
    return [json.loads(store.read(stored.key)) for stored in store.list_objects(HOLDS_PREFIX)]


def it_loses_the_data_of_a_branch_without_a_hold(world: SweepWorld, held: LakeRepository) -> None:
    before = held.stored()
    world.mark()
    held.drop_branch("legal-1")
    sweep(world)
    assert len(before - held.stored()) == 3


class DescribeABranchThatSomebodyDeletes:
    def it_keeps_everything_that_it_was_made_from(self, world: SweepWorld, held: LakeRepository) -> None:
        hold(world, branch="legal-*")
        before = held.stored()
        world.mark()
        held.drop_branch("legal-1")
        sweep(world)
        assert held.stored() == before

    def it_needs_no_state_for_that(self, world: SweepWorld, held: LakeRepository) -> None:
        hold(world, branch="legal-*")
        before = held.stored()
        world.mark()
        held.drop_branch("legal-1")
        shutil.rmtree(world.folder / "state")
        sweep(world)
        assert held.stored() == before

    def it_blocks_when_nothing_of_the_name_is_left(self, world: SweepWorld, held: LakeRepository) -> None:
        hold(world, branch="legal-1")
        held.commit(60, b=b"1")
        held.commit(50, b=b"2")
        held.commit(40, b=b"3")
        world.lake.clock.advance(days=2)
        mark = world.mark()
        world.approve(mark)
        head = records(world)[0]["commit"]
        held.drop_branch("legal-1")
        with pytest.raises(LakeplanError, match="hold on branch 'legal-1' keeps nothing") as refused:
            world.mark()
        assert head in refused.value.hint
        with pytest.raises(LakeplanError, match="keeps nothing"):
            world.run(mark)
        hold(world, commit=head)
        world.mark()

    def it_keeps_what_the_branch_had_before_a_reset(self, world: SweepWorld, held: LakeRepository) -> None:
        hold(world, branch="legal-1")
        before = held.stored()
        world.mark()
        held.hard_reset("main", "legal-1")
        sweep(world)
        assert held.stored() == before

    def it_records_one_commit_of_a_branch_that_moves_on(
        self, world: SweepWorld, held: LakeRepository
    ) -> None:
        hold(world, branch="legal-1")
        world.mark()
        head = held.commit(0, "legal-1", more=b"more")
        world.mark()
        assert [record["commit"] for record in records(world)] == [head]


def it_keeps_the_commit_that_a_tag_named_before_it_was_moved(world: SweepWorld, held: LakeRepository) -> None:
    held.tag("evidence", "legal-1")
    hold(world, tag="evidence")
    before = held.stored()
    world.mark()
    held.call("DELETE", "/tags/evidence")
    held.tag("evidence", "main")
    held.drop_branch("legal-1")
    sweep(world)
    # the first version of evidence.bin is in no held commit
    assert len(before - held.stored()) == 1


def it_ends_no_hold_by_a_wrong_clock_while_it_restores(world: SweepWorld, held: LakeRepository) -> None:
    world.sweep["mode"] = "quarantine"
    for age in (70, 60, 50):
        held.commit(age, a=b"%d" % age)
    held.tag("evidence", "legal-1")
    hold(world, tag="evidence", until="2024-06-01")
    mark = world.mark()
    world.sweep_of(mark)
    held.call("DELETE", "/tags/evidence")
    held.tag("evidence", "main")
    held.drop_branch("legal-1")
    before = held.stored()
    world.skew = timedelta(days=400)
    end = restore(world.site(), world.stored(mark), world.ports(), world.run_of(), RestoreOptions())
    assert (end["restored"] > 0, end["collectable_again"]) == (True, None)
    assert "this machine's clock shows" in end["note"]
    world.skew = timedelta()
    sweep(world)
    assert before <= held.stored()


class DescribeTheEndOfAHold:
    def it_ends_a_day_after_the_hold_was_missed_in_the_tree(
        self, world: SweepWorld, held: LakeRepository
    ) -> None:
        hold(world, branch="legal-*")
        before = held.stored()
        world.mark()
        held.drop_branch("legal-1")
        world.holds = []
        sweep(world)
        world.lake.clock.advance(hours=23)
        sweep(world)
        assert held.stored() == before
        world.lake.clock.advance(hours=1)
        sweep(world)
        assert len(before - held.stored()) == 3
        assert records(world) == []

    def it_begins_anew_when_the_hold_is_back(self, world: SweepWorld, held: LakeRepository) -> None:
        hold(world, branch="legal-*")
        before = held.stored()
        world.mark()
        held.drop_branch("legal-1")
        for _ in range(2):
            world.holds = []
            world.mark()
            world.lake.clock.advance(hours=20)
            hold(world, branch="legal-*")
            sweep(world)
        assert held.stored() == before

    @pytest.mark.parametrize("in_tree", [True, False])
    def it_ends_with_its_last_day(self, world: SweepWorld, held: LakeRepository, in_tree: bool) -> None:
        hold(world, branch="legal-*", until="2024-03-04")
        before = held.stored()
        assert world.now().date().isoformat() == "2024-03-03"
        world.mark()
        held.drop_branch("legal-1")
        world.lake.clock.advance(days=1)
        sweep(world)
        assert held.stored() == before
        if not in_tree:
            world.holds = []
        world.lake.clock.advance(days=1)
        sweep(world)
        assert len(before - held.stored()) == 3

    def it_ends_a_day_after_it_was_shortened_to_a_past_day(
        self, world: SweepWorld, held: LakeRepository
    ) -> None:
        hold(world, branch="legal-*", until="2034-03-04")
        before = held.stored()
        world.mark()
        held.drop_branch("legal-1")
        hold(world, branch="legal-*", until="2024-03-02")
        sweep(world)
        assert held.stored() == before
        world.lake.clock.advance(days=1)
        sweep(world)
        assert len(before - held.stored()) == 3

    def it_follows_a_hold_that_is_prolonged(self, world: SweepWorld, held: LakeRepository) -> None:
        hold(world, branch="legal-*", until="2024-03-04")
        before = held.stored()
        world.mark()
        hold(world, branch="legal-*", until="2024-06-04")
        world.mark()
        held.drop_branch("legal-1")
        world.holds = []
        world.lake.clock.advance(days=3)
        sweep(world)
        assert held.stored() == before


class DescribeAPrefix:
    def it_keeps_what_is_committed_below_it_after_the_mark(
        self, world: SweepWorld, held: LakeRepository
    ) -> None:
        """Even once the commit itself has expired: its branch is gone, and its days are over."""
        held.drop_branch("legal-1")
        held.set_rules(1)
        hold(world, prefix="legal/")
        mark = world.mark()
        world.approve(mark)
        evidence = max(world.going(mark))
        held.branch("case")
        held.stage("legal/case.bin", evidence, "case")
        held.commit(0, "case")
        held.drop_branch("case")
        world.lake.clock.advance(hours=60)
        end = world.run(mark)
        assert (end.amount(Status.SAVED).objects, end.amount(Status.DELETED).objects) == (1, 2)
        assert evidence in held.stored()

    @pytest.mark.parametrize("matched", [True, False])
    def it_is_held_for_a_day_after_the_hold_was_missed_in_the_tree(
        self, world: SweepWorld, held: LakeRepository, matched: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not matched:
            monkeypatch.setattr(hold_records, "MAX_METARANGES", 0)
        hold(world, prefix="evid")
        before = held.stored()
        held.drop_branch("legal-1")
        world.mark()
        world.holds = []
        mark = world.mark()
        assert set(world.kept(mark).values()) == {"protected"}
        world.sweep_of(mark)
        assert len(before - held.stored()) == 1  # cover.bin
        world.lake.clock.advance(hours=24)
        sweep(world)
        assert len(before - held.stored()) == 3
        assert records(world) == []

    def it_is_held_in_sweeps_of_older_marks_once_an_inspection_recorded_it(
        self, world: SweepWorld, held: LakeRepository
    ) -> None:
        """Whoever sweeps the older mark has a tree without the hold, or one that has dropped it."""
        held.drop_branch("legal-1")
        mark = world.mark()
        world.approve(mark)
        hold(world, prefix="evid")
        world.mark()
        world.holds = []
        end = world.run(mark)
        assert (end.amount(Status.SAVED).objects, end.amount(Status.DELETED).objects) == (2, 1)

    def it_counts_what_was_deleted_below_it_before_when_a_sweep_is_closed(
        self, world: SweepWorld, held: LakeRepository
    ) -> None:
        held.drop_branch("legal-1")
        mark = world.mark()
        world.approve(mark)
        assert world.run(mark).came_back == 0
        hold(world, prefix="evid")
        assert world.finish(world.close(mark))["came_back"] == 2

    def it_warns_where_no_path_matches(
        self, world: SweepWorld, held: LakeRepository, caplog: pytest.LogCaptureFixture
    ) -> None:
        hold(world, prefix="no/such/")
        world.mark()
        assert "prefix 'no/such/' matches no path" in caplog.text

    def it_holds_paths_that_only_an_old_commit_has(
        self, world: SweepWorld, held: LakeRepository, caplog: pytest.LogCaptureFixture
    ) -> None:
        hold(world, prefix="evid")
        before = held.stored()
        held.drop_branch("legal-1")
        sweep(world)
        assert len(before - held.stored()) == 1  # cover.bin
        assert "matches no path" not in caplog.text

    def it_blocks_once_the_commit_that_matched_is_gone(self, world: SweepWorld, held: LakeRepository) -> None:
        hold(world, prefix="evid")
        world.mark()
        (file,) = (world.lake.folder / "repo1" / HOLDS_PREFIX).rglob("*.json")
        content = {**json.loads(file.read_text()), "commit": "f" * 64}
        file.unlink()
        (file.parent / f"{'f' * 64}.json").write_text(json.dumps(content))
        with pytest.raises(LakeplanError, match=r"hold on prefix 'evid' kept commit f+, which"):
            world.mark()


def it_saves_what_a_hold_names_that_is_newer_than_the_mark(world: SweepWorld, held: LakeRepository) -> None:
    head = held.call("GET", "/branches/legal-1").json()["commit_id"]
    held.drop_branch("legal-1")
    mark = world.mark()
    world.approve(mark)
    hold(world, commit=head[:10])
    end = world.run(mark)
    assert end.amount(Status.SAVED).objects == 2
    assert end.amount(Status.DELETED).objects == 1


@pytest.mark.parametrize("text", ["{}", "[" * 100_000])
def it_refuses_to_go_on_with_a_damaged_record(world: SweepWorld, held: LakeRepository, text: str) -> None:
    hold(world, branch="legal-1")
    world.mark()
    (file,) = (world.lake.folder / "repo1" / HOLDS_PREFIX).rglob("*.json")
    file.write_text(text)
    with pytest.raises(FormatError, match="record of held commits is damaged") as refused:
        world.mark()
    assert HOLDS_PREFIX in refused.value.where
