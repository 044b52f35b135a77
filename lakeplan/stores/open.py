"""Object stores and folders: their protocols, their locations, and how to open them. Readers and writers are
separate.

All keys are relative to the root of the adapter, with ``/`` between parts. Adapters are picklable: Spark
workers open their own connections, with credentials from their environment. A vendor's library, whose import
takes most of a second, is imported only when something is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable
from urllib.parse import quote

from lakeplan.errors import StorageError
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount
from lakeplan.values.sweep import Deletion, StoreFacts, Versions
from lakeplan.values.urls import (
    AZURE_SUFFIXES,
    BY_SCHEME,
    BadUrl,
    WebUrl,
    parse_bucket_url,
    parse_folder_url,
    parse_local_url,
    parse_web_url,
    scheme_of,
    shown_url,
)

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


T = TypeVar("T")

AZURE_EXAMPLE = "https://<account>.blob.core.windows.net/<container>/<path>"
_NAME = re.compile(r"\$(root|web|logs)|[a-z0-9](-?[a-z0-9]){0,62}", re.ASCII)


@dataclass(frozen=True)
class FolderLocation:
    """A folder of this machine. ``path`` is absolute."""

    path: str

    @property
    def url(self) -> str:
        return "file://" + quote(self.path)


class _BelowPrefix:
    """``prefix`` has no slash at either end; "" is the whole bucket or container."""

    prefix: str

    @property
    def base(self) -> str:
        """The beginning of all keys in the bucket or container."""
        return f"{self.prefix}/" if self.prefix else ""


@dataclass(frozen=True)
class BucketLocation(_BelowPrefix):
    scheme: ClassVar[str]
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises StorageError."""
        parse = partial(parse_bucket_url, schemes=(cls.scheme,))
        parsed = _strict(parse, url, f"{cls.scheme}://bucket/prefix")
        return cls(parsed.bucket, parsed.prefix)


class S3Location(BucketLocation):
    scheme = "s3"


class GcsLocation(BucketLocation):
    scheme = "gs"


@dataclass(frozen=True)
class AzureLocation(_BelowPrefix):
    """A path of a container. ``account_url`` is scheme and host and, for Azurite, the account."""

    account_url: str
    account: str
    container: str
    prefix: str

    @property
    def is_azure(self) -> bool:
        """Whether the host is Azure's own."""
        return self.account_url in {f"https://{self.account}{suffix}" for suffix in AZURE_SUFFIXES}

    @property
    def url(self) -> str:
        return f"{self.account_url}/{self.container}" + (f"/{quote(self.prefix)}" if self.prefix else "")


class Location(Protocol):
    """The location of a namespace or a state, without credentials."""

    @property
    def url(self) -> str: ...


@dataclass(frozen=True)
class Access:
    """How to reach a store. ``endpoint_url`` and ``region`` override those of the environment. The seconds
    limit each connection and each wait for a response; None is the default of the store."""

    endpoint_url: str | None = None
    region: str | None = None
    connect_seconds: float | None = None
    read_seconds: float | None = None


NO_ACCESS = Access()


def parse_folder_location(url: str) -> FolderLocation:
    """Return the location of ``file:///…`` or an absolute path. Raises StorageError."""
    example = "/absolute/path" if url.startswith("/") else "file:///absolute/path"
    return FolderLocation(_strict(parse_folder_url, url, example))


def parse_azure_location(url: str) -> AzureLocation:
    """Return the location of an Azure blob URL. Raises StorageError."""
    parsed = _strict(parse_web_url, url, AZURE_EXAMPLE)
    parts = list(parsed.parts)
    root = parsed.origin
    if (account := _azure_account(parsed)) is None:
        if not (parsed.host == "localhost" or parsed.address is not None) or not parts:
            raise StorageError("this is not an Azure blob URL", where=shown_url(url), hint=AZURE_EXAMPLE)
        if parsed.address is not None and parsed.address.is_link_local:
            raise StorageError(
                "a storage URL cannot have a link-local address", where=shown_url(url), hint=AZURE_EXAMPLE
            )
        # Azurite, and gateways with an address as their host, have the account in the path.
        account = parts.pop(0)
        root = f"{root}/{account}"
    if not parts:
        raise StorageError("the container is missing", where=root, hint=f"Use {root}/<container>/<path>.")
    if not _NAME.fullmatch(parts[0]) or not _NAME.fullmatch(account):
        raise StorageError("the URL has an invalid container or account name", where=shown_url(url))
    return AzureLocation(root, account, parts[0], "/".join(parts[1:]))


def folder_of(namespace: str, root: str) -> str:
    """Return the folder of a ``local://`` namespace below the server's folder ``root``. Raises StorageError
    if it leads out of that, by ``..`` or a symbolic link."""
    top = os.path.abspath(root)
    folder = os.path.join(top, *_strict(parse_local_url, namespace, "local://folder"))
    real = os.path.realpath(top)
    if os.path.commonpath((os.path.realpath(folder), real)) != real:
        raise StorageError(
            "a symbolic link in the path of the namespace leads outside the server's folder",
            where=shown_url(namespace),
            hint="Check storages.*.path in the tree.",
        )
    return folder


def _azure_account(parsed: WebUrl) -> str | None:
    """Return the account of an Azure host, or None for another host. Raises StorageError without HTTPS."""
    account, _, rest = parsed.host.partition(".")
    if f".{rest}" not in AZURE_SUFFIXES:
        return None
    if parsed.scheme != "https" or parsed.port is not None:
        raise StorageError(
            "an Azure URL must begin with https:// and must not contain a port",
            where=parsed.origin,
            hint=AZURE_EXAMPLE,
        )
    return account


