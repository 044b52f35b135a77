"""Requests to Google Cloud Storage's JSON API, by ``requests`` and google-auth."""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import re
import secrets
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

import requests

from lakeplan import limits
from lakeplan.errors import StorageError, StoreBusy
from lakeplan.stores.bounded import (
    REMNANT_PAGES,
    LazyClient,
    bounded_pages,
    bounded_session,
    in_time,
    too_large,
)
from lakeplan.stores.faults import Kind, error_of
from lakeplan.stores.open import NO_ACCESS, Access, GcsLocation, Remnants, Versioned
from lakeplan.stores.shared import RecordPlace, find_in_pages
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Amount
from lakeplan.values.units import number_of
from lakeplan.values.urls import parse_web_url

GOOGLE = "https://storage.googleapis.com"
_GOOGLES = re.compile(r"https://([a-z0-9-]+\.)*googleapis\.com", re.ASCII)
SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
TRIES, FIRST_WAIT = 4, 1.0
CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
PAGE = 1_000
KINDS = {
    401: Kind.NO_CREDENTIALS,
    403: Kind.DENIED,
    404: Kind.MISSING,
    412: Kind.CONFLICT,
    408: Kind.BUSY,
    429: Kind.BUSY,
    405: Kind.UNSUPPORTED,
    501: Kind.UNSUPPORTED,
}
RATE_LIMITS = (b"rateLimitExceeded", b"userRateLimitExceeded")
FIELDS = "name,size,updated,generation,timeDeleted,storageClass"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    repeated: bool = False
    """Whether the request was sent more than once, so that it may conflict with itself."""


class GcsClient(LazyClient[requests.Session]):
    """Sends requests about one bucket.

    A token is sent to Google's own hosts only. Any other endpoint (``endpoint_url``, or
    ``STORAGE_EMULATOR_HOST``) gets requests without one.
    """

    def __init__(self, access: Access = NO_ACCESS) -> None:
        super().__init__(access)
        self._access = access
        self._credentials: Any = None

    def _make(self) -> requests.Session:
        session: requests.Session = bounded_session()
        return session

    def request(
        self,
        method: str,
        path: str,
        where: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
        tries: int = TRIES,
    ) -> Answer:
        """Return the response with any status. Raises StoreBusy if each attempt fails for now."""
        prepared = requests.Request(method, path, dict(headers or {}), params=dict(params or {}), data=data)
        for number in range(1, tries + 1):
            try:
                answer = self._once(prepared, where)
            except StoreBusy:
                if number == tries:
                    raise
            else:
                if number == tries or not is_busy(answer):
                    return replace(answer, repeated=number > 1)
            time.sleep(random.uniform(0.5, 1) * FIRST_WAIT * 2 ** (number - 1))
        raise AssertionError("at least one try")

    def _once(self, request: requests.Request, where: str) -> Answer:
        """``request.url`` is a path. The body of ``alt=media`` is an object's."""
        endpoint = self._endpoint(where)
        token = self._token(endpoint, where)
        media = request.params.get("alt") == "media"

        def authorize(prepared: requests.PreparedRequest) -> requests.PreparedRequest:
            if token:
                prepared.headers["Authorization"] = f"Bearer {token}"
            return prepared

        try:
            response = self.get().request(
                request.method,
                f"{endpoint}{request.url}",
                params=request.params,
                headers=request.headers,
                data=request.data,
                auth=authorize,  # without it requests would look for a password in ~/.netrc
                timeout=(
                    self._access.connect_seconds or CONNECT_SECONDS,
                    self._access.read_seconds or READ_SECONDS,
                ),
                stream=media,
                allow_redirects=False,
            )
            with response:
                content = self._body(response, where) if media else response.content
        except requests.exceptions.SSLError as error:
            raise error_of(Kind.TLS, where, detail=type(error).__name__) from None
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
            raise error_of(Kind.UNREACHABLE, where, detail=type(error).__name__) from None
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
            raise error_of(Kind.BROKEN, where, detail=type(error).__name__) from None
        except requests.exceptions.RequestException as error:
            raise error_of(Kind.SETTINGS, where, detail=type(error).__name__) from None
        return Answer(response.status_code, response.headers, content)

    def _body(self, response: requests.Response, where: str) -> bytes:
        """Return the bytes as they are stored: objects with ``Content-Encoding: gzip`` are not unpacked."""
        announced = response.headers.get("Content-Length", "")
        if announced.isdecimal() and int(announced) > limits.OBJECT_BYTES:
            raise too_large(where)
        from urllib3.exceptions import HTTPError

        try:
            body: bytes = in_time(lambda: response.raw.read(decode_content=False), where, limits.FILE_SECONDS)
        except HTTPError as error:
            raise error_of(Kind.BROKEN, where, detail=type(error).__name__) from None
        if announced.isdecimal() and len(body) != int(announced):
            raise error_of(Kind.BROKEN, where, detail=f"received {len(body)} of {announced} bytes")
        return body

    def _endpoint(self, where: str) -> str:
        endpoint = self._access.endpoint_url or os.environ.get("STORAGE_EMULATOR_HOST", "").strip() or GOOGLE
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        try:
            return parse_web_url(endpoint).origin
        except ValueError:
            raise error_of(Kind.SETTINGS, where, detail="the endpoint is not a valid URL") from None

    def _token(self, endpoint: str, where: str) -> str:
        if not _GOOGLES.fullmatch(endpoint):
            return ""
        with self._lock:
            try:
                auth = importlib.import_module("google.auth")
                transport = importlib.import_module("google.auth.transport.requests")
                if self._credentials is None:
                    logging.getLogger("google.auth").setLevel(logging.ERROR)  # a project is not needed
                    with warnings.catch_warnings():  # nor is a quota project
                        warnings.simplefilter("ignore", UserWarning)
                        self._credentials, _ = auth.default(scopes=list(SCOPES))
                if not self._credentials.valid:
                    self._credentials.refresh(transport.Request())
            except ImportError:
                raise error_of(Kind.NO_CREDENTIALS, where, message="google-auth is not installed") from None
            except Exception as error:  # noqa: BLE001 (google-auth raises what its transports do)
                # Without a cause, because the library's text may quote the credentials.
                if type(error).__name__ == "TransportError":
                    raise error_of(Kind.UNREACHABLE, where, detail="TransportError") from None
                raise error_of(Kind.NO_CREDENTIALS, where, detail=type(error).__name__) from None
            return str(self._credentials.token)


