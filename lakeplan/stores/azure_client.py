"""Clients of Azure containers, made lazily, and what reads with them."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError
from azure.core.paging import ItemPaged
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobPrefix, BlobProperties, BlobServiceClient, ContainerClient

from lakeplan import limits
from lakeplan.errors import StorageDenied, StorageError, WriteConflict
from lakeplan.stores.bounded import REMNANT_PAGES, bounded_pages, bounded_session, in_time, too_large
from lakeplan.stores.faults import Kind, error_of, is_missing_object, translate_azure_error
from lakeplan.stores.protocols import Remnants, Versioned
from lakeplan.stores.urls import AzureLocation, Opened
from lakeplan.values.objects import StoredObject
from lakeplan.values.simulation import Amount
from lakeplan.values.urls import parse_web_url

T = TypeVar("T")
# The library's own first wait is 15 seconds.
RETRIES: dict[str, Any] = {
    "retry_total": 3,
    "initial_backoff": 1,
    "increment_base": 2,
    "random_jitter_range": 1,
}
UNCHANGED = MatchConditions.IfNotModified
Limits = tuple[float | None, float | None, bool]
LIMITS: dict[str, Any] = {"connection_timeout": 10, "read_timeout": 60}


class AzureClient:
    """Makes the client on first use, in whichever process that is. Thread-safe; a pickle carries location
    and limits only, never credentials.

    ``once`` sends each request one time only. Limits of time that are None are this module's.
    """

    def __init__(
        self,
        location: AzureLocation,
        *,
        connect_seconds: float | None = None,
        read_seconds: float | None = None,
        once: bool = False,
    ) -> None:
        self.location = location
        self._limits = (connect_seconds, read_seconds, once)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._client: ContainerClient | None = None

    def __getstate__(self) -> tuple[AzureLocation, Limits]:
        return (self.location, self._limits)

    def __setstate__(self, state: tuple[AzureLocation, Limits]) -> None:
        self.location, self._limits = state
        self._reset()

    def get(self) -> ContainerClient:
        with self._lock:
            if self._client is None:
                quiet_vendor_logs()
                credential = find_credential(self.location, os.environ)
                try:
                    self._client = ContainerClient(
                        self.location.account_url,
                        self.location.container,
                        credential=credential,
                        **self._options(),
                    )
                except (AzureError, ValueError) as error:
                    # No cause: the library's text may quote the credential.
                    raise translate_azure_error(error, self.location.url) from None
            return self._client

    def service(self) -> BlobServiceClient:
        """A client of the whole account, for a single request."""
        try:
            return BlobServiceClient(
                self.location.account_url,
                credential=find_credential(self.location, os.environ),
                **self._options(),
            )
        except (AzureError, ValueError) as error:
            raise translate_azure_error(error, self.location.url) from None

    def _options(self) -> dict[str, Any]:
        connect_seconds, read_seconds, once = self._limits
        given = {"connection_timeout": connect_seconds, "read_timeout": read_seconds}
        limits = LIMITS | {name: seconds for name, seconds in given.items() if seconds is not None}
        limits["transport"] = RequestsTransport(session=bounded_session(), session_owner=False, **limits)
        # A redirect would be signed again, for whatever host the store names.
        return limits | {"permit_redirects": False} | ({"retry_total": 0} if once else RETRIES)


class AzurePlace(Opened):
    """Blobs below a path of a container, and the client that requests them. Picklable."""

    def __init__(self, location: AzureLocation, client: AzureClient) -> None:
        super().__init__(location)
        self._client = client
        self._base = location.base

    def _call(self, key: str, request: Callable[[ContainerClient], T]) -> T:
        """What a request about a key gives; errors as the table of ``faults`` has them."""
        try:
            return request(self._client.get())
        except AzureError as error:
            raise translate_azure_error(error, self._where(key)) from None

    def _get(self, key: str) -> Versioned | None:
        """A record; None when there is none."""

        def download(client: ContainerClient) -> Versioned:
            found = client.download_blob(self._base + key)
            return Versioned(found.readall(), str(found.properties.etag))

        try:
            return self._call(key, download)
        except StorageError as error:
            if is_missing_object(error):
                return None
            raise

    def _put(self, key: str, data: bytes, *, if_version: str | None) -> str:
        """Writes a record only if it has this version (None: only if there is none), and returns its ETag.
        Raises WriteConflict otherwise."""
        condition: dict[str, Any] = {"overwrite": False}
        if if_version is not None:
            condition = {"overwrite": True, "etag": if_version, "match_condition": UNCHANGED}
        repeated = False

        def note_retry(**_: object) -> None:
            nonlocal repeated
            repeated = True

        try:
            blob = self._client.get().get_blob_client(self._base + key)
            return str(blob.upload_blob(data, retry_hook=note_retry, **condition)["etag"])
        except AzureError as error:
            translated = self._conflict(error, key)
            if isinstance(translated, WriteConflict) and repeated:
                # The try before may have been ours and its answer lost: then the record is what we wrote.
                present = self._get(key)
                if present is not None and present.data == data:
                    return present.version
            raise translated from None

    def _conflict(self, error: AzureError, key: str) -> StorageError:
        """A condition on a record that is gone has failed, too."""
        translated = translate_azure_error(error, self._where(key))
        return error_of(Kind.CONFLICT, self._where(key)) if is_missing_object(translated) else translated


def find_credential(location: AzureLocation, environ: Mapping[str, str]) -> Any:
    """The credential for one account: ``AZURE_STORAGE_CONNECTION_STRING``, ``AZURE_STORAGE_KEY``,
    ``AZURE_STORAGE_SAS_TOKEN``, or azure-identity's default chain where that package is installed.

    A credential that names another account or endpoint is not used: StorageDenied. So is a token or SAS for
    an address that is not Azure's (or, for a SAS, not of this machine): it would give the secret away.
    """
    if text := environ.get("AZURE_STORAGE_CONNECTION_STRING", "").strip():
        return _from_connection_string(location, text)
    account = environ.get("AZURE_STORAGE_ACCOUNT", "").strip()
    if account and account != location.account:
        raise _other(location, "AZURE_STORAGE_ACCOUNT names another account")
    if key := environ.get("AZURE_STORAGE_KEY", "").strip():
        return AzureNamedKeyCredential(location.account, key)
    if sas := environ.get("AZURE_STORAGE_SAS_TOKEN", "").strip():
        if not account and location.is_azure:
            raise StorageDenied(
                "a SAS is sent only to the account that it is for: AZURE_STORAGE_ACCOUNT is not set",
                where=location.url,
                hint="Set AZURE_STORAGE_ACCOUNT where AZURE_STORAGE_SAS_TOKEN is set.",
            )
        return _sas(location, sas)
    return _default_chain(location)


def _from_connection_string(location: AzureLocation, text: str) -> Any:
    fields = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    account = fields.get("AccountName", "")
    if account and account != location.account:
        raise _other(location, "AZURE_STORAGE_CONNECTION_STRING names another account")
    endpoint = fields.get("BlobEndpoint", "").rstrip("/")
    if endpoint and endpoint.lower() != location.account_url.lower():
        raise _other(location, "AZURE_STORAGE_CONNECTION_STRING names another endpoint")
    suffix = fields.get("EndpointSuffix", "").lower()
    if suffix and not endpoint and not location.account_url.endswith(f".blob.{suffix}"):
        raise _other(location, "AZURE_STORAGE_CONNECTION_STRING names another endpoint")
    if key := fields.get("AccountKey"):
        return AzureNamedKeyCredential(location.account, key)
    if sas := fields.get("SharedAccessSignature"):
        if not account and not endpoint:
            raise _other(location, "AZURE_STORAGE_CONNECTION_STRING names no account for its SAS")
        return _sas(location, sas)
    raise StorageDenied(
        "AZURE_STORAGE_CONNECTION_STRING has neither AccountKey nor SharedAccessSignature",
        where=location.url,
    )


def _sas(location: AzureLocation, sas: str) -> AzureSasCredential:
    if not parse_web_url(location.account_url).is_loopback and not location.is_azure:
        raise _other(location, "a SAS is sent to Azure's own addresses only")
    return AzureSasCredential(sas)


def _default_chain(location: AzureLocation) -> Any:
    try:
        identity = importlib.import_module("azure.identity")
    except ImportError:
        raise error_of(
            Kind.NO_CREDENTIALS,
            location.url,
            message="no Azure credentials: set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or"
            " AZURE_STORAGE_SAS_TOKEN, or install azure-identity",
        ) from None
    if not location.is_azure:
        raise _other(location, "a token is sent to Azure's own addresses only")
    return identity.DefaultAzureCredential()


def _other(location: AzureLocation, message: str) -> StorageError:
    return StorageDenied(
        message, where=location.url, hint="Check the environment variables. Nothing was sent."
    )


def quiet_vendor_logs() -> None:
    """At info azure-core logs every request; a log of ours never holds a signed URL."""
    for name in ("azure", "azure.core.pipeline.policies.http_logging_policy", "urllib3", "msal"):
        logger = logging.getLogger(name)
        if logger.level < logging.WARNING:
            logger.setLevel(logging.WARNING)


PAGE = 5_000
KEYS_A_PAGE = 50
"""When pages give fewer wanted keys than this, each key is listed alone."""
LISTERS = 16


def find(client: AzureClient, base: str, keys: Sequence[str], url: str) -> dict[str, StoredObject]:
    """``lakeplan.stores.protocols.ObjectProber.find``. Azure lists from the beginning of a prefix only, so
    each folder's keys are read from the prefix that they share."""

    def of_folder(wanted: list[str]) -> list[StoredObject]:
        found, done = _listed(client, base, wanted, url)
        for key in wanted[done:]:
            found += _listed(client, base, [key], url)[0]
        return found

    folders = [list(group) for _, group in groupby(keys, key=lambda key: key.rpartition("/")[0])]
    with ThreadPoolExecutor(LISTERS) as pool:
        return {one.key: one for found in pool.map(of_folder, folders) for one in found}


