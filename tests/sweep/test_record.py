"""The state's records of sweeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeplan.errors import LakeplanError, WriteConflict
from lakeplan.state.sweeps import read_sweeps, record_purge, record_restore, record_sweep
from lakeplan.stores.folder import FolderState
from lakeplan.values.simulation import Amount

REPOSITORY = "prod/lake"


def document(mark_id: str, day: int, size: int, *, mode: str = "delete", finished: bool = True) -> Any:
    none = {"objects": 0, "size_bytes": 0}
    return {
        "mark_id": mark_id,
        "repository": REPOSITORY,
        "at": f"2026-03-{day:02}T12:00:00Z",
        "finished": finished,
        "settings": {"mode": mode},
        "deleted": {"objects": 1, "size_bytes": size},
        **dict.fromkeys(("saved", "failed", "pending"), none),
    }


@pytest.fixture
def state(tmp_path: Path) -> FolderState:
    return FolderState(str(tmp_path))


def it_knows_no_sweep_before_the_first(state: FolderState) -> None:
    assert read_sweeps(state, REPOSITORY) == {}


def it_adds_up_marks_and_counts_a_run_that_goes_on_once(state: FolderState) -> None:
    record_sweep(state, document("m1", 1, 10), versions_kept=False)
    record_sweep(state, document("m2", 3, 5, finished=False), versions_kept=False)
    record_sweep(state, document("m2", 4, 20), versions_kept=False)
    found = read_sweeps(state, REPOSITORY)
    assert [*found] == ["m1", "m2"]
    assert (found["m2"].mark_id, found["m2"].finished, found["m2"].at.day) == ("m2", True, 4)
    assert [sweep.reclaimed for sweep in found.values()] == [Amount(1, 10), Amount(1, 20)]
    assert [sweep.quarantined for sweep in found.values()] == [Amount(), Amount()]


def it_reclaims_nothing_where_older_versions_may_be_kept(state: FolderState) -> None:
    record_sweep(state, document("m1", 1, 10), versions_kept=True)
    found = read_sweeps(state, REPOSITORY)["m1"]
    assert (found.reclaimed, found.amounts["deleted"]) == (Amount(), Amount(1, 10))


def it_reclaims_what_was_in_quarantine_when_it_is_purged(state: FolderState) -> None:
    record_sweep(state, document("m1", 1, 10, mode="quarantine"), versions_kept=False)
    assert read_sweeps(state, REPOSITORY)["m1"].quarantined == Amount(1, 10)
    record_purge(state, REPOSITORY, "m1", Amount(1, 10), begun="run-1")
    record_purge(state, REPOSITORY, "m1", Amount(), ended="run-1")
    record_sweep(state, document("m1", 2, 10, mode="quarantine"), versions_kept=False)  # looked at again
    found = read_sweeps(state, REPOSITORY)["m1"]
    assert (found.quarantined, found.reclaimed) == (Amount(), Amount(1, 10))


def before_next_write(state: FolderState, monkeypatch: pytest.MonkeyPatch, other: Callable[[], None]) -> None:
    """Another run does this after the next write was prepared and before it arrives."""
    write = state.write

    def late(key: str, data: bytes, *, if_version: str | None) -> str:
        monkeypatch.undo()
        other()
        return write(key, data, if_version=if_version)

    monkeypatch.setattr(state, "write", late)


def it_begins_no_purge_with_copies_that_another_one_purged(
    state: FolderState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of the first run expired before its write arrived: the copies it counted are gone."""
    record_sweep(state, document("m1", 1, 10, mode="quarantine"), versions_kept=False)

    def purge() -> None:
        record_purge(state, REPOSITORY, "m1", Amount(1, 10), begun="run-2")
        record_purge(state, REPOSITORY, "m1", Amount(), ended="run-2")

    before_next_write(state, monkeypatch, purge)
    with pytest.raises(WriteConflict, match="another run was purging this quarantine"):
        record_purge(state, REPOSITORY, "m1", Amount(1, 10), begun="run-1")
    found = read_sweeps(state, REPOSITORY)["m1"]
    assert (found.purged, found.purging) == (Amount(1, 10), None)


