"""Checks of everything that a plan, an apply, a branch run or a sweep needs, each with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol, TypedDict, get_args
from uuid import uuid4

from lakeplan.doctor.repositories import (
    Check,
    Purpose,
    Result,
    check_branch_policies,
    check_branch_protectors,
    check_engine,
    check_hidden_branches,
    check_may_claim,
    check_repositories,
    clock,
    grant,
    of_error,
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
from lakeplan.values.units import count_of

DOCTOR_FORMAT: Literal["lakeplan.doctor/v1"] = "lakeplan.doctor/v1"


ONLY_SPARK = (
    "Only Spark needs Java: `--runner spark`, `--master`, and simulations of more than 20 million entries."
)


class CheckedServer(Protocol):
    @property
    def reader(self) -> LakeFSReader: ...
    @property
    def writer(self) -> GcRulesWriter: ...
    @property
    def branches(self) -> BranchReader: ...


@dataclass(frozen=True)
class DoctorPorts:
    """The dependencies of the checks. ``bound`` returns the variable that would bind a server's credentials
    to its address, or "" if they are bound. ``spark`` starts Spark and returns what ran; None skips that.
    ``spark_asked``: the tree or an option names Spark. ``state`` opens the state, to which all purposes but
    ``plan`` write. ``preparer`` and ``store`` are for ``sweep``."""

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
    """Every check except those of the tree. If a server does not answer, its other checks are skipped.
    ``ephemeral`` is why a state in a folder would be lost after this run, or ""."""
    for server in tree.servers:
        if selection.server in (None, server):
            checks = _check_server(tree, server, selection, ports, purpose, now, read_only=read_only)
            yield from in_area(f"server {server}", checks)
    key = f"doctor/{now():%Y%m%dT%H%M%S%fZ}.json"
    yield from in_area("state", check_state(ports.state, purpose, key=key, read_only=read_only))
    if ephemeral:
        hint = "Set state.url in the tree to an s3://, gs:// or Azure blob URL."
        # Both refuse such a state, because it decides what they may delete.
        result: Result = "fail" if purpose in ("branches", "sweep") else "warn"
        yield Check("is kept", result, ephemeral, hint, "state")
    if ports.spark is not None:
        yield from in_area("spark", [_check_spark(ports.spark, asked=ports.spark_asked)])


def in_area(area: str, checks: Iterable[Check]) -> Iterator[Check]:
    """The checks; those without an area get this one."""
    return (check if check.area else replace(check, area=area) for check in checks)


def _check_spark(run: Callable[[], str], *, asked: bool) -> Check:
    try:
        return Check("Java and Spark start", "ok", run())
    except LakeplanError as error:
        failed = _failed("Java and Spark start", error)
        return failed if asked else replace(failed, result="warn", hint=f"{ONLY_SPARK} {failed.hint}")


def _check_server(
    tree: DesiredTree,
    server: str,
    selection: Selection,
    ports: DoctorPorts,
    purpose: Purpose,
    now: Callable[[], datetime],
    *,
    read_only: bool,
) -> Iterator[Check]:
    try:
        connection = ports.connect(server)
    except LakeplanError as error:
        yield _skipping(_failed("credentials", error))
        return
    yield Check("credentials", "ok", "found; their values are not shown")
    if unbound := ports.bound(server):
        text = (
            "the credentials are not bound to an address, so a changed endpoint_url in the tree would"
            " receive them"
        )
        yield Check("binding", "warn", text, f"Set {unbound}. It is required without a terminal.")
    else:
        yield Check("binding", "ok", "the credentials are bound to the endpoint_url in the tree")
    try:
        identity = ports.identify(server)
    except LakeplanError as error:
        yield _skipping(_failed("reachable", error))
        return
    engine = tree.servers[server].branch_lifecycle_engine
    yield Check("reachable", "ok", f"{identity.flavour} {identity.version}")
    yield check_flavour(identity, engine)
    yield check_clock(identity.date, now())
    reader = connection.reader
    try:
        live = {repository.id: repository for repository in reader.list_repositories()}
    except LakeplanError as error:
        yield of_error("fs:ListRepositories", error, grant("fs:ListRepositories", error))
        live = None
    if live is not None:
        selected = [one for one in tree.resolve(server, live) if selection.takes(one)]
        others = [name for name in live if selection.takes_named(server, name, None)]
        writer = connection.writer if purpose == "apply" else None
        yield Check("fs:ListRepositories", "ok", count_of(len(live), "repository"))
        yield from check_repositories(
            selected, live, others, reader, writer, ports.progress, read_only=read_only
        )
    if purpose == "branches":
        yield check_engine(engine)
    if live is None:
        return
    if purpose in ("plan", "apply") and engine == "lakeplan":
        yield from check_branch_protectors(selected, live, connection.branches)
    if purpose == "apply":
        yield from check_hidden_branches(selected, live, reader)
        yield from check_may_claim(tree.name, selected, live, reader)
    elif purpose == "branches":
        yield from check_branch_policies(selected, live, connection.branches)
    elif purpose == "sweep":
        doctor = SweepDoctor(
            tree.servers[server], reader, ports.preparer(server), ports.store, now, uuid4().hex, read_only
        )
        yield from in_area(f"sweep {server}", check_sweep(selected, live, doctor))


def check_flavour(identity: ServerIdentity, engine: str) -> Check:
    """Check that the server has the edition that the tree expects."""
    if engine == "server" and not identity.is_enterprise:
        text = "the tree has branch_lifecycle.engine: server, which only lakeFS Enterprise supports"
        return Check("edition", "fail", text, "Set branch_lifecycle.engine to lakeplan or none.")
    return Check("edition", "ok", f"{identity.flavour}, as the tree expects")


def check_clock(date: datetime | None, now: datetime) -> Check:
    """Compare the server's clock, which decides when its days begin, with this machine's, which plans use."""
    if date is None:
        text = "the server sends no Date header, so its time is unknown"
        return Check("clock", "warn", text, "Check the server's clock manually.")
    return clock(
        "clock", date, now, "Synchronize both clocks with NTP, because retention is computed from them."
    )


def check_channels(config: NotifyConfig, problem_of: Callable[[Channel], str]) -> Iterator[Check]:
    """Check that the URL of each channel is set. Sends nothing."""
    for name, channel in sorted(config.channels.items()):
        if problem := problem_of(channel):
            hint = f"Set {channel.variable} in the environment of every command that sends notifications."
            yield Check(f"channel {name}", "warn", problem, hint)
        else:
            yield Check(f"channel {name}", "ok", "its URL is set; nothing was sent")


def check_state(
    open_state: Callable[[], StateWriter], purpose: Purpose, *, key: str, read_only: bool
) -> Iterator[Check]:
    """Check that the state can be read and, for all purposes but a plan, written conditionally: the store
    must refuse a second writer. The test record is deleted. With ``read_only``, doctor writes nothing."""
    try:
        state = open_state()
        records = len(state.list_keys("applied/"))
    except LakeplanError as error:
        yield _failed("readable", error)
        return
    yield Check("readable", "ok", f"contains apply records for {count_of(records, 'repository')}")
    if purpose == "plan":
        return
    if read_only:
        text = f"not tested with --read-only, but `lakeplan {purpose}` writes to the state"
        yield Check("writable", "warn", text, "Run `lakeplan doctor` without --read-only.")
        return
    try:
        version = state.write(key, b"{}\n", if_version=None)
    except LakeplanError as error:
        yield _failed("writable", error)
        return
    yield Check("writable", "ok", "a record can be written")
    try:
        state.write(key, b'{"second": true}\n', if_version=None)
    except WriteConflict:
        yield Check("conditional writes", "ok", "a second writer is refused")
    except LakeplanError as error:
        yield _failed("conditional writes", error)
    else:
        hint = (
            "Use a store that supports conditional writes (for example, AWS S3, Google Cloud Storage or Azure"
            " Blob Storage). Leases do not work without conditional writes."
        )
        yield Check(
            "conditional writes", "fail", "the store allowed a second writer to overwrite a record", hint
        )
    try:
        current = state.read(key)
        state.delete(key, if_version=current.version if current else version)
    except LakeplanError as error:
        yield _failed("deletable", error)
    else:
        yield Check("deletable", "ok", "the test record was deleted")


def _failed(name: str, error: LakeplanError) -> Check:
    return of_error(name, error, error.hint or "Run with --log-level debug.")


def _skipping(check: Check) -> Check:
    return replace(check, message=f"{check.message}. The other checks of this server were skipped")


class CheckRow(TypedDict):
    area: str
    check: str
    result: Result
    message: str
    hint: str


DoctorDocument = TypedDict(
    "DoctorDocument",
    {
        "format": Literal["lakeplan.doctor/v1"],
        "for": Purpose,
        "checks": list[CheckRow],
        "summary": dict[Result, int],
    },
)
"""``schemas/doctor.v1.json``."""


def doctor_document(checks: Sequence[Check], purpose: Purpose) -> DoctorDocument:
    """The checks in their order, and how many have each result."""
    return {
        "format": DOCTOR_FORMAT,
        "for": purpose,
        "checks": [
            {"area": c.area, "check": c.name, "result": c.result, "message": c.message, "hint": c.hint}
            for c in checks
        ],
        "summary": {result: sum(c.result == result for c in checks) for result in get_args(Result)},
    }
