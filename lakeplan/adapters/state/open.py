"""The one way to open a state store."""

from __future__ import annotations

from lakeplan.adapters.storage.urls import FolderLocation, S3Location, parse_location
from lakeplan.ports.storage import StateWriter


def open_state(url: str, *, endpoint_url: str | None = None, region: str | None = None) -> StateWriter:
    """The store at ``url`` (the kinds of ``storage.open_namespace``); nothing is made before the first write.

    Records are small and never empty. A version is opaque: it comes from ``read`` or ``write`` and goes back
    into ``write`` or ``delete``. Raises StorageError for a URL of another kind.
    """
    location = parse_location(url)
    # Each store is imported only when it is used: the vendors' libraries take most of a second.
    if isinstance(location, FolderLocation):
        from lakeplan.adapters.state.folder import FolderState

        return FolderState(location.path)
    if isinstance(location, S3Location):
        from lakeplan.adapters.state.s3 import S3State

        return S3State(location, endpoint_url=endpoint_url, region=region)
    from lakeplan.adapters.state.azure import AzureState

    return AzureState(location)
