"""State in Google Cloud Storage: writes and deletes under conditions on an object's generation."""

from __future__ import annotations

from lakeplan.stores.faults import Kind, check_data, check_key, error_of
from lakeplan.stores.gcs_client import GcsClient, GcsPlace, GcsReader, error_for
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.urls import GcsLocation


class GcsState(GcsPlace):
    """``lakeplan.stores.protocols.StateWriter`` under a prefix of a bucket. A version is a generation."""

    def __init__(self, location: GcsLocation, *, endpoint_url: str | None = None) -> None:
        super().__init__(location, GcsClient(endpoint_url, (None, None)))
        self._listing = GcsReader(location, endpoint_url=endpoint_url)

    def read(self, key: str) -> Versioned | None:
        check_key(key, self._url)
        found = self._get(key)
        return None if found is None else Versioned(*found)

    def list_keys(self, prefix: str = "") -> list[str]:
        return sorted(found.key for found in self._listing.list_objects(prefix))

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        check_key(key, self._url)
        check_data(data, self._where(key))
        return self._put(key, data, if_version=if_version or "0")

    def delete(self, key: str, *, if_version: str) -> None:
        check_key(key, self._url)
        present = self._get(key)  # emulators ignore the condition
        if present is None or present[1] != if_version:
            raise error_of(Kind.CONFLICT, self._where(key))
        params = {"ifGenerationMatch": if_version}
        answer = self._client.request("DELETE", self._path(key), self._where(key), params=params)
        if answer.status == 404:
            if answer.repeated:  # the try before was ours
                return
            self._confirm_missing(key)
            raise error_of(Kind.CONFLICT, self._where(key))
        if answer.status not in (200, 204):
            raise error_for(answer, self._where(key))
