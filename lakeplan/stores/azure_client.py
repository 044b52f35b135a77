"""Clients of Azure containers, and the reader of a namespace there."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError, ServiceResponseError
from azure.core.paging import ItemPaged
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobPrefix, BlobProperties, BlobServiceClient, ContainerClient

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError, WriteConflict
from lakeplan.stores.bounded import (
    REMNANT_PAGES,
    LazyClient,
    bounded_pages,
    bounded_session,
    in_time,
    too_large,
)
from lakeplan.stores.faults import DAMAGED, Kind, error_of, is_missing_object, translate_azure_error
from lakeplan.stores.open import NO_ACCESS, Access, AzureLocation, Remnants, Versioned
from lakeplan.stores.shared import KEYS_A_PAGE, THREADS, RecordPlace
from lakeplan.values.bodies import quiet_logs
from lakeplan.values.progress import in_parallel
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount
from lakeplan.values.urls import parse_web_url

T = TypeVar("T")
# By default the first wait is 15 seconds.
RETRIES: dict[str, Any] = {
    "retry_total": 3,
    "initial_backoff": 1,
    "increment_base": 2,
    "random_jitter_range": 1,
}
UNCHANGED = MatchConditions.IfNotModified
LIMITS: dict[str, Any] = {"connection_timeout": 10, "read_timeout": 60}


class AzureClient(LazyClient[ContainerClient]):
    """azure-storage-blob's client. With ``once``, each request is sent only once. A time limit of None
    means the constant of this module."""

    def __init__(self, location: AzureLocation, access: Access = NO_ACCESS, once: bool = False) -> None:
        super().__init__(location, access, once)
        self._location = location
        self._access = access
        self._once = once

    def _make(self) -> ContainerClient:
        return self._client_of(ContainerClient, self._location.container)

    def service(self) -> BlobServiceClient:
        """Return a client of the whole account, for a single request."""
        return self._client_of(BlobServiceClient)

    def _client_of(self, kind: Callable[..., T], *names: str) -> T:
        # azure-core logs every request with its signed URL.
        quiet_logs("azure", "azure.core.pipeline.policies.http_logging_policy", "urllib3", "msal")
        credential = find_credential(self._location, os.environ)
        given = {
            "connection_timeout": self._access.connect_seconds,
            "read_timeout": self._access.read_seconds,
        }
        settings = LIMITS | {name: seconds for name, seconds in given.items() if seconds is not None}
        session = bounded_session()
        session.hooks["response"].append(_check_request_id)
        settings["transport"] = RequestsTransport(session=session, session_owner=False, **settings)
        retries = {"retry_total": 0} if self._once else RETRIES
        try:
            # A redirect would be signed again, for any host that the store names.
            options = {"credential": credential, "permit_redirects": False, **settings, **retries}
            return kind(self._location.account_url, *names, **options)
        except (AzureError, ValueError) as error:
            # Without a cause, because the library's text may quote the credential.
            raise translate_azure_error(error, self._location.url) from None


REQUEST_ID = "x-ms-client-request-id"


def _check_request_id(response: Any, **_: object) -> None:
    """Raise ServiceResponseError for the response to another request, such as one that a proxy kept.
    Azure returns the id of each request. A proxy may repeat, empty or capitalize the header."""
    returned = (response.headers.get(REQUEST_ID) or "").partition(",")[0].strip().lower()
    if returned and returned != str(response.request.headers.get(REQUEST_ID)).lower():
        response.close()
        raise ServiceResponseError("the response to another request")


@contextmanager
def azure_errors(where: str) -> Iterator[None]:
    """Translate errors of Azure's libraries by the table in ``faults``, and errors of reading a damaged
    response."""
    try:
        yield
    except AzureError as error:
        raise translate_azure_error(error, where) from None
    except DAMAGED as error:
        raise damaged_answer(error, where) from None


def damaged_answer(error: Exception, where: str) -> StorageError:
    """Return the error for one of ``DAMAGED``. The detail has its place, in case it is a bug, but no text,
    which may quote a credential."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    detail = f"{type(error).__name__} in {os.path.basename(place.filename)}, line {place.lineno}"
    return error_of(Kind.BROKEN, where, detail=detail)