def it_begins_a_purge_although_another_mark_was_recorded_meanwhile(
    state: FolderState, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_sweep(state, document("m1", 1, 10, mode="quarantine"), versions_kept=False)
    second = document("m2", 2, 5)
    before_next_write(state, monkeypatch, lambda: record_sweep(state, second, versions_kept=False))
    record_purge(state, REPOSITORY, "m1", Amount(1, 10), begun="run-1")
    found = read_sweeps(state, REPOSITORY)
    assert [*found] == ["m1", "m2"]
    assert found["m1"].purging == Amount(1, 10)


def it_reclaims_no_more_than_was_deleted(state: FolderState) -> None:
    """A run that was taken over had copied an object that the next run kept."""
    record_sweep(state, document("m1", 1, 10, mode="quarantine"), versions_kept=False)
    record_purge(state, REPOSITORY, "m1", Amount(2, 30), begun="run-1")
    record_purge(state, REPOSITORY, "m1", Amount(), ended="run-1")
    found = read_sweeps(state, REPOSITORY)["m1"]
    assert (found.purged, found.reclaimed) == (Amount(2, 30), Amount(1, 10))


def it_counts_what_partial_repeated_and_killed_restores_brought_back(state: FolderState) -> None:
    def restored() -> int:
        return read_sweeps(state, REPOSITORY)["m1"].restored

    record_restore(state, REPOSITORY, "m1", 2, before=0)  # of a killed sweep
    sweep = {**document("m1", 1, 10, mode="quarantine"), "deleted": Amount(9, 90).to_row()}
    record_sweep(state, sweep, versions_kept=False)
    assert restored() == 2
    record_restore(state, REPOSITORY, "m1", 1, before=0)  # of another path
    record_restore(state, REPOSITORY, "m1", 0, before=3)  # all of them again
    assert restored() == 3
    record_restore(state, REPOSITORY, "m1", 1, before=5)  # after one that was killed
    record_restore(state, REPOSITORY, "m2", 1, before=0)
    record_purge(state, REPOSITORY, "m1", Amount(9, 90), begun="r")
    record_purge(state, REPOSITORY, "m1", Amount(5, 50), ended="r")
    record_sweep(state, sweep, versions_kept=False)
    assert (restored(), read_sweeps(state, REPOSITORY)["m1"].purged) == (6, Amount(4, 40))
    record_restore(state, REPOSITORY, "m1", 5, before=0)
    assert restored() == 9, "never more than were deleted"


def it_takes_no_damaged_record_for_none_and_replaces_none(state: FolderState, tmp_path: Path) -> None:
    record_sweep(state, document("m1", 1, 10), versions_kept=False)
    (file,) = tmp_path.rglob("lake.json")
    file.write_text('{"marks": {"m1": 3}}')
    with pytest.raises(LakeplanError, match="record of sweeps is damaged"):
        read_sweeps(state, REPOSITORY)
    with pytest.raises(LakeplanError, match="record of sweeps is damaged"):
        record_sweep(state, document("m2", 2, 5), versions_kept=False)
    assert file.read_text() == '{"marks": {"m1": 3}}'


def it_tries_again_when_another_run_wrote_in_between(state: FolderState, tmp_path: Path) -> None:
    class Contended(FolderState):
        lost = 0

        def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
            if self.lost < 2:
                self.lost += 1
                record_purge(state, REPOSITORY, "m1", Amount(3 - self.lost, 3 - self.lost), begun="run-1")
            return super().write(key, data, if_version=if_version)

    record_sweep(state, document("m1", 1, 10, mode="quarantine"), versions_kept=False)
    record_purge(state, REPOSITORY, "m1", Amount(3, 3), begun="run-1")
    contended = Contended(str(tmp_path))
    record_purge(contended, REPOSITORY, "m1", Amount(), ended="run-1")
    assert contended.lost == 2
    assert read_sweeps(state, REPOSITORY)["m1"].purged == Amount(3, 3)


def it_gives_up_when_others_always_win(tmp_path: Path) -> None:
    class Losing(FolderState):
        def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
            raise WriteConflict("lost", where=key)

    with pytest.raises(WriteConflict):
        record_sweep(Losing(str(tmp_path)), document("m1", 1, 10), versions_kept=False)
