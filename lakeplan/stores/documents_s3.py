"""State in S3: conditional puts (``If-None-Match``, ``If-Match``), refused where a store ignores them."""

from __future__ import annotations

import secrets
import threading

from lakeplan.errors import WriteConflict
from lakeplan.stores.faults import PROBES, check_data, check_key, ignores
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.s3_client import S3Client, S3Place
from lakeplan.stores.s3_reader import S3Reader
from lakeplan.stores.urls import S3Location


class S3State(S3Place):
    """``lakeplan.stores.protocols.StateWriter`` under a prefix of a bucket. A version is the store's ETag.

    A deleted record is an empty object: fewer stores have conditional deletes than conditional puts. Before
    its first write a store is asked whether it keeps to the conditions; one that does not is refused.
    """

    def __init__(
        self, location: S3Location, *, endpoint_url: str | None = None, region: str | None = None
    ) -> None:
        super().__init__(location, S3Client(endpoint_url, region))
        self._listing = S3Reader(location, endpoint_url=endpoint_url, region=region)
        self._probing = threading.Lock()
        self._trusted = False

    def read(self, key: str) -> Versioned | None:
        check_key(key, self._url)
        found = self._get(key)
        return found if found is not None and found.data else None

    def list_keys(self, prefix: str = "") -> list[str]:
        return sorted(
            found.key
            for found in self._listing.list_objects(prefix)
            if found.size and not found.key.startswith(PROBES)
        )

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        check_key(key, self._url)
        check_data(data, self._where(key))
        self._probe()
        if if_version is not None:
            return self._put(key, data, {"IfMatch": if_version})
        try:
            return self._put(key, data, {"IfNoneMatch": "*"})
        except WriteConflict:
            deleted = self._get(key)
            if deleted is None or deleted.data:
                raise
            return self._put(key, data, {"IfMatch": deleted.version})

    def delete(self, key: str, *, if_version: str) -> None:
        check_key(key, self._url)
        self._probe()
        self._put(key, b"", {"IfMatch": if_version})

    def _probe(self) -> None:
        """One new object, put again under conditions that must fail; once per opened store."""
        with self._probing:
            if self._trusted:
                return
            key = f"{PROBES}/{secrets.token_hex(8)}"
            self._put(key, b"1", {"IfNoneMatch": "*"})
            try:
                self._must_conflict(key, {"IfNoneMatch": "*"}, "If-None-Match")
                self._must_conflict(key, {"IfMatch": '"00000000000000000000000000000000"'}, "If-Match")
            finally:
                self._call(key, lambda client: client.delete_object(**self._at(key)))
            self._trusted = True

    def _must_conflict(self, key: str, condition: dict[str, str], name: str) -> None:
        try:
            self._put(key, b"2", condition)
        except WriteConflict:
            return
        raise ignores(name, self._url)
