"""A server that writes a test's data as slowly and for as long as the test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def serving(answer: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    """The URL of a loopback server that sends ``answer()`` to every connection, until nobody reads it."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            for piece in answer():
                if stopped.is_set():
                    return
                connection.sendall(piece)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopped.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
