"""Azure blob storage, or Azurite: deleting, looking, copying, recording, and state under ETag conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from azure.core.exceptions import AzureError

from lakeplan.errors import StorageDenied, StorageError
from lakeplan.stores.azure_changes import BATCH, BLOCK, AzureCopier, AzureDeleter, facts_of, unusable
from lakeplan.stores.azure_client import UNCHANGED, AzureClient, AzurePlace, AzureReader, find
from lakeplan.stores.faults import check_data, check_key, is_missing_object, translate_azure_error
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.urls import AzureLocation
from lakeplan.values.objects import StoredObject
from lakeplan.values.sweep import Deletion, StoredFacts, StoreFacts, Versions


class AzureStore(AzureReader):
    """``lakeplan.stores.protocols.SweepStore`` under a path of a container."""

    def __init__(
        self,
        location: AzureLocation,
        *,
        connect_seconds: float | None = None,
        read_seconds: float | None = None,
        block: int = BLOCK,
    ) -> None:
        super().__init__(location, connect_seconds=connect_seconds, read_seconds=read_seconds)
        once = AzureClient(location, connect_seconds=connect_seconds, read_seconds=read_seconds, once=True)
        self._deleter = AzureDeleter(location, self._client, once)
        self._copier = AzureCopier(location, self._client, block=block)

    @property
    def batch_size(self) -> int:
        return BATCH

    def delete(
        self,
        keys: Sequence[str],
        *,
        versions: Versions,
        expected: Mapping[str, StoredObject] | None = None,
    ) -> list[Deletion]:
        return self._deleter.delete(keys, versions=versions, expected=expected or {})

    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        return find(self._client, self._base, keys, self.url)

    def stat(self, key: str) -> StoredFacts | None:
        name = self._name(key)
        try:
            found = self._call(key, lambda client: client.get_blob_client(name).get_blob_properties())
        except StorageError as error:
            if is_missing_object(error):
                return None
            raise
        return facts_of(key, found)

    def is_gone(self, key: str) -> bool:
        """By GET of the first byte. Only Azure's own word for a missing blob is taken for one."""
        try:
            self._client.get().download_blob(self._name(key), offset=0, length=1).readall()
        except AzureError as error:
            code = getattr(error, "error_code", None)
            if (code := str(getattr(code, "value", code) or "")) == "BlobNotFound":
                return True
            if code in ("BlobArchived", "BlobBeingRehydrated"):
                return False
            translated = translate_azure_error(error, self._where(key))
            if is_missing_object(translated):
                raise StorageError(
                    "the response does not say whether the blob exists", where=self._where(key)
                ) from None
            raise translated from None
        return False

    def facts(self) -> StoreFacts:
        """Whether versions are kept is a setting outside the blob service's reach: it is known only where a
        listing shows one."""
        return StoreFacts(versioned=self._shows_versions() or None, soft_delete=self._soft_delete())

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredFacts:
        self._name(source)
        self._name(target)
        return self._copier.copy(source, target, create=create)

    def put(self, key: str, data: bytes) -> None:
        name = self._name(key)
        self._call(key, lambda client: client.upload_blob(name, data, overwrite=True))

    def create(self, key: str, data: bytes) -> None:
        self._name(key)
        self._put(key, data, if_version=None)

    def _soft_delete(self) -> bool | None:
        try:
            with self._client.service() as service:
                policy = service.get_service_properties().get("delete_retention_policy")
        except AzureError as error:
            translated = translate_azure_error(error, self.url)
            unsupported = translated.message.startswith("the storage answered")
            if isinstance(translated, StorageDenied) or unsupported:
                return None
            raise translated from None
        return None if policy is None else bool(policy.enabled)

    def _shows_versions(self) -> bool:
        try:
            pages = self._client.get().list_blobs(
                name_starts_with=self._base, include=["versions"], results_per_page=100
            )
            return any(item.version_id for item in next(pages.by_page(), ()))
        except AzureError as error:
            translated = translate_azure_error(error, self.url)
            if translated.message.startswith("the storage answered"):
                return False
            raise translated from None

    def _name(self, key: str) -> str:
        if reason := unusable(key):
            raise StorageError(reason, where=self._where(key))
        return self._base + key


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
