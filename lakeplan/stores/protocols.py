"""Protocols of an object store or a folder. Readers and writers are separate.

All keys are relative to the root of the adapter, with ``/`` between parts. Adapters are picklable: Spark
workers open their own connections, with credentials from their environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakeplan.errors import StorageError
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount
from lakeplan.values.sweep import Deletion, StoreFacts, Versions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class NamespaceReader(Protocol):
    """A storage namespace, read only."""

    @property
    def url(self) -> str:
        """The namespace's URL, without a trailing slash and without credentials."""

    def read(self, key: str) -> bytes:
        """Return the whole object. Raises StorageNotFound, StorageDenied, StorageError."""

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        """Yield the objects under a prefix in any order; without ``recursive`` only those with no further
        ``/``."""

    def list_prefixes(self, prefix: str = "") -> list[str]:
        """Return the common prefixes one ``/`` below ``prefix``, which end in ``/``."""


@dataclass(frozen=True)
class StoredColumns:
    """Stored objects as columns of equal length, with the fields of ``StoredObject``. ``keys`` are binary:
    the exact bytes, which are UTF-8 unless another program than lakeFS wrote them."""

    keys: pa.Array
    sizes: npt.NDArray[np.int64]
    modified_us: npt.NDArray[np.int64]
    e_tags: pa.Array

    def __len__(self) -> int:
        return int(self.sizes.size)

    def objects(self) -> Iterator[StoredObject]:
        """Yield the objects. Keys that are not UTF-8 have Python's surrogate escapes."""
        keys = (key.decode(errors="surrogateescape") for key in self.keys.to_pylist())
        numbers = self.sizes.tolist(), self.modified_us.tolist()
        return map(StoredObject, keys, *numbers, self.e_tags.to_pylist())


@runtime_checkable
class ColumnReader(Protocol):
    """A reader whose listings need no Python object for each key."""

    def list_columns(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredColumns]:
        """Yield the objects of ``NamespaceReader.list_objects`` as columns."""


@dataclass(frozen=True)
class Remnants:
    """The data that occupies storage in a namespace besides its current objects: older versions
    (``noncurrent``) and unfinished multipart uploads, of which the oldest began at ``oldest_us`` (None for
    none). Figures are None if the store does not have them or refuses them. ``complete`` says whether all
    were counted."""

    noncurrent: Amount | None
    delete_markers: int | None
    uploads: int | None
    oldest_us: int | None
    complete: bool


@runtime_checkable
class RemnantReader(Protocol):
    """A reader of a store that may keep versions."""

    def remnants(self) -> Remnants:
        """Count them, up to a limit of pages. Raises StorageError."""


@runtime_checkable
class ClassReader(Protocol):
    """A reader of a store that has classes or tiers of storage."""

    def list_classes(self) -> Iterator[tuple[str, int, str]]:
        """Yield key, bytes and class of every current object, also of those that consoles create to show a
        folder. The class is the store's name for it, or "". Lists the namespace again. Raises
        StorageError."""


@dataclass(frozen=True)
class Versioned:
    """A state record and the version that a conditional put must have."""

    data: bytes
    version: str


class StateReader(Protocol):
    def read(self, key: str) -> Versioned | None:
        """Return the record, or None if there is none."""

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the keys under a prefix, sorted."""


class StateWriter(StateReader, Protocol):
    """Writes records under conditions, so that two writers cannot overwrite each other's."""

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        """Store a record if its version is ``if_version`` (None: if it does not exist), and return the new
        version. Raises WriteConflict if another writer was first."""

    def delete(self, key: str, *, if_version: str) -> None:
        """Delete a record if its version is ``if_version``. Raises WriteConflict otherwise."""


class ObjectDeleter(Protocol):
    @property
    def batch_size(self) -> int:
        """The most keys in one request (S3 1,000, Azure 256)."""

    def delete(
        self, keys: Sequence[str], *, versions: Versions, expected: Mapping[str, StoredObject] | None = None
    ) -> list[Deletion]:
        """Delete at most ``batch_size`` objects, and return one result for each key, in the order of
        ``keys``. A key without an object counts as deleted. There is one attempt: raises StoreBusy if the
        store refused the whole batch for now, after which the state of each key is unknown, and StorageError
        if the batch cannot be deleted.

        ``expected`` has what ``find`` returned for these keys a moment ago. An object that is no longer the
        expected one is not deleted, and its result says ``changed``. Folders, Azure, Google, and S3 stores
        that support ``If-Match`` for deletions check that in the same step. Other S3 stores do not check, so
        a caller that waited after ``find`` must call it again first. With ``Versions.ALL``, versions that are
        newer than the expected one are not deleted."""


class ObjectProber(Protocol):
    def read_span(self, key: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start`` on, which lies inside the object; fewer only at its end.
        The object may have any size. Raises as ``read``."""

    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        """Return the objects at these keys, as a listing describes them. Keys without an object are missing.
        ``keys`` are in ascending order. About 1,000 neighbours take one request."""

    def stat(self, key: str) -> StoredObject | None:
        """Return the object at a key, or None if there is none."""

    def is_gone(self, key: str) -> bool:
        """Return whether there is no object to read, by GET of at most one byte. HEAD may be answered from a
        cache or an index."""

    def facts(self) -> StoreFacts:
        """Return versioning and soft delete of the bucket, container or account."""


class ObjectCopier(Protocol):
    def copy(self, source: str, target: str, *, create: bool = False) -> StoredObject:
        """Copy an object inside the store, with its metadata, storage class and encryption, compare size and
        checksum of both, and return the copy. An object at ``target`` is replaced; with ``create`` it is kept
        and WriteConflict is raised. Raises StorageNotFound without a source, and StorageError if the source
        is archived or the copy differs from it (which is then removed)."""


class RecordWriter(Protocol):
    """Writes marks and reports to a namespace."""

    def put(self, key: str, data: bytes) -> None: ...

    def create(self, key: str, data: bytes) -> None:
        """Write an object. Raises WriteConflict if there is one at the key."""


class SweepStore(NamespaceReader, ObjectDeleter, ObjectProber, ObjectCopier, RecordWriter, Protocol):
    """All that a sweep needs from a store. Callers require only the protocols that they use."""


def check_copy(source: str, target: str, where: str) -> None:
    """Raise StorageError if the target is the source. A bad copy is removed, which must never be the
    source."""
    if source == target or not target:
        raise StorageError("an object cannot be copied onto itself", where=where)


def check_key(key: str, url: str) -> None:
    """Raise StorageError unless a key is relative, with ``/`` between parts. No part may be empty or begin
    with a dot, because stores use such names themselves."""
    parts = key.split("/")
    if any(not part or part.startswith(".") for part in parts) or not key.isprintable() or "\\" in key:
        raise StorageError(f"{key!r} cannot be the key of a state record", where=url)


def check_data(data: bytes, where: str) -> None:
    """Raise StorageError for an empty record. On S3, an empty object marks a deleted record."""
    if not data:
        raise StorageError("a state record cannot be empty", where=where)
