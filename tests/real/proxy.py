"""A proxy in front of a lakeFS server that loses answers, and lets somebody act between two requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

from tests.serving import serve

Fault = Callable[[str, str], str | None]
"""(method, path) to ``lose`` (the server acts, its answer is lost), a status such as ``500`` (the server acts
and this is the answer), or None. It runs before the request is passed on, and may act itself."""
HOP = {"connection", "transfer-encoding", "content-encoding", "content-length", "host", "keep-alive"}


@contextmanager
def proxied(target: str, fault: Fault) -> Iterator[str]:
    """The proxy's address while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            what = fault(self.command, self.path)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
            answer = requests.request(
                self.command,
                target + self.path,
                data=body,
                headers=headers,
                timeout=60,
                allow_redirects=False,
            )
            if what == "lose":
                self.close_connection = True
                self.connection.close()
                return
            status, content = (
                (int(what), b'{"message":"injected"}') if what else (answer.status_code, answer.content)
            )
            self.send_response(status)
            for key, value in answer.headers.items():
                if key.lower() not in HOP:
                    self.send_header(key, value)
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if status != 204 and self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

        def log_message(self, *_: object) -> None:
            """Nothing: tests read what lakeplan prints."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serve(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"
