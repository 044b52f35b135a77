"""Requests to S3, and the reader of a namespace there (``s3://``). Regular pages of listings are parsed here,
because botocore makes ten Python objects of each entry."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias
from urllib.parse import unquote_plus, urlsplit

import botocore.session
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import Loader, create_loader
from botocore.parsers import ResponseParserError

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError, WriteConflict
from lakeplan.stores.bounded import (
    CONNECTIONS,
    REMNANT_PAGES,
    LazyClient,
    bound_s3,
    bounded_pages,
    too_large,
    whole_listing,
)
from lakeplan.stores.faults import (
    DAMAGED,
    Kind,
    error_of,
    is_missing_object,
    is_unsupported,
    translate_boto_error,
)
from lakeplan.stores.open import NO_ACCESS, Access, Remnants, S3Location, StoredColumns, Versioned
from lakeplan.stores.shared import RecordPlace, find_in_pages
from lakeplan.values.bodies import quiet_logs
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount
from lakeplan.values.urls import shown_url

Ints: TypeAlias = npt.NDArray[np.int64]
ROWS = "LakeplanRows"
"""The key of the entries in botocore's response if they were parsed here."""
_BEGIN, _END = b"<Contents>", b"</Contents>"
_FIELD = re.compile(r"<(Key|LastModified|Size|ETag)>")
_PATTERNS = {
    "Key": r"<Key>([^<&\x00-\x1f]+)</Key>",
    "LastModified": r"<LastModified>((?!0000)[0-9]{4}-[0-9-]{5}T[0-9:]{8}(?:\.[0-9]{1,6})?Z)</LastModified>",
    "Size": r"<Size>([0-9]{1,18})</Size>",
    "ETag": r"<ETag>([^<&]*(?:&(?:quot|#34);[^<&]*)*)</ETag>",
}
_OTHERS = "(?:{})*".format(
    "|".join(
        rf"<{name}>[^<&\x00-\x1f]*</{name}>"
        for name in ("StorageClass", "ChecksumAlgorithm", "ChecksumType", "Type")
    )
)
"""Other elements of entries. botocore parses pages that have further ones."""
_UTF8 = re.compile(
    rb"""(?:\s*<\?xml version=["']1\.0["'](?: encoding=["'](?i:utf-8)["'])? ?\?>)?\s*<[A-Za-z]"""
)


@dataclass(frozen=True)
class Rows:
    """The entries of a page, with keys as in the page."""

    keys: list[str]
    sizes: Ints
    modified_us: Ints
    e_tags: list[str]


