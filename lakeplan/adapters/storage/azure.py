"""A storage namespace in Azure blob storage, or in Azurite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from azure.core.exceptions import AzureError
from azure.core.paging import ItemPaged
from azure.storage.blob import BlobPrefix, BlobProperties

from lakeplan import limits
from lakeplan.adapters.storage.azure_client import AzureClient
from lakeplan.adapters.storage.azure_find import first_name, stored_object
from lakeplan.adapters.storage.bounded import bounded_pages, in_time, too_large
from lakeplan.adapters.storage.translate import Kind, error_of, translate_azure_error
from lakeplan.adapters.storage.urls import AzureLocation
from lakeplan.model.objects import StoredObject


class AzureReader:
    """Reads and lists one path of a container. Workers of Spark open their own client, from their own
    environment: only the location travels in a pickle."""

    def __init__(
        self,
        location: AzureLocation,
        *,
        connect_seconds: float | None = None,
        read_seconds: float | None = None,
    ) -> None:
        self._location = location
        self._client = AzureClient(location, connect_seconds=connect_seconds, read_seconds=read_seconds)
        self._base = f"{location.prefix}/" if location.prefix else ""

    @property
    def url(self) -> str:
        return self._location.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def read(self, key: str) -> bytes:
        where = f"{self.url}/{key}"
        try:
            # The library asks again for what is missing when a body breaks off.
            download = self._client.get().download_blob(self._base + key)
            if download.size > limits.OBJECT_BYTES:
                raise too_large(where)
            data: bytes = in_time(download.readall, where, limits.FILE_SECONDS)
        except AzureError as error:
            raise translate_azure_error(error, where) from None
        if len(data) != download.size:
            raise error_of(Kind.BROKEN, where, detail=f"{len(data)} of {download.size} bytes")
        return data

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        for item in self._items(prefix, recursive=recursive):
            if isinstance(item, BlobPrefix):
                continue
            stored = stored_object(item, self._base)
            if not stored.key or _is_folder(item) or (stored.key.endswith("/") and stored.size == 0):
                continue
            yield stored

    def list_prefixes(self, prefix: str = "") -> list[str]:
        return sorted(
            item.name[len(self._base) :]
            for item in self._items(prefix, recursive=False)
            if isinstance(item, BlobPrefix)
        )

    def _items(self, prefix: str, *, recursive: bool) -> Iterator[BlobProperties | BlobPrefix]:
        start, where = self._base + prefix, f"{self.url}/{prefix}"
        try:
            container = self._client.get()
            items: ItemPaged[Any]
            if recursive:
                items = container.list_blobs(name_starts_with=start, include=["metadata"])
            else:
                items = container.walk_blobs(name_starts_with=start, include=["metadata"], delimiter="/")
            for page in bounded_pages(map(list, items.by_page()), first_name, where):
                yield from page
        except AzureError as error:
            raise translate_azure_error(error, where) from None


def _is_folder(item: BlobProperties) -> bool:
    """Accounts with a hierarchical namespace list their folders as blobs that say so."""
    return (item.metadata or {}).get("hdi_isfolder", "").lower() == "true"
