"""Azure blob storage and Azurite: deletions, copies, records, and state by conditional puts."""

from __future__ import annotations

import base64
import email.parser
import hashlib
from collections.abc import Iterator, Mapping
from email.message import Message
from itertools import chain
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobBlock, BlobProperties, BlobType, ContentSettings, StandardBlobTier

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, StoreBusy
from lakeplan.stores.azure_client import (
    UNCHANGED,
    AzureClient,
    AzurePlace,
    AzureReader,
    azure_errors,
    damaged_answer,
    first_name,
    is_readable,
    stored_object,
)
from lakeplan.stores.bounded import bounded_pages
from lakeplan.stores.faults import (
    AZURE_CODES,
    DAMAGED,
    Kind,
    code_of,
    error_of,
    is_missing_object,
    is_unknown,
    reason_of,
    translate_azure_error,
)
from lakeplan.stores.open import NO_ACCESS, Access, AzureLocation, check_copy
from lakeplan.stores.shared import (
    CHANGED,
    NOT_NAMED,
    THREADS,
    TOO_MANY_VERSIONS,
    BatchDeleter,
    ConditionalState,
    not_equal,
    unless_missing,
)
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import StoredObject, batches
from lakeplan.values.sweep import Deletion, StoreFacts, Versions
from lakeplan.values.units import number_of

BLOCK = 16 << 20
MOST_BLOCKS = 50_000


