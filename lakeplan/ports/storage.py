"""What lakeplan needs of an object store or a folder. Readers and writers are separate on purpose.

All keys are relative to the root the adapter was opened at, with ``/`` between parts. Adapters are
picklable: Spark workers open their own connections, from the environment where credentials are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakeplan.model.objects import StoredObject

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
