"""S3 and compatible stores (``s3://``): deletions, copies, records, and state by conditional puts."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

from botocore.exceptions import BotoCoreError, ClientError

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError, StoreBusy, WriteConflict
from lakeplan.stores.faults import (
    DAMAGED,
    S3_CODES,
    Kind,
    code_of,
    error_of,
    is_missing_object,
    is_unsupported,
    reason_of,
    translate_boto_error,
)
from lakeplan.stores.open import NO_ACCESS, Access, S3Location, check_copy
from lakeplan.stores.s3_client import (
    CHECKSUMS,
    ONLY_NEW,
    S3Client,
    S3Place,
    S3Reader,
    answer_behind,
    boto_errors,
    checksum_options,
    described,
    first_version,
    is_readable,
    plain_md5,
    stored_object,
    whole_checksum,
)
from lakeplan.stores.shared import (
    CHANGED,
    NOT_NAMED,
    THREADS,
    TOO_MANY_VERSIONS,
    UNLISTED,
    BatchDeleter,
    ConditionalState,
    not_encrypted_alike,
    not_equal,
)
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import StoredObject, batches
from lakeplan.values.sweep import Deletion, StoreFacts, Versions

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


class S3Copier(S3Reader):
    """Copies keys of one bucket. Picklable."""

    def copy(self, source: str, target: str, *, create: bool) -> StoredObject:
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
        options = _kept(head, PLACED + DESCRIBED) | self._tagging(source) | checksum_options(head)
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
            return list(pool.map(copy, range(1, -(-size // part) + 1)))

    def _tagging(self, source: str) -> dict[str, str]:
        with boto_errors(self._where(source)):
            tags = self._client.get().get_object_tagging(**self._at(source))["TagSet"]
            return {"Tagging": urlencode({tag["Key"]: tag["Value"] for tag in tags})} if tags else {}

    def _equal(self, one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]) -> bool:
        (key, head), (other_key, other_head) = one, other
        if head["ContentLength"] != other_head["ContentLength"]:
            return False
        if (tag := plain_md5(head)) and tag == plain_md5(other_head):
            return True
        for name in CHECKSUMS:
            mine, its = whole_checksum(head, name), whole_checksum(other_head, name)
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
            if answer_behind(error, "ResponseMetadata").get("HTTPStatusCode") == 400:
                raise StorageError(
                    "the store did not return this object's metadata, so the object cannot be copied",
                    where=self._where(key),
                    hint="Check whether it is encrypted with a customer-provided key (SSE-C).",
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


BATCH = 1_000
CURRENT = ""
"""No version id, which means the current version."""
REPLACEABLE = (CURRENT, "null")
"""Ids whose object a put replaces: ``null`` is the version of a bucket that keeps none (any more)."""

Version = tuple[str, str]
"""A key of the bucket and the id of one of its versions."""
Failure = tuple[str, bool]
"""A reason, and whether the same request may succeed later."""
Tags = Mapping[str, str]
"""By key of the bucket, the ETag that an object must have to be deleted."""
UNCONDITIONAL = ("MalformedXML", "NotImplemented")
"""Error codes of stores that do not support conditions for deletions."""
GONE = ("NoSuchKey", "NoSuchVersion")


class S3Deleter(BatchDeleter, S3Place):
    """Deletes keys of one bucket. Each request to delete is sent only once, so that the caller learns when
    the store is overloaded. Picklable."""

    batch_size = BATCH

    def __init__(self, location: S3Location, access: Access = NO_ACCESS) -> None:
        super().__init__(location, access)
        self._once = S3Client(access, 1)
        self._conditional = True

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
            self._client.get().get_object(**self._at(key), Range="bytes=0-0")["Body"].close()
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

    def _delete_keys(
        self, keys: list[str], versions: Versions, expected: Mapping[str, StoredObject]
    ) -> dict[str, Deletion]:
        """Delete keys, with ``Versions.ALL`` all their versions and delete markers unless the bucket never
        kept versions. A key fails if one of its versions was not deleted. The reason says how many were
        not. Then the current version stays, so that the object is still listed and is tried again."""
        failed: dict[str, Deletion] = {}
        if versions is Versions.ALL and self._may_keep_versions():
            listed = in_parallel(lambda key: self._versions_of(key, expected.get(key)), keys, THREADS)
            all_of = dict(zip(keys, listed, strict=True))
            named = {key: of_key for key, of_key in all_of.items() if not isinstance(of_key, Deletion)}
            failed = {key: of_key for key, of_key in all_of.items() if isinstance(of_key, Deletion)}
        else:
            named = {key: [(self._base + key, CURRENT)] for key in keys}
        tags = {self._base + key: expected[key].e_tag for key in keys if key in expected}
        failures = self._delete_versions([one for of_key in named.values() for one in of_key[:-1]], {})
        last = [of_key[-1] for of_key in named.values() if of_key and failures.keys().isdisjoint(of_key)]
        failures |= self._delete_versions(last, tags)
        for key, of_key in named.items():
            bad = [failures[version] for version in of_key if version in failures]
            if bad:
                left = len(bad) + (of_key[-1] not in failures)  # the current one was not requested
                failed[key] = _deletion(key, bad, left, len(of_key))
        return failed

    def _may_keep_versions(self) -> bool:
        """Return whether keys may have older versions. Each batch asks, because the setting can change. A
        store that supports neither the setting nor the listing of versions has none."""
        client = self._client.get()
        try:
            with boto_errors(self._url):
                answer = client.get_bucket_versioning(Bucket=self._bucket)
        except StorageDenied:
            return True  # listing the versions may still be allowed
        except StorageError as error:
            if not is_unsupported(error):
                raise
        else:
            return bool(answer.get("Status"))
        try:
            with boto_errors(self._url):
                client.list_object_versions(Bucket=self._bucket, MaxKeys=1)
        except StorageError as error:
            if not is_unsupported(error):
                raise
            return False
        return True

    def _versions_of(self, key: str, expected: StoredObject | None) -> list[Version] | Deletion:
        """Return all versions and delete markers of exactly this key, the current one last. A listing has
        them before all keys that only begin with it. Returns a failure if one of them is newer than the
        expected object or replaced it, if there are too many, and if the listing may omit the object."""
        full = self._base + key
        versions: list[Version] = []
        latest: list[Version] = []
        is_listed = False
        for page in self._pages("list_object_versions", first_version, key):
            items = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            with boto_errors(self._url):
                stored = [
                    (item, stored_object(item, self._base))
                    for item in page.get("Versions", ())
                    if item["Key"] == full
                ]
                if expected is not None and any(_replaces(*one, expected) for one in stored):
                    return Deletion(key, CHANGED, changed=True)
                is_listed |= any(expected is None or _is_same(version, expected) for _, version in stored)
                for item in items:
                    if item["Key"] == full:
                        (latest if item.get("IsLatest") else versions).append((full, item["VersionId"]))
            if any(item["Key"] != full for item in items):
                break
            if len(versions) > limits.STORE_VERSIONS:
                return Deletion(key, TOO_MANY_VERSIONS)
        return versions + latest if is_listed else self._omitted(key) or versions + latest

    def _omitted(self, key: str) -> Deletion | None:
        """Return a failure if an object exists that a listing omitted, or if the store does not say so."""
        try:
            return None if self.stat(key) is None else Deletion(key, UNLISTED)
        except StorageError as error:
            return Deletion(key, error.message, transient=isinstance(error, StoreBusy))

    def _delete_versions(self, versions: list[Version], tags: Tags) -> dict[Version, Failure]:
        """Return those that were not deleted."""
        failures: dict[Version, Failure] = {}
        batched = [version for version in versions if _fits_xml(version[0])]
        for batch in batches(batched, BATCH):
            failed = self._delete_batch(batch, tags)
            if failed is None:  # the store supports no condition: the listing of a moment ago must do
                self._conditional = False
                failed = self._delete_batch(batch, tags) or {}
            failures |= failed
        for version in versions:
            if not _fits_xml(version[0]) and (failure := self._delete_alone(*version, tags)) is not None:
                failures[version] = failure
        return failures

    def _delete_batch(self, versions: list[Version], tags: Tags) -> dict[Version, Failure] | None:
        """Return those that were not deleted, or None if the store cannot delete under a condition."""
        objects = [
            {"Key": key, **_version_id(version), **self._condition("ETag", key, version, tags)}
            for key, version in versions
        ]
        conditional = any("ETag" in one for one in objects)
        request = {"Objects": objects, "Quiet": False}
        try:
            with boto_errors(self._url):
                answer = self._once.get().delete_objects(Bucket=self._bucket, Delete=request)
        except StorageDenied as error:
            # Some stores refuse the whole batch for one locked object. Then each object gets a request.
            if not _names_lock(answer_behind(error, "Error")):
                raise
            alone = ((version, self._delete_alone(*version, tags)) for version in versions)
            return {version: failure for version, failure in alone if failure is not None}
        except StorageError as error:
            if conditional and answer_behind(error, "Error").get("Code") in UNCONDITIONAL:
                return None
            raise
        if conditional and any(item.get("Code") in UNCONDITIONAL for item in answer.get("Errors", ())):
            return None
        if not answer.get("Deleted") and not answer.get("Errors"):
            raise error_of(Kind.BROKEN, self._url, detail="the response does not list any key")
        requested = dict.fromkeys(versions, (NOT_NAMED, True))
        left = requested.copy()
        for item in answer.get("Deleted", ()):
            named = _named_in(item, left)
            if len(named) == 1:
                left.pop(named[0])
        for item in answer.get("Errors", ()):
            named = _named_in(item, left) or _named_in(item, requested)  # also if it says deleted too
            if item.get("Code") in GONE and len(named) == 1:  # stores differ on what is deleted already
                left.pop(named[0], None)
            else:
                left |= dict.fromkeys(named, _failure(item))
        return left

    def _condition(self, name: str, key: str, version: str, tags: Tags) -> dict[str, str]:
        """Return the condition that the current version still has its ETag. Versions with an id of their own
        never change."""
        tag = tags.get(key) if self._conditional and version in REPLACEABLE else None
        return {name: tag} if tag else {}

    def _delete_alone(self, key: str, version: str, tags: Tags) -> Failure | None:
        """Delete a version by a separate request, whose URL has the key, escaped."""
        options = {**_version_id(version), **self._condition("IfMatch", key, version, tags)}
        try:
            with boto_errors(self._url):
                self._once.get().delete_object(Bucket=self._bucket, Key=key, **options)
        except WriteConflict:
            return CHANGED, False
        except StoreBusy as error:
            return error.message, True
        except StorageError as error:
            if "IfMatch" in options and is_unsupported(error):
                self._conditional = False
                return self._delete_alone(key, version, tags)
            if not isinstance(error, StorageDenied) or error.message != Kind.DENIED.value.message:
                raise  # without credentials the whole batch fails
            return _failure(answer_behind(error, "Error"))
        return None


def _fits_xml(key: str) -> bool:
    """Return whether XML can have this key. It cannot have most control characters, and parsers may change
    white space: a batch would then name another object."""
    return key.isprintable() and key == key.strip()


def _is_same(version: StoredObject, expected: StoredObject) -> bool:
    return (version.size, version.modified_us, version.e_tag) == (
        expected.size,
        expected.modified_us,
        expected.e_tag,
    )


def _replaces(item: dict[str, Any], version: StoredObject, expected: StoredObject) -> bool:
    """Return whether a version is newer than the expected object, or the current one instead of it. Times of
    S3 are whole seconds, so another object of the same second may be newer."""
    if version.modified_us > expected.modified_us:
        return True
    other = (version.size, version.e_tag) != (expected.size, expected.e_tag)
    return other and (version.modified_us == expected.modified_us or bool(item.get("IsLatest")))


def _version_id(version: str) -> dict[str, str]:
    return {} if version == CURRENT else {"VersionId": version}


def _named_in(item: dict[str, Any], requested: dict[Version, Failure]) -> list[Version]:
    """Return the requested versions that an entry of the response may mean. Some stores name only the key,
    which may be any of its versions."""
    key: Any = item.get("Key")
    ids = (item.get("VersionId"), item.get("DeleteMarkerVersionId"), CURRENT)
    exact = [(key, one) for one in ids if one is not None and (key, one) in requested]
    if exact or item.get("VersionId"):
        return exact[:1]
    return [version for version in requested if version[0] == key]


def _failure(item: dict[str, Any]) -> Failure:
    """Return the reason of an entry. It names a lock, but omits the store's text."""
    code = code_of(item.get("Code"))
    if code == "PreconditionFailed":
        return CHANGED, False
    kind = S3_CODES.get(code)
    reason = f"{code}: the object is locked" if _names_lock(item) else reason_of(code, kind)
    return reason, kind is Kind.BUSY or code == "ConditionalRequestConflict"


def _names_lock(item: dict[str, Any]) -> bool:
    text = str(item.get("Message")).lower()
    return "object lock" in text or "worm" in text


def _deletion(key: str, failures: list[Failure], left: int, versions: int) -> Deletion:
    reason = failures[0][0]
    if reason == CHANGED:
        return Deletion(key, reason, changed=True)
    if versions > 1:
        reason = f"{left} of {versions} versions were not deleted: {reason}"
    return Deletion(key, reason, transient=all(transient for _, transient in failures))


class S3Store(S3Deleter, S3Copier):
    """Implements ``SweepStore`` under a prefix of a bucket."""

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
