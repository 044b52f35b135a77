"""A tree, a sandbox and the plain engine: sweeps over HTTP in milliseconds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lakeplan.errors import LakeplanError, ServerUnreachable
from lakeplan.formats.marks import read_part
from lakeplan.formats.namespace import XidSource, mark_prefix, part_id, result_key, sweep_prefix
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.lakefs.transport import RetryPolicy
from lakeplan.lakefs.writers import LakeFSPreparer
from lakeplan.review.gates import GateOverrides
from lakeplan.review.run import Run
from lakeplan.review.selection import Selection
from lakeplan.simulation.requests import UncommittedPreparer
from lakeplan.stores.open import SweepStore, open_state, open_sweep_store
from lakeplan.sweep.finish import finish
from lakeplan.sweep.judge import approve
from lakeplan.sweep.mark import MarkOptions, make_marks
from lakeplan.sweep.mark_record import Approval, Mark
from lakeplan.sweep.ports import Site, SweepPorts, open_site, select_one
from lakeplan.sweep.records import StoredMark, load_mark, newest_attempts
from lakeplan.sweep.run import SweepEnd, close_sweep, run_sweep
from lakeplan.sweep.service import MarkReport, find_mark, mark_all
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.desired import ServerConfig
from lakeplan.values.progress import Silent
from lakeplan.values.repository import Repository
from lakeplan.values.simulation import UncommittedRun
from lakeplan.values.sweep import SweepSettings
from tests.sweeping.lake import Lake
from tests.sweeping.plain import PlainMarker, PlainSweeper
from tests.sweeping.stores import TimedStore

ONE_TRY = RetryPolicy(tries=1)
NO_WAIT = {"settle": "0s", "margin": "0s"}


@dataclass
class SweepWorld:
    """``sweep``, ``gc``, ``pins``, ``holds`` and ``safety`` are what the tree says of every repository,
    ``entry`` how it names them. ``chosen`` are a person's options for a mark, ``grace_seconds`` the server's.
    ``skew`` is how far this machine's clock is ahead of the server's, ``store_skew`` the store's. ``wrap``
    may put something in front of the store, ``between`` runs between uncommitted data and the refs dump."""

    folder: Path
    lake: Lake
    sweep: dict[str, Any] = field(default_factory=lambda: dict(NO_WAIT))
    safety: dict[str, Any] = field(default_factory=lambda: {"max_expired_objects_percent": 100})
    holds: list[dict[str, Any]] = field(default_factory=list)
    gc: dict[str, Any] | str | None = None
    pins: dict[str, Any] = field(default_factory=dict)
    overrides: list[dict[str, Any]] = field(default_factory=list)
    entry: str = "repo*"
    chosen: Callable[[SweepSettings], SweepSettings] = lambda settings: settings
    grace_seconds: int | None = None
    skew: timedelta = timedelta()
    store_skew: timedelta = timedelta()
    allowed: frozenset[str] = frozenset()
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """More servers of the tree; those in ``lost`` do not answer."""
    lost: frozenset[str] = frozenset()
    readers: dict[str, LakeFSReader] = field(default_factory=dict)
    wrap: Callable[[SweepStore], Any] = lambda store: store
    between: Callable[[], None] = lambda: None
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.marker, self.sweeper = PlainMarker(), PlainSweeper()
        self.state = open_state(f"file://{self.folder}/state")
        self._tree: tuple[str, Tree] | None = None
        self._connections: tuple[LakeFSReader, UncommittedPreparer] | None = None
        self._numbers = itertools.count(1)
        self._xids = XidSource(lambda: self.now().timestamp(), lambda n: b"\x01" * n)
        self._credentials = Credentials(
            Secret(self.lake.handle.access_key_id), Secret(self.lake.handle.secret_access_key)
        )

    def now(self) -> datetime:
        """This machine's clock."""
        return self.lake.clock() + self.skew

    def store_now(self) -> datetime:
        return self.lake.clock() + self.store_skew

    # ---- the tree
    def tree(self) -> Tree:
        """The tree as its files would be now."""
        storages = {"": {"type": "local", "path": str(self.lake.folder)}}
        repository: dict[str, Any] = {"sweep": self.sweep}
        if self.holds:
            repository["holds"] = self.holds
        if self.gc is not None:
            repository["gc"] = self.gc
        if self.pins:
            repository["pins"] = self.pins
        document = {
            "apiVersion": "lakeplan/v1",
            "servers": {
                "prod": {"endpoint_url": self.lake.handle.endpoint_url, "storages": storages},
                **self.servers,
            },
            "defaults": {"server": "prod"},
            "state": {"url": f"file://{self.folder}/state"},
            "safety": self.safety,
            "repositories": {self.entry: repository},
            "overrides": self.overrides,
        }
        text = json.dumps(document)
        if self._tree is None or self._tree[0] != text:
            root = self.folder / "tree"
            root.mkdir(exist_ok=True)
            (root / "lakeplan.yaml").write_text(text)
            self._tree = (text, load_tree(root, {}))
        return self._tree[1]

    def ports(self) -> SweepPorts:
        def store(server: ServerConfig, repository: Repository) -> SweepStore:
            name = repository.storage_namespace.removeprefix("local://")
            folder = self.lake.folder / name
            timed: Any = TimedStore(open_sweep_store(str(folder)), folder, self.store_now)
            wrapped: SweepStore = self.wrap(timed)
            return wrapped

        if self._connections is None:
            server = self.tree().servers["prod"]
            self._connections = (
                LakeFSServer.connect(server, self._credentials, retries=ONE_TRY),
                LakeFSPreparer.connect(server, self._credentials, retries=ONE_TRY),
            )
        reader, preparer = self._connections

        def read(name: str) -> LakeFSReader:
            if name in self.lost:
                raise ServerUnreachable("connection refused", where=name)
            return self.readers.get(name, reader)

        return SweepPorts(
            reader=read,
            preparer=lambda name: _Preparer(preparer, lambda: self.between(), self.grace_seconds),
            store=store,
            marker=self.marker,
            sweeper=self.sweeper,
            state=self.state,
            progress=Silent(),
            now=self.now,
            stop=self.stop,
        )

    def run_of(self, user: str = "ann") -> Run:
        number = next(self._numbers)
        holder = {"user": user, "host": "here", "pid": number}
        # whoever ran before in this process is gone: killed runs leave their lease behind
        return Run(f"run-{number:04}", holder, self.now, lambda holder: True)

    def site(self, name: str = "repo1") -> Site:
        tree, ports = self.tree(), self.ports()
        return open_site(select_one(tree, f"prod/{name}"), tree, ports)

    @property
    def gate_overrides(self) -> GateOverrides:
        return GateOverrides(self.allowed, tuple(self.tree().overrides), self.now().date())

    # ---- commands
    def mark(self, name: str = "repo1") -> Mark:
        site = self.site(name)
        options = MarkOptions(
            f"m{next(self._numbers):04}", self.chosen(site.desired.sweep), self.gate_overrides
        )
        ((_, made),) = make_marks([(site, options)], self.ports(), self.run_of())
        if isinstance(made, LakeplanError):
            raise made
        if not isinstance(made, Mark):
            raise LakeplanError(str(made))
        return made

    def mark_all(self) -> MarkReport:
        return mark_all(
            self.tree(),
            Selection((), None, None),
            self.ports(),
            self.run_of(),
            settings=lambda settings: settings,
            overrides=self.gate_overrides,
            new_mark_id=lambda: f"m{next(self._numbers):04}",
        )

    def stored(self, mark: Mark) -> StoredMark:
        return load_mark(self.site(mark.repository), self.state, mark.mark_id)

    def approve(self, mark: Mark) -> Approval:
        site = self.site(mark.repository)
        stored = load_mark(site, self.state, mark.mark_id)
        return approve(
            site, stored, self.state, self.run_of(), reason="a test", overrides=self.gate_overrides
        )

    def run(self, mark: Mark) -> SweepEnd:
        """Only the sweep; what it leaves behind for others is ``finish``'s."""
        site = self.site(mark.repository)
        return run_sweep(site, load_mark(site, self.state, mark.mark_id), self.ports(), self.run_of())

    def close(self, mark: Mark) -> SweepEnd:
        site, stored = find_mark(self.tree(), mark.mark_id, self.ports())
        return close_sweep(site, stored, self.ports(), self.run_of())

    def finish(self, end: SweepEnd) -> dict[str, Any]:
        site = self.site(end.mark.repository)
        return finish(site, end, self.ports(), self.run_of(), run_id=self._xids.descending())

    def sweep_of(self, mark: Mark) -> dict[str, Any]:
        """Approves, sweeps, finishes."""
        self.approve(mark)
        return self.finish(self.run(mark))

    # ---- what is written down
    def going(self, mark: Mark) -> dict[str, str]:
        """Classes of what may go, by address."""
        return self._classes(mark, mark.marked.going)

    def kept(self, mark: Mark) -> dict[str, str]:
        return self._classes(mark, mark.marked.kept)

    def _classes(self, mark: Mark, parts: Sequence[Any]) -> dict[str, str]:
        store = self.site(mark.repository).store
        found = {}
        for part in parts:
            key = mark_prefix(mark.mark_id) + part.name
            for row in read_part(store.read(key), name=key, sha256=part.sha256).to_pylist():
                found[row["address"]] = row["class"]
        return found

    def part_of(self, mark: Mark, address: str) -> str:
        """The name of the part that lets an address go."""
        parts = mark.marked.going
        (name,) = (part.name for part in parts if address in self._classes(mark, [part]))
        return name

    def ends(self, mark: Mark) -> dict[str, tuple[str, str]]:
        """The result for every object, by address, from the records."""
        store = self.site(mark.repository).store
        found: dict[str, tuple[str, str]] = {}
        attempts = newest_attempts(self.site(mark.repository).store, mark.mark_id)
        for part in mark.marked.going:
            if (attempt := attempts.get(part_id(part.name))) is not None:
                key = result_key(sweep_prefix(mark.mark_id), part.name, attempt)
                for row in read_part(store.read(key), name=key, sha256=None).to_pylist():
                    assert row["address"] not in found
                    found[row["address"]] = (row["status"], row["reason"])
        return found


@dataclass(frozen=True)
class _Preparer:
    """The server's, with something that happens after it and before the refs dump."""

    inner: UncommittedPreparer
    after: Callable[[], None]
    grace_seconds: int | None = None

    def prepare_uncommitted(self, repository: str) -> tuple[UncommittedRun, ...]:
        runs = self.inner.prepare_uncommitted(repository)
        self.after()
        return runs

    def grace_period_seconds(self) -> int | None:
        return self.grace_seconds or self.inner.grace_period_seconds()
