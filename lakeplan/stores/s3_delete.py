"""Deletes from S3 in batches of 1,000, with one attempt and a result for each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError, StoreBusy, WriteConflict
from lakeplan.stores.faults import S3_CODES, Kind, error_of, is_unsupported, reason_of
from lakeplan.stores.open import NO_ACCESS, Access, S3Location
from lakeplan.stores.s3_client import S3Client, S3Place, boto_errors
from lakeplan.stores.s3_reader import first_version, stored_object
from lakeplan.stores.shared import CHANGED, NOT_NAMED, TOO_MANY_VERSIONS, BatchDeleter, in_threads
from lakeplan.values.objects import StoredObject, batches
from lakeplan.values.sweep import Deletion, Versions

BATCH = 1_000
CURRENT = ""
"""No version id, which means the current version."""

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

    def _delete_keys(
        self, keys: list[str], versions: Versions, expected: Mapping[str, StoredObject]
    ) -> dict[str, Deletion]:
        """Delete keys, with ``Versions.ALL`` all their versions and delete markers unless the bucket never
        kept versions. A key fails if one of its versions was not deleted. The reason says how many were
        not."""
        failed: dict[str, Deletion] = {}
        if versions is Versions.ALL and self._may_keep_versions():
            listed = in_threads(lambda key: self._versions_of(key, expected.get(key)), keys)
            all_of = dict(zip(keys, listed, strict=True))
            named = {key: of_key for key, of_key in all_of.items() if not isinstance(of_key, Deletion)}
            failed = {key: of_key for key, of_key in all_of.items() if isinstance(of_key, Deletion)}
        else:
            named = {key: [(self._base + key, CURRENT)] for key in keys}
        tags = {self._base + key: expected[key].e_tag for key in keys if key in expected}
        requested = [version for of_key in named.values() for version in of_key]
        failures = self._delete_versions(requested, tags)
        for key, of_key in named.items():
            bad = [failures[version] for version in of_key if version in failures]
            if bad:
                failed[key] = _deletion(key, bad, len(of_key))
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
        """Return all versions and delete markers of exactly this key, which a listing has before all keys
        that only begin with it. Returns a failure if one of them is newer than the expected object or
        replaced it, and if there are too many."""
        full = self._base + key
        versions: list[Version] = []
        for page in self._pages("list_object_versions", first_version, key):
            items = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            with boto_errors(self._url):
                if expected is not None and any(
                    _replaces(item, stored_object(item, self._base), expected)
                    for item in page.get("Versions", ())
                    if item["Key"] == full
                ):
                    return Deletion(key, CHANGED, changed=True)
                versions += [(full, item["VersionId"]) for item in items if item["Key"] == full]
            if any(item["Key"] != full for item in items):
                break
            if len(versions) > limits.STORE_VERSIONS:
                return Deletion(key, TOO_MANY_VERSIONS)
        return versions

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
            if not _names_lock(_answer_of(error.__cause__)):
                raise
            alone = ((version, self._delete_alone(*version, tags)) for version in versions)
            return {version: failure for version, failure in alone if failure is not None}
        except StorageError as error:
            if conditional and _answer_of(error.__cause__).get("Code") in UNCONDITIONAL:
                return None
            raise
        if conditional and any(item.get("Code") in UNCONDITIONAL for item in answer.get("Errors", ())):
            return None
        if not answer.get("Deleted") and not answer.get("Errors"):
            raise error_of(Kind.BROKEN, self._url, detail="a response that names no key")
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
        """Return the condition that the current version still has its ETag. Versions with an id never
        change."""
        tag = tags.get(key) if self._conditional and version == CURRENT else None
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
            return _failure(_answer_of(error.__cause__))
        return None


def _fits_xml(key: str) -> bool:
    """Return whether XML can have this key. It cannot have most control characters, and parsers may change
    white space: a batch would then name another object."""
    return key.isprintable() and key == key.strip()


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
    key = str(item.get("Key", ""))
    ids = (item.get("VersionId"), item.get("DeleteMarkerVersionId"), CURRENT)
    exact = [(key, one) for one in ids if one is not None and (key, one) in requested]
    if exact or item.get("VersionId"):
        return exact[:1]
    return [version for version in requested if version[0] == key]


def _answer_of(error: BaseException | None) -> dict[str, Any]:
    answer: dict[str, Any] = error.response.get("Error", {}) if isinstance(error, ClientError) else {}
    return answer


def _failure(item: dict[str, Any]) -> Failure:
    """Return the reason of an entry. It names a lock, but omits the store's text."""
    code = str(item.get("Code", ""))
    if code == "PreconditionFailed":
        return CHANGED, False
    kind = S3_CODES.get(code)
    reason = f"{code}: the object is locked" if _names_lock(item) else reason_of(code, kind)
    return reason, kind is Kind.BUSY or code == "ConditionalRequestConflict"


def _names_lock(item: dict[str, Any]) -> bool:
    text = str(item.get("Message", "")).lower()
    return "object lock" in text or "worm" in text


def _deletion(key: str, failures: list[Failure], versions: int) -> Deletion:
    reason = failures[0][0]
    if reason == CHANGED:
        return Deletion(key, reason, changed=True)
    if versions > 1:
        reason = f"{len(failures)} of {versions} versions not deleted: {reason}"
    return Deletion(key, reason, transient=all(transient for _, transient in failures))