class AzurePlace(RecordPlace):
    """Blobs below a path of a container, and the client that requests them. Picklable."""

    def __init__(self, location: AzureLocation, access: Access = NO_ACCESS) -> None:
        super().__init__(location)
        self._client = AzureClient(location, access)
        self._base = location.base

    def _unusable(self, key: str) -> str:
        """Return why a request cannot name a blob of this key, or ""."""
        if not {".", ".."}.isdisjoint(key.split("/")):
            return "the name contains . or .. as a path segment, so a request would refer to another blob"
        return super()._unusable(key)

    def _read_record(self, key: str) -> Versioned:
        with azure_errors(self._where(key)):
            download = self._client.get().download_blob(self._base + key)
            return Versioned(download.readall(), str(download.properties.etag))

    def put_record(self, key: str, data: bytes, *, if_version: str | None) -> str:
        """Write a record if it has this version (None: if it does not exist), and return its ETag. Raises
        WriteConflict otherwise."""
        condition: dict[str, Any] = {"overwrite": False}
        if if_version is not None:
            condition = {"overwrite": True, "etag": if_version, "match_condition": UNCHANGED}
        retries: list[object] = []
        try:
            blob = self._client.get().get_blob_client(self._base + key)
            return str(blob.upload_blob(data, retry_hook=_added_to(retries), **condition)["etag"])
        except AzureError as error:
            translated = self._conflict(error, key)
            if isinstance(translated, WriteConflict) and retries and (known := self._version_of(key, data)):
                return known
            raise translated from None

    def delete_record(self, key: str, if_version: str) -> None:
        """Delete a record. Raises WriteConflict if it has another version."""
        condition: dict[str, Any] = {"etag": if_version, "match_condition": UNCHANGED}
        retries: list[object] = []
        try:
            blob = self._client.get().get_blob_client(self._base + key)
            blob.delete_blob(retry_hook=_added_to(retries), **condition)
        except AzureError as error:
            translated = self._conflict(error, key)
            if isinstance(translated, WriteConflict) and retries and self.get_record(key) is None:
                return  # the first request deleted it
            raise translated from None

    def _conflict(self, error: AzureError, key: str) -> StorageError:
        """Return the error of a write under a condition, which also fails if the record does not exist."""
        translated = translate_azure_error(error, self._where(key))
        return error_of(Kind.CONFLICT, self._where(key)) if is_missing_object(translated) else translated


def _added_to(retries: list[object]) -> Callable[..., None]:
    """Return a hook that adds every retry of a request to the list."""
    return lambda **_: retries.append(None)


def find_credential(location: AzureLocation, environ: Mapping[str, str]) -> Any:
    """Return the credential for one account: ``AZURE_STORAGE_CONNECTION_STRING``, ``AZURE_STORAGE_KEY``,
    ``AZURE_STORAGE_SAS_TOKEN``, or azure-identity's default chain if that package is installed.

    Raises StorageDenied for a credential that names another account or endpoint, and for a token or SAS that
    would be sent to an address that is not Azure's (or, for a SAS, not of this machine).
    """
    if text := environ.get("AZURE_STORAGE_CONNECTION_STRING", "").strip():
        return _from_connection_string(location, text)
    account = environ.get("AZURE_STORAGE_ACCOUNT", "").strip()
    if account and account != location.account:
        raise _other(location, "AZURE_STORAGE_ACCOUNT is not the account in the URL")
    if key := environ.get("AZURE_STORAGE_KEY", "").strip():
        return AzureNamedKeyCredential(location.account, key)
    if sas := environ.get("AZURE_STORAGE_SAS_TOKEN", "").strip():
        if not account and location.is_azure:
            raise StorageDenied(
                "lakeplan sends a SAS only to the account that issued it, but AZURE_STORAGE_ACCOUNT is not"
                " set",
                where=location.url,
                hint="Set AZURE_STORAGE_ACCOUNT together with AZURE_STORAGE_SAS_TOKEN.",
            )
        return _sas(location, sas)
    return _default_chain(location)


