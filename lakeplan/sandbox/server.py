"""The HTTP server of a sandbox, with faults on request and a record of requests for tests."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.sandbox import branches, objects, settings
from lakeplan.sandbox.messages import ApiError, Request, Response, error_response, not_found
from lakeplan.sandbox.service import ROUTES, Flavor, Options, Route, Router, Service
from lakeplan.sandbox.storage import PRESIGNED_PATH

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


HANDLERS = (branches, objects, settings)
"""The modules whose handlers declare the routes."""


def routes_of(flavor: Flavor) -> tuple[Route, ...]:
    """The routes that a server of this flavour has."""
    return tuple(route for route in ROUTES if route.flavor in ("oss", flavor))


def router_of(flavor: Flavor) -> Router:
    return Router(routes_of(flavor))


class Sandbox:
    """Answers requests without sockets, so that it can be read and tested without them."""

    def __init__(self, directory: Path, options: Options, faults: Faults) -> None:
        self.service = Service(directory, options)
        self.faults = faults
        self._router = router_of(options.flavor)

    def answer(self, request: Request, raw_path: str) -> Response:
        """The answer to a request. Every error becomes an answer too."""
        try:
            return self._dispatch(request, raw_path)
        except ApiError as error:
            return error_response(error)
        except LakeplanError as error:
            # A damaged file of a namespace: a real server answers 500 with the cause.
            return error_response(ApiError(500, str(error)))

    def _dispatch(self, request: Request, raw_path: str) -> Response:
        self.faults.check(request.method, request.path)
        if raw_path.startswith(PRESIGNED_PATH + "/"):
            return self._presigned(request)
        match = self._router.find(request.method, raw_path)
        if match is None:
            raise not_found("invalid API endpoint")
        route, params = match
        if not route.public:
            self._authenticate(request.headers.get("authorization", ""))
        with self.service.store.transaction():
            return route.handler(self.service, request, **params)

    def _authenticate(self, header: str) -> None:
        scheme, _, credentials = header.partition(" ")
        options = self.service.options
        expected = f"{options.access_key_id}:{options.secret_access_key}".encode()
        try:
            given = base64.b64decode(credentials, validate=True)
        except binascii.Error:
            given = b""
        if scheme.lower() != "basic" or not hmac.compare_digest(given, expected):
            raise ApiError(401, "error authenticating request")

    def _presigned(self, request: Request) -> Response:
        """Files by link, as an object store gives them: no lakeFS credentials, and its own errors."""
        repository, _, key = request.path[len(PRESIGNED_PATH) + 1 :].partition("/")
        expires, signature = request.text("expires"), request.text("signature")
        if request.method != "GET" or not self.service.presigner.allows(
            repository, key, expires, signature, self.service.now()
        ):
            raise ApiError(403, "the link has expired or was not signed here")
        with self.service.store.transaction():
            data = self.service.open(repository).namespace.read(key)
        if data is None:
            raise not_found("no such key")
        return Response(200, data, {"Content-Type": "application/octet-stream"})


HOST = "127.0.0.1"
_PATIENCE_SECONDS = 5.0
ClientSocket = socket.socket | tuple[bytes, socket.socket]
_log = logging.getLogger(__name__)


class Handler(BaseHTTPRequestHandler):
    """One connection. A subclass with ``sandbox`` set serves that one."""

    protocol_version = "HTTP/1.1"
    server_version = "lakeplan-sandbox"
    sys_version = ""
    # Headers and body leave together and at once: otherwise every answer waits 40 ms for an acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    sandbox: Sandbox

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The ``Date`` of an answer, by the sandbox's clock."""
        return super().date_time_string(self.sandbox.service.now() if timestamp is None else timestamp)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            # The client went away in the middle: there is nobody to answer.
            self.close_connection = True

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        try:
            body = self._body()
        except ValueError:
            self.close_connection = True
            self._send(error_response(ApiError(400, "the length of the body cannot be read")))
            return
        request = Request(
            method=self.command,
            path=unquote(parts.path),
            query=parse_qs(parts.query, keep_blank_values=True),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
            base_url=f"http://{self.headers.get('Host') or authority_of(self.server.server_address)}",
        )
        try:
            response = self.sandbox.answer(request, parts.path)
        except Exception:  # noqa: BLE001 - the last resort: one bad request must not end the server
            # Shown in the log with its trace; the client gets what a crashed handler gives it.
            _log.exception("%s %s failed", self.command, parts.path)
            response = error_response(ApiError(500, "internal error of the sandbox: see its log"))
        lost = self.sandbox.faults.lost(request.method, request.path)
        if lost is not None and lost.then is not None:
            lost.then()
            response = error_response(ApiError(lost.status or 500, lost.message))
        # The signature of a link is a credential, if a short-lived one.
        recorded = parts.path if parts.path.startswith(PRESIGNED_PATH) else self.path
        self.sandbox.faults.record(Recorded(self.command, recorded, response.status))
        if lost is not None and lost.status is None:
            self.close_connection = True
            return
        self._send(response)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _serve

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunks()
        length = int(self.headers.get("Content-Length") or 0)
        if length < 0:
            raise ValueError(length)
        return self.rfile.read(length)

    def _chunks(self) -> bytes:
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)

    def _send(self, response: Response) -> None:
        headers: Mapping[str, str] = {"Content-Length": str(len(response.body)), **response.headers}
        self.send_response(response.status)
        for name, value in headers.items():
            if not (name == "Content-Length" and response.status == 204):
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)


