"""State in Azure blob storage: writes and deletes under ETag conditions."""

from __future__ import annotations

from azure.core.exceptions import AzureError

from lakeplan.stores.azure_client import UNCHANGED, AzureClient, AzurePlace, AzureReader
from lakeplan.stores.faults import check_data, check_key
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.urls import AzureLocation


class AzureState(AzurePlace):
    """``lakeplan.stores.protocols.StateWriter`` under a path of a container. A version is the blob's ETag."""

    def __init__(self, location: AzureLocation) -> None:
        super().__init__(location, AzureClient(location))
        self._listing = AzureReader(location)

    def read(self, key: str) -> Versioned | None:
        check_key(key, self._url)
        return self._get(key)

    def list_keys(self, prefix: str = "") -> list[str]:
        return sorted(found.key for found in self._listing.list_objects(prefix))

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        check_key(key, self._url)
        check_data(data, self._where(key))
        return self._put(key, data, if_version=if_version)

    def delete(self, key: str, *, if_version: str) -> None:
        check_key(key, self._url)
        try:
            self._client.get().delete_blob(self._base + key, etag=if_version, match_condition=UNCHANGED)
        except AzureError as error:
            raise self._conflict(error, key) from None
