"""Deletes the objects of parts in batches, waits for a busy store, and records every answer."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from lakeplan.errors import (
    ClockSkew,
    FormatError,
    LakeplanError,
    StorageError,
    StorageNotFound,
    StoreBusy,
    WriteConflict,
)
from lakeplan.formats.marks import MARK_COLUMNS, end_of, read_part, read_results, write_results
from lakeplan.formats.namespace import begun_key, copied_key, is_candidate_key, result_key
from lakeplan.simulation.requests import DeleteRequest, DeleteSettings
from lakeplan.stores.open import ObjectCopier, ObjectDeleter, ObjectProber
from lakeplan.sweep.mark_record import MARK_AGAIN
from lakeplan.sweep.rules import Throttle, backoff_seconds
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import StoredObject, batches
from lakeplan.values.simulation import EXPIRED_CLASSES, MarkClass, Part, PartResult, Status
from lakeplan.values.sweep import CHANGED, GONE, MOVED, UNLISTED, Deletion, Versions

T = TypeVar("T")
LONG_AGO = 1.0
"""Seconds after which a listing is too old to delete by."""


@dataclass(frozen=True)
class Waiting:
    """A worker's monotonic clock, sleep function, and source of random numbers in [0, 1)."""

    clock: Callable[[], float]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]


class DeletingStore(ObjectDeleter, ObjectProber, Protocol):
    """A store that deletes, and reports what is stored."""


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
    """Deletes keys and returns one answer for each. Transient failures are retried. ``expected``: the
    objects that may be deleted under these keys (``ObjectDeleter.delete``), or None for any. Not every store
    checks that, so keys are listed again after a wait: a refused request may have taken effect, and somebody
    may have written to its key since. ``before_each`` is called before every request, and may raise.

    Raises StoreBusy when the store stays busy for ``settings.tries`` requests in a row, and StorageError when
    a request fails. It is then unknown what became of keys without an answer.
    """
    for batch in batches(keys, store.batch_size):
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
    """The keys (given in ascending order) that now have an object other than the expected one."""
    return [key for key, stored in store.find(keys).items() if stored != expected.get(key)]


KEYS_A_LEASE = 5_000
"""Objects that are requested together. The lease is renewed before each such group."""


def still_stored(store: ObjectProber, listed: Mapping[str, StoredObject]) -> dict[str, StoredObject]:
    """Those of the listed objects that exist, requested one by one: some stores list an object for a while
    after it was deleted. Raises StorageError."""
    present = in_parallel(store.stat, [*listed], THREADS)
    return {key: one for key, one in zip(listed, present, strict=True) if one is not None}


def _wait(failures: int, settings: DeleteSettings, waiting: Waiting) -> float:
    return backoff_seconds(failures, waiting.jitter(), least=settings.least_wait, most=settings.most_wait)


def ask(request: Callable[[], T], settings: DeleteSettings, waiting: Waiting) -> T:
    """The answer to a request, which is repeated while the store is busy. Raises StoreBusy after
    ``settings.tries`` requests."""
    for failures in range(1, settings.tries):
        try:
            return request()
        except StoreBusy:  # each try is a request over the network
            waiting.sleep(_wait(failures, settings, waiting))
    return request()


class CopyStore(ObjectCopier, ObjectProber, Protocol):
    """A store that copies, and reports what is stored."""


@dataclass(frozen=True)
class CopyEnd:
    """The result of a copy. ``copied``: the copy exists and has the same size, so the original may be
    deleted. Otherwise ``problem`` says why not. It is "" when there was no original."""

    copied: bool
    problem: str = ""


def copy_one(
    store: CopyStore, source: str, target: str, settings: DeleteSettings, waiting: Waiting
) -> CopyEnd:
    """Copies an object and compares the size of the copy. Raises StoreBusy if the store stays busy."""
    try:
        copied, stored = ask(lambda: (store.copy(source, target), store.stat(target)), settings, waiting)
    except StoreBusy:
        raise
    except StorageNotFound as error:
        # The copy may be what is missing (its name is too long, a rule removes it), so request the source by
        # GET, as after a deletion.
        gone = store.stat(source) is None and store.is_gone(source)
        return CopyEnd(copied=False, problem="" if gone else f"not copied: {error.message}")
    except StorageError as error:
        return CopyEnd(copied=False, problem=f"not copied: {error.message}")
    if stored is None or stored.size != copied.size:
        return CopyEnd(copied=False, problem="not copied: the copy is missing or has the wrong size")
    return CopyEnd(copied=True)


