"""The sandbox without sockets or threads: lakeplan's own HTTP client, answered in the same call.

So a step takes milliseconds, the n-th call of a command is the same call in every run of a seed, and a fault
can be put exactly before a request reaches the server, or between its effect and its answer.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import requests
from requests import sessions

from lakeplan.formats import refs as refs_dump
from lakeplan.formats.namespace import ObjectPaths, XidSource
from lakeplan.lakefs import answers, transport
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.sandbox import service as sandbox_dumps
from lakeplan.sandbox.messages import Request, Response
from lakeplan.sandbox.server import Sandbox
from lakeplan.sandbox.service import Options
from lakeplan.sweep import deleting
from lakeplan.values.repository import Entry, Refs
from tests.in_process import InProcess
from tests.sweeping import plain
from tests.sweeping.lake import Clock, Lake

ENDPOINT = "http://127.0.0.1:8000"
API = "/api/v1"
Ask = Callable[[], Response]
Meddle = Callable[[Request, Ask], Response]
"""Gets a request and the function that has it answered. May answer itself, ask twice, or raise."""


class WireLake(Lake):
    """A sandbox whose requests never leave this thread. ``meddle`` is in front of what operators ask;
    ``pulls`` are the source branches of open pull requests, which the sandbox lacks; ``heard`` is called with
    every request that was answered, whoever asked; ``machine_clock`` is lakeplan's machine's."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.clock, self.folder = clock, folder
        self.sandbox = Sandbox(folder, Options(clock=clock, presign=False))
        service = self.sandbox.service
        numbers = itertools.count()
        service.xids = XidSource(
            lambda: clock().timestamp(), lambda size: (next(numbers) % 256**size).to_bytes(size, "big")
        )
        service.object_paths = ObjectPaths(lambda: clock().timestamp(), service.xids)
        options = service.options
        self.handle = SimpleNamespace(  # type: ignore[assignment]  # as much of a handle as Lake needs
            endpoint_url=ENDPOINT,
            access_key_id=options.access_key_id,
            secret_access_key=options.secret_access_key,
            namespace_folder=self._folder_of,
            stop=service.store.close,
            _sandbox=self.sandbox,
        )
        self.root = f"{ENDPOINT}{API}"
        self.pulls: set[str] = set()
        self.machine_clock: Callable[[], datetime] = clock
        self.meddle: Meddle = lambda request, ask: ask()
        self.heard: Callable[[Request, Response], None] = lambda request, response: None
        self._session = self.session(lambda request, ask: ask())
        self._session.auth = (options.access_key_id, options.secret_access_key)

    def session(self, meddle: Meddle | None = None) -> requests.Session:
        """A session of an operator's, or of somebody with whom nothing meddles."""
        session = requests.Session()
        session.trust_env = False  # looking for proxies takes as long as an answer
        chosen = meddle or (lambda request, ask: self.meddle(request, ask))

        def answer(request: Request, raw_path: str) -> Response:
            return chosen(request, lambda: self.answer(request, raw_path))

        session.mount("http://", InProcess(answer, lambda: self.clock().timestamp()))
        return session

    def rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        """Rows of the server's own database: for the checker, which trusts no API."""
        return self.sandbox.service.store.rows(sql, *values)

    def answer(self, request: Request, raw_path: str) -> Response:
        if request.method == "GET" and request.path.endswith("/pulls"):
            found = [
                {"id": name, "source_branch": name, "destination_branch": "main", "status": "open"}
                for name in sorted(self.pulls)
            ]
            page = {"has_more": False, "next_offset": "", "results": len(found), "max_per_page": 1000}
            return Response(200, json.dumps({"pagination": page, "results": found}).encode())
        response = self.sandbox.answer(request, raw_path)
        self.heard(request, response)
        return response

    def _folder_of(self, name: str) -> Path:
        service = self.sandbox.service
        with service.store.transaction():
            return service.open(name).namespace.folder


@contextmanager
def _read_once() -> Iterator[None]:
    """Ranges, metaranges and refs dumps are named by what they hold: each is read, and written, once a world,
    as lakeplan's own engine caches them too."""
    entries: dict[str, list[Entry]] = {}
    records: dict[tuple[str, str], list[Any]] = {}
    dumps: deque[tuple[Refs, Any]] = deque(maxlen=4)
    read_entries, read_records = plain.entries_of, refs_dump._read_all
    write = sandbox_dumps.write_refs_dump

    def entries_of(metadata: MetadataReader, metarange: str) -> list[Entry]:
        if metarange not in entries:
            entries[metarange] = list(read_entries(metadata, metarange))
        return entries[metarange]

    def read_all(id: str, read: Any, entity: Any, decode: Any) -> list[Any]:
        if (id, entity) not in records:
            records[id, entity] = list(read_records(id, read, entity, decode))
        return records[id, entity]

    def write_refs_dump(refs: Refs) -> Any:
        for known, answer in dumps:
            if known == refs:
                return answer
        dumps.append((refs, write(refs)))
        return dumps[-1][1]

    def pairs(value: Any) -> list[tuple[Any, Any]] | None:
        return list(value.items() if hasattr(value, "items") else value) if value is not None else None

    with (
        mock.patch.object(plain, "entries_of", entries_of),
        mock.patch.object(refs_dump, "_read_all", read_all),
        mock.patch.object(sandbox_dumps, "write_refs_dump", write_refs_dump),
        mock.patch.object(sessions, "to_key_val_list", pairs),  # tries protocols, which takes long
    ):
        yield


@contextmanager
def no_threads_no_waiting(current: Callable[[], WireLake]) -> Iterator[None]:
    """Pools and requests do their work at once, in this thread and in order; sleeping moves the world's
    clock; new HTTP sessions lead to the world that ``current`` gives."""

    def submit(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **more))
        except Exception as error:  # noqa: BLE001  # what the work raises is its caller's
            done.set_exception(error)
        return done

    really_sleep, main = time.sleep, threading.main_thread()

    def sleep(seconds: float) -> None:
        if threading.current_thread() is main:
            current().clock.advance(hours=seconds / 3600)
        else:
            really_sleep(seconds)

    def new_session() -> requests.Session:
        return current().session()

    with (
        _read_once(),
        mock.patch.object(ThreadPoolExecutor, "submit", submit),
        mock.patch.object(time, "sleep", sleep),
        mock.patch.object(transport, "within", lambda seconds, call: call()),
        mock.patch.object(transport, "new_session", new_session),
        mock.patch.object(answers, "new_session", new_session),
        mock.patch.object(
            deleting,
            "time",
            SimpleNamespace(
                monotonic=lambda: current().machine_clock().timestamp(),
                time=lambda: current().machine_clock().timestamp(),
                sleep=sleep,
            ),
        ),
    ):
        yield
