"""Checks of everything that a plan, an apply, a branch run or a sweep needs, each with what to do.

Storage is tested with two small files below ``_lakeplan/doctor/`` in the namespace, which are written, read,
copied and deleted. Nothing else in the namespace is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol, TypedDict, get_args
from uuid import uuid4

from lakeplan.doctor.repositories import (
    POLICIES,
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
    names,
    of_error,
    on_each,
    summed,
)
from lakeplan.errors import LakeplanError, StorageDenied, StorageError, StorageNotFound, WriteConflict
from lakeplan.formats.namespace import DATA_PREFIX, OWNER_KEY
from lakeplan.lakefs.protocols import BranchReader, GcRulesWriter, LakeFSReader
from lakeplan.limits import parse_json
from lakeplan.review.notify import Answer, url_of
from lakeplan.review.selection import Selection
from lakeplan.simulation.requests import UncommittedPreparer
from lakeplan.stores.open import StateWriter, SweepStore
from lakeplan.sweep.ports import HIDDEN, why_hidden
from lakeplan.sweep.rules import overlapping
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import DesiredRepository, ServerConfig
from lakeplan.values.gates import MIN_AGE
from lakeplan.values.notify import NotifyConfig
from lakeplan.values.progress import Progress
from lakeplan.values.records import moment_of
from lakeplan.values.repository import Repository, ServerIdentity
from lakeplan.values.sweep import LAKEPLAN_PREFIX, Versions
from lakeplan.values.units import count_of
from lakeplan.values.urls import STORAGES, can_be_swept

DATA = b'{"written_by": "lakeplan doctor"}\n'
PREPARE = "retention:PrepareGarbageCollectionUncommitted"


@dataclass(frozen=True)
class SweepDoctor:
    """Checks what a sweep needs. ``store`` opens the namespace of a repository. ``token`` is different in
    every run of doctor."""

    server: ServerConfig
    reader: LakeFSReader
    preparer: UncommittedPreparer
    store: Callable[[ServerConfig, Repository], SweepStore]
    now: Callable[[], datetime]
    token: str
    read_only: bool


def check_sweep(
    selected: Sequence[DesiredRepository], live: Mapping[str, Repository], doctor: SweepDoctor
) -> Iterator[Check]:
    """Check every selected repository whose rules the tree manages. Like a mark, it skips read-only
    repositories. With ``read_only``, doctor writes nothing and does not ask the server to list anything."""
    managed = {
        d.name: d for d in selected if d.gc is not None and d.name in live and not live[d.name].read_only
    }
    if not managed:
        text = (
            "no writable repository whose GC rules the tree manages was found on this server, so storage was"
            " not checked"
        )
        hint = "Add an entry with gc rules or correct the names, then run `lakeplan doctor` again."
        yield Check("storage", "warn", text, hint)
        return

    results = on_each([*managed], lambda name: list(_inspect(managed[name], live, doctor)))
    yield from summed(results)
    yield _others(doctor.reader, [name for name in live if name not in results])
    yield _min_age(doctor.preparer, managed.values())
    yield _prepare(doctor, results)


def _inspect(
    desired: DesiredRepository, live: Mapping[str, Repository], doctor: SweepDoctor
) -> Iterator[Check]:
    repository = live[desired.name]
    namespace = repository.storage_namespace
    shared = overlapping(repository, live.values())
    if shared:
        text = f"repository {shared[0][0].id} {shared[0][1]}, so neither can be swept"
        yield Check(
            "namespace of its own", "fail", text, "Move one of the two repositories to its own namespace."
        )
    else:
        yield Check("namespace of its own", "ok", "no other visible repository uses it")
    if not can_be_swept(namespace):
        text = f"lakeplan cannot sweep {namespace.partition('://')[0]}:// namespaces"
        yield Check("storage settings", "fail", text, "Use the official collector for this repository.")
        return
    try:
        store = doctor.store(doctor.server, repository)
    except LakeplanError as error:
        yield of_error("storage settings", error)
        return
    yield Check("storage settings", "ok", f"{namespace} is {store.url}")
    listed = _tried("list objects", lambda: next(iter(store.list_objects(DATA_PREFIX)), None))
    yield listed
    if listed.result == "ok":
        yield from check_facts(store, desired.sweep.versions)
        yield _owner(store, doctor.server, desired)
        if doctor.read_only:
            text = "not tested with --read-only, but a sweep writes, copies and deletes objects"
            yield Check("write objects", "warn", text, "Run `lakeplan doctor` without --read-only.")
        else:
            yield from probe(store, desired.sweep.versions, doctor.token, doctor.now())


def _tried(name: str, ask: Callable[[], object]) -> Check:
    try:
        ask()
    except StorageDenied as error:
        grants = ", or ".join(kind.grants[name] for kind in STORAGES if name in kind.grants)
        return of_error(name, error, f"Grant {grants}. {POLICIES}")
    except LakeplanError as error:
        return of_error(name, error)
    return Check(name, "ok", "works")


def probe(store: SweepStore, versions: Versions, token: str, now: datetime) -> list[Check]:
    """Write, read, copy and delete doctor's own files. Deletes them even if another step fails."""
    key = f"{LAKEPLAN_PREFIX}doctor/{token}.json"
    copy = f"{LAKEPLAN_PREFIX}doctor/{token}-copy.json"
    checks = [_tried("write objects", lambda: store.create(key, DATA))]
    if checks[0].result != "ok":
        return checks

    def read() -> None:
        if store.read(key) != DATA:
            raise StorageError(
                "the content of the test file differs from what lakeplan wrote", where=store.url
            )

    def delete() -> None:
        for answer in store.delete([key, copy], versions=versions):
            if not answer.deleted:
                raise StorageError(answer.reason, where=f"{store.url}/{answer.key}")
        if not (store.is_gone(key) and store.is_gone(copy)):
            raise StorageError("a test file still exists after it was deleted", where=f"{store.url}/{key}")

    checks.append(_tried("read objects", read))
    checks += _store_clock(store, key, now)
    checks.append(_tried("copy objects", lambda: store.copy(key, copy)))
    checks.append(_tried("delete objects", delete))
    return checks