def stored_object(item: BlobProperties, base: str) -> StoredObject:
    modified = round(item.last_modified.timestamp() * 1_000_000)
    return StoredObject(item.name[len(base) :], int(item.size), modified, str(item.etag or ""))


def first_name(page: Sequence[BlobProperties | BlobPrefix]) -> tuple[str, str | None] | None:
    """What names the first entry of a page; None for an empty one."""
    return (page[0].name, getattr(page[0], "version_id", None)) if page else None


def _listed(client: AzureClient, base: str, wanted: list[str], url: str) -> tuple[list[StoredObject], int]:
    """What is stored of ``wanted``, and of how many of them, from the first, that is known."""
    found: list[StoredObject] = []
    done = 0
    first, last = wanted[0], wanted[-1]
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    try:
        pages = client.get().list_blobs(
            name_starts_with=base + first[:same], results_per_page=1 if len(wanted) == 1 else PAGE
        )
        for number, page in enumerate(pages.by_page(), start=1):
            stored = {one.key: one for one in (stored_object(item, base) for item in page)}
            to = max(stored, default="")
            while done < len(wanted) and wanted[done] <= to:
                if (one := stored.get(wanted[done])) is not None:
                    found.append(one)
                done += 1
            if done == len(wanted) or number > 1 + len(wanted) // KEYS_A_PAGE:
                return found, done
    except AzureError as error:
        raise translate_azure_error(error, url) from None
    return found, len(wanted)


