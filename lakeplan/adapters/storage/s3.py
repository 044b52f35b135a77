"""A storage namespace in S3, or in a store that speaks its protocol (``s3://``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from lakeplan import limits
from lakeplan.adapters.storage.bounded import bounded_pages, too_large, whole_listing
from lakeplan.adapters.storage.s3_client import S3Client
from lakeplan.adapters.storage.s3_pages import columns_of, rows_of
from lakeplan.adapters.storage.translate import Kind, error_of, translate_boto_error
from lakeplan.adapters.storage.urls import S3Location
from lakeplan.model.objects import StoredObject
from lakeplan.ports.storage import StoredColumns

READ_TRIES = 3
"""Of one object: botocore tries requests again, but not a body that breaks off."""


class S3Reader:
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
        self._location = location
        self._client = S3Client(
            endpoint_url, region, connect_seconds=connect_seconds, read_seconds=read_seconds
        )
        self._base = f"{location.prefix}/" if location.prefix else ""

    @property
    def url(self) -> str:
        return self._location.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def read(self, key: str) -> bytes:
        where = f"{self.url}/{key}"
        tries = 0
        while True:
            tries += 1
            try:
                answer = self._client.get().get_object(Bucket=self._location.bucket, Key=self._base + key)
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
        start, where = self._base + prefix, f"{self.url}/{prefix}"
        for page in self._pages(prefix, recursive=recursive):
            yield columns_of(page, self._base, start, where)

    def list_prefixes(self, prefix: str = "") -> list[str]:
        return sorted(
            item["Prefix"][len(self._base) :]
            for page in self._pages(prefix, recursive=False)
            for item in page.get("CommonPrefixes", ())
        )

    def _pages(self, prefix: str, *, recursive: bool) -> Iterator[Any]:
        where = f"{self.url}/{prefix}"
        options = {} if recursive else {"Delimiter": "/"}
        try:
            paginator = self._client.get().get_paginator("list_objects_v2")
            pages = paginator.paginate(Bucket=self._location.bucket, Prefix=self._base + prefix, **options)
            yield from bounded_pages(whole_listing(pages, where), _first, where)
        except (BotoCoreError, ClientError) as error:
            raise translate_boto_error(error, where) from error


def _first(page: Any) -> tuple[Any, ...] | None:
    keys = rows_of(page).keys[:1]
    return (*keys, *(item["Prefix"] for item in page.get("CommonPrefixes", ())[:1])) or None