class AzureCopier(AzureReader):
    """Copies blobs of one container, through this machine, in blocks of ``BLOCK`` bytes with their MD5. A
    copy by the service would need a signed URL of the source under a SAS, and more permissions under OAuth.
    """

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredObject:
        """Copy a block blob with metadata, content settings, access tier, encryption scope and tags. See
        ``ObjectCopier``. The copy is read again, and must have the SHA-256 of the source."""
        self._name(source)
        self._name(target)
        check_copy(source, target, self._where(target))
        blob = self._properties(source)
        if blob.blob_type != BlobType.BLOCKBLOB:
            raise StorageError(
                "this object is not a block blob, and lakeplan can copy only block blobs",
                where=self._where(source),
            )
        if not is_readable(blob):
            raise error_of(Kind.ARCHIVED, self._where(source))
        with azure_errors(self._where(target)):
            wanted, tag = self._upload(source, target, blob, create=create)
            copied = self._properties(target)
            stored = stored_object(copied, self._base)
            if self._digest(target, copied) != wanted:
                # Only this copy: another writer may have replaced it.
                self._client.get().delete_blob(self._base + target, etag=tag, match_condition=UNCHANGED)
                raise not_equal(source, self._where(target))
        return stored

    def _upload(self, source: str, target: str, blob: BlobProperties, *, create: bool) -> tuple[bytes, str]:
        """Return the SHA-256 of what was sent, and the new blob's ETag. The last request creates the blob."""
        place = self._client.get().get_blob_client(self._base + target)
        size = int(blob.size)
        block = max(BLOCK, -(-size // MOST_BLOCKS))
        sha256, md5, blocks = hashlib.sha256(), hashlib.md5(usedforsecurity=False), []
        for number, start in enumerate(range(0, size, block)):
            data = self._read(source, blob, start, min(block, size - start))
            sha256.update(data)
            md5.update(data)
            name = base64.b64encode(f"{number:08}".encode()).decode()
            place.stage_block(name, data, length=len(data), validate_content=True, **_scope(blob))
            blocks.append(BlobBlock(name))
        only_new: dict[str, Any] = {"match_condition": MatchConditions.IfMissing} if create else {}
        written = place.commit_block_list(
            blocks,
            metadata=blob.metadata or {},
            content_settings=_settings(blob.content_settings, md5.digest()),
            **_scope(blob),
            **self._options(source, blob),
            **only_new,
        )
        return sha256.digest(), str(written["etag"])

    def _digest(self, key: str, blob: BlobProperties) -> bytes:
        digest = hashlib.sha256()
        for start in range(0, int(blob.size), BLOCK):
            digest.update(self._read(key, blob, start, min(BLOCK, int(blob.size) - start)))
        return digest.digest()

    def _read(self, key: str, blob: BlobProperties, start: int, length: int) -> bytes:
        """Return a part of the blob, on the condition that it is still the described one."""
        data: bytes = (
            self._client.get()
            .download_blob(
                self._base + key, offset=start, length=length, etag=blob.etag, match_condition=UNCHANGED
            )
            .readall()
        )
        if len(data) != length:
            raise error_of(Kind.BROKEN, self._where(key), detail=f"{len(data)} of {length} bytes")
        return data

    def _options(self, source: str, blob: BlobProperties) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if blob.blob_tier and not blob.blob_tier_inferred:
            try:
                options["standard_blob_tier"] = StandardBlobTier(str(blob.blob_tier))
            except ValueError:
                raise StorageError(
                    f"the access tier {blob.blob_tier} is unknown, so a copy could not keep it",
                    where=self._where(source),
                ) from None
        if blob.tag_count:
            options["tags"] = self._client.get().get_blob_client(self._base + source).get_blob_tags()
        return options

    def _properties(self, key: str) -> BlobProperties:
        with azure_errors(self._where(key)):
            return self._client.get().get_blob_client(self._name(key)).get_blob_properties()

    def _name(self, key: str) -> str:
        if reason := self._unusable(key):
            raise StorageError(reason, where=self._where(key))
        return self._base + key


def _scope(blob: BlobProperties) -> dict[str, Any]:
    return {"encryption_scope": blob.encryption_scope} if blob.encryption_scope else {}


def _settings(settings: ContentSettings, md5: bytes) -> ContentSettings:
    return ContentSettings(
        content_type=settings.content_type,
        content_encoding=settings.content_encoding,
        content_language=settings.content_language,
        content_disposition=settings.content_disposition,
        cache_control=settings.cache_control,
        content_md5=bytearray(md5),
    )


BATCH = 256
WORDS = {
    "LeaseIdMissing": "the blob is leased",
    "BlobImmutableDueToPolicy": "the blob is immutable (a legal hold or a retention policy)",
    "SnapshotsPresent": "the blob has snapshots, so it can be deleted only with `sweep.versions: all`",
    "DirectoryIsNotEmpty": "the blob is a folder that is not empty",
}


class AzureDeleter(BatchDeleter, AzurePlace):
    """Deletes blobs of one container. Each request to delete is sent only once, so that the caller learns
    when the store is overloaded. Picklable."""

    batch_size = BATCH

    def __init__(self, location: AzureLocation, access: Access = NO_ACCESS) -> None:
        super().__init__(location, access)
        self._once = AzureClient(location, access, True)

    def _delete_keys(
        self, keys: list[str], versions: Versions, expected: Mapping[str, StoredObject]
    ) -> dict[str, Deletion]:
        """Delete blobs, with ``Versions.ALL`` also their snapshots and then their older versions. With
        ``Versions.MARKER``, Azure refuses to delete a blob that has snapshots, which is then a failure."""
        snapshots = {"delete_snapshots": "include"} if versions is Versions.ALL else {}
        blobs = [{"name": self._base + key, **snapshots, **_only(expected.get(key))} for key in keys]
        failed = {answer.key: answer for answer in self._send(keys, blobs) if not answer.deleted}
        if versions is Versions.ALL:
            failed |= self._delete_versions([key for key in keys if key not in failed], expected)
        return failed

    def _delete_versions(self, keys: list[str], expected: Mapping[str, StoredObject]) -> dict[str, Deletion]:
        """Delete older versions of deleted blobs, but none that is newer than the expected one, and return
        the failures. They come second, because a current version cannot be named by its id."""

        def versions_of(key: str) -> list[str] | Deletion:
            known = expected.get(key)
            return self._versions_of(key, None if known is None else known.modified_us)

        listed = in_parallel(versions_of, keys, THREADS)
        failed = {one.key: one for one in listed if isinstance(one, Deletion)}
        versions = [
            (key, {"name": self._base + key, "version_id": version})
            for key, ids in zip(keys, listed, strict=True)
            if not isinstance(ids, Deletion)
            for version in ids
        ]
        for batch in batches(versions, BATCH):
            answers = self._send([key for key, _ in batch], [blob for _, blob in batch])
            for answer in answers:
                if not answer.deleted:
                    reason = f"older versions were not deleted: {answer.reason}"
                    failed[answer.key] = Deletion(answer.key, reason, answer.transient)
        return failed

    def _versions_of(self, key: str, newest_us: int | None) -> list[str] | Deletion:
        """Return the versions of a blob, which a listing has before all blobs whose names only begin with its
        name."""
        name = self._base + key
        versions: list[str] = []
        try:
            with azure_errors(self._url):
                listed = self._client.get().list_blobs(name_starts_with=name, include=["versions"])
                pages = bounded_pages(map(list, listed.by_page()), first_name, self._where(key))
                for item in chain.from_iterable(pages):
                    if item.name != name:
                        break
                    if len(versions) >= limits.STORE_VERSIONS:
                        return Deletion(key, TOO_MANY_VERSIONS)
                    modified_us = round(item.last_modified.timestamp() * 1_000_000)
                    if item.version_id and (newest_us is None or modified_us <= newest_us):
                        versions.append(str(item.version_id))
        except (StoreBusy, StorageDenied, StorageNotFound):
            raise
        except StorageError as error:  # the blob itself was deleted, which must be reported
            return Deletion(key, f"the older versions of the blob cannot be listed: {error.message}")
        return versions

    def _send(self, keys: list[str], blobs: list[dict[str, Any]]) -> list[Deletion]:
        """Return a result for each blob, in order."""
        if not blobs:
            return []
        numbers: list[str | None] = []

        def note_numbers(response: Any) -> None:
            numbers[:] = content_ids(response.http_response)

        with azure_errors(self._url):
            container = self._once.get()
            parts = list(
                container.delete_blobs(*blobs, raise_on_any_failure=False, raw_response_hook=note_numbers)
            )
        answers = dict(self._numbered(numbers, parts, keys))
        return [answers.get(n, Deletion(key, NOT_NAMED, transient=True)) for n, key in enumerate(keys)]

    def _numbered(self, numbers: list[str | None], parts: list[Any], keys: list[str]) -> Iterator[Any]:
        """Yield the results with the number of their request. The service need not keep their order. A single
        response for all, without a number, means that nothing was done."""
        if len(parts) != len(numbers) or (len(parts) != len(keys) and None in numbers):
            raise self._refused(parts)
        for place, (number, part) in enumerate(zip(numbers, parts, strict=True)):
            index = place if number is None else number_of(number)
            if index is not None and index < len(keys):
                yield index, self._answer(keys[index], part)

    def _answer(self, key: str, part: Any) -> Deletion:
        code = code_of(part.headers.get("x-ms-error-code"))
        kind = AZURE_CODES.get(code)
        if kind is Kind.NO_CONTAINER:
            raise error_of(kind, self._url)
        if 200 <= part.status_code < 300 or code == "BlobNotFound":
            return Deletion(key)
        if code == "ConditionNotMet":
            return Deletion(key, CHANGED, changed=True)
        busy = kind is Kind.BUSY or part.status_code == 429 or part.status_code >= 500
        if code in WORDS:
            return Deletion(key, f"{code}: {WORDS[code]}")
        reason = reason_of(code or f"status {part.status_code}", Kind.BUSY if busy else kind)
        return Deletion(key, reason, transient=busy)

    def _refused(self, parts: list[Any]) -> StorageError:
        for part in parts:
            code = code_of(part.headers.get("x-ms-error-code"))
            if kind := AZURE_CODES.get(code):
                return error_of(kind, self._url, detail=code)
        return error_of(
            Kind.BROKEN, self._url, detail=f"the response contained {len(parts)} results for one batch"
        )


def _only(expected: StoredObject | None) -> dict[str, Any]:
    """Return the condition that a blob is still the expected one."""
    if expected is None or not expected.e_tag:
        return {}
    tag = expected.e_tag if expected.e_tag.startswith('"') else f'"{expected.e_tag}"'
    return {"etag": tag, "match_condition": UNCHANGED}


def content_ids(response: Any) -> list[str | None]:
    """Return the numbers of the parts of a response (``Content-ID``), which the library drops."""
    kind = response.headers.get("Content-Type", "")
    if not kind.startswith("multipart/"):
        return []
    whole = b"Content-Type: " + kind.encode("ascii", "replace") + b"\r\n\r\n" + response.body()
    parts = email.parser.BytesParser().parsebytes(whole).get_payload()
    return [part.get("Content-ID") for part in parts if isinstance(part, Message)]


class AzureStore(AzureDeleter, AzureCopier):
    """Implements ``SweepStore`` under a path of a container."""

    def stat(self, key: str) -> StoredObject | None:
        def described() -> StoredObject:
            with azure_errors(self._where(key)):
                return stored_object(self._properties(key), self._base)

        return unless_missing(described)

    def is_gone(self, key: str) -> bool:
        """Return whether GET of the first byte finds no blob. Only Azure's error code for that counts."""
        try:
            self._client.get().download_blob(self._name(key), offset=0, length=1).readall()
        except DAMAGED as error:
            raise damaged_answer(error, self._where(key)) from None
        except AzureError as error:
            code = getattr(error, "error_code", None)
            if (code := str(getattr(code, "value", code) or "")) == "BlobNotFound":
                return True
            if code in ("BlobArchived", "BlobBeingRehydrated"):
                return False
            translated = translate_azure_error(error, self._where(key))
            if is_missing_object(translated):
                raise error_of(Kind.UNCLEAR, self._where(key)) from None
            raise translated from None
        return False

    def facts(self) -> StoreFacts:
        """Implements ``ObjectProber``. The blob service does not return the setting for versions, so it is
        known only if a listing has an older version."""
        return StoreFacts(versioned=self._shows_versions() or None, soft_delete=self._soft_delete())

    def put(self, key: str, data: bytes) -> None:
        with azure_errors(self._where(key)):
            self._client.get().upload_blob(self._name(key), data, overwrite=True)

    def create(self, key: str, data: bytes) -> None:
        self._name(key)
        self.put_record(key, data, if_version=None)

    def _soft_delete(self) -> bool | None:
        try:
            with azure_errors(self._url), self._client.service() as service:
                policy = service.get_service_properties().get("delete_retention_policy")
        except StorageError as error:
            if isinstance(error, StorageDenied) or is_unknown(error):
                return None
            raise
        return None if policy is None else bool(policy.enabled)

    def _shows_versions(self) -> bool:
        try:
            with azure_errors(self._url):
                pages = self._client.get().list_blobs(
                    name_starts_with=self._base, include=["versions"], results_per_page=100
                )
                return any(item.version_id for item in next(pages.by_page(), ()))
        except StorageError as error:
            if is_unknown(error):
                return False
            raise


class AzureState(ConditionalState[AzureStore]):
    """Implements ``StateWriter`` under a path of a container. A version is the blob's ETag."""

    def _write(self, key: str, data: bytes, if_version: str | None) -> str:
        return self._store.put_record(key, data, if_version=if_version)

    def _delete(self, key: str, if_version: str) -> None:
        self._store.delete_record(key, if_version)
