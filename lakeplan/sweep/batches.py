"""Batches against a store: one request after another, waiting while it is busy, every answer kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lakeplan.core.sweep.pacing import Throttle, backoff_seconds
from lakeplan.errors import StorageError, StorageNotFound, StoreBusy
from lakeplan.model.stored import Deletion
from lakeplan.ports.sweep import DeleteSettings
from lakeplan.ports.sweep_storage import ObjectCopier, ObjectDeleter


@dataclass(frozen=True)
class Waiting:
    """Time as a worker sees it: a clock that only goes forward, a sleep, random numbers in [0, 1)."""

    clock: Callable[[], float]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]


def delete_all(
    store: ObjectDeleter,
    keys: Sequence[str],
    settings: DeleteSettings,
    throttle: Throttle,
    waiting: Waiting,
) -> Iterator[Deletion]:
    """One answer a key. What the store answered as transient is asked for again. Raises StoreBusy when the
    store stays busy for ``settings.tries`` requests in a row, and StorageError when it cannot be done at
    all: nothing is known of the keys that have no answer yet."""
    for start in range(0, len(keys), store.batch_size):
        yield from _one_batch(store, keys[start : start + store.batch_size], settings, throttle, waiting)


def _one_batch(
    store: ObjectDeleter,
    keys: Sequence[str],
    settings: DeleteSettings,
    throttle: Throttle,
    waiting: Waiting,
) -> Iterator[Deletion]:
    failures = 0
    while keys:
        waiting.sleep(throttle.wait_seconds(len(keys), waiting.clock()))
        try:
            answers = store.delete(keys, versions=settings.versions)
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


def _wait(failures: int, settings: DeleteSettings, waiting: Waiting) -> float:
    return backoff_seconds(failures, waiting.jitter(), least=settings.least_wait, most=settings.most_wait)


def copy_one(
    store: ObjectCopier, source: str, target: str, settings: DeleteSettings, waiting: Waiting
) -> str:
    """Copies and compares an object; why that failed, or "". An object that is not there is no failure of
    the copy: there is nothing to delete either. Raises StoreBusy when the store stays busy."""
    for failures in range(1, settings.tries + 1):
        try:
            store.copy(source, target)
            return ""
        except StoreBusy:  # noqa: PERF203  # each try is a request over the network
            if failures == settings.tries:
                raise
            waiting.sleep(_wait(failures, settings, waiting))
        except StorageNotFound:
            return ""
        except StorageError as error:
            return f"not copied: {error.message}"
    return "not copied: sweep settings allow no try"