def take_rows(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """Handle botocore's ``before-parse`` of a listing: parse the entries and remove them from the body."""
    body = response_dict["body"]
    announced = response_dict["headers"].get("Content-Length", "")
    if response_dict["status_code"] != 200 or not isinstance(body, bytes):
        return
    if announced.isdecimal() and int(announced) != len(body):
        return  # it is incomplete
    begin, end = body.find(_BEGIN), body.rfind(_END) + len(_END)
    if b"<!" in body[: max(begin, 0)]:
        return  # entries may be in a comment
    if 0 <= begin < end and _UTF8.match(body) and (rows := _rows(body[begin:end])) is not None:
        customized_response_dict[ROWS] = rows
        response_dict["body"] = body[:begin] + body[end:]


def _rows(section: bytes) -> Rows | None:
    """Return the entries, or None if the page is not regular."""
    try:
        text = section.decode()
    except UnicodeDecodeError:
        return None
    first = text[: text.index(_END.decode())]
    names = tuple(_FIELD.findall(first))
    if sorted(names) not in (sorted(_PATTERNS), sorted(_PATTERNS.keys() - {"ETag"})):
        return None
    # Alternately the text between two entries, and the fields of an entry.
    parts = _pattern(names).split(text)
    width = 1 + len(names)
    if any(parts[::width]):
        return None
    columns = {name: parts[n::width] for n, name in enumerate(names, start=1)}
    try:
        modified = pa.array(columns["LastModified"], pa.string()).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        return None
    e_tags = columns.get("ETag", [""] * len(columns["Key"]))
    if "&" in text:
        e_tags = [e_tag.replace("&quot;", '"').replace("&#34;", '"') for e_tag in e_tags]
    sizes = np.array(list(map(int, columns["Size"])), np.int64)
    return Rows(columns["Key"], sizes, modified.cast(pa.int64()).to_numpy(), e_tags)


@cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of an entry with these elements in this order and others between them."""
    fields = "".join(_OTHERS + _PATTERNS[name] for name in names)
    return re.compile(f"<Contents>{fields}{_OTHERS}</Contents>")


def rows_of(answer: dict[str, Any]) -> Rows:
    """Return the entries of a response, which botocore may have parsed, with their whole keys. Raises
    ValueError for a page that lacks entries, or does not say whether more pages follow."""
    rows: Rows | None = answer.get(ROWS)
    entries = len(answer.get("Contents", ()) if rows is None else rows.keys)
    if answer.get("KeyCount", 0) > entries + len(answer.get("CommonPrefixes", ())):
        raise ValueError("the page has fewer entries than it states")
    if "IsTruncated" not in answer or (answer.get("NextContinuationToken") and not answer["IsTruncated"]):
        raise ValueError("the page does not say whether it is the last")
    if rows is None:
        items = answer.get("Contents", [])
        modified = [round(item["LastModified"].timestamp() * 1_000_000) for item in items]
        sizes = np.array([item["Size"] for item in items], np.int64)
        if (sizes < 0).any():
            raise ValueError("a negative size")
        e_tags = [str(item.get("ETag", "")) for item in items]
        return Rows([item["Key"] for item in items], sizes, np.array(modified, np.int64), e_tags)
    if answer.get("EncodingType") != "url" or not any("%" in key or "+" in key for key in rows.keys):
        return rows
    keys = [unquote_plus(key, errors="surrogateescape") for key in rows.keys]
    return Rows(keys, rows.sizes, rows.modified_us, rows.e_tags)


def columns_of(answer: dict[str, Any], base: str, start: str, where: str) -> StoredColumns:
    """Return the objects of a response, with keys relative to ``base``, without those that consoles create to
    show a folder. Raises StorageError for a key that does not begin with ``start``, the requested prefix:
    without its first characters it would be the key of another object."""
    rows = rows_of(answer)
    check_inside(rows.keys, start, where)
    cut = len(base)
    keys = [key[cut:] for key in rows.keys]
    folders = [n for n, key in enumerate(keys) if (not key or key[-1] == "/") and not (key and rows.sizes[n])]
    columns = StoredColumns(binary(keys), rows.sizes, rows.modified_us, pa.array(rows.e_tags, pa.string()))
    if not folders:
        return columns
    kept = np.delete(np.arange(len(keys)), folders)
    return StoredColumns(
        columns.keys.take(kept), columns.sizes[kept], columns.modified_us[kept], columns.e_tags.take(kept)
    )


def check_inside(keys: Sequence[str], start: str, where: str) -> None:
    if not all(key.startswith(start) for key in keys):
        raise error_of(Kind.BROKEN, where, detail="the listing contains a key outside the requested prefix")


def binary(keys: Sequence[str]) -> pa.Array:
    """Return keys as a binary column."""
    try:
        return pa.array(keys, pa.string()).cast(pa.binary())
    except (UnicodeEncodeError, pa.ArrowException):
        return pa.array([key.encode(errors="surrogateescape") for key in keys], pa.binary())


CONNECT_SECONDS = 10
READ_SECONDS = 60
TRIES = 4
AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


class S3Client(LazyClient[Any]):
    """boto3's client. ``tries`` is the most attempts of a request. None means the constant of this module,
    also for the time limits."""

    def __init__(self, access: Access, tries: int | None = None) -> None:
        super().__init__(access, tries)
        self._access = access
        self._tries = tries

    def whole(self) -> Any:
        """Return a client whose listings have all fields and take longer."""
        client = self._make()
        client.meta.events.unregister("before-parse.*.ListObjectsV2", take_rows)
        return client

    def _make(self) -> Any:
        quiet_logs("botocore", "boto3", "s3transfer", "urllib3", "urllib3.connectionpool")
        try:
            session = botocore.session.Session()
            session.register_component("data_loader", _data(session.get_config_variable("data_path")))
            client = self._client_of(session, custom=False)
            # The endpoint may also be from AWS_ENDPOINT_URL(_S3) or a profile.
            host = urlsplit(client.meta.endpoint_url).hostname or ""
            if not host.endswith(AWS_HOSTS):
                client = self._client_of(session, custom=True)
                client.meta.events.register_last("before-call.s3.DeleteObjects", _add_content_md5)
        except (BotoCoreError, ValueError) as error:
            raise translate_boto_error(error, shown_url(self._access.endpoint_url or "s3://")) from None
        client.meta.events.register("before-parse.s3", _refuse_cut_answer)
        # With this name it runs before botocore's handler, which parses the whole page to find an error.
        client.meta.events.register("before-parse.*.ListObjectsV2", take_rows)
        bound_s3(client)
        return client

    def _client_of(self, session: Any, *, custom: bool) -> Any:
        settings: dict[str, Any] = {
            "connect_timeout": self._access.connect_seconds or CONNECT_SECONDS,
            "read_timeout": self._access.read_seconds or READ_SECONDS,
            "retries": {"mode": "standard", "total_max_attempts": self._tries or TRIES},
            "max_pool_connections": CONNECTIONS,
        }
        if custom:
            # Other stores have buckets in the path, and often do not support the newer checksum headers.
            settings |= {
                "s3": {"addressing_style": "path"},
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            }
        return session.create_client(
            "s3",
            region_name=self._access.region,
            endpoint_url=self._access.endpoint_url,
            config=Config(**settings),
        )


@contextmanager
def boto_errors(where: str) -> Iterator[None]:
    """Translate errors of botocore by the table in ``faults``, and errors of reading a damaged response."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise translate_boto_error(error, where) from error
    except (ResponseParserError, *DAMAGED) as error:
        raise error_of(Kind.BROKEN, where, detail=type(error).__name__) from error


ONLY_NEW = {"IfNoneMatch": "*"}


class S3Place(RecordPlace):
    """Keys below a prefix of a bucket, and the client that requests them. Picklable."""

    def __init__(self, location: S3Location, access: Access = NO_ACCESS) -> None:
        super().__init__(location)
        self._client = S3Client(access)
        self._bucket = location.bucket
        self._base = location.base

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._base + key}

    def _pages(
        self,
        operation: str,
        first_of: Callable[[Any], object],
        prefix: str = "",
        client: Any = None,
        **options: str,
    ) -> Iterator[Any]:
        """Yield the pages of a listing, within limits, by the given client or else the own one."""
        where = self._where(prefix)
        with boto_errors(where):
            pages = (
                (client or self._client.get())
                .get_paginator(operation)
                .paginate(Bucket=self._bucket, Prefix=self._base + prefix, **options)
            )
            yield from bounded_pages(whole_listing(pages, where), first_of, where)

    def _read_record(self, key: str) -> Versioned:
        for _ in range(READ_TRIES):
            with boto_errors(self._where(key)):
                answer = self._client.get().get_object(**self._at(key))
                record = Versioned(answer["Body"].read(), str(answer["ETag"]))
                if record.data:
                    return record
                # An empty record is a deleted one, so a body that was lost must not look like it.
                head = self._client.get().head_object(**self._at(key))
                if not head["ContentLength"]:
                    return record
                if head["ETag"] == record.version:
                    break
                # Somebody wrote the record again after it was read.
        raise error_of(Kind.BROKEN, self._where(key), detail="the response is empty")

    def put_record(self, key: str, data: bytes, condition: Mapping[str, str]) -> str:
        """Write a record under a condition, and return its ETag. Raises WriteConflict if the condition is not
        met."""
        where = self._where(key)
        try:
            with boto_errors(where):
                # Buckets in which new objects get a retention period refuse uploads without a checksum.
                answer = self._client.get().put_object(
                    **self._at(key), Body=data, ContentMD5=_content_md5(data), **condition
                )
                return str(answer["ETag"])
        except StorageError as error:
            if was_sent_before(error) and (version := self._version_of(key, data)):
                return version
            if "IfMatch" in condition and is_missing_object(error):  # the record is gone
                raise error_of(Kind.CONFLICT, where) from error
            raise


