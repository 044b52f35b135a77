"""What a sweep asks of an object store, in small pieces: who deletes does not copy, who looks does neither.

Keys are relative to the root the adapter was opened at. Adapters are picklable (Spark workers open their own
connections) and can be used from several threads. Errors are StorageError and its kinds; StoreBusy is the
one to wait for and try again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lakeplan.model.objects import StoredObject
from lakeplan.model.stored import Deletion, StoredFacts, StoreFacts, Versions
from lakeplan.ports.storage import NamespaceReader


class ObjectDeleter(Protocol):
    @property
    def batch_size(self) -> int:
        """The most keys one request may name (S3 1,000, Azure 256)."""

    def delete(
        self,
        keys: Sequence[str],
        *,
        versions: Versions,
        expected: Mapping[str, StoredObject] | None = None,
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
    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        """Return what is stored at these keys, as a listing describes it; keys where nothing is are missing.
        ``keys`` are in ascending order. Neighbours cost one list request for about 1,000 of them."""

    def stat(self, key: str) -> StoredFacts | None:
        """What is at a key; None when nothing is."""

    def is_gone(self, key: str) -> bool:
        """Whether reading the object (GET, at most one byte) finds nothing. HEAD is not asked: an answer
        from a cache or an index is no proof."""

    def facts(self) -> StoreFacts:
        """Versioning and soft delete of the bucket, container or account."""


class ObjectCopier(Protocol):
    def copy(self, source: str, target: str, *, create: bool = False) -> StoredFacts:
        """Copies inside the store (multipart where one request is too small), with metadata, storage class
        and encryption kept, then compares size and checksum of both and returns the target's facts. What is
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
