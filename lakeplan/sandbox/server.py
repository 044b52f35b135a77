"""The HTTP server: credentials, routing, faults and the shape of errors."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.sandbox.faults import Faults, Recorded
from lakeplan.sandbox.messages import ApiError, Request, Response, error_response, not_found
from lakeplan.sandbox.presigned import PRESIGNED_PATH
from lakeplan.sandbox.service import Options, Service
from lakeplan.sandbox.table import router_of

HOST = "127.0.0.1"
_log = logging.getLogger(__name__)


class Sandbox:
    """Answers requests. Everything but the sockets, so that it can be read and tested without them."""

    def __init__(self, directory: Path, options: Options, faults: Faults) -> None:
        self.service = Service(directory, options)
        self.faults = faults
        self._router = router_of(options.flavor)

    def answer(self, request: Request, raw_path: str) -> Response:
        """The answer to a request; every error becomes one."""
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
        found = self._router.find(request.method, raw_path)
        if found is None:
            raise not_found("invalid API endpoint")
        route, params = found
        if not route.public:
            self._authenticate(request.headers.get("authorization", ""))
        with self.service.store.transaction():
            return route.handler(self.service, replace(request, params=params))

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
            found = self.service.records.repository(repository)
        data = self.service.namespace(found).read(key)
        if data is None:
            raise not_found("no such key")
        return Response(200, data, {"Content-Type": "application/octet-stream"})


class _Handler(BaseHTTPRequestHandler):
    """One connection. Set up by ``_handler_of``."""

    protocol_version = "HTTP/1.1"
    server_version = "lakeplan-sandbox"
    sys_version = ""
    sandbox: Sandbox

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            # The client went away in the middle: there is nobody to answer.
            self.close_connection = True

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        request = Request(
            method=self.command,
            path=unquote(parts.path),
            query=parse_qs(parts.query, keep_blank_values=True),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self._body(),
            base_url=f"http://{self.headers.get('Host') or _authority(self.server.server_address)}",
        )
        try:
            response = self.sandbox.answer(request, parts.path)
        except Exception:  # noqa: BLE001 - the last resort: one bad request must not end the server
            # Shown in the log with its trace; the client gets what a crashed handler gives it.
            _log.exception("%s %s failed", self.command, parts.path)
            response = error_response(ApiError(500, "internal error of the sandbox: see its log"))
        self.sandbox.faults.record(Recorded(self.command, self.path, response.status))
        self._send(response)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _serve

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunks()
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class SandboxHandle:
    """A running sandbox. A context manager; ``stop`` may be called twice."""

    def __init__(self, sandbox: Sandbox, server: _Server) -> None:
        self._sandbox = sandbox
        self._server = server
        self._stopped = False
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def endpoint_url(self) -> str:
        """As trees and lakectl name a server: without ``/api/v1``."""
        return f"http://{_authority(self._server.server_address)}"

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
        """Where a repository's namespace lies on disk. Raises ApiError when there is no such repository."""
        service = self._sandbox.service
        with service.store.transaction():
            return service.namespace(service.records.repository(repository)).folder

    @property
    def faults(self) -> Faults:
        """Faults to arm, and the requests seen so far."""
        return self._sandbox.faults

    def stop(self) -> None:
        """Answers what is under way, frees the port, closes the state."""
        if self._stopped:
            return
        self._stopped = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
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
    handler = type("Handler", (_Handler,), {"sandbox": sandbox})
    try:
        server = _Server((HOST, port), handler)
    except OSError as error:
        sandbox.service.store.close()
        raise UsageError(
            f"cannot listen on port {port}: {error.strerror}", hint="--port 0 picks a free one"
        ) from error
    return SandboxHandle(sandbox, server)


def _authority(address: object) -> str:
    host, port = address[:2] if isinstance(address, tuple) else (HOST, 0)
    return f"{host}:{port}"