def _from_connection_string(location: AzureLocation, text: str) -> Any:
    fields = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    account = fields.get("AccountName", "")
    if account and account != location.account:
        raise _other(location, "the account in AZURE_STORAGE_CONNECTION_STRING is not the one in the URL")
    endpoint = fields.get("BlobEndpoint", "").rstrip("/")
    if endpoint and endpoint.lower() != location.account_url.lower():
        raise _other(location, "the endpoint in AZURE_STORAGE_CONNECTION_STRING is not the one in the URL")
    suffix = fields.get("EndpointSuffix", "").lower()
    if suffix and not endpoint and not location.account_url.endswith(f".blob.{suffix}"):
        raise _other(location, "the endpoint in AZURE_STORAGE_CONNECTION_STRING is not the one in the URL")
    if key := fields.get("AccountKey"):
        return AzureNamedKeyCredential(location.account, key)
    if sas := fields.get("SharedAccessSignature"):
        if not account and not endpoint:
            raise _other(location, "AZURE_STORAGE_CONNECTION_STRING contains a SAS, but no account")
        return _sas(location, sas)
    raise StorageDenied(
        "AZURE_STORAGE_CONNECTION_STRING has neither AccountKey nor SharedAccessSignature", where=location.url
    )


def _sas(location: AzureLocation, sas: str) -> AzureSasCredential:
    if not parse_web_url(location.account_url).is_loopback and not location.is_azure:
        raise _other(location, "lakeplan sends a SAS only to Azure's own addresses")
    return AzureSasCredential(sas)


def _default_chain(location: AzureLocation) -> Any:
    try:
        identity = importlib.import_module("azure.identity")
    except ImportError:
        raise error_of(
            Kind.NO_CREDENTIALS,
            location.url,
            message="no Azure credentials were found: set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY"
            " or AZURE_STORAGE_SAS_TOKEN, or install azure-identity",
        ) from None
    if not location.is_azure:
        raise _other(location, "lakeplan sends a token only to Azure's own addresses")
    return identity.DefaultAzureCredential()


def _other(location: AzureLocation, message: str) -> StorageError:
    return StorageDenied(
        message, where=location.url, hint="Check the environment variables. Nothing was sent."
    )


PAGE = 5_000


def stored_object(item: BlobProperties, base: str) -> StoredObject:
    modified = round(item.last_modified.timestamp() * 1_000_000)
    key, e_tag = item.name[len(base) :], str(item.etag or "")
    if not item.name.startswith(base) or not 0 <= item.size < 1 << 63:
        raise ValueError("the listing contains a blob outside the requested folder, or an invalid size")
    return StoredObject(key, int(item.size), modified, e_tag, is_readable(item))


def is_readable(item: BlobProperties) -> bool:
    """A blob that is being rehydrated is in the archive until that is done."""
    return str(item.blob_tier or "") != "Archive"


def first_name(page: Sequence[BlobProperties | BlobPrefix]) -> tuple[str, str | None] | None:
    """Return a value that identifies the first entry of a page, or None for an empty page."""
    return (page[0].name, getattr(page[0], "version_id", None)) if page else None


