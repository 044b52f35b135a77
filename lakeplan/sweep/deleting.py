"""What runs in a Spark worker: one part of a mark after the other, each with a record before and after.

Order, so that a run may be killed at any point: note that the part is begun; (copy into quarantine;) delete;
ask again for a sample; write what became of every object. A part that was begun and has no record is gone
over object by object by the next run: what is gone is deleted, what still is the marked object is deleted,
what is younger than the mark is another object and stays.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from lakeplan.core.sweep.pacing import Throttle
from lakeplan.errors import FormatError, LakeplanError, StorageNotFound, WriteConflict
from lakeplan.formats.mark_parts import end_of, read_part, write_results
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.formats.sweep_keys import begun_key, copied_key, result_key
from lakeplan.model.sweep import EXPIRED_CLASSES, MarkClass, Part, PartEnd, Status
from lakeplan.ports.sweep import DeleteSettings
from lakeplan.ports.sweep_storage import SweepStore
from lakeplan.sweep.batches import CopyEnd, Waiting, copy_one, delete_all

SAMPLE = 20
"""Deleted objects of a part that are asked for again, unless all are: one in 500 of a full part."""
THREADS = 8
"""Requests in flight where objects are asked for or copied one by one."""
LONGEST_ROUND = 600.0
"""Seconds."""
COPIES_A_BATCH = 500
"""Objects that are copied into quarantine before the first of them is deleted."""
CHANGED = "changed since it was marked"
CLOSED = "the sweep was closed before its turn"
GONE_BEFORE = "gone when it was looked at"
MAY_GO = frozenset(kind.value for kind in (*EXPIRED_CLASSES, MarkClass.NEVER_COMMITTED))
SILENT = "the store did not answer for it"


@dataclass(frozen=True)
class Work:
    """Everything a worker needs; it travels with the function, because the store may carry credentials.
    Prefixes end in ``/``. ``rate`` is this worker's share. ``until`` is epoch seconds."""

    store: SweepStore
    mark_prefix: str
    sweep_prefix: str
    quarantine_prefix: str
    settings: DeleteSettings
    saved: Mapping[str, str]
    keep_never_committed: str
    begun: frozenset[str]
    rate: float | None
    until: float | None


class RoundOver(Exception):
    """The time of a round is up in the middle of a part: the next round goes over it."""


def sweep_parts(parts: Iterable[Part], work: Work) -> Iterator[PartEnd | LakeplanError]:
    """Ends of the parts, in order. After an error the worker stops: the next run goes on from there. When
    the round's time is up it stops, too, in the middle of a part if need be: no batch begins later, because
    the look that it goes by is too old then."""
    waiting = Waiting(time.monotonic, time.sleep, random.random)
    throttle, clock = Throttle(work.rate), _RoundClock(work.until)
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
    """Whether a round may go on. This machine's clock may be set wrong, so a round ends at the latest when
    ``LONGEST_ROUND`` has passed here."""

    def __init__(self, until: float | None) -> None:
        self._until = until
        self._last = time.monotonic() + LONGEST_ROUND

    def check(self) -> None:
        if self._until is not None and (time.time() >= self._until or time.monotonic() >= self._last):
            raise RoundOver


