"""Copies in quarantine may be all there is of an object: purge keeps what anything needs, restore trusts the
store and no record."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from rich.console import Console

from lakeplan.branches.pin_records import PinRecord, write_pin_record
from lakeplan.errors import StorageError, UsageError
from lakeplan.formats.namespace import QUARANTINE_PREFIX, sweep_prefix
from lakeplan.output.sweep import render_mark_list, render_sweep
from lakeplan.review.selection import Selection
from lakeplan.state.sweeps import record_purge
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.inspection import Others
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.purge import NEEDED, USED, YOUNG
from lakeplan.sweep.records import list_marks, read_summary, with_later
from lakeplan.sweep.restore import RestoreOptions, restore
from lakeplan.sweep.service import purge_all, quarantines
from lakeplan.values.pins import Pin
from lakeplan.values.repository import Repository
from lakeplan.values.simulation import Amount
from tests.sweeping.lake import LakeRepository
from tests.sweeping.stores import FaultyStore, raising
from tests.sweeping.world import SweepWorld

FIRST = "main~3"


@pytest.fixture
def moved(world: SweepWorld, repo: LakeRepository) -> Mark:
    """Two expired versions, moved into quarantine."""
    world.sweep["mode"] = "quarantine"
    mark = world.mark()
    document = world.sweep_of(mark)
    assert (document["deleted"]["objects"], document["came_back"]) == (2, 0)
    return mark


def purge(
    world: SweepWorld, *, days: float = 8, older_than: datetime | None = None
) -> tuple[dict[str, Any], int]:
    world.lake.clock.advance(days=days)
    older = older_than or world.now()
    found = quarantines(world.tree(), Selection((), None, None), world.ports(), older_than=older)
    return purge_all(found, world.ports(), world.run_of(), older_than=older, option=None)


def copies(repo: LakeRepository, mark: Mark) -> set[str]:
    folder = repo.folder / QUARANTINE_PREFIX / mark.mark_id
    return {f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file()}


def bring_back(world: SweepWorld, mark: Mark, **options: str) -> dict[str, Any]:
    return restore(world.site(), world.stored(mark), world.ports(), world.run_of(), RestoreOptions(**options))


def hold_first_by_prefix(world: SweepWorld, repo: LakeRepository, address: str) -> None:
    world.holds = [{"prefix": "a.b", "reason": "legal"}]


def hold_first_by_branch(world: SweepWorld, repo: LakeRepository, address: str) -> None:
    repo.branch("legal", FIRST)
    repo.set_rules(7, legal=1)
    world.holds = [{"branch": "legal", "reason": "legal"}]


def branch(world: SweepWorld, repo: LakeRepository, address: str) -> None:
    repo.branch("fix", FIRST)


def protected_tag(world: SweepWorld, repo: LakeRepository, address: str) -> None:
    repo.tag("v1", FIRST)


def stage(world: SweepWorld, repo: LakeRepository, address: str) -> None:
    repo.stage("again.bin", address)


def longer_retention(world: SweepWorld, repo: LakeRepository, address: str) -> None:
    repo.set_rules(365)


def longer_retention_in_the_tree(world: SweepWorld, repo: LakeRepository, address: str) -> None:
    world.gc = {"default_retention_days": 365}


def another_repository(world: SweepWorld, repo: LakeRepository, address: str) -> None:
    other = world.lake.repository("other")
    other.stage("there.bin", f"local://repo1/{address}")
    other.commit()


WAYS = [
    hold_first_by_prefix,
    hold_first_by_branch,
    branch,
    protected_tag,
    stage,
    longer_retention,
    longer_retention_in_the_tree,
    another_repository,
]


@pytest.mark.parametrize("need", WAYS)
def it_keeps_copies_that_anything_needs(
    world: SweepWorld,
    repo: LakeRepository,
    moved: Mark,
    need: Callable[[SweepWorld, LakeRepository, str], None],
) -> None:
    (first,) = (a for a in copies(repo, moved) if _copy(repo, moved, a) == b"first")
    need(world, repo, first)
    document, code = purge(world)
    (end,) = document["quarantines"]
    assert first in copies(repo, moved)
    assert end["kept_reasons"] == {NEEDED: end["needed"]}
    assert (end["needed"] >= 1, code) == (True, 3)
    assert end["deleted"] == 2 - len(copies(repo, moved)) == 2 - end["needed"]
    assert bring_back(world, moved)["restored"] == end["needed"]
    assert (repo.folder / first).read_bytes() == b"first"
    document, code = purge(world, days=0)
    assert (copies(repo, moved), code) == (set(), 0), "what was restored is not kept for ever"
    assert (repo.folder / first).read_bytes() == b"first"


def import_copy(world: SweepWorld, repo: LakeRepository, copy: str) -> None:
    another_repository(world, repo, copy)


def commit_copy(world: SweepWorld, repo: LakeRepository, copy: str) -> None:
    repo.stage("found.bin", copy)
    repo.commit()


@pytest.mark.parametrize("back", [False, True], ids=["only-copy", "restored"])
@pytest.mark.parametrize("use", [import_copy, commit_copy, stage])
def it_keeps_copies_that_are_used_by_their_own_address(
    world: SweepWorld,
    repo: LakeRepository,
    moved: Mark,
    use: Callable[[SweepWorld, LakeRepository, str], None],
    *,
    back: bool,
) -> None:
    (first,) = (a for a in copies(repo, moved) if _copy(repo, moved, a) == b"first")
    if back:
        bring_back(world, moved)
    use(world, repo, f"{QUARANTINE_PREFIX}{moved.mark_id}/{first}")
    document, code = purge(world)
    (end,) = document["quarantines"]
    assert copies(repo, moved) == {first}
    assert (end["deleted"], end["kept_reasons"], code) == (1, {USED: 1}, 0)


def _copy(repo: LakeRepository, mark: Mark, address: str) -> bytes:
    return (repo.folder / QUARANTINE_PREFIX / mark.mark_id / address).read_bytes()


def it_deletes_copies_that_nothing_needs(world: SweepWorld, repo: LakeRepository, moved: Mark) -> None:
    document, code = purge(world)
    (end,) = document["quarantines"]
    assert (end["deleted"], end["kept"], end["failed"], code) == (2, 0, 0, 0)
    assert copies(repo, moved) == set()


@pytest.mark.parametrize(("age", "days", "deleted"), [("7d", 6.9, 0), ("7d", 7.1, 2), ("30d", 29, 0)])
def it_keeps_copies_that_are_too_young(
    world: SweepWorld, repo: LakeRepository, moved: Mark, age: str, days: float, deleted: int
) -> None:
    world.sweep["quarantine_age"] = age
    document, _ = purge(world, days=days)
    assert sum(end["deleted"] for end in document["quarantines"]) == deleted
    assert len(copies(repo, moved)) == 2 - deleted


def it_judges_the_age_of_each_copy_under_the_lease(
    world: SweepWorld, repo: LakeRepository, moved: Mark
) -> None:
    world.lake.clock.advance(days=8)
    found = quarantines(world.tree(), Selection((), None, None), world.ports(), older_than=world.now())
    address = min(copies(repo, moved))
    repo.touch(f"{QUARANTINE_PREFIX}{moved.mark_id}/{address}")  # copied again since it was listed
    document, code = purge_all(found, world.ports(), world.run_of(), older_than=world.now(), option=None)
    (end,) = document["quarantines"]
    assert end["kept_reasons"] == {YOUNG: 1}
    assert (end["deleted"], code) == (1, 0)
    assert copies(repo, moved) == {address}


def it_deletes_nothing_while_a_repository_cannot_be_read(
    world: SweepWorld, repo: LakeRepository, moved: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lakeplan.sweep.inspection.read_others", lambda sites, **more: [Others((), {"other": "denied"})]
    )
    document, code = purge(world)
    assert "cannot be read" in document["refused"][0]["message"]
    assert (len(copies(repo, moved)), code) == (2, 4)


def it_reads_the_repositories_of_the_other_servers(
    world: SweepWorld, repo: LakeRepository, moved: Mark
) -> None:
    world.lake.clock.advance(days=8)
    (found,) = quarantines(world.tree(), Selection((), None, None), world.ports(), older_than=world.now())
    away = replace(found.site.repository, id="nowhere", storage_namespace="local://elsewhere")

    class Away:
        def list_repositories(self) -> list[Repository]:
            return [away]

        def __getattr__(self, name: str) -> Any:
            return getattr(found.site.reader, name)

    elsewhere = (replace(found.site.server, name="dr"), Away())
    found = replace(found, site=replace(found.site, other_servers=(elsewhere,)))
    document, _ = purge_all([found], world.ports(), world.run_of(), older_than=world.now(), option=None)
    assert "dr/nowhere cannot be read" in document["refused"][0]["message"]
    assert len(copies(repo, moved)) == 2


def it_inspects_again_before_it_deletes_by_an_old_inspection(
    world: SweepWorld, repo: LakeRepository, moved: Mark
) -> None:
    """A slow rate, or a store that is busy: deleting takes longer than the inspection is good for."""
    last = max(copies(repo, moved))

    class Slow(FaultyStore):
        batch_size = 1

    def after(name: str, args: tuple[Any, ...]) -> None:
        if name == "delete" and len(copies(repo, moved)) == 1:
            world.lake.clock.advance(hours=1)
            repo.stage("again.bin", last)

    def wrap(store: SweepStore) -> FaultyStore:
        slow = Slow(store)
        slow.after = after
        return slow

    world.wrap = wrap
    document, code = purge(world)
    (end,) = document["quarantines"]
    assert copies(repo, moved) == {last}
    assert (end["deleted"], end["kept_reasons"], end["failed"], code) == (1, {NEEDED: 1}, 0, 3)


@pytest.mark.parametrize("came_back", [None, 2])
def it_refuses_a_sweep_of_which_something_came_back_or_nobody_knows(
    world: SweepWorld, repo: LakeRepository, came_back: int | None
) -> None:
    world.sweep["mode"] = "quarantine"
    mark = world.mark()
    world.approve(mark)
    world.finish(replace(world.run(mark), came_back=came_back, closed=True))
    document, code = purge(world)
    (refused,) = document["refused"]
    assert "sweep abort" in refused["hint"]
    assert code in (1, 4)
    assert len(copies(repo, mark)) == 2
    assert world.finish(world.close(mark))["came_back"] == 0
    purge(world, days=0)
    assert copies(repo, mark) == set()


def it_refuses_a_sweep_without_a_summary(world: SweepWorld, repo: LakeRepository, moved: Mark) -> None:
    (repo.folder / sweep_prefix(moved.mark_id) / "summary.json").unlink()
    document, _ = purge(world)
    assert "not finished" in document["refused"][0]["message"]
    assert len(copies(repo, moved)) == 2


def it_reports_what_is_gone_when_the_store_fails(
    world: SweepWorld, repo: LakeRepository, moved: Mark
) -> None:
    def wrap(store: SweepStore) -> FaultyStore:
        faulty = FaultyStore(store)
        # the store deletes, and its answer is lost
        faulty.after = raising(StorageError("the answer was cut short"), on="delete")
        return faulty

    world.wrap = wrap
    document, code = purge(world)
    (end,) = document["quarantines"]
    assert (end["deleted"], end["failed"], code) == (2, 0, 3)
    assert "cut short" in end["problem"]


def it_purges_nothing_while_a_pin_is_gone(world: SweepWorld, repo: LakeRepository, moved: Mark) -> None:
    head = repo.call("GET", "/branches/main").json()["commit_id"]
    record = PinRecord((Pin(head),))
    write_pin_record(world.state, "prod/repo1", record, run_id="r", at=world.now())
    document, code = purge(world)
    (refused,) = document["refused"]
    assert f"lakeplan-pin-{head[:12]} was deleted or moved" in refused["message"]
    assert (len(copies(repo, moved)), code) == (2, 4)
    body = {"name": f"lakeplan-pin-{head[:12]}", "source": head, "hidden": True}
    repo.call("POST", "/branches", json=body)
    document, code = purge(world, days=0)
    assert (document["quarantines"][0]["deleted"], code) == (2, 0)


class DescribeRestore:
    @pytest.mark.parametrize("lost", ["results", "begun", "copied", "summary.json"])
    def it_needs_no_record(self, world: SweepWorld, repo: LakeRepository, moved: Mark, lost: str) -> None:
        place = repo.folder / sweep_prefix(moved.mark_id) / lost
        for file in [place, *place.rglob("*")]:
            if file.is_file():
                file.unlink()
        assert bring_back(world, moved)["restored"] == 2
        assert copies(repo, moved) <= repo.stored()

    def it_does_not_believe_a_record_that_calls_what_is_gone_saved(
        self, world: SweepWorld, repo: LakeRepository, moved: Mark
    ) -> None:
        mark = world.mark()  # nothing is left for it
        assert not mark.to_delete.objects
        (record,) = (repo.folder / sweep_prefix(moved.mark_id) / "results").iterdir()
        record.write_bytes(b"no Parquet")
        assert bring_back(world, moved)["restored"] == 2

    def it_works_without_the_parts_of_the_mark(
        self, world: SweepWorld, repo: LakeRepository, moved: Mark
    ) -> None:
        for file in (repo.folder / f"_lakeplan/marks/{moved.mark_id}/going").iterdir():
            file.unlink()
        document = bring_back(world, moved)
        assert document["restored"] == 2
        assert document["collectable_again"] is None

    def it_never_writes_over_what_is_there(
        self, world: SweepWorld, repo: LakeRepository, moved: Mark
    ) -> None:
        address, other = sorted(copies(repo, moved))
        (repo.folder / address).write_bytes(b"another object")
        document = bring_back(world, moved)
        assert (document["restored"], document["already_there"], document["failed"]) == (1, 1, 0)
        assert "an object of a different size" in document["note"]
        assert (repo.folder / address).read_bytes() == b"another object"
        assert (repo.folder / other).is_file()

    def it_never_writes_over_what_is_written_at_the_same_moment(
        self, world: SweepWorld, repo: LakeRepository, moved: Mark
    ) -> None:
        address = min(copies(repo, moved))

        def write(name: str, args: tuple[Any, ...]) -> None:
            if name == "copy" and args[1] == address:
                (repo.folder / address).write_bytes(b"another object")

        def wrap(store: SweepStore) -> FaultyStore:
            faulty = FaultyStore(store)
            faulty.before = write
            return faulty

        world.wrap = wrap
        document = bring_back(world, moved)
        assert (document["restored"], document["already_there"]) == (1, 1)
        assert (repo.folder / address).read_bytes() == b"another object"

    def it_says_when_nothing_is_in_quarantine(self, world: SweepWorld, repo: LakeRepository) -> None:
        mark = world.mark()
        world.sweep_of(mark)
        with pytest.raises(UsageError, match="without quarantine"):
            bring_back(world, mark)

    def it_puts_nothing_where_lakefs_keeps_its_own_files(
        self, world: SweepWorld, repo: LakeRepository, moved: Mark
    ) -> None:
        planted = repo.folder / QUARANTINE_PREFIX / moved.mark_id / "_lakefs/planted"
        planted.parent.mkdir(parents=True)
        planted.write_bytes(b"planted")
        bring_back(world, moved)
        assert not (repo.folder / "_lakefs/planted").exists()


class DescribeWhatBecameOfIt:
    @pytest.fixture
    def shown(self, world: SweepWorld, moved: Mark) -> Callable[[], tuple[int, int]]:
        """The restored and purged objects of the mark, which the list and the mark's page agree on."""

        def printed(render: Callable[[Any, Console], None], document: Any) -> str:
            console = Console(file=io.StringIO(), width=120, no_color=True)
            render(document, console)
            return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]

        def found() -> tuple[int, int]:
            listed = list_marks(world.state, world.now())
            (row,) = listed["marks"]
            summary = read_summary(world.site().store, moved.mark_id)
            assert summary is not None
            swept = with_later(summary, world.state)
            restored, purged = swept["restored"], swept["purged"]
            assert (row["restored"], row["purged"]) == (restored, purged)
            text, table = printed(render_sweep, swept), printed(render_mark_list, listed)
            assert (
                (f"{restored} of the deleted objects restored" in text)
                == (" restored " in table)
                == (restored > 0)
            )
            assert (
                (f"{purged} copies purged" in text) == (" purged  " in table.splitlines()[0]) == (purged > 0)
            )
            assert ("in quarantine" in table) == (restored < 2)
            assert ("copies stay in quarantine" in text) == (purged < 2)
            return restored, purged

        return found

    def it_has_every_restore_once_and_the_purge(
        self, world: SweepWorld, repo: LakeRepository, moved: Mark, shown: Callable[[], tuple[int, int]]
    ) -> None:
        assert shown() == (0, 0)
        bring_back(world, moved, commit=FIRST)
        assert shown() == (1, 0)
        bring_back(world, moved, commit=FIRST)
        assert shown() == (1, 0)
        bring_back(world, moved)
        bring_back(world, moved)
        assert shown() == (2, 0)
        purge(world)
        assert shown() == (2, 2)

    def it_has_what_a_killed_restore_brought_back(
        self, world: SweepWorld, repo: LakeRepository, moved: Mark, shown: Callable[[], tuple[int, int]]
    ) -> None:
        first, second = sorted(copies(repo, moved))
        (repo.folder / first).write_bytes(_copy(repo, moved, first))
        (repo.folder / second).write_bytes(b"another object")
        assert bring_back(world, moved)["restored"] == 0
        assert shown() == (1, 0)

    @pytest.mark.parametrize("damaged", [False, True])
    def it_has_an_object_once_that_a_later_mark_deleted_again(
        self, world: SweepWorld, repo: LakeRepository, moved: Mark, damaged: bool
    ) -> None:
        assert bring_back(world, moved, commit=FIRST)["restored"] == 1
        world.lake.clock.advance(days=3)
        later = world.mark()
        assert world.sweep_of(later)["deleted"]["objects"] == 1
        if damaged:
            (record,) = (repo.folder / sweep_prefix(later.mark_id) / "results").iterdir()
            record.write_bytes(b"no Parquet")
        assert bring_back(world, moved, commit=FIRST)["restored"] == 1
        (row,) = (one for one in list_marks(world.state, world.now())["marks"] if one["restored"])
        assert (row["mark_id"], row["restored"]) == (moved.mark_id, 2 if damaged else 1)

    def it_is_unknown_without_the_record_in_the_state(
        self, world: SweepWorld, repo: LakeRepository, moved: Mark
    ) -> None:
        key = "sweep/ends/prod/repo1.json"
        stored = world.state.read(key)
        assert stored is not None
        world.state.write(key, b"{", if_version=stored.version)
        assert bring_back(world, moved)["restored"] == 2
        summary = read_summary(world.site().store, moved.mark_id)
        assert summary is not None
        later = with_later(summary, world.state)
        assert later == {**summary, "note": later["note"]}
        assert "it is unknown how many objects were restored or purged after the sweep" in later["note"]

    def it_notes_a_purge_that_has_not_ended(self, world: SweepWorld, moved: Mark) -> None:
        summary = read_summary(world.site().store, moved.mark_id)
        assert summary is not None
        record_purge(world.state, moved.key, moved.mark_id, Amount(2, 2), begun="r")
        listed = list_marks(world.state, world.now())
        console = Console(file=io.StringIO(), width=120, no_color=True)
        render_mark_list(listed, console)
        assert " at least 0 " in console.file.getvalue()  # type: ignore[attr-defined]
        later = with_later({**summary, "note": "before"}, world.state)
        assert (
            later["note"]
            == "before; a purge did not record that it finished, so more copies may have been purged"
        )
        record_purge(world.state, moved.key, moved.mark_id, Amount(1, 1), ended="r")
        later = with_later(summary, world.state)
        assert (later["purged"], later.get("note")) == (1, None)

    def it_is_left_out_of_a_sweep_without_quarantine(self, world: SweepWorld, repo: LakeRepository) -> None:
        document = world.sweep_of(world.mark())
        assert "restored" not in with_later(document, world.state)  # type: ignore[arg-type]


def test_errors_of_one_quarantine_leave_the_others_alone(
    world: SweepWorld, repo: LakeRepository, moved: Mark
) -> None:
    for address in copies(repo, moved):
        (repo.folder / address).write_bytes(b"x")
        repo.touch(address, age_hours=24 * 5)
    world.sweep["never_committed"] = "collect"
    second = world.mark()
    world.sweep_of(second)
    assert copies(repo, second)
    (repo.folder / sweep_prefix(moved.mark_id) / "summary.json").unlink()
    document, code = purge(world)
    assert [refused["mark_id"] for refused in document["refused"]] == [moved.mark_id]
    assert (len(copies(repo, moved)), copies(repo, second), code) == (2, set(), 3)