class AzureReader(AzurePlace):
    """Reads and lists one path of a container. A pickle has only location and limits: Spark workers open
    clients from their own environment."""

    def read(self, key: str) -> bytes:
        where = self._where(key)
        with azure_errors(where):
            # The library requests the rest of an incomplete body.
            download = self._client.get().download_blob(self._base + key)
            if download.size > limits.OBJECT_BYTES:
                raise too_large(where)
            data: bytes = in_time(download.readall, where, limits.FILE_SECONDS)
        if len(data) != download.size:
            raise error_of(Kind.BROKEN, where, detail=f"received {len(data)} of {download.size} bytes")
        return data

    def read_span(self, key: str, start: int, length: int) -> bytes:
        where = self._where(key)
        with azure_errors(where):
            download = self._client.get().download_blob(self._base + key, offset=start, length=length)
            data: bytes = in_time(download.readall, where, limits.FILE_SECONDS)
        return data

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        for item in self._items(prefix, recursive=recursive):
            if isinstance(item, BlobPrefix):
                continue
            with azure_errors(self._url):
                stored = stored_object(item, self._base)
            if not stored.key or _is_folder(item) or (stored.key.endswith("/") and stored.size == 0):
                continue
            yield stored

    def list_classes(self) -> Iterator[tuple[str, int, str]]:
        """Implements ``ClassReader``: access tiers."""
        for item in self._items("", recursive=True):
            if not (isinstance(item, BlobPrefix) or _is_folder(item)):
                tier = getattr(item.blob_tier, "value", item.blob_tier)
                yield item.name[len(self._base) :], int(item.size), str(tier or "")

    def list_prefixes(self, prefix: str = "") -> list[str]:
        return sorted(
            item.name[len(self._base) :]
            for item in self._items(prefix, recursive=False)
            if isinstance(item, BlobPrefix)
        )

    def remnants(self) -> Remnants:
        """Implements ``RemnantReader``. Older versions and blobs that soft delete still keeps. A listing does
        not distinguish unfinished uploads from empty blobs."""
        noncurrent = Amount()
        for number, item in enumerate(self._items("", recursive=True, more=("versions", "deleted"))):
            if number == REMNANT_PAGES * 1_000:
                return Remnants(noncurrent, None, None, None, complete=False)
            if isinstance(item, BlobPrefix) or _is_folder(item):
                continue
            if item.deleted or (item.version_id and not item.is_current_version):
                noncurrent += Amount(1, int(item.size))
        return Remnants(noncurrent, None, None, None, complete=True)

    def _items(
        self, prefix: str, *, recursive: bool, more: Sequence[str] = ()
    ) -> Iterator[BlobProperties | BlobPrefix]:
        start, where = self._base + prefix, self._where(prefix)
        options: dict[str, Any] = {"name_starts_with": start, "include": ["metadata", *more]}
        with azure_errors(where):
            container = self._client.get()
            items: ItemPaged[Any] = (
                container.list_blobs(**options)
                if recursive
                else container.walk_blobs(**options, delimiter="/")
            )
            for page in bounded_pages(map(list, items.by_page()), first_name, where):
                if not all(item.name.startswith(start) for item in page):
                    raise error_of(
                        Kind.BROKEN, where, detail="the listing contains a name outside the requested prefix"
                    )
                yield from page

    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        """Implements ``ObjectProber``. Azure lists only from the beginning of a prefix, so the keys of each
        folder are listed with the prefix that they share."""

        def of_folder(wanted: list[str]) -> list[StoredObject]:
            objects, done = self._listed(wanted)
            for key in wanted[done:]:
                objects += self._listed([key])[0]
            return objects

        folders = [list(group) for _, group in groupby(keys, key=lambda key: key.rpartition("/")[0])]
        return {one.key: one for objects in in_parallel(of_folder, folders, THREADS) for one in objects}

    def _listed(self, wanted: list[str]) -> tuple[list[StoredObject], int]:
        """Return the objects at the wanted keys, and how many of these, from the first, are decided."""
        objects: list[StoredObject] = []
        done = 0
        first, last = wanted[0], wanted[-1]
        same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        shared = self._base + first[:same]
        size = 1 if len(wanted) == 1 else PAGE
        with azure_errors(self._url):
            blobs = self._client.get().list_blobs(name_starts_with=shared, results_per_page=size)
            pages = bounded_pages(map(list, blobs.by_page()), first_name, self._url)
            for number, page in enumerate(pages, start=1):
                stored = {one.key: one for one in (stored_object(item, self._base) for item in page)}
                reached = max(stored, default="")
                while done < len(wanted) and wanted[done] <= reached:
                    if (one := stored.get(wanted[done])) is not None:
                        objects.append(one)
                    done += 1
                # A single key needs all pages up to its own, because pages before may be empty.
                if done == len(wanted) or (size > 1 and number > 1 + len(wanted) // KEYS_A_PAGE):
                    return objects, done
        return objects, len(wanted)


def _is_folder(item: BlobProperties) -> bool:
    """Return whether a blob is a folder of an account with a hierarchical namespace."""
    return (item.metadata or {}).get("hdi_isfolder", "").lower() == "true"
