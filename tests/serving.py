"""HTTP servers inside a test's own process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer

# Seconds between two looks at whether to stop. The library's half a second would be most of a short test.
POLL = 0.01


@contextmanager
def serve(server: HTTPServer) -> Iterator[None]:
    """Answers in a separate thread; closed at the end, with its thread. Headers and body are two packets: by
    Nagle's algorithm the second would wait 40 ms for a delayed acknowledgement of the first."""
    server.RequestHandlerClass.disable_nagle_algorithm = True
    thread = threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