def was_sent_before(error: StorageError) -> bool:
    """Return whether a conditional write failed by its condition after botocore had sent it before. It may
    conflict with itself."""
    meant = isinstance(error, WriteConflict) or is_missing_object(error)
    return meant and int(answer_behind(error, "ResponseMetadata").get("RetryAttempts", 0)) > 0


def answer_behind(error: StorageError, part: str) -> dict[str, Any]:
    """Return ``Error`` or ``ResponseMetadata`` of the response that an error translates, or {} without."""
    cause = error.__cause__
    answer: dict[str, Any] = cause.response.get(part, {}) if isinstance(cause, ClientError) else {}
    return answer


@cache
def _data(path: str | None) -> Loader:
    """Return botocore's descriptions of services. Otherwise each session would read megabytes again, and a
    sweep opens the storage of every repository of a server."""
    return create_loader(path)


ROOTS = {
    "ListObjectsV2": b"ListBucketResult",
    "ListObjectVersions": b"ListVersionsResult",
    "ListMultipartUploads": b"ListMultipartUploadsResult",
    "GetBucketVersioning": b"Versioning",
    "GetObjectTagging": b"Tagging",
    "DeleteObjects": b"DeleteResult",
    "CopyObject": b"CopyObjectResult",
}
"""The root elements of responses that botocore would read without them."""
ROOT_BYTES = 1_000


