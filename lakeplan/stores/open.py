"""The one way to open a namespace or a store of documents: what opens each kind of storage.

The vendors' libraries take most of a second to import, so each opener imports its own when it is used.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakeplan.errors import StorageError
from lakeplan.stores.protocols import NamespaceReader, StateWriter, SweepStore
from lakeplan.stores.urls import (
    AzureLocation,
    FolderLocation,
    GcsLocation,
    Location,
    S3Location,
    parse_azure_location,
    parse_folder_location,
    parse_gcs_location,
    parse_s3_location,
)
from lakeplan.values.storages import BY_SCHEME
from lakeplan.values.urls import scheme_of, shown_url

L = TypeVar("L", bound=Location)


@dataclass(frozen=True)
class Access:
    """``endpoint_url`` and ``region`` win over the environment's, for stores that have them. The seconds
    limit each connection and each wait for an answer; None is the store's own limit."""

    endpoint_url: str | None = None
    region: str | None = None
    connect_seconds: float | None = None
    read_seconds: float | None = None


class Opener(ABC, Generic[L]):
    """What opens one kind of storage. No request is made before the first one of what it opened."""

    @abstractmethod
    def parse(self, url: str) -> L:
        """Raises StorageError for a URL that is refused; credentials in it are not repeated."""

    @abstractmethod
    def reader(self, location: L, access: Access) -> NamespaceReader: ...

    @abstractmethod
    def store(self, location: L, access: Access) -> SweepStore: ...

    @abstractmethod
    def documents(self, location: L, access: Access) -> StateWriter: ...


class FolderOpener(Opener[FolderLocation]):
    def parse(self, url: str) -> FolderLocation:
        return parse_folder_location(url)

    def reader(self, location: FolderLocation, access: Access) -> NamespaceReader:
        from lakeplan.stores.folder import FolderReader

        return FolderReader(location.path)

    def store(self, location: FolderLocation, access: Access) -> SweepStore:
        from lakeplan.stores.folder import FolderStore

        return FolderStore(location.path)

    def documents(self, location: FolderLocation, access: Access) -> StateWriter:
        from lakeplan.stores.folder import FolderState

        return FolderState(location.path)


class S3Opener(Opener[S3Location]):
    def parse(self, url: str) -> S3Location:
        return parse_s3_location(url)

    def reader(self, location: S3Location, access: Access) -> NamespaceReader:
        from lakeplan.stores.s3_reader import S3Reader

        return S3Reader(location, endpoint_url=access.endpoint_url, region=access.region)

    def store(self, location: S3Location, access: Access) -> SweepStore:
        from lakeplan.stores.s3 import S3Store

        return S3Store(
            location,
            endpoint_url=access.endpoint_url,
            region=access.region,
            connect_seconds=access.connect_seconds,
            read_seconds=access.read_seconds,
        )

    def documents(self, location: S3Location, access: Access) -> StateWriter:
        from lakeplan.stores.s3 import S3State

        return S3State(location, endpoint_url=access.endpoint_url, region=access.region)


class AzureOpener(Opener[AzureLocation]):
    def parse(self, url: str) -> AzureLocation:
        return parse_azure_location(url)

    def reader(self, location: AzureLocation, access: Access) -> NamespaceReader:
        from lakeplan.stores.azure_client import AzureReader

        return AzureReader(location)

    def store(self, location: AzureLocation, access: Access) -> SweepStore:
        from lakeplan.stores.azure import AzureStore

        return AzureStore(location, connect_seconds=access.connect_seconds, read_seconds=access.read_seconds)

    def documents(self, location: AzureLocation, access: Access) -> StateWriter:
        from lakeplan.stores.azure import AzureState

        return AzureState(location)


