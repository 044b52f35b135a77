"""Copying inside a container: through this machine, which every kind of credential allows."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.storage.blob import BlobBlock, BlobProperties, BlobType, ContentSettings, StandardBlobTier

from lakeplan.adapters.storage.azure_client import AzureClient
from lakeplan.adapters.storage.checks import check_copy, not_equal
from lakeplan.adapters.storage.translate import Kind, error_of, translate_azure_error
from lakeplan.errors import StorageError
from lakeplan.model.stored import StoredFacts

BLOCK = 16 << 20
MOST_BLOCKS = 50_000


class AzureCopier:
    """Copies blobs below ``base`` of one container. Picklable.

    A copy by the service would need a signed URL of the source under a SAS, and more rights under OAuth. Here
    the bytes travel to this machine and back, in blocks of ``block`` bytes, each with its MD5.
    """

    def __init__(self, client: AzureClient, base: str, url: str, *, block: int = BLOCK) -> None:
        self._client = client
        self._base = base
        self._url = url
        self._block = block

    def copy(self, source: str, target: str, *, create: bool = False) -> StoredFacts:
        """``lakeplan.ports.sweep_storage.ObjectCopier.copy``: with metadata, content settings, access tier,
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
                    f"the access tier {found.blob_tier} is not known, so a copy could not have it",
                    where=self._where(source),
                ) from None
        if found.tag_count:
            options["tags"] = self._client.get().get_blob_client(self._base + source).get_blob_tags()
        return options

    def _properties(self, key: str) -> BlobProperties:
        try:
            return self._client.get().get_blob_client(self._base + key).get_blob_properties()
        except AzureError as error:
            raise translate_azure_error(error, self._where(key)) from None

    def _where(self, key: str) -> str:
        return f"{self._url}/{key}"


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