def _refuse_cut_answer(
    operation_model: Any, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    """Turn a response with an incomplete body, or with another document such as a proxy's page, into one that
    is requested again. botocore reads them as empty ones, so that a listing would have no object, a bucket no
    versions and a batch no failure. (It checks bodies that it streams. A response to HEAD announces a body
    and has none.)"""
    body = response_dict["body"]
    announced = response_dict["headers"].get("Content-Length", "")
    if operation_model.http.get("method") == "HEAD" or not isinstance(body, bytes):
        return
    if ROWS in customized_response_dict:
        return  # the body was complete before its entries were removed
    cut = announced.isdecimal() and int(announced) != len(body)
    root = ROOTS.get(operation_model.name, b"")
    if response_dict["status_code"] < 300 and (cut or root not in body[:ROOT_BYTES]):
        response_dict["status_code"] = 500


def _add_content_md5(params: dict[str, Any], **_: object) -> None:
    """Add the older checksum header, without which older stores refuse this request. botocore sends only a
    CRC32, also with ``request_checksum_calculation``."""
    params["headers"]["Content-MD5"] = _content_md5(params["body"])


def _content_md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


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
        raise error_of(Kind.BROKEN, where, detail=f"received {len(data)} of {announced} bytes")

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
            detail = "a page of the listing is empty, but is not the last one"
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
"""Storage classes whose objects must be restored before they can be read. GLACIER_IR is not one of them."""


def described(key: str, head: dict[str, Any]) -> StoredObject:
    """Return the object that an answer to HEAD describes."""
    modified = round(head["LastModified"].timestamp() * 1_000_000)
    e_tag = str(head.get("ETag", ""))
    return StoredObject(key, int(head["ContentLength"]), modified, e_tag, is_readable(head))


def is_readable(head: dict[str, Any]) -> bool:
    """Return whether an object can be read. An archived one can while it is restored (``x-amz-restore``)."""
    archived = head.get("StorageClass") in ARCHIVES or bool(head.get("ArchiveStatus"))
    return not archived or 'ongoing-request="false"' in str(head.get("Restore", ""))


CHECKSUMS = ("SHA256", "SHA1", "CRC64NVME", "CRC32C", "CRC32")


def checksum_options(head: dict[str, Any]) -> dict[str, str]:
    """Return the options for the checksum of the source, if a copy in parts can have it for the whole
    object."""
    name = next((name for name in CHECKSUMS if whole_checksum(head, name)), "")
    if not name.startswith("CRC") or head.get("ChecksumType") != "FULL_OBJECT":
        return {}
    return {"ChecksumAlgorithm": name, "ChecksumType": "FULL_OBJECT"}


def whole_checksum(head: dict[str, Any], name: str) -> str:
    """Return a checksum of the whole object, not of checksums of parts, or "" if there is none."""
    value = str(head.get(f"Checksum{name}", ""))
    return "" if head.get("ChecksumType") == "COMPOSITE" or "-" in value else value


def plain_md5(head: dict[str, Any]) -> str:
    """Return the ETag if it is the MD5 of the object, or "" for multipart uploads and KMS."""
    tag = str(head.get("ETag", "")).strip('"')
    if head.get("ServerSideEncryption") not in (None, "AES256") or not re.fullmatch("[0-9a-f]{32}", tag):
        return ""
    return tag
