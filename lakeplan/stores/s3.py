"""S3, or a store that speaks its protocol (``s3://``): looking, copying, recording, and state by
conditional puts (``If-None-Match``, ``If-Match``), refused where a store ignores them. A copy inside a
bucket takes everything that describes the object, and both are compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

from botocore.exceptions import BotoCoreError, ClientError

from lakeplan.errors import StorageDenied, StorageError, WriteConflict
from lakeplan.stores.faults import (
    PROBES,
    Kind,
    check_copy,
    check_data,
    check_key,
    error_of,
    ignores,
    is_missing_object,
    is_unsupported,
    not_equal,
    translate_boto_error,
)
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.s3_client import S3Client, S3Place
from lakeplan.stores.s3_delete import BATCH, S3Deleter
from lakeplan.stores.s3_reader import S3Reader, facts_of, find, is_readable
from lakeplan.stores.urls import S3Location
from lakeplan.values.objects import StoredObject
from lakeplan.values.sweep import Deletion, StoredFacts, StoreFacts, Versions

GIB = 1 << 30
ONE_REQUEST = 5 * GIB
"""The largest object that S3 copies by one request."""
PART = GIB // 2
MOST_PARTS = 10_000
COPIERS = 4
READ = 32 << 20
READ_TRIES = 3

PLACED = (
    "StorageClass",
    "ServerSideEncryption",
    "SSEKMSKeyId",
    "BucketKeyEnabled",
    "WebsiteRedirectLocation",
)
"""What no copy keeps by itself."""
DESCRIBED = (
    "Metadata", "CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType",
    "Expires",
)  # fmt: skip
"""What a copy by one request keeps by itself (``MetadataDirective=COPY``), and one in parts does not."""
ENCRYPTION = ("ServerSideEncryption", "SSEKMSKeyId")
CHECKSUMS = ("SHA256", "SHA1", "CRC64NVME", "CRC32C", "CRC32")


class S3Copier(S3Place):
    """Copies keys of one bucket. Picklable."""

    def __init__(
        self, location: S3Location, client: S3Client, *, one_request: int = ONE_REQUEST, part: int = PART
    ) -> None:
        super().__init__(location, client)
        self._one_request = one_request
        self._part = part

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredFacts:
        """``lakeplan.stores.protocols.ObjectCopier.copy``: with metadata, tags, storage class and the
        store's own encryption. Objects under a customer's key (SSE-C) cannot be copied.

        Both are equal when their sizes are, and: their ETags, where both are MD5 sums; or else a checksum of
        the whole object that the store has of both; or else the SHA-256 of what GET gives of both.
        """
        check_copy(source, target, self._where(target))
        head = self._head(source)
        if not is_readable(head):
            raise error_of(Kind.ARCHIVED, self._where(source))
        only_new = {"IfNoneMatch": "*"} if create else {}
        if head["ContentLength"] <= self._one_request:
            written = self._copy_at_once(source, target, head, only_new)
        else:
            written = self._copy_in_parts(source, target, head, only_new)
        copied = self._head(target)
        if not self._equal((source, head), (target, copied)):
            if create and copied.get("ETag") != written:  # somebody has written since: that stays
                raise error_of(Kind.CONFLICT, self._where(target))
            self._remove(target, copied)
            raise not_equal(source, self._where(target))
        if any(copied.get(name) != head.get(name) for name in ENCRYPTION if head.get(name) != "AES256"):
            self._remove(target, copied)
            raise StorageError("the copy is not encrypted as its source is", where=self._where(target))
        return facts_of(target, copied)

    def _copy_at_once(self, source: str, target: str, head: dict[str, Any], condition: dict[str, str]) -> str:
        """The ETag of the copy."""
        answer = self._call(
            target,
            lambda client: client.copy_object(
                **self._at(target),
                **self._from(source, head),
                MetadataDirective="COPY",
                TaggingDirective="COPY",
                **_kept(head, PLACED),
                **condition,
            ),
        )
        return str(answer["CopyObjectResult"]["ETag"])

    def _copy_in_parts(
        self, source: str, target: str, head: dict[str, Any], condition: dict[str, str]
    ) -> str:
        """The ETag of the copy."""
        options = _kept(head, PLACED + DESCRIBED) | self._tagging(source) | _checksum_options(head)
        upload = self._call(
            target, lambda client: client.create_multipart_upload(**self._at(target), **options)
        )["UploadId"]
        try:
            parts = self._copy_parts(source, target, head, upload)
            answer = self._call(
                target,
                lambda client: client.complete_multipart_upload(
                    **self._at(target), UploadId=upload, MultipartUpload={"Parts": parts}, **condition
                ),
            )
            return str(answer["ETag"])
        except BaseException:
            # What went wrong before is what matters; parts that stay are the bucket's lifecycle rule's.
            with contextlib.suppress(BotoCoreError, ClientError):
                self._client.get().abort_multipart_upload(**self._at(target), UploadId=upload)
            raise

    def _copy_parts(
        self, source: str, target: str, head: dict[str, Any], upload: str
    ) -> list[dict[str, Any]]:
        size = int(head["ContentLength"])
        part = max(self._part, -(-size // MOST_PARTS))

        def copy(number: int) -> dict[str, Any]:
            start = (number - 1) * part
            answer = self._call(
                target,
                lambda client: client.upload_part_copy(
                    **self._at(target),
                    **self._from(source, head),
                    CopySourceRange=f"bytes={start}-{min(start + part, size) - 1}",
                    UploadId=upload,
                    PartNumber=number,
                ),
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
        tags = self._call(source, lambda client: client.get_object_tagging(**self._at(source)))["TagSet"]
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
        for start in range(0, int(head["ContentLength"]), READ):
            digest.update(self._read_range(key, head, start, min(start + READ, head["ContentLength"])))
        return digest.digest()

    def _read_range(self, key: str, head: dict[str, Any], start: int, end: int) -> bytes:
        for left in reversed(range(READ_TRIES)):
            try:
                answer = self._client.get().get_object(
                    **self._at(key), Range=f"bytes={start}-{end - 1}", IfMatch=head["ETag"]
                )
                data: bytes = answer["Body"].read()
            except ClientError as error:
                raise translate_boto_error(error, self._where(key)) from error
            except BotoCoreError as error:
                if not left:
                    raise translate_boto_error(error, self._where(key)) from error
                continue
            if len(data) == end - start:
                return data
        raise error_of(Kind.BROKEN, self._where(key))

    def _head(self, key: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._client.get().head_object(**self._at(key), ChecksumMode="ENABLED")
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 400:
                raise StorageError(
                    "the store does not describe this object, so it cannot be copied",
                    where=self._where(key),
                    hint="It may be encrypted with a customer-provided key (SSE-C).",
                ) from error
            raise translate_boto_error(error, self._where(key)) from error
        except BotoCoreError as error:
            raise translate_boto_error(error, self._where(key)) from error
        return answer

    def _remove(self, key: str, head: dict[str, Any]) -> None:
        version = {"VersionId": head["VersionId"]} if head.get("VersionId") else {}
        self._call(key, lambda client: client.delete_object(**self._at(key), **version))

    def _from(self, source: str, head: dict[str, Any]) -> dict[str, Any]:
        """The source as it was when it was described; another object meanwhile is not copied."""
        return {"CopySource": self._at(source), "CopySourceIfMatch": head["ETag"]}


def _kept(head: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: head[name] for name in names if head.get(name)}


def _checksum_options(head: dict[str, Any]) -> dict[str, str]:
    """Asks for the checksum that the source has, where a copy in parts can have it of the whole object."""
    name = next((name for name in CHECKSUMS if _whole_checksum(head, name)), "")
    if not name.startswith("CRC") or head.get("ChecksumType") != "FULL_OBJECT":
        return {}
    return {"ChecksumAlgorithm": name, "ChecksumType": "FULL_OBJECT"}


def _whole_checksum(head: dict[str, Any], name: str) -> str:
    """A checksum of the content, not of the checksums of parts; "" when there is none."""
    value = str(head.get(f"Checksum{name}", ""))
    return "" if head.get("ChecksumType") == "COMPOSITE" or "-" in value else value


def _plain_md5(head: dict[str, Any]) -> str:
    """The ETag where it is the content's MD5: not of an upload in parts, nor under KMS."""
    tag = str(head.get("ETag", "")).strip('"')
    if head.get("ServerSideEncryption") not in (None, "AES256") or not re.fullmatch("[0-9a-f]{32}", tag):
        return ""
    return tag


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