SAMPLE = 20
"""Deleted objects of a part that are requested again if not all are. For a full part, one in 500."""
THREADS = 8
"""Parallel requests where objects are requested or copied one by one."""
LONGEST_ROUND = 600.0
"""Seconds."""
MAX_BEHIND = 300.0
"""The most seconds that a worker's clock may be behind."""
COPIES_A_BATCH = 500
"""Objects that are copied into quarantine before the first of them is deleted."""
OBJECTS_A_LISTING = 1_000
"""Objects that are listed together, just before they are deleted."""
BROUGHT_BACK = "exists again after it was deleted"
CLOSED = "the sweep ended before it reached this object"
MAY_GO = frozenset(kind.value for kind in (*EXPIRED_CLASSES, MarkClass.NEVER_COMMITTED))
STILL_THERE = "still exists after it was deleted"
NOT_LISTED = "exists, but the store did not list it"
GONE_AFTER = "deleted, although the store did not confirm it"
SILENT = "the store did not report a result for this object"


class RoundOver(Exception):
    """Ends the round in the middle of a part, which the next round repeats. To end the whole run, raise a
    LakeplanError instead."""


class Halt:
    """A stop from another thread. After ``set``, no request that changes anything begins, and waits end."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises RoundOver when it is set."""
        if self._event.is_set():
            raise RoundOver

    def sleep(self, seconds: float) -> None:
        """Raises RoundOver as soon as it is set."""
        if self._event.wait(seconds):
            raise RoundOver


def sweep_parts(
    parts: Iterable[Part], work: DeleteRequest, halt: Halt | None = None
) -> Iterator[PartResult | LakeplanError]:
    """Sweeps parts and yields their results in order. ``work`` is the request without its parts and with this
    worker's share of the rate. It is sent with the function, because the store may contain credentials. After
    an error the worker stops, and the next run continues. The worker also stops when the round's time is up,
    if necessary in the middle of a part, because its inspection is then too old. ``halt`` does the same."""
    waiting = Waiting(time.monotonic, time.sleep if halt is None else halt.sleep, random.random)
    until = None if work.until is None else work.until.timestamp()
    throttle, clock = Throttle(work.settings.rate), _RoundClock(until, halt or Halt())
    for part in parts:
        try:
            clock.check()
            yield _Part(part, work, throttle, waiting, clock).sweep()
        except RoundOver:  # a part is thousands of requests
            return
        except LakeplanError as error:
            yield error
            return


class _RoundClock:
    """Whether a round may continue. The worker's clock may be wrong or set back, so a round also ends by the
    monotonic clock, at most ``LONGEST_ROUND`` after it began. It does not begin while the clock is more than
    ``MAX_BEHIND`` behind the inspection: a worker that was started late could not notice."""

    def __init__(self, until: float | None, halt: Halt) -> None:
        self.halt = halt
        self._until = until
        left = LONGEST_ROUND if until is None else min(LONGEST_ROUND, until - time.time())
        self._last = time.monotonic() + left

    def check(self) -> None:
        self.halt.check()
        if self._until is None:
            return
        if time.time() >= self._until or time.monotonic() >= self._last:
            raise RoundOver
        if time.time() < self._until - LONGEST_ROUND - MAX_BEHIND:
            raise ClockSkew(
                f"the clock of the worker {socket.gethostname()} is more than {MAX_BEHIND / 60:.0f} minutes"
                " behind the clock of the machine that runs the sweep",
                hint="Synchronize the clocks (NTP), then run the command again.",
            )


@dataclass(frozen=True)
class _Row:
    """An object as recorded in the mark."""

    address: str
    size: int
    kind: str
    version: int


