"""A sandbox with faults on request and a record of its requests."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from lakeplan.sandbox import server
from lakeplan.sandbox.messages import ApiError, Request, Response, error_response
from lakeplan.sandbox.service import Options
from lakeplan.sandbox.state import PRESIGNED_PATH

FORBIDDEN = "insufficient permissions"


@dataclass(frozen=True)
class Recorded:
    """One recorded request: method, path with query, and the status of its answer.

    Headers and bodies are not kept, so no credential can be in it.
    """

    method: str
    path: str
    status: int


@dataclass
class Fault:
    """A fault. With ``then``, the request takes effect, ``then`` is called, and the client gets ``status``
    instead of the answer, or with None a closed connection."""

    expression: re.Pattern[str]
    status: int | None
    message: str = "injected fault"
    left: int | None = 1
    """Requests that it still affects; None: all."""
    then: Callable[[], None] | None = None


class Faults:
    """The armed faults and the recorded requests. May be used from any thread.

    A pattern is a regular expression searched in ``METHOD /path`` (path as sent, without query):
    ``"PUT .*/settings/gc_rules"``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[Fault] = []
        self._recorded: list[Recorded] = []

    def fail_next(self, count: int, status: int, pattern: str = "", message: str = "injected fault") -> None:
        """Answers the next ``count`` matching requests with ``status``. They change nothing."""
        self._arm(pattern, status, message, count)

    def deny(self, pattern: str, *, status: int = 403, message: str = FORBIDDEN) -> None:
        """Refuses every matching request until ``clear``."""
        self._arm(pattern, status, message, None)

    def lose_next(
        self, status: int | None = None, pattern: str = "", then: Callable[[], None] = lambda: None
    ) -> None:
        """Lets the next matching request take effect, calls ``then``, and sends ``status`` instead of the
        answer. None closes the connection."""
        with self._lock:
            self._armed.append(Fault(re.compile(pattern), status, then=then))

    def lost(self, method: str, path: str) -> Fault | None:
        """The armed fault that loses the answer to a request. Disarms it."""
        return self._next(method, path, lambda fault: fault.then is not None)

    def clear(self) -> None:
        """Disarms every fault. What was recorded stays."""
        with self._lock:
            self._armed.clear()

    def forget(self) -> None:
        """Deletes the recorded requests."""
        with self._lock:
            self._recorded.clear()

    @property
    def requests(self) -> tuple[Recorded, ...]:
        """The requests, in the order they were answered."""
        with self._lock:
            return tuple(self._recorded)

    def record(self, request: Recorded) -> None:
        with self._lock:
            self._recorded.append(request)

    def check(self, method: str, path: str) -> None:
        """Raises the first armed fault that matches. A counted one comes before a permanent one."""
        fault = self._next(method, path, lambda fault: fault.then is None)
        if fault is not None:
            raise ApiError(fault.status or 500, fault.message)

    def _next(self, method: str, path: str, takes: Callable[[Fault], bool]) -> Fault | None:
        with self._lock:
            matching = [f for f in self._armed if takes(f) and f.expression.search(f"{method} {path}")]
            if not matching:
                return None
            fault = min(matching, key=lambda f: f.left is None)
            if fault.left is not None:
                fault.left -= 1
                if not fault.left:
                    self._armed.remove(fault)
            return fault

    def _arm(self, pattern: str, status: int, message: str, left: int | None) -> None:
        if left is not None and left < 1:
            raise ValueError("a fault must have a count of at least 1")
        if not 400 <= status <= 599:
            raise ValueError(f"{status} is not an error status")
        with self._lock:
            self._armed.append(Fault(re.compile(pattern), status, message, left))


class Sandbox(server.Sandbox):
    """A sandbox with ``faults``."""

    def __init__(self, directory: Path, options: Options, faults: Faults) -> None:
        super().__init__(directory, options)
        self.faults = faults

    def answer(self, request: Request, raw_path: str) -> Response:
        try:
            self.faults.check(request.method, request.path)
            response = super().answer(request, raw_path)
        except ApiError as error:
            response = error_response(error)
        lost = self.faults.lost(request.method, request.path)
        if lost is not None and lost.then is not None:
            lost.then()
            response = error_response(ApiError(lost.status or 500, lost.message))
        # The signature of a link is a credential, if a short-lived one.
        query = "" if raw_path.startswith(PRESIGNED_PATH) else urlencode(request.query, doseq=True)
        path = f"{raw_path}?{query}" if query else raw_path
        self.faults.record(Recorded(request.method, path, response.status))
        return NO_ANSWER if lost is not None and lost.status is None else response


NO_ANSWER = Response(0)
"""Instead of it, the connection is closed."""


class _Handler(server.Handler):
    def _send(self, response: Response) -> None:
        if response is NO_ANSWER:
            self.close_connection = True
        else:
            super()._send(response)


RUNNING: dict[str, Sandbox] = {}
"""The sandboxes of this process that answer now, by endpoint URL."""


class SandboxHandle(server.SandboxHandle):
    """A running sandbox. ``faults`` are those to arm, and the requests so far."""

    _HANDLER = _Handler

    def __init__(self, sandbox: Sandbox, port: int) -> None:
        super().__init__(sandbox, port)
        self.faults = sandbox.faults
        RUNNING[self.endpoint_url] = sandbox

    def namespace_folder(self, repository: str) -> Path:
        """The folder of a repository's namespace. Raises ApiError if the repository does not exist."""
        service = self._sandbox.service
        with service.store.transaction():
            return service.open(repository).namespace.folder

    def stop(self) -> None:
        RUNNING.pop(self.endpoint_url, None)
        super().stop()


def start_sandbox(
    directory: Path, *, port: int = 0, options: Options | None = None, faults: Faults | None = None
) -> SandboxHandle:
    """Like ``lakeplan.sandbox.server.start_sandbox``, with faults."""
    return SandboxHandle(Sandbox(directory, options or Options(), faults or Faults()), port)