def _store_clock(store: SweepStore, key: str, now: datetime) -> list[Check]:
    try:
        facts = store.stat(key)
    except LakeplanError:
        return []  # the check "read objects" failed too, and says why
    if facts is None:
        return []
    hint = "Synchronize both clocks with NTP, because ages are computed from them."
    return [clock("store's clock", moment_of(facts.modified_us), now, hint)]


def check_facts(store: SweepStore, versions: Versions) -> Iterator[Check]:
    """Check versioning and soft delete, which decide what a sweep frees."""
    try:
        facts = store.facts()
    except LakeplanError as error:
        yield of_error("versions", error)
        return
    if facts.versioned and versions is Versions.MARKER:
        text = "the store keeps older versions of deleted objects, which still cost money"
        yield Check(
            "versions",
            "warn",
            text,
            "Set sweep.versions to all, or add a lifecycle rule for older versions to the store.",
        )
    elif facts.versioned is None:
        text = (
            "the store does not report whether it keeps versions; if it does, deleting objects frees no space"
        )
        hint = "Grant s3:GetBucketVersioning or storage.buckets.get. On Azure, check the account's settings."
        yield Check("versions", "warn", text, hint)
    else:
        text = (
            "kept, but a sweep deletes them too (sweep.versions: all)" if facts.versioned else "none are kept"
        )
        yield Check("versions", "ok", text)
    if facts.soft_delete:
        text = "soft delete is on, so deleted objects keep using space, and lakeplan refuses to create marks"
        hint = "Turn off soft delete for the account (Azure) or bucket (Google Cloud Storage)."
        yield Check("soft delete", "fail", text, hint)
    elif facts.soft_delete is None:
        text = "the store does not report whether soft delete is on"
        hint = "Check the setting, or grant read access to the properties of the account or bucket."
        yield Check("soft delete", "warn", text, hint)
    else:
        yield Check("soft delete", "ok", "off")


