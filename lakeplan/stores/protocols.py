"""What lakeplan needs of an object store or a folder. Readers and writers are separate on purpose.

All keys are relative to the root the adapter was opened at, with ``/`` between parts. Adapters are
picklable: Spark workers open their own connections, from the environment where credentials are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakeplan.values.objects import StoredObject
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
        """The whole object. Raises StorageNotFound, StorageDenied, StorageError."""

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        """Objects under a prefix in any order; without ``recursive`` only those with no further ``/``."""

    def list_prefixes(self, prefix: str = "") -> list[str]:
        """The common prefixes one ``/`` below ``prefix``, each ending in ``/``."""


@dataclass(frozen=True)
class StoredColumns:
    """Stored objects as columns of equal length, as ``StoredObject`` has them. ``keys`` are Arrow's binary:
    the exact bytes, which are UTF-8 unless somebody other than lakeFS wrote them."""

    keys: pa.Array
    sizes: npt.NDArray[np.int64]
    modified_us: npt.NDArray[np.int64]
    e_tags: pa.Array

    def __len__(self) -> int:
        return int(self.sizes.size)

    def objects(self) -> Iterator[StoredObject]:
        """Keys that are not UTF-8 carry Python's surrogate escapes."""
        keys = (key.decode(errors="surrogateescape") for key in self.keys.to_pylist())
        numbers = self.sizes.tolist(), self.modified_us.tolist()
        return map(StoredObject, keys, *numbers, self.e_tags.to_pylist())


@runtime_checkable
class ColumnReader(Protocol):
    """What a reader has besides whose listings need no Python object for each key."""

    def list_columns(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredColumns]:
        """As ``NamespaceReader.list_objects``."""


@dataclass(frozen=True)
class Remnants:
    """What is paid for in a namespace beside its current objects. ``noncurrent``: older versions;
    ``uploads``: multipart uploads that were begun and not completed, the oldest ``oldest_us`` (None for
    none). None where the store does not say, or these credentials may not ask. ``complete``: not cut off."""

    noncurrent: Amount | None
    delete_markers: int | None
    uploads: int | None
    oldest_us: int | None
    complete: bool


@runtime_checkable
class RemnantReader(Protocol):
    """What a reader has besides whose store keeps versions."""

    def remnants(self) -> Remnants:
        """Counts them, up to a limit of pages. Raises StorageError."""


@runtime_checkable
class ClassReader(Protocol):
    """What a reader has besides whose store has classes or tiers of storage."""

    def list_classes(self) -> Iterator[tuple[str, int, str]]:
        """Key, bytes and class of every current object, as the store calls the class ("" where it names
        none); what consoles leave to show a folder too. A listing of its own. Raises StorageError."""


@dataclass(frozen=True)
class Versioned:
    """A state record and the token that a conditional put must present."""

    data: bytes
    version: str


class StateReader(Protocol):
    def read(self, key: str) -> Versioned | None:
        """The record, or None when there is none."""

    def list_keys(self, prefix: str = "") -> list[str]:
        """Keys under a prefix, sorted."""


class StateWriter(StateReader, Protocol):
    """Conditional puts: two writers cannot lose each other's records."""

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        """Stores a record only if its version is ``if_version`` (None: only if it does not exist).
        Returns the new version. Raises WriteConflict when another writer was first."""

    def delete(self, key: str, *, if_version: str) -> None:
        """Deletes a record only if its version is ``if_version``; raises WriteConflict otherwise."""


class ObjectDeleter(Protocol):
    @property
    def batch_size(self) -> int:
        """The most keys one request may name (S3 1,000, Azure 256)."""

    def delete(
        self, keys: Sequence[str], *, versions: Versions, expected: Mapping[str, StoredObject] | None = None
    ) -> list[Deletion]:
        """Deletes at most ``batch_size`` objects; one answer a key, in the order of ``keys``. A key where
        nothing is counts as deleted. One attempt: raises StoreBusy when the store refused the whole batch for
        now (nothing is known of any key then), StorageError when it cannot be done at all.

        ``expected``: what ``find`` gave of these keys a moment ago. What is another object by now is not
        deleted, and its answer says ``changed``. Folders, Azure, and S3 stores that know ``If-Match`` for
        deletions check it in the same step; other S3 stores delete without it, so a caller that waited since
        ``find`` asks it again first. With ``Versions.ALL`` no version is deleted that is newer than the
        expected one."""


class ObjectProber(Protocol):
    def read_span(self, key: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start`` on, which lies inside the object; fewer only at its end.
        The object may have any size. Raises as ``read``."""

    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        """Return what is stored at these keys, as a listing describes it; keys where nothing is are missing.
        ``keys`` are in ascending order. Neighbours cost one list request for about 1,000 of them."""

    def stat(self, key: str) -> StoredObject | None:
        """What is at a key; None when nothing is."""

    def is_gone(self, key: str) -> bool:
        """Whether reading the object (GET, at most one byte) finds nothing. HEAD is not used: an answer
        from a cache or an index is no proof."""

    def facts(self) -> StoreFacts:
        """Versioning and soft delete of the bucket, container or account."""


class ObjectCopier(Protocol):
    def copy(self, source: str, target: str, *, create: bool = False) -> StoredObject:
        """Copies inside the store (multipart where one request is too small), with metadata, storage class
        and encryption kept, then compares size and checksum of both and returns the copy. What is
        at ``target`` already is replaced; with ``create`` it stays as it is, and WriteConflict is raised.
        Raises StorageNotFound when there is no source, StorageError when the source is archived, or the copy
        does not compare equal (the bad copy is removed)."""


class RecordWriter(Protocol):
    """Marks and reports beside the data they speak of."""

    def put(self, key: str, data: bytes) -> None: ...

    def create(self, key: str, data: bytes) -> None:
        """Raises WriteConflict when something is at the key already."""


class SweepStore(NamespaceReader, ObjectDeleter, ObjectProber, ObjectCopier, RecordWriter, Protocol):
    """Everything, for the adapters that implement it; nobody takes more of it than they use."""
