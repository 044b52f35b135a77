"""S3 and compatible stores (``s3://``): copies, records, and state by conditional puts."""

from __future__ import annotations

import contextlib
import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

from botocore.exceptions import BotoCoreError, ClientError

from lakeplan.errors import StorageDenied, StorageError, WriteConflict
from lakeplan.stores.faults import (
    DAMAGED,
    Kind,
    error_of,
    is_missing_object,
    is_unsupported,
    translate_boto_error,
)
from lakeplan.stores.open import NO_ACCESS, Access, S3Location
from lakeplan.stores.s3_client import ONLY_NEW, boto_errors
from lakeplan.stores.s3_delete import S3Deleter
from lakeplan.stores.s3_reader import S3Reader, described, is_readable
from lakeplan.stores.shared import ConditionalState, check_copy, not_encrypted_alike, not_equal
from lakeplan.values.objects import StoredObject
from lakeplan.values.sweep import StoreFacts

GIB = 1 << 30
ONE_REQUEST = 5 * GIB
"""The largest object that S3 copies by one request."""
PART = GIB // 2
MOST_PARTS = 10_000
COPIERS = 4
READ = 32 << 20

PLACED = (
    "StorageClass",
    "ServerSideEncryption",
    "SSEKMSKeyId",
    "BucketKeyEnabled",
    "WebsiteRedirectLocation",
)
"""Properties that S3 copies only on request."""
DESCRIBED = (
    "Metadata",
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Expires",
)
"""Properties that a copy by one request has (``MetadataDirective=COPY``), and a copy in parts has not."""
ENCRYPTION = ("ServerSideEncryption", "SSEKMSKeyId")
CHECKSUMS = ("SHA256", "SHA1", "CRC64NVME", "CRC32C", "CRC32")