class Server(ThreadingHTTPServer):
    """Knows its open connections, so that stopping ends those that clients keep alive too."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[Handler]) -> None:
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(address, handler)

    def process_request(self, request: ClientSocket, client_address: object) -> None:
        with self._changed:
            self._connections.add(_stream(request))
        super().process_request(request, client_address)

    def shutdown_request(self, request: ClientSocket) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._connections.discard(_stream(request))
            self._changed.notify_all()

    def hang_up(self) -> None:
        """Accepts no more requests, and waits briefly for answers in progress."""
        with self._changed:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._connections, _PATIENCE_SECONDS)


def _stream(request: ClientSocket) -> socket.socket:
    """A TCP server's requests are sockets. Only a UDP server has the other kind."""
    if not isinstance(request, socket.socket):
        raise TypeError("not a TCP connection")
    return request


def authority_of(address: object) -> str:
    """``host:port`` of a socket's address."""
    host, port = address[:2] if isinstance(address, tuple) else (HOST, 0)
    return f"{host}:{port}"


class SandboxHandle:
    """A running sandbox, as a context manager. ``stop`` may be called twice."""

    def __init__(self, sandbox: Sandbox, server: Server) -> None:
        self._sandbox = sandbox
        self._server = server
        self._stopped = False
        self._thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def endpoint_url(self) -> str:
        """As trees and lakectl name a server: without ``/api/v1``."""
        return f"http://{authority_of(self._server.server_address)}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def access_key_id(self) -> str:
        return self._sandbox.service.options.access_key_id

    @property
    def secret_access_key(self) -> str:
        return self._sandbox.service.options.secret_access_key

    def namespace_folder(self, repository: str) -> Path:
        """The folder of a repository's namespace. Raises ApiError if the repository does not exist."""
        service = self._sandbox.service
        with service.store.transaction():
            return service.open(repository).namespace.folder

    @property
    def faults(self) -> Faults:
        """Faults to arm, and the requests seen so far."""
        return self._sandbox.faults

    def stop(self) -> None:
        """Finishes answers in progress, frees the port, and closes the state."""
        if self._stopped:
            return
        self._stopped = True
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()
        self._sandbox.service.store.close()

    def __enter__(self) -> SandboxHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_sandbox(
    directory: Path, *, port: int = 0, options: Options | None = None, faults: Faults | None = None
) -> SandboxHandle:
    """Starts a sandbox on 127.0.0.1 in threads of this process. ``port`` 0 picks a free one.

    What earlier runs left in ``directory`` is there again. Raises UsageError when the port is taken, or when
    another sandbox runs in the directory.
    """
    sandbox = Sandbox(directory, options or Options(), faults or Faults())
    handler = type("Handler", (Handler,), {"sandbox": sandbox})
    try:
        server = Server((HOST, port), handler)
    except OSError as error:
        sandbox.service.store.close()
        raise UsageError(
            f"cannot listen on port {port}: {error.strerror}", hint="Use --port 0 for a free port."
        ) from error
    return SandboxHandle(sandbox, server)
