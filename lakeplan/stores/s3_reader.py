"""A storage namespace in S3, or in a store that speaks its protocol (``s3://``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError
from lakeplan.stores.bounded import REMNANT_PAGES, bounded_pages, too_large, whole_listing
from lakeplan.stores.faults import Kind, error_of, is_unsupported, translate_boto_error
from lakeplan.stores.protocols import Remnants, StoredColumns
from lakeplan.stores.s3_client import S3Client, S3Place, check_inside, columns_of, rows_of
from lakeplan.stores.urls import S3Location
from lakeplan.values.objects import StoredObject
from lakeplan.values.simulation import Amount
from lakeplan.values.sweep import StoredFacts

READ_TRIES = 3
"""Of one object: botocore tries requests again, but not a body that breaks off."""


class S3Reader(S3Place):
    """Reads and lists one prefix of a bucket. Workers of Spark open their own client, from their own
    environment: only location, endpoint and region travel in a pickle."""

    def __init__(
        self,
        location: S3Location,
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        connect_seconds: float | None = None,
        read_seconds: float | None = None,
    ) -> None:
        client = S3Client(endpoint_url, region, connect_seconds=connect_seconds, read_seconds=read_seconds)
        super().__init__(location, client)

    def read(self, key: str) -> bytes:
        return self._read(key, {})

    def read_span(self, key: str, start: int, length: int) -> bytes:
        """See ``SpanReader``."""
        return self._read(key, {"Range": f"bytes={start}-{start + length - 1}"})

    def _read(self, key: str, options: Mapping[str, str]) -> bytes:
        where = self._where(key)
        tries = 0
        while True:
            tries += 1
            try:
                answer = self._client.get().get_object(**self._at(key), **options)
                announced = int(answer.get("ContentLength", -1))
                if announced > limits.OBJECT_BYTES:
                    answer["Body"].close()
                    raise too_large(where)
                data: bytes = answer["Body"].read()
            except ClientError as error:
                raise translate_boto_error(error, where) from error
            except BotoCoreError as error:
                translated = translate_boto_error(error, where)
                if tries >= READ_TRIES:
                    raise translated from error
                continue
            if len(data) == announced:
                return data
            if tries >= READ_TRIES:
                raise error_of(Kind.BROKEN, where, detail=f"{len(data)} of {announced} bytes")

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        for columns in self.list_columns(prefix, recursive=recursive):
            yield from columns.objects()

    def list_columns(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredColumns]:
        """See ``ColumnReader``: page by page."""
        start, where = self._base + prefix, self._where(prefix)
        for page in self._pages(prefix, recursive=recursive):
            yield columns_of(page, self._base, start, where)

    def list_prefixes(self, prefix: str = "") -> list[str]:
        return sorted(
            item["Prefix"][len(self._base) :]
            for page in self._pages(prefix, recursive=False)
            for item in page.get("CommonPrefixes", ())
        )

    def remnants(self) -> Remnants:
        """See ``RemnantReader``."""
        try:
            noncurrent, markers, whole = self._older_versions()
        except StorageError as error:
            if not (isinstance(error, StorageDenied) or is_unsupported(error)):
                raise
            noncurrent, markers, whole = None, None, True
        uploads, oldest = self._uploads()
        return Remnants(noncurrent, markers, uploads, oldest, whole)

    def _older_versions(self) -> tuple[Amount, int, bool]:
        objects, size, markers, whole = 0, 0, 0, True
        for number, page in enumerate(self._remnant_pages("list_object_versions", _first_version)):
            if number == REMNANT_PAGES:
                whole = False
                break
            older = [item["Size"] for item in page.get("Versions", ()) if not item["IsLatest"]]
            objects, size = objects + len(older), size + sum(older)
            markers += len(page.get("DeleteMarkers", ()))
        return Amount(objects, size), markers, whole

    def _uploads(self) -> tuple[int | None, int | None]:
        begun: list[int] = []
        try:
            for page in self._remnant_pages("list_multipart_uploads", _first_upload):
                begun += [round(one["Initiated"].timestamp() * 1_000_000) for one in page.get("Uploads", ())]
                if len(begun) > REMNANT_PAGES * 1_000:
                    break
        except StorageError as error:
            if not (isinstance(error, StorageDenied) or is_unsupported(error)):
                raise
            return None, None
        return len(begun), min(begun, default=None)

    def list_classes(self) -> Iterator[tuple[str, int, str]]:
        """See ``ClassReader``."""
        where = self._where("")
        try:
            pages = self._client.whole().get_paginator("list_objects_v2")
            pages = pages.paginate(Bucket=self._bucket, Prefix=self._base)
            for page in bounded_pages(whole_listing(pages, where), _first, where):
                items = page.get("Contents", ())
                check_inside([item["Key"] for item in items], self._base, where)
                for item in items:
                    yield item["Key"][len(self._base) :], item["Size"], str(item.get("StorageClass", ""))
        except (BotoCoreError, ClientError) as error:
            raise translate_boto_error(error, where) from error

    def _remnant_pages(self, operation: str, first: Callable[[Any], object]) -> Iterator[Any]:
        where = self._where("")
        try:
            pages = self._client.get().get_paginator(operation)
            pages = pages.paginate(Bucket=self._bucket, Prefix=self._base)
            yield from bounded_pages(whole_listing(pages, where), first, where)
        except (BotoCoreError, ClientError) as error:
            raise translate_boto_error(error, where) from error

    def _pages(self, prefix: str, *, recursive: bool) -> Iterator[Any]:
        where = self._where(prefix)
        options = {} if recursive else {"Delimiter": "/"}
        try:
            paginator = self._client.get().get_paginator("list_objects_v2")
            pages = paginator.paginate(Bucket=self._bucket, Prefix=self._base + prefix, **options)
            yield from bounded_pages(whole_listing(pages, where), _first, where)
        except (BotoCoreError, ClientError) as error:
            raise translate_boto_error(error, where) from error


def _first(page: Any) -> tuple[Any, ...] | None:
    keys = rows_of(page).keys[:1]
    return (*keys, *(item["Prefix"] for item in page.get("CommonPrefixes", ())[:1])) or None


def _first_version(page: Any) -> tuple[Any, ...] | None:
    both = [*page.get("Versions", ())[:1], *page.get("DeleteMarkers", ())[:1]]
    return tuple((one["Key"], one["VersionId"]) for one in both) or None


def _first_upload(page: Any) -> tuple[Any, ...] | None:
    return tuple((one["Key"], one["UploadId"]) for one in page.get("Uploads", ())[:1]) or None


KEYS_A_PAGE = 50
"""When pages give fewer wanted keys than this, each key is listed alone, several at a time."""
LISTERS = 16


def find(client: S3Client, bucket: str, base: str, keys: Sequence[str], url: str) -> dict[str, StoredObject]:
    """``lakeplan.stores.protocols.ObjectProber.find``. Each page begins at the next wanted key, so that
    what lies between wanted keys is skipped."""
    found: dict[str, StoredObject] = {}
    done = 0
    for _ in range(2 + len(keys) // KEYS_A_PAGE):
        if done == len(keys):
            return found
        # ``StartAfter`` leaves its own key out.
        items, truncated = _page(client, base, bucket, url, Prefix=base, StartAfter=base + keys[done][:-1])
        stored = {one.key: one for one in items}
        last = next(reversed(stored)) if truncated else None
        while done < len(keys) and (last is None or keys[done] <= last):
            if (one := stored.get(keys[done])) is not None:
                found[one.key] = one
            done += 1

    def alone(key: str) -> StoredObject | None:
        items, _ = _page(client, base, bucket, url, Prefix=base + key, MaxKeys=1)
        return next((one for one in items if one.key == key), None)

    with ThreadPoolExecutor(LISTERS) as pool:
        return found | {one.key: one for one in pool.map(alone, keys[done:]) if one is not None}


def stored_object(item: dict[str, Any], base: str) -> StoredObject:
    """A version of an object."""
    modified = round(item["LastModified"].timestamp() * 1_000_000)
    return StoredObject(item["Key"][len(base) :], item["Size"], modified, str(item.get("ETag", "")))


def _page(
    client: S3Client, base: str, bucket: str, url: str, **where: Any
) -> tuple[list[StoredObject], bool]:
    """The entries of one page, in ascending order, and whether more follow."""
    try:
        answer = client.get().list_objects_v2(Bucket=bucket, **where)
    except (BotoCoreError, ClientError) as error:
        raise translate_boto_error(error, url) from error
    rows = rows_of(answer)
    if rows.keys != sorted(rows.keys):
        raise StorageError("the storage does not list keys in ascending order", where=url)
    check_inside(rows.keys, base, url)
    if answer.get("IsTruncated") and not rows.keys:
        raise error_of(Kind.BROKEN, url, detail="a page of a listing that is empty, but not the last")
    columns = zip(rows.keys, rows.sizes.tolist(), rows.modified_us.tolist(), rows.e_tags, strict=True)
    items = [StoredObject(key[len(base) :], *others) for key, *others in columns]
    return items, bool(answer.get("IsTruncated"))


ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes whose objects must be restored before they can be read. GLACIER_IR is not one."""


def facts_of(key: str, head: dict[str, Any]) -> StoredFacts:
    return StoredFacts(
        key,
        int(head["ContentLength"]),
        round(head["LastModified"].timestamp() * 1_000_000),
        str(head.get("ETag", "")),
        str(head.get("StorageClass", "")),
        is_readable(head),
    )


def is_readable(head: dict[str, Any]) -> bool:
    """Archived objects are, while a restored copy of them is there (``x-amz-restore``)."""
    archived = head.get("StorageClass") in ARCHIVES or bool(head.get("ArchiveStatus"))
    return not archived or 'ongoing-request="false"' in str(head.get("Restore", ""))
