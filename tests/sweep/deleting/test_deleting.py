"""One part after the other, whatever the store does."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeplan.errors import ClockSkew, FormatError, StorageDenied, StorageError, StoreBusy
from lakeplan.formats.marks import read_part
from lakeplan.formats.namespace import begun_key, result_key
from lakeplan.sweep import deleting
from lakeplan.sweep.deleting import GONE_AFTER, NOT_LISTED, SAMPLE
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount, MarkClass, PartResult, Status
from lakeplan.values.sweep import CHANGED, GONE, Deletion, StoreFacts, Versions
from tests.sweep.deleting.conftest import CUTOFF, SETTINGS, Sweep, ends
from tests.sweeping.stores import (
    MARK_PREFIX,
    SWEEP_PREFIX,
    FakeTime,
    FaultyStore,
    begun_parts,
    put_object,
    put_part,
    raising,
    records,
)


def it_deletes_what_its_parts_name_and_nothing_else(sweep: Sweep) -> None:
    sweep.mark(["data/a", "data/b"], ["data/c"])
    put_object(sweep.folder, "data/ab")
    put_object(sweep.folder, "_lakefs/meta")
    first, second = ends(sweep.run())
    assert first == PartResult(sweep.parts[0].name, {Status.DELETED: Amount(2, 2)}, {}, verified=2)
    assert second.amounts == {Status.DELETED: Amount(1, 1)}
    assert sweep.there() == {"data/ab"}
    assert sweep.store.read("_lakefs/meta") == b"x"
    assert sweep.records == dict.fromkeys(["data/a", "data/b", "data/c"], ("deleted", ""))


def it_notes_that_a_part_is_begun_before_the_first_deletion_and_writes_its_end_last(sweep: Sweep) -> None:
    sweep.mark(["data/a"])
    store = FaultyStore(sweep.store)
    sweep.run(store)
    name = sweep.parts[0].name
    assert sweep.store.read(begun_key(SWEEP_PREFIX, name)) == b"{}\n"
    order = [(call, args[0]) for call, args in store.calls if call in ("put", "delete", "create", "is_gone")]
    assert order == [
        ("create", begun_key(SWEEP_PREFIX, name)),
        ("delete", ("data/a",)),
        ("is_gone", "data/a"),
        ("create", result_key(SWEEP_PREFIX, name)),
    ]


def it_saves_what_something_holds_again(sweep: Sweep) -> None:
    sweep.saved = {"data/b": "needed again", "data/elsewhere": "no part of this"}
    sweep.mark(["data/a", "data/b"])
    (end,) = ends(sweep.run())
    assert end.amounts == {Status.DELETED: Amount(1, 1), Status.SAVED: Amount(1, 1)}
    assert end.reasons == {"saved: needed again": 1}
    assert sweep.there() == {"data/b"}


def it_holds_back_what_was_never_committed_until_a_second_look(sweep: Sweep) -> None:
    sweep.mark(["data/n1", "data/n2"], kind=MarkClass.NEVER_COMMITTED)
    sweep.mark(["data/a"], kind=MarkClass.NEWLY_EXPIRED)
    sweep.never = "looked for only once"
    never, expired = ends(sweep.run())
    assert never.amounts == {Status.SAVED: Amount(2, 2)}
    assert expired.amounts == {Status.DELETED: Amount(1, 1)}
    assert sweep.there() == {"data/n1", "data/n2"}


def it_takes_what_was_never_committed_after_it(sweep: Sweep) -> None:
    sweep.mark(["data/n1"], kind=MarkClass.NEVER_COMMITTED)
    assert ends(sweep.run())[0].amounts == {Status.DELETED: Amount(1, 1)}


def it_uses_no_part_that_is_not_the_one_that_was_marked(sweep: Sweep) -> None:
    sweep.mark(["data/a"], ["data/b"])
    other = put_part(sweep.store, 99, ["data/a", "data/precious"])
    put_object(sweep.folder, "data/precious")
    sweep.store.put(MARK_PREFIX + sweep.parts[0].name, sweep.store.read(MARK_PREFIX + other.name))
    (error,) = sweep.run()
    assert isinstance(error, FormatError)
    assert "checksum does not match" in error.message
    assert error.where == f"{sweep.store.url}/{MARK_PREFIX}{sweep.parts[0].name}"
    assert sweep.there() == {"data/a", "data/b", "data/precious"}


def it_deletes_every_class_that_may_be_deleted_in_one_part(sweep: Sweep) -> None:
    kinds = dict(zip(["data/a", "data/b", "data/c"], sorted(deleting.MAY_GO), strict=True))
    for key in kinds:
        put_object(sweep.folder, key)
    kind = lambda key: MarkClass(kinds[key])  # noqa: E731
    sweep.parts.append(put_part(sweep.store, 0, [*kinds], kind=kind))
    assert ends(sweep.run())[0].amounts == {Status.DELETED: Amount(3, 3)}


def it_closes_a_part_and_deletes_nothing(sweep: Sweep) -> None:
    sweep.settings = replace(SETTINGS, mode="close")
    sweep.mark(["data/a", "data/b"])
    os.unlink(sweep.folder / "data/b")
    sweep.run()
    assert sweep.there() == {"data/a"}
    assert sweep.records == {"data/a": ("saved", deleting.CLOSED), "data/b": ("deleted", GONE)}


def it_keeps_to_the_rate_of_its_worker(sweep: Sweep, time: FakeTime) -> None:
    sweep.mark(["data/a", "data/b"], ["data/c", "data/d"])
    began = time.at
    sweep.settings = replace(sweep.settings, rate=1.0)
    sweep.run()
    assert time.at - began >= 2
    assert sweep.there() == set()


def it_begins_no_part_when_its_time_is_over(sweep: Sweep, time: FakeTime) -> None:
    sweep.mark(["data/a"])
    assert sweep.run(until=time.at) == []
    assert sweep.there() == {"data/a"}
    assert begun_parts(sweep.store, sweep.parts) == frozenset()
    assert len(sweep.run(until=time.at + 1)) == 1


def it_ends_a_round_in_the_middle_of_a_part(
    sweep: Sweep, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next round does the part again: what is gone by then was deleted."""
    monkeypatch.setattr(deleting, "OBJECTS_A_LISTING", 1)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    sweep.mark(["data/a", "data/b"], ["data/c"])
    store = FaultyStore(sweep.store)

    def later(name: str, args: tuple[Any, ...]) -> None:
        if name == "delete":
            time.at += 10

    store.after = later
    assert sweep.run(store, until=time.at + 10) == []
    assert (sweep.there(), sweep.records) == ({"data/b", "data/c"}, {})
    assert len(ends(sweep.run())) == 2
    assert sweep.records["data/a"] == ("deleted", GONE)


