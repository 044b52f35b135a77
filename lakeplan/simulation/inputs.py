"""What a simulation reads of a namespace before any range: refs, the uncommitted run, what to list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from lakeplan.errors import FormatError, LakeplanError, StorageDenied, StorageNotFound
from lakeplan.formats.namespace import DATA_PREFIX, REFS_MANIFEST_KEY, metadata_key
from lakeplan.formats.refs import read_manifest, read_refs
from lakeplan.lakefs.protocols import MetadataKind
from lakeplan.retention.graph import CommitGraph, missing_heads
from lakeplan.simulation.work import Kind, WorkItem
from lakeplan.stores.protocols import NamespaceReader
from lakeplan.values.repository import Refs, RefsDumpIds

MAX_NAMED = 5


@dataclass(frozen=True)
class NamespaceMetadata:
    """A MetadataReader straight from a namespace, by file id."""

    namespace: NamespaceReader

    def read_metadata(self, kind: MetadataKind, id: str) -> bytes:
        return self.namespace.read(metadata_key(id))


@dataclass(frozen=True)
class History:
    """A refs dump as a graph. ``dumped_us``: the storage's time of the manifest (UTC microseconds), None
    where the namespace cannot be listed."""

    ids: RefsDumpIds
    graph: CommitGraph
    dumped_us: int | None


def read_history(namespace: NamespaceReader) -> History:
    """The refs dump as a graph. Raises what ``read_refs_dump`` raises."""
    ids, refs = read_refs_dump(namespace)
    return History(ids, CommitGraph.from_refs(refs), _time_of(namespace, REFS_MANIFEST_KEY))


def read_refs_dump(namespace: NamespaceReader) -> tuple[RefsDumpIds, Refs]:
    """The refs dump that ``_lakefs/refs_manifest.json`` names.

    Raises StorageNotFound without a dump, FormatError for a damaged one, LakeplanError when branch HEADs are
    missing from it (commits made while it was written).
    """
    where = f"{namespace.url}/{REFS_MANIFEST_KEY}"
    try:
        manifest = namespace.read(REFS_MANIFEST_KEY)
    except StorageNotFound as error:
        raise StorageNotFound(
            "the namespace holds no refs dump",
            where=where,
            hint="check the URL, or have the server write one: lakectl refs-dump lakefs://REPOSITORY",
        ) from error
    ids = read_manifest(manifest, name=where)
    try:
        refs = read_refs(ids, NamespaceMetadata(namespace).read_metadata)
    except StorageNotFound as error:
        raise FormatError(
            "the refs dump is not complete: a file that its manifest needs is missing",
            where=error.where,
            hint="dump the refs again, or copy the whole namespace",
        ) from error
    missing = missing_heads(refs)
    if missing:
        lost = sorted(f"{b.id} ({b.commit_id})" for b in refs.branches if b.commit_id in set(missing))
        named = ", ".join(lost[:MAX_NAMED]) + (", …" if len(lost) > MAX_NAMED else "")
        raise LakeplanError(
            f"the refs dump lacks the HEAD of {len(lost)} of its branches: {named}",
            where=where,
            hint="commits were made while it was written: dump the refs again",
        )
    return ids, refs


def _time_of(namespace: NamespaceReader, key: str) -> int | None:
    try:
        return next((o.modified_us for o in namespace.list_objects(key) if o.key == key), None)
    except StorageDenied:
        return None


def listing_items(namespace: NamespaceReader) -> list[WorkItem] | None:
    """What workers list to see every object that may be garbage; None where the namespace cannot be listed.

    The folders below ``data/`` are listed apart, so that a large namespace is listed in parallel.
    """
    try:
        folders = namespace.list_prefixes(DATA_PREFIX)
    except StorageDenied:
        return None
    root = WorkItem(Kind.ROOT_LISTING, 0, "")
    return [root, *(WorkItem(Kind.LISTING, 0, folder) for folder in folders)]


def iso(us: int) -> str:
    """UTC microseconds as ISO 8601 with a Z."""
    moment = datetime.fromtimestamp(us // 1_000_000, tz=timezone.utc).replace(microsecond=us % 1_000_000)
    return moment.isoformat().replace("+00:00", "Z")
