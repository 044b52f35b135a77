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
from lakeplan.errors import LakeplanError, StorageNotFound, WriteConflict
from lakeplan.formats.mark_parts import RESULTS, end_of, read_part, write_part
from lakeplan.formats.sweep_keys import begun_key, copied_key, result_key
from lakeplan.model.sweep import MarkClass, Part, PartEnd, Status
from lakeplan.ports.sweep import DeleteSettings
from lakeplan.ports.sweep_storage import SweepStore
from lakeplan.sweep.batches import Waiting, copy_one, delete_all

SAMPLE = 20
"""Deleted objects of a part that are asked for again, unless all are: one in 500 of a full part."""
THREADS = 8
"""Requests in flight where objects are asked for or copied one by one."""
CHANGED = "changed since it was marked"


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


def sweep_parts(parts: Iterable[Part], work: Work) -> Iterator[PartEnd | LakeplanError]:
    """Ends of the parts, in order. After an error the worker stops: the next run goes on from there."""
    waiting = Waiting(time.monotonic, time.sleep, random.random)
    throttle = Throttle(work.rate)
    for part in parts:
        if work.until is not None and time.time() >= work.until:
            return
        try:
            yield _Part(part, work, throttle, waiting).sweep()
        except LakeplanError as error:
            yield error
            return


class _Part:
    def __init__(self, part: Part, work: Work, throttle: Throttle, waiting: Waiting) -> None:
        self._part = part
        self._work = work
        self._throttle = throttle
        self._waiting = waiting
        self._store = work.store
        self._status: dict[str, tuple[Status, str]] = {}
        self._sizes: dict[str, int] = {}
        self._verified = 0

    def sweep(self) -> PartEnd:
        if (done := self._recorded()) is not None:
            return done
        keys = self._read()
        left = [key for key in keys if key not in self._status]
        if self._part.name in self._work.begun:
            left = self._still_there(left)
        else:
            self._store.put(begun_key(self._work.sweep_prefix, self._part.name), b"{}\n")
        if self._work.settings.mode == "quarantine":
            left = self._quarantine(left)
        self._delete(left)
        self._verify()
        return self._record()

    # ---- steps
    def _read(self) -> list[str]:
        """The part's addresses; what must stay has its status already."""
        key = self._work.mark_prefix + self._part.name
        table = read_part(self._store.read(key), name=f"{self._store.url}/{key}", sha256=self._part.sha256)
        keys: list[str] = table.column("address").to_pylist()
        self._sizes = dict(zip(keys, table.column("size_bytes").to_pylist(), strict=True))
        never = MarkClass.NEVER_COMMITTED.value
        for key, kind in zip(keys, table.column("class").to_pylist(), strict=True):
            if (why := self._work.saved.get(key)) is not None:
                self._status[key] = (Status.SAVED, why)
            elif kind == never and self._work.keep_never_committed:
                self._status[key] = (Status.SAVED, self._work.keep_never_committed)
        return keys

    def _still_there(self, keys: Sequence[str]) -> list[str]:
        """Of a part that an earlier run began: what is left to delete."""
        left = []
        for key, facts in zip(keys, self._each(self._store.stat, keys), strict=True):
            if facts is None:
                self._status[key] = (Status.DELETED, "")
            elif facts.modified_us >= self._work.settings.cutoff_us:
                self._status[key] = (Status.SAVED, CHANGED)
            else:
                left.append(key)
        return left

    def _quarantine(self, keys: Sequence[str]) -> list[str]:
        """Copies everything, then writes down what was copied; only then may it be deleted."""

        def copy(key: str) -> str:
            target = self._work.quarantine_prefix + key
            return copy_one(self._store, key, target, self._work.settings, self._waiting)

        left = []
        for key, problem in zip(keys, self._each(copy, keys), strict=True):
            if problem:
                self._status[key] = (Status.FAILED, problem)
            else:
                left.append(key)
        record = {"copied": len(left), "not_copied": len(keys) - len(left)}
        key = copied_key(self._work.sweep_prefix, self._part.name)
        self._store.put(key, json.dumps(record).encode())
        return left

    def _delete(self, keys: Sequence[str]) -> None:
        for answer in delete_all(self._store, keys, self._work.settings, self._throttle, self._waiting):
            status = Status.DELETED if answer.deleted else Status.FAILED
            self._status[answer.key] = (status, answer.reason)

    def _verify(self) -> None:
        """What the store said is gone is asked for again, by GET: a sample, or all of it."""
        gone = [key for key, (status, _) in self._status.items() if status is Status.DELETED]
        if not self._work.settings.verify_all and len(gone) > SAMPLE:
            gone = random.Random(self._part.sha256).sample(gone, SAMPLE)
        for key, is_gone in zip(gone, self._each(self._store.is_gone, gone), strict=True):
            self._verified += 1
            if not is_gone:
                self._status[key] = (Status.FAILED, "still there after it was deleted")

    # ---- records
    def _recorded(self) -> PartEnd | None:
        """What an earlier attempt wrote down, when it finished this part."""
        try:
            data = self._store.read(result_key(self._work.sweep_prefix, self._part.name))
        except StorageNotFound:
            return None
        return end_of(self._part.name, data)

    def _record(self) -> PartEnd:
        keys = list(self._status)
        columns = {
            "address": keys,
            "size_bytes": [self._sizes[key] for key in keys],
            "status": [self._status[key][0].value for key in keys],
            "reason": [self._status[key][1] for key in keys],
        }
        metadata = {"verified": str(self._verified)}
        data, _ = write_part(columns, RESULTS.with_metadata(metadata))
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
