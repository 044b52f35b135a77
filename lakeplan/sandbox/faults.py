"""Faults on request, and a record of what was asked: how a test shows what lakeplan does on a bad day."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from lakeplan.sandbox.messages import ApiError

FORBIDDEN = "insufficient permissions"


@dataclass(frozen=True)
class Recorded:
    """One request that arrived: method, path with its query, and the status it was answered with.

    Headers and bodies are not kept, so no credential can be in it.
    """

    method: str
    path: str
    status: int


@dataclass
class _Fault:
    expression: re.Pattern[str]
    status: int
    message: str
    left: int | None


@dataclass(frozen=True)
class LostAnswer:
    """A request took effect and its answer is lost. ``status`` None: the connection is closed."""

    expression: re.Pattern[str]
    status: int | None
    then: Callable[[], None]


class Faults:
    """Faults that are armed, and the requests seen. Safe to use from any thread.

    A pattern is a regular expression searched in ``METHOD /path`` (path as sent, without query):
    ``"PUT .*/settings/gc_rules"``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[_Fault] = []
        self._losses: list[LostAnswer] = []
        self._recorded: list[Recorded] = []

    def fail_next(self, count: int, status: int, pattern: str = "", message: str = "injected fault") -> None:
        """The next ``count`` matching requests are answered with ``status`` and change nothing."""
        self._arm(pattern, status, message, count)

    def deny(self, pattern: str, *, status: int = 403, message: str = FORBIDDEN) -> None:
        """Every matching request is refused until ``clear``."""
        self._arm(pattern, status, message, None)

    def lose_next(
        self, status: int | None = None, pattern: str = "", then: Callable[[], None] = lambda: None
    ) -> None:
        """The next matching request takes effect, then ``then`` is called, and the client gets ``status``
        instead of the answer; None closes the connection."""
        with self._lock:
            self._losses.append(LostAnswer(re.compile(pattern), status, then))

    def lost(self, method: str, path: str) -> LostAnswer | None:
        """The armed loss that a request meets, disarmed."""
        with self._lock:
            found = next((i for i in self._losses if i.expression.search(f"{method} {path}")), None)
            if found is not None:
                self._losses.remove(found)
        return found

    def clear(self) -> None:
        """Disarms every fault; what was recorded stays."""
        with self._lock:
            self._armed.clear()
            self._losses.clear()

    def forget(self) -> None:
        """Empties the record."""
        with self._lock:
            self._recorded.clear()

    @property
    def requests(self) -> tuple[Recorded, ...]:
        """What was asked, in the order it was answered."""
        with self._lock:
            return tuple(self._recorded)

    def record(self, request: Recorded) -> None:
        with self._lock:
            self._recorded.append(request)

    def check(self, method: str, path: str) -> None:
        """Raises the first armed fault that matches. A permanent one gives way to a counted one."""
        subject = f"{method} {path}"
        with self._lock:
            matching = [f for f in self._armed if f.expression.search(subject)]
            if not matching:
                return
            fault = min(matching, key=lambda f: f.left is None)
            if fault.left is not None:
                fault.left -= 1
                if not fault.left:
                    self._armed.remove(fault)
        raise ApiError(fault.status, fault.message)

    def _arm(self, pattern: str, status: int, message: str, left: int | None) -> None:
        if left is not None and left < 1:
            raise ValueError("a fault needs a count of at least 1")
        if not 400 <= status <= 599:
            raise ValueError(f"{status} is no error status")
        with self._lock:
            self._armed.append(_Fault(re.compile(pattern), status, message, left))
