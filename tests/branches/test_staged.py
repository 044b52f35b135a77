"""Uncommitted changes as evidence of a write."""

from __future__ import annotations

from datetime import datetime, timezone

from lakeplan.branches.keepers import uncommitted_writes
from lakeplan.values.branches import NOTHING_STAGED, StagedChange, StagedData

NOW = 1_000_000


def staged(*changes: tuple[str, str], more: bool = False) -> StagedData:
    return StagedData(tuple(StagedChange(path, kind, 1) for path, kind in changes), more)


def written_at(seconds: int):
    return lambda path: datetime.fromtimestamp(seconds, tz=timezone.utc)


ADDED = staged(("a", "added"))
REMOVED = staged(("a", "removed"))


def it_is_no_news_when_nothing_is_staged_and_nothing_was():
    for before in (None, NOTHING_STAGED):
        look = uncommitted_writes(StagedData(), before, NOW, written_at(5))
        assert (look.written, look.staged_at) == (None, None)


def it_takes_the_objects_own_times():
    look = uncommitted_writes(staged(("a", "added"), ("b", "changed")), None, NOW, written_at(777))
    assert (look.written, look.staged_at) == (None, 777)


def it_counts_changes_since_the_last_look_as_a_write_now():
    assert uncommitted_writes(ADDED, NOTHING_STAGED, NOW, written_at(5)).written == NOW
    assert uncommitted_writes(ADDED, REMOVED.fingerprint, NOW, written_at(5)).written == NOW


def it_counts_a_reset_as_a_write_now():
    assert uncommitted_writes(StagedData(), ADDED.fingerprint, NOW, written_at(5)).written == NOW


def it_counts_a_deletion_not_seen_before_as_a_write_now_and_a_known_one_not():
    assert uncommitted_writes(REMOVED, None, NOW, written_at(5)).written == NOW
    assert uncommitted_writes(REMOVED, REMOVED.fingerprint, NOW, written_at(5)).written is None


def it_counts_more_than_can_be_listed_as_a_write_now_each_time():
    many = staged(("a", "added"), more=True)
    assert uncommitted_writes(many, None, NOW, written_at(5)).written == NOW
    assert uncommitted_writes(many, many.fingerprint, NOW, written_at(5)).written == NOW


def it_counts_an_object_that_vanished_meanwhile_as_a_write_now():
    assert uncommitted_writes(ADDED, None, NOW, lambda path: None).written == NOW


def it_sees_a_rewritten_object_of_the_same_size_by_its_time():
    look = uncommitted_writes(ADDED, ADDED.fingerprint, NOW, written_at(999_999))
    assert look.staged_at == 999_999


def it_asks_for_no_times_where_anything_staged_keeps_the_branch():
    look = uncommitted_writes(ADDED, None, NOW, None)
    assert (look.written, look.staged_at) == (None, None)


def it_tells_changes_apart_by_path_kind_size_and_number():
    prints = {
        ADDED.fingerprint,
        REMOVED.fingerprint,
        staged(("b", "added")).fingerprint,
        staged(("a", "added"), more=True).fingerprint,
        StagedData((StagedChange("a", "added", 2),)).fingerprint,
        NOTHING_STAGED,
    }
    assert len(prints) == 6
    both = (StagedChange("a", "added"), StagedChange("b", "added"))
    assert StagedData(both).fingerprint == StagedData(both[::-1]).fingerprint


def it_gives_back_what_it_looked_at():
    many, nothing = staged(("a", "added"), more=True), StagedData()
    looks = [
        (nothing, None, written_at(5)),
        (nothing, ADDED.fingerprint, written_at(5)),
        (ADDED, REMOVED.fingerprint, written_at(5)),
        (ADDED, None, written_at(5)),
        (ADDED, None, None),
        (ADDED, None, lambda path: None),
        (many, None, written_at(5)),
    ]
    for data, before, times in looks:
        assert uncommitted_writes(data, before, NOW, times).data is data


def it_asks_for_the_times_of_objects_that_are_there_only():
    both = staged(("gone", "removed"), ("here", "added"), ("there", "changed"))
    times = {"here": written_at(700)("here"), "there": written_at(600)("there")}
    look = uncommitted_writes(both, both.fingerprint, NOW, times.__getitem__)
    assert (look.written, look.staged_at) == (None, 700)
    known = uncommitted_writes(REMOVED, REMOVED.fingerprint, NOW, written_at(5))
    assert (known.written, known.staged_at) == (None, None)
