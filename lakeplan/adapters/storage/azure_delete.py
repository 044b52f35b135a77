"""Deleting from Azure blob storage: batches of 256, every blob's own result seen, one attempt."""

from __future__ import annotations

import email.parser
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from itertools import chain
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError

from lakeplan import limits
from lakeplan.adapters.storage.azure_client import AzureClient
from lakeplan.adapters.storage.azure_find import first_name
from lakeplan.adapters.storage.bounded import bounded_pages
from lakeplan.adapters.storage.checks import (
    CHANGED,
    NO_KEY,
    NOT_NAMED,
    TOO_MANY_VERSIONS,
    check_batch,
    in_order,
    reason_of,
)
from lakeplan.adapters.storage.translate import AZURE_CODES, Kind, error_of, translate_azure_error
from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, StoreBusy
from lakeplan.model.objects import StoredObject
from lakeplan.model.stored import Deletion, Versions

BATCH = 256
LISTERS = 16
WORDS = {
    "LeaseIdMissing": "the blob is leased",
    "BlobImmutableDueToPolicy": "the blob is immutable (a legal hold or a retention policy)",
    "SnapshotsPresent": "the blob has snapshots, which only the deletion of all versions takes",
    "DirectoryIsNotEmpty": "it is a folder with something in it",
}
Answers = dict[int, Deletion]


class AzureDeleter:
    """Deletes blobs below ``base`` of one container. ``once`` sends each request one time only, so that a
    store which asks to slow down is heard by the caller; ``client`` is for reading. Picklable."""

    def __init__(self, once: AzureClient, client: AzureClient, base: str, url: str) -> None:
        self._once = once
        self._client = client
        self._base = base
        self._url = url

    def delete(
        self, keys: Sequence[str], *, versions: Versions, expected: Mapping[str, StoredObject]
    ) -> list[Deletion]:
        """``lakeplan.ports.sweep_storage.ObjectDeleter.delete``. ``Versions.ALL`` takes snapshots with a
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
        for start in range(0, len(found), BATCH):
            batch = found[start : start + BATCH]
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
            pages = bounded_pages(map(list, listed.by_page()), first_name, f"{self._url}/{key}")
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