class S3Copier(S3Reader):
    """Copies keys of one bucket. Picklable."""

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredObject:
        """Copy with metadata, tags, storage class and the store's encryption. See ``ObjectCopier``. Objects
        under a customer's key (SSE-C) cannot be copied.

        Both must have the same size, and the same ETag if both are MD5 sums, otherwise the same checksum if
        the store has one of both whole objects, otherwise the same SHA-256 by GET.
        """
        check_copy(source, target, self._where(target))
        head = self._head(source)
        if not is_readable(head):
            raise error_of(Kind.ARCHIVED, self._where(source))
        written = self._copy(source, target, head, create=create)
        copied = self._head(target)
        if not self._equal((source, head), (target, copied)):
            if create and copied.get("ETag") != written:  # another writer's object, which is kept
                raise error_of(Kind.CONFLICT, self._where(target))
            self.remove(target, copied.get("VersionId"))
            raise not_equal(source, self._where(target))
        if any(copied.get(name) != head.get(name) for name in ENCRYPTION if head.get(name) != "AES256"):
            self.remove(target, copied.get("VersionId"))
            raise not_encrypted_alike(self._where(target))
        return described(target, copied)

    def _copy(self, source: str, target: str, head: dict[str, Any], *, create: bool) -> str:
        """Return the ETag of the copy. With ``create``, it has a condition if the store supports that."""
        copy = self._copy_at_once if head["ContentLength"] <= ONE_REQUEST else self._copy_in_parts
        if create:
            try:
                return copy(source, target, head, ONLY_NEW)
            except StorageError as error:
                if not is_unsupported(error):
                    raise
        return copy(source, target, head, {})

    def _copy_at_once(self, source: str, target: str, head: dict[str, Any], condition: dict[str, str]) -> str:
        """Return the ETag of the copy."""
        with boto_errors(self._where(target)):
            answer = self._client.get().copy_object(
                **self._at(target),
                **self._from(source, head),
                MetadataDirective="COPY",
                TaggingDirective="COPY",
                **_kept(head, PLACED),
                **condition,
            )
            return str(answer["CopyObjectResult"]["ETag"])

    def _copy_in_parts(
        self, source: str, target: str, head: dict[str, Any], condition: dict[str, str]
    ) -> str:
        """Return the ETag of the copy."""
        options = _kept(head, PLACED + DESCRIBED) | self._tagging(source) | _checksum_options(head)
        client = self._client.get()
        with boto_errors(self._where(target)):
            upload = client.create_multipart_upload(**self._at(target), **options)["UploadId"]
        try:
            parts = self._copy_parts(source, target, head, upload)
            with boto_errors(self._where(target)):
                answer = client.complete_multipart_upload(
                    **self._at(target), UploadId=upload, MultipartUpload={"Parts": parts}, **condition
                )
                return str(answer["ETag"])
        except BaseException:
            # The first error matters. The bucket's lifecycle rule may remove the parts.
            with contextlib.suppress(BotoCoreError, ClientError):
                client.abort_multipart_upload(**self._at(target), UploadId=upload)
            raise

    def _copy_parts(
        self, source: str, target: str, head: dict[str, Any], upload: str
    ) -> list[dict[str, Any]]:
        size = int(head["ContentLength"])
        part = max(PART, -(-size // MOST_PARTS))

        def copy(number: int) -> dict[str, Any]:
            start = (number - 1) * part
            with boto_errors(self._where(target)):
                answer = self._client.get().upload_part_copy(
                    **self._at(target),
                    **self._from(source, head),
                    CopySourceRange=f"bytes={start}-{min(start + part, size) - 1}",
                    UploadId=upload,
                    PartNumber=number,
                )["CopyPartResult"]
            named = {name: answer[name] for name in answer if name == "ETag" or name.startswith("Checksum")}
            return {"PartNumber": number, **named}

        with ThreadPoolExecutor(COPIERS) as pool:
            try:
                return list(pool.map(copy, range(1, -(-size // part) + 1)))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _tagging(self, source: str) -> dict[str, str]:
        with boto_errors(self._where(source)):
            tags = self._client.get().get_object_tagging(**self._at(source))["TagSet"]
            return {"Tagging": urlencode({tag["Key"]: tag["Value"] for tag in tags})} if tags else {}

    def _equal(self, one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]) -> bool:
        (key, head), (other_key, other_head) = one, other
        if head["ContentLength"] != other_head["ContentLength"]:
            return False
        if (tag := _plain_md5(head)) and tag == _plain_md5(other_head):
            return True
        for name in CHECKSUMS:
            mine, its = _whole_checksum(head, name), _whole_checksum(other_head, name)
            if mine and its:
                return mine == its
        return self._digest(key, head) == self._digest(other_key, other_head)

    def _digest(self, key: str, head: dict[str, Any]) -> bytes:
        digest = hashlib.sha256()
        size = int(head["ContentLength"])
        for start in range(0, size, READ):
            end = min(start + READ, size)
            data = self._read(key, Range=f"bytes={start}-{end - 1}", IfMatch=head["ETag"])
            if len(data) != end - start:
                raise error_of(Kind.BROKEN, self._where(key))
            digest.update(data)
        return digest.digest()

    def _head(self, key: str) -> dict[str, Any]:
        try:
            with boto_errors(self._where(key)):
                answer: dict[str, Any] = self._client.get().head_object(
                    **self._at(key), ChecksumMode="ENABLED"
                )
                if not described(key, answer).e_tag:
                    raise ValueError("no ETag")
        except StorageError as error:
            cause = error.__cause__
            answered = cause.response.get("ResponseMetadata", {}) if isinstance(cause, ClientError) else {}
            if answered.get("HTTPStatusCode") == 400:
                raise StorageError(
                    "the store does not describe this object, so it cannot be copied",
                    where=self._where(key),
                    hint="It may be encrypted with a customer-provided key (SSE-C).",
                ) from error
            raise
        return answer

    def remove(self, key: str, version_id: str | None = None) -> None:
        version = {"VersionId": version_id} if version_id else {}
        with boto_errors(self._where(key)):
            self._client.get().delete_object(**self._at(key), **version)

    def _from(self, source: str, head: dict[str, Any]) -> dict[str, Any]:
        """Return the source, with the condition that it is still the described object."""
        return {"CopySource": self._at(source), "CopySourceIfMatch": head["ETag"]}


def _kept(head: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: head[name] for name in names if head.get(name)}


def _checksum_options(head: dict[str, Any]) -> dict[str, str]:
    """Return the options for the checksum of the source, if a copy in parts can have it for the whole
    object."""
    name = next((name for name in CHECKSUMS if _whole_checksum(head, name)), "")
    if not name.startswith("CRC") or head.get("ChecksumType") != "FULL_OBJECT":
        return {}
    return {"ChecksumAlgorithm": name, "ChecksumType": "FULL_OBJECT"}


def _whole_checksum(head: dict[str, Any], name: str) -> str:
    """Return a checksum of the whole object, not of checksums of parts, or "" if there is none."""
    value = str(head.get(f"Checksum{name}", ""))
    return "" if head.get("ChecksumType") == "COMPOSITE" or "-" in value else value


def _plain_md5(head: dict[str, Any]) -> str:
    """Return the ETag if it is the MD5 of the object, or "" for multipart uploads and KMS."""
    tag = str(head.get("ETag", "")).strip('"')
    if head.get("ServerSideEncryption") not in (None, "AES256") or not re.fullmatch("[0-9a-f]{32}", tag):
        return ""
    return tag


class S3Store(S3Deleter, S3Copier):
    """Implements ``SweepStore`` under a prefix of a bucket."""

    def stat(self, key: str) -> StoredObject | None:
        try:
            with boto_errors(self._where(key)):
                return described(key, self._client.get().head_object(**self._at(key)))
        except StorageError as error:
            # A 404 to HEAD has no body and may mean the bucket. GET distinguishes them.
            if is_missing_object(error) and self.is_gone(key):
                return None
            raise

    def is_gone(self, key: str) -> bool:
        """Return whether GET of the first byte finds no object. Only S3's error code for a missing object
        counts: a 404 of a proxy, or a refusal, is an error."""
        try:
            body = self._client.get().get_object(**self._at(key), Range="bytes=0-0")["Body"]
            body.close()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code in ("NoSuchKey", "InvalidRange", "InvalidObjectState"):
                # An empty object has no first byte. Archived objects exist.
                return bool(code == "NoSuchKey")
            raise translate_boto_error(error, self._where(key)) from error
        except (BotoCoreError, *DAMAGED):
            with boto_errors(self._where(key)):
                raise
        return False

    def facts(self) -> StoreFacts:
        try:
            with boto_errors(self._url):
                answer = self._client.get().get_bucket_versioning(Bucket=self._bucket)
        except StorageError as error:
            if is_unsupported(error) or isinstance(error, StorageDenied):
                return StoreFacts(versioned=None, soft_delete=False)
            raise
        # If versioning is suspended, older versions remain.
        return StoreFacts(versioned=bool(answer.get("Status")), soft_delete=False)

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredObject:
        """Implements ``ObjectCopier``. With ``create``, it asks before like ``create``."""
        if create and not self.is_gone(target):
            raise error_of(Kind.CONFLICT, self._where(target))
        return super().copy(source, target, create=create)

    def put(self, key: str, data: bytes) -> None:
        self.put_record(key, data, {})

    def create(self, key: str, data: bytes) -> None:
        """Write with ``If-None-Match: *``, after a request for stores that ignore it. If two writers create
        at the same moment, one fails only if the store obeys the condition (AWS and MinIO do)."""
        if not self.is_gone(key):
            raise error_of(Kind.CONFLICT, self._where(key))
        self.put_record(key, data, ONLY_NEW)


class S3State(ConditionalState[S3Store]):
    """Implements ``StateWriter`` under a prefix of a bucket. A version is the store's ETag.

    A deleted record is an empty object, because fewer stores have conditional deletes than conditional puts.
    """

    def __init__(self, location: S3Location, access: Access = NO_ACCESS) -> None:
        super().__init__(S3Store(location, access))

    def _is_deleted(self, size: int) -> bool:
        return size == 0

    def _write(self, key: str, data: bytes, if_version: str | None) -> str:
        if if_version is not None:
            return self._store.put_record(key, data, {"IfMatch": if_version})
        try:
            return self._store.put_record(key, data, ONLY_NEW)
        except WriteConflict:
            deleted = self._store.get_record(key)
            if deleted is None or deleted.data:
                raise
            return self._store.put_record(key, data, {"IfMatch": deleted.version})

    def _delete(self, key: str, if_version: str) -> None:
        self._store.put_record(key, b"", {"IfMatch": if_version})

    def _probe(self, key: str) -> None:
        put = self._store.put_record
        wrong_version = {"IfMatch": '"00000000000000000000000000000000"'}
        put(key, b"1", ONLY_NEW)
        try:
            self._must_conflict("If-None-Match", lambda: put(key, b"2", ONLY_NEW))
            self._must_conflict("If-Match", lambda: put(key, b"2", wrong_version))
        finally:
            self._store.remove(key)
