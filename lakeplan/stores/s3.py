"""Deleting, looking, copying and recording in S3, or in a store that speaks its protocol (``s3://``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from botocore.exceptions import BotoCoreError, ClientError

from lakeplan.errors import StorageDenied, StorageError
from lakeplan.stores.faults import Kind, error_of, is_missing_object, is_unsupported, translate_boto_error
from lakeplan.stores.s3_client import S3Client
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
