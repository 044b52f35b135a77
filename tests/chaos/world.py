"""A small lakeFS with its store, state, tree and clock, and the processes that use it.

A process (``Process``) is one run of one command: with a clock of its own (``skew``), an interruption, and
what it has read. It ends by returning or by being killed; nothing of it is left in memory then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lakeplan.branches.deleting import RunPorts
from lakeplan.branches.pin_records import PinRecords
from lakeplan.branches.recall import Readers
from lakeplan.cli.wiring import ServerConnection
from lakeplan.lakefs.client import LakeFSBranchReader, LakeFSServer
from lakeplan.lakefs.transport import Clock as WaitingClock
from lakeplan.lakefs.writers import (
    LakeFSBranchWriter,
    LakeFSMetadataWriter,
    LakeFSPreparer,
    LakeFSRulesWriter,
    LakeFSSettingsWriter,
)
from lakeplan.plan.planning import Ports
from lakeplan.review.run import ApplyPorts, Run
from lakeplan.sandbox.messages import Request, Response
from lakeplan.sweep.ports import SweepPorts
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.progress import Silent
from lakeplan.values.repository import Repository
from tests.chaos.channel import Channel
from tests.chaos.faults import Calls, Interruption
from tests.chaos.truth import Days, Truth, days_of
from tests.chaos.wire import Ask, WireLake
from tests.memory import MemoryState
from tests.sweeping.lake import Clock, LakeRepository
from tests.sweeping.world import SweepWorld

REPOSITORY = "repo1"
WRITES = ("put", "create", "copy", "delete", "write")


@dataclass
class Process:
    """``alive``: whether others see that it runs. ``read`` is what the server last told it: by branch a HEAD,
    under ``rules`` the stored days. ``inspected`` are addresses that something held when it last asked for
    uncommitted data, ``dumped`` those that other repositories held when it last asked for their refs."""

    number: int
    calls: Calls
    skew: timedelta
    alive: bool = True
    read: dict[str, Any] = field(default_factory=dict)
    inspected: dict[str, str] | None = None
    dumped: dict[str, Mapping[str, str]] = field(default_factory=dict)
    doing: dict[str, Any] = field(default_factory=dict)
    tree: dict[str, Any] = field(default_factory=dict)
    """``sweep``, ``safety``, ``gc``, ``holds``, ``policies``, ``assume_created`` and ``notice_period`` when
    it started: it reads its tree once."""


class Watched:
    """A port in front of another: every call is one of the process's, and the watcher's ``before`` hears of
    it just before it has its effect, ``after`` just after."""

    def __init__(self, port: str, inner: Any, world: ChaosWorld) -> None:
        self._port, self._inner, self._world = port, inner, world

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._inner, name)
        if not callable(target):
            return target
        return lambda *args, **more: self._call(name, target, args, more)

    def _call(self, name: str, target: Callable[..., Any], args: tuple[Any, ...], more: Any) -> Any:
        world, writes = self._world, name in WRITES

        def act() -> Any:
            if self._port == "store" and writes:
                world.watcher.before_store(name, args, more.get("expected"))
            elif name == "list_objects" and not args and world.process is not None:
                world.watcher.before_listing(world.process)
            answer = target(*args, **more)
            if self._port == "store":
                world.date_files(name, args)
            elif self._port == "state" and world.process is not None:
                world.watcher.after_state(world.process, name, str(args[0] if args else ""))
            return answer

        if world.process is None:
            return act()
        key = args[0] if args else ""
        text = f"{name} {key if isinstance(key, str) else f'{len(key)} keys'}"
        return world.process.calls.around(self._port, text, writes, act)


class Watcher:
    """Hears of what processes do. The checker is one."""

    def before_store(self, name: str, args: tuple[Any, ...], expected: Mapping[str, Any] | None) -> None:
        """Just before a writing call of the store; ``expected`` is what a deletion is conditional on."""

    def before_listing(self, process: Process) -> None:
        """Just before all data is listed."""

    def before_server(self, process: Process, request: Request) -> None:
        """Just before a request has its effect."""

    def after_state(self, process: Process, name: str, key: str) -> None:
        """Just after a call of the state took effect."""

    def after_server(self, process: Process, request: Request) -> None:
        """Just after it, whether the process gets an answer or not."""

    def told(self, process: Process, request: Request, response: Response) -> None:
        """A process got this answer."""

    def ended(self, process: Process) -> None:
        """It ended without an error."""


class ChaosWorld(SweepWorld):
    """``policies`` and ``branch_settings`` are the tree's too. ``mirror`` may put a real store in front of
    the folder."""

    def __init__(self, folder: Path, mirror: Callable[[Path], Any] | None = None) -> None:
        super().__init__(folder, WireLake(folder / "lake", Clock()))
        self.policies: list[dict[str, Any]] = []
        self.branch_settings: dict[str, Any] = {}
        self.channel = Channel(self)
        self.pins: dict[str, Any] = {}
        self.watcher = Watcher()
        self.process: Process | None = None
        self.alive: set[int] = set()
        self.memory = MemoryState()
        self.state = Watched("state", self.memory, self)
        self.truth = Truth(self.wire)
        self.wire.meddle, self.wire.machine_clock = self._meddle, self.now
        self._mirror = mirror
        self._stores: dict[str, Any] = {}
        self._processes = 0
        self._loaded: tuple[str, Tree] | None = None
        self.marker.rows = 2
        self.sweeper.by_the_clock = True

    @property
    def wire(self) -> WireLake:
        assert isinstance(self.lake, WireLake)
        return self.lake

    def repository(self, name: str = REPOSITORY) -> LakeRepository:
        return self.lake.repository(name)

    # ---- processes
    @contextmanager
    def running(
        self, interruption: Interruption | None = None, *, skew_hours: float = 0, **doing: Any
    ) -> Iterator[Process]:
        """A process. May be inside another one's: that one waits meanwhile."""
        self._processes += 1
        process = Process(self._processes, Calls(interruption), timedelta(hours=skew_hours), doing=doing)
        process.tree = {"sweep": dict(self.sweep), "safety": dict(self.safety), "gc": self.gc}
        process.tree |= {"holds": list(self.holds), "policies": self.policies}
        process.tree["assume_created"] = self.branch_settings.get("assume_created", "never")
        process.tree["notice_period"] = self.branch_settings.get("notice_period", "0s")
        before, connections = self.process, self._connections
        self.process, self._connections = process, None
        self.alive.add(process.number)
        try:
            yield process
            self.watcher.ended(process)
        finally:
            self.alive.discard(process.number)
            self.process, self._connections = before, connections

    def now(self) -> datetime:
        """The time by the clock of the running process."""
        skew = self.process.skew if self.process is not None else timedelta()
        return self.lake.clock() + skew

    def run_of(self, user: str = "ann") -> Run:
        number = self.process.number if self.process is not None else 0
        holder = {"user": user, "host": "here", "pid": number}
        text = self.lake.clock().strftime("%Y%m%dT%H%M%S")
        run_id = f"{text}.{next(self._numbers):06}Z-{number:08x}"

        def is_gone(other: Mapping[str, Any]) -> bool:
            return other.get("pid") not in self.alive

        return Run(run_id, holder, self.now, is_gone, sleep=self._sleep)

    def new_official_id(self) -> str:
        return self._xids.descending()

    # ---- the tree
    def document(self) -> dict[str, Any]:
        storages = {"": {"type": "local", "path": str(self.lake.folder)}}
        repository: dict[str, Any] = {"sweep": self.sweep}
        repository |= {"holds": self.holds} if self.holds else {}
        repository |= {"gc": self.gc} if self.gc is not None else {}
        managed = isinstance(self.gc, dict)
        repository |= {"pins": self.pins} if self.pins and managed else {}
        branches = {**({"policies": self.policies} if self.policies else {}), **self.branch_settings}
        repository |= {"branch_lifecycle": branches} if branches else {}
        prod: dict[str, Any] = {"endpoint_url": self.lake.handle.endpoint_url, "storages": storages}
        prod["branch_lifecycle"] = {"engine": "lakeplan"}
        return {
            "apiVersion": "lakeplan/v1",
            "servers": {"prod": prod},
            "state": {"url": f"file://{self.folder}/state"},
            "safety": self.safety,
            "repositories": {REPOSITORY: repository},
        }

    def tree(self) -> Tree:
        text = json.dumps(self.document())
        if self._loaded is None or self._loaded[0] != text:
            root = self.folder / "tree"
            root.mkdir(exist_ok=True)
            (root / "lakeplan.yaml").write_text(text)
            self._loaded = (text, load_tree(root, {}))
        return self._loaded[1]

    @property
    def tree_days(self) -> Days | None:
        """Days that the tree gives; None when it manages none, or clears them."""
        return days_in(self.gc)

    # ---- ports
    def ports(self) -> SweepPorts:
        server = self.tree().servers["prod"]
        reader = LakeFSServer.connect(server, self._credentials, clock=self._waiting)
        preparer = LakeFSPreparer.connect(server, self._credentials, clock=self._waiting)
        return replace(
            super().ports(),
            reader=lambda name: reader,
            preparer=lambda name: preparer,
            store=lambda server, repository: self.store(repository),
        )

    def store(self, repository: Repository) -> Any:
        name = repository.storage_namespace.removeprefix("local://")
        if name not in self._stores:
            inner = super().ports().store(self.tree().servers["prod"], repository)
            if self._mirror is not None:
                inner = self._mirror(self.lake.folder / name)
            self._stores[name] = Watched("store", inner, self)
        return self._stores[name]

    def branches_ports(self) -> RunPorts:
        server, waiting = self.tree().servers["prod"], self._waiting
        readers = Readers(
            LakeFSServer.connect(server, self._credentials, clock=waiting),
            LakeFSBranchReader.connect(server, self._credentials, clock=waiting),
        )
        writer = LakeFSBranchWriter.connect(server, self._credentials, clock=waiting)
        ports = RunPorts(lambda _: readers, lambda _: writer, self.state, Silent(), self.stop)
        rules = LakeFSRulesWriter.connect(server, self._credentials, clock=waiting)
        return replace(ports, publisher=self.channel, rules=lambda _: rules)

    def pin_ports(self, simulator: Any) -> tuple[Ports, ApplyPorts]:
        """The ports of plans and applies that manage pins."""
        ports = Ports(lambda name: self.connection(name).reader, simulator, Silent())
        ports = replace(ports, pins=PinRecords(self.state))
        return ports, ApplyPorts(self.connection, self.state, Silent())

    def connection(self, name: str) -> ServerConnection:
        """A server for ``apply``."""
        server, waiting = self.tree().servers[name], self._waiting
        return ServerConnection(
            LakeFSServer.connect(server, self._credentials, clock=waiting),
            LakeFSRulesWriter.connect(server, self._credentials, clock=waiting),
            LakeFSSettingsWriter.connect(server, self._credentials, clock=waiting),
            LakeFSBranchReader.connect(server, self._credentials, clock=waiting),
            LakeFSMetadataWriter.connect(server, self._credentials, clock=waiting),
            LakeFSBranchWriter.connect(server, self._credentials, clock=waiting),
        )

    @property
    def _waiting(self) -> WaitingClock:
        """Retries wait by the world's clock."""
        at = self.lake.clock
        return WaitingClock(lambda: at().timestamp(), lambda: at().timestamp(), self._sleep, lambda: 0.5)

    def _sleep(self, seconds: float) -> None:
        self.lake.clock.advance(hours=seconds / 3600)

    # ---- what is heard
    def _meddle(self, request: Request, ask: Ask) -> Response:
        process = self.process
        if process is None:
            return ask()

        def act() -> Response:
            self.watcher.before_server(process, request)
            try:
                return ask()
            finally:
                self.watcher.after_server(process, request)

        call = f"{request.method} {request.path}"
        response: Response = process.calls.around("server", call, request.method != "GET", act)
        self.watcher.told(process, request, response)
        return response

    def date_files(self, name: str, args: tuple[Any, ...]) -> None:
        """Dates new files of the store by the world's clock instead of this machine's."""
        key = {"put": 0, "create": 0, "copy": 1}.get(name)
        if key is None or not isinstance(args[key], str):
            return
        path = self.lake.handle.namespace_folder(REPOSITORY) / args[key]
        if path.is_file():
            at = self.lake.clock().timestamp()
            os.utime(path, (at, at))


def days_in(gc: dict[str, Any] | str | None) -> Days | None:
    return None if gc is None or isinstance(gc, str) else days_of(gc)


def keys_of(args: Sequence[Any]) -> list[str]:
    """The keys that a deletion names, as names or as values with a key."""
    return [one if isinstance(one, str) else one.key for one in args[0]]
