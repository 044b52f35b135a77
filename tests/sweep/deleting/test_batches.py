"""Batches against a store that is busy, half deaf, or gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, StoreBusy
from lakeplan.simulation.requests import DeleteSettings
from lakeplan.sweep.deleting import LONG_AGO, CopyEnd, changed_since, copy_one, delete_all, still_stored
from lakeplan.sweep.rules import Throttle
from lakeplan.values.repository import StoredObject
from lakeplan.values.sweep import Deletion, StoreFacts, Versions
from tests.sweeping.stores import FakeTime

SETTINGS = DeleteSettings("delete", Versions.MARKER, verify_all=False, cutoff_us=0)


class Scripted:
    """A store of three keys a batch. ``script`` says what each request answers: an error to raise, or keys
    that are answered as transient; when it is over, everything is deleted."""

    batch_size = 3

    def __init__(self, script: Sequence[Exception | set[str]] = (), failing: dict[str, str] | None = None):
        self.script = list(script)
        self.failing = failing or {}
        self.asked: list[list[str]] = []
        self.gone: list[str] = []

    def delete(self, keys: Sequence[str], **more: object) -> list[Deletion]:
        assert 0 < len(keys) <= self.batch_size
        self.asked.append(list(keys))
        step = self.script.pop(0) if self.script else set[str]()
        if isinstance(step, Exception):
            raise step
        answers = []
        for key in keys:
            if key in step:
                answers.append(Deletion(key, "SlowDown", transient=True))
            elif key in self.failing:
                answers.append(Deletion(key, self.failing[key]))
            else:
                self.gone.append(key)
                answers.append(Deletion(key))
        return answers


def deleted(
    store: Scripted, keys: Sequence[str], time: FakeTime | None = None, settings: DeleteSettings = SETTINGS
) -> list[Deletion]:
    waiting = (time or FakeTime()).waiting()
    return list(delete_all(store, keys, settings, Throttle(None), waiting))


def it_asks_in_batches_and_answers_every_key() -> None:
    store = Scripted()
    assert deleted(store, list("abcdefg")) == [Deletion(key) for key in "abcdefg"]
    assert store.asked == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert deleted(store, []) == []


def it_waits_longer_and_longer_while_the_store_is_busy() -> None:
    store, time = Scripted([StoreBusy("SlowDown")] * 5), FakeTime()
    assert deleted(store, ["a"], time) == [Deletion("a")]
    assert time.slept == [0.5, 1, 2, 4, 8]
    assert len(store.asked) == 6


def it_waits_as_its_settings_say() -> None:
    store, time = Scripted([StoreBusy("SlowDown")] * 3), FakeTime()
    deleted(store, ["a"], time, replace(SETTINGS, least_wait=2.0, most_wait=3.0))
    assert time.slept == [1, 1.5, 1.5]


def it_gives_up_after_the_last_try_and_says_busy() -> None:
    store, time = Scripted([StoreBusy("SlowDown")] * 20), FakeTime()
    with pytest.raises(StoreBusy):
        deleted(store, ["a"], time)
    assert len(store.asked) == SETTINGS.tries
    assert sum(time.slept) < 600


def it_begins_to_count_again_with_every_batch() -> None:
    busy = [StoreBusy("SlowDown")] * 9
    time = FakeTime()
    assert len(deleted(Scripted([*busy, set(), *busy]), list("abcd"), time)) == 4
    assert len(time.slept) == 18


def it_asks_again_for_what_was_refused_for_now_and_for_nothing_else() -> None:
    store, time = Scripted([{"a", "c"}, {"c"}]), FakeTime()
    assert sorted(deleted(store, list("abc"), time), key=lambda a: a.key) == [Deletion(k) for k in "abc"]
    assert store.asked == [["a", "b", "c"], ["a", "c"], ["c"]]
    assert len(time.slept) == 2


def it_tells_what_stayed_busy_to_the_end() -> None:
    store = Scripted([{"b"}] * 20)
    answers = {answer.key: answer for answer in deleted(store, list("abc"))}
    assert answers["b"] == Deletion("b", "SlowDown", transient=True)
    assert answers["a"].deleted
    assert answers["c"].deleted
    assert store.gone == ["a", "c"]
    assert len(store.asked) == SETTINGS.tries


def it_does_not_ask_again_for_what_failed_for_good() -> None:
    store = Scripted(failing={"b": "AccessDenied"})
    assert deleted(store, list("abc")) == [Deletion("a"), Deletion("b", "AccessDenied"), Deletion("c")]
    assert len(store.asked) == 1


@pytest.mark.parametrize("error", [StorageDenied("no usable credentials"), StorageError("broken")])
def it_stops_at_an_error_that_waiting_does_not_heal(error: StorageError) -> None:
    store, time = Scripted([set(), error]), FakeTime()
    with pytest.raises(type(error)):
        deleted(store, list("abcdef"), time)
    assert store.gone == ["a", "b", "c"]
    assert time.slept == []


def it_keeps_to_the_rate_when_it_asks_again_too() -> None:
    store, time = Scripted([set(), {"d", "e", "f"}]), FakeTime()
    started = time.at
    list(delete_all(store, list("abcdefghi"), SETTINGS, Throttle(3.0), time.waiting()))
    assert len(store.asked) == 4
    assert time.at - started >= 3.0


def it_counts_failures_anew_after_some_of_a_batch_succeeded() -> None:
    store, time = Scripted([{"a", "b", "c"}, {"a", "b", "c"}, {"a"}]), FakeTime()
    list(delete_all(store, list("abc"), SETTINGS, Throttle(None), time.waiting()))  # type: ignore[arg-type]
    assert time.slept == [0.5, 1, 0.5]


def it_hands_the_store_its_settings() -> None:
    asked, store = [], Scripted()
    delete = store.delete
    store.delete = lambda keys, **more: asked.append(more) or delete(keys)  # type: ignore[method-assign]
    settings, known = replace(SETTINGS, versions=Versions.ALL), {"a": StoredObject("a", 1, 5)}
    throttle, waiting = Throttle(None), FakeTime().waiting()
    list(delete_all(store, ["a"], settings, throttle, waiting, expected=known))  # type: ignore[arg-type]
    assert asked == [{"versions": Versions.ALL, "expected": known}]


class Careless:
    """Deletes whatever is there, whatever is expected. ``objects`` are what is stored. The first request
    acts, and its answer is lost; ``then`` happens before the next."""

    batch_size = 3

    def __init__(self, *objects: StoredObject) -> None:
        self.objects = {one.key: one for one in objects}
        self.lost = True
        self.then: Callable[[], None] = lambda: None

    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        return {key: self.objects[key] for key in keys if key in self.objects}

    def delete(self, keys: Sequence[str], **more: object) -> list[Deletion]:
        for key in keys:
            self.objects.pop(key, None)
        if self.lost:
            self.lost = False
            self.then()
            raise StoreBusy("the connection was closed")
        return [Deletion(key) for key in keys]


class DescribeAStoreThatDoesNotCompare:
    def it_keeps_an_object_that_nobody_expected(self) -> None:
        known = StoredObject("a", 1, 5)
        store = Careless(known, StoredObject("b", 1, 5))
        assert changed_since(store, ["a", "b", "c"], {"a": known}) == ["b"]  # type: ignore[arg-type]

    @pytest.mark.parametrize(("seconds", "lists"), [(LONG_AGO, False), (LONG_AGO + 0.5, True)])
    def it_is_listed_again_only_if_the_listing_is_old(self, seconds: float, lists: bool) -> None:
        known = {"a": StoredObject("a", 1, 5)}
        store, time = Careless(*known.values()), FakeTime(at=0.0)
        store.lost, find, found = False, store.find, list[Sequence[str]]()
        store.find = lambda keys: found.append(keys) or find(keys)  # type: ignore[method-assign]
        later = delete_all(
            store,  # type: ignore[arg-type]
            ["a"],
            SETTINGS,
            Throttle(None),
            time.waiting(),
            expected=known,
            before_each=lambda: time.sleep(seconds),
        )
        assert [answer.deleted for answer in later] == [True]
        assert found == ([["a"]] if lists else [])

    def it_is_not_sent_a_deletion_twice_without_another_listing(self) -> None:
        known = {key: StoredObject(key, 1, 5) for key in "abc"}
        store, new = Careless(*known.values()), StoredObject("b", 1, 6)
        store.then = lambda: store.objects.update(b=new)
        time = FakeTime()
        answers = list(
            delete_all(store, list("abc"), SETTINGS, Throttle(None), time.waiting(), expected=known)  # type: ignore[arg-type]
        )
        assert store.objects == {"b": new}
        assert {a.key for a in answers if a.deleted} == {"a", "c"}
        assert [a.key for a in answers if a.changed] == ["b"]

    def it_deletes_by_no_listing_that_a_slow_rate_made_old(self) -> None:
        known = {key: StoredObject(key, 1, 5) for key in "abcd"}
        store, new = Careless(*known.values()), StoredObject("d", 1, 6)
        store.lost, time = False, FakeTime()
        wait = time.sleep

        def sleep(seconds: float) -> None:
            wait(seconds)
            if seconds:
                store.objects["d"] = new

        waiting = replace(time.waiting(), sleep=sleep)
        list(delete_all(store, list("abcd"), SETTINGS, Throttle(1.0), waiting, expected=known))  # type: ignore[arg-type]
        assert store.objects == {"d": new}


KEYS = [f"k{n}" for n in range(8)]
STEPS = st.lists(
    st.sets(st.sampled_from(KEYS)) | st.just("busy") | st.just("denied"),
    max_size=40,
)


@given(STEPS, st.sets(st.sampled_from(KEYS)), st.integers(1, 4))
def test_no_key_is_answered_twice_nor_called_deleted_when_it_is_not(
    steps: list[object], failing: set[str], tries: int
) -> None:
    script: list[Exception | set[str]] = []
    for step in steps:
        if isinstance(step, set):
            script.append(step)
        else:
            script.append(StoreBusy("busy") if step == "busy" else StorageDenied("denied"))
    store = Scripted(script, dict.fromkeys(failing, "AccessDenied"))
    answers: list[Deletion] = []
    finished = True
    try:
        answers.extend(
            delete_all(store, KEYS, replace(SETTINGS, tries=tries), Throttle(None), FakeTime().waiting())
        )
    except StorageError:
        finished = False
    assert len({a.key for a in answers}) == len(answers)
    assert {a.key for a in answers if a.deleted} <= set(store.gone)
    if finished:
        assert {a.key for a in answers} == set(KEYS)
        assert {a.key for a in answers if a.deleted} == set(store.gone)
    assert len(store.gone) == len(set(store.gone)), "nothing that was deleted is asked for again"


def it_requests_listed_objects_because_a_listing_may_be_old() -> None:
    old, new = (StoredObject("data/b", size, 0, "tag") for size in (1, 2))
    store = SimpleNamespace(stat={"data/b": new, "data/d": old}.get)
    listed = dict.fromkeys(("data/a", "data/b", "data/c"), old)
    assert still_stored(store, listed) == {"data/b": new}  # type: ignore[arg-type]


class Copier:
    """``there``: keys that are stored; ``errors``: what copies raise, one after the other."""

    def __init__(self, errors: Sequence[Exception], there: Sequence[str] = ("a",)) -> None:
        self.errors = list(errors)
        self.there = {*there}
        self.copied = 0
        self.loses_copies = False

    def copy(self, source: str, target: str) -> StoredObject:
        if self.errors:
            raise self.errors.pop(0)
        self.copied += 1
        if not self.loses_copies:
            self.there.add(target)
        return StoredObject(target, 1, 0)

    def stat(self, key: str) -> StoredObject | None:
        return StoredObject(key, 1, 0) if key in self.there else None

    def is_gone(self, key: str) -> bool:
        return key not in self.there

    def facts(self) -> StoreFacts:
        return StoreFacts()


COPIED = CopyEnd(copied=True)


def copied(store: Copier, time: FakeTime | None = None) -> CopyEnd:
    return copy_one(store, "a", "q/a", SETTINGS, (time or FakeTime()).waiting())


class DescribeCopying:
    def it_waits_while_the_store_is_busy(self) -> None:
        store, time = Copier([StoreBusy("busy"), StoreBusy("busy")]), FakeTime()
        assert copied(store, time) == COPIED
        assert (store.copied, time.slept) == (1, [0.5, 1])

    def it_gives_up_after_the_last_try(self) -> None:
        with pytest.raises(StoreBusy):
            copied(Copier([StoreBusy("busy")] * 10))

    def it_says_why_an_object_was_not_copied(self) -> None:
        end = copied(Copier([StorageError("the object is archived")]))
        assert end == CopyEnd(copied=False, problem="not copied: the object is archived")

    def it_has_nothing_to_copy_where_nothing_is(self) -> None:
        end = copied(Copier([StorageNotFound("there is no such object")], there=()))
        assert end == CopyEnd(copied=False)

    def it_never_takes_a_missing_copy_for_a_missing_object(self) -> None:
        # ENAMETOOLONG at the longer name, a bucket rule that removes the copy at once: the object is there
        end = copied(Copier([StorageNotFound("there is no such object")]))
        assert end == CopyEnd(copied=False, problem="not copied: there is no such object")

    def it_looks_whether_the_copy_is_there(self) -> None:
        store = Copier([])
        store.loses_copies = True
        assert copied(store) == CopyEnd(
            copied=False, problem="not copied: the copy is missing or has the wrong size"
        )

    def it_believes_no_copy_of_another_size(self) -> None:
        store = Copier([], there=("a", "q/a"))
        store.copy = lambda source, target: StoredObject(target, 2, 0)  # type: ignore[method-assign]
        assert copied(store) == CopyEnd(
            copied=False, problem="not copied: the copy is missing or has the wrong size"
        )

    @pytest.mark.parametrize(("listed", "is_gone"), [(False, False), (True, True)])
    def it_takes_an_object_for_gone_only_if_every_question_says_so(self, listed: bool, is_gone: bool) -> None:
        store = Copier([StorageNotFound("there is no such object")], there=("a",) if listed else ())
        store.is_gone = lambda key: is_gone  # type: ignore[method-assign]
        assert copied(store) == CopyEnd(copied=False, problem="not copied: there is no such object")
