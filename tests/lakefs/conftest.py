"""A server that answers what a test tells it to, and a clock that does not wait."""

from __future__ import annotations

import contextlib
import http.server
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import pytest

from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.lakefs.transport import Clock
from lakeplan.values.desired import ServerConfig
from tests.serving import serve


@dataclass
class Seen:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)
    cut_short_by: int = 0

    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Reply = Answer | Callable[[Seen], Answer]


class Scripted:
    """A loopback server. ``script`` holds the next answers; the last one is repeated. Paths below
    ``/api/v1``; what a test cares about is in ``seen``."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.seen: list[Seen] = []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                url = urlsplit(self.path)
                query = {k: v[-1] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Seen(self.command, url.path, query, dict(self.headers.items()), body)
                owner.seen.append(request)
                reply = owner.script.pop(0) if len(owner.script) > 1 else owner.script[0]
                answer = reply if isinstance(reply, Answer) else reply(request)
                data = answer.data()
                self.send_response(answer.status)
                headers = {"Content-Type": "application/json", **answer.headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data) + answer.cut_short_by))
                with contextlib.suppress(ConnectionError):  # a client that gave up waiting
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}"
        self._serving = serve(server)
        self._serving.__enter__()

    def stop(self) -> None:
        self._serving.__exit__(None, None, None)

    def config(self, name: str = "prod") -> ServerConfig:
        return ServerConfig(name, self.url)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.stop()


@pytest.fixture
def elsewhere() -> Iterator[Scripted]:
    """A host that credentials treat as another one."""
    server = Scripted()
    yield server
    server.stop()


@dataclass
class FakeClock:
    """Time passes by sleeping only; ``slept`` has every pause."""

    time: float = 1_700_000_000.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    def clock(self) -> Clock:
        return Clock(now=lambda: self.time, monotonic=lambda: self.time, sleep=self.sleep, random=lambda: 1.0)


@pytest.fixture
def fake_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def credentials() -> Credentials:
    return Credentials(Secret("AKIAEXAMPLEKEY"), Secret("the-secret-itself"), "test")


@pytest.fixture(autouse=True)
def only_credentials_of_the_test(no_credentials_of_this_machine: None) -> None:
    """No test meets those of a person."""
