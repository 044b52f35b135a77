"""A lake and a tree that do not change: every run of a command prints exactly the same."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import itertools
import os
import pkgutil
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import lakeplan.cli
from lakeplan.cli import process
from lakeplan.cli.main import run
from lakeplan.lakefs.transport import RetryPolicy
from lakeplan.sandbox.service import Options
from lakeplan.stores.folder import FolderStore
from tests.in_process import no_sockets
from tests.sandboxes import SandboxHandle, start_sandbox

NOON = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
"""When everything happens, unless a stage says otherwise."""


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Told:
    line: str
    code: int
    out: str
    err: str


PLACE_LENGTH = 60
TERM = "dumb"
"""Such a terminal cannot move its cursor: what is printed is what is seen."""


@dataclass
class Site:
    """``folder`` holds ``tree``, where commands run, and ``lakefs``, what a sandbox at ``port`` serves."""

    folder: Path
    port: int
    name: str = "test"
    now: datetime = NOON
    handle: SandboxHandle | None = None
    _drawn: Iterator[int] = field(default_factory=itertools.count, init=False)

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write(self, file: str, text: str) -> None:
        path = self.tree / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def edit(self, file: str, old: str, new: str) -> None:
        text = (self.tree / file).read_text(encoding="utf-8")
        assert old in text
        self.write(file, text.replace(old, new))

    def later(self, **passed: float) -> None:
        self.now += timedelta(**passed)

    @contextlib.contextmanager
    def serving(self) -> Iterator[Site]:
        """Serves ``lakefs`` with a sandbox by the site's clock."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lakeplan.sandbox.service.secrets", SimpleNamespace(token_bytes=self._bytes))
            handle = start_sandbox(
                self.folder / "lakefs", port=self.port, options=Options(clock=lambda: self.now)
            )
        with handle, no_sockets():
            self.handle = handle
            yield self

    def lakeplan(self, line: str, width: int = 80, **environment: str) -> Told:
        """Runs one command line in the tree, at a terminal of this width."""
        out, err = Terminal(), Terminal()
        with pytest.MonkeyPatch.context() as patch:
            self._stand_still(patch)
            for name, value in {"COLUMNS": str(width), **environment}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.StringIO())
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = run(shlex.split(line))
        return Told(self.scrub(line), int(code), self.scrub(out.getvalue()), self.scrub(err.getvalue()))

    def scrub(self, text: str) -> str:
        """Without what differs from run to run: the port, digests that it goes into, the folder, the process,
        versions of what is installed, and how long something took. Widths stay."""
        text = text.replace(str(self.folder), "/data/".ljust(PLACE_LENGTH, "-"))
        text = text.replace(str(self.port), "54321")
        text = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:54321", text)
        text = re.sub(r"(?<=digest )[0-9a-f]+", lambda found: "0" * len(found[0]), text)
        text = re.sub(r"\b\d\.\d s\b", "0.0 s", text)
        text = re.sub(r"\bpid \d+", "pid 4711", text)
        return re.sub(r"(?m)^(  [a-z0-9-]+==)[\d.]+$", r"\1VERSION", text)

    def _stand_still(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(RetryPolicy, "wait", lambda *_: 0.0)
        for name in [n for n in os.environ if n.startswith(("LAKEPLAN_", "LAKECTL_", "AWS_", "AZURE_"))]:
            patch.delenv(name)
        for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        settings = {
            "TERM": TERM,
            "LINES": "50",
            "LOGNAME": "ada",
            "HOME": str(self.folder),
            "LAKEPLAN_VAR_SANDBOX_URL": self.endpoint_url,
            "LAKEPLAN_PROD_ENDPOINT_URL": self.endpoint_url,
            "LAKEPLAN_PROD_ACCESS_KEY_ID": "sandbox",
            "LAKEPLAN_PROD_SECRET_ACCESS_KEY": "sandbox-secret",
        }
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.chdir(self.tree)
        patch.setattr("socket.gethostname", lambda: "laptop")
        patch.setattr(
            "lakeplan.cli.process.secrets", SimpleNamespace(token_hex=lambda size: self._bytes(size).hex())
        )
        patch.setattr("lakeplan.sandbox.seed._PARALLEL_UPLOADS", 1)
        # Workers go by the machine's clock: a round ends ten minutes from now by that clock.
        until = datetime.now(timezone.utc) - self.now + timedelta(minutes=10)
        for module_name in ("run", "purge"):
            patch.setattr(f"lakeplan.sweep.{module_name}.ROUND", until)
        for method in (FolderStore.put, FolderStore.create, FolderStore.copy):
            patch.setattr(FolderStore, method.__name__, self._timed(method))
        for module in _users_of(process.now_utc):
            patch.setattr(module, "now_utc", lambda: self.now)

    def _timed(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the store that writes a file, by the site's clock."""

        def timed(store: FolderStore, *keys: Any, **more: Any) -> Any:
            answer = write(store, *keys, **more)
            written = keys[1] if write.__name__ == "copy" else keys[0]
            os.utime(store._place(written), (self.now.timestamp(),) * 2)
            return answer if answer is None else store.stat(written)

        return timed

    def _bytes(self, size: int) -> bytes:
        return hashlib.sha256(f"{self.name} {next(self._drawn)}".encode()).digest()[:size]

    def grow_old(self) -> None:
        """Everything stored was written two days ago."""
        moment = (self.now - timedelta(days=2)).timestamp()
        for folder in ("data", "_lakeplan"):
            for file in (self.folder / "lakefs").glob(f"*/{folder}/**/*"):
                os.utime(file, (moment, moment))


@functools.cache
def _import_commands() -> None:
    """Commands are imported when they run: one that is imported then would keep a site's clock for ever."""
    for module in pkgutil.walk_packages(lakeplan.cli.__path__, "lakeplan.cli."):
        importlib.import_module(module.name)


def _users_of(function: Callable[..., object]) -> list[object]:
    _import_commands()
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("lakeplan.")]
    return [m for m in modules if getattr(m, function.__name__, None) is function]
