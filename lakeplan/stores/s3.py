"""S3, or a store that speaks its protocol (``s3://``): deleting, looking, copying, recording, and state
by conditional puts (``If-None-Match``, ``If-Match``), refused where a store ignores them.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence

from botocore.exceptions import BotoCoreError, ClientError

from lakeplan.errors import StorageDenied, StorageError, WriteConflict
from lakeplan.stores.faults import (
    PROBES,
    Kind,
    check_data,
    check_key,
    error_of,
    ignores,
    is_missing_object,
    is_unsupported,
    translate_boto_error,
)
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.s3_client import S3Client, S3Place
from lakeplan.stores.s3_copy import ONE_REQUEST, PART, S3Copier
from lakeplan.stores.s3_delete import BATCH, S3Deleter
from lakeplan.stores.s3_reader import S3Reader, facts_of, find
from lakeplan.stores.urls import S3Location
from lakeplan.values.objects import StoredObject
from lakeplan.values.sweep import Deletion, StoredFacts, StoreFacts, Versions


class S3Store(S3Reader):
    """``lakeplan.stores.protocols.SweepStore`` under a prefix of a bucket. Objects of more than
    ``one_request`` bytes are copied in parts of ``part``."""

    def __init__(
        self,
        location: S3Location,
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        connect_seconds: float | None = None,
        read_seconds: float | None = None,
        one_request: int = ONE_REQUEST,
        part: int = PART,
    ) -> None:
        limits = {"connect_seconds": connect_seconds, "read_seconds": read_seconds}
        super().__init__(location, endpoint_url=endpoint_url, region=region, **limits)
        once = S3Client(endpoint_url, region, **limits, tries=1)
        self._copier = S3Copier(location, self._client, one_request=one_request, part=part)
        self._deleter = S3Deleter(location, self._client, once)

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
        return find(self._client, self._bucket, self._base, keys, self.url)

    def stat(self, key: str) -> StoredFacts | None:
        try:
            answer = self._call(key, lambda client: client.head_object(**self._at(key)))
        except StorageError as error:
            # A 404 to HEAD has no body: it may speak of the bucket. GET tells them apart.
            if is_missing_object(error) and self.is_gone(key):
                return None
            raise
        return facts_of(key, answer)

    def is_gone(self, key: str) -> bool:
        """By GET of the first byte. Only S3's own word for a missing object is taken for one: a proxy's 404,
        or a refusal, is an error."""
        try:
            body = self._client.get().get_object(**self._at(key), Range="bytes=0-0")["Body"]
            body.close()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code in ("NoSuchKey", "InvalidRange", "InvalidObjectState"):
                return bool(
                    code == "NoSuchKey"
                )  # of an empty object there is no byte; archived ones are there
            translated = translate_boto_error(error, self._where(key))
            if is_missing_object(translated):
                raise StorageError(
                    "the response does not say whether the object exists",
                    where=self._where(key),
                    hint="Check proxies and endpoint_url: something other than the store returned"
                    " status 404.",
                ) from error
            raise translated from error
        except BotoCoreError as error:
            raise translate_boto_error(error, self._where(key)) from error
        return False

    def facts(self) -> StoreFacts:
        try:
            answer = self._client.get().get_bucket_versioning(Bucket=self._bucket)
        except (BotoCoreError, ClientError) as error:
            translated = translate_boto_error(error, self.url)
            if is_unsupported(translated) or isinstance(translated, StorageDenied):
                return StoreFacts(versioned=None, soft_delete=False)
            raise translated from error
        # Suspended, too, leaves older versions behind.
        return StoreFacts(versioned=bool(answer.get("Status")), soft_delete=False)

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredFacts:
        """With ``create`` as ``create`` does it."""
        if create and not self.is_gone(target):
            raise error_of(Kind.CONFLICT, self._where(target))
        try:
            return self._copier.copy(source, target, create=create)
        except StorageError as error:
            if not (create and is_unsupported(error)):
                raise
            return self._copier.copy(source, target)

    def put(self, key: str, data: bytes) -> None:
        self._put(key, data, {})

    def create(self, key: str, data: bytes) -> None:
        """With ``If-None-Match: *``, and asks before, for stores that do not know it. Of two that create at
        the same moment one fails only where the store keeps to the condition (AWS, MinIO do)."""
        if not self.is_gone(key):
            raise error_of(Kind.CONFLICT, self._where(key))
        self._put(key, data, {"IfNoneMatch": "*"})


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