class GcsOpener(Opener[GcsLocation]):
    def parse(self, url: str) -> GcsLocation:
        return parse_gcs_location(url)

    def reader(self, location: GcsLocation, access: Access) -> NamespaceReader:
        from lakeplan.stores.gcs_client import GcsReader

        return GcsReader(location, endpoint_url=access.endpoint_url)

    def store(self, location: GcsLocation, access: Access) -> SweepStore:
        from lakeplan.stores.gcs import GcsStore

        seconds = (access.connect_seconds, access.read_seconds)
        return GcsStore(location, endpoint_url=access.endpoint_url, seconds=seconds)

    def documents(self, location: GcsLocation, access: Access) -> StateWriter:
        from lakeplan.stores.gcs import GcsState

        return GcsState(location, endpoint_url=access.endpoint_url)


OPENERS: Mapping[str, Opener[Any]] = {
    "folder": FolderOpener(),
    "s3": S3Opener(),
    "azure": AzureOpener(),
    "gcs": GcsOpener(),
}
"""By the names of ``lakeplan.values.storages``."""
_WORD = re.compile(r"[A-Za-z0-9._/-]{1,100}", re.ASCII)


def parse_location(url: str) -> Location:
    """Takes a URL apart: ``file:///…`` or an absolute path, ``s3://bucket/prefix``, ``gs://bucket/prefix``,
    or an Azure blob URL.

    Raises StorageError for any other kind, by its name, and for what ``values.urls`` refuses: a user,
    a password or a query (a SAS) among it. Their text is not repeated in the message.
    """
    location: Location = _opener(url).parse(url)
    return location


def open_namespace(
    url: str, *, endpoint_url: str | None = None, region: str | None = None
) -> NamespaceReader:
    """A reader of the namespace at ``url``; no request is made before the first read or listing.

    ``url`` is ``file:///…`` (or an absolute path), ``s3://bucket/prefix``, ``gs://bucket/prefix``, or
    ``https://<account>.blob.core.windows.net/<container>/<path>`` (Azurite:
    ``http://127.0.0.1:<port>/<account>/<container>/…``). ``endpoint_url`` and ``region`` are for S3 (the
    endpoint for Google Cloud Storage, too) and win over the environment's. The reader can be pickled, and
    used from several threads.

    Raises StorageError for a URL that is none of these or that carries credentials.
    """
    opener = _opener(url)
    return opener.reader(opener.parse(url), Access(endpoint_url, region))


def open_sweep_store(
    url: str,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    connect_seconds: float | None = None,
    read_seconds: float | None = None,
) -> SweepStore:
    """The namespace at ``url`` for a sweep: as ``open_namespace``, and it can delete, copy and record.

    ``connect_seconds`` and ``read_seconds`` limit each connection and each wait for an answer of a bucket or
    container (default 10 and 60). Raises StorageError for a URL of another kind.
    """
    opener = _opener(url)
    return opener.store(opener.parse(url), Access(endpoint_url, region, connect_seconds, read_seconds))


def open_state(url: str, *, endpoint_url: str | None = None, region: str | None = None) -> StateWriter:
    """The store of documents at ``url`` (the kinds of ``open_namespace``); nothing is made before the first
    write.

    Records are small and never empty. A version is opaque: it comes from ``read`` or ``write`` and goes back
    into ``write`` or ``delete``. Raises StorageError for a URL of another kind.
    """
    opener = _opener(url)
    return opener.documents(opener.parse(url), Access(endpoint_url, region))


def _opener(url: str) -> Opener[Any]:
    if url.startswith("/"):
        return OPENERS["folder"]
    scheme = scheme_of(url)
    if scheme is None:
        raise StorageError(
            "a storage URL has a scheme, or is an absolute path",
            where=url if _WORD.fullmatch(url) else shown_url(url),
            hint="Use for example file:///data/repo or s3://bucket/repo.",
        )
    kind = BY_SCHEME.get(scheme)
    if kind is None:
        raise StorageError(
            f"unknown kind of storage {scheme}://",
            where=shown_url(url),
            hint="Use file://, s3://, gs:// or https://<account>.blob…",
        )
    if kind.refusal is not None:
        message, hint = kind.refusal
        raise StorageError(message, where=shown_url(url), hint=hint)
    return OPENERS[kind.name]
