"""The common parts of stores: lazy clients, finding keys in listings, deletions, state records."""

from __future__ import annotations

import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from lakeplan.errors import StorageDenied, StorageError, WriteConflict
from lakeplan.stores.faults import is_missing_object
from lakeplan.stores.open import Location, NamespaceReader, Versioned, check_data, check_key
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import StoredObject
from lakeplan.values.sweep import Deletion, Versions

T = TypeVar("T")
KEYS_A_PAGE = 50
"""If pages have fewer wanted keys than this on average, each key is listed alone."""
THREADS = 16

CHANGED = "the object has changed since it was listed"
NO_KEY = "the key is empty, so it cannot be the key of an object"
NOT_NAMED = "the response does not list this key, so the object may still exist"
NOT_UNICODE = "the key is not valid Unicode, so it cannot be the key of an object"
TOO_MANY_VERSIONS = (
    "the object has more versions than lakeplan lists; delete old versions with a lifecycle rule in the store"
)
UNLISTED = "the object is stored, but is missing from the listing of its versions"


class Opened:
    """An adapter that was opened at a location. Messages name its URL and keys."""

    def __init__(self, location: Location) -> None:
        self._url = location.url

    @property
    def url(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    def _where(self, key: str) -> str:
        return f"{self._url}/{key}"

    def _unusable(self, key: str) -> str:
        """Return why no object can have this key, or ""."""
        if not key:
            return NO_KEY
        try:
            key.encode()
        except UnicodeEncodeError:
            return NOT_UNICODE
        return ""


class RecordPlace(Opened, ABC):
    """A place whose objects can be records."""

    def get_record(self, key: str) -> Versioned | None:
        """Return the record, or None if there is none."""
        return unless_missing(lambda: self._read_record(key))

    @abstractmethod
    def _read_record(self, key: str) -> Versioned:
        """Return the record. Raises StorageNotFound if there is none."""

    def _version_of(self, key: str, data: bytes) -> str | None:
        """Return the version of a record if it is exactly ``data``. A repeated write that conflicts with it
        conflicts with itself: the first response was lost."""
        present = self.get_record(key)
        return present.version if present is not None and present.data == data else None


def unless_missing(read: Callable[[], T]) -> T | None:
    """Return what ``read`` returns, or None if the object does not exist."""
    try:
        return read()
    except StorageError as error:
        if is_missing_object(error):
            return None
        raise


def find_in_pages(
    keys: Sequence[str],
    page_from: Callable[[str], tuple[Sequence[StoredObject], bool]],
    find_alone: Callable[[str], StoredObject | None],
    where: str,
) -> dict[str, StoredObject]:
    """Implement ``ObjectProber.find`` for a store that can list from any key on. ``page_from`` returns the
    objects of the page that begins at a key, in ascending order, and whether more follow. Each page begins at
    the next wanted key, so that objects between wanted keys are skipped."""
    by_key: dict[str, StoredObject] = {}
    done = 0  # how many of the keys are decided
    for _ in range(2 + len(keys) // KEYS_A_PAGE):
        if done == len(keys):
            return by_key
        objects, more = page_from(keys[done])
        stored = {one.key: one for one in objects}
        order = list(stored)
        if order != sorted(order):
            # A key that is missing here could be on a later page.
            raise StorageError("the storage does not list keys in ascending order", where=where)
        if more and not order:
            break
        while done < len(keys) and (not more or keys[done] <= order[-1]):
            if (one := stored.get(keys[done])) is not None:
                by_key[one.key] = one
            done += 1
    return by_key | {one.key: one for one in in_parallel(find_alone, keys[done:], THREADS) if one is not None}


class BatchDeleter(Opened, ABC):
    """``lakeplan.stores.open.ObjectDeleter``: the checks of a batch that all stores need."""

    batch_size: int

    def delete(
        self, keys: Sequence[str], *, versions: Versions, expected: Mapping[str, StoredObject] | None = None
    ) -> list[Deletion]:
        if len(keys) > self.batch_size:
            raise StorageError(
                f"a batch has {len(keys)} keys, but at most {self.batch_size} are allowed", where=self._url
            )
        failed = {key: Deletion(key, reason) for key in keys if (reason := self._unusable(key))}
        usable = list(dict.fromkeys(key for key in keys if key not in failed))
        failed |= self._delete_keys(usable, versions, expected or {})
        return [failed.get(key) or Deletion(key) for key in keys]

    @abstractmethod
    def _delete_keys(
        self, keys: list[str], versions: Versions, expected: Mapping[str, StoredObject]
    ) -> dict[str, Deletion]:
        """Return the failures by key. The store must have confirmed the deletion of all other keys."""


def not_equal(source: str, where: str) -> StorageError:
    return StorageError(
        f"the copy of {source} differed from the original, so the copy was deleted",
        where=where,
        hint="Run the command again.",
    )


def not_encrypted_alike(where: str) -> StorageError:
    return StorageError("the copy is not encrypted in the same way as its source", where=where)


PROBES = ".lakeplan-probe"
"""Where a store of state is tested for conditional puts. Keys of records do not begin with a dot."""


class RecordReader(NamespaceReader, Protocol):
    def get_record(self, key: str) -> Versioned | None: ...


R = TypeVar("R", bound=RecordReader)


class ConditionalState(Opened, ABC, Generic[R]):
    """Implements ``StateWriter`` by conditional puts. A store that may ignore conditions is tested before its
    first write, and refused if it does."""

    def __init__(self, store: R) -> None:
        super().__init__(store)
        self._store = store
        self._probing = threading.Lock()
        self._trusted = False

    def read(self, key: str) -> Versioned | None:
        check_key(key, self._url)
        record = self._store.get_record(key)
        return None if record is None or self._is_deleted(len(record.data)) else record

    def list_keys(self, prefix: str = "") -> list[str]:
        return sorted(
            {  # a listing may repeat a key
                stored.key
                for stored in self._store.list_objects(prefix)
                if not (self._is_deleted(stored.size) or stored.key.startswith(PROBES))
            }
        )

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        check_key(key, self._url)
        check_data(data, self._where(key))
        self._probe_once()
        return self._write(key, data, if_version)

    def delete(self, key: str, *, if_version: str) -> None:
        check_key(key, self._url)
        self._probe_once()
        self._delete(key, if_version)

    def _is_deleted(self, size: int) -> bool:
        """Return whether an object of this size marks a deleted record."""
        return False

    @abstractmethod
    def _write(self, key: str, data: bytes, if_version: str | None) -> str:
        """Raises WriteConflict."""

    @abstractmethod
    def _delete(self, key: str, if_version: str) -> None:
        """Raises WriteConflict."""

    def _probe(self, key: str) -> None:
        """Write a new object, and again under conditions that must fail."""

    def _probe_once(self) -> None:
        with self._probing:
            if not self._trusted:
                try:
                    self._probe(f"{PROBES}/{secrets.token_hex(8)}")
                except StorageDenied as error:
                    raise error.replaced(
                        message=(
                            f"{error.message} during the write test before the first record of the state"
                        ),
                        hint=(
                            f"{error.hint} To write the state, lakeplan needs permission to list, read,"
                            " create, replace and delete its objects (docs/permissions.md)."
                        ),
                    ) from None
                self._trusted = True

    def _must_conflict(self, condition: str, request: Callable[[], object]) -> None:
        try:
            request()
        except WriteConflict:
            return
        raise StorageError(
            f"the store ignores {condition}, so two writers could overwrite each other's records",
            where=self._url,
            hint="Keep the state in a folder, AWS S3, Google Cloud Storage, Azure Blob Storage or another"
            " store that supports conditional writes.",
        )
