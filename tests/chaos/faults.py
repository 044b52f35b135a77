"""Injects one interruption per command, at its n-th call of the store, the server or the state."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests

from lakeplan.errors import StorageError, StoreBusy
from lakeplan.sandbox.messages import Response

KILLS = ("kill before", "kill after")
SERVER_ONLY = ("429", "500", "500 after", "timeout", "timeout after")
FAULTS = (
    *KILLS,
    *SERVER_ONLY,
    "lost answer",
    "store busy",
    "store error",
    "disk full",
    "meanwhile",
    "slow",
    "stale",
)
"""``after``: the server or the store acted first. ``meanwhile``: somebody else acts between two calls.
``slow``: time passes before the answer arrives. ``stale``: reads show what was there before a write."""
LONGEST = 3
"""Calls in a row that fail; more than lakeplan's own retries would only be an error report."""


class Killed(BaseException):
    """kill -9: nothing of the process runs any more, no ``finally`` either."""


@dataclass
class Interruption:
    """``at`` is the number of the first call that is met (from 1), ``times`` how many are. ``only`` narrows
    it to calls whose text contains that, and counts only these."""

    kind: str
    at: int
    times: int = 1
    only: str = ""
    meanwhile: Callable[[], None] = lambda: None
    then: Callable[[], None] = lambda: None
    """Called when it was met: what others do before the process tries again."""
    count: Counter[str] = field(default_factory=Counter)
    """Where what was met is counted, by kind."""

    def __str__(self) -> str:
        return f"{self.kind} at call {self.at}{f' of {self.only!r}' if self.only else ''}"


def draw(
    random: random.Random,
    meanwhile: Callable[[], None],
    aims: Sequence[str] = (),
    often: Sequence[str] = FAULTS,
) -> Interruption | None:
    """An interruption of a command; half of the commands have none. ``aims`` are calls that are met more
    often than others, and ``often`` the kinds that they are met with more often."""
    if random.random() < 0.5:
        return None
    # early calls are in every command; a sweep of a few parts makes about 80
    at = random.choice((random.randint(1, 12), random.randint(1, 40), random.randint(1, 90)))
    only = random.choice(aims) if aims and random.random() < 0.7 else ""
    at = random.choice((1, 1, 2, 3)) if only else at
    kind = random.choice(often if only and random.random() < 0.8 else FAULTS)
    return Interruption(kind, at, random.randint(1, LONGEST), only, meanwhile)


@dataclass
class Calls:
    """The calls of one process. ``around`` lets one through, or does to it what the interruption says."""

    interruption: Interruption | None = None
    log: list[str] = field(default_factory=list)
    dead: bool = False
    _number: int = 0
    _answers: dict[str, Any] = field(default_factory=dict)
    _stale: list[tuple[str, Any]] = field(default_factory=list)

    def around(self, port: str, call: str, writes: bool, act: Callable[[], Any]) -> Any:
        """``port`` is ``server``, ``store`` or ``state``; ``act`` makes the call itself."""
        if self.dead:
            raise Killed("a dead process made a call")
        self.log.append(f"{port} {call}")
        fault = self.interruption
        if fault is not None and fault.kind == "stale":
            return self._from_a_cache(fault, port, call, writes, act)
        if fault is None or fault.only not in f"{port} {call}":
            return act()
        self._number += 1
        if not fault.at <= self._number < fault.at + fault.times:
            return act()
        return self._meet(fault, port, writes, act)

    def _from_a_cache(
        self, fault: Interruption, port: str, call: str, writes: bool, act: Callable[[], Any]
    ) -> Any:
        """As a server's caches answer for seconds after a write: what reads it back sees that."""
        path = call.partition(" ")[2]
        if port != "server":
            return act()
        if writes:
            before = self._answers.get(path)
            self._stale = [(path, before)] * fault.times if before is not None else []
            return act()
        if (path, before := self._answers.get(path)) in self._stale[:1]:
            self._stale.pop()
            fault.count["stale"] += 1
            return before
        self._answers[path] = act()
        return self._answers[path]

    def _meet(self, fault: Interruption, port: str, writes: bool, act: Callable[[], Any]) -> Any:
        kind = fault.kind
        if kind == "meanwhile":
            fault.count[kind] += 1
            self.interruption = None
            fault.meanwhile()
            return act()
        if kind in KILLS:
            if kind == "kill after":
                act()
            fault.count[kind] += 1
            self.dead = True
            raise Killed(str(fault))
        try:
            if kind == "slow":
                fault.count[kind] += 1
                return act()
            if port == "server":
                return self._at_server(fault, act)
            return self._at_store(fault, port, writes, act)
        finally:
            fault.then()

    def _at_server(self, fault: Interruption, act: Callable[[], Any]) -> Any:
        kind = fault.kind
        if kind not in (*SERVER_ONLY, "lost answer"):
            return act()
        fault.count[kind] += 1
        if kind.endswith("after") or kind == "lost answer":
            act()
        if kind == "lost answer":
            raise requests.ConnectionError("the connection was closed before the answer came")
        if kind.startswith("timeout"):
            raise requests.ReadTimeout("no answer in time")
        body = json.dumps({"message": "an injected fault"}).encode()
        return Response(int(kind[:3]), body, {"Content-Type": "application/json"})

    def _at_store(self, fault: Interruption, port: str, writes: bool, act: Callable[[], Any]) -> Any:
        kind = fault.kind
        if kind == "disk full" and writes:
            fault.count[kind] += 1
            raise StorageError("no space left on device", where=port)
        if kind == "lost answer":
            fault.count[kind] += 1
            act()
            raise StorageError("the connection was closed before the answer came", where=port)
        if kind in ("store busy", "store error"):
            fault.count[kind] += 1
            text = "an injected fault"
            raise StoreBusy(text, where=port) if kind == "store busy" else StorageError(text, where=port)
        return act()
