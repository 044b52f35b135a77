"""Checks of everything that a plan, an apply, a branch run or a sweep needs, one by one, each with what to
do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Literal, Protocol, TypedDict
from uuid import uuid4

from lakeplan.doctor import repositories
from lakeplan.doctor.repositories import (
    CheckResult,
    Purpose,
    Word,
    check_hidden_branches,
    check_lifecycle,
    check_may_claim,
    check_repositories,
)
from lakeplan.doctor.sweep import SweepDoctor, check_sweep
from lakeplan.errors import LakeplanError, WriteConflict
from lakeplan.lakefs.protocols import BranchReader, GcRulesWriter, LakeFSReader
from lakeplan.review.selection import Selection
from lakeplan.simulation.requests import UncommittedPreparer
from lakeplan.stores.protocols import StateWriter, SweepStore
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import ServerConfig
from lakeplan.values.notify import Channel, NotifyConfig
from lakeplan.values.progress import Progress
from lakeplan.values.repository import Repository, ServerIdentity

DOCTOR_FORMAT: Literal["lakeplan.doctor/v1"] = "lakeplan.doctor/v1"


class Result(str, Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


ONLY_SPARK = (
    "Only Spark needs Java: `--runner spark`, `--master`, and simulations of more than 20 million entries."
)


@dataclass(frozen=True)
class Check:
    """``area`` is what was inspected (``tree``, ``server prod``, ``state``, ``spark``); ``hint`` is what to
    do when the result is not ok."""

    area: str
    name: str
    result: Result
    message: str
    hint: str = ""


class CheckedServer(Protocol):
    @property
    def reader(self) -> LakeFSReader: ...
    @property
    def writer(self) -> GcRulesWriter: ...
    @property
    def branches(self) -> BranchReader: ...


@dataclass(frozen=True)
class DoctorPorts:
    """``bound`` tells whether a server's credentials are bound to its address. ``spark`` starts Spark and
    says what ran; None leaves it out. ``spark_asked``: the tree or an option names Spark. ``state`` opens the
    store, written to by all but ``plan``. ``preparer`` and ``store`` are for ``sweep``."""

    connect: Callable[[str], CheckedServer]
    identify: Callable[[str], ServerIdentity]
    bound: Callable[[str], str]
    state: Callable[[], StateWriter]
    spark: Callable[[], str] | None
    spark_asked: bool
    progress: Progress
    preparer: Callable[[str], UncommittedPreparer]
    store: Callable[[ServerConfig, Repository], SweepStore]


def examine(
    tree: DesiredTree,
    selection: Selection,
    ports: DoctorPorts,
    *,
    purpose: Purpose,
    now: Callable[[], datetime],
    read_only: bool,
    ephemeral: str = "",
) -> Iterator[Check]:
    """Every check after the tree's own. A server that does not answer ends its part; the rest continues.
    ``ephemeral`` says why a state in a folder would not outlive this run; empty when it does."""
    for server in tree.servers:
        if selection.server in (None, server):
            yield from _server(tree, server, selection, ports, purpose, now, read_only=read_only)
    yield from check_state(ports.state, purpose, key=f"doctor/{now():%Y%m%dT%H%M%S%fZ}.json")
    if ephemeral:
        hint = "Name a store in the tree: state: {url: s3://…}, gs://… or an Azure blob URL."
        # These two refuse it: what they remember decides what they may delete.
        result = Result.FAIL if purpose in ("branches", "sweep") else Result.WARN
        yield Check("state", "it stays", result, ephemeral, hint)
    if ports.spark is not None:
        found = _tried("spark", "Java and Spark start", ports.spark)
        if found.result is Result.FAIL and not ports.spark_asked:
            found = replace(found, result=Result.WARN, hint=f"{ONLY_SPARK} {found.hint}")
        yield found


def _server(
    tree: DesiredTree,
    server: str,
    selection: Selection,
    ports: DoctorPorts,
    purpose: Purpose,
    now: Callable[[], datetime],
    *,
    read_only: bool,
) -> Iterator[Check]:
    area = f"server {server}"
    try:
        connection = ports.connect(server)
    except LakeplanError as error:
        yield _failed(area, "credentials", error)
        return
    unbound = ports.bound(server)
    yield Check(area, "credentials", Result.OK, "found; their values were not shown anywhere")
    if unbound:
        text = "not bound to an address, so a changed endpoint_url in the tree would receive them"
        yield Check(area, "binding", Result.WARN, text, f"Set {unbound}. Without a terminal it is required.")
    else:
        yield Check(area, "binding", Result.OK, "bound to the tree's address")
    try:
        identity = ports.identify(server)
    except LakeplanError as error:
        yield _failed(area, "reachable", error)
        return
    yield Check(area, "reachable", Result.OK, f"{identity.flavour} {identity.version}")
    yield check_flavour(area, identity, tree.servers[server].branch_lifecycle_engine)
    yield check_clock(area, identity.date, now())
    reader = connection.reader
    writer = connection.writer if purpose == "apply" else None
    for found in check_repositories(tree, reader, writer, selection, ports.progress, read_only=read_only):
        yield _of(area, found)
    if purpose == "apply":
        for found in check_hidden_branches(tree, reader, selection):
            yield _of(area, found)
        for found in check_may_claim(tree, reader, selection):
            yield _of(area, found)
    if purpose == "branches":
        for found in check_lifecycle(tree, reader, connection.branches, selection):
            yield _of(area, found)
    elif purpose == "sweep":
        doctor = SweepDoctor(
            tree.servers[server], reader, ports.preparer(server), ports.store, now, uuid4().hex, read_only
        )
        for found in check_sweep(tree, doctor, selection):
            yield _of(f"sweep {server}", found)


def check_flavour(area: str, identity: ServerIdentity, engine: str) -> Check:
    """Whether what the tree expects of the server's edition is there."""
    if engine == "server" and not identity.is_enterprise:
        return Check(
            area,
            "edition",
            Result.FAIL,
            "the tree says branch_lifecycle.engine: server, which only lakeFS Enterprise has",
            "Set the engine to lakeplan or none.",
        )
    return Check(area, "edition", Result.OK, f"{identity.flavour}, as the tree expects")


