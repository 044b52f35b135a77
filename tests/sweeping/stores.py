"""A store that fails on request, time that passes only when somebody waits, and parts of marks: for tests of
what deletes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from lakeplan.formats.marks import MARKED, read_part, write_part
from lakeplan.formats.namespace import part_id, result_key
from lakeplan.stores.open import SweepStore, open_sweep_store
from lakeplan.sweep.deleting import Waiting
from lakeplan.values.simulation import MarkClass, Part
from lakeplan.values.sweep import Deletion

MARK_PREFIX = "_lakeplan/marks/m1/"
SWEEP_PREFIX = "_lakeplan/sweeps/m1/"
QUARANTINE_PREFIX = "_lakeplan/quarantine/m1/"


class Killed(BaseException):
    """The process ends here: nothing below may catch it."""


@dataclass
class FakeTime:
    """Stands for ``time``: sleeping moves it on. ``slept`` are all waits that were longer than nothing."""

    at: float = 1_000.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.at

    def time(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.slept.append(seconds)
            self.at += seconds

    def waiting(self, jitter: float = 0.0) -> Waiting:
        return Waiting(self.monotonic, self.sleep, lambda: jitter)


class TimedStore:
    """A folder store whose clock is the test's: what is put or copied has its time."""

    def __init__(self, store: SweepStore, folder: Path, now: Callable[[], datetime]) -> None:
        self._store, self._folder, self._now = store, folder, now

    def put(self, key: str, data: bytes) -> None:
        self._store.put(key, data)
        at = self._now().timestamp()
        os.utime(self._folder / key, (at, at))

    def copy(self, source: str, target: str, **more: Any) -> Any:
        self._store.copy(source, target, **more)
        at = self._now().timestamp()
        os.utime(self._folder / target, (at, at))
        return self._store.stat(target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


Fault = Callable[[str, tuple[Any, ...]], None]


def _nothing(name: str, args: tuple[Any, ...]) -> None:
    return


class FaultyStore:
    """A store in front of another. ``before`` and ``after`` are told of every call (its name, its arguments)
    and may raise; ``answers`` may change what a deletion answers, and which keys it reaches."""

    def __init__(
        self,
        store: SweepStore,
        before: Fault = lambda name, args: None,
        after: Fault = lambda name, args: None,
    ) -> None:
        self.store = store
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.before, self.after = before, after
        self.refuses: Callable[[str], Deletion | None] = lambda key: None
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def batch_size(self) -> int:
        return self.store.batch_size

    def delete(self, keys: Sequence[str], **more: Any) -> list[Deletion]:
        def asked() -> list[Deletion]:
            refused = {key: answer for key in keys if (answer := self.refuses(key)) is not None}
            given = iter(self.store.delete([k for k in keys if k not in refused], **more))
            return [refused[key] if key in refused else next(given) for key in keys]

        return self._call("delete", (tuple(keys),), asked)

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.store, name)
        if not callable(target):
            return target
        return lambda *args, **more: self._call(name, args, lambda: target(*args, **more))

    def _call(self, name: str, args: tuple[Any, ...], ask: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls.append((name, args))
            self.before(name, args)
        answer = ask()
        with self._lock:
            self.after(name, args)
        return answer

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [args for called, args in self.calls if called == name]


def killing_at(number: int) -> Fault:
    """Raises ``Killed`` at the call of that number (from 1), and at every later one: the process is gone."""
    seen = 0

    def fault(name: str, args: tuple[Any, ...]) -> None:
        nonlocal seen
        seen += 1
        if seen >= number:
            raise Killed(f"at call {number}: {name}")

    return fault


def raising(error: BaseException, *, on: str, key: str = "", times: int | None = None) -> Fault:
    """Raises an error at calls of that name whose first argument contains ``key``."""
    left = times

    def fault(name: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if name != on or (args and key not in str(args[0])) or left == 0:
            return
        if left is not None:
            left -= 1
        raise error

    return fault


def folder_store(folder: Path) -> SweepStore:
    folder.mkdir(parents=True, exist_ok=True)
    return open_sweep_store(str(folder))


def put_object(folder: Path, key: str, data: bytes = b"x", *, modified: float = 500.0) -> None:
    """Puts an object by other means than the store's. ``modified`` is epoch seconds."""
    path = folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (modified, modified))


def put_part(
    store: SweepStore,
    number: int,
    keys: Iterable[str],
    *,
    kind: MarkClass | Callable[[str], MarkClass] = MarkClass.BACKLOG,
    prefix: str = MARK_PREFIX,
) -> Part:
    """A part of a mark that names these keys as they are stored now, one byte each."""
    names = list(keys)
    kinds = [kind(key) if callable(kind) and not isinstance(kind, MarkClass) else kind for key in names]
    found = store.find(sorted(names))
    columns = {
        "address": names,
        "size_bytes": [1] * len(names),
        "version": [one.version if (one := found.get(key)) else 0 for key in names],
        "paths": [[] for _ in names],
        "last_commit_id": [None] * len(names),
        "reason": ["never_committed" if k is MarkClass.NEVER_COMMITTED else "expired" for k in kinds],
        "class": [MarkClass(k).value for k in kinds],
    }
    data, sha256 = write_part(columns, MARKED)
    name = f"going/part-{number:04}.parquet"
    store.put(prefix + name, data)
    return Part(name, len(names), len(names), sha256)


def begun_parts(store: SweepStore, parts: Iterable[Part]) -> frozenset[str]:
    """Which parts' deletions may have begun."""
    begun = {part_id(found.key) for found in store.list_objects(f"{SWEEP_PREFIX}begun/")}
    return frozenset(part.name for part in parts if part_id(part.name) in begun)


def records(
    store: SweepStore, parts: Iterable[Part], attempts: Mapping[str, int] | None = None
) -> dict[str, tuple[str, str]]:
    """Status and reason by address out of the records of parts (of these attempts, else of the first); an
    address that two of them name, or one names twice, is an error."""
    found: dict[str, tuple[str, str]] = {}
    known = {stored.key for stored in store.list_objects(f"{SWEEP_PREFIX}results/")}
    for part in parts:
        key = result_key(SWEEP_PREFIX, part.name, (attempts or {}).get(part.name, 0))
        if key not in known:
            continue
        for row in read_part(store.read(key), name=key, sha256=None).to_pylist():
            assert row["address"] not in found, "an object has two ends"
            found[row["address"]] = (row["status"], row["reason"])
    return found
