"""An interpreter that forks: to start one and import lakeplan takes most of the time of a short command.

The program stands in for ``sys.executable``. It hands its arguments, environment, folder and streams to a
process that has imported lakeplan and pip. That process forks, and its copy becomes the command.
"""

from __future__ import annotations

import ast
import atexit
import gc
import importlib
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
STREAMS = (0, 1, 2)

# ``socket`` and ``site`` would take longer than all the rest. What is not preloaded runs as it always does.
PROGRAM = """#!{python} -IS
import _socket, os, sys
words = sys.argv[1:]
module = words[1:] if words[:1] == ["-P"] else words
if module[:2] not in (["-m", "lakeplan"], ["-m", "pip"]):
    os.execv({python!r}, [{python!r}, *words])
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
streams = b"".join(n.to_bytes(4, sys.byteorder) for n in {streams!r})
server.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(repr((sys.argv[0], module[1:], os.getcwd(), dict(os.environ))).encode())
server.shutdown(_socket.SHUT_WR)
sys.exit(int(server.recv(8) or 70))
"""


@contextmanager
def preloaded(environ: Mapping[str, str]) -> Iterator[Path]:
    """The path of the program. Its modules are imported with ``environ``."""
    with tempfile.TemporaryDirectory(prefix="lakeplan-") as folder:
        address, program = Path(folder, "socket"), Path(folder, "python")
        program.write_text(
            PROGRAM.format(python=sys.executable, address=str(address), streams=STREAMS), encoding="utf-8"
        )
        program.chmod(0o755)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen(64)
            process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                env={**environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
            )
        with process:  # its end closes stdin, and the process ends
            yield program


def serve(listener: socket.socket) -> None:
    """Forks for every connection, until stdin is closed."""
    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for waited in (listener, ended, sys.stdin):
            selector.register(waited, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if ended in ready:
                ended.recv(4096)
                report_ended(running)
            if listener in ready:
                connection = listener.accept()[0]
                child = os.fork()
                if not child:
                    become(connection)
                running[child] = connection
            if sys.stdin in ready:
                return


def report_ended(running: dict[int, socket.socket]) -> None:
    """Sends each program the exit code of its command, as a shell has it."""
    while running:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        code = os.waitstatus_to_exitcode(status)
        with running.pop(child) as connection, suppress(OSError):
            connection.sendall(str(code if code >= 0 else 128 - code).encode())


def become(connection: socket.socket) -> NoReturn:
    """Run the module that a program was started with, in its place."""
    code: object = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        streams = socket.recv_fds(connection, 1, len(STREAMS))[1]
        with connection.makefile("rb") as sent:
            program, words, folder, environ = ast.literal_eval(sent.read().decode())
        for number, stream in zip(STREAMS, streams, strict=True):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        sys.executable, sys.argv = program, words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - as an interpreter ends
        traceback.print_exc()
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def import_all() -> None:
    """What the commands of a pipeline import."""
    from lakeplan.cli.commands import SHORT_HELP, Commands
    from lakeplan.values.local import hide_pandas

    hide_pandas()  # as lakeplan's __main__ does
    for name in SHORT_HELP:
        Commands()[name]
    for name in ("pip._internal.cli.main", "pip._internal.commands.install"):
        importlib.import_module(name)


if __name__ == "__main__":
    import_all()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
