"""The one way to open a namespace or a store of documents: what opens each kind of storage.

The vendors' libraries take most of a second to import, so each opener imports its own when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakeplan.errors import StorageError
from lakeplan.stores.protocols import NamespaceReader, StateWriter, SweepStore
from lakeplan.stores.urls import (
    Access,
    AzureLocation,
    FolderLocation,
    GcsLocation,
    Location,
    S3Location,
    parse_azure_location,
    parse_folder_location,
)
from lakeplan.values.storages import BY_SCHEME
from lakeplan.values.urls import scheme_of, shown_url

L = TypeVar("L", bound=Location)


@dataclass(frozen=True)
class Adapters(Generic[L]):
    """What opens one kind of storage. No request is made before the first one of what it opened."""

    reader: Callable[[L, Access], NamespaceReader]
    store: Callable[[L, Access], SweepStore]
    state: Callable[[L, Access], StateWriter]


@dataclass(frozen=True)
class Opener(Generic[L]):
    """``parse`` raises StorageError for a URL that is refused; credentials in it are not repeated."""

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
    from lakeplan.stores.s3_reader import S3Reader

    return Adapters(S3Reader, S3Store, S3State)


def _load_azure() -> Adapters[AzureLocation]:
    from lakeplan.stores.azure import AzureState, AzureStore
    from lakeplan.stores.azure_client import AzureReader

    return Adapters(AzureReader, AzureStore, AzureState)


def _load_gcs() -> Adapters[GcsLocation]:
    from lakeplan.stores.gcs import GcsState, GcsStore
    from lakeplan.stores.gcs_client import GcsReader

    return Adapters(GcsReader, GcsStore, GcsState)


OPENERS: Mapping[str, Opener[Any]] = {
    "folder": Opener(parse_folder_location, _load_folder),
    "s3": Opener(S3Location.parse, _load_s3),
    "azure": Opener(parse_azure_location, _load_azure),
    "gcs": Opener(GcsLocation.parse, _load_gcs),
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
    return opener.load().reader(opener.parse(url), Access(endpoint_url, region))


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
    return opener.load().store(opener.parse(url), Access(endpoint_url, region, connect_seconds, read_seconds))


def open_state(url: str, *, endpoint_url: str | None = None, region: str | None = None) -> StateWriter:
    """The store of documents at ``url`` (the kinds of ``open_namespace``); nothing is made before the first
    write.

    Records are small and never empty. A version is opaque: it comes from ``read`` or ``write`` and goes back
    into ``write`` or ``delete``. Raises StorageError for a URL of another kind.
    """
    opener = _opener(url)
    return opener.load().state(opener.parse(url), Access(endpoint_url, region))


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
