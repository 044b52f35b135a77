"""The one way to open a store of documents that are written on a condition."""

from __future__ import annotations

from lakeplan.stores.protocols import StateWriter
from lakeplan.stores.urls import FolderLocation, S3Location, parse_location


def open_state(url: str, *, endpoint_url: str | None = None, region: str | None = None) -> StateWriter:
    """The store at ``url`` (the kinds of ``storage.open_namespace``); nothing is made before the first write.

    Records are small and never empty. A version is opaque: it comes from ``read`` or ``write`` and goes back
    into ``write`` or ``delete``. Raises StorageError for a URL of another kind.
    """
    location = parse_location(url)
    # Each store is imported only when it is used: the vendors' libraries take most of a second.
    if isinstance(location, FolderLocation):
        from lakeplan.stores.documents_folder import FolderState

        return FolderState(location.path)
    if isinstance(location, S3Location):
        from lakeplan.stores.documents_s3 import S3State

        return S3State(location, endpoint_url=endpoint_url, region=region)
    from lakeplan.stores.documents_azure import AzureState

    return AzureState(location)
