"""State in Google Cloud Storage: writes and deletes under conditions on an object's generation."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from lakeplan.errors import WriteConflict
from lakeplan.stores.faults import PROBES, Kind, check_data, check_key, error_of, ignores
from lakeplan.stores.gcs_client import GcsClient, GcsPlace, GcsReader, error_for
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.urls import GcsLocation


class GcsState(GcsPlace):
    """``lakeplan.stores.protocols.StateWriter`` under a prefix of a bucket. A version is a generation.

    Before its first write a store is asked whether it keeps to the conditions, as emulators may not.
    """

    def __init__(self, location: GcsLocation, *, endpoint_url: str | None = None) -> None:
        super().__init__(location, GcsClient(endpoint_url, (None, None)))
        self._listing = GcsReader(location, endpoint_url=endpoint_url)
        self._probing = threading.Lock()
        self._trusted = False

    def read(self, key: str) -> Versioned | None:
        check_key(key, self._url)
        found = self._get(key)
        return None if found is None else Versioned(*found)

    def list_keys(self, prefix: str = "") -> list[str]:
        keys = (found.key for found in self._listing.list_objects(prefix))
        return sorted(key for key in keys if not key.startswith(PROBES))

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        check_key(key, self._url)
        check_data(data, self._where(key))
        self._probe()
        return self._put(key, data, if_version=if_version or "0")

    def delete(self, key: str, *, if_version: str) -> None:
        check_key(key, self._url)
        self._probe()
        self._delete(key, if_version)

    def _delete(self, key: str, generation: str) -> None:
        params = {"ifGenerationMatch": generation}
        answer = self._client.request("DELETE", self._path(key), self._where(key), params=params)
        if answer.status == 404:
            if answer.repeated:  # the try before was ours
                return
            self._confirm_missing(key)
            raise error_of(Kind.CONFLICT, self._where(key))
        if answer.status not in (200, 204):
            raise error_for(answer, self._where(key))

    def _probe(self) -> None:
        """One new object, put again and deleted under conditions that must fail; once per opened store."""
        with self._probing:
            if self._trusted:
                return
            key = f"{PROBES}/{secrets.token_hex(8)}"
            self._put(key, b"1", if_version="0")
            try:
                self._must_conflict(lambda: self._put(key, b"2", if_version="0"))
                self._must_conflict(lambda: self._put(key, b"2", if_version="1"))
                self._must_conflict(lambda: self._delete(key, "1"))
            finally:
                if (found := self._get(key)) is not None:
                    self._delete(key, found[1])
            self._trusted = True

    def _must_conflict(self, request: Callable[[], object]) -> None:
        try:
            request()
        except WriteConflict:
            return
        raise ignores("ifGenerationMatch", self._url)
