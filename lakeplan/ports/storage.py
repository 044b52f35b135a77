"""What lakeplan needs of an object store or a folder. Readers and writers are separate on purpose.

All keys are relative to the root the adapter was opened at, with ``/`` between parts. Adapters are
picklable: Spark workers open their own connections, from the environment where credentials are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from lakeplan.model.objects import StoredObject


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
