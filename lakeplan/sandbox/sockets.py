"""The HTTP of the sandbox: connections, requests read and answers written."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from lakeplan.sandbox.answering import Sandbox
from lakeplan.sandbox.faults import Recorded
from lakeplan.sandbox.messages import ApiError, Request, Response, error_response
from lakeplan.sandbox.presigned import PRESIGNED_PATH

HOST = "127.0.0.1"
_PATIENCE_SECONDS = 5.0
Connection = socket.socket | tuple[bytes, socket.socket]
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
        """The ``Date`` of an answer, by the sandbox's own clock."""
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
        if lost is not None:
            lost.then()
            response = error_response(ApiError(lost.status or 500, "injected fault"))
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
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

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

    def process_request(self, request: Connection, client_address: object) -> None:
        with self._changed:
            self._connections.add(_stream(request))
        super().process_request(request, client_address)

    def shutdown_request(self, request: Connection) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._connections.discard(_stream(request))
            self._changed.notify_all()

    def hang_up(self) -> None:
        """Takes no further request from anybody, and waits a little for the answers under way."""
        with self._changed:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._connections, _PATIENCE_SECONDS)


def _stream(request: Connection) -> socket.socket:
    """A TCP server's requests are sockets; only a UDP server has the other kind."""
    if not isinstance(request, socket.socket):
        raise TypeError("not a TCP connection")
    return request


def authority_of(address: object) -> str:
    """``host:port`` of a socket's address."""
    host, port = address[:2] if isinstance(address, tuple) else (HOST, 0)
    return f"{host}:{port}"
