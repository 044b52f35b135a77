"""Reads a namespace in S3 or a compatible store (``s3://``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError
from lakeplan.stores.bounded import REMNANT_PAGES, too_large
from lakeplan.stores.faults import DAMAGED, Kind, error_of, is_unsupported, translate_boto_error
from lakeplan.stores.protocols import Remnants, StoredColumns
from lakeplan.stores.s3_client import S3Place, boto_errors, check_inside, columns_of, rows_of
from lakeplan.stores.shared import find_in_pages
from lakeplan.values.objects import StoredObject
from lakeplan.values.simulation import Amount

READ_TRIES = 3
"""Attempts to read one object. botocore repeats requests, but not after an incomplete body."""


class S3Reader(S3Place):
    """Reads and lists one prefix of a bucket. A pickle has only location, endpoint and region: Spark workers
    open clients from their own environment."""

    def read(self, key: str) -> bytes:
        return self._read(key)

    def read_span(self, key: str, start: int, length: int) -> bytes:
        return self._read(key, Range=f"bytes={start}-{start + length - 1}")

    def _read(self, key: str, **options: str) -> bytes:
        where = self._where(key)
        for tries_left in reversed(range(READ_TRIES)):
            try:
                answer = self._client.get().get_object(**self._at(key), **options)
                announced = int(answer.get("ContentLength", -1))
                if announced > limits.OBJECT_BYTES:
                    answer["Body"].close()
                    raise too_large(where)
                data: bytes = answer["Body"].read()
            except ClientError as error:
                raise translate_boto_error(error, where) from error
            except (BotoCoreError, *DAMAGED):
                if not tries_left:
                    with boto_errors(where):
                        raise
                continue
            if len(data) == announced:
                return data
        raise error_of(Kind.BROKEN, where, detail=f"{len(data)} of {announced} bytes")

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        for columns in self.list_columns(prefix, recursive=recursive):
            yield from columns.objects()

    def list_columns(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredColumns]:
        """Implements ``ColumnReader``. Yields a page at a time."""
        start, where = self._base + prefix, self._where(prefix)
        for page in self._listing(prefix, recursive=recursive):
            with boto_errors(where):
                columns = columns_of(page, self._base, start, where)
            yield columns

    def list_prefixes(self, prefix: str = "") -> list[str]:
        start, where = self._base + prefix, self._where(prefix)
        with boto_errors(where):
            pages = self._listing(prefix, recursive=False)
            prefixes = [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", ())]
        check_inside(prefixes, start, where)
        return sorted(one[len(self._base) :] for one in prefixes)

    def remnants(self) -> Remnants:
        """Implements ``RemnantReader``."""
        try:
            with boto_errors(self._url):
                noncurrent, markers, whole = self._older_versions()
        except StorageError as error:
            if not (isinstance(error, StorageDenied) or is_unsupported(error)):
                raise
            noncurrent, markers, whole = None, None, True
        uploads, oldest, all_uploads = self._uploads()
        return Remnants(noncurrent, markers, uploads, oldest, whole and all_uploads)

    def _older_versions(self) -> tuple[Amount, int, bool]:
        objects, size, markers, whole = 0, 0, 0, True
        for number, page in enumerate(self._pages("list_object_versions", first_version)):
            if number == REMNANT_PAGES:
                whole = False
                break
            older = [item["Size"] for item in page.get("Versions", ()) if not item["IsLatest"]]
            objects, size = objects + len(older), size + sum(older)
            markers += len(page.get("DeleteMarkers", ()))
        return Amount(objects, size), markers, whole

    def _uploads(self) -> tuple[int | None, int | None, bool]:
        """Return how many there are, when the oldest was begun, and whether all were counted."""
        begun: list[int] = []
        try:
            for page in self._pages("list_multipart_uploads", _first_upload):
                with boto_errors(self._url):
                    times = [one["Initiated"].timestamp() for one in page.get("Uploads", ())]
                begun += [round(seconds * 1_000_000) for seconds in times]
                if len(begun) > REMNANT_PAGES * 1_000:
                    return len(begun), min(begun), False
        except StorageError as error:
            if not (isinstance(error, StorageDenied) or is_unsupported(error)):
                raise
            return None, None, True
        return len(begun), min(begun, default=None), True

    def list_classes(self) -> Iterator[tuple[str, int, str]]:
        """Implements ``ClassReader``."""
        for page in self._pages("list_objects_v2", _first, client=self._client.whole()):
            with boto_errors(self._url):
                rows = rows_of(page)
                check_inside(rows.keys, self._base, self._url)
            classes = (str(item.get("StorageClass", "")) for item in page.get("Contents", ()))
            for key, size, name in zip(rows.keys, rows.sizes.tolist(), classes, strict=True):
                yield key[len(self._base) :], size, name

    def _listing(self, prefix: str, *, recursive: bool) -> Iterator[Any]:
        options = {} if recursive else {"Delimiter": "/"}
        return self._pages("list_objects_v2", _first, prefix, **options)

    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        """Implements ``ObjectProber``."""

        def page_from(key: str) -> tuple[list[StoredObject], bool]:
            # ``StartAfter`` excludes its own key.
            return self._page(Prefix=self._base, StartAfter=self._base + key[:-1])

        def find_alone(key: str) -> StoredObject | None:
            objects, _ = self._page(Prefix=self._base + key, MaxKeys=1)
            return next((one for one in objects if one.key == key), None)

        return find_in_pages(keys, page_from, find_alone, self._url)

    def _page(self, **options: Any) -> tuple[list[StoredObject], bool]:
        """Return the objects of one page, and whether more follow."""
        with boto_errors(self._url):
            answer = self._client.get().list_objects_v2(Bucket=self._bucket, **options)
            rows = rows_of(answer)
        check_inside(rows.keys, self._base, self._url)
        if answer.get("IsTruncated") and not rows.keys:
            detail = "a page of a listing that is empty, but not the last"
            raise error_of(Kind.BROKEN, self._url, detail=detail)
        columns = zip(rows.keys, rows.sizes.tolist(), rows.modified_us.tolist(), rows.e_tags, strict=True)
        objects = [StoredObject(key[len(self._base) :], *others) for key, *others in columns]
        return objects, bool(answer.get("IsTruncated"))


def _first(page: Any) -> tuple[Any, ...] | None:
    keys = rows_of(page).keys[:1]
    return (*keys, *(item["Prefix"] for item in page.get("CommonPrefixes", ())[:1])) or None


def first_version(page: Any) -> tuple[Any, ...] | None:
    both = [*page.get("Versions", ())[:1], *page.get("DeleteMarkers", ())[:1]]
    return tuple((one["Key"], one["VersionId"]) for one in both) or None


def _first_upload(page: Any) -> tuple[Any, ...] | None:
    return tuple((one["Key"], one["UploadId"]) for one in page.get("Uploads", ())[:1]) or None


def stored_object(item: dict[str, Any], base: str) -> StoredObject:
    """Return a version of an object."""
    modified = round(item["LastModified"].timestamp() * 1_000_000)
    return StoredObject(item["Key"][len(base) :], item["Size"], modified, str(item.get("ETag", "")))


ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""Storage classes whose objects must be restored before they can be read. GLACIER_IR is not one."""


def described(key: str, head: dict[str, Any]) -> StoredObject:
    """Return the object that an answer to HEAD describes."""
    modified = round(head["LastModified"].timestamp() * 1_000_000)
    e_tag = str(head.get("ETag", ""))
    return StoredObject(key, int(head["ContentLength"]), modified, e_tag, is_readable(head))


def is_readable(head: dict[str, Any]) -> bool:
    """Return whether an object can be read. An archived one can while it is restored (``x-amz-restore``)."""
    archived = head.get("StorageClass") in ARCHIVES or bool(head.get("ArchiveStatus"))
    return not archived or 'ongoing-request="false"' in str(head.get("Restore", ""))
