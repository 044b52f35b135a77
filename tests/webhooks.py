"""A webhook's receiver: a real HTTP server on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.serving import serve

SECRET = "T000-secret-path-9f2"


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """``answers`` are given one after the other, the last one from then on: a status, headers and a body, or
    seconds to wait before the first byte (a float) or a connection that is closed (None)."""

    answers: list[Any] = field(default_factory=lambda: [(200, {}, b"ok")])
    received: list[Received] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/{SECRET}?sig=%2Fsecret-signature"

    def next_answer(self) -> Any:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            made.received.append(Received(self.path, dict(self.headers), body))
            answer = made.next_answer()
            if isinstance(answer, float):
                time.sleep(answer)
                answer = (200, {}, b"ok")
            if answer is None:
                self.close_connection = True
                self.connection.close()
                return
            status, headers, content = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST

        def log_message(self, *args: object) -> None:
            """Nothing is said."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *args: None  # type: ignore[method-assign]
    made.port = server.server_address[1]
    with serve(server):
        yield made
