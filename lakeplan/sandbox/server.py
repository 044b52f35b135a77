"""The HTTP server of a sandbox."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.sandbox import branches, objects, settings
from lakeplan.sandbox.messages import ApiError, Request, Response, error_response, find_route, not_found
from lakeplan.sandbox.service import Options, Service
from lakeplan.sandbox.state import PRESIGNED_PATH

HANDLERS = (branches, objects, settings)
"""The modules whose handlers declare the routes."""


class Sandbox:
    """Answers requests without sockets, so that it can be read and tested without them."""

    def __init__(self, directory: Path, options: Options) -> None:
        self.service = Service(directory, options)

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
        if raw_path.startswith(PRESIGNED_PATH + "/"):
            return objects.read_by_link(self.service, request)
        match = find_route(self.service.options.flavor, request.method, raw_path)
        if match is None:
            raise not_found("invalid API endpoint")
        route, params = match
        if not (route.public or self.service.options.admits(request.headers.get("authorization", ""))):
            raise ApiError(401, "error authenticating request")
        with self.service.store.transaction():
            return route.handler(self.service, request, **params)


HOST = "127.0.0.1"
_PATIENCE_SECONDS = 5.0
ClientSocket = socket.socket | tuple[bytes, socket.socket]
_log = logging.getLogger(__name__)


class Handler(BaseHTTPRequestHandler):
    """One connection. A subclass with ``sandbox`` set serves that one."""

    protocol_version = "HTTP/1.1"
    server_version = "lakeplan-sandbox"
    sys_version = ""
    # Headers and body are sent together, without delay. Otherwise every answer waits 40 ms for an
    # acknowledgement.
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

    _HANDLER = Handler

    def __init__(self, sandbox: Sandbox, port: int) -> None:
        self._sandbox = sandbox
        handler = type("Handler", (self._HANDLER,), {"sandbox": sandbox})
        try:
            self._server = Server((HOST, port), handler)
        except OSError as error:
            sandbox.service.store.close()
            raise UsageError(
                f"cannot listen on port {port}: {error.strerror}",
                hint="Use --port 0 to choose a free port automatically.",
            ) from error
        self._stopped = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
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


def start_sandbox(directory: Path, *, port: int = 0, options: Options | None = None) -> SandboxHandle:
    """Starts a sandbox on 127.0.0.1 in threads of this process. ``port`` 0 picks a free one.

    What earlier runs left in ``directory`` is there again. Raises UsageError when the port is taken, or when
    another sandbox runs in the directory.
    """
    return SandboxHandle(Sandbox(directory, options or Options()), port)
