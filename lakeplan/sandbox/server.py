"""A sandbox that runs: started, asked where it is, stopped."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from lakeplan.errors import UsageError
from lakeplan.sandbox.answering import Sandbox
from lakeplan.sandbox.faults import Faults
from lakeplan.sandbox.service import Options
from lakeplan.sandbox.sockets import HOST, Handler, Server, authority_of


class SandboxHandle:
    """A running sandbox. A context manager; ``stop`` may be called twice."""

    def __init__(self, sandbox: Sandbox, server: Server) -> None:
        self._sandbox = sandbox
        self._server = server
        self._stopped = False
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
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
            f"cannot listen on port {port}: {error.strerror}", hint="--port 0 picks a free one"
        ) from error
    return SandboxHandle(sandbox, server)