def it_ends_a_round_between_two_requests_of_a_batch(sweep: Sweep, time: FakeTime) -> None:
    class OneByOne(FaultyStore):
        batch_size = 1

    sweep.mark(["data/a", "data/b"])
    store = OneByOne(sweep.store)

    def later(name: str, args: tuple[Any, ...]) -> None:
        if name == "delete":
            time.at += 10

    store.after = later
    assert sweep.run(store, until=time.at + 10) == []
    assert (sweep.there(), sweep.records) == ({"data/b"}, {})


def it_ends_a_round_by_its_own_measure_where_the_clock_stands_still(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(FakeTime):
        passed = 0.0

        def monotonic(self) -> float:
            return self.passed

    clock = Stopped()
    monkeypatch.setattr(deleting, "time", clock)
    sweep.mark(["data/a"], ["data/b"], ["data/c"])
    store = FaultyStore(sweep.store)

    def later(name: str, args: tuple[Any, ...]) -> None:
        if name == "create" and "results/" in args[0]:
            clock.passed += 599.0 if clock.passed == 0 else 1.0

    store.after = later
    assert len(ends(sweep.run(store, until=clock.at + 600))) == 2
    assert sweep.there() == {"data/c"}
    clock.passed = 0.0
    assert len(ends(sweep.run(store, until=None))) == 3, "without an end it goes on"


def it_ends_a_round_in_time_when_the_clock_is_set_back(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    class SetBack(FakeTime):
        def monotonic(self) -> float:
            return self.at + 60 if finished else self.at

        def time(self) -> float:
            return self.at + 30 if finished else self.at

    finished: list[str] = []
    clock = SetBack()
    monkeypatch.setattr(deleting, "time", clock)
    sweep.mark(["data/a"], ["data/b"])
    store = FaultyStore(sweep.store)

    def later(name: str, args: tuple[Any, ...]) -> None:
        if name == "create" and "results/" in args[0]:
            finished.append(args[0])  # 60 seconds have passed, and the clock was set back by 30

    store.after = later
    until = clock.at + 60
    assert len(ends(sweep.run(store, until=until))) == 1
    assert sweep.there() == {"data/b"}


def it_deletes_nothing_by_a_clock_that_is_behind(sweep: Sweep, time: FakeTime) -> None:
    """Started a day late, it would take an old inspection for a fresh one."""
    sweep.mark(["data/a"])
    (error,) = sweep.run(until=time.at + 86_400)
    assert isinstance(error, ClockSkew)
    assert "minutes behind" in error.message
    assert sweep.there() == {"data/a"}
    assert begun_parts(sweep.store, sweep.parts) == frozenset()
    (error,) = sweep.run(until=time.at + 900.5)
    assert isinstance(error, ClockSkew)
    assert "more than 5 minutes behind" in error.message
    (end,) = sweep.run(until=time.at + 900)
    assert isinstance(end, PartResult)


@pytest.mark.parametrize(("key", "kind"), [("_lakefs/meta", "backlog"), ("data/a", "active")])
def it_deletes_nothing_of_a_part_that_names_what_may_never_go(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, key: str, kind: str
) -> None:
    sweep.mark(["data/a", "data/b"])
    rows = pa.table(
        {"address": ["data/b", key], "class": ["backlog", kind], "size_bytes": [1, 1], "version": [0, 0]}
    )
    monkeypatch.setattr(deleting, "read_part", lambda *_, **__: rows)
    (error,) = sweep.run()
    assert isinstance(error, FormatError)
    assert error.message == "this part of the mark lists a key that no sweep may delete"
    assert error.where.endswith(MARK_PREFIX + sweep.parts[0].name)
    assert sweep.there() == {"data/a", "data/b"}


def it_saves_what_was_written_at_the_cutoff_or_is_another_version_than_the_marked(sweep: Sweep) -> None:
    sweep.mark(["data/a"])

    def says(now: StoredObject, version: int, **change: object) -> str:
        part = deleting._Part(sweep.parts[0], sweep.work(**change), None, None, None)  # type: ignore[arg-type]
        return part._saves(deleting._Row("data/a", 1, "backlog", version), now, None)

    cutoff = SETTINGS.cutoff_us
    before, after = (StoredObject("data/a", 1, cutoff + us) for us in (-1, 0))
    assert says(before, before.version) == ""
    assert says(after, after.version) == CHANGED
    assert says(before, before.version + 1) == CHANGED
    assert says(before, before.version, settings=replace(SETTINGS, mode="close")) == deleting.CLOSED


@pytest.mark.parametrize("column", ["address", "size_bytes", "version", "class", "paths"])
def it_deletes_nothing_of_a_part_that_lacks_a_column_of_a_mark(sweep: Sweep, column: str) -> None:
    sweep.mark(["data/a"])
    (part,) = sweep.parts
    table = read_part(sweep.store.read(MARK_PREFIX + part.name), name="", sha256=part.sha256)
    out = io.BytesIO()
    pq.write_table(table.drop_columns([column]), out)
    sweep.store.put(MARK_PREFIX + part.name, out.getvalue())
    sweep.parts = [replace(part, sha256=hashlib.sha256(out.getvalue()).hexdigest())]
    (error,) = sweep.run()
    assert isinstance(error, FormatError)
    assert f"column {column} is missing" in error.message
    assert sweep.there() == {"data/a"}


def it_asks_with_as_many_threads_as_it_may(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleting, "THREADS", 40)  # more than any machine's default
    together = threading.Barrier(40)

    class Slow(FaultyStore):
        def is_gone(self, key: str) -> bool:
            together.wait(timeout=60)
            return bool(self.store.is_gone(key))

    sweep.mark([f"data/{n:02}" for n in range(40)])
    assert ends(sweep.run(Slow(sweep.store)))[0].verified == 40


class DescribeAStoreThatFails:
    def it_waits_while_the_store_is_busy(self, sweep: Sweep, time: FakeTime) -> None:
        sweep.mark(["data/a", "data/b"])
        store = FaultyStore(sweep.store)
        store.before = raising(StoreBusy("SlowDown"), on="delete", times=4)
        assert ends(sweep.run(store))[0].amounts == {Status.DELETED: Amount(2, 2)}
        assert len(time.slept) == 4

    @pytest.mark.parametrize(
        ("mode", "call"), [("delete", "find"), ("quarantine", "copy"), ("quarantine", "find")]
    )
    def it_waits_before_it_asks_a_busy_store_again(
        self, sweep: Sweep, time: FakeTime, mode: str, call: str
    ) -> None:
        sweep.settings = replace(SETTINGS, mode=mode)  # type: ignore[arg-type]
        sweep.mark(["data/a"])
        store = FaultyStore(sweep.store)
        finds = 0

        def busy(name: str, args: tuple[Any, ...]) -> None:
            nonlocal finds
            finds += name == call
            if name == call and finds % 2:
                raise StoreBusy("SlowDown")

        store.before = busy
        assert ends(sweep.run(store))[0].amounts == {Status.DELETED: Amount(1, 1)}
        assert len(time.slept) == finds / 2 >= 1

    def it_waits_no_longer_once_it_is_stopped(
        self, sweep: Sweep, time: FakeTime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waits = []

        class Event(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                waits.append(timeout)
                return bool(timeout)  # somebody sets it during the first real wait

        monkeypatch.setattr(deleting, "threading", SimpleNamespace(Event=Event))
        sweep.mark(["data/a"])
        store = FaultyStore(sweep.store)
        store.before = raising(StoreBusy("slow down"), on="delete")
        assert list(deleting.sweep_parts(sweep.parts, sweep.work(store), deleting.Halt())) == []
        assert (len(waits), bool(waits[0]), bool(waits[1])) == (2, False, True)
        assert (time.slept, sweep.there()) == ([], {"data/a"})

    def it_stops_when_the_store_stays_busy_and_goes_on_another_day(self, sweep: Sweep) -> None:
        sweep.mark(["data/a"], ["data/b"])
        store = FaultyStore(sweep.store)
        store.before = raising(StoreBusy("SlowDown"), on="delete")
        (error,) = sweep.run(store)
        assert isinstance(error, StoreBusy)
        assert sweep.records == {}
        assert len(ends(sweep.run())) == 2
        assert set(sweep.records) == {"data/a", "data/b"}

    def it_tells_of_every_object_when_half_a_batch_fails(self, sweep: Sweep) -> None:
        keys = [f"data/{n}" for n in range(10)]
        sweep.mark(keys)
        store = FaultyStore(sweep.store)
        store.refuses = lambda key: Deletion(key, "AccessDenied") if int(key[5:]) % 2 else None
        (end,) = ends(sweep.run(store))
        assert end.amounts == {Status.DELETED: Amount(5, 5), Status.FAILED: Amount(5, 5)}
        assert end.reasons == {"failed: AccessDenied": 5}
        assert sweep.there() == {key for key in keys if int(key[5:]) % 2}
        assert len(sweep.records) == 10

    def it_does_not_take_the_store_s_word_for_it(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])
        store = FaultyStore(sweep.store)
        store.refuses = lambda key: Deletion(key) if key == "data/b" else None
        (end,) = ends(sweep.run(store))
        assert end.amounts == {Status.DELETED: Amount(1, 1), Status.FAILED: Amount(1, 1)}
        assert end.reasons == {"failed: still exists after it was deleted": 1}
        assert end.verified == 1

    def it_lists_again_what_the_store_refused(self, sweep: Sweep) -> None:
        """It deleted the object, and its answer was an error all the same."""
        sweep.mark(["data/a", "data/b"])
        store = FaultyStore(sweep.store)

        def refuse(key: str) -> Deletion | None:
            if key == "data/b":
                os.unlink(sweep.folder / key)
                return Deletion(key, "InternalError")
            return None

        store.refuses = refuse
        sweep.run(store)
        assert sweep.records == {"data/a": ("deleted", ""), "data/b": ("deleted", GONE_AFTER)}

    @pytest.mark.parametrize("versioned", [True, None, False])
    def it_counts_an_object_as_failed_if_older_versions_of_it_may_remain(
        self, sweep: Sweep, versioned: bool | None
    ) -> None:
        """A listing does not show them: neither right after the failure nor in the next run."""
        sweep.mark(["data/a", "data/b"])
        sweep.settings = replace(SETTINGS, versions=Versions.ALL)

        class Versioned(FaultyStore):
            def facts(self) -> StoreFacts:
                return StoreFacts(versioned=versioned, soft_delete=False)

        store = Versioned(sweep.store)

        def refuse(key: str) -> Deletion | None:
            if key == "data/b":
                os.unlink(sweep.folder / key)
                return Deletion(key, "older versions were not deleted: AccessDenied")
            return None

        store.refuses = refuse
        sweep.run(store)
        again = {sweep.parts[0].name: 1}
        sweep.run(store, attempts=again)
        for attempts in (None, again):
            end = records(sweep.store, sweep.parts, attempts)["data/b"]
            if versioned is False:
                assert end == ("deleted", GONE_AFTER)
            else:
                assert end == ("failed", "older versions were not deleted: AccessDenied")

    def it_waits_before_it_lists_again_what_a_busy_store_refused(self, sweep: Sweep, time: FakeTime) -> None:
        sweep.mark(["data/a"])
        store = FaultyStore(sweep.store)
        store.refuses = lambda key: Deletion(key, "AccessDenied")
        busy = raising(StoreBusy("SlowDown"), on="find", times=2)

        def fault(name: str, args: tuple[Any, ...]) -> None:
            if store.called("delete"):
                busy(name, args)

        store.before = fault
        sweep.run(store)
        assert (sweep.records, len(time.slept)) == ({"data/a": ("failed", "AccessDenied")}, 2)

    def it_gives_an_end_to_an_object_that_the_store_is_silent_about(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])

        class Silent(FaultyStore):
            def delete(self, keys: Sequence[str], **more: Any) -> list[Deletion]:
                return self.store.delete(keys[:1], **more)

        (end,) = ends(sweep.run(Silent(sweep.store)))
        assert end.amounts == {Status.DELETED: Amount(1, 1), Status.FAILED: Amount(1, 1)}
        assert end.reasons == {"failed: the store did not report a result for this object": 1}

    @pytest.mark.parametrize("count", [1, SAMPLE])
    def it_asks_for_all_of_a_part_that_is_no_larger_than_a_sample(self, sweep: Sweep, count: int) -> None:
        sweep.mark([f"data/{n:03}" for n in range(count)])
        sweep.settings = replace(SETTINGS, verify_all=False)
        assert ends(sweep.run())[0].verified == count

    def it_asks_for_the_same_sample_of_a_part_in_every_run(self, sweep: Sweep) -> None:
        sweep.mark([f"data/{n:03}" for n in range(2 * SAMPLE)])
        sweep.settings = replace(SETTINGS, verify_all=False)
        stores = [FaultyStore(sweep.store), FaultyStore(sweep.store)]
        for number, store in enumerate(stores):
            sweep.run(store, prefix=f"_lakeplan/sweeps/s{number}/")
        first, second = (sorted(store.called("is_gone")) for store in stores)
        assert first == second

    def it_asks_for_all_when_one_of_the_sample_is_still_there(self, sweep: Sweep) -> None:
        keys = [f"data/{n:03}" for n in range(SAMPLE + 5)]
        sweep.mark(keys)
        sweep.settings = replace(SETTINGS, verify_all=False)
        store = FaultyStore(sweep.store)
        store.refuses = Deletion  # it says that each is deleted, and deletes none
        (end,) = ends(sweep.run(store))
        assert end.amounts == {Status.FAILED: Amount(SAMPLE + 5, SAMPLE + 5)}
        assert end.verified == 0
        asked = [key for (key,) in store.called("is_gone")]
        assert sorted(asked) == keys, "each of them once"

    def it_asks_for_a_sample_of_what_was_not_listed(self, sweep: Sweep) -> None:
        """A store that lists an object late: it counted as deleted, and stayed."""
        sweep.mark([f"data/{n:03}" for n in range(100 * SAMPLE)])
        sweep.settings = replace(SETTINGS, verify_all=False)
        store = FaultyStore(sweep.store)

        def find(keys: Sequence[str]) -> dict[str, StoredObject]:
            return {key: one for key, one in sweep.store.find(keys).items() if key != "data/007"}

        store.find = find  # type: ignore[attr-defined]
        (end,) = ends(sweep.run(store))
        assert end.reasons == {f"failed: {NOT_LISTED}": 1}
        assert sweep.there() == {"data/007"}
        (end,) = ends(sweep.run(attempts={sweep.parts[0].name: 1}))
        assert (end.reasons, sweep.there()) == ({}, set())

    def it_asks_for_a_sample_again_unless_all_are_wanted(self, sweep: Sweep) -> None:
        sweep.mark([f"data/{n:03}" for n in range(SAMPLE + 5)])
        sweep.settings = replace(SETTINGS, verify_all=False)
        store = FaultyStore(sweep.store)
        (end,) = ends(sweep.run(store))
        assert end.verified == SAMPLE
        assert len(set(store.called("is_gone"))) == SAMPLE

    @pytest.mark.parametrize("at", ["begun/", "results/"])
    def it_goes_on_after_a_full_disk(self, sweep: Sweep, at: str) -> None:
        sweep.mark(["data/a", "data/b"], ["data/c"])
        store = FaultyStore(sweep.store)
        store.before = raising(StorageError("cannot be used: No space left on device"), on="create", key=at)
        (error,) = sweep.run(store)
        assert isinstance(error, StorageError)
        if at == "begun/":  # nothing may be deleted that could not be noted
            assert sweep.there() == {"data/a", "data/b", "data/c"}
        assert len(ends(sweep.run())) == 2
        assert {status for status, _ in sweep.records.values()} == {"deleted"}
        assert sweep.records.keys() == {"data/a", "data/b", "data/c"}

    def it_stops_when_credentials_expire_and_loses_no_record(self, sweep: Sweep) -> None:
        sweep.mark(["data/a"], ["data/b"], ["data/c"])
        store = FaultyStore(sweep.store)
        store.before = raising(StorageDenied("no usable credentials"), on="delete", key="data/b")
        first, error = sweep.run(store)
        assert isinstance(first, PartResult)
        assert isinstance(error, StorageDenied)
        assert sweep.there() == {"data/b", "data/c"}
        assert [end.amounts for end in ends(sweep.run())] == [{Status.DELETED: Amount(1, 1)}] * 3


class DescribeAnObjectThatWasWrittenAgain:
    """Under the key that the mark names: nobody judged it."""

    @pytest.mark.parametrize("mode", ["delete", "quarantine"])
    @pytest.mark.parametrize("modified", [500.0, 999.0, CUTOFF, CUTOFF + 1])
    def it_stays_however_old_it_looks(self, sweep: Sweep, mode: str, modified: float) -> None:
        sweep.settings = replace(SETTINGS, mode=mode)  # type: ignore[arg-type]
        sweep.mark(["data/a", "data/b"])
        put_object(sweep.folder, "data/b", b"B", modified=modified)
        sweep.run()
        assert sweep.records == {"data/a": ("deleted", ""), "data/b": ("saved", CHANGED)}
        assert sweep.store.read("data/b") == b"B"

    def it_stays_when_it_was_written_while_its_batch_was_deleted(self, sweep: Sweep) -> None:
        sweep.mark(["data/a", "data/b"])
        store = FaultyStore(sweep.store)

        def write(name: str, args: tuple[Any, ...]) -> None:
            if name == "delete":
                put_object(sweep.folder, "data/b", b"B")

        store.before = write
        sweep.run(store)
        assert sweep.records == {"data/a": ("deleted", ""), "data/b": ("saved", CHANGED)}

    def it_stays_when_it_was_written_while_its_batch_was_copied_whatever_the_store_compares(
        self, sweep: Sweep
    ) -> None:
        class Careless(FaultyStore):
            def delete(self, keys: Sequence[str], **more: Any) -> list[Deletion]:
                return super().delete(keys, versions=more["versions"])

        sweep.settings = replace(SETTINGS, mode="quarantine")
        sweep.mark(["data/a", "data/b", "data/c"])
        store = Careless(sweep.store)

        def write(name: str, args: tuple[Any, ...]) -> None:
            if name == "copy" and args[0] == "data/c":
                put_object(sweep.folder, "data/b", b"B", modified=CUTOFF + 1)
                (sweep.folder / "data/c").unlink(missing_ok=True)

        store.after = write
        sweep.run(store)
        assert sweep.records == {
            "data/a": ("deleted", ""),
            "data/b": ("saved", CHANGED),
            "data/c": ("deleted", ""),
        }
        assert sweep.there() == {"data/b"}

    def it_costs_one_request_a_thousand_objects(self, sweep: Sweep) -> None:
        sweep.mark([f"data/{n:04}" for n in range(1_500)])
        sweep.settings = replace(SETTINGS, verify_all=False)
        store = FaultyStore(sweep.store)
        sweep.run(store)
        assert [len(keys) for (keys,) in store.called("find")] == [1_000, 500]
        assert store.called("stat") == []
