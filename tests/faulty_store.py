"""A proxy on loopback that has bad days: between a test and a real store server (moto, Azurite, a sandbox).

    with FaultyStore(s3_endpoint) as faulty:
        faulty.arm(Rule(Answer(503, SLOW_DOWN), method="POST", query="delete", times=3))
        store = open_sweep_store("s3://bucket/repo", endpoint_url=faulty.url)

The first armed rule that matches a request decides; without one the request goes through. Requests travel as
they came (path, headers, ``Host``), so signatures stay true, except where an action changes the body.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit
from xml.sax.saxutils import escape, unescape

from tests.serving import serve

SLOW_DOWN = "<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
EXPIRED = "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


@dataclass(frozen=True)
class Answer:
    """This answer, and the store is not asked."""

    status: int
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """The connection ends. With ``asked`` the store does what it was told, and ``sent`` bytes of its answer's
    body arrive (None: not even its head); otherwise the store never hears of it."""

    asked: bool = True
    sent: int | None = 10


@dataclass(frozen=True)
class Delay:
    """The store's own answer, later."""

    seconds: float


@dataclass(frozen=True)
class FailKeys:
    """S3's DeleteObjects: keys that ``chosen`` picks are not deleted, and the answer says so with ``code``;
    the others go to the store. With ``code`` "" the answer does not name them at all."""

    chosen: Callable[[str], bool]
    code: str = "InternalError"
    message: str = ""


@dataclass(frozen=True)
class Rule:
    """What happens to which requests. ``path`` and ``query`` are regular expressions, searched in what was
    sent; the first ``skip`` matching requests go through, then ``times`` of them are met (None: all)."""

    action: Answer | Cut | Delay | FailKeys
    method: str = ""
    path: str = ""
    query: str = ""
    times: int | None = None
    skip: int = 0

    def matches(self, method: str, path: str, query: str) -> bool:
        return (
            self.method in ("", method)
            and re.search(self.path, path) is not None
            and re.search(self.query, query) is not None
        )


class FaultyStore:
    """The proxy. ``url`` is where it listens; ``seen`` holds ``(method, path with query, status)`` of every
    request in order (status 0: cut). Rules can be armed and cleared at any time, from any thread."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._base = parts.path
        self._lock = threading.Lock()
        self._rules: list[tuple[Rule, list[int]]] = []
        self.seen: list[tuple[str, str, int]] = []
        self._bodies: list[tuple[str, bytes]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._serving = serve(self._server)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{self._base}"

    def arm(self, *rules: Rule) -> None:
        with self._lock:
            self._rules += [(rule, [0]) for rule in rules]

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def __enter__(self) -> FaultyStore:
        self._serving.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serving.__exit__(None, None, None)

    def action_for(self, method: str, target: str) -> Answer | Cut | Delay | FailKeys | None:
        path, _, query = target.partition("?")
        with self._lock:
            for rule, met in self._rules:
                if not rule.matches(method, path, query):
                    continue
                if rule.times is not None and met[0] >= rule.skip + rule.times:
                    continue
                met[0] += 1
                if met[0] > rule.skip:
                    return rule.action
        return None

    def note(self, method: str, target: str, status: int) -> None:
        with self._lock:
            self.seen.append((method, target, status))

    def bodies(self, method: str) -> list[bytes]:
        """The bodies of all requests of that method, in order."""
        return [body for name, body in self._bodies if name == method]

    def ask(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        connection = http.client.HTTPConnection(*self._target, timeout=60)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answered(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()


@dataclass
class Answered:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


def _handler(store: FaultyStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            store._bodies.append((self.command, body))
            headers = {n: v for n, v in self.headers.items() if n.lower() not in ("expect", "connection")}
            match store.action_for(self.command, self.path):
                case Answer(status, text, extra):
                    self.reply(Answered(status, list(extra.items()), text.encode()))
                case Cut(asked=False):
                    self.cut()
                case Cut(sent=None):
                    store.ask(self.command, self.path, headers, body)
                    self.cut()
                case Cut(sent=sent):
                    self.reply(store.ask(self.command, self.path, headers, body), sent)
                case FailKeys() as action:
                    self.reply(_ask_but(action, store, self.path, headers, body))
                case found:
                    if isinstance(found, Delay):
                        time.sleep(found.seconds)
                    self.reply(store.ask(self.command, self.path, headers, body))

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def reply(self, answer: Answered, sent: int | None = None) -> None:
            store.note(self.command, self.path, answer.status if sent is None else 0)
            self.send_response_only(answer.status)
            for name, value in answer.headers:
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            announced = {name.lower(): value for name, value in answer.headers}.get("content-length")
            length = announced if self.command == "HEAD" and announced else str(len(answer.body))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body if sent is None else answer.body[:sent])
            if sent is not None:
                self.close_connection = True

        def cut(self) -> None:
            store.note(self.command, self.path, 0)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing, so that the test's output stays clean."""

    return Handler


def _ask_but(
    action: FailKeys, store: FaultyStore, target: str, headers: dict[str, str], body: bytes
) -> Answered:
    failing: list[str] = []

    def drop(found: re.Match[str]) -> str:
        key = unescape(re.findall("<Key>(.*?)</Key>", found[0], re.DOTALL)[0])
        if action.chosen(key):
            failing.append(key)
        return "" if action.chosen(key) else found[0]

    smaller = re.sub("<Object>.*?</Object>", drop, body.decode(), flags=re.DOTALL)
    answer = Answered(200, [], b"<DeleteResult></DeleteResult>")
    if "<Object>" in smaller:
        answer = store.ask("POST", target, _with_sums(headers, smaller.encode()), smaller.encode())
    errors = "".join(
        f"<Error><Key>{escape(key)}</Key><Code>{action.code}</Code><Message>{action.message}</Message></Error>"
        for key in failing
        if action.code
    )
    whole = re.sub(rb"</DeleteResult>\s*$", errors.encode() + b"</DeleteResult>", answer.body)
    return Answered(answer.status, answer.headers, whole)


def _with_sums(headers: dict[str, str], body: bytes) -> dict[str, str]:
    sums = {
        "content-length": str(len(body)),
        "content-md5": b64encode(md5(body, usedforsecurity=False).digest()).decode(),
        "x-amz-checksum-crc32": b64encode(zlib.crc32(body).to_bytes(4, "big")).decode(),
    }
    return {name: sums.get(name.lower(), value) for name, value in headers.items()}