def check_clock(area: str, date: datetime | None, now: datetime) -> Check:
    """The server's clock against ours. Its days begin by its clock, plans are judged by ours."""
    if date is None:
        text = "the server sends no Date header, so its clock is not known"
        return Check(area, "clock", Result.WARN, text, "Check the server's clock.")
    hint = "Synchronize both clocks with NTP. Retention is counted by them."
    return _of(area, repositories.clock("clock", date, now, hint))


def check_channels(config: NotifyConfig, problem_of: Callable[[Channel], str]) -> Iterator[Check]:
    """Whether the URL of each channel is there. Nothing is sent to it."""
    for name, channel in sorted(config.channels.items()):
        if problem := problem_of(channel):
            hint = f"Set {channel.variable} where plans, applies and runs are made."
            yield Check("notify", f"channel {name}", Result.WARN, problem, hint)
        else:
            yield Check("notify", f"channel {name}", Result.OK, "its URL is set; nothing was sent")


def check_state(open_state: Callable[[], StateWriter], purpose: Purpose, *, key: str) -> Iterator[Check]:
    """Reading; for all but a plan also a conditional write, that a second writer is refused, and the
    clean-up."""
    try:
        state = open_state()
        records = len(state.list_keys("applied/"))
    except LakeplanError as error:
        yield _failed("state", "readable", error)
        return
    noun = "repository" if records == 1 else "repositories"
    yield Check("state", "readable", Result.OK, f"applies of {records:,} {noun} are recorded")
    if purpose == "plan":
        return
    try:
        version = state.write(key, b"{}\n", if_version=None)
    except LakeplanError as error:
        yield _failed("state", "writable", error)
        return
    yield Check("state", "writable", Result.OK, "a record can be written")
    try:
        state.write(key, b'{"second": true}\n', if_version=None)
    except WriteConflict:
        yield Check("state", "conditional writes", Result.OK, "a second writer is refused")
    except LakeplanError as error:
        yield _failed("state", "conditional writes", error)
    else:
        yield Check(
            "state",
            "conditional writes",
            Result.FAIL,
            "the store let a second writer overwrite a record",
            "Use a store with conditional puts (AWS S3, Google Cloud Storage, Azure Blob Storage)."
            " Leases do not hold here.",
        )
    try:
        current = state.read(key)
        state.delete(key, if_version=current.version if current else version)
    except LakeplanError as error:
        yield _failed("state", "deletable", error)
    else:
        yield Check("state", "deletable", Result.OK, "the record was deleted again")


def _tried(area: str, name: str, run: Callable[[], str]) -> Check:
    try:
        return Check(area, name, Result.OK, run())
    except LakeplanError as error:
        return _failed(area, name, error)


def _failed(area: str, name: str, error: LakeplanError) -> Check:
    return Check(area, name, Result.FAIL, error.message, error.hint or "Run with --log-level debug.")


def _of(area: str, found: CheckResult) -> Check:
    return Check(area, found.name, Result(found.result), found.message, found.hint)


class CheckRow(TypedDict):
    area: str
    check: str
    result: Word
    message: str
    hint: str


DoctorDocument = TypedDict(
    "DoctorDocument",
    {
        "format": Literal["lakeplan.doctor/v1"],
        "for": Purpose,
        "checks": list[CheckRow],
        "summary": dict[Word, int],
    },
)
"""``schemas/doctor.v1.json``."""


def doctor_document(checks: Sequence[Check], purpose: Purpose) -> DoctorDocument:
    """Every check in its order."""
    return {
        "format": DOCTOR_FORMAT,
        "for": purpose,
        "checks": [
            {
                "area": c.area,
                "check": c.name,
                "result": c.result.value,
                "message": c.message,
                "hint": c.hint,
            }
            for c in checks
        ],
        "summary": {r.value: sum(1 for c in checks if c.result is r) for r in Result},
    }