def _strict(parse: Callable[[str], T], url: str, example: str) -> T:
    try:
        return parse(url)
    except BadUrl as error:
        raise StorageError(str(error), where=shown_url(url), hint=f"For example, use {example}.") from None


L = TypeVar("L", bound=Location)


@dataclass(frozen=True)
class Adapters(Generic[L]):
    """The adapters of one kind of storage. Opening one makes no request."""

    reader: Callable[[L, Access], NamespaceReader]
    store: Callable[[L, Access], SweepStore]
    state: Callable[[L, Access], StateWriter]


@dataclass(frozen=True)
class Opener(Generic[L]):
    """The opener of one kind of storage. ``parse`` raises StorageError, without the credentials of the
    URL."""

    parse: Callable[[str], L]
    load: Callable[[], Adapters[L]]


def _load_folder() -> Adapters[FolderLocation]:
    from lakeplan.stores.folder import FolderReader, FolderState, FolderStore

    return Adapters(
        reader=lambda location, _: FolderReader(location.path),
        store=lambda location, _: FolderStore(location.path),
        state=lambda location, _: FolderState(location.path),
    )


def _load_s3() -> Adapters[S3Location]:
    from lakeplan.stores.s3 import S3State, S3Store
    from lakeplan.stores.s3_client import S3Reader

    return Adapters(S3Reader, S3Store, lambda *opened: S3State(S3Store(*opened)))


def _load_azure() -> Adapters[AzureLocation]:
    from lakeplan.stores.azure import AzureState, AzureStore
    from lakeplan.stores.azure_client import AzureReader

    return Adapters(AzureReader, AzureStore, lambda *opened: AzureState(AzureStore(*opened)))


def _load_gcs() -> Adapters[GcsLocation]:
    from lakeplan.stores.gcs import GcsState, GcsStore
    from lakeplan.stores.gcs_client import GcsReader

    return Adapters(GcsReader, GcsStore, lambda *opened: GcsState(GcsStore(*opened)))


OPENERS: Mapping[str, Opener[Any]] = {
    "folder": Opener(parse_folder_location, _load_folder),
    "s3": Opener(S3Location.parse, _load_s3),
    "azure": Opener(parse_azure_location, _load_azure),
    "gcs": Opener(GcsLocation.parse, _load_gcs),
}
"""By the names in ``lakeplan.values.urls``."""
_WORD = re.compile(r"[A-Za-z0-9._/-]{1,100}", re.ASCII)


def parse_location(url: str) -> Location:
    """Return the location of ``file:///…``, an absolute path, ``s3://bucket/prefix``, ``gs://bucket/prefix``
    or an Azure blob URL.

    Raises StorageError for another kind, and for URLs that ``values.urls`` refuses, such as with a user, a
    password or a query (a SAS), whose text is not in the message.
    """
    location: Location = _opener(url).parse(url)
    return location


def open_namespace(
    url: str, *, endpoint_url: str | None = None, region: str | None = None
) -> NamespaceReader:
    """Return a reader of the namespace at ``url``, without a request. It is picklable, and may be used from
    several threads.

    ``url`` is as in ``parse_location``; Azurite's are ``http://127.0.0.1:<port>/<account>/<container>/…``.
    ``endpoint_url`` (S3, Google) and ``region`` (S3) override those of the environment. Raises StorageError
    for another URL, and for one with credentials.
    """
    opener = _opener(url)
    return opener.load().reader(opener.parse(url), Access(endpoint_url, region))


def open_sweep_store(
    url: str,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    connect_seconds: float | None = None,
    read_seconds: float | None = None,
) -> SweepStore:
    """Return the namespace at ``url`` for a sweep, which can also delete, copy and write. See
    ``open_namespace``.

    ``connect_seconds`` and ``read_seconds`` limit each connection and each wait for a response of a bucket or
    container (default 10 and 60).
    """
    opener = _opener(url)
    return opener.load().store(opener.parse(url), Access(endpoint_url, region, connect_seconds, read_seconds))


def open_state(url: str, *, endpoint_url: str | None = None, region: str | None = None) -> StateWriter:
    """Return the store of records at ``url``. See ``open_namespace``. The first write creates it.

    Records are small and never empty. Versions are opaque: ``read`` and ``write`` return them for ``write``
    and ``delete``.
    """
    opener = _opener(url)
    return opener.load().state(opener.parse(url), Access(endpoint_url, region))


def _opener(url: str) -> Opener[Any]:
    if url.startswith("/"):
        return OPENERS["folder"]
    scheme = scheme_of(url)
    if scheme is None:
        raise StorageError(
            "a storage location must be a URL with a scheme, or an absolute path",
            where=url if _WORD.fullmatch(url) else shown_url(url),
            hint="For example, use file:///data/repo or s3://bucket/repo.",
        )
    kind = BY_SCHEME.get(scheme)
    if kind is None:
        raise StorageError(
            f"storage URLs with the scheme {scheme}:// are not supported",
            where=shown_url(url),
            hint="Use file://, s3://, gs:// or https://<account>.blob…",
        )
    if kind.refusal is not None:
        message, hint = kind.refusal
        raise StorageError(message, where=shown_url(url), hint=hint)
    return OPENERS[kind.name]