@dataclass
class _Part:
    _part: Part
    _work: DeleteRequest
    _throttle: Throttle
    _waiting: Waiting
    _clock: _RoundClock

    def __post_init__(self) -> None:
        self._settings = self._work.settings
        self._store = self._work.store
        self._attempt = self._work.attempts.get(self._part.name, 0)
        self._before: dict[str, tuple[Status, str]] = {}
        self._status: dict[str, tuple[Status, str]] = {}
        self._verified = 0
        self._copied = 0

    def sweep(self) -> PartResult:
        if (done := self._recorded(self._attempt)) is not None:
            return self._end(done)
        rows = self._read()
        if self._attempt:
            self._before = self._earlier()
        with suppress(WriteConflict):  # an earlier run began it, or a worker of this one that Spark lost
            self._store.create(begun_key(self._work.prefix, self._part.name), b"{}\n")
        some = COPIES_A_BATCH if self._settings.mode == "quarantine" else OBJECTS_A_LISTING
        for batch in batches(rows, some):
            self._clock.check()
            left = self._left(batch)
            if self._settings.mode == "quarantine":
                left = self._quarantine(left)
            self._delete(left)
        self._verify()
        return self._record(rows)

    # ---- steps
    def _read(self) -> list[_Row]:
        """The part's objects, by address. Raises FormatError for a row that lakeplan does not write."""
        key = self._work.mark_prefix + self._part.name
        where = f"{self._store.url}/{key}"
        table = read_part(self._store.read(key), name=where, sha256=self._part.sha256, columns=MARK_COLUMNS)
        keys: list[str] = table.column("address").to_pylist()
        kinds: list[str] = table.column("class").to_pylist()
        sizes: list[int] = table.column("size_bytes").to_pylist()
        if not all(map(is_candidate_key, keys)) or not {*kinds} <= MAY_GO:
            raise FormatError(
                "this part of the mark lists a key that no sweep may delete", where=where, hint=MARK_AGAIN
            )
        versions: list[int] = table.column("version").to_pylist()
        return [_Row(*values) for values in sorted(zip(keys, sizes, kinds, versions, strict=True))]

    def _left(self, rows: Sequence[_Row]) -> dict[str, StoredObject]:
        """The objects of these rows that may be deleted, as they are stored now. All others get their status.
        An object that is gone counts as deleted even if it is needed."""
        keys = [row.address for row in rows]
        stored = ask(lambda: self._store.find(keys), self._settings, self._waiting)
        copies = self._copies([key for key in keys if key not in stored])
        left: dict[str, StoredObject] = {}
        for row in rows:
            key = row.address
            before = self._before.get(key)
            if (now := stored.get(key)) is None:
                known = before if before is not None and self._is_known(before[0]) else None
                why = MOVED if copies.get(key) == row.size else GONE
                self._status[key] = known or (Status.DELETED, why)
            elif before is not None and before[0] is Status.FAILED and self._settings.mode == "close":
                self._status[key] = before
            elif why := self._saves(row, now, before):
                self._status[key] = (Status.SAVED, why)
            else:
                left[key] = now
        return left

    def _copies(self, keys: Sequence[str]) -> dict[str, int]:
        """The sizes of the copies in quarantine. A round that ended in the middle of the part has no record
        of the objects that it moved."""
        if self._settings.mode == "delete" or not keys:
            return {}
        prefix = self._work.quarantine_prefix
        wanted = [prefix + key for key in keys]
        copies = ask(lambda: self._store.find(wanted), self._settings, self._waiting)
        return {key.removeprefix(prefix): copy.size for key, copy in copies.items()}

    def _is_known(self, before: Status) -> bool:
        """Whether the previous result of an object that is not listed is kept. Listings do not show older
        versions, so they do not prove that a failed deletion of all versions succeeded later."""
        return before is Status.DELETED or (before is Status.FAILED and self._may_leave_versions)

    @cached_property
    def _may_leave_versions(self) -> bool:
        """Whether an object that is not listed may have versions that were to be deleted."""
        if self._settings.versions is not Versions.ALL:
            return False
        return ask(self._store.facts, self._settings, self._waiting).versioned is not False

    def _saves(self, row: _Row, now: StoredObject, before: tuple[Status, str] | None) -> str:
        """Return why a stored object is kept, or ""."""
        if before is not None and before[0] is Status.SAVED:
            return before[1]
        if why := self._work.saved.get(row.address):
            return why
        if row.kind == MarkClass.NEVER_COMMITTED.value and self._work.keep_never_committed:
            return self._work.keep_never_committed
        if now.modified_us >= self._settings.cutoff_us or row.version != now.version:
            return CHANGED
        if before is not None and before[0] is Status.DELETED:
            return BROUGHT_BACK
        return CLOSED if self._settings.mode == "close" else ""

    def _quarantine(self, objects: dict[str, StoredObject]) -> dict[str, StoredObject]:
        """Copies a batch, then records how much was copied. Only then may the batch be deleted."""

        def copy(key: str) -> CopyEnd:
            target = self._work.quarantine_prefix + key
            return copy_one(self._store, key, target, self._settings, self._waiting)

        left = {}
        for key, end in zip(objects, self._each(copy, [*objects]), strict=True):
            if end.copied:
                left[key] = objects[key]
            elif end.problem:
                self._status[key] = (Status.FAILED, end.problem)
            else:
                self._status[key] = (Status.DELETED, GONE)
        self._copied += len(left)
        failed = sum(status is Status.FAILED for status, _ in self._status.values())
        record = {"copied": self._copied, "not_copied": failed}
        key = copied_key(self._work.prefix, self._part.name)
        self._store.put(key, json.dumps(record).encode())
        return self._unchanged(left) if left else left

    def _unchanged(self, objects: dict[str, StoredObject]) -> dict[str, StoredObject]:
        """Those of these objects that were not replaced since they were listed. Copying takes long, and not
        every store compares objects when it deletes them."""
        changed = ask(lambda: changed_since(self._store, [*objects], objects), self._settings, self._waiting)
        self._status |= dict.fromkeys(changed, (Status.SAVED, CHANGED))
        return {key: stored for key, stored in objects.items() if key not in changed}

    def _delete(self, objects: dict[str, StoredObject]) -> None:
        """Deletes the objects that did not change since they were listed. Objects that the store refused to
        delete are listed again: they may be gone if an answer came too late. If older versions
        of them may be left, they count as failed in any case."""
        if not objects:
            return
        answers = {
            answer.key: answer
            for answer in delete_all(
                self._store,
                [*objects],
                self._settings,
                self._throttle,
                self._waiting,
                expected=objects,
                before_each=self._clock.check,
            )
        }
        failed: dict[str, str] = {}
        for key in objects:
            if (answer := answers.get(key)) is None:
                failed[key] = SILENT
            elif answer.changed:
                self._status[key] = (Status.SAVED, CHANGED)
            elif answer.deleted:
                self._status[key] = (Status.DELETED, "")
            else:
                failed[key] = answer.reason
        if failed:
            there = ask(lambda: self._store.find([*failed]), self._settings, self._waiting)
            for key, why in failed.items():
                is_left = key in there or self._may_leave_versions
                self._status[key] = (Status.FAILED, why) if is_left else (Status.DELETED, GONE_AFTER)

    def _verify(self) -> None:
        """Requests deleted objects again, by GET: a sample or all. Objects that were not listed have a sample
        of their own, because some stores list a new object late. If one of a sample still exists, all are
        requested."""
        gone = [key for key, (status, _) in self._status.items() if status is Status.DELETED]
        sample = gone
        if not self._settings.verify_all:
            unlisted = [key for key in gone if self._status[key][1] in UNLISTED]
            listed = [key for key in gone if self._status[key][1] not in UNLISTED]
            draw = random.Random(self._part.sha256)
            sample = [key for keys in (listed, unlisted) for key in draw.sample(keys, min(SAMPLE, len(keys)))]
        if not self._asked(sample):
            sampled = {*sample}
            self._asked([key for key in gone if key not in sampled])

    def _asked(self, keys: Sequence[str]) -> bool:
        """Whether all of these are gone. Objects that are gone count as verified, others as failed."""
        answers = self._each(self._store.is_gone, keys)
        for key, is_gone in zip(keys, answers, strict=True):
            if is_gone:
                self._verified += 1
            else:
                was_listed = self._status[key][1] not in UNLISTED
                self._status[key] = (Status.FAILED, STILL_THERE if was_listed else NOT_LISTED)
        return all(answers)

    # ---- records
    def _recorded(self, attempt: int) -> bytes | None:
        """The record of an attempt that finished this part, or None."""
        try:
            return self._store.read(self._result_key(attempt))
        except StorageNotFound:
            return None

    def _result_key(self, attempt: int) -> str:
        return result_key(self._work.prefix, self._part.name, attempt)

    def _where(self, attempt: int) -> str:
        return f"{self._store.url}/{self._result_key(attempt)}"

    def _end(self, record: bytes) -> PartResult:
        return end_of(self._part.name, record, where=self._where(self._attempt))

    def _earlier(self) -> dict[str, tuple[Status, str]]:
        """The results of the previous attempt. Only objects that failed are tried again."""
        before = self._attempt - 1
        data = self._recorded(before)
        return {} if data is None else read_results(data, name=self._where(before))

    def _record(self, rows: Sequence[_Row]) -> PartResult:
        sizes = {row.address: row.size for row in rows}
        data = write_results(self._status, sizes, verified=self._verified)
        key = self._result_key(self._attempt)
        try:
            self._store.create(key, data)
        except WriteConflict:
            # Another run recorded the part first. That record stays, and another adds what this run deleted.
            data = self._store.read(key)
            theirs = read_results(data, name=self._where(self._attempt))
            ours = {k: v if v[0] is Status.DELETED else theirs.get(k, v) for k, v in self._status.items()}
            if any(theirs.get(k, v)[0] is not v[0] for k, v in ours.items()):
                self._status, self._attempt = ours, self._attempt + 1
                return self._record(rows)
        return self._end(data)

    def _each(self, ask: Callable[[str], T], keys: Sequence[str]) -> list[T]:
        def one(key: str) -> T:
            self._clock.halt.check()
            return ask(key)

        return in_parallel(one, keys, THREADS)
