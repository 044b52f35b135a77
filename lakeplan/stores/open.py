"""The one way to open a storage namespace."""

from __future__ import annotations

from lakeplan.stores.folder import FolderReader, FolderStore
from lakeplan.stores.protocols import NamespaceReader, SweepStore
from lakeplan.stores.urls import FolderLocation, S3Location, parse_location


def open_namespace(
    url: str, *, endpoint_url: str | None = None, region: str | None = None
) -> NamespaceReader:
    """A reader of the namespace at ``url``; no request is made before the first read or listing.

    ``url`` is ``file:///…`` (or an absolute path), ``s3://bucket/prefix``, or
    ``https://<account>.blob.core.windows.net/<container>/<path>`` (Azurite:
    ``http://127.0.0.1:<port>/<account>/<container>/…``). ``endpoint_url`` and ``region`` are for S3 only and
    win over the environment's. The reader can be pickled, and used from several threads.

    Raises StorageError for a URL that is none of these or that carries credentials.
    """
    location = parse_location(url)
    if isinstance(location, FolderLocation):
        return FolderReader(location.path)
    # The vendors' libraries take most of a second to import: only commands that need one pay for it.
    if isinstance(location, S3Location):
        from lakeplan.stores.s3_reader import S3Reader

        return S3Reader(location, endpoint_url=endpoint_url, region=region)
    from lakeplan.stores.azure_client import AzureReader

    return AzureReader(location)


def open_sweep_store(
    url: str,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    connect_seconds: float | None = None,
    read_seconds: float | None = None,
) -> SweepStore:
    """The namespace at ``url`` for a sweep: as ``open_namespace``, and it can delete, copy and record.

    ``connect_seconds`` and ``read_seconds`` limit each connection and each wait for an answer of S3 or Azure
    (default 10 and 60). Raises StorageError for a URL of another kind (``gs://`` among them).
    """
    location = parse_location(url)
    if isinstance(location, FolderLocation):
        return FolderStore(location.path)
    if isinstance(location, S3Location):
        from lakeplan.stores.s3 import S3Store

        return S3Store(
            location,
            endpoint_url=endpoint_url,
            region=region,
            connect_seconds=connect_seconds,
            read_seconds=read_seconds,
        )
    from lakeplan.stores.azure import AzureStore

    return AzureStore(location, connect_seconds=connect_seconds, read_seconds=read_seconds)
