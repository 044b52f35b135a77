"""Checks what marks and sweeps need on a server and in the storage of each repository.

The storage is tested with two small files below ``_lakeplan/doctor/`` in the namespace, which are written,
read, copied and deleted. Nothing else in the namespace is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakeplan.doctor.repositories import POLICIES, Check, clock, grant, names, of_error, on_each, summed
from lakeplan.errors import LakeplanError, StorageDenied, StorageError, StorageNotFound
from lakeplan.formats.namespace import DATA_PREFIX, OWNER_KEY
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.limits import parse_json
from lakeplan.simulation.requests import UncommittedPreparer
from lakeplan.stores.protocols import SweepStore
from lakeplan.sweep.ports import HIDDEN, why_hidden
from lakeplan.sweep.rules import overlapping
from lakeplan.values.desired import DesiredRepository, ServerConfig
from lakeplan.values.gates import MIN_AGE
from lakeplan.values.records import moment_of
from lakeplan.values.repository import Repository
from lakeplan.values.storages import STORAGES, can_be_swept
from lakeplan.values.sweep import LAKEPLAN_PREFIX, Versions
from lakeplan.values.units import count_of

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
    return Check(name, "ok", "names this server and repository")


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
