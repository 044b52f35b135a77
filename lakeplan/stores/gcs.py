"""Google Cloud Storage (``gs://``): deletions, copies, records, and state by conditions on generations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lakeplan import limits
from lakeplan.errors import StorageError, StoreBusy
from lakeplan.stores.faults import Kind, error_of, reason_of
from lakeplan.stores.gcs_client import Answer, GcsReader, error_for, is_busy, json_of, stored_object
from lakeplan.stores.open import check_copy
from lakeplan.stores.shared import (
    CHANGED,
    THREADS,
    TOO_MANY_VERSIONS,
    UNLISTED,
    BatchDeleter,
    ConditionalState,
    not_encrypted_alike,
    not_equal,
    unless_missing,
)
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import StoredObject
from lakeplan.values.sweep import Deletion, StoreFacts, Versions

DESCRIBING = (
    *("contentType", "contentEncoding", "contentDisposition", "contentLanguage"),
    *("cacheControl", "metadata", "customTime", "storageClass"),
)


class GcsStore(BatchDeleter, GcsReader):
    """Implements ``SweepStore`` under a prefix of a bucket. Each object is deleted by a separate request, on
    the condition that its generation is still the expected one."""

    batch_size = 100

    def _delete_keys(
        self, keys: list[str], versions: Versions, expected: Mapping[str, StoredObject]
    ) -> dict[str, Deletion]:
        delete = self._delete_versions if versions is Versions.ALL else self._delete_current
        answers = in_parallel(lambda key: delete(key, expected.get(key)), keys, THREADS)
        refused = [one for one in answers if isinstance(one, StorageError)]
        if refused and len(refused) == len(answers):
            raise refused[0]
        failed: dict[str, Deletion] = {}
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, StorageError):
                answer = Deletion(key, answer.message or "refused", transient=isinstance(answer, StoreBusy))
            if not answer.deleted:
                failed[key] = answer
        return failed

    def _delete_current(self, key: str, expected: StoredObject | None) -> Deletion | StorageError:
        return self._delete_once(key, {} if expected is None else {"ifGenerationMatch": expected.e_tag})

    def _delete_versions(self, key: str, expected: StoredObject | None) -> Deletion | StorageError:
        """Delete all generations of exactly this key, the live one last, unless one is newer than the
        expected object, or the listing omits the object. After a failure, the rest stays."""
        generations: list[int] = []
        try:
            for page in self._pages(key, versions="true"):
                generations += [int(one.e_tag) for one in page.objects if one.key == key]
                if len(generations) > limits.STORE_VERSIONS:
                    return Deletion(key, TOO_MANY_VERSIONS)
                if any(one.key != key for one in page.objects):
                    break
            if expected is not None and any(one > int(expected.e_tag) for one in generations):
                return Deletion(key, CHANGED, changed=True)
            is_listed = generations and (expected is None or int(expected.e_tag) in generations)
            if not is_listed and self.stat(key) is not None:
                return Deletion(key, UNLISTED)
        except StorageError as error:
            return error
        for done, one in enumerate(sorted(generations)):
            answer = self._delete_once(key, {"generation": str(one)})
            if len(generations) == 1:
                return answer
            if isinstance(answer, StorageError) or not answer.deleted:
                why = answer.reason if isinstance(answer, Deletion) else answer.message
                reason = f"{len(generations) - done} of {len(generations)} versions were not deleted: {why}"
                return Deletion(key, reason, transient=isinstance(answer, StoreBusy))
        return Deletion(key)

    def _delete_once(self, key: str, params: Mapping[str, str]) -> Deletion | StorageError:
        where = self._where(key)
        try:
            answer = self._client.request("DELETE", self._path(key), where, params=params, tries=1)
        except StorageError as error:
            return error
        if answer.status in (200, 204):
            return Deletion(key)
        if answer.status in (404, 412):
            return self._changed(key, params)
        if answer.status == 403 and (code := _lock(answer)):
            return Deletion(key, f"{code}: the object is locked")
        if is_busy(answer) or answer.status in (401, 403):
            return error_for(answer, where)
        return Deletion(key, reason_of(f"status {answer.status}", None))

    def _changed(self, key: str, params: Mapping[str, str]) -> Deletion | StorageError:
        """Return what a failed condition or a 404 means: another object exists, or none. If the object that
        the request named exists, the response was not the store's."""
        try:
            found = self.stat(key)
        except StorageError as error:
            return error
        if found is None:
            return Deletion(key)
        if found.e_tag in params.values():
            return Deletion(key, Kind.UNCLEAR.value.message, transient=True)
        return Deletion(key, CHANGED, changed=True)

    def stat(self, key: str) -> StoredObject | None:
        return unless_missing(lambda: self._describe(key)[1])

    def is_gone(self, key: str) -> bool:
        """Return whether GET of the first byte and, after a 404, a listing find no object."""
        answer = self._download(key, {"Range": "bytes=0-0"})
        if answer.status == 404:
            self._confirm_missing(key)
            return True
        if answer.status != 416:  # an empty object has no first byte
            self._object(key, answer)
        return False

    def facts(self) -> StoreFacts:
        params = {"fields": "kind,versioning,softDeletePolicy"}
        answer = self._client.request("GET", self._bucket_path, self.url, params=params)
        if answer.status == 403:
            return StoreFacts(versioned=None, soft_delete=None)
        if answer.status == 404:
            raise error_of(Kind.NO_CONTAINER, self.url)
        if answer.status != 200:
            raise error_for(answer, self.url)
        bucket = json_of(answer, self.url)
        versioning, policy = bucket.get("versioning", {}), bucket.get("softDeletePolicy", {})
        is_bucket = bucket.get("kind") == "storage#bucket"
        if not (is_bucket and isinstance(versioning, dict) and isinstance(policy, dict)):
            raise error_of(Kind.BROKEN, self.url, detail="the response does not describe a bucket")
        seconds = str(policy.get("retentionDurationSeconds", "0"))
        return StoreFacts(versioned=bool(versioning.get("enabled")), soft_delete=seconds != "0")

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredObject:
        check_copy(source, target, self._where(target))
        before, facts = self._describe(source)
        key_name = kms_key(before)
        params = {"ifSourceGenerationMatch": facts.e_tag} | ({"ifGenerationMatch": "0"} if create else {})
        params |= {"destinationKmsKeyName": key_name} if key_name else {}
        about = {name: before[name] for name in DESCRIBING if before.get(name)}
        written = self._rewrite(source, target, params, json.dumps(about).encode())
        after, copied = self._describe(target)
        if copied.e_tag != written:  # another writer's object, which is kept
            raise error_of(Kind.CONFLICT, self._where(target))
        checksum = before.get("crc32c")
        if not checksum or (copied.size, after.get("crc32c")) != (facts.size, checksum):
            self._remove(target, written)
            raise not_equal(source, self._where(target))
        if key_name and kms_key(after) != key_name:
            self._remove(target, written)
            raise not_encrypted_alike(self._where(target))
        return copied

    def _rewrite(self, source: str, target: str, params: dict[str, str], data: bytes) -> str:
        """Copy inside the store, in as many requests as needed, and return the generation of the copy."""
        where, onto = self._where(target), self._path(target).removeprefix("/storage/v1")
        path, headers = f"{self._path(source)}/rewriteTo{onto}", {"Content-Type": "application/json"}
        for _ in range(limits.STORE_PAGES):
            answer = self._client.request("POST", path, where, params=params, headers=headers, data=data)
            if answer.status == 404:
                self._confirm_missing(source)
            if answer.status != 200:
                raise error_for(answer, where)
            progress = json_of(answer, where)
            if progress.get("done") is True:
                resource = progress.get("resource")
                return str(resource.get("generation", "")) if isinstance(resource, dict) else ""
            params = params | {"rewriteToken": str(progress.get("rewriteToken", ""))}
        text = f"the storage did not finish the copy within {limits.STORE_PAGES:,} requests"
        raise StorageError(text, where=where, hint="Run the command again.")

    def _remove(self, key: str, generation: str) -> None:
        if isinstance(answer := self._delete_once(key, {"generation": generation}), StorageError):
            raise answer

    def _describe(self, key: str) -> tuple[dict[str, Any], StoredObject]:
        """Return the store's description of an object, and the object. All storage classes can be read
        immediately."""
        item = json_of(self._ask(key), self._where(key))
        try:
            stored = stored_object(item, self._base)
        except (AttributeError, KeyError, TypeError, ValueError):
            stored = None
        if stored is None or stored.key != key:
            raise error_of(Kind.BROKEN, self._where(key), detail="the response does not describe the object")
        return item, stored

    def put(self, key: str, data: bytes) -> None:
        if (answer := self._upload(key, data, if_version=None)).status != 200:
            raise error_for(answer, self._where(key))

    def create(self, key: str, data: bytes) -> None:
        self.put_record(key, data, if_version="0")


