"""State in Azure blob storage: writes and deletes under ETag conditions."""

from __future__ import annotations

from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.storage.blob import ContainerClient

from lakeplan.errors import StorageError, WriteConflict
from lakeplan.stores.azure_client import AzureClient, AzurePlace, AzureReader
from lakeplan.stores.faults import (
    Kind,
    check_data,
    check_key,
    error_of,
    is_missing_object,
    translate_azure_error,
)
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.urls import AzureLocation


class AzureState(AzurePlace):
    """``lakeplan.stores.protocols.StateWriter`` under a path of a container. A version is the blob's ETag."""

    def __init__(self, location: AzureLocation) -> None:
        super().__init__(location, AzureClient(location))
        self._listing = AzureReader(location)

    def read(self, key: str) -> Versioned | None:
        check_key(key, self._url)

        def download(client: ContainerClient) -> Versioned:
            found = client.download_blob(self._base + key)
            return Versioned(found.readall(), str(found.properties.etag))

        try:
            return self._call(key, download)
        except StorageError as error:
            if is_missing_object(error):
                return None
            raise

    def list_keys(self, prefix: str = "") -> list[str]:
        return sorted(found.key for found in self._listing.list_objects(prefix))

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        check_key(key, self._url)
        check_data(data, self._where(key))
        condition: dict[str, Any] = {"overwrite": False}
        if if_version is not None:
            condition = {
                "overwrite": True,
                "etag": if_version,
                "match_condition": MatchConditions.IfNotModified,
            }
        repeated = False

        def note_retry(**_: object) -> None:
            nonlocal repeated
            repeated = True

        try:
            blob = self._client.get().get_blob_client(self._base + key)
            return str(blob.upload_blob(data, retry_hook=note_retry, **condition)["etag"])
        except AzureError as error:
            translated = self._conflict(error, key)
            if isinstance(translated, WriteConflict) and repeated:
                # The try before may have been ours and its answer lost: then the record is what we wrote.
                present = self.read(key)
                if present is not None and present.data == data:
                    return present.version
            raise translated from None

    def delete(self, key: str, *, if_version: str) -> None:
        check_key(key, self._url)
        try:
            self._client.get().delete_blob(
                self._base + key, etag=if_version, match_condition=MatchConditions.IfNotModified
            )
        except AzureError as error:
            raise self._conflict(error, key) from None

    def _conflict(self, error: AzureError, key: str) -> StorageError:
        """A condition on a record that is gone has failed, too."""
        translated = translate_azure_error(error, self._where(key))
        return error_of(Kind.CONFLICT, self._where(key)) if is_missing_object(translated) else translated