class _Part:
    def __init__(
        self, part: Part, work: Work, throttle: Throttle, waiting: Waiting, clock: _RoundClock
    ) -> None:
        self._part = part
        self._work = work
        self._throttle = throttle
        self._waiting = waiting
        self._clock = clock
        self._store = work.store
        self._status: dict[str, tuple[Status, str]] = {}
        self._sizes: dict[str, int] = {}
        self._verified = 0
        self._copied = 0

    def sweep(self) -> PartEnd:
        if (done := self._recorded()) is not None:
            return done
        keys = self._read()
        left = [key for key in keys if key not in self._status]
        if self._begin():
            left = self._still_there(left)
        if self._work.settings.mode == "close":
            for key in left:
                self._status[key] = (Status.SAVED, CLOSED)
            return self._record()
        if self._work.settings.mode == "quarantine":
            for start in range(0, len(left), COPIES_A_BATCH):
                self._clock.check()
                self._delete(self._quarantine(left[start : start + COPIES_A_BATCH]))
        else:
            self._delete(left)
        self._verify()
        return self._record()

    # ---- steps
    def _begin(self) -> bool:
        """Notes that the part is begun. Whether it had been already, by an earlier run or by an attempt of
        this one that Spark lost: then nobody knows how far that came."""
        if self._part.name in self._work.begun:
            return True
        try:
            self._store.create(begun_key(self._work.sweep_prefix, self._part.name), b"{}\n")
        except WriteConflict:
            return True
        return self._work.settings.mode == "close"

    def _read(self) -> list[str]:
        """The part's addresses; what must stay has its status already. Raises FormatError for a row that no
        mark of ours writes."""
        key = self._work.mark_prefix + self._part.name
        where = f"{self._store.url}/{key}"
        table = read_part(self._store.read(key), name=where, sha256=self._part.sha256)
        keys: list[str] = table.column("address").to_pylist()
        kinds: list[str] = table.column("class").to_pylist()
        if not all(map(is_candidate_key, keys)) or not {*kinds} <= MAY_GO:
            raise FormatError("names what a sweep may never delete", where=where, hint="mark again")
        self._sizes = dict(zip(keys, table.column("size_bytes").to_pylist(), strict=True))
        for key, kind in zip(keys, kinds, strict=True):
            if (why := self._work.saved.get(key)) is not None:
                self._status[key] = (Status.SAVED, why)
            elif kind == MarkClass.NEVER_COMMITTED.value and self._work.keep_never_committed:
                self._status[key] = (Status.SAVED, self._work.keep_never_committed)
        return keys

    def _still_there(self, keys: Sequence[str]) -> list[str]:
        """Of a part that was begun before: what is left to delete."""
        left = []
        for key, facts in zip(keys, self._each(self._store.stat, keys), strict=True):
            if facts is None:
                self._status[key] = (Status.DELETED, GONE_BEFORE)
            elif facts.modified_us >= self._work.settings.cutoff_us:
                self._status[key] = (Status.SAVED, CHANGED)
            else:
                left.append(key)
        return left

    def _quarantine(self, keys: Sequence[str]) -> list[str]:
        """Copies a batch, then writes down how much was copied; only then may it be deleted."""

        def copy(key: str) -> CopyEnd:
            target = self._work.quarantine_prefix + key
            return copy_one(self._store, key, target, self._work.settings, self._waiting)

        left = []
        for key, end in zip(keys, self._each(copy, keys), strict=True):
            if end.copied:
                left.append(key)
            elif end.problem:
                self._status[key] = (Status.FAILED, end.problem)
            else:
                self._status[key] = (Status.DELETED, GONE_BEFORE)
        self._copied += len(left)
        failed = sum(status is Status.FAILED for status, _ in self._status.values())
        record = {"copied": self._copied, "not_copied": failed}
        key = copied_key(self._work.sweep_prefix, self._part.name)
        self._store.put(key, json.dumps(record).encode())
        return left

    def _delete(self, keys: Sequence[str]) -> None:
        settings, check = self._work.settings, self._clock.check
        answers = delete_all(self._store, keys, settings, self._throttle, self._waiting, before_each=check)
        for answer in answers:
            status = Status.DELETED if answer.deleted else Status.FAILED
            self._status[answer.key] = (status, answer.reason)
        for key in keys:
            self._status.setdefault(key, (Status.FAILED, SILENT))

    def _verify(self) -> None:
        """What the store said is gone is asked for again, by GET: a sample, or all of it. One in the sample
        that is still there, and all are asked for."""
        gone = [key for key, (status, _) in self._status.items() if status is Status.DELETED]
        sample = gone
        if not self._work.settings.verify_all and len(gone) > SAMPLE:
            sample = random.Random(self._part.sha256).sample(gone, SAMPLE)
        if not self._asked(sample) and len(sample) < len(gone):
            seen = {*sample}
            self._asked([key for key in gone if key not in seen])

    def _asked(self, keys: Sequence[str]) -> bool:
        """Whether all of these are gone; those that are count as verified, the others failed."""
        answers = self._each(self._store.is_gone, keys)
        for key, is_gone in zip(keys, answers, strict=True):
            if is_gone:
                self._verified += 1
            else:
                self._status[key] = (Status.FAILED, "still there after it was deleted")
        return all(answers)

    # ---- records
    def _recorded(self) -> PartEnd | None:
        """What an earlier attempt wrote down, when it finished this part."""
        try:
            data = self._store.read(result_key(self._work.sweep_prefix, self._part.name))
        except StorageNotFound:
            return None
        return end_of(self._part.name, data)

    def _record(self) -> PartEnd:
        data = write_results(self._status, self._sizes, verified=self._verified)
        key = result_key(self._work.sweep_prefix, self._part.name)
        try:
            self._store.create(key, data)
        except WriteConflict:
            # Another attempt at this part was first: its record stands.
            data = self._store.read(key)
        return end_of(self._part.name, data)

    def _each(self, ask: Callable[[str], object], keys: Sequence[str]) -> list:  # type: ignore[type-arg]
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(ask, keys))


def rows_of(
    ends: Iterable[PartEnd | LakeplanError], report: Callable[[LakeplanError], str]
) -> pa.RecordBatch:
    """Ends as rows for the driver: ``kind`` is ``end`` or ``error``, ``text`` JSON."""
    kinds, texts = [], []
    for end in ends:
        if isinstance(end, LakeplanError):
            kinds.append("error")
            texts.append(report(end))
        else:
            kinds.append("end")
            texts.append(json.dumps(end.to_row()))
    return pa.RecordBatch.from_pydict({"kind": kinds, "text": texts})
