"""A host of git repositories that answers what a test put there, and a machine that runs its jobs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.preloaded import preloaded
from tests.serving import serve

ROOT = Path(__file__).parents[2]


class Elsewhere(NamedTuple):
    """An answer that redirects."""

    path: str


class Host:
    """Answers ``(method, path)`` with what a test put there; ``calls`` is what was asked for."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {}
        self.short: dict[str, list[list[Any]]] = {}  # pages that need not be full, by path
        self.calls: list[tuple[str, str, dict[str, str], bytes]] = []
        host = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = urlsplit(self.path)
                host.calls.append((self.command, self.path, dict(self.headers), body))
                found = host.answers.get((self.command, parts.path))
                number = int(parse_qs(parts.query).get("page", ["1"])[0])
                if pages := host.short.get(parts.path):
                    found = pages[number - 1]
                elif isinstance(found, list):
                    found = found[100 * (number - 1) : 100 * number]
                self.send_response(302 if isinstance(found, Elsewhere) else 404 if found is None else 200)
                if pages and number < len(pages):
                    self.send_header("Link", f'<{host.url}{parts.path}?page={number + 1}>; rel="next"')
                if isinstance(found, Elsewhere):
                    self.send_header("Location", found.path)
                    found = b""
                self.end_headers()
                self.wfile.write(found if isinstance(found, bytes) else json.dumps(found).encode())

            do_GET = do_POST = do_PUT = do_PATCH = _answer

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def asked(self, method: str) -> list[tuple[str, Any]]:
        """Paths and bodies of the calls of one kind."""
        return [(p, json.loads(b)) for m, p, _, b in self.calls if m == method]


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    with serve(made.server):
        yield made


def machine_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k in ("HOME", "JAVA_HOME", "TMPDIR", "LANG")}


class Runner:
    """A machine of the host: ``lakeplan`` and ``python`` are on the PATH, nothing of our environment is."""

    def __init__(self, folder: Path, interpreter: Path) -> None:
        tools = folder / "tools"
        tools.mkdir()
        for name, arguments in (("lakeplan", "-m lakeplan"), ("python", "")):
            path = tools / name
            path.write_text(f'#!/bin/sh\nexec "{interpreter}" {arguments} "$@"\n')
            path.chmod(0o755)
        self.tools = tools
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**machine_environment(), "PATH": path, "PYTHONPATH": str(ROOT)}

    def add_tool(self, name: str) -> None:
        """A command that a host's image has and that does nothing here."""
        (self.tools / name).write_text("#!/bin/sh\n")
        (self.tools / name).chmod(0o755)

    def run(self, script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Path]:
    with preloaded({**machine_environment(), "PATH": os.environ["PATH"]}) as program:
        yield program


@pytest.fixture
def runner(tmp_path: Path, interpreter: Path) -> Runner:
    return Runner(tmp_path, interpreter)
