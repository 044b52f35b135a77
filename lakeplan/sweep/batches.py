"""Batches against a store: one request after another, waiting while it is busy, every answer kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lakeplan.core.sweep.pacing import Throttle, backoff_seconds
from lakeplan.errors import StorageError, StorageNotFound, StoreBusy
from lakeplan.model.objects import StoredObject
from lakeplan.model.stored import Deletion
from lakeplan.model.sweep import CHANGED
from lakeplan.ports.sweep import DeleteSettings
from lakeplan.ports.sweep_storage import ObjectCopier, ObjectDeleter, ObjectProber

T = TypeVar("T")
LONG_AGO = 1.0
"""Seconds after which a listing is too old to delete by."""


@dataclass(frozen=True)
class Waiting:
    """Time as a worker sees it: a clock that only goes forward, a sleep, random numbers in [0, 1)."""

    clock: Callable[[], float]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]


class DeletingStore(ObjectDeleter, ObjectProber, Protocol):
    """Deletes, and reports what is stored."""


def delete_all(
    store: DeletingStore,
    keys: Sequence[str],
    settings: DeleteSettings,
    throttle: Throttle,
    waiting: Waiting,
    *,
    expected: Mapping[str, StoredObject] | None = None,
    before_each: Callable[[], None] = lambda: None,
) -> Iterator[Deletion]:
    """One answer a key. What the store answered as transient is asked for again. ``expected``: what may be
    deleted under these keys (``ObjectDeleter.delete``); None: whatever is there. Not every store checks it,
    so what was waited for is listed once more: a request that the store refused may have acted, and somebody
    may have written under its key since. ``before_each`` is called before every request, and may raise.
    Raises StoreBusy when the store stays busy for ``settings.tries``
    requests in a row, and StorageError when it cannot be done at all: nothing is known of the keys that
    have no answer yet."""
    for start in range(0, len(keys), store.batch_size):
        batch = keys[start : start + store.batch_size]
        yield from _one_batch(store, batch, settings, throttle, waiting, expected, before_each)


def _one_batch(
    store: DeletingStore,
    keys: Sequence[str],
    settings: DeleteSettings,
    throttle: Throttle,
    waiting: Waiting,
    expected: Mapping[str, StoredObject] | None,
    before_each: Callable[[], None],
) -> Iterator[Deletion]:
    failures, began = 0, waiting.clock()
    while keys:
        waiting.sleep(throttle.wait_seconds(len(keys), waiting.clock()))
        before_each()
        try:
            if expected is not None and (failures or waiting.clock() - began > LONG_AGO):
                changed = changed_since(store, keys, expected)
                yield from (Deletion(key, CHANGED, changed=True) for key in changed)
                keys = [key for key in keys if key not in changed]
                if not keys:
                    return
            answers = store.delete(keys, versions=settings.versions, expected=expected)
        except StoreBusy:
            failures += 1
            if failures >= settings.tries:
                raise
            waiting.sleep(_wait(failures, settings, waiting))
            continue
        again = [a.key for a in answers if a.transient]
        yield from (a for a in answers if not a.transient)
        if again and len(again) == len(keys):
            failures += 1
        elif again:
            failures = 1
        if again and failures >= settings.tries:
            yield from (a for a in answers if a.transient)
            return
        if again:
            waiting.sleep(_wait(failures, settings, waiting))
        keys = again


def changed_since(
    store: ObjectProber, keys: Sequence[str], expected: Mapping[str, StoredObject]
) -> list[str]:
    """Of these keys, in ascending order, those at which another object is by now."""
    return [key for key, stored in store.find(keys).items() if stored != expected.get(key, stored)]


def _wait(failures: int, settings: DeleteSettings, waiting: Waiting) -> float:
    return backoff_seconds(failures, waiting.jitter(), least=settings.least_wait, most=settings.most_wait)


def ask(request: Callable[[], T], settings: DeleteSettings, waiting: Waiting) -> T:
    """The answer to a request that changes nothing. Raises StoreBusy when the store stays busy for
    ``settings.tries`` requests."""
    for failures in range(1, settings.tries):
        try:
            return request()
        except StoreBusy:  # each try is a request over the network
            waiting.sleep(_wait(failures, settings, waiting))
    return request()


class CopyStore(ObjectCopier, ObjectProber, Protocol):
    """Copies, and tells what is there."""


@dataclass(frozen=True)
class CopyEnd:
    """``copied``: the copy is there and of the same size, so the original may go. Otherwise ``problem`` says
    why not; "" when there was no original."""

    copied: bool
    problem: str = ""


def copy_one(
    store: CopyStore, source: str, target: str, settings: DeleteSettings, waiting: Waiting
) -> CopyEnd:
    """Copies and compares an object, then looks at the copy. Raises StoreBusy when the store stays busy."""
    for failures in range(1, settings.tries + 1):
        try:
            copied = store.copy(source, target)
            seen = store.stat(target)
        except StoreBusy:  # each try is a request over the network
            if failures == settings.tries:
                raise
            waiting.sleep(_wait(failures, settings, waiting))
            continue
        except StorageNotFound as error:
            # The copy may be what is missing (a name too long, a rule that removes it): ask for the source,
            # by GET, as a deletion would be proven.
            gone = store.stat(source) is None and store.is_gone(source)
            return CopyEnd(copied=False, problem="" if gone else f"not copied: {error.message}")
        except StorageError as error:
            return CopyEnd(copied=False, problem=f"not copied: {error.message}")
        if seen is None or seen.size != copied.size:
            return CopyEnd(copied=False, problem="not copied: the copy is not there")
        return CopyEnd(copied=True)
    return CopyEnd(copied=False, problem="not copied: sweep settings allow no try")