def is_busy(answer: Answer) -> bool:
    """Return whether the same request may succeed later. Rate limits are status 429, or 403 with a reason."""
    if answer.status == 403:
        return any(b'"%b"' % reason in answer.body for reason in RATE_LIMITS)
    return answer.status in (408, 429) or (answer.status >= 500 and answer.status != 501)


def error_for(answer: Answer, where: str) -> StorageError:
    """Return the error of a response. It has the status, never the store's text."""
    kind = Kind.BUSY if is_busy(answer) else KINDS.get(answer.status)
    if kind is None:
        return StorageError(f"the storage returned status {answer.status}", where=where)
    return error_of(kind, where, detail=f"status {answer.status}")


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def microseconds(text: str) -> int:
    """Return a time as microseconds. Raises ValueError for a text that is not a time with a zone."""
    try:
        return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)
    except TypeError:
        raise ValueError("the time has no time zone") from None


def stored_object(item: Mapping[str, Any], base: str) -> StoredObject:
    """Return an object. ``e_tag`` is its generation, which identifies its bytes. The time is that of the last
    change, also of metadata, so that an object never seems older than it is. Raises ValueError, KeyError."""
    name, size, generation = str(item["name"]), item.get("size", "0"), item["generation"]
    if number_of(size) is None or not number_of(generation):
        raise ValueError("a size or generation that is not a number")
    return StoredObject(name[len(base) :], int(size), microseconds(item["updated"]), generation)


@dataclass(frozen=True)
class Page:
    """A page of a listing. Keys are relative to the root of the place."""

    objects: list[StoredObject]
    noncurrent: list[StoredObject]
    """Those of ``objects`` that are older versions, which a listing has only on request."""
    prefixes: list[str]
    token: str
    classes: list[str] = field(default_factory=list)
    """The storage class of each of ``objects``."""