class AzureReader(AzurePlace):
    """Reads and lists one path of a container. Workers of Spark open their own client, from their own
    environment: only the location travels in a pickle."""

    def __init__(
        self,
        location: AzureLocation,
        *,
        connect_seconds: float | None = None,
        read_seconds: float | None = None,
    ) -> None:
        client = AzureClient(location, connect_seconds=connect_seconds, read_seconds=read_seconds)
        super().__init__(location, client)

    def read(self, key: str) -> bytes:
        where = self._where(key)
        try:
            # The library asks again for what is missing when a body breaks off.
            download = self._client.get().download_blob(self._base + key)
            if download.size > limits.OBJECT_BYTES:
                raise too_large(where)
            data: bytes = in_time(download.readall, where, limits.FILE_SECONDS)
        except AzureError as error:
            raise translate_azure_error(error, where) from None
        if len(data) != download.size:
            raise error_of(Kind.BROKEN, where, detail=f"{len(data)} of {download.size} bytes")
        return data

    def read_span(self, key: str, start: int, length: int) -> bytes:
        """See ``SpanReader``."""
        where = self._where(key)
        try:
            download = self._client.get().download_blob(self._base + key, offset=start, length=length)
            data: bytes = in_time(download.readall, where, limits.FILE_SECONDS)
        except AzureError as error:
            raise translate_azure_error(error, where) from None
        return data

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        for item in self._items(prefix, recursive=recursive):
            if isinstance(item, BlobPrefix):
                continue
            stored = stored_object(item, self._base)
            if not stored.key or _is_folder(item) or (stored.key.endswith("/") and stored.size == 0):
                continue
            yield stored

    def list_classes(self) -> Iterator[tuple[str, int, str]]:
        """See ``ClassReader``: access tiers."""
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
        """See ``RemnantReader``: older versions, and what soft deletion still keeps. Unfinished uploads are
        not listed apart from empty blobs."""
        found = Amount()
        for number, item in enumerate(self._items("", recursive=True, more=("versions", "deleted"))):
            if number == REMNANT_PAGES * 1_000:
                return Remnants(found, None, None, None, complete=False)
            if isinstance(item, BlobPrefix) or _is_folder(item):
                continue
            if item.deleted or (item.version_id and not item.is_current_version):
                found += Amount(1, int(item.size))
        return Remnants(found, None, None, None, complete=True)

    def _items(
        self, prefix: str, *, recursive: bool, more: Sequence[str] = ()
    ) -> Iterator[BlobProperties | BlobPrefix]:
        start, where = self._base + prefix, self._where(prefix)
        include = ["metadata", *more]
        try:
            container = self._client.get()
            items: ItemPaged[Any]
            if recursive:
                items = container.list_blobs(name_starts_with=start, include=include)
            else:
                items = container.walk_blobs(name_starts_with=start, include=include, delimiter="/")
            for page in bounded_pages(map(list, items.by_page()), first_name, where):
                yield from page
        except AzureError as error:
            raise translate_azure_error(error, where) from None


def _is_folder(item: BlobProperties) -> bool:
    """Accounts with a hierarchical namespace list their folders as blobs that say so."""
    return (item.metadata or {}).get("hdi_isfolder", "").lower() == "true"