def _owner(store: SweepStore, server: ServerConfig, desired: DesiredRepository) -> Check:
    name = "owner.json"
    hint = (
        f"Inspect {OWNER_KEY}. If only the server's address has changed, correct the address in that file"
        " manually."
    )
    try:
        record = parse_json(store.read(OWNER_KEY))
        owner = (str(record["server"]), str(record["repository"]))
    except StorageNotFound:
        return Check(name, "ok", "does not exist yet; the first mark writes it")
    except LakeplanError as error:
        return of_error(name, error)
    except (ValueError, KeyError, TypeError):
        return Check(name, "fail", "it is not a valid record", hint)
    if owner != (server.endpoint_url, desired.name):
        text = f"the namespace belongs to repository {owner[1]} on the server {owner[0]}"
        return Check(name, "fail", text, hint)
    return Check(name, "ok", "identifies this server and repository")


def _others(reader: LakeFSReader, others: list[str]) -> Check:
    """Check that all other repositories can be read. A mark reads them, because they may have imported
    objects from this namespace."""
    name = "other repositories"

    def unreadable(other: str) -> str:
        try:
            next(iter(reader.list_branches(other)), None)
        except LakeplanError:
            return other
        return ""

    try:
        hidden = why_hidden(reader)
    except LakeplanError as error:
        return of_error(name, error)
    bad = [
        *filter(None, on_each(others, unreadable).values()),
        *([f"repositories {HIDDEN}"] if hidden else ()),
    ]
    if not bad:
        return Check(
            name, "ok", f"{count_of(len(others), 'other repository')} can be read, as a mark requires"
        )
    text = (
        f"cannot read {names(bad)}. Repositories that cannot be read may have imported objects from this"
        " one, so no mark can be approved"
    )
    return Check(
        name, "fail", text, f"Grant the permissions that a plan needs on every repository. {POLICIES}"
    )


def _min_age(preparer: UncommittedPreparer, managed: Iterable[DesiredRepository]) -> Check:
    name = "sweep.min_age"
    try:
        grace = preparer.grace_period_seconds()
    except LakeplanError as error:
        return of_error(name, error)
    if grace is None:
        text = "the server does not report its grace period"
        return Check(name, "warn", text, "Grant fs:ReadConfig, and keep sweep.min_age at 24h or more.")
    low = [d.name for d in managed if d.sweep.min_age_seconds < grace]
    if low:
        text = f"shorter than the server's grace period of {grace:,} seconds (on {names(low)})"
        hint = (
            f"Set sweep.min_age to at least {grace:,} seconds. Until then, the {MIN_AGE.name} gate refuses."
        )
        return Check(name, "warn", text, hint)
    return Check(name, "ok", f"at least as long as the server's grace period of {grace:,} seconds")


def _prepare(doctor: SweepDoctor, results: Mapping[str, list[Check]]) -> Check:
    """Have the server list the uncommitted objects of one repository, which may take a while."""
    name = next(
        (n for n, checks in results.items() if all(f.result != "fail" for f in checks)), next(iter(results))
    )
    if doctor.read_only:
        text = "not tested with --read-only, because the test makes the server list uncommitted objects"
        return Check(PREPARE, "warn", text, "Run `lakeplan doctor` without --read-only.")
    try:
        doctor.preparer.prepare_uncommitted(name)
    except LakeplanError as error:
        return Check(PREPARE, "fail", f"{error.message} (on {name})", grant(PREPARE, error))
    return Check(PREPARE, "ok", f"tested on {name}; every mark sends this request, which deletes nothing")


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
        return failed if asked else replace(failed, result="warn", hint=f"{failed.hint} {ONLY_SPARK}".strip())


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
            "the credentials are not bound to an address, so they would be sent to any new endpoint_url in"
            " the tree"
        )
        yield Check("binding", "warn", text, f"Set {unbound}. It is required if there is no terminal.")
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


def check_channels(config: NotifyConfig, environ: Mapping[str, str]) -> Iterator[Check]:
    """Check that the URL of each channel is set. Sends nothing."""
    for name, channel in sorted(config.channels.items()):
        url = url_of(channel, environ)
        if isinstance(url, Answer):
            hint = f"Set {channel.variable} in the environment of every command that sends notifications."
            yield Check(f"channel {name}", "warn", url.problem, hint)
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