def kms_key(item: Mapping[str, Any]) -> str:
    """Return the key that an object is encrypted with, without its version, or "" for one of Google's."""
    return str(item.get("kmsKeyName") or "").partition("/cryptoKeyVersions/")[0]


LOCKS = ("retentionPolicyNotMet", "objectUnderActiveHold")
HOLD = re.compile(r" is under active [A-Za-z-]+ hold ")
"""Google documents ``objectUnderActiveHold``, but its JSON API returns ``forbidden`` and this text."""


def _lock(answer: Answer) -> str:
    """Return the lock that a refusal names, or ""."""
    text = answer.body.decode(errors="replace")
    return next((code for code in LOCKS if f'"{code}"' in text), LOCKS[1] if HOLD.search(text) else "")


class GcsState(ConditionalState[GcsStore]):
    """Implements ``StateWriter`` under a prefix of a bucket. A version is a generation."""

    def _write(self, key: str, data: bytes, if_version: str | None) -> str:
        return self._store.put_record(key, data, if_version=if_version or "0")

    def _delete(self, key: str, if_version: str) -> None:
        self._store.delete_record(key, if_version)

    def _probe(self, key: str) -> None:
        self._write(key, b"1", None)
        try:
            for request in (
                lambda: self._write(key, b"2", None),
                lambda: self._write(key, b"2", "1"),
                lambda: self._delete(key, "1"),
            ):
                self._must_conflict("ifGenerationMatch", request)
        finally:
            if (record := self._store.get_record(key)) is not None:
                self._delete(key, record.version)