class GcsPlace(RecordPlace):
    """Objects below a prefix of a bucket, and the client that requests them. Picklable."""

    def __init__(self, location: GcsLocation, access: Access = NO_ACCESS) -> None:
        super().__init__(location)
        self._client = GcsClient(access)
        self._base = location.base
        self._bucket_path = f"/storage/v1/b/{quote(location.bucket, safe='')}"
        self._upload_path = f"/upload{self._bucket_path}/o"

    def _path(self, key: str) -> str:
        if key and (reason := self._unusable(key)):
            raise StorageError(reason, where=self._where(key))
        return f"{self._bucket_path}/o/{quote(self._base + key, safe='')}"

    def _unusable(self, key: str) -> str:
        if reason := super()._unusable(key):
            return reason
        name = self._base + key
        if name in (".", "..") or len(name.encode()) > 1024:
            return "Google Cloud Storage does not allow objects with this name"
        return ""

    def _ask(self, key: str) -> Answer:
        """Return the description of an object. Raises StorageNotFound only if a listing confirms it."""
        return self._checked(key, self._client.request("GET", self._path(key), self._where(key)))

    def _download(self, key: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Return the response to a download with any status."""
        path, headers = f"/download{self._path(key)}", {**AS_STORED, **(headers or {})}
        return self._client.request("GET", path, self._where(key), params=MEDIA, headers=headers)

    def _checked(self, key: str, answer: Answer) -> Answer:
        if answer.status == 404:
            self._confirm_missing(key)
        if answer.status not in (200, 206):
            raise error_for(answer, self._where(key))
        return answer

    def _object(self, key: str, answer: Answer) -> Answer:
        """Return the response to a download, if it is of an object. A proxy's page has no generation."""
        answer = self._checked(key, answer)
        if not answer.headers.get(GENERATION, "").isdecimal():
            raise error_of(Kind.BROKEN, self._where(key), detail="the response does not contain a generation")
        return answer

    def _confirm_missing(self, key: str) -> None:
        """Raise StorageError if a listing has the object, or fails: a 404 may mean the bucket or be a
        proxy's."""
        if self._listed(key) is not None:
            raise error_of(Kind.UNCLEAR, self._where(key))

    def _listed(self, key: str) -> StoredObject | None:
        """Return an object from a listing of its name, which has it before all longer names. An empty page
        need not be the last one."""
        for page in self._pages(key, maxResults="1"):
            if page.objects:
                return next((one for one in page.objects if one.key == key), None)
        return None

    def _page(self, params: Mapping[str, str], where: str) -> Page:
        fields = f"kind,items({FIELDS}),prefixes,nextPageToken"
        answer = self._client.request(
            "GET", f"{self._bucket_path}/o", where, params={"fields": fields, **params}
        )
        if answer.status == 404:
            raise error_of(Kind.NO_CONTAINER, where)
        return read_page(answer, self._base, params["prefix"], where)

    def _pages(self, prefix: str, **params: str) -> Iterator[Page]:
        where, start = self._where(prefix), {"prefix": self._base + prefix, "maxResults": str(PAGE)}

        def pages() -> Iterator[Page]:
            more: dict[str, str] = {}
            while True:
                page = self._page({**start, **params, **more}, where)
                yield page
                if not page.token:
                    return
                more = {"pageToken": page.token}

        yield from bounded_pages(pages(), _first, where)

    def _upload(self, key: str, data: bytes, *, if_version: str | None) -> Answer:
        """Write an object. ``if_version`` is the generation that must exist, "0" for none."""
        self._path(key)
        params = {"uploadType": "multipart"}
        if if_version is not None:
            params["ifGenerationMatch"] = if_version
        boundary = secrets.token_hex(16)
        about = json.dumps({"name": self._base + key}).encode()
        parts = ((b"application/json; charset=UTF-8", about), (b"application/octet-stream", data))
        line = b"--" + boundary.encode()
        body = b"".join(b"%b\r\nContent-Type: %b\r\n\r\n%b\r\n" % (line, kind, part) for kind, part in parts)
        headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
        data = body + line + b"--\r\n"
        answer = self._client.request(
            "POST", self._upload_path, self._where(key), params=params, headers=headers, data=data
        )
        if answer.status == 404:
            raise error_of(Kind.NO_CONTAINER, self._where(key))
        return answer

    def put_record(self, key: str, data: bytes, *, if_version: str) -> str:
        """Write under a condition, and return the new generation. Raises WriteConflict."""
        answer = self._upload(key, data, if_version=if_version)
        if answer.status == 412 and answer.repeated and (version := self._version_of(key, data)):
            return version
        if answer.status != 200:
            raise error_for(answer, self._where(key))
        generation = str(json_of(answer, self._where(key)).get("generation", ""))
        if not generation.isdecimal():
            raise error_of(Kind.BROKEN, self._where(key), detail="the response does not contain a generation")
        return generation

    def _read_record(self, key: str) -> Versioned:
        """Return an object and its generation."""
        answer = self._object(key, self._download(key))
        return Versioned(answer.body, answer.headers[GENERATION])

    def delete_record(self, key: str, generation: str) -> None:
        """Delete a record. Raises WriteConflict if it has another generation."""
        params = {"ifGenerationMatch": generation}
        answer = self._client.request("DELETE", self._path(key), self._where(key), params=params)
        if answer.status == 404:
            if answer.repeated:  # the first request deleted it
                return
            self._confirm_missing(key)
            raise error_of(Kind.CONFLICT, self._where(key))
        if answer.status not in (200, 204):
            raise error_for(answer, self._where(key))


MEDIA = {"alt": "media"}
GENERATION = "x-goog-generation"
AS_STORED = {"Accept-Encoding": "gzip"}
"""Without it, the store would unpack objects with ``Content-Encoding: gzip``."""


def json_of(answer: Answer, where: str) -> dict[str, Any]:
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise error_of(Kind.BROKEN, where, detail="the response is not JSON")
    return document


def read_page(answer: Answer, base: str, prefix: str, where: str) -> Page:
    """Return a page. Raises StorageError unless it is a listing of names that begin with ``prefix``."""
    if answer.status != 200:
        raise error_for(answer, where)
    page = json_of(answer, where)
    try:
        if page.get("kind") != "storage#objects":
            raise ValueError("another kind of response")
        items, prefixes, token = (
            page.get("items", []),
            page.get("prefixes", []),
            page.get("nextPageToken", ""),
        )
        objects = [stored_object(item, base) for item in items]
        names = [*(item["name"] for item in items), *prefixes]
        "".join((*names, token)).encode()  # text, and UTF-8
    except (AttributeError, KeyError, TypeError, ValueError):
        raise error_of(Kind.BROKEN, where, detail="the response is not a listing") from None
    if not all(name.startswith(prefix) for name in names):
        raise StorageError("the storage listed objects outside the requested prefix", where=where)
    noncurrent = [one for item, one in zip(items, objects, strict=True) if item.get("timeDeleted")]
    classes = [str(item.get("storageClass", "")) for item in items]
    return Page(objects, noncurrent, [name[len(base) :] for name in prefixes], token, classes)


def _first(page: Page) -> object:
    return (*((one.key, one.e_tag) for one in page.objects[:1]), *page.prefixes[:1]) or None


class GcsReader(GcsPlace):
    """Reads and lists one prefix of a bucket. Spark workers open connections from their own environment."""

    def read(self, key: str) -> bytes:
        return self._object(key, self._download(key)).body

    def read_span(self, key: str, start: int, length: int) -> bytes:
        answer = self._object(key, self._download(key, {"Range": f"bytes={start}-{start + length - 1}"}))
        body = answer.body if answer.status == 206 else answer.body[start : start + length]
        if len(body) > length:
            raise error_of(
                Kind.BROKEN, self._where(key), detail="the response contains more bytes than requested"
            )
        return body

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        for page in self._pages(prefix, **({} if recursive else {"delimiter": "/"})):
            for stored in page.objects:
                # Consoles create empty objects to show folders.
                if stored.key and not (stored.key.endswith("/") and stored.size == 0):
                    yield stored

    def list_prefixes(self, prefix: str = "") -> list[str]:
        return sorted(one for page in self._pages(prefix, delimiter="/") for one in page.prefixes)

    def remnants(self) -> Remnants:
        """Implements ``RemnantReader``. There are no delete markers. Unfinished uploads are not listed."""
        noncurrent, whole = Amount(), True
        for number, page in enumerate(self._pages("", versions="true")):
            if number == REMNANT_PAGES:
                whole = False
                break
            noncurrent += Amount(len(page.noncurrent), sum(one.size for one in page.noncurrent))
        return Remnants(noncurrent, 0, None, None, whole)

    def list_classes(self) -> Iterator[tuple[str, int, str]]:
        """Implements ``ClassReader``."""
        for page in self._pages(""):
            for one, name in zip(page.objects, page.classes, strict=True):
                yield one.key, one.size, name

    def find(self, keys: Sequence[str]) -> dict[str, StoredObject]:
        """Implements ``ObjectProber``."""

        def page_from(key: str) -> tuple[list[StoredObject], bool]:
            params = {"prefix": self._base, "maxResults": str(PAGE), "startOffset": self._base + key}
            page = self._page(params, self._url)
            return page.objects, bool(page.token)

        return find_in_pages(keys, page_from, self._listed, self._url)
