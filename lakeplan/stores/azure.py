"""Azure blob storage, or Azurite: deleting, looking, copying, recording, and state under ETag conditions."""

from __future__ import annotations

import base64
import email.parser
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from itertools import chain
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobBlock, BlobProperties, BlobType, ContentSettings, StandardBlobTier

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, StoreBusy
from lakeplan.stores.azure_client import UNCHANGED, AzureClient, AzurePlace, AzureReader, find, first_name
from lakeplan.stores.bounded import bounded_pages
from lakeplan.stores.faults import (
    AZURE_CODES,
    CHANGED,
    NO_KEY,
    NOT_NAMED,
    TOO_MANY_VERSIONS,
    Kind,
    check_batch,
    check_copy,
    check_data,
    check_key,
    error_of,
    in_order,
    is_missing_object,
    not_equal,
    reason_of,
    translate_azure_error,
)
from lakeplan.stores.protocols import Versioned
from lakeplan.stores.urls import AzureLocation
from lakeplan.values.objects import StoredObject, batches
from lakeplan.values.sweep import Deletion, StoredFacts, StoreFacts, Versions

BLOCK = 16 << 20
MOST_BLOCKS = 50_000


class AzureCopier(AzurePlace):
    """Copies blobs of one container. Picklable.

    A copy by the service would need a signed URL of the source under a SAS, and more rights under OAuth. Here
    the bytes travel to this machine and back, in blocks of ``block`` bytes, each with its MD5.
    """

    def __init__(self, location: AzureLocation, client: AzureClient, *, block: int = BLOCK) -> None:
        super().__init__(location, client)
        self._block = block

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredFacts:
        """``lakeplan.stores.protocols.ObjectCopier.copy``: with metadata, content settings, access tier,
        encryption scope and tags. Both are equal when the SHA-256 of what was read of the source is that of
        what is then read of the target. Block blobs only."""
        check_copy(source, target, self._where(target))
        found = self._properties(source)
        if found.blob_type != BlobType.BLOCKBLOB:
            raise StorageError("only block blobs can be copied", where=self._where(source))
        if not is_readable(found):
            raise error_of(Kind.ARCHIVED, self._where(source))
        try:
            wanted, tag = self._upload(source, target, found, create=create)
            copied = self._properties(target)
            if self._digest(target, copied).digest() != wanted:
                # Only what was written here: somebody may have written another blob since.
                self._client.get().delete_blob(
                    self._base + target, etag=tag, match_condition=MatchConditions.IfNotModified
                )
                raise not_equal(source, self._where(target))
        except AzureError as error:
            raise translate_azure_error(error, self._where(target)) from None
        return facts_of(target, copied)

    def _upload(self, source: str, target: str, found: BlobProperties, *, create: bool) -> tuple[bytes, str]:
        """The SHA-256 of what was sent, and the new blob's ETag. The blob appears as a whole, with its last
        request."""
        place = self._client.get().get_blob_client(self._base + target)
        size = int(found.size)
        block = max(self._block, -(-size // MOST_BLOCKS))
        sha256, md5, blocks = hashlib.sha256(), hashlib.md5(usedforsecurity=False), []
        for number, start in enumerate(range(0, size, block)):
            data = self._read(source, found, start, min(block, size - start))
            sha256.update(data)
            md5.update(data)
            name = base64.b64encode(f"{number:08}".encode()).decode()
            place.stage_block(name, data, length=len(data), validate_content=True, **_scope(found))
            blocks.append(BlobBlock(name))
        only_new: dict[str, Any] = {"match_condition": MatchConditions.IfMissing} if create else {}
        written = place.commit_block_list(
            blocks,
            metadata=found.metadata or {},
            content_settings=_settings(found.content_settings, md5.digest()),
            **_scope(found),
            **self._options(source, found),
            **only_new,
        )
        return sha256.digest(), str(written["etag"])

    def _digest(self, key: str, found: BlobProperties) -> Any:
        digest = hashlib.sha256()
        for start in range(0, int(found.size), self._block):
            digest.update(self._read(key, found, start, min(self._block, int(found.size) - start)))
        return digest

    def _read(self, key: str, found: BlobProperties, start: int, length: int) -> bytes:
        """A part of the blob as it was when it was described."""
        data: bytes = (
            self._client.get()
            .download_blob(
                self._base + key,
                offset=start,
                length=length,
                etag=found.etag,
                match_condition=MatchConditions.IfNotModified,
            )
            .readall()
        )
        if len(data) != length:
            raise error_of(Kind.BROKEN, self._where(key), detail=f"{len(data)} of {length} bytes")
        return data

    def _options(self, source: str, found: BlobProperties) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if found.blob_tier and not found.blob_tier_inferred:
            try:
                options["standard_blob_tier"] = StandardBlobTier(str(found.blob_tier))
            except ValueError:
                raise StorageError(
                    f"the access tier {found.blob_tier} is unknown, and a copy would lose it",
                    where=self._where(source),
                ) from None
        if found.tag_count:
            options["tags"] = self._client.get().get_blob_client(self._base + source).get_blob_tags()
        return options

    def _properties(self, key: str) -> BlobProperties:
        name = self._base + key
        return self._call(key, lambda client: client.get_blob_client(name).get_blob_properties())


def facts_of(key: str, found: BlobProperties) -> StoredFacts:
    return StoredFacts(
        key,
        int(found.size),
        round(found.last_modified.timestamp() * 1_000_000),
        str(found.etag or ""),
        str(found.blob_tier or ""),
        is_readable(found),
    )


def is_readable(found: BlobProperties) -> bool:
    """A blob that is being rehydrated is in the archive until that is done."""
    return str(found.blob_tier or "") != "Archive"


def _scope(found: BlobProperties) -> dict[str, Any]:
    return {"encryption_scope": found.encryption_scope} if found.encryption_scope else {}


def _settings(found: ContentSettings, md5: bytes) -> ContentSettings:
    return ContentSettings(
        content_type=found.content_type,
        content_encoding=found.content_encoding,
        content_language=found.content_language,
        content_disposition=found.content_disposition,
        cache_control=found.cache_control,
        content_md5=bytearray(md5),
    )


BATCH = 256
LISTERS = 16
WORDS = {
    "LeaseIdMissing": "the blob is leased",
    "BlobImmutableDueToPolicy": "the blob is immutable (a legal hold or a retention policy)",
    "SnapshotsPresent": "the blob has snapshots, which are deleted only with all versions",
    "DirectoryIsNotEmpty": "it is a folder with something in it",
}


class AzureDeleter(AzurePlace):
    """Deletes blobs of one container. ``once`` sends each request one time only, so that a
    store which asks to slow down is heard by the caller; ``client`` is for reading. Picklable."""

    def __init__(self, location: AzureLocation, client: AzureClient, once: AzureClient) -> None:
        super().__init__(location, client)
        self._once = once

    def delete(
        self, keys: Sequence[str], *, versions: Versions, expected: Mapping[str, StoredObject]
    ) -> list[Deletion]:
        """``lakeplan.stores.protocols.ObjectDeleter.delete``. ``Versions.ALL`` takes snapshots with a
        blob, and then what versioning kept of it. ``Versions.MARKER`` cannot delete a blob with snapshots:
        Azure refuses it, and so does the answer."""
        check_batch(keys, BATCH, self._url)
        failed = {key: Deletion(key, reason) for key in keys if (reason := unusable(key))}
        wanted = list(dict.fromkeys(key for key in keys if key not in failed))
        snapshots = {"delete_snapshots": "include"} if versions is Versions.ALL else {}
        blobs = [{"name": self._base + key, **snapshots, **_only(expected.get(key))} for key in wanted]
        answers = self._send(wanted, blobs)
        failed |= {answer.key: answer for answer in answers if not answer.deleted}
        if versions is Versions.ALL:
            failed |= self._delete_versions([key for key in wanted if key not in failed], expected)
        return in_order(keys, failed, set(wanted) - set(failed))

    def _delete_versions(self, keys: list[str], expected: Mapping[str, StoredObject]) -> dict[str, Deletion]:
        """What versioning kept of deleted blobs; the keys where something is left. A current version cannot
        be named by its id, so this comes second. Versions that are newer than the expected ones stay."""

        def versions_of(key: str) -> list[str] | Deletion:
            known = expected.get(key)
            return self._versions_of(key, None if known is None else known.modified_us)

        with ThreadPoolExecutor(LISTERS) as pool:
            listed = list(pool.map(versions_of, keys))
        failed = {one.key: one for one in listed if isinstance(one, Deletion)}
        found = [
            (key, {"name": self._base + key, "version_id": version})
            for key, ids in zip(keys, listed, strict=True)
            if not isinstance(ids, Deletion)
            for version in ids
        ]
        for batch in batches(found, BATCH):
            answers = self._send([key for key, _ in batch], [blob for _, blob in batch])
            for answer in answers:
                if not answer.deleted:
                    reason = f"older versions are left: {answer.reason}"
                    failed[answer.key] = Deletion(answer.key, reason, answer.transient)
        return failed

    def _versions_of(self, key: str, newest_us: int | None) -> list[str] | Deletion:
        """In a listing a blob's versions come before all blobs whose names only begin with its name."""
        name = self._base + key
        found: list[str] = []
        try:
            listed = self._client.get().list_blobs(name_starts_with=name, include=["versions"])
            pages = bounded_pages(map(list, listed.by_page()), first_name, self._where(key))
            for item in chain.from_iterable(pages):
                if item.name != name:
                    break
                if len(found) >= limits.STORE_VERSIONS:
                    return Deletion(key, TOO_MANY_VERSIONS)
                modified_us = round(item.last_modified.timestamp() * 1_000_000)
                if item.version_id and (newest_us is None or modified_us <= newest_us):
                    found.append(str(item.version_id))
        except AzureError as error:
            translated = translate_azure_error(error, self._url)
            if isinstance(translated, StoreBusy | StorageDenied | StorageNotFound):
                raise translated from None
            return Deletion(key, f"its older versions cannot be listed: {translated.message}")
        except StorageError as error:  # the blob itself is deleted by now: that must be reported
            return Deletion(key, f"its older versions cannot be listed: {error.message}")
        return found

    def _send(self, keys: list[str], blobs: list[dict[str, Any]]) -> list[Deletion]:
        """One answer a blob, in order."""
        if not blobs:
            return []
        numbers: list[str | None] = []

        def note_numbers(response: Any) -> None:
            numbers[:] = content_ids(response.http_response)

        try:
            container = self._once.get()
            parts = list(
                container.delete_blobs(*blobs, raise_on_any_failure=False, raw_response_hook=note_numbers)
            )
        except AzureError as error:
            raise translate_azure_error(error, self._url) from None
        except ValueError as error:  # the library's word for an answer in parts that it cannot take apart
            raise error_of(Kind.BROKEN, self._url, detail=type(error).__name__) from None
        answers = dict(self._numbered(numbers, parts, keys))
        return [answers.get(n, Deletion(key, NOT_NAMED, transient=True)) for n, key in enumerate(keys)]

    def _numbered(self, numbers: list[str | None], parts: list[Any], keys: list[str]) -> Iterator[Any]:
        """Answers by the number of the request that they belong to. The service need not keep their order;
        one answer for all, which has no number, says that nothing was done."""
        if len(parts) != len(numbers) or (len(parts) != len(keys) and None in numbers):
            raise self._refused(parts)
        for place, (number, part) in enumerate(zip(numbers, parts, strict=True)):
            index = place if number is None else limits.number_of(number)
            if index is not None and index < len(keys):
                yield index, self._answer(keys[index], part)

    def _answer(self, key: str, part: Any) -> Deletion:
        code = str(part.headers.get("x-ms-error-code", ""))
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
            code = str(part.headers.get("x-ms-error-code", ""))
            if kind := AZURE_CODES.get(code):
                return error_of(kind, self._url, detail=code)
        return error_of(Kind.BROKEN, self._url, detail=f"{len(parts)} answers in one batch")


def _only(expected: StoredObject | None) -> dict[str, Any]:
    """The condition that a blob is still the expected one."""
    if expected is None or not expected.e_tag:
        return {}
    tag = expected.e_tag if expected.e_tag.startswith('"') else f'"{expected.e_tag}"'
    return {"etag": tag, "match_condition": MatchConditions.IfNotModified}


def content_ids(response: Any) -> list[str | None]:
    """The numbers that the parts of an answer carry (``Content-ID``); the library drops them."""
    kind = response.headers.get("Content-Type", "")
    if not kind.startswith("multipart/"):
        return []
    whole = b"Content-Type: " + kind.encode("ascii", "replace") + b"\r\n\r\n" + response.body()
    parts = email.parser.BytesParser().parsebytes(whole).get_payload()
    return [part.get("Content-ID") for part in parts if isinstance(part, Message)]


def unusable(key: str) -> str:
    """Why a blob of this key cannot be named in a request, or ""."""
    if not key:
        return NO_KEY
    if not {".", ".."}.isdisjoint(key.split("/")):
        return "a name with . or .. in its path would be taken for another blob's"
    try:
        key.encode()
    except UnicodeEncodeError:
        return "the key is not valid Unicode, so no blob can have it"
    return ""


class AzureStore(AzureReader):
    """``lakeplan.stores.protocols.SweepStore`` under a path of a container."""

    def __init__(
        self,
        location: AzureLocation,
        *,
        connect_seconds: float | None = None,
        read_seconds: float | None = None,
        block: int = BLOCK,
    ) -> None:
        super().__init__(location, connect_seconds=connect_seconds, read_seconds=read_seconds)
        once = AzureClient(location, connect_seconds=connect_seconds, read_seconds=read_seconds, once=True)
        self._deleter = AzureDeleter(location, self._client, once)
        self._copier = AzureCopier(location, self._client, block=block)

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
        return find(self._client, self._base, keys, self.url)

    def stat(self, key: str) -> StoredFacts | None:
        name = self._name(key)
        try:
            found = self._call(key, lambda client: client.get_blob_client(name).get_blob_properties())
        except StorageError as error:
            if is_missing_object(error):
                return None
            raise
        return facts_of(key, found)

    def is_gone(self, key: str) -> bool:
        """By GET of the first byte. Only Azure's own word for a missing blob is taken for one."""
        try:
            self._client.get().download_blob(self._name(key), offset=0, length=1).readall()
        except AzureError as error:
            code = getattr(error, "error_code", None)
            if (code := str(getattr(code, "value", code) or "")) == "BlobNotFound":
                return True
            if code in ("BlobArchived", "BlobBeingRehydrated"):
                return False
            translated = translate_azure_error(error, self._where(key))
            if is_missing_object(translated):
                raise StorageError(
                    "the response does not say whether the blob exists", where=self._where(key)
                ) from None
            raise translated from None
        return False

    def facts(self) -> StoreFacts:
        """Whether versions are kept is a setting outside the blob service's reach: it is known only where a
        listing shows one."""
        return StoreFacts(versioned=self._shows_versions() or None, soft_delete=self._soft_delete())

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredFacts:
        self._name(source)
        self._name(target)
        return self._copier.copy(source, target, create=create)

    def put(self, key: str, data: bytes) -> None:
        name = self._name(key)
        self._call(key, lambda client: client.upload_blob(name, data, overwrite=True))

    def create(self, key: str, data: bytes) -> None:
        self._name(key)
        self._put(key, data, if_version=None)

    def _soft_delete(self) -> bool | None:
        try:
            with self._client.service() as service:
                policy = service.get_service_properties().get("delete_retention_policy")
        except AzureError as error:
            translated = translate_azure_error(error, self.url)
            unsupported = translated.message.startswith("the storage returned")
            if isinstance(translated, StorageDenied) or unsupported:
                return None
            raise translated from None
        return None if policy is None else bool(policy.enabled)

    def _shows_versions(self) -> bool:
        try:
            pages = self._client.get().list_blobs(
                name_starts_with=self._base, include=["versions"], results_per_page=100
            )
            return any(item.version_id for item in next(pages.by_page(), ()))
        except AzureError as error:
            translated = translate_azure_error(error, self.url)
            if translated.message.startswith("the storage returned"):
                return False
            raise translated from None

    def _name(self, key: str) -> str:
        if reason := unusable(key):
            raise StorageError(reason, where=self._where(key))
        return self._base + key


class AzureState(AzurePlace):
    """``lakeplan.stores.protocols.StateWriter`` under a path of a container. A version is the blob's ETag."""

    def __init__(self, location: AzureLocation) -> None:
        super().__init__(location, AzureClient(location))
        self._listing = AzureReader(location)

    def read(self, key: str) -> Versioned | None:
        check_key(key, self._url)
        return self._get(key)

    def list_keys(self, prefix: str = "") -> list[str]:
        return sorted(found.key for found in self._listing.list_objects(prefix))

    def write(self, key: str, data: bytes, *, if_version: str | None) -> str:
        check_key(key, self._url)
        check_data(data, self._where(key))
        return self._put(key, data, if_version=if_version)

    def delete(self, key: str, *, if_version: str) -> None:
        check_key(key, self._url)
        try:
            self._client.get().delete_blob(self._base + key, etag=if_version, match_condition=UNCHANGED)
        except AzureError as error:
            raise self._conflict(error, key) from None
